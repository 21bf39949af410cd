//! The messages of libbpf. It prints them to standard error unless a callback is set, and there is one callback for the whole
//! process.

use libbpf_rs::PrintLevel;
use std::sync::{Mutex, Once, PoisonError};

/// Its first warning: it names what failed, which the error number does not.
static WARNING: Mutex<String> = Mutex::new(String::new());

/// What libbpf has to say goes where everything else goes. To be called before programs are loaded.
pub fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |level, message| {
            let message = message.trim_end();
            tracing::debug!("{message}");
            // The verifier's account of a whole program is for the log only; the summing-up names nothing.
            if level == PrintLevel::Warn && message.lines().count() == 1 && !message.contains("failed to load object") {
                let mut first = WARNING.lock().unwrap_or_else(PoisonError::into_inner);
                if first.is_empty() {
                    message.clone_into(&mut first);
                }
            }
        })));
    });
}

/// An error, with what libbpf has said about it.
#[must_use]
pub fn explained(error: &libbpf_rs::Error) -> String {
    let said = std::mem::take(&mut *WARNING.lock().unwrap_or_else(PoisonError::into_inner));
    match said.trim_start_matches("libbpf: ") {
        "" => format!("{error:#}"),
        said => format!("{error:#} ({said})"),
    }
}

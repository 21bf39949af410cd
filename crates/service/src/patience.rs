//! Waits for a limited time.
//!
//! A call on a volume that is frozen, or whose device hangs, does not return, and no signal ends it. Such calls are
//! made on threads that can be left behind, never on threads that others wait for.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at a thread.
const LOOK: Duration = Duration::from_millis(5);

/// Joins `thread` when it ends before `until`; otherwise leaves it behind, and gives it back.
pub(crate) fn join_until<T>(thread: JoinHandle<T>, until: Instant) -> Result<thread::Result<T>, JoinHandle<T>> {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return Err(thread);
        }
        thread::sleep(LOOK);
    }
    Ok(thread.join())
}

/// Does `work` on a thread of its own; what comes of it within `patience`. Otherwise it goes on by itself.
///
/// # Errors
/// The system's, when it has no thread to give.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (sender, result) = mpsc::channel();
    let body = move || {
        // No one listens any more when it took too long.
        _ = sender.send(work());
    };
    thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(result.recv_timeout(patience).ok())
}

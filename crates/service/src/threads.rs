//! The threads of the service, whose unexpected end is detected, and locks that survive a panic.
//!
//! Owns the list of the threads and their state, and the detection of panics anywhere in the process. A thread that
//! panicked is reported in the log and in `status`, and the watchdog of systemd is no longer notified, so that systemd
//! restarts the service. Until then everything else continues.

use crate::patience::join_until;
use longrun_sys::{Bell, wait_readable};
use std::any::Any;
use std::os::fd::AsFd as _;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A vital thread that has said nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// A lock whose holder may have panicked: what it guards here is whole at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads of the service.
#[derive(Clone)]
pub struct Threads {
    inner: Arc<Inner>,
}

struct Inner {
    stopping: AtomicBool,
    /// Rings when they shall end.
    bell: Bell,
    /// The same for the thread that waits for tasks, not for descriptors.
    stopped: Notify,
    lost: Mutex<Vec<String>>,
    beats: Mutex<Vec<(&'static str, Instant)>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's, when it has no descriptor to give.
    pub fn new() -> std::io::Result<Self> {
        let (stopping, stopped, lost, beats, handles) = Default::default();
        Ok(Self { inner: Arc::new(Inner { stopping, bell: Bell::new()?, stopped, lost, beats, handles }) })
    }

    /// Starts a thread that ends only when [`Self::stopping`] says so.
    ///
    /// # Errors
    /// The system's, when it has no thread to give.
    pub fn start(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let inner = Arc::clone(&self.inner);
        let body = move || {
            let ended = panic::catch_unwind(AssertUnwindSafe(work));
            let problem = match ended {
                Err(cause) => format!("the thread {name} ended unexpectedly: {}", words(&*cause)),
                Ok(()) if !inner.stopping.load(Ordering::SeqCst) => format!("the thread {name} ended unexpectedly"),
                Ok(()) => return,
            };
            tracing::error!("{problem}; restart the service");
            lock(&inner.lost).push(problem);
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        lock(&self.inner.handles).push(handle);
        Ok(())
    }

    /// Says that the thread `name` is alive.
    pub fn beat(&self, name: &'static str) {
        let mut beats = lock(&self.inner.beats);
        match beats.iter_mut().find(|(known, _)| *known == name) {
            Some((_, at)) => *at = Instant::now(),
            None => beats.push((name, Instant::now())),
        }
    }

    /// Whether the service is about to end.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::SeqCst)
    }

    /// What can be read from the moment in which the service is about to end: who waits for something waits for this, too.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.inner.bell
    }

    /// Ends when the service is about to end. One task waits for it.
    pub async fn stopped(&self) {
        self.inner.stopped.notified().await;
    }

    /// Waits for `time`, or until the service is about to end; whether it is.
    pub fn rest(&self, time: Duration) -> bool {
        if wait_readable(&[self.bell().as_fd()], time).is_err() {
            thread::sleep(time);
        }
        self.stopping()
    }

    /// Asks all of them to end.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
        self.inner.stopped.notify_one();
    }

    /// Waits until they have ended, at most for `patience`; the names of those that have not.
    pub fn join(&self, patience: Duration) -> Vec<String> {
        let until = Instant::now() + patience;
        let handles = std::mem::take(&mut *lock(&self.inner.handles));
        let mut left = Vec::new();
        for handle in handles {
            match join_until(handle, until) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!("a thread panicked while it was being stopped"),
                Err(handle) => left.push(handle.thread().name().unwrap_or("?").to_owned()),
            }
        }
        left
    }

    /// What is wrong with them; nothing, when all is well.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = lock(&self.inner.lost).clone();
        let silent = |(name, at): &(&'static str, Instant)| {
            (at.elapsed() > SILENCE).then(|| format!("the thread {name} hangs; restart the service"))
        };
        troubles.extend(lock(&self.inner.beats).iter().filter_map(silent));
        troubles.extend(lock(panics()).clone());
        troubles
    }
}

fn panics() -> &'static Mutex<Vec<String>> {
    static PANICS: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    PANICS.get_or_init(Mutex::default)
}

/// From now on a panic of any thread of the process, those of libraries included, is logged and remembered.
pub fn notice_panics() {
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
        let problem = format!("the thread {name} panicked{place}: {}; restart the service", words(info.payload()));
        tracing::error!("{problem}");
        let mut panics = lock(panics());
        // The first tell what happened; a thread that fails again and again must not fill memory.
        if panics.len() < 8 {
            panics.push(problem);
        }
    }));
}

fn words(cause: &(dyn Any + Send)) -> &str {
    cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_or_ends_is_told_and_the_others_go_on() {
        let threads = Threads::new().unwrap();
        threads.start("failing", || panic!("on purpose")).unwrap();
        threads.start("leaving", || {}).unwrap();
        let staying = threads.clone();
        threads.start("staying", move || while !staying.rest(Duration::from_secs(600)) {}).unwrap();
        while threads.troubles().len() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        let troubles = threads.troubles().join("\n");
        assert!(troubles.contains("the thread failing ended unexpectedly: on purpose"), "{troubles}");
        assert!(troubles.contains("the thread leaving ended unexpectedly"), "{troubles}");
        threads.stop();
        assert_eq!(threads.join(Duration::from_secs(20)), Vec::<String>::new());
        assert_eq!(threads.troubles().len(), 2);
    }
}

//! Limits how many connections are open at a time.
//!
//! Owns the rule that connections without a session keep out none that has one: when all places are taken, the oldest without a session is
//! closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::AbortHandle;

/// At most this many connections of a listener are open.
const CONNECTIONS: usize = 64;

/// Whether a connection has sent a request with a session.
pub type HasSession = Arc<AtomicBool>;

/// The open connections of a listener, the oldest first.
#[derive(Debug, Default)]
pub struct Room {
    open: VecDeque<(AbortHandle, HasSession)>,
}

impl Room {
    /// Takes in a connection, and closes another one if there are too many.
    pub fn admit(&mut self, task: AbortHandle, has_session: HasSession) {
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() >= CONNECTIONS {
            let stranger = self.open.iter().position(|(_, has_session)| !has_session.load(Ordering::Relaxed));
            if let Some((task, _)) = self.open.remove(stranger.unwrap_or(0)) {
                task.abort();
            }
        }
        self.open.push_back((task, has_session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn the_oldest_connection_without_a_session_is_closed_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut room = Room::default();
            let mut admit = |has_session: bool| {
                let task = tokio::spawn(pending::<()>());
                room.admit(task.abort_handle(), Arc::new(AtomicBool::new(has_session)));
                task
            };
            let with_session = admit(true);
            let mut strangers: Vec<_> = (0..1000).map(|_| admit(false)).collect();
            let newest = strangers.split_off(1000 - (CONNECTIONS - 1));
            for closed in strangers {
                assert!(closed.await.unwrap_err().is_cancelled());
            }
            assert!(!with_session.is_finished() && newest.iter().all(|task| !task.is_finished()));
            // Where all have a session, the oldest is closed.
            let known: Vec<_> = (0..CONNECTIONS).map(|_| admit(true)).collect();
            for closed in newest.into_iter().chain([with_session]) {
                assert!(closed.await.unwrap_err().is_cancelled());
            }
            assert!(known.iter().all(|task| !task.is_finished()));
        });
    }
}

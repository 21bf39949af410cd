//! Notifies systemd. Does nothing without systemd.

use sd_notify::NotifyState;
use std::time::Duration;

/// The service works.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// The configuration is being read again.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// The service is stopping.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// One line for `systemctl status`; and the service is alive.
pub fn alive(status: &str) {
    send(&[NotifyState::Status(status), NotifyState::Watchdog]);
}

/// One line for `systemctl status`, from a service that should be restarted.
pub fn ailing(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// How often systemd is notified that the service is alive.
#[must_use]
pub fn interval() -> Duration {
    let most = Duration::from_secs(10);
    sd_notify::watchdog_enabled().map_or(most, |patience| (patience / 3).min(most))
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("notifying systemd failed: {error}");
    }
}

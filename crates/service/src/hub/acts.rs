//! Operations on volumes that may not respond.
//!
//! Owns the time limit. An operation on a volume (examining it, starting and ending its watch) runs on a thread of its
//! own, and the caller waits some seconds for it. A volume that is frozen, or whose device hangs, therefore delays
//! neither other volumes nor the end of the service. Until the operation returns no other one starts on that volume,
//! and `status` reports the trouble.

use super::Hub;
use crate::patience::within;
use crate::threads::lock;
use longrun_sys::DeviceNumber;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So long an act is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// An operation that takes this long is reported.
const TOLD_AFTER: Duration = Duration::from_secs(30);

/// What goes on.
#[derive(Default)]
pub(super) struct Acts {
    /// By volume, and since when.
    under_way: Mutex<BTreeMap<DeviceNumber, (&'static str, Instant)>>,
    ended: Condvar,
}

impl Acts {
    /// Waits until nothing goes on on the volume, and begins; false when that takes too long.
    fn begin(&self, device: DeviceNumber, what: &'static str) -> bool {
        let busy = |acts: &mut BTreeMap<_, _>| acts.contains_key(&device);
        let waited = self.ended.wait_timeout_while(lock(&self.under_way), PATIENCE, busy);
        let (mut acts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if acts.contains_key(&device) {
            return false;
        }
        acts.insert(device, (what, Instant::now()));
        true
    }

    fn end(&self, device: DeviceNumber) {
        lock(&self.under_way).remove(&device);
        self.ended.notify_all();
    }
}

/// Ends an act, however it ends.
struct Acting {
    hub: Arc<Hub>,
    device: DeviceNumber,
}

impl Drop for Acting {
    fn drop(&mut self) {
        self.hub.acts.end(self.device);
    }
}

impl Hub {
    /// Does `work` on a volume, called `what` in a sentence. Returns when it is done, or when it takes too long: then it goes on,
    /// and so does the caller. Nothing is done, and the answer is false, where an earlier act does not come back.
    pub(super) fn act(
        self: &Arc<Self>,
        device: DeviceNumber,
        what: &'static str,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> bool {
        if !self.acts.begin(device, what) {
            tracing::warn!("{device}: {what} is postponed: the volume does not respond");
            return false;
        }
        let acting = Acting { hub: Arc::clone(self), device };
        match within(PATIENCE, "volume", move || work(&acting.hub)) {
            Ok(Some(())) => {}
            Ok(None) => {
                tracing::warn!(
                    "{device}: {what} takes a long time: the volume is frozen, or its device is slow or hangs"
                )
            }
            Err(error) => tracing::error!("{device}: starting a thread for {what} failed: {error}"),
        }
        true
    }

    /// Volumes that do not answer.
    pub(super) fn silent_volumes(&self) -> Vec<String> {
        let told = |(device, (what, since)): (&DeviceNumber, &(&str, Instant))| {
            let seconds = since.elapsed().as_secs();
            (since.elapsed() > TOLD_AFTER).then(|| {
                format!(
                    "{device}: {what} has not finished for {seconds} s; thaw the volume (fsfreeze -u), or check its \
                     device"
                )
            })
        };
        lock(&self.acts.under_way).iter().filter_map(told).collect()
    }
}

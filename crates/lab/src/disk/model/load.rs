//! A host that keeps a given number of requests at a disk and takes no time itself: the model's prediction for a load.

use super::{Device, Nanos, Request};

/// Gives `requests` to the device, `depth` at a time, the next one when one is done; when the last one is done.
pub fn closed_loop(device: &mut Device, requests: &[Request], depth: usize) -> Nanos {
    let (mut now, mut next, mut open) = (Nanos(0), requests.iter(), 0);
    loop {
        while open < depth.max(1) {
            let Some(request) = next.next() else { break };
            device.submit(now, *request);
            open += 1;
        }
        let Some(due) = device.due() else { return now };
        for done in device.take_done(due) {
            (now, open) = (done.at, open - 1);
        }
        now = now.max(due);
    }
}

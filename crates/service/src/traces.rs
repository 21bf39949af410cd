//! Traces of what the devices of volumes are asked for, begun by operators.
//!
//! Owns the trace that goes on, and the last recording of each volume, in memory. One at a time, since each costs processor time
//! with every request of every process. The counting is `iotrace`'s.

use crate::threads::{Threads, lock};
use jiff::{SignedDuration, Timestamp};
use longrun_api::trace::VolumeTrace;
use longrun_iotrace::{Options, TraceError, Tracer};
use longrun_sys::{BlockDevice, DeviceNumber};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the recording of the trace that goes on is renewed.
const ROUND: Duration = Duration::from_secs(1);
/// Recordings of so many volumes are kept: some tens of kilobytes each.
const KEPT: usize = 32;

/// What is traced.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The id of the volume.
    pub id: String,
    /// Where it is mounted, for the recording.
    pub target: String,
    /// Its devices.
    pub members: Vec<DeviceNumber>,
}

/// All traces.
#[derive(Default)]
pub struct Traces {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The volume of the trace that goes on.
    going: Option<String>,
    /// It is to end now.
    ends: bool,
    last: BTreeMap<String, VolumeTrace>,
}

impl Traces {
    /// What is known of the volume `id`.
    #[must_use]
    pub fn of(&self, id: &str) -> VolumeTrace {
        lock(&self.open).last.get(id).cloned().unwrap_or_default()
    }

    /// Begins a trace of so many seconds, on a thread of its own.
    ///
    /// # Errors
    /// Why not, in a sentence: another one goes on, or there is no thread.
    pub fn begin(self: &Arc<Self>, threads: &Threads, traced: Traced, seconds: u64) -> Result<VolumeTrace, String> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let ends = Timestamp::now() + SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        let begun = VolumeTrace { running: true, ends: Some(ends.to_string()), ..VolumeTrace::default() };
        {
            let mut open = lock(&self.open);
            if let Some(other) = &open.going {
                return Err(format!("a trace of volume {other} goes on; one at a time"));
            }
            (open.going, open.ends) = (Some(traced.id.clone()), false);
            if open.last.len() >= KEPT {
                open.last.pop_first();
            }
            open.last.insert(traced.id.clone(), begun.clone());
        }
        let (all, threads, id) = (Arc::clone(self), threads.clone(), traced.id.clone());
        let work = move || {
            let trouble = all.count(&threads, &traced, until).err();
            all.over(&traced.id, trouble);
        };
        if let Err(error) = std::thread::Builder::new().name("trace".to_owned()).spawn(work) {
            let why = format!("starting a thread failed: {error}");
            self.over(&id, Some(why.clone()));
            return Err(why);
        }
        Ok(begun)
    }

    /// Ends the trace of the volume `id`, if it goes on; what is known of it.
    pub fn end(&self, id: &str) -> VolumeTrace {
        let mut open = lock(&self.open);
        open.ends |= open.going.as_deref() == Some(id);
        open.last.get(id).cloned().unwrap_or_default()
    }

    fn count(&self, threads: &Threads, traced: &Traced, until: Instant) -> Result<(), String> {
        let known = |number: &DeviceNumber| BlockDevice::numbered(*number).ok();
        let devices: Vec<BlockDevice> = traced.members.iter().filter_map(known).collect();
        if devices.is_empty() {
            return Err(format!("{}: it is not on a block device, so there is nothing to trace", traced.target));
        }
        let told = |error: TraceError| error.to_string();
        let options = Options { own: vec![std::process::id()], ..Options::default() };
        let tracer = Tracer::start(&traced.target, &devices, options).map_err(told)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let ends = threads.rest(left.min(ROUND)) || lock(&self.open).ends || left <= ROUND;
            let recording = serde_json::to_value(tracer.recording().map_err(told)?).unwrap_or_default();
            if let Some(trace) = lock(&self.open).last.get_mut(&traced.id) {
                trace.recording = recording;
            }
            if ends {
                return Ok(());
            }
        }
    }

    fn over(&self, id: &str, trouble: Option<String>) {
        let mut open = lock(&self.open);
        open.going = None;
        if let Some(trace) = open.last.get_mut(id) {
            (trace.running, trace.ends, trace.trouble) = (false, None, trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_what_cannot_be_traced_is_told() {
        let (traces, threads) = (Arc::new(Traces::default()), Threads::new().unwrap());
        let traced = |id: &str| Traced { id: id.to_owned(), target: "/x".to_owned(), members: Vec::new() };
        assert_eq!(traces.of("a"), VolumeTrace::default());
        lock(&traces.open).going = Some("b".to_owned());
        assert!(traces.begin(&threads, traced("a"), 1).unwrap_err().contains("volume b"));
        lock(&traces.open).going = None;
        let begun = traces.begin(&threads, traced("a"), 1).unwrap();
        assert!(begun.running && begun.ends.is_some());
        // There is no device.
        let until = Instant::now() + Duration::from_secs(60);
        while traces.of("a").running {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        let over = traces.of("a");
        assert!(over.trouble.is_some() && over.recording.is_null() && over.ends.is_none(), "{over:?}");
    }
}

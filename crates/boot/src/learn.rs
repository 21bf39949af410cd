//! What follows from a recording: the trace is kept, the list merged, the last boot judged, and the next one planned.

use crate::choice::{Leave, is_worth};
use crate::judge::{History, Next, Preloaded, Run};
use crate::merge::{Unseen, merge};
use crate::model::{List, Part, Place, Touch, file_of, sums};
use crate::plan::{Order, Plan};
use crate::preload::Outcome;
use crate::store::{Names, Store, StoreError};
use crate::system::Root;
use crate::volume::Volume;
use longrun_layout::{Bytes, FileId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What was read, in the order of time.
    pub touches: Vec<Touch>,
    /// What had been planned to be read ahead, and which parts of it were used; `None` where the kernel does not tell.
    pub used: Option<Vec<Part>>,
    /// The note of who read ahead; `None`: nothing was.
    pub outcome: Option<Outcome>,
    /// How long it took; `None` where that is not known.
    pub took: Option<Duration>,
    /// Which files are not wanted.
    pub leave: Leave,
}

/// What became of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Reads of the device.
    pub reads: usize,
    /// The list from now on.
    pub list: List,
    /// What is remembered from now on.
    pub history: History,
    /// What is read ahead next time; `None`: nothing.
    pub plan: Option<Plan>,
}

/// Keeps everything that follows from a recording.
///
/// # Errors
/// [`StoreError`]. What was kept before is then still there.
pub fn learn(
    root: &Root,
    store: &Store,
    names: &Names,
    volume: &Volume,
    order: Order,
    recorded: &Recorded,
) -> Result<Learned, StoreError> {
    let known = worthy(root, volume, recorded);
    let is_worthy = |part: &Part| file_of(part.place).is_none_or(|file| known.get(&file) != Some(&false));
    let trace = List::recorded(volume.uuid, &recorded.touches).retain(is_worthy);
    store.keep_trace(names, &trace)?;

    // A list that cannot be used is made anew.
    let old = store.list(names).ok().flatten().filter(|list| list.uuid == volume.uuid);
    let old = old.unwrap_or_else(|| List::empty(volume.uuid));
    let (seen, unseen) = seen(&old, &trace, recorded);
    let list = merge(&old, &seen, unseen).retain(is_worthy);
    let mut history = store.history(names)?;
    history.add(run(recorded, &trace));
    let plan = next_plan(&list, &history, volume, order);
    store.keep_list(names, &list)?;
    store.keep_history(names, &history)?;
    store.keep_plan(names, plan.as_ref())?;
    Ok(Learned { reads: recorded.touches.len(), list, history, plan })
}

/// The plan for the next time, made anew from the list that is kept: after files were moved, or when it was switched on again.
///
/// # Errors
/// [`StoreError`].
pub fn replan(store: &Store, names: &Names, volume: &Volume, order: Order) -> Result<Option<Plan>, StoreError> {
    let (list, history) = (store.list(names)?, store.history(names)?);
    let list = list.filter(|list| list.uuid == volume.uuid);
    let plan = list.and_then(|list| next_plan(&list, &history, volume, order));
    store.keep_plan(names, plan.as_ref())?;
    Ok(plan)
}

/// What is read ahead next time; `None` where nothing is, or it is the turn of a boot without.
fn next_plan(list: &List, history: &History, volume: &Volume, order: Order) -> Option<Plan> {
    (history.next() == Next::Preload)
        .then(|| Plan::compile(list, order, |file| volume.lies(file)))
        .filter(|plan| !plan.parts.is_empty())
}

/// Which files are worth a place.
fn worthy(root: &Root, volume: &Volume, recorded: &Recorded) -> BTreeMap<FileId, bool> {
    let mut known = BTreeMap::new();
    for file in recorded.touches.iter().filter_map(|touch| file_of(touch.place)) {
        known.entry(file).or_insert_with(|| is_worth(root, volume, file, recorded.leave).unwrap_or(false));
    }
    known
}

/// What was needed, and what is to be thought of the rest.
fn seen(old: &List, trace: &List, recorded: &Recorded) -> (List, Unseen) {
    let used = match (&recorded.outcome, &recorded.used) {
        (None, _) => return (trace.clone(), Unseen::Unneeded),
        (Some(_), None) => return (trace.clone(), Unseen::Unknown),
        (Some(_), Some(used)) => used,
    };
    // Nobody tells whether metadata that was read ahead was used: it stays until a boot goes without.
    let touch = |part: &Part| Touch { place: part.place, range: part.range };
    let wanted = old.wanted();
    let metadata = wanted.iter().filter(|part| part.place == Place::Device);
    let all = used.iter().chain(metadata).chain(trace.parts());
    let mut all: Vec<(u32, Touch)> = all.map(|part| (part.first, touch(part))).collect();
    all.sort_by_key(|(first, _)| *first);
    let touches: Vec<Touch> = all.into_iter().map(|(_, touch)| touch).collect();
    (List::recorded(old.uuid, &touches), Unseen::Unneeded)
}

fn run(recorded: &Recorded, trace: &List) -> Run {
    let (data, metadata) = trace.bytes();
    let preloaded = recorded.outcome.as_ref().map(|outcome| {
        let swept = outcome.swept;
        let read = swept.map_or(Bytes(0), |swept| swept.data);
        let used = recorded.used.as_ref().map(|used| {
            let (used, _) = sums(&used.iter().filter(|part| part.place != Place::Device).copied().collect::<Vec<_>>());
            if read.0 == 0 { 1.0 } else { (used.0 as f64 / read.0 as f64).min(1.0) }
        });
        Preloaded {
            data: read,
            metadata: swept.map_or(Bytes(0), |swept| swept.metadata),
            seconds: swept.map_or(0.0, |swept| swept.seconds),
            used,
        }
    });
    Run { preloaded, seconds: recorded.took.map(|took| took.as_secs_f64()), read: data + metadata }
}

//! How often the device of each volume is read for which file: counted by the kernel, taken each minute, kept in the state directory.
//!
//! Owns the recorder and the tables of the volumes that are there. Without BPF there is none of it, which is told once in the log, in
//! `status` of the volume's heat, and to who asks; everything else goes on. Counts are lost at most for the last hour, when the machine
//! goes down, and for the last minute, when a volume is unmounted.

use crate::threads::lock;
use jiff::Timestamp;
use longrun_heat::{Found, Harvested, HeatError, HeatTable, Kept, MOST_FILES, Minute, Recorder};
use longrun_sys::{DeviceNumber, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often the tables are written.
const SAVED_EVERY: Duration = Duration::from_secs(3600);

/// A volume whose reads are to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The file system's own number.
    pub volume: DeviceNumber,
    /// Its type.
    pub filesystem: FileSystem,
    /// Its block device.
    pub on: DeviceNumber,
    /// Its id in the API, which names the file of its table.
    pub id: String,
    /// Its UUID: what has none is not recorded, because its table could not be told from another volume's.
    pub uuid: [u8; 16],
}

/// What is known of a volume's heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The table, up to date.
    pub table: HeatTable,
    /// Whose it is.
    pub uuid: [u8; 16],
    /// Whether transfers past the page cache are counted for their files.
    pub tells_direct: bool,
    /// As of when the table is.
    pub now: Minute,
}

/// The heat of the volumes that are there.
pub struct Heats {
    kept: Kept,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recorder: Option<Recorder>,
    /// Why there is none. It is not tried again: a kernel does not learn.
    refused: Option<String>,
    volumes: BTreeMap<DeviceNumber, Volume>,
    saved: Option<Instant>,
}

struct Volume {
    wanted: Wanted,
    table: HeatTable,
    /// Not written since.
    changed: bool,
}

impl Heats {
    /// With the tables of the state directory `state`.
    #[must_use]
    pub fn within(state: &Path) -> Self {
        Self { kept: Kept::within(state), state: Mutex::default() }
    }

    /// Counts the reads of exactly these volumes from now on.
    pub fn set(&self, wanted: Vec<Wanted>) {
        let mut state = lock(&self.state);
        let gone: Vec<DeviceNumber> = state
            .volumes
            .iter()
            .filter(|(_, volume)| !wanted.contains(&volume.wanted))
            .map(|(number, _)| *number)
            .collect();
        if !gone.is_empty() {
            self.take(&mut state);
        }
        for number in gone {
            if let Some(recorder) = &mut state.recorder {
                recorder.unwatch(number);
            }
            if let Some(volume) = state.volumes.remove(&number) {
                self.save(&volume);
            }
        }
        for one in wanted {
            if !state.volumes.contains_key(&one.volume) {
                self.begin(&mut state, one);
            }
        }
    }

    fn begin(&self, state: &mut State, wanted: Wanted) {
        if state.recorder.is_none() && state.refused.is_none() {
            match Recorder::start() {
                Ok(recorder) => state.recorder = Some(recorder),
                Err(error) => {
                    tracing::warn!("{error}; reads of files are not counted, everything else goes on");
                    state.refused = Some(error.to_string());
                }
            }
        }
        let Some(recorder) = &mut state.recorder else { return };
        if let Err(error) = recorder.watch(wanted.volume, wanted.filesystem, wanted.on) {
            // It is tried again each minute.
            tracing::debug!("{}: {error}", wanted.id);
            recorder.unwatch(wanted.volume);
            return;
        }
        let table = match self.kept.find(&wanted.id, wanted.uuid) {
            Ok(Found::Table(table)) => table,
            Ok(Found::Nothing) => HeatTable::beginning(now()),
            Ok(Found::Damaged(what)) => {
                tracing::warn!(
                    "{}: {what}; its reads are counted from the beginning",
                    self.kept.path(&wanted.id).display()
                );
                HeatTable::beginning(now())
            }
            Err(error) => {
                tracing::warn!("{error}; the reads of the volume are counted from the beginning");
                HeatTable::beginning(now())
            }
        };
        state.volumes.insert(wanted.volume, Volume { wanted, table, changed: false });
    }

    /// Each minute: takes what was counted, and each hour writes it.
    pub fn round(&self) {
        let mut state = lock(&self.state);
        self.take(&mut state);
        if state.saved.is_some_and(|at| at.elapsed() < SAVED_EVERY) {
            return;
        }
        // The first time it is written at once, so that a directory that cannot be written is known early.
        state.saved = Some(Instant::now());
        self.save_all(&mut state);
        self.kept.tidy();
    }

    /// Takes what was counted, and writes it.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        self.take(&mut state);
        self.save_all(&mut state);
        state.recorder = None;
    }

    /// What is known of the volume `id`, up to this moment.
    ///
    /// # Errors
    /// Why nothing is, in one sentence.
    pub fn of(&self, id: &str) -> Result<Known, String> {
        let mut state = lock(&self.state);
        self.take(&mut state);
        let tells_direct = state.recorder.as_ref().is_some_and(Recorder::tells_direct);
        let volume = state.volumes.values().find(|volume| volume.wanted.id == id);
        let known = volume.map(|Volume { wanted, table, .. }| Known {
            table: table.clone(),
            uuid: wanted.uuid,
            tells_direct,
            now: now().max(table.updated()),
        });
        known.ok_or_else(|| {
            state.refused.clone().unwrap_or_else(|| {
                "the reads of this volume are not counted: the configuration says so (heat), or it has no UUID"
                    .to_owned()
            })
        })
    }

    fn take(&self, state: &mut State) {
        let Some(recorder) = &mut state.recorder else { return };
        let harvest = match recorder.harvest() {
            Ok(harvest) => harvest,
            Err(error) => return tracing::warn!("{error}"),
        };
        let most = MOST_FILES / state.volumes.len().max(1);
        for (number, volume) in &mut state.volumes {
            let none = Harvested::default();
            volume.table.add(harvest.get(number).unwrap_or(&none), now(), most);
            volume.changed = true;
        }
    }

    fn save_all(&self, state: &mut State) {
        for volume in state.volumes.values_mut().filter(|volume| volume.changed) {
            self.save(volume);
            volume.changed = false;
        }
    }

    fn save(&self, volume: &Volume) {
        match self.kept.keep(&volume.wanted.id, volume.wanted.uuid, &volume.table) {
            Ok(bytes) => tracing::debug!("{}: the table of reads was written, {bytes} bytes", volume.wanted.id),
            Err(HeatError::Io { source, path, .. }) => {
                tracing::warn!(
                    "{}: writing the table of reads failed: {source}; it is tried again in an hour",
                    path.display()
                )
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

fn now() -> Minute {
    Minute::of_seconds(Timestamp::now().as_second())
}

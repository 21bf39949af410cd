//! A model of files that grow beside each other on a volume, with and without the policy: pure, seeded, and as simple as
//! it can be while the measured figures come out alike.
//!
//! Owns the writers, the sensor's threshold and the delay until a decision takes effect; [`space`] owns the allocators. It
//! never replaces a measurement on a real file system: it lets parameters be compared under the same conditions.

mod space;

use longrun_layout::Bytes;
use longrun_prevention::policy::{
    Attributes, Case, Decision, Ended, FileFacts, FileKind, Growth, History, Modified, Pattern, Policy, Settings,
    SpaceFacts,
};
use longrun_prevention::{FileKey, Nanos, ProcessName, Signal, SignalKind};
use longrun_sys::FileSystem;
use longrun_sys::{DeviceNumber, FileHandle};
pub use space::{BLOCK, Condition, Space};
use std::time::Duration;

const NOWHERE: u64 = u64::MAX;
/// Allocations shorter than this and apart from the last one are what the sensor counts.
const SMALL: u64 = (4 << 20) / BLOCK;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each file from its beginning to its end.
    Append,
    /// Each place of each file once, in random order, into holes.
    Scattered,
}

/// One run of the model.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub filesystem: FileSystem,
    pub condition: Condition,
    pub total: Bytes,
    pub load: Load,
    pub writers: usize,
    pub size: Bytes,
    pub request: Bytes,
    /// From the signal to the preallocation.
    pub latency: Duration,
    /// Of all writers together, bytes per microsecond.
    pub speed: u64,
    pub seed: u64,
    /// None: without prevention.
    pub settings: Option<Settings>,
    /// How often the same is done again, with new files, and what was learned kept.
    pub rounds: u32,
}

impl Scenario {
    /// The must-show workload: 8 × 64 MB by direct writes of 64 KB.
    pub fn new(filesystem: FileSystem, condition: Condition, latency: Duration) -> Self {
        Self {
            filesystem,
            condition,
            total: Bytes(8 << 30),
            load: Load::Append,
            writers: 8,
            size: Bytes(64 << 20),
            request: Bytes(64 << 10),
            latency,
            speed: 1000,
            seed: 1,
            settings: Some(Settings::default()),
            rounds: 1,
        }
    }

    pub fn without(&self) -> Self {
        Self { settings: None, ..self.clone() }
    }

    /// The last round.
    pub fn run(&self) -> Outcome {
        let mut space = Space::new(self.filesystem, self.condition, self.total, self.seed);
        let mut world = World::new(self);
        let mut outcome = Outcome::default();
        for _ in 0..self.rounds {
            outcome = world.round(self, &mut space);
        }
        outcome
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Fragments of all files.
    pub fragments: u64,
    pub files: u64,
    /// What the policy believes to have prevented.
    pub claimed: u64,
    /// The most that runways held at once.
    pub held: Bytes,
    pub grants: u64,
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
    /// What the sensor told.
    pub signals: Vec<Signal>,
}

impl Outcome {
    pub fn excess(&self) -> u64 {
        self.fragments.saturating_sub(self.files)
    }

    pub fn per_file(&self) -> f64 {
        self.fragments as f64 / self.files as f64
    }

    /// The share of the excess of `without` that is not there, in percent.
    pub fn prevented(&self, without: &Self) -> f64 {
        let part = self.excess() as f64 / without.excess().max(1) as f64;
        100.0 * (1.0 - part)
    }
}

struct File {
    key: FileKey,
    map: Vec<u64>,
    written: Vec<bool>,
    size: u64,
    /// Blocks still to be written, in order, the next one last.
    todo: Vec<u64>,
    growth: Growth,
    /// End of the last allocation, in the file and on the volume.
    last: Option<(u64, u64)>,
    counted: (u32, u64, u32),
    half: Option<u64>,
    used: u64,
}

struct World {
    policy: Option<Policy>,
    history: History,
    random: fastrand::Rng,
    now: u64,
    serial: u32,
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let policy = scenario.settings.clone().map(|settings| Policy::new(settings).unwrap());
        Self { policy, history: History::default(), random: fastrand::Rng::with_seed(scenario.seed), now: 0, serial: 0 }
    }

    fn round(&mut self, scenario: &Scenario, space: &mut Space) -> Outcome {
        let mut files: Vec<File> = (0..scenario.writers).map(|_| self.file(scenario)).collect();
        let mut outcome = Outcome { files: files.len() as u64, ..Outcome::default() };
        let mut pending: Vec<(u64, usize, Signal)> = Vec::new();
        let request = scenario.request.0 / BLOCK;
        loop {
            let busy: Vec<usize> = (0..files.len()).filter(|at| !files[*at].todo.is_empty()).collect();
            if busy.is_empty() {
                break;
            }
            self.now += 1000 * scenario.request.0 / scenario.speed;
            let due = pending.iter().take_while(|(due, ..)| *due <= self.now).count();
            for (_, at, signal) in pending.drain(..due) {
                self.react(scenario, space, &mut files, at, &signal, &mut outcome);
            }
            let at = busy[self.random.usize(..busy.len())];
            for signal in write(space, &mut files[at], request, Nanos(self.now)) {
                outcome.signals.push(signal);
                pending.push((self.now + scenario.latency.as_nanos() as u64, at, signal));
            }
        }
        for file in &mut files {
            self.close(scenario, space, file, &mut outcome);
        }
        outcome
    }

    fn file(&mut self, scenario: &Scenario) -> File {
        self.serial += 1;
        let blocks = (scenario.size.0 / BLOCK) as usize;
        let request = scenario.request.0 / BLOCK;
        let mut todo: Vec<u64> = (0..blocks as u64 / request).map(|nth| nth * request).collect();
        match scenario.load {
            Load::Append => todo.reverse(),
            Load::Scattered => self.random.shuffle(&mut todo),
        }
        let handle = FileHandle::new(0x81, &u64::from(self.serial).to_ne_bytes()).unwrap();
        File {
            key: FileKey { volume: DeviceNumber { major: 7, minor: 0 }, handle },
            map: vec![NOWHERE; blocks],
            written: vec![false; blocks],
            size: if scenario.load == Load::Append { 0 } else { blocks as u64 },
            todo,
            growth: Growth::default(),
            last: None,
            counted: (0, 0, 2),
            half: None,
            used: 0,
        }
    }

    fn react(
        &mut self,
        scenario: &Scenario,
        space: &mut Space,
        files: &mut [File],
        at: usize,
        signal: &Signal,
        outcome: &mut Outcome,
    ) {
        let held: u64 = files.iter().map(File::unused).sum();
        outcome.held = outcome.held.max(Bytes(held * BLOCK));
        let Some(policy) = &mut self.policy else { return };
        let file = &mut files[at];
        file.growth.note(&signal.kind);
        let facts = facts(scenario, file);
        let space_facts = SpaceFacts { total: space.total(), free: space.free(), held: Bytes(held * BLOCK) };
        let case = Case { signal, file: &facts, growth: &file.growth, space: space_facts, history: &self.history };
        let decision = policy.decide(&case);
        outcome.decisions.push(decision);
        match decision {
            Decision::Runway { range, arm_half } => {
                let pieces = file.preallocate(space, range.start.0 / BLOCK, range.length.0 / BLOCK);
                file.growth.granted_runway(range, pieces, Nanos(self.now));
                policy.granted(range.length, pieces, Nanos(self.now));
                file.half = Some(arm_half.0 / BLOCK);
                outcome.grants += 1;
            }
            Decision::Window { range } => {
                let pieces = file.preallocate(space, range.start.0 / BLOCK, range.length.0 / BLOCK);
                file.growth.granted_window(range, pieces, Nanos(self.now));
                outcome.grants += 1;
            }
            Decision::Leave(_) => {}
        }
    }

    fn close(&mut self, scenario: &Scenario, space: &mut Space, file: &mut File, outcome: &mut Outcome) {
        for block in 0..file.map.len() {
            if file.map[block] != NOWHERE && !file.written.get(block).copied().unwrap_or(false) {
                space.release(file.map[block]);
                file.map[block] = NOWHERE;
            }
        }
        outcome.fragments += file.fragments();
        outcome.claimed += file.growth.prevented(Bytes(file.used * BLOCK)).0;
        let pattern = if scenario.load == Load::Append { Pattern::Appended } else { Pattern::Scattered };
        if file.growth.grants() > 0 {
            self.history.learn(&Ended { kind: kind(), size: Bytes(file.size * BLOCK), pattern });
        }
    }
}

fn kind() -> FileKind {
    FileKind { directory: "/data".to_owned(), extension: "dat".to_owned(), process: "writer".to_owned() }
}

fn facts(scenario: &Scenario, file: &File) -> FileFacts {
    FileFacts {
        filesystem: scenario.filesystem,
        path: None,
        kind: kind(),
        size: Bytes(file.size * BLOCK),
        allocated: Bytes(file.map.iter().filter(|block| **block != NOWHERE).count() as u64 * BLOCK),
        links: 1,
        executable: false,
        compressed: false,
        size_hint: false,
        limited: false,
        attributes: Attributes::default(),
        modified: Modified::Ago(scenario.latency),
        fragments: None,
    }
}

/// Writes the next request of `file`, and tells what the sensor would.
fn write(space: &mut Space, file: &mut File, request: u64, now: Nanos) -> Vec<Signal> {
    let Some(start) = file.todo.pop() else { return Vec::new() };
    let end = start + request;
    let appends = end > file.size;
    file.size = file.size.max(end);
    let mut signals = Vec::new();
    let mut block = start;
    while block < end {
        if file.map[block as usize] != NOWHERE {
            file.used += 1;
            block += 1;
            continue;
        }
        let hole = (block..end).take_while(|at| file.map[*at as usize] == NOWHERE).count() as u64;
        let hint = block.checked_sub(1).map(|at| file.map[at as usize]).filter(|at| *at != NOWHERE).map(|at| at + 1);
        let (physical, length) = space.write(hint.or(file.last.map(|(_, physical)| physical)), hole);
        (0..length).for_each(|nth| file.map[(block + nth) as usize] = physical + nth);
        let continues = file.last == Some((block, physical));
        file.last = Some((block + length, physical + length));
        if !continues && length < SMALL {
            let (count, blocks, limit) = &mut file.counted;
            *count += 1;
            *blocks += length;
            if count >= limit {
                let (allocations, bytes) = (*count, Bytes(*blocks * BLOCK));
                let end = Bytes((block + length) * BLOCK);
                let at = Bytes(block * BLOCK);
                let scattered = SignalKind::Scattered { at, allocations, bytes };
                let kind = if appends { SignalKind::Fragmenting { allocations, bytes, end } } else { scattered };
                signals.push(kind);
                file.counted = (0, 0, *limit * 2);
            }
        }
        block += length;
    }
    (start..end).for_each(|at| file.written[at as usize] = true);
    if file.half.is_some_and(|half| end > half) {
        file.half = None;
        signals.push(SignalKind::HalfUsed { end: Bytes(end * BLOCK) });
    }
    let signal = |kind| Signal {
        at: now,
        file: file.key,
        size: Bytes(file.size * BLOCK),
        by: ProcessName(*b"writer\0\0\0\0\0\0\0\0\0\0"),
        kind,
    };
    signals.into_iter().map(signal).collect()
}

impl File {
    /// Fills the holes of the range; says in how many pieces.
    fn preallocate(&mut self, space: &mut Space, start: u64, length: u64) -> u32 {
        let end = start + length;
        if self.map.len() < end as usize {
            self.map.resize(end as usize, NOWHERE);
        }
        let (mut block, mut pieces, mut behind) = (start, 0, None);
        while block < end {
            if self.map[block as usize] != NOWHERE {
                block += 1;
                continue;
            }
            let hole = (block..end).take_while(|at| self.map[*at as usize] == NOWHERE).count() as u64;
            let hint = block.checked_sub(1).map(|at| self.map[at as usize]).filter(|at| *at != NOWHERE);
            let Some((physical, got)) = space.preallocate(hint.map(|at| at + 1), hole) else { break };
            (0..got).for_each(|nth| self.map[(block + nth) as usize] = physical + nth);
            pieces += u32::from(behind != Some(physical));
            behind = Some(physical + got);
            block += got;
        }
        pieces
    }

    fn unused(&self) -> u64 {
        let allocated = self.map.iter().filter(|block| **block != NOWHERE).count();
        (allocated - self.written.iter().filter(|written| **written).count()) as u64
    }

    fn fragments(&self) -> u64 {
        let mut behind = NOWHERE;
        let mut fragments = 0;
        for physical in self.map.iter().filter(|physical| **physical != NOWHERE) {
            fragments += u64::from(*physical != behind);
            behind = physical + 1;
        }
        fragments
    }
}

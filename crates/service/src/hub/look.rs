//! Examines the volumes at intervals: how full they are, how fragmented their free space is, and whether all of it can
//! be used.

use super::Hub;
use crate::config::{Moment, VolumeSettings};
use crate::gauges::{self, Bound, Scanned, health, own_use, resident};
use crate::governed::Governed;
use crate::loads::{self, Sample};
use crate::menders::NOT_PERMITTED;
use crate::mending::Governor as _;
use crate::threads::lock;
use crate::volumes::{Found, is_out_of_reach};
use jiff::Timestamp;
use longrun_api::model::{self, HealthLevel};
use longrun_engine::VolumeError;
use longrun_engine::{Observer, Permission, ScanProgress};
use longrun_governor::Pace;
use longrun_layout::Bytes;
use longrun_ledger::{Account, Counter, Severity};
use longrun_sys::DeviceNumber;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most often that pieces of free space are asked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A look may cost this part of the time at most.
const LOOK_SHARE: u32 = 200;
/// Between two looks at the memory that a scan takes.
const BETWEEN_MEASUREMENTS: Duration = Duration::from_millis(10);
/// A scan that others would not let go on is tried again after this time.
const SCAN_AGAIN: Duration = Duration::from_secs(3600);

impl Hub {
    /// One round: every volume is looked at, and one that is due is scanned.
    pub fn round(self: &Arc<Self>) {
        let devices: Vec<DeviceNumber> = lock(&self.volumes).keys().copied().collect();
        for device in devices {
            self.look_in_time(device, true);
            if self.threads.stopping() {
                return;
            }
        }
        self.set_menders();
        // What could not be watched may be there now.
        self.set_heat();
        self.heats.round();
        self.count_own();
        if let Some(id) = self.due()
            && let Err(error) = self.begin_scan(id)
        {
            tracing::error!("starting a scan thread failed: {error}");
        }
    }

    /// Scans the volume `id` on a thread of its own, which a volume that hangs may keep.
    ///
    /// # Errors
    /// The system's, when it has no thread to give.
    pub fn begin_scan(self: &Arc<Self>, id: String) -> std::io::Result<()> {
        let hub = Arc::clone(self);
        let scan = move || {
            // The scan tells by itself why it did not work.
            _ = hub.scan(&id);
        };
        std::thread::Builder::new().name("scan".to_owned()).spawn(scan).map(drop)
    }

    /// As [`Self::look_at`], but waits no longer than some seconds.
    pub(super) fn look_in_time(self: &Arc<Self>, device: DeviceNumber, scheduled: bool) {
        _ = self.act(device, "examining it", move |hub| hub.look_at(device, scheduled));
    }

    /// A volume whose scan is due. What no one has written to since the last one is as it was then: that is put off, and a disk
    /// that sleeps is left asleep.
    fn due(&self) -> Option<String> {
        if self.menders.pause().is_some() || self.jobs.running().is_some() {
            return None;
        }
        let (now, moment) = (Instant::now(), Moment::now());
        let due: Vec<(DeviceNumber, Found, Option<Bytes>)> = lock(&self.volumes)
            .iter()
            .filter(|(_, entry)| entry.is_due(now, moment) && self.fleet.permits(&entry.found.watched.point))
            .map(|(device, entry)| (*device, entry.found.clone(), entry.scanned_at))
            .collect();
        due.into_iter().find_map(|(device, found, scanned_at)| {
            let unchanged = scanned_at.is_some() && scanned_at == gauges::written(&found);
            let mut volumes = lock(&self.volumes);
            let entry = volumes.get_mut(&device)?;
            if unchanged {
                entry.put_off_scan();
            }
            (!unchanged).then(|| entry.id.clone())
        })
    }

    /// Looks at one volume; `scheduled` looks ask for pieces of free space only as often as that is cheap, and only
    /// when another process has written to the device.
    pub(super) fn look_at(&self, device: DeviceNumber, scheduled: bool) {
        let known = lock(&self.volumes).get(&device).filter(|entry| entry.settings.enabled).map(|entry| {
            let due = !scheduled || entry.next_look <= Instant::now();
            (entry.found.clone(), entry.superblock.clone(), due, entry.looked_at.filter(|_| scheduled))
        });
        let Some((found, superblock, due, looked_at)) = known else { return };
        let written = gauges::written(&found);
        let pieces = due && (looked_at.is_none() || looked_at != written);
        let started = Instant::now();
        let look = match gauges::look(&found, &superblock, pieces) {
            Ok(look) => look,
            Err(error) => return self.not_examined(device, &found, &error),
        };
        let took = started.elapsed();
        let point = found.watched.point;
        let mut volumes = lock(&self.volumes);
        let Some(entry) = volumes.get_mut(&device) else { return };
        entry.unopened = None;
        let mut space = look.space;
        if !pieces || space.free_pieces.is_none() {
            space.free_pieces = entry.space.free_pieces;
            space.largest_free_bytes = entry.space.largest_free_bytes;
        }
        let skipped = !pieces && look.figures.is_none();
        if pieces {
            entry.next_look = Instant::now() + LOOK_EVERY.max(took * LOOK_SHARE);
            entry.looked_at = written;
        }
        let health = health::judge(space.total_bytes, space.free_bytes, look.figures);
        entry.space = space;
        if skipped {
            return;
        }
        let before = entry.health.level;
        let account = entry.account();
        entry.health = health.clone();
        drop(volumes);
        match (before, health.level) {
            (HealthLevel::Alert, HealthLevel::Alert) => {}
            (_, HealthLevel::Alert) => {
                self.activity.count_for(&account, Counter::SpaceAlerts, 1);
                let text = format!("{}: writes may fail although space is free: {}", point.display(), health.sentence);
                self.activity.tell(&account, Severity::Alert, "space-alert", text, None);
            }
            (HealthLevel::Alert, HealthLevel::Good) => {
                let text = format!("{}: all free space can be used again", point.display());
                self.activity.tell(&account, Severity::Info, "space-alert-over", text, None);
            }
            _ => {}
        }
    }

    fn not_examined(&self, device: DeviceNumber, found: &Found, error: &std::io::Error) {
        let text = format!("{}: examining the volume failed: {error}", found.watched.point.display());
        // It is being unmounted, or covered: the mount table will tell.
        if is_out_of_reach(error) {
            return tracing::debug!("{text}");
        }
        let text = format!("{text}; check the volume and the kernel's log (dmesg); it is tried again");
        let mut volumes = lock(&self.volumes);
        let Some(entry) = volumes.get_mut(&device) else { return };
        if entry.unopened.as_ref() == Some(&text) {
            return;
        }
        entry.unopened = Some(text.clone());
        let account = entry.account();
        drop(volumes);
        self.activity.tell(&account, Severity::Warning, "volume-not-examined", text, None);
    }

    /// Scans the volume `id` on this thread, as far as others who use its device let that go on.
    ///
    /// # Errors
    /// Why it was not scanned.
    pub fn scan(self: &Arc<Self>, id: &str) -> Result<(), String> {
        let known = lock(&self.volumes).values().find(|entry| entry.id == id).map(|entry| {
            (entry.found.clone(), self.menders.governed(&entry.found.watched, &entry.settings), entry.settings.pace)
        });
        let (found, governed, pace) = known.ok_or_else(|| format!("no such volume: {id}"))?;
        {
            let mut scanning = lock(&self.scanning);
            if let Some(other) = &*scanning {
                return Err(format!("volume {other} is being scanned; wait until that scan has finished"));
            }
            if let Some(job) = self.jobs.running() {
                return Err(format!("job {job} is at work; wait until it has ended"));
            }
            *scanning = Some(id.to_owned());
        }
        let point = found.watched.point.clone();
        if pace != Pace::Fast {
            // Where the scheduler knows no such thing, no one is worse off than beside any other program.
            _ = longrun_sys::yield_io_to_others();
        }
        let bound = Bound::now(found.watched.filesystem);
        let mut scan = Scan::new(self, &governed, &found, bound);
        let result = gauges::scan(&found, &ScanProgress::new(&mut scan, 0), |survey| self.leave_map(id, survey));
        let (not_permitted, hopeless, too_large) = (scan.not_permitted.get(), scan.is_hopeless(), scan.too_large.get());
        *lock(&self.scanning) = None;
        let account = Account::volume(id);
        let mut volumes = lock(&self.volumes);
        let entry = volumes.get_mut(&found.watched.device).filter(|entry| entry.id == id);
        let Scanned { gauge, pays, written } = match result {
            Ok(scanned) => scanned,
            Err(error) => {
                let (point, most) = (point.display(), bound.most.mebibytes());
                let why = match &error {
                    VolumeError::Interrupted if not_permitted => format!("{point}: not scanned: {NOT_PERMITTED}"),
                    _ if hopeless => format!("{point}: not scanned, because other I/O is using its disk all the time"),
                    VolumeError::Interrupted if too_large => format!(
                        "{point}: not scanned, because the service would need more than the {most:.0} MiB of memory that it \
                         may take for that; raise MemoryMax of the service, of which a scan may take half, or run \
                         longrun analyze {point}"
                    ),
                    error => error.to_string(),
                };
                if let Some(entry) = entry {
                    // What ends for another host's sake is no trouble: a pass waits for the next scan.
                    entry.scan_trouble = Some(why.clone()).filter(|_| !not_permitted);
                    // What failed is not worth trying each minute.
                    let interval = entry.settings.scan_interval;
                    let wait = if hopeless { interval.min(SCAN_AGAIN) } else { interval };
                    // It begins again when that is permitted.
                    let wait = if not_permitted { Duration::ZERO } else { wait };
                    entry.next_scan = entry.next_scan.map(|_| Instant::now() + wait);
                }
                drop(volumes);
                if not_permitted {
                    tracing::debug!("{why}");
                } else if hopeless {
                    self.activity.tell(&account, Severity::Info, "scan-put-off", why.clone(), None);
                } else if too_large || !matches!(error, VolumeError::Interrupted) {
                    self.activity.tell(&account, Severity::Warning, "scan-failed", why.clone(), None);
                }
                return Err(why);
            }
        };
        if let Some(entry) = entry {
            entry.put_off_scan();
            entry.scan_trouble = None;
            entry.pays = Some(pays);
            entry.scan = Some((Timestamp::now(), gauge));
            entry.scanned_at = written;
            entry.space.free_pieces = gauge.free_pieces;
            entry.space.largest_free_bytes = gauge.largest_free_bytes;
        }
        drop(volumes);
        self.activity.scanned(&account, gauge);
        let excess = gauge.excess_fragments.unwrap_or(0);
        let text = format!("{}: the scan found {excess} excess fragments", point.display());
        self.activity.tell(&account, Severity::Info, "scanned", text, None);
        Ok(())
    }

    /// Adds a point to the load of each volume that is looked after.
    pub fn sample_loads(&self) {
        let volumes: Vec<(DeviceNumber, Found, VolumeSettings, String)> = lock(&self.volumes)
            .iter()
            .filter(|(_, entry)| entry.settings.enabled)
            .map(|(device, entry)| (*device, entry.found.clone(), entry.settings.clone(), entry.id.clone()))
            .collect();
        lock(&self.loads).retain(|known, _| volumes.iter().any(|(device, ..)| device == known));
        for (device, found, settings, id) in volumes {
            // Without a lock of ours: a governor may be waiting for its disk.
            let governor = self.menders.governor(device, &settings);
            if let Some(counts) = gauges::counts(&found) {
                if let Some(time) = counts.per_request() {
                    self.activity.request_takes(&Account::volume(&id), time);
                }
                let sample = Sample { at: Timestamp::now(), clock: Instant::now(), counts, governor };
                lock(&self.loads).entry(device).or_default().add(sample);
            }
        }
    }

    /// The load of the volume `id` after `from`: without points when the volume is not looked after, `None` when there is no
    /// such volume.
    #[must_use]
    pub fn loads(&self, id: &str, from: Option<Timestamp>) -> Option<model::LoadSeries> {
        let device = lock(&self.volumes).iter().find(|(_, entry)| entry.id == id).map(|(device, _)| *device)?;
        let points = lock(&self.loads).get(&device).map(|series| series.since(from)).unwrap_or_default();
        Some(model::LoadSeries { interval_seconds: loads::INTERVAL.as_secs(), points })
    }

    /// Whether the volume `id` can be scanned now, or why not.
    ///
    /// # Errors
    /// In one sentence.
    pub fn may_scan(&self, id: &str) -> Result<(), Refusal> {
        let known =
            lock(&self.volumes).values().find(|entry| entry.id == id).map(|entry| entry.found.watched.point.clone());
        match (known, &*lock(&self.scanning)) {
            (None, _) => Err(Refusal::Unknown),
            (Some(point), _) if !self.fleet.permits(&point) => {
                Err(Refusal::Busy(format!("{}: {NOT_PERMITTED}", point.display())))
            }
            (_, Some(other)) => Err(Refusal::Busy(format!("volume {other} is being scanned"))),
            _ => match self.jobs.running() {
                Some(job) => Err(Refusal::Busy(format!("job {job} is at work"))),
                None => Ok(()),
            },
        }
    }

    /// Records what the service itself uses.
    fn count_own(&self) {
        let own = own_use();
        let signals = self.prevention().map_or(0, |prevention| prevention.snapshot().sensor.signals);
        let cpu_millis = (own.cpu_seconds * 1000.0) as u64;
        let mut counted = lock(&self.counted);
        let service = Account::service();
        self.activity.count_for(&service, Counter::Signals, signals.saturating_sub(counted.signals));
        self.activity.count_for(&service, Counter::OwnIoBytes, own.io_bytes.saturating_sub(counted.io_bytes));
        self.activity.count_for(&service, Counter::CpuMillis, cpu_millis.saturating_sub(counted.cpu_millis));
        *counted = super::Counted { signals, io_bytes: own.io_bytes, cpu_millis };
    }
}

/// Why a volume is not scanned.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such volume.
    Unknown,
    /// Another one is being scanned.
    Busy(String),
}

/// Has a scan give way to others, and ends it when the service ends.
struct Scan<'h> {
    hub: &'h Hub,
    governed: &'h Governed,
    found: &'h Found,
    waited: Duration,
    bound: Bound,
    /// It would need more memory than that.
    too_large: Cell<bool>,
    /// The fleet no longer permits it.
    not_permitted: Cell<bool>,
    /// When its memory was looked at.
    measured: Cell<Instant>,
}

impl<'h> Scan<'h> {
    fn new(hub: &'h Hub, governed: &'h Governed, found: &'h Found, bound: Bound) -> Self {
        let (too_large, not_permitted, measured) = (Cell::default(), Cell::default(), Cell::new(Instant::now()));
        Self { hub, governed, found, waited: Duration::ZERO, bound, too_large, not_permitted, measured }
    }

    /// Whether it must end so that another host may use the storage. Once it must, it does: a permission that comes back is for another scan.
    fn is_not_permitted(&self) -> bool {
        let permits = || self.hub.fleet.permits(&self.found.watched.point);
        self.not_permitted.set(self.not_permitted.get() || !permits());
        self.not_permitted.get()
    }

    /// Whether the memory does not suffice. Looks now and then: it takes a system call.
    fn is_too_large(&self) -> bool {
        if self.measured.get().elapsed() >= BETWEEN_MEASUREMENTS {
            self.measured.set(Instant::now());
            self.too_large.set(self.too_large.get() || self.bound.is_exceeded(resident()));
        }
        self.too_large.get()
    }

    /// Whether others need the device all the time: from here on the scan would not give way.
    fn is_hopeless(&self) -> bool {
        self.waited >= ScanProgress::LONGEST
    }
}

impl Observer for Scan<'_> {
    fn permission(&mut self, next: Bytes) -> Permission {
        self.governed.permission(self.found.watched.device, next)
    }

    fn cancelled(&self) -> bool {
        self.hub.threads.stopping() || self.is_not_permitted() || self.is_hopeless() || self.is_too_large()
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
        self.waited += time;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::activity::Activity;
    use crate::config::InForce;
    use crate::hub::Parts;
    use crate::logging::LogControl;
    use crate::menders::Menders;
    use crate::threads::Threads;
    use longrun_lab::{LoopVolume, VolumeSpec};
    use std::thread::sleep;

    /// One that watches nothing but `volumes`, and scans them every moment.
    pub(in super::super) fn hub(volumes: &[&LoopVolume], state: &std::path::Path) -> Arc<Hub> {
        let rule = |volume: &&LoopVolume| {
            format!("[[volume]]\nmount = {:?}\nenabled = true\nmending = false\n", volume.mount_point())
        };
        let rules: String = volumes.iter().map(rule).collect();
        let text = format!("[defaults]\nenabled = false\nscan_interval = \"1ms\"\n{rules}");
        let activity = Arc::new(Activity::open(&state.join("ledger.db")));
        let fleet = Arc::default();
        Hub::new(Parts {
            config_path: None,
            overrides: Box::new(|_| {}),
            config: InForce { config: crate::config::parse(&text).unwrap(), ..InForce::default() },
            log: LogControl::default(),
            menders: Menders::new(Arc::clone(&activity), Arc::clone(&fleet)),
            fleet,
            jobs: crate::jobs::Jobs::open(state.join("jobs"), "/proc/self/exe".into()),
            activity,
            prevention: Err("not wanted".to_owned()),
            threads: Threads::new().unwrap(),
            requests: std::sync::mpsc::channel().0,
        })
    }

    #[test]
    fn loop_a_volume_that_nobody_has_written_to_is_not_scanned_again() {
        let spec = VolumeSpec::ext4(128).mkfs(&["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        let (volume, state) = (LoopVolume::create(&spec).unwrap(), tempfile::tempdir().unwrap());
        let hub = hub(&[&volume], state.path());
        hub.refresh();
        let due = || {
            sleep(Duration::from_millis(20));
            hub.due()
        };
        let id = due().unwrap();
        hub.scan(&id).unwrap();
        assert_eq!((due(), due()), (None, None), "nothing has changed");
        std::fs::write(volume.mount_point().join("file"), vec![1; 100_000]).unwrap();
        longrun_sys::sync_volume(std::fs::File::open(volume.mount_point()).unwrap()).unwrap();
        assert_eq!(due(), Some(id));
    }

    /// It read on at full speed when it had given way for two minutes.
    #[test]
    fn loop_a_scan_that_others_do_not_let_go_on_or_that_needs_too_much_memory_is_given_up() {
        let (volume, state) = (LoopVolume::create(&VolumeSpec::ext4(128)).unwrap(), tempfile::tempdir().unwrap());
        let hub = hub(&[&volume], state.path());
        hub.refresh();
        let mount = volume.mount_point();
        let (found, settings) = lock(&hub.volumes)
            .values()
            .find(|entry| entry.found.watched.point == mount)
            .map(|entry| (entry.found.clone(), entry.settings.clone()))
            .unwrap();
        let governed = hub.menders.governed(&found.watched, &settings);
        let after = |waited, most| {
            let bound = Bound::of(most, resident(), found.watched.filesystem);
            let mut scan = Scan { waited, ..Scan::new(&hub, &governed, &found, bound) };
            let measured = Instant::now().checked_sub(BETWEEN_MEASUREMENTS).unwrap();
            scan.measured.set(measured);
            let result = gauges::scan(&found, &ScanProgress::new(&mut scan, 0), |_| {}).map(drop);
            (result, scan.too_large.get())
        };
        let enough = Bytes(1 << 40);
        assert!(matches!(after(ScanProgress::LONGEST, enough), (Err(VolumeError::Interrupted), false)));
        assert!(matches!(after(Duration::ZERO, enough), (Ok(()), false)));
        // A layout that does not fit would have the kernel end the service.
        assert!(matches!(after(Duration::ZERO, Bytes(0)), (Err(VolumeError::Interrupted), true)));
    }
}

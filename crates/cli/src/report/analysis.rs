//! The figures of a volume: the object that `analyze --json` prints, and its text.

use super::json_name;
use super::verdict::{Verdict, judge};
use crate::text::{count, counted, duration, percent, printable, printable_path, size};
use longrun_api::jobs::JobFigures;
use longrun_engine::VolumeInfo;
use longrun_governor::Disks;
use longrun_layout::{Bytes, Fragmentation};
use longrun_planner::Mode;
use longrun_volume::survey::DeviceSpace;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// How the figures were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The file system's structures were read from the device: the whole volume.
    Scan,
    /// Each file below the target was asked for its extents; free space is known in size only.
    Walk {
        /// What the files found occupy.
        occupied: Bytes,
    },
}

/// The findings, before they are put into words.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Which volume.
    pub info: VolumeInfo,
    /// The disks below it, if they are known.
    pub disks: Option<Disks>,
    /// The file system's devices, if it has several and they were looked at.
    pub devices: Vec<DeviceSpace>,
    /// How the figures were obtained.
    pub method: Method,
    /// The figures. After a walk only the size of the free space is valid.
    pub figures: Fragmentation,
    /// The worst files: path, fragments, size.
    pub most_fragmented: Vec<(PathBuf, u64, Bytes)>,
    /// Files that could not be examined.
    pub unreadable: u64,
    /// How long it took.
    pub time: Duration,
}

/// The object of the contract. A name that is not UTF-8 has its exact bytes beside it in `…_hex`.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    device: String,
    filesystem: String,
    disks: Option<Disks>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<DeviceFigures>,
    method: &'static str,
    files: u64,
    directories: u64,
    fragmented_files: u64,
    excess_fragments: u64,
    pinned_excess_fragments: u64,
    directory_excess_fragments: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    occupied_bytes: Option<u64>,
    used_bytes: u64,
    free_space: FreeSpaceFigures,
    most_fragmented: Vec<Offender>,
    unreadable: u64,
    verdict: Verdict,
    seconds: f64,
}

/// The free space. A figure that a walk cannot know is null.
#[derive(Clone, Copy, Debug, Serialize)]
struct FreeSpaceFigures {
    bytes: u64,
    pieces: Option<u64>,
    largest_bytes: Option<u64>,
    floor_pieces: Option<u64>,
}

/// One of several devices of the file system.
#[derive(Clone, Copy, Debug, Serialize)]
struct DeviceFigures {
    id: u64,
    bytes: u64,
    unallocated_bytes: u64,
}

impl From<&DeviceSpace> for DeviceFigures {
    fn from(device: &DeviceSpace) -> Self {
        Self { id: device.id, bytes: device.bytes.0, unallocated_bytes: device.unallocated.0 }
    }
}

/// One of the most fragmented files.
#[derive(Clone, Debug, Serialize)]
struct Offender {
    #[serde(skip)]
    shown: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    fragments: u64,
    bytes: u64,
}

impl Analysis {
    /// Puts the findings into the form that is reported.
    pub fn new(findings: &Findings) -> Self {
        let figures = &findings.figures;
        let (target, target_hex) = json_name(&findings.info.target);
        let (method, occupied) = match findings.method {
            Method::Scan => ("scan", None),
            Method::Walk { occupied } => ("walk", Some(occupied.0)),
        };
        let whole = findings.method == Method::Scan;
        let known = |figure: u64| whole.then_some(figure);
        let free = figures.free_space;
        Self {
            target,
            target_hex,
            device: json_name(&findings.info.device).0,
            filesystem: findings.info.filesystem.clone(),
            disks: findings.disks.clone(),
            devices: findings.devices.iter().map(DeviceFigures::from).collect(),
            method,
            files: figures.files,
            directories: figures.directories,
            fragmented_files: figures.fragmented_files,
            excess_fragments: figures.excess_fragments,
            pinned_excess_fragments: figures.pinned_excess_fragments,
            directory_excess_fragments: figures.directory_excess_fragments,
            occupied_bytes: occupied,
            used_bytes: figures.used_bytes.0,
            free_space: FreeSpaceFigures {
                bytes: free.bytes.0,
                pieces: known(free.pieces),
                largest_bytes: known(free.largest_bytes.0),
                floor_pieces: known(free.floor_pieces),
            },
            most_fragmented: findings
                .most_fragmented
                .iter()
                .map(|(name, fragments, bytes)| {
                    let (path, path_hex) = json_name(name);
                    Offender { shown: printable_path(name), path, path_hex, fragments: *fragments, bytes: bytes.0 }
                })
                .collect(),
            unreadable: findings.unreadable,
            verdict: judge(figures, whole),
            seconds: (findings.time.as_secs_f64() * 1e4).round() / 1e4,
        }
    }

    /// "/mnt/data: ext4 on /dev/sdb1".
    pub fn title(&self) -> String {
        printable(&format!("{}: {} on {}", self.target, self.filesystem, self.device))
    }

    /// The figures that a job reports.
    pub fn figures(&self) -> JobFigures {
        JobFigures {
            excess: self.excess_fragments,
            free_pieces: self.free_space.pieces,
            largest_free_bytes: self.free_space.largest_bytes,
        }
    }

    /// Whether it is worth optimizing.
    pub fn verdict(&self) -> &str {
        &self.verdict.sentence
    }

    /// The mode that gets what counts; `None` when the volume is not worth optimizing.
    pub fn mode(&self) -> Option<Mode> {
        self.verdict.mode
    }

    /// The figures, a line each: name and value.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("files", format!("{} in {}", count(self.files), counted(self.directories, "directory", "directories"))),
            (
                "fragmented files",
                format!("{} ({})", count(self.fragmented_files), percent(self.fragmented_files, self.files)),
            ),
        ];
        let pinned = match self.pinned_excess_fragments {
            0 => String::new(),
            n => format!(" ({} in files that must stay in place)", count(n)),
        };
        lines.push(("excess fragments", count(self.excess_fragments) + &pinned));
        if self.directory_excess_fragments > 0 {
            let fragments = count(self.directory_excess_fragments) + " (directories cannot be moved while mounted)";
            lines.push(("excess, directories", fragments));
        }
        if let Some(occupied) = self.occupied_bytes {
            lines.push(("size of these files", size(Bytes(occupied))));
        }
        lines.push(("used", size(Bytes(self.used_bytes))));
        let free = &self.free_space;
        match (free.pieces, free.largest_bytes, free.floor_pieces) {
            (Some(pieces), Some(largest), Some(floor)) => {
                let pieces = counted(pieces, "piece", "pieces");
                lines.push(("free", format!("{} in {pieces} (floor: {})", size(Bytes(free.bytes)), count(floor))));
                let share = percent(largest, free.bytes);
                lines.push(("largest free piece", format!("{}, {share} of the free space", size(Bytes(largest)))));
            }
            _ => lines.push(("free", size(Bytes(free.bytes)))),
        }
        for device in &self.devices {
            let (bytes, unallocated) = (size(Bytes(device.bytes)), size(Bytes(device.unallocated_bytes)));
            lines.push(("device", format!("{}: {bytes}, of which {unallocated} are in no block group", device.id)));
        }
        if let Some(disks) = &self.disks {
            let whole = size(disks.policy.whole);
            lines.push(("disk", format!("{disks}; fragments of {whole} and more are read as fast as whole files")));
        }
        if self.unreadable > 0 {
            lines.push(("not examined", counted(self.unreadable, "file", "files") + " (could not be read)"));
        }
        lines
    }

    /// The figures alone, aligned, a line each.
    fn figures_text(&self) -> String {
        self.lines().iter().fold(String::new(), |mut text, (name, value)| {
            _ = writeln!(text, "  {name:<20}{value}");
            text
        })
    }

    /// The figures in two lines, for a picture.
    pub fn captions(&self) -> Vec<String> {
        let lines = self.lines();
        let (files, space) = lines.split_at(3.min(lines.len()));
        let join = |part: &[(&str, String)]| {
            part.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("   ")
        };
        vec![join(files), join(space)]
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.title(), self.figures_text());
        if !self.most_fragmented.is_empty() {
            _ = writeln!(text, "\nMost fragmented:\n  fragments        size  path");
        }
        for file in &self.most_fragmented {
            _ = writeln!(text, "  {:>9}  {:>10}  {}", count(file.fragments), size(Bytes(file.bytes)), file.shown);
        }
        let how = if self.occupied_bytes.is_none() { "the whole volume, read from the device" } else { "file by file" };
        let time = duration(Duration::from_secs_f64(self.seconds.max(0.0)));
        _ = writeln!(text, "\n{}\nAnalyzed in {time} ({how}).", self.verdict.sentence);
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use longrun_governor::{DiskKind, DiskPolicy};
    use longrun_layout::FreeSpace;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// Findings as a volume of hostile names might give.
    pub fn sample() -> Findings {
        let name = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Findings {
            info: VolumeInfo { target: "/mnt".into(), device: "/dev/loop0".into(), filesystem: "ext4".into() },
            disks: Some(Disks {
                devices: vec!["loop0".to_owned()],
                kinds: vec![DiskKind::Virtual],
                policy: DiskPolicy::of(DiskKind::Virtual),
            }),
            devices: Vec::new(),
            method: Method::Scan,
            figures: Fragmentation {
                files: 25_000,
                directories: 40,
                fragmented_files: 213,
                excess_fragments: 590,
                pinned_excess_fragments: 2,
                directory_excess_fragments: 3,
                used_bytes: Bytes(3_650_722_201),
                free_space: FreeSpace {
                    bytes: Bytes(644_245_094),
                    pieces: 1358,
                    largest_bytes: Bytes(22_334_668),
                    floor_pieces: 1,
                },
            },
            most_fragmented: vec![
                (name(b"/mnt/var/log/\x1b[2Jsys\nlog"), 120, Bytes(9 << 20)),
                (name(b"/mnt/caf\xe9.db"), 17, Bytes(5 << 30)),
            ],
            unreadable: 0,
            time: Duration::from_micros(51_234),
        }
    }

    #[test]
    fn the_text_is_stable_and_cannot_drive_the_terminal() {
        let text = Analysis::new(&sample()).text();
        assert!(!text.contains('\x1b'));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_json_is_stable_and_keeps_names() {
        insta::assert_json_snapshot!(Analysis::new(&sample()));
    }

    #[test]
    fn after_a_walk_the_pieces_of_the_free_space_are_unknown() {
        let findings = Findings { method: Method::Walk { occupied: Bytes(1 << 20) }, unreadable: 3, ..sample() };
        insta::assert_snapshot!(Analysis::new(&findings).text());
        let json = serde_json::to_value(Analysis::new(&findings)).unwrap();
        assert!(json["free_space"]["pieces"].is_null());
        assert_eq!(json["free_space"]["bytes"], 644_245_094);
    }
}

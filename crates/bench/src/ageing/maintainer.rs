//! The methods of maintaining a volume.

use super::PERIOD;
use super::daemon::Daemon;
use crate::child;
use crate::extents::for_each_file;
use crate::{BenchError, Place};
use longrun_layout::Bytes;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The maximum number of file names on one command line.
const NAMES: usize = 500;

/// A method of maintaining a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maintenance {
    /// No maintenance.
    Nobody,
    /// The file system's own tool, every seventh day.
    Peer,
    /// The service, all the time.
    Service,
}

impl Maintenance {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Nobody, Self::Peer, Self::Service];

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nobody => "without maintenance",
            Self::Peer => "maintained by the file system's own tool",
            Self::Service => "maintained by the service",
        }
    }
}

/// The file system's own tool, and its command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// It takes files, not directories.
    by_file: bool,
}

impl Peer {
    fn of(filesystem: &str) -> Option<Self> {
        let peer = |name, program, arguments, by_file| Some(Self { name, program, arguments, by_file });
        match filesystem {
            "ext4" => peer("e4defrag", "e4defrag", &[], false),
            "xfs" => peer("xfs_fsr", "xfs_fsr", &[], true),
            "btrfs" => peer("btrfs defragment", "btrfs", &["filesystem", "defragment", "-r"], false),
            _ => None,
        }
    }

    fn is_installed(self) -> bool {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).any(|place| place.join(self.program).is_file())
    }

    fn run(self, directory: &Path, stop: &AtomicBool) -> Result<(), BenchError> {
        let mut names: Vec<PathBuf> = Vec::new();
        if self.by_file {
            for_each_file(directory, &mut |path| {
                names.push(path.to_owned());
                Ok(())
            })?;
        } else {
            names.push(directory.to_owned());
        }
        for names in names.chunks(NAMES) {
            // Such tools may fail at some files and go on with the others.
            child::run(Command::new(self.program).args(self.arguments).args(names), stop)?;
        }
        Ok(())
    }
}

/// A method of maintenance at work.
pub(super) struct Maintainer<'a> {
    place: &'a Place,
    stop: &'a AtomicBool,
    peer: Option<Peer>,
    service: Option<Daemon<'a>>,
    moved: Bytes,
}

impl<'a> Maintainer<'a> {
    /// The one for `care`; or what is missing for that on this machine.
    pub(super) fn of(
        maintenance: Maintenance,
        place: &'a Place,
        program: &'a Path,
        stop: &'a AtomicBool,
    ) -> Result<Result<Self, String>, BenchError> {
        let filesystem = place.mount().filesystem.as_str();
        let (mut peer, mut service) = (None, None);
        match maintenance {
            Maintenance::Nobody => {}
            Maintenance::Peer => match Peer::of(filesystem) {
                Some(found) if found.is_installed() => peer = Some(found),
                Some(found) => return Ok(Err(format!("{} is not installed", found.program))),
                None => return Ok(Err(format!("{filesystem} has no such tool"))),
            },
            Maintenance::Service => service = Some(Daemon::start(program, &place.mount().point, stop)?),
        }
        Ok(Ok(Self { place, stop, peer, service, moved: Bytes(0) }))
    }

    pub(super) fn name(&self) -> String {
        match (&self.peer, &self.service) {
            (Some(peer), _) => format!("{} once a week", peer.name),
            (None, Some(_)) => "the service".to_owned(),
            (None, None) => "no maintenance".to_owned(),
        }
    }

    /// Bytes moved so far: for the service its own count, for a weekly tool what the device wrote during its runs.
    pub(super) fn moved(&self) -> Bytes {
        self.moved
    }

    /// Does the maintenance that is due after a day.
    pub(super) fn evening(&mut self, directory: &Path, day: u32) -> Result<(), BenchError> {
        if let Some(service) = &mut self.service {
            self.moved = service.until_mended()?;
        }
        let Some(peer) = self.peer.filter(|_| day > 0 && day.is_multiple_of(PERIOD)) else { return Ok(()) };
        sync(directory)?;
        let before = self.place.device().sample()?;
        peer.run(directory, self.stop)?;
        sync(directory)?;
        self.moved += self.place.device().sample()?.since(&before).written_bytes;
        Ok(())
    }

    pub(super) fn end(self) -> Result<(), BenchError> {
        self.service.map_or(Ok(()), Daemon::stop)
    }
}

fn sync(directory: &Path) -> Result<(), BenchError> {
    let failed = |e| BenchError::io("syncing it", directory, e);
    let opened = std::fs::File::open(directory).map_err(failed)?;
    longrun_sys::sync_volume(&opened).map_err(|e| failed(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_a_tool_of_its_own_and_others_have_none() {
        let names = ["ext4", "xfs", "btrfs", "tmpfs"].map(|name| Peer::of(name).map(|peer| peer.name));
        assert_eq!(names, [Some("e4defrag"), Some("xfs_fsr"), Some("btrfs defragment"), None]);
        let missing = Peer { program: "no-such-tool", ..Peer::of("ext4").unwrap() };
        assert!(!missing.is_installed() && Peer { program: "sh", ..missing }.is_installed());
    }
}

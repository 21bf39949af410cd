//! Which of the files that were read are worth a place in a list.

use crate::system::Root;
use crate::volume::Volume;
use longrun_layout::FileId;
use longrun_sys::{Errno, FileSystem};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// What is left out besides files that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Of a boot: logs, databases, and whatever was changed after this moment.
    Changing(SystemTime),
    /// Of an application: logs. Its data is what it wants.
    Logs,
}

/// Directories of logs and of what is soon gone.
const LOGS: [&str; 4] = ["/var/log", "/var/tmp", "/tmp", "/var/spool"];
/// Directories of databases and of what others keep there for themselves.
const DATABASES: [&str; 8] = [
    "/var/lib/mysql",
    "/var/lib/postgresql",
    "/var/lib/pgsql",
    "/var/lib/mongodb",
    "/var/lib/redis",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/libvirt/images",
];
const LOG_ENDINGS: [&str; 3] = ["log", "journal", "journal~"];
const DATABASE_ENDINGS: [&str; 6] = ["db", "sqlite", "sqlite3", "ibd", "mdb", "ldb"];

/// Whether a file is worth a place in a list.
pub(crate) fn is_worth(root: &Root, volume: &Volume, id: FileId, leave: Leave) -> Result<bool, Errno> {
    let file = volume.file(id)?;
    if let Leave::Changing(since) = leave
        && file.metadata().ok().and_then(|meta| meta.modified().ok()).is_none_or(|time| time > since)
    {
        return Ok(false);
    }
    // Swap files are read by the kernel itself; a file without blocks has nothing to read.
    let blocks = file.metadata().map_or(0, |meta| meta.blocks());
    let is_known = matches!(volume.filesystem, FileSystem::Ext4 | FileSystem::Xfs);
    Ok(is_known && blocks > 0 && root.path_of(&file).is_none_or(|path| !is_left_out(&path, leave)))
}

fn is_left_out(path: &Path, leave: Leave) -> bool {
    let below = |directories: &[&str]| directories.iter().any(|directory| path.starts_with(directory));
    let ending = |endings: &[&str]| {
        path.extension().is_some_and(|own| endings.iter().any(|ending| own.eq_ignore_ascii_case(ending)))
    };
    let is_log = below(&LOGS) || ending(&LOG_ENDINGS);
    is_log || (matches!(leave, Leave::Changing(_)) && (below(&DATABASES) || ending(&DATABASE_ENDINGS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_left_out_always_and_databases_of_a_boot() {
        let boot = Leave::Changing(SystemTime::now());
        for path in ["/var/log/syslog", "/srv/x.log", "/var/log/journal/1/system.journal"] {
            assert!(is_left_out(Path::new(path), boot) && is_left_out(Path::new(path), Leave::Logs), "{path}");
        }
        for path in ["/var/lib/mysql/ibdata1", "/home/a/places.sqlite", "/x/T.IBD"] {
            assert!(is_left_out(Path::new(path), boot) && !is_left_out(Path::new(path), Leave::Logs), "{path}");
        }
        for path in ["/usr/bin/login", "/usr/lib/libdb-5.3.so", "/etc/logrotate.conf", "/"] {
            assert!(!is_left_out(Path::new(path), boot), "{path}");
        }
    }
}

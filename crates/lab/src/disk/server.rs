//! The disk as files of a FUSE file system: data from backing files, times from a model.
//!
//! Owns the moment at which a request is answered. It runs in a process of its own: if it were a thread of the process
//! that uses the volume, a kill would wait for requests that are no longer answered. The data is moved when a request
//! arrives, usually from the page cache; the answer waits until the model says that the request is complete.

use super::model::{Access, Request as Asked};
use super::station::{Answer, Station};
use super::{DiskSpec, Failing};
use anyhow::{Context, Result};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use longrun_layout::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What can be read in the file system: what the disk has done so far, as JSON.
pub(super) const STATISTICS: &str = "statistics";
/// What can be written to: [`MODEL`] or [`BYPASS`].
pub(super) const CONTROL: &str = "control";
/// Requests take what the model says.
pub(super) const MODEL: &str = "model";
/// Requests are answered at once, for preparing a volume.
pub(super) const BYPASS: &str = "bypass";
/// Followed by a [`Failing`] as JSON: such requests for these places fail from now on.
pub(super) const FAIL: &str = "fail ";
/// What it says when it serves.
pub(super) const READY: &str = "ready";

/// Attributes never change.
const FOREVER: Duration = Duration::from_secs(1 << 20);
const STATISTICS_INODE: u64 = 2;
const CONTROL_INODE: u64 = 3;
/// Inode of the first disk.
const FIRST_DISK: u64 = 16;
/// As large as FUSE has them: requests come whole.
const LARGEST: u32 = 1 << 20;
/// Requests that the kernel hands over before one is answered: the model has to see the whole line.
const AT_A_TIME: u16 = 256;

/// Serves disks until the file system is unmounted or standard input ends: with its parent gone, nobody needs them. The
/// first line of standard input is the [`DiskSpec`].
///
/// # Errors
/// When it cannot be mounted.
pub fn serve() -> Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let spec: DiskSpec = serde_json::from_str(&line).context("the disk is not described")?;
    // Sleep to the microsecond, before others: lateness would be taken for the disk's.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    // Where we may, in containers we may not: memory for us is never waited for by way of the disk that we are, and others'
    // dirty pages do not hold us up.
    _ = rustix::process::configure_io_flusher_behavior(true);
    _ = rustix::process::setpriority_process(None, -15);
    let disks = Disks::open(&spec)?;
    let mut config = fuser::Config::default();
    config.mount_options =
        vec![MountOption::FSName("longrun-lab".to_owned()), MountOption::Subtype(spec.model.name().to_owned())];
    let station = Arc::clone(&disks.station);
    let session = Session::new(disks, &spec.mount_point, &config).context("cannot mount the disk")?;
    println(READY)?;
    std::thread::spawn(|| {
        // The parent never says anything more: this ends when it does. The kernel then fails what is under way.
        _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    std::thread::spawn(move || station.answer_in_time());
    session.run().context("the disk failed")
}

fn println(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// One disk: a part of the device.
#[derive(Debug)]
struct Disk {
    file: File,
    /// Where it begins on the device.
    base: Bytes,
    length: Bytes,
    /// Which requests fail.
    failing: Mutex<Vec<Failing>>,
}

#[derive(Debug)]
struct Disks {
    disks: Vec<Disk>,
    station: Arc<Station>,
}

impl Disks {
    fn open(spec: &DiskSpec) -> Result<Self> {
        let (mut disks, mut base) = (Vec::new(), Bytes(0));
        for path in &spec.backing {
            disks.push(Disk::open(path, base)?);
            base += disks.last().map_or(Bytes(0), |disk: &Disk| disk.length);
        }
        Ok(Self { disks, station: Arc::new(Station::new(spec.model.device(base, spec.seed))) })
    }

    fn disk(&self, inode: INodeNo) -> Option<&Disk> {
        usize::try_from(inode.0.checked_sub(FIRST_DISK)?).ok().and_then(|number| self.disks.get(number))
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let (kind, size, perm) = match inode {
            1 => (FileType::Directory, 0, 0o700),
            STATISTICS_INODE => (FileType::RegularFile, 0, 0o400),
            CONTROL_INODE => (FileType::RegularFile, 0, 0o200),
            disk => (FileType::RegularFile, self.disk(INodeNo(disk))?.length.0, 0o600),
        };
        let time = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn names(&self) -> impl Iterator<Item = (u64, String)> {
        let files = [(STATISTICS_INODE, STATISTICS.to_owned()), (CONTROL_INODE, CONTROL.to_owned())];
        files.into_iter().chain((0..self.disks.len()).map(|n| (FIRST_DISK + n as u64, n.to_string())))
    }
}

impl Disk {
    fn open(path: &Path, base: Bytes) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let length = Bytes(file.metadata()?.len());
        Ok(Self { file, base, length, failing: Mutex::default() })
    }

    fn fails(&self, access: Access, offset: u64, length: u64) -> bool {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = failing.iter().filter(|failing| failing.access == access).flat_map(|failing| &failing.ranges);
        ranges.copied().any(|(start, failing)| offset < start.0 + failing.0 && start.0 < offset + length)
    }

    fn asked(&self, access: Access, offset: u64, length: u64) -> Asked {
        Asked { id: 0, access, at: self.base + Bytes(offset), length: Bytes(length) }
    }
}

impl Filesystem for Disks {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it, one request is under way at a time, however long the line above is.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
        // Their errors say that the kernel cannot: then it is the nearest that it can.
        _ = config.set_max_write(LARGEST);
        _ = config.set_max_background(AT_A_TIME);
        _ = config.set_congestion_threshold(AT_A_TIME);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.names().find(|(_, known)| parent == INodeNo::ROOT && name == known.as_str());
        match found.and_then(|(inode, _)| self.attributes(inode)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Whoever opens the control file for writing may truncate it; disks keep their size.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode.0).filter(|_| inode.0 == CONTROL_INODE) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::EPERM),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = self.names().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for (at, (inode, name)) in entries {
            if reply.add(INodeNo(inode), at as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No second cache above the disk, and no lock that would let only one write be under way.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode.0 == STATISTICS_INODE {
            let told = self.station.statistics().to_json();
            let rest = told.as_bytes().get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
            return reply.data(rest.get(..size as usize).unwrap_or(rest));
        }
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::EINVAL) };
        let length = u64::from(size).min(disk.length.0.saturating_sub(offset));
        let ticket = self.station.arrive(disk.asked(Access::Read, offset, length));
        if disk.fails(Access::Read, offset, length) {
            return self.station.expect(ticket, Answer::FailedRead(reply));
        }
        let mut buffer = self.station.buffer();
        buffer.resize(length as usize, 0);
        match disk.file.read_exact_at(&mut buffer, offset) {
            Ok(()) => self.station.expect(ticket, Answer::Data(reply, buffer)),
            Err(_) => self.station.expect(ticket, Answer::FailedRead(reply)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len() as u32;
        if inode.0 == CONTROL_INODE {
            return match std::str::from_utf8(data).map(str::trim) {
                Ok(MODEL) => self.answer_control(true, length, reply),
                Ok(BYPASS) => self.answer_control(false, length, reply),
                Ok(word) if self.let_fail(word).is_some() => reply.written(length),
                _ => reply.error(Errno::EINVAL),
            };
        }
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::EINVAL) };
        if offset.saturating_add(data.len() as u64) > disk.length.0 {
            return reply.error(Errno::ENOSPC);
        }
        let ticket = self.station.arrive(disk.asked(Access::Write, offset, data.len() as u64));
        if disk.fails(Access::Write, offset, data.len() as u64) {
            return self.station.expect(ticket, Answer::FailedWrite(reply));
        }
        match disk.file.write_all_at(data, offset) {
            Ok(()) => self.station.expect(ticket, Answer::Written(reply, length)),
            Err(_) => self.station.expect(ticket, Answer::FailedWrite(reply)),
        }
    }

    /// What is complete is on the medium: there is nothing to flush.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.station.count_flush();
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Discards and zeroing; they take no time here.
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::EINVAL) };
        self.station.count_discard();
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        match fallocate(&disk.file, flags | FallocateFlags::KEEP_SIZE, at, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.disks.iter().map(|disk| disk.length.0 / 4096).sum();
        reply.statfs(blocks, 0, 0, self.disks.len() as u64, 0, 4096, 255, 4096);
    }
}

impl Disks {
    fn let_fail(&self, word: &str) -> Option<()> {
        let told: Failing = serde_json::from_str(word.strip_prefix(FAIL)?).ok()?;
        let disk = self.disks.get(told.client)?;
        let mut failing = disk.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.retain(|before| before.access != told.access);
        failing.push(told);
        Some(())
    }

    fn answer_control(&self, modelled: bool, length: u32, reply: ReplyWrite) {
        self.station.set_modelled(modelled);
        reply.written(length);
    }
}

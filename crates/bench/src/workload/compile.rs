//! The work of compilers, linkers and installers. Many small files are written and read back. Programs are executed
//! immediately after they are written, and again later. Linkers let the kernel decide when their output becomes
//! durable. Where each piece is made durable at once, programs fragment, and get runways until they are executed.
//!
//! One thread does all the work. A child that another thread starts would hold the program open for writing for a
//! moment, and its execution would fail because of the test itself.

use super::writer::{Writer, alone};
use super::{Done, Job, sync_directory};
use crate::BenchError;
use longrun_sys::{Errno, OFlags};
use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One program per this many bytes of the other profiles: 512 programs where eight writers write 64 MiB each.
const BYTES_PER_PROGRAM: u64 = 1 << 20;
/// Objects for each program.
const OBJECTS: u64 = 3;
/// A program that does nothing, and how large it is made: what follows the end of an ELF file is not looked at.
const PROGRAM: &str = "/bin/true";
const PROGRAM_LENGTH: u64 = 384 << 10;
/// A linker's writes, next to those of the map that it writes at the same time.
const PIECE: u64 = 32 << 10;
/// When a program is executed for the second time: about when a runway of it would be given back.
const LATER: [Duration; 4] =
    [Duration::from_millis(450), Duration::from_millis(500), Duration::from_millis(520), Duration::from_millis(600)];

struct Due {
    at: Instant,
    program: PathBuf,
    beside: PathBuf,
}

/// Programs and maps are opened with `flags`.
pub(super) fn run(job: &Job<'_>, flags: OFlags) -> Result<Done, BenchError> {
    let programs = (job.parameters.total().0 / BYTES_PER_PROGRAM).max(4);
    let content = fs::read(PROGRAM).map_err(|e| BenchError::io("reading it", Path::new(PROGRAM), e))?;
    alone(job, |writer| {
        let mut due: VecDeque<Due> = VecDeque::new();
        for number in 0..programs {
            for object in 0..OBJECTS {
                compile(writer, &format!("object-{number}-{object}"))?;
            }
            let (program, beside) = link(writer, number, &content, flags)?;
            execute(writer, &program)?;
            let wait = LATER.get(number as usize % LATER.len()).copied().unwrap_or_default();
            due.push_back(Due { at: Instant::now() + wait, program, beside });
            while let Some(next) = due.pop_front_if(|next| next.at <= Instant::now()) {
                again(writer, &next)?;
            }
        }
        // Those that are left are not waited for longer than they have to be: one moment for all.
        if let Some(last) = due.back() {
            std::thread::sleep(last.at.saturating_duration_since(Instant::now()));
        }
        due.iter().try_for_each(|next| again(writer, next))?;
        sync_directory(job.directory)
    })
}

fn again(writer: &mut Writer<'_>, due: &Due) -> Result<(), BenchError> {
    execute(writer, &due.program)?;
    writer.open_at_once(&due.program)?;
    writer.open_at_once(&due.beside)
}

fn compile(writer: &mut Writer<'_>, name: &str) -> Result<(), BenchError> {
    let mut source = writer.create(&format!("source-{name}"), OFlags::empty())?;
    let length = writer.rng.u64(1 << 10..=12 << 10);
    writer.append(&mut source, length)?;
    let path = source.path.clone();
    drop(source);
    fs::read(&path).map_err(|e| BenchError::io("reading it", &path, e))?;
    let mut object = writer.create(name, OFlags::empty())?;
    let length = writer.rng.u64(8 << 10..=96 << 10);
    writer.grow(&mut object, length, 4 << 10)?;
    let path = object.path.clone();
    drop(object);
    fs::read(&path).map(drop).map_err(|e| BenchError::io("reading it", &path, e))
}

/// Writes a program piece by piece, and a map of it beside.
fn link(writer: &mut Writer<'_>, number: u64, content: &[u8], flags: OFlags) -> Result<(PathBuf, PathBuf), BenchError> {
    let mut program = writer.create(&format!("program-{number}"), flags)?;
    let mut beside = writer.create(&format!("map-{number}"), flags)?;
    while program.length < PROGRAM_LENGTH {
        writer.append(&mut program, PIECE)?;
        writer.append(&mut beside, PIECE)?;
    }
    std::os::unix::fs::FileExt::write_all_at(&program.file, content, 0)
        .and_then(|()| program.file.set_permissions(Permissions::from_mode(0o755)))
        .map_err(|e| BenchError::io("writing to it", &program.path, e))?;
    Ok((program.path, beside.path))
}

fn execute(writer: &mut Writer<'_>, program: &Path) -> Result<(), BenchError> {
    writer.done.executions += 1;
    let status = Command::new(program).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(BenchError::Unsuitable { path: program.to_owned(), problem: "does not run as expected".into() }),
        Err(error) if error.raw_os_error() == Some(Errno::TXTBSY.raw_os_error()) => {
            writer.done.failed_executions += 1;
            Ok(())
        }
        Err(error) => Err(BenchError::io("executing it", program, error)),
    }
}

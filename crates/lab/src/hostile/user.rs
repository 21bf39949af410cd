//! The unprivileged user: a separate process that replaces files and directories by links and FIFOs, runs programs
//! under the names of tools, locks files that it can read, and opens many connections to the socket of the service.
//!
//! It puts everything back before its next operation, so at rest every file is in its place.

use super::prey::{DIRECTORIES, NOBODY, directory_name, file_name};
use super::{HostileSettings, PATIENCE, WRITERS};
use crate::cleanup;
use crate::disk::lab_binary;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FlockOperation, Mode, RenameFlags};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The hidden command of `longrun-lab` that is this process.
pub const USER_COMMAND: &str = "hostile-user";
const REST: &str = "rest";
const GO_ON: &str = "go on";
const END: &str = "end";
const DONE: &str = "done ";
/// Connections that the service has for all, and more.
const CROWD: usize = 80;

/// The process, seen from the campaign.
pub(super) struct User {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl User {
    pub(super) fn start(prey: &Path, outside: PathBuf, socket: &Path, settings: &HostileSettings) -> Result<Self> {
        let mut command = Command::new(lab_binary()?);
        command.arg(USER_COMMAND).args([prey, &outside, socket]).arg(settings.seed.to_string()).args(&settings.without);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        longrun_sys::end_with_us(&mut command);
        let mut child = command.spawn()?;
        cleanup::child_started(Pid::from_child(&child));
        let answers = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, answers })
    }

    /// Has it put everything back and wait.
    pub(super) fn rest(&mut self) -> Result<()> {
        self.tell(REST).map(drop)
    }

    /// Lets it go on.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.tell(GO_ON).map(drop)
    }

    /// Ends it; how often it did what.
    pub(super) fn end(mut self) -> Result<BTreeMap<String, u64>> {
        let told = self.tell(END)?;
        ensure!(self.child.wait()?.success(), "the hostile user failed");
        Ok(serde_json::from_str(&told)?)
    }

    /// Says a word and waits for the answer.
    fn tell(&mut self, word: &str) -> Result<String> {
        let told = self.child.stdin.as_mut().context("no input").and_then(|input| Ok(writeln!(input, "{word}")?));
        told.context("the hostile user has ended")?;
        let answer = self.answers.next().context("the hostile user has ended")??;
        Ok(answer.strip_prefix(DONE).with_context(|| format!("the hostile user says {answer:?}"))?.to_owned())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        cleanup::child_ended(Pid::from_child(&self.child));
    }
}

/// What is done next.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    FileForLink,
    FileForFifo,
    DirectoryForLink,
    DirectoryForFifo,
    DirectoriesExchanged,
    FalseTool,
    Lock,
    Crowd,
}

/// Swaps are quick, and what they are for is a race: most acts are swaps.
const CHOICES: [Mischief; 20] = {
    use Mischief::{
        Crowd, DirectoriesExchanged, DirectoryForFifo, DirectoryForLink, FalseTool, FileForFifo, FileForLink, Lock,
    };
    [
        FileForLink,
        FileForLink,
        FileForLink,
        FileForFifo,
        FileForFifo,
        FileForFifo,
        DirectoryForLink,
        DirectoryForLink,
        DirectoryForLink,
        DirectoryForLink,
        DirectoryForLink,
        DirectoryForFifo,
        DirectoryForFifo,
        DirectoryForFifo,
        DirectoriesExchanged,
        DirectoriesExchanged,
        DirectoriesExchanged,
        FalseTool,
        Lock,
        Crowd,
    ]
};

/// Is the user, until told to end: gives up root, and obeys the words on standard input.
///
/// # Errors
/// When root cannot be given up, or what was taken away cannot be put back.
pub fn run_user(prey: &Path, outside: &Path, socket: &Path, seed: u64, without: &[String]) -> Result<()> {
    // Before any other thread: each has its own identity in the kernel.
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(NOBODY))?;
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY))?;
    ensure!(fs::read_dir(outside).is_err(), "the user has kept a privilege");
    let (say, words) = channel();
    thread::spawn(move || std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
    let mut user = Hostile {
        prey,
        outside,
        socket,
        rng: fastrand::Rng::with_seed(seed),
        done: BTreeMap::new(),
        children: Vec::new(),
    };
    let choices: Vec<_> = CHOICES.iter().filter(|choice| !without.contains(&format!("{choice:?}"))).collect();
    let mut wait = Duration::ZERO;
    loop {
        match next_word(&words, wait) {
            None => {
                let mischief = **user.rng.choice(choices.iter()).unwrap_or(&&Mischief::FileForLink);
                user.act(mischief).with_context(|| format!("{mischief:?}"))?;
                wait = Duration::from_micros(user.rng.u64(..4000));
                continue;
            }
            Some(word) if word == REST => {
                user.call_tools_back();
                answer("")?;
                match words.recv_timeout(PATIENCE * 4).as_deref() {
                    Ok(GO_ON) => answer("")?,
                    other => bail!("at rest, the user is told {other:?}"),
                }
            }
            Some(word) if word == END => {
                user.call_tools_back();
                return answer(&serde_json::to_string(&user.done)?);
            }
            Some(word) => bail!("the user does not understand {word:?}"),
        }
    }
}

/// A word, if one comes meanwhile; a campaign that is gone ends the user.
fn next_word(words: &Receiver<String>, wait: Duration) -> Option<String> {
    match words.recv_timeout(wait) {
        Ok(word) => Some(word),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(END.to_owned()),
    }
}

fn answer(what: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{DONE}{what}")?)
}

struct Hostile<'a> {
    prey: &'a Path,
    outside: &'a Path,
    socket: &'a Path,
    rng: fastrand::Rng,
    done: BTreeMap<String, u64>,
    children: Vec<Child>,
}

impl Hostile<'_> {
    fn act(&mut self, mischief: Mischief) -> Result<()> {
        let number = self.rng.usize(..WRITERS);
        let directory = self.prey.join(directory_name(number));
        let file = directory.join(file_name(number));
        match mischief {
            Mischief::FileForLink => self.swap(&file, |at| Ok(symlink(self.outside.join(file_name(number)), at)?))?,
            Mischief::FileForFifo => self.swap(&file, make_fifo)?,
            Mischief::DirectoryForLink => self.swap(&directory, |at| Ok(symlink(self.outside, at)?))?,
            Mischief::DirectoryForFifo => self.swap(&directory, make_fifo)?,
            Mischief::DirectoriesExchanged => {
                let other = self.prey.join(directory_name(number + 1 + self.rng.usize(..DIRECTORIES - 1)));
                exchange(&directory, &other)?;
                self.linger();
                exchange(&directory, &other)?;
            }
            Mischief::FalseTool => self.call_false_tool()?,
            Mischief::Lock => self.lock()?,
            Mischief::Crowd => self.crowd(),
        }
        *self.done.entry(format!("{mischief:?}")).or_insert(0) += 1;
        Ok(())
    }

    fn linger(&self) {
        // Derived from the clock, not the seed: the race is with another process anyway.
        thread::sleep(Duration::from_micros(u64::from(std::process::id() % 7) * 500 + 200));
    }

    /// For a moment something else is at the place.
    fn swap(&self, at: &Path, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
        let aside = at.with_extension("aside");
        fs::rename(at, &aside)?;
        let made = make(at);
        self.linger();
        _ = fs::remove_file(at);
        fs::rename(&aside, at).with_context(|| format!("cannot put {} back", at.display()))?;
        made
    }

    /// A process that is called as a tool is whose runs an optimizer waits for, and names a FIFO and the volume.
    fn call_false_tool(&mut self) -> Result<()> {
        const MOST: usize = 4;
        let name = *self.rng.choice(["btrfs", "e4defrag", "xfs_fsr"].iter()).unwrap_or(&"btrfs");
        let (tool, fifo) = (self.prey.join(name), self.prey.join("fifo"));
        if !tool.exists() {
            fs::write(&tool, "#!/bin/sh\nsleep 2\n")?;
            fs::set_permissions(&tool, fs::Permissions::from_mode(0o755))?;
        }
        if !fifo.exists() {
            make_fifo(&fifo)?;
        }
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.children.len() < MOST {
            let mount = self.prey.parent().unwrap_or(self.prey);
            let mut command = Command::new(&tool);
            command
                .args(["filesystem", "defragment", "-r"])
                .args([&fifo, mount])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            self.children.push(command.spawn()?);
        }
        Ok(())
    }

    fn call_tools_back(&mut self) {
        for mut child in self.children.drain(..) {
            _ = child.kill();
            _ = child.wait();
        }
    }

    /// Holds a lock on the root directory of the volume, which it may read.
    fn lock(&self) -> Result<()> {
        let root = File::open(self.prey.parent().unwrap_or(self.prey))?;
        if rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive).is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Takes every connection that it can get.
    fn crowd(&self) {
        let connections: Vec<_> = (0..CROWD).map_while(|_| UnixStream::connect(self.socket).ok()).collect();
        thread::sleep(Duration::from_millis(if connections.is_empty() { 0 } else { 50 }));
    }
}

fn make_fifo(at: &Path) -> Result<()> {
    Ok(rustix::fs::mknodat(CWD, at, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0)?)
}

fn exchange(one: &Path, other: &Path) -> Result<()> {
    Ok(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

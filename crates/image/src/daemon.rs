//! A process of `qemu-storage-daemon` that shows an image as a file.
//!
//! Owns its start and its end: it ends when this is dropped, and with us however we end. Never reads or writes the
//! content.

use crate::private::PrivateDirectory;
use longrun_sys::PassedFile;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The program.
const PROGRAM: &str = "qemu-storage-daemon";
/// It reads the headers of the image in this time, unless the storage of the image hangs.
pub(crate) const LONGEST_START: Duration = Duration::from_secs(30);
/// It writes what it holds in memory in this time. What was flushed is durable before.
const LONGEST_END: Duration = Duration::from_secs(60);
/// Between looking whether it is ready, or gone.
const PAUSE: Duration = Duration::from_millis(5);

/// Why there is no daemon.
#[derive(Debug)]
pub(crate) enum StartFailure {
    /// It could not be started, or its directory could not be used.
    Io(io::Error),
    /// It ended, having written this.
    Refused(String),
    /// It was not ready in time.
    Slow,
}

/// A running daemon.
pub(crate) struct Daemon {
    /// Closed to end it.
    stop: Option<Sender<()>>,
    /// It waits for that. The kernel ends the daemon with the thread that started it, so this one lives as long.
    keeper: Option<JoinHandle<()>>,
    content: PathBuf,
    /// Removed when the daemon has gone.
    _directory: PrivateDirectory,
}

impl Daemon {
    /// Starts it with `arguments`, which name these files, and returns when the content is there. It can open no others.
    pub(crate) fn start(
        arguments: Vec<OsString>,
        files: Vec<PassedFile>,
        directory: PrivateDirectory,
    ) -> Result<Self, StartFailure> {
        let mut command = Command::new(PROGRAM);
        let messages = File::create_new(directory.messages()).map_err(StartFailure::Io)?;
        command.args(&arguments).arg("--pidfile").arg(directory.ready_in_program());
        // In a separate process group: Ctrl-C at the terminal must not end it before us.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages).env("LC_ALL", "C").process_group(0);
        longrun_sys::end_with_us(&mut command);
        // The signal to end only makes a note, which is read after the next event. When it comes just before the daemon
        // begins to wait for one, there might be none ever. QEMU takes this signal for an event without a meaning.
        longrun_sys::wake_every_second(&mut command);
        directory.confine(&mut command, files);
        let (stop, stopped) = mpsc::channel();
        let (started, start) = mpsc::channel();
        let ready = directory.ready();
        let keep = move || keep(command, &ready, &started, &stopped);
        let keeper = std::thread::Builder::new().name("image".into()).spawn(keep).map_err(StartFailure::Io)?;
        // Only a panic of the thread would answer nothing.
        let start = start.recv().unwrap_or_else(|_| Err(StartFailure::Io(io::ErrorKind::BrokenPipe.into())));
        match start {
            Ok(id) => {
                let content = directory.content(id);
                Ok(Self { stop: Some(stop), keeper: Some(keeper), content, _directory: directory })
            }
            Err(failure) => {
                drop(stop);
                _ = keeper.join();
                Err(match failure {
                    StartFailure::Refused(_) => StartFailure::Refused(said(&directory, &arguments)),
                    other => other,
                })
            }
        }
    }

    /// Where the content of the image is.
    pub(crate) fn content(&self) -> &Path {
        &self.content
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            _ = keeper.join();
        }
    }
}

/// Starts the daemon, says how that went, with its process number, and ends it when told.
fn keep(mut command: Command, ready: &Path, started: &Sender<Result<u32, StartFailure>>, stopped: &Receiver<()>) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            _ = started.send(Err(StartFailure::Io(error)));
            return;
        }
    };
    let outcome = wait_until_ready(&mut child, ready).map(|()| child.id());
    let is_ready = outcome.is_ok();
    _ = started.send(outcome);
    if is_ready {
        // Nothing is ever sent: this returns when the other end is closed.
        _ = stopped.recv();
    }
    end(&mut child);
}

fn wait_until_ready(child: &mut Child, ready: &Path) -> Result<(), StartFailure> {
    let deadline = Instant::now() + LONGEST_START;
    loop {
        if child.try_wait().map_err(StartFailure::Io)?.is_some() {
            return Err(StartFailure::Refused(String::new()));
        }
        // It writes its number when everything it was asked for is there, and not before.
        if fs::read(ready).is_ok_and(|number| number.ends_with(b"\n")) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(StartFailure::Slow);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends the daemon: it writes what it holds, and takes its mount away. One that does not is killed.
fn end(child: &mut Child) {
    if let Some(id) = Pid::from_raw(child.id().cast_signed())
        && matches!(child.try_wait(), Ok(None))
    {
        _ = kill_process(id, Signal::TERM);
        let deadline = Instant::now() + LONGEST_END;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        _ = child.kill();
    }
    _ = child.wait();
}

/// What the daemon has written, without the arguments that it repeats.
fn said(directory: &PrivateDirectory, arguments: &[OsString]) -> String {
    const MOST: usize = 1000;
    let text = fs::read(directory.messages()).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&text).into_owned();
    for argument in arguments {
        text = text.replace(&format!("{}: ", argument.display()), "");
    }
    for repeated in ["qemu-storage-daemon: ", "--blockdev ", "--export "] {
        text = text.replace(repeated, "");
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "nothing".into(),
        lines => lines.join("; ").chars().take(MOST).collect(),
    }
}

/// An option of a program of QEMU: `key=value` pairs, separated by commas. Commas in a value are written twice.
#[derive(Default)]
pub(crate) struct Options(Vec<u8>);

impl Options {
    pub(crate) fn with(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        self.0.extend(key.bytes());
        self.0.push(b'=');
        for byte in value.as_ref().as_bytes() {
            self.0.push(*byte);
            if *byte == b',' {
                self.0.push(b',');
            }
        }
        self
    }
}

impl From<Options> for OsString {
    fn from(options: Options) -> Self {
        Self::from_vec(options.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_names_do_not_end_an_option() {
        let options = Options::default().with("driver", "file").with("filename", "/a,b,=c\u{e4}");
        assert_eq!(OsString::from(options), "driver=file,filename=/a,,b,,=c\u{e4}");
    }
}

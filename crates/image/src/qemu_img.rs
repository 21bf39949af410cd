//! `qemu-img`, on images that we have locked.
//!
//! Owns how it is started and ends: when the work is to end, and with us. Never decides what is done with an image.

use crate::daemon::Options;
use crate::format::Format;
use crate::private::{PrivateDirectory, pass, with_names};
use crate::{Disk as _, FileDisk, ImageError};
use longrun_layout::Bytes;
use longrun_sys::PassedFile;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PROGRAM: &str = "qemu-img";
/// Between looking whether it has ended, or is to end.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes that are kept of what it writes: the last ones.
const MOST_TEXT: usize = 2000;
/// The status of a check that found nothing but blocks that are allocated and not used.
const LEAKS: i32 = 3;

/// The program, for the images of one path.
pub(crate) struct QemuImg {
    /// What errors call them.
    path: PathBuf,
    private: PrivateDirectory,
}

/// Why it has not ended by itself.
pub(crate) enum Failure {
    /// It could not be run at all.
    Image(ImageError),
    /// It was to end.
    Stopped,
    /// A system call failed.
    Io(&'static str, io::Error),
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// What it wrote to its standard output.
    pub(crate) text: String,
    errors: String,
}

impl Ended {
    fn lines(&self) -> Vec<&str> {
        let said = if self.errors.trim().is_empty() { &self.text } else { &self.errors };
        said.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
    }

    /// What it says of its failure, in one line.
    pub(crate) fn message(&self) -> String {
        let lines = self.lines();
        if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") }
    }

    /// Of a check that found errors, which can be thousands, one that is no leak.
    fn an_error(&self) -> String {
        let is_error = |line: &&str| line.starts_with("ERROR");
        self.lines().into_iter().find(is_error).map_or_else(|| self.message(), str::to_owned)
    }
}

/// What it is called with: arguments, and the files that these name.
pub(crate) struct Call {
    arguments: Vec<OsString>,
    files: Vec<PassedFile>,
}

impl Call {
    pub(crate) fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self { arguments: arguments.map(OsString::from).to_vec(), files: Vec::new() }
    }

    /// Adds an argument.
    pub(crate) fn and(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds an image that we have locked: the kernel knows the locks as ours, not as those of a child.
    pub(crate) fn with(mut self, image: &FileDisk, format: Format) -> Result<Self, ImageError> {
        let (file, driver) = (pass(image)?, if image.is_device() { "host_device" } else { "file" });
        let options = Options::default().with("driver", format.driver()).with("file.driver", driver);
        self.arguments.push(options.with("file.filename", file.name()).with("file.locking", "off").into());
        self.files.push(file);
        Ok(self)
    }

    /// Adds a file to write to.
    pub(crate) fn to(mut self, file: &File) -> Result<Self, Failure> {
        let file = PassedFile::of(file).map_err(|errno| Failure::Io("opening the new image", errno.into()))?;
        self.arguments.push(file.name().into());
        self.files.push(file);
        Ok(self)
    }
}

impl QemuImg {
    pub(crate) fn new(path: PathBuf) -> Result<Self, ImageError> {
        let private = PrivateDirectory::new(&path)?;
        Ok(Self { path, private })
    }

    /// Checks an image that nobody writes to. `continues` is called from time to time with the part that is done; false ends the check.
    /// `None` when it knows no check for the format.
    pub(crate) fn check(
        &self,
        image: &FileDisk,
        format: Format,
        continues: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Option<Ended>, Failure> {
        if matches!(format, Format::Raw | Format::Vhd) {
            return Ok(None);
        }
        self.run(Call::new(["check", "--image-opts"]).with(image, format)?, continues).map(Some)
    }

    /// As [`Self::check`], and fails when the image has errors. Leaks are none.
    pub(crate) fn check_for_errors(
        &self,
        image: &FileDisk,
        format: Format,
        continues: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Option<Ended>, Failure> {
        let ended = self.check(image, format, continues)?;
        match ended {
            Some(ended) if !ended.status.success() && ended.status.code() != Some(LEAKS) => {
                Err(ImageError::Errors { path: self.path.clone(), message: ended.an_error() }.into())
            }
            ended => Ok(ended),
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, call: Call, continues: &mut dyn FnMut(f64) -> bool) -> Result<Ended, Failure> {
        let text = Mutex::new(String::new());
        let read = |from| collect(from, &text);
        let (ended, names) = self.run_read_by(call, read, &mut || continues(share(&lock(&text))))?;
        let text = with_names(lock(&text).clone(), &names);
        Ok(Ended { text, ..ended })
    }

    /// Runs it to its end. `read` reads what it writes to its standard output, in another thread. Also returns which names its files have
    /// in that.
    fn run_read_by(
        &self,
        call: Call,
        read: impl FnOnce(ChildStdout) + Send,
        continues: &mut dyn FnMut() -> bool,
    ) -> Result<(Ended, Vec<(PathBuf, PathBuf)>), Failure> {
        let mut command = Command::new(PROGRAM);
        // In a separate process group: Ctrl-C at the terminal must not end it before us.
        command.args(call.arguments).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        longrun_sys::end_with_us(&mut command);
        // It knows its files by their descriptors.
        let names: Vec<_> = call.files.iter().map(|file| (file.name(), self.path.clone())).collect();
        self.private.confine(&mut command, call.files);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::Image(ImageError::NoQemuImg { path: self.path.clone() }),
            _ => Failure::Io("starting qemu-img", error),
        })?;
        let errors = Mutex::new(String::new());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = std::thread::scope(|scope| {
            scope.spawn(|| out.map(read));
            scope.spawn(|| err.map(|from| collect(from, &errors)));
            let status = wait(&mut child, continues);
            if status.is_err() {
                // What it was writing is thrown away.
                _ = child.kill();
                _ = child.wait();
            }
            status
        })?;
        let errors = with_names(lock(&errors).clone(), &names);
        Ok((Ended { status, text: String::new(), errors }, names))
    }

    /// Fails when two parts of the disk in an image have the same place in it, as far as the program tells places.
    fn check_places(&self, image: &FileDisk, format: Format) -> Result<(), Failure> {
        let call = Call::new(["map", "--output=json", "--image-opts"]).with(image, format)?;
        let mut places = Places::new(image.length());
        let read = |from| places.read(from);
        let (ended, _) = self.run_read_by(call, read, &mut || true)?;
        let message = if places.overlap() {
            "two parts of the disk have the same place in the image".to_owned()
        } else if ended.status.success() {
            return Ok(());
        } else {
            ended.message()
        };
        Err(ImageError::Errors { path: self.path.clone(), message }.into())
    }
}

/// Where the parts of the disk are in an image.
struct Places {
    /// First byte and length of each.
    all: Vec<(u64, u64)>,
    total: u64,
    /// The length of the image. Parts that have more bytes together overlap.
    most: u64,
}

impl Places {
    fn new(length: Bytes) -> Self {
        Self { all: Vec::new(), total: 0, most: length.0 }
    }

    /// Reads what `qemu-img map` writes: a part in each line.
    fn read(&mut self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let number = |name: &str| -> Option<u64> {
                let (_, behind) = line.split_once(name)?;
                behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            let Some((at, length)) = number("\"offset\": ").zip(number("\"length\": ")) else { continue };
            self.total = self.total.saturating_add(length);
            if self.total > self.most {
                return;
            }
            self.all.push((at, length));
        }
    }

    fn overlap(&mut self) -> bool {
        self.all.sort_unstable();
        let meet = |pair: &[(u64, u64)]| matches!(pair, [(at, length), (next, _)] if at.checked_add(*length).is_none_or(|end| end > *next));
        self.total > self.most || self.all.windows(2).any(meet)
    }
}

/// Fails when QEMU's own check finds errors in an image that is to be written to: two blocks of the disk that share one of the image
/// would both change. Opening an image whose counts are not up to date (`lazy_refcounts`, after a kill) does not repair such blocks
/// (QEMU 7.2), so that it is checked like all others.
pub(crate) fn check_before_writing(image: &FileDisk, format: Format) -> Result<(), ImageError> {
    let path = image.path().to_owned();
    let program = QemuImg::new(path.clone())?;
    let checked = match format {
        // Its check does not look for that, or there is none.
        Format::Vmdk | Format::Vhd => program.check_places(image, format),
        _ => Ok(()),
    };
    match checked.and_then(|()| program.check_for_errors(image, format, &mut |_| true)) {
        Ok(_) => Ok(()),
        Err(Failure::Image(error)) => Err(error),
        Err(Failure::Io(_, source)) => Err(ImageError::Examine { path, source }),
        // It was never told to stop.
        Err(Failure::Stopped) => Err(ImageError::Examine { path, source: io::ErrorKind::Interrupted.into() }),
    }
}

fn wait(child: &mut Child, continues: &mut dyn FnMut() -> bool) -> Result<ExitStatus, Failure> {
    loop {
        if let Some(status) = child.try_wait().map_err(|error| Failure::Io("waiting for qemu-img", error))? {
            return Ok(status);
        }
        if !continues() {
            return Err(Failure::Stopped);
        }
        std::thread::sleep(PAUSE);
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the end of what is read.
fn collect(mut from: impl Read, text: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut text = lock(text);
        text.push_str(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()));
        let mut surplus = text.len().saturating_sub(MOST_TEXT);
        while !text.is_char_boundary(surplus) {
            surplus += 1;
        }
        text.drain(..surplus);
    }
}

/// From 0 to 1, by the last progress in the text: `    (12.34/100%)`.
fn share(text: &str) -> f64 {
    let number = text.rsplit_once("/100%)").and_then(|(before, _)| before.rsplit_once('('));
    number.and_then(|(_, percent)| percent.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_last_progress() {
        assert_eq!(share("    (0.00/100%)\r    (12.50/100%)\r    (13.0"), 0.125);
        assert_eq!(share("Images are identical."), 0.0);
    }

    #[test]
    fn parts_with_the_same_place_overlap() {
        let read = |length, lines: &[(u64, u64)]| {
            let mut places = Places::new(Bytes(length));
            let line = |(at, length): &(u64, u64)| {
                format!("{{ \"start\": 7, \"length\": {length}, \"data\": true, \"offset\": {at}}},\n")
            };
            let hole = "[{ \"start\": 0, \"length\": 900, \"data\": false},\n".to_owned();
            let text: String = [hole].into_iter().chain(lines.iter().map(line)).collect();
            places.read(text.as_bytes());
            places.overlap()
        };
        assert!(!read(400, &[(200, 100), (0, 100), (100, 100)]));
        assert!(read(400, &[(200, 100), (0, 101), (100, 100)]));
        assert!(read(400, &[(200, 100), (200, 100)]));
        assert!(read(250, &[(0, 100), (300, 100), (600, 100)]), "more than the image has");
        assert!(read(400, &[(u64::MAX, 2), (u64::MAX, 2)]));
    }

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let text = Mutex::new(String::new());
        collect("ä".repeat(5000).as_bytes(), &text);
        assert!((MOST_TEXT - 4..=MOST_TEXT).contains(&lock(&text).len()));
    }
}

//! `qemu-img`, on images that we have locked.
//!
//! Owns how it is started and ends: when the work is to end, and with us. Never decides what is done with an image.

use crate::daemon::Options;
use crate::format::Format;
use crate::places::check_places;
use crate::private::{PrivateDirectory, pass, with_names};
use crate::{Disk as _, FileDisk, ImageError};
use longrun_sys::PassedFile;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
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
    /// Of a check, the first error. It was ended then.
    error: Option<String>,
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
            Some(ended) if !ended.status.success() && ended.status.code() != Some(LEAKS) => Err(ImageError::Errors {
                path: self.path.clone(),
                message: ended.error.clone().unwrap_or_else(|| ended.message()),
            }
            .into()),
            ended => Ok(ended),
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, call: Call, continues: &mut dyn FnMut(f64) -> bool) -> Result<Ended, Failure> {
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
        let (text, errors) = (Mutex::default(), Mutex::default());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = std::thread::scope(|scope| {
            scope.spawn(|| out.map(|from| collect(from, &text)));
            scope.spawn(|| err.map(|from| collect(from, &errors)));
            let has_error = || lock(&errors).error.is_some();
            let status = wait(&mut child, &has_error, &mut || continues(share(&lock(&text).end)));
            if status.is_err() {
                // What it was writing is thrown away.
                _ = child.kill();
                _ = child.wait();
            }
            status
        })?;
        let error = lock(&errors).error.take().map(|error| with_names(error, &names));
        let [text, errors] = [&text, &errors].map(|said| with_names(lock(said).end.clone(), &names));
        Ok(Ended { status, text, errors, error })
    }
}

/// Fails when the tables of an image that is to be written to are not in order: two parts of the disk that share a place in it would
/// both change. Opening a qcow2 whose counts are not up to date (`lazy_refcounts`, after a kill) does not repair that (QEMU 7.2), so that it
/// is checked like all others.
pub(crate) fn check_before_writing(image: &FileDisk, format: Format) -> Result<(), ImageError> {
    check_places(image, format)?;
    let path = image.path().to_owned();
    match QemuImg::new(path.clone())?.check_for_errors(image, format, &mut |_| true) {
        Ok(_) => Ok(()),
        Err(Failure::Image(error)) => Err(error),
        Err(Failure::Io(_, source)) => Err(ImageError::Examine { path, source }),
        // It was never told to stop.
        Err(Failure::Stopped) => Err(ImageError::Examine { path, source: io::ErrorKind::Interrupted.into() }),
    }
}

/// What the program has said so far.
#[derive(Default)]
struct Said {
    /// The end of it.
    end: String,
    /// The first line that tells an error of an image, and no leak.
    error: Option<String>,
}

/// Waits until it has ended. A check that has found an error is ended: it could tell millions.
fn wait(
    child: &mut Child,
    has_error: &dyn Fn() -> bool,
    continues: &mut dyn FnMut() -> bool,
) -> Result<ExitStatus, Failure> {
    loop {
        if let Some(status) = child.try_wait().map_err(|error| Failure::Io("waiting for qemu-img", error))? {
            return Ok(status);
        }
        if has_error() {
            _ = child.kill();
        }
        if !continues() {
            return Err(Failure::Stopped);
        }
        std::thread::sleep(PAUSE);
    }
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the end of what is read, and the first error.
fn collect(mut from: impl Read, said: &Mutex<Said>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut said = lock(said);
        let Said { end, error } = &mut *said;
        end.push_str(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()));
        if error.is_none() {
            let is_error = |line: &&str| line.starts_with("ERROR") && line.ends_with('\n');
            *error = end.split_inclusive('\n').find(is_error).map(|line| line.trim().to_owned());
        }
        let mut surplus = end.len().saturating_sub(MOST_TEXT);
        while !end.is_char_boundary(surplus) {
            surplus += 1;
        }
        end.drain(..surplus);
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
    fn of_a_long_output_the_end_and_the_first_error_are_kept() {
        let said = Mutex::default();
        let errors = "Leaked cluster 7\nERROR cluster 8 ä\nERROR cluster 9\n";
        collect((errors.to_owned() + &"ä".repeat(5000)).as_bytes(), &said);
        assert!((MOST_TEXT - 4..=MOST_TEXT).contains(&lock(&said).end.len()));
        assert_eq!(lock(&said).error.as_deref(), Some("ERROR cluster 8 ä"));
        let said = Mutex::default();
        collect("an ERROR\nERROR without an end of line".as_bytes(), &said);
        assert_eq!(lock(&said).error, None);
    }
}

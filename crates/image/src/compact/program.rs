//! `qemu-img`: converting, comparing and checking images.
//!
//! Owns its arguments, its progress and its end: it ends when the work is to end, and with us. Never chooses what is kept.

use super::{CompactError, Step, Watcher};
use crate::FileDisk;
use crate::daemon::Options;
use crate::format::Format;
use crate::private::{PrivateDirectory, pass, with_names};
use longrun_layout::Bytes;
use longrun_sys::PassedFile;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

const PROGRAM: &str = "qemu-img";
/// Between looking whether it has ended, or is to end.
const PAUSE: Duration = Duration::from_millis(20);
/// Of what it writes so much is kept.
const MOST_TEXT: usize = 2000;

/// The program, for one original.
pub(super) struct Program<'a> {
    /// What errors call it.
    path: &'a Path,
    format: Format,
    old: &'a FileDisk,
    private: PrivateDirectory,
}

struct Ended {
    status: ExitStatus,
    text: String,
    errors: String,
}

/// What it is called with: arguments, and the files that these name.
struct Call {
    arguments: Vec<OsString>,
    files: Vec<PassedFile>,
}

impl Call {
    fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self { arguments: arguments.map(OsString::from).to_vec(), files: Vec::new() }
    }

    /// Adds an image that we have locked: the kernel knows the locks as ours, not as those of a child.
    fn with(mut self, image: &FileDisk, format: Format) -> Result<Self, CompactError> {
        let file = pass(image)?;
        let options = Options::default().with("driver", format.driver()).with("file.driver", "file");
        self.arguments.push(options.with("file.filename", file.name()).with("file.locking", "off").into());
        self.files.push(file);
        Ok(self)
    }
}

impl<'a> Program<'a> {
    pub(super) fn new(path: &'a Path, format: Format, old: &'a FileDisk) -> Result<Self, CompactError> {
        Ok(Self { path, format, old, private: PrivateDirectory::new(path)? })
    }

    /// Fails when the original has errors, or blocks that the copy would not have in the same form.
    pub(super) fn check_original(&self, watcher: &mut Watcher<'_>) -> Result<(), CompactError> {
        if !self.checks() {
            return Ok(());
        }
        let ended = self.check(self.old, Step::Rewrite, watcher)?;
        // Leaked blocks are nothing that the copy would have.
        const LEAKS: i32 = 3;
        if !ended.status.success() && ended.status.code() != Some(LEAKS) {
            return Err(self.failed("checking the image", &ended));
        }
        if has_compressed(&ended.text) {
            let what = "it has compressed blocks, which would take more space than before";
            return Err(CompactError::Unsupported { path: self.path.to_owned(), what });
        }
        Ok(())
    }

    /// Writes the content of the original to a new image, into the empty file `to`.
    pub(super) fn convert(
        &self,
        to: &File,
        options: &[(&'static str, String)],
        rate: Option<Bytes>,
        watcher: &mut Watcher<'_>,
    ) -> Result<(), CompactError> {
        let mut call = Call::new(["convert", "-p", "--image-opts", "-O", self.format.driver()]);
        if let Some(rate) = rate {
            call.arguments.extend([OsString::from("-r"), rate.0.to_string().into()]);
        }
        if !options.is_empty() {
            let options = options.iter().fold(Options::default(), |all, (name, value)| all.with(name, value));
            call.arguments.extend([OsString::from("-o"), options.into()]);
        }
        let mut call = call.with(self.old, self.format)?;
        let to = PassedFile::of(to).map_err(|errno| self.io("opening the new image", errno.into()))?;
        call.arguments.push(to.name().into());
        call.files.push(to);
        let ended = self.run(call, Step::Rewrite, watcher)?;
        if ended.status.success() { Ok(()) } else { Err(self.failed("writing the new image", &ended)) }
    }

    /// Fails unless `new` has the size and content of the original, and is in order.
    pub(super) fn verify(&self, new: &FileDisk, watcher: &mut Watcher<'_>) -> Result<(), CompactError> {
        let differs = |message| CompactError::Differs { path: self.path.to_owned(), message };
        let (was, is) = (self.size(self.old, watcher)?, self.size(new, watcher)?);
        if was.is_none() || was != is {
            return Err(differs(format!("{was:?} bytes before, {is:?} now")));
        }
        // What one of them has beyond the other would only have to be zeros.
        let call = Call::new(["compare", "-p", "--image-opts"]);
        let call = call.with(self.old, self.format)?.with(new, self.format)?;
        let ended = self.run(call, Step::Compare, watcher)?;
        match ended.status.code() {
            Some(0) => {}
            Some(1) => {
                let mut lines = ended.text.split(['\r', '\n']).map(str::trim);
                return Err(differs(lines.rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()));
            }
            _ => return Err(self.failed("comparing the two images", &ended)),
        }
        if self.checks() {
            let ended = self.check(new, Step::Compare, watcher)?;
            if !ended.status.success() {
                return Err(self.failed("checking the new image", &ended));
            }
        }
        Ok(())
    }

    /// Whether it can check images of this format.
    fn checks(&self) -> bool {
        !matches!(self.format, Format::Raw | Format::Vhd)
    }

    fn check(&self, image: &FileDisk, step: Step, watcher: &mut Watcher<'_>) -> Result<Ended, CompactError> {
        self.run(Call::new(["check", "--image-opts"]).with(image, self.format)?, step, watcher)
    }

    /// The size of the disk that is in an image.
    fn size(&self, image: &FileDisk, watcher: &mut Watcher<'_>) -> Result<Option<u64>, CompactError> {
        let call = Call::new(["info", "--image-opts"]).with(image, self.format)?;
        let ended = self.run(call, Step::Compare, watcher)?;
        if ended.status.success() {
            Ok(size(&ended.text))
        } else {
            Err(self.failed("reading the size of an image", &ended))
        }
    }

    fn failed(&self, act: &'static str, ended: &Ended) -> CompactError {
        let said = if ended.errors.trim().is_empty() { &ended.text } else { &ended.errors };
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let message = if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") };
        CompactError::Program { path: self.path.to_owned(), act, message }
    }

    fn run(&self, call: Call, step: Step, watcher: &mut Watcher<'_>) -> Result<Ended, CompactError> {
        let mut command = Command::new(PROGRAM);
        // A group of its own: what is typed at the terminal to end us must not end it before us.
        command.args(call.arguments).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        longrun_sys::end_with_us(&mut command);
        let names: Vec<_> = call.files.iter().map(|file| (file.name(), self.path.to_owned())).collect();
        self.private.confine(&mut command, call.files);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CompactError::NoProgram { path: self.path.to_owned() },
            _ => self.io("starting qemu-img", error),
        })?;
        let (text, errors) = (Mutex::new(String::new()), Mutex::new(String::new()));
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = std::thread::scope(|scope| {
            scope.spawn(|| out.map(|from| collect(from, &text)));
            scope.spawn(|| err.map(|from| collect(from, &errors)));
            let status = self.wait(&mut child, || share(&lock(&text)), step, watcher);
            if status.is_err() {
                // What it was writing is thrown away.
                _ = child.kill();
                _ = child.wait();
            }
            status
        })?;
        // It knows its files by their descriptors.
        let told = |text: &Mutex<String>| with_names(lock(text).clone(), &names);
        Ok(Ended { status, text: told(&text), errors: told(&errors) })
    }

    fn wait(
        &self,
        child: &mut Child,
        done: impl Fn() -> f64,
        step: Step,
        watcher: &mut Watcher<'_>,
    ) -> Result<ExitStatus, CompactError> {
        loop {
            if let Some(status) = child.try_wait().map_err(|error| self.io("waiting for qemu-img", error))? {
                return Ok(status);
            }
            if !watcher(step, done()) {
                return Err(CompactError::Stopped { path: self.path.to_owned() });
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn io(&self, act: &'static str, source: io::Error) -> CompactError {
        CompactError::Io { path: self.path.to_owned(), act, source }
    }
}

fn lock(text: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
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

/// Of `virtual size: 300 MiB (314572800 bytes)`.
fn size(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("virtual size:"))?;
    line.rsplit_once('(')?.1.split(' ').next()?.parse().ok()
}

/// Whether the report of a check counts compressed blocks: `0.12% compressed clusters`.
fn has_compressed(text: &str) -> bool {
    let before = text.split_once("% compressed clusters").map(|(before, _)| before);
    let percent = before.and_then(|before| before.rsplit(' ').next()?.parse::<f64>().ok());
    percent.is_some_and(|percent| percent > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_writes_is_understood() {
        assert_eq!(share("    (0.00/100%)\r    (12.50/100%)\r    (13.0"), 0.125);
        assert_eq!(share("Images are identical."), 0.0);
        assert_eq!(size("image: x\nvirtual size: 300 MiB (314572800 bytes)\ndisk size: 1 MiB\n"), Some(300 << 20));
        assert_eq!(size("image: x (7 bytes)\n"), None);
        let check = |percent| {
            format!("No errors.\n8/16 = 50.00% allocated, 0.00% fragmented, {percent}% compressed clusters\n")
        };
        assert!(has_compressed(&check("0.05")) && !has_compressed(&check("0.00")) && !has_compressed("No errors"));
    }

    #[test]
    fn a_copy_has_no_content_of_a_file_that_only_the_header_names() {
        if !longrun_sys::is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let [victim, image, new] = ["victim", "image", "new"].map(|name| base.path().join(name));
        let name = victim.to_str().unwrap();
        let data_file = format!("data_file={name}");
        for options in [vec!["-b", name, "-F", "raw"], vec!["-o", &data_file]] {
            std::fs::write(&victim, vec![7; 1 << 20]).unwrap();
            let mut command = Command::new("qemu-img");
            command.args(["create", "-q", "-f", "qcow2"]).args(&options).arg(&image).arg("1M");
            assert!(command.status().unwrap().success(), "{options:?}");
            // Mapped block by block to the data file.
            _ = Command::new("qemu-io").args(["-f", "qcow2", "-c", "write 0 1M"]).arg(&image).output().unwrap();
            std::fs::write(&victim, vec![7; 1 << 20]).unwrap();
            // What was looked at had no such name.
            let old = FileDisk::open(&image, crate::Access::Write).unwrap();
            let program = Program::new(&image, Format::Qcow2, &old).unwrap();
            let refused = program.check_original(&mut |_, _| true).unwrap_err().to_string();
            assert!(refused.contains("No such file"), "{options:?}: {refused}");
            let to = File::options().read(true).write(true).create(true).truncate(true).open(&new).unwrap();
            let refused = program.convert(&to, &[], None, &mut |_, _| true).unwrap_err().to_string();
            assert!(refused.contains("No such file") && refused.contains(name), "{options:?}: {refused}");
            assert!(!std::fs::read(&new).unwrap().contains(&7), "{options:?}");
            std::fs::remove_file(&image).unwrap();
        }
    }

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let text = Mutex::new(String::new());
        collect("ä".repeat(5000).as_bytes(), &text);
        assert!((MOST_TEXT - 4..=MOST_TEXT).contains(&lock(&text).len()));
    }
}

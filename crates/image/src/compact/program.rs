//! What compacting has `qemu-img` do: check, convert and compare.
//!
//! Owns its arguments and what its answers mean. Never chooses what is kept.

use super::{CompactError, Step, Watcher};
use crate::FileDisk;
use crate::daemon::Options;
use crate::format::Format;
use crate::qemu_img::{Call, Ended, Failure, QemuImg};
use longrun_layout::Bytes;
use std::fs::File;
use std::path::Path;

/// The program, for one original.
pub(super) struct Program<'a> {
    /// What errors call it.
    path: &'a Path,
    format: Format,
    old: &'a FileDisk,
    program: QemuImg,
}

impl<'a> Program<'a> {
    pub(super) fn new(path: &'a Path, format: Format, old: &'a FileDisk) -> Result<Self, CompactError> {
        Ok(Self { path, format, old, program: QemuImg::new(path.to_owned())? })
    }

    /// Fails when the original has errors, or blocks that the copy would not have in the same form.
    pub(super) fn check_original(&self, watcher: &mut Watcher<'_>) -> Result<(), CompactError> {
        let mut continues = |share| watcher(Step::Rewrite, share);
        let ended = self.program.check_for_errors(self.old, self.format, &mut continues).map_err(self.failure())?;
        // Leaked blocks are nothing that the copy would have.
        if ended.is_some_and(|ended| has_compressed(&ended.text)) {
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
            call = call.and("-r").and(rate.0.to_string());
        }
        if !options.is_empty() {
            let options = options.iter().fold(Options::default(), |all, (name, value)| all.with(name, value));
            call = call.and("-o").and(options);
        }
        let call = call.with(self.old, self.format)?.to(to).map_err(self.failure())?;
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
        let mut continues = |share| watcher(Step::Compare, share);
        match self.program.check(new, self.format, &mut continues).map_err(self.failure())? {
            Some(ended) if !ended.status.success() => Err(self.failed("checking the new image", &ended)),
            _ => Ok(()),
        }
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
        CompactError::Program { path: self.path.to_owned(), act, message: ended.message() }
    }

    fn run(&self, call: Call, step: Step, watcher: &mut Watcher<'_>) -> Result<Ended, CompactError> {
        self.program.run(call, &mut |share| watcher(step, share)).map_err(self.failure())
    }

    fn failure(&self) -> impl Fn(Failure) -> CompactError + '_ {
        |failure| match failure {
            Failure::Image(error) => error.into(),
            Failure::Stopped => CompactError::Stopped { path: self.path.to_owned() },
            Failure::Io(act, source) => CompactError::Io { path: self.path.to_owned(), act, source },
        }
    }
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
    use std::process::Command;

    #[test]
    fn what_the_program_writes_is_understood() {
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
}

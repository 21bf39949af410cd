//! Independent judges: programs that write, read again and compare by themselves, beside the service and repeated
//! passes. If one fails, the campaign fails.

use super::PATIENCE;
use crate::Running;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The file-system exerciser, as the crate of that name has it: the path of its program.
    Fsx(PathBuf),
    /// fio with checksums in each block.
    Fio,
    /// stress-ng with --verify.
    StressNg,
}

impl Judge {
    fn name(&self) -> &'static str {
        match self {
            Self::Fsx(_) => "fsx",
            Self::Fio => "fio",
            Self::StressNg => "stress-ng",
        }
    }

    /// One run of some seconds in a directory of its own.
    fn command(&self, directory: &Path, seed: u64) -> Command {
        let seed = seed.to_string();
        match self {
            Self::Fsx(program) => {
                let mut command = Command::new(program);
                command.args(["-S", &seed, "-N", "2000"]).arg(directory.join("fsx"));
                command
            }
            Self::Fio => {
                let mut command = Command::new("fio");
                command.args(["--name=judge", "--rw=randwrite", "--bsrange=4k-64k", "--size=24m", "--nrfiles=3"]);
                command.args(["--ioengine=psync", "--direct=1", "--verify=crc32c", "--verify_fatal=1"]);
                // One process, so that killing it ends it all; and nothing left where it was started.
                command.args(["--thread", "--verify_state_save=0", "--randseed", &seed, "--fallocate=none"]);
                command.arg("--directory").arg(directory);
                command
            }
            Self::StressNg => {
                let mut command = Command::new("stress-ng");
                command.args(["--verify", "--hdd", "1", "--hdd-bytes", "16m", "--hdd-opts", "rd-rnd,wr-rnd,fsync"]);
                command.args(["--fallocate", "1", "--fallocate-bytes", "16m", "--rename", "1"]);
                command.args(["--seed", &seed, "--timeout", "10s", "--temp-path"]).arg(directory);
                command
            }
        }
    }
}

/// The judges at work.
pub(super) struct Judges {
    at_work: Vec<(Judge, PathBuf, u64, Running)>,
    judged: BTreeMap<String, u64>,
}

impl Judges {
    pub(super) fn start(judges: &[Judge], mount: &Path, seed: u64) -> Result<Self> {
        let start = |judge: &Judge| {
            let directory = mount.join(judge.name());
            fs::create_dir_all(&directory)?;
            let running = Running::start(&mut judge.command(&directory, seed))?;
            Ok((judge.clone(), directory, seed, running))
        };
        Ok(Self { at_work: judges.iter().map(start).collect::<Result<_>>()?, judged: BTreeMap::new() })
    }

    /// Looks at those that have ended, and starts them again.
    pub(super) fn look(&mut self) -> Result<()> {
        for (judge, directory, seed, running) in &mut self.at_work {
            if !running.has_ended()? {
                continue;
            }
            *seed += 1;
            let next = Running::start(&mut judge.command(directory, *seed))?;
            verdict(judge, std::mem::replace(running, next))?;
            *self.judged.entry(judge.name().to_owned()).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Waits for those that are at work; runs of each.
    pub(super) fn end(mut self) -> Result<BTreeMap<String, u64>> {
        for (judge, directory, _, running) in self.at_work {
            verdict(&judge, running)?;
            *self.judged.entry(judge.name().to_owned()).or_insert(0) += 1;
            fs::remove_dir_all(directory)?;
        }
        Ok(self.judged)
    }
}

fn verdict(judge: &Judge, running: Running) -> Result<()> {
    let finished = running.wait(PATIENCE).with_context(|| format!("{} does not end", judge.name()))?;
    ensure!(
        finished.status.success(),
        "{} reported a fault ({}):\n{}\n{}",
        judge.name(),
        finished.status,
        finished.stdout,
        finished.stderr
    );
    Ok(())
}

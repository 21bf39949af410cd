//! The optimizer as a child process, in one of the modes.

use crate::{BenchError, child};
use rustix::process::Signal;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

/// What runs beside the work in the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing.
    Alone,
    /// An optimizer that does not give way.
    Unthrottled,
    /// The same in the idle I/O class (`ionice -c 3`).
    Ionice,
    /// The optimizer as it is by default.
    Invisible,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Alone, Self::Unthrottled, Self::Ionice, Self::Invisible];

    /// What users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unthrottled => "unthrottled",
            Self::Ionice => "ionice",
            Self::Invisible => "invisible",
        }
    }

    fn command(self, program: &Path, work: &Path) -> Option<Command> {
        let pace = if self == Self::Invisible { "invisible" } else { "fast" };
        let mut command = match self {
            Self::Alone => return None,
            Self::Unthrottled | Self::Invisible => Command::new(program),
            Self::Ionice => {
                let mut command = Command::new("ionice");
                command.args(["-c", "3"]).arg(program);
                command
            }
        };
        command.args(["optimize", "--json", "--mode", "files", "--pace", pace]).arg(work);
        Some(command)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| Self::ALL.map(Self::name).join(", "))
    }
}

/// The running optimizer. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct Background(Option<(Child, PathBuf)>);

impl Background {
    pub(super) fn start(mode: Mode, program: &Path, work: &Path) -> Result<Self, BenchError> {
        let Some(mut command) = mode.command(program, work) else { return Ok(Self(None)) };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| BenchError::io("running it", Path::new(command.get_program()), e))?;
        Ok(Self(Some((child, work.to_owned()))))
    }

    /// Whether it is still running, or does not exist in this mode.
    ///
    /// # Errors
    /// When it failed: then nothing was measured.
    pub(super) fn is_at_work(&mut self) -> Result<bool, BenchError> {
        let Some((child, work)) = &mut self.0 else { return Ok(true) };
        match child.try_wait().map_err(|e| BenchError::io("waiting for the optimizer of", work, e))? {
            None => Ok(true),
            Some(status) if status.success() => Ok(false),
            Some(status) => {
                let problem = format!(
                    "the optimizer that runs during the measurement failed ({status}); run `longrun optimize` \
                         on it to see the error"
                );
                Err(BenchError::Unsuitable { path: work.clone(), problem })
            }
        }
    }

    /// Has it give everything back and end.
    pub(super) fn stop(mut self) -> Result<(), BenchError> {
        self.interrupt();
        Ok(())
    }

    fn interrupt(&mut self) {
        if let Some((mut child, _)) = self.0.take() {
            child::end(&mut child, Signal::INT);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.interrupt();
    }
}

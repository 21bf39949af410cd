//! Arguments of `optimize`.

use super::Manner;
use crate::text::{parse_duration, parse_size};
use clap::{Args, ValueEnum, ValueHint};
use longrun_api::DEFAULT_SOCKET;
use longrun_layout::Bytes;
use longrun_planner::Mode;
use std::path::PathBuf;
use std::time::Duration;

/// The state directory of the service.
pub const DEFAULT_STATE: &str = longrun_service::config::DEFAULT_STATE_DIRECTORY;

/// Arguments of `optimize`.
#[derive(Debug, Args)]
pub struct OptimizeArgs {
    /// Mount point or block device of a mounted volume, a directory or file on it, or a disk image
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Choose what is optimized; by default "files" for a directory or file, and for a volume what gains enough: "full",
    /// "efficient", "files", or nothing
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// Move at most this much (k, M, G, T: powers of 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub budget: Option<Bytes>,
    /// Stop after this time (90s, 30m, 1h30m), after finishing the current move
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub deadline: Option<Duration>,
    /// How it gives way.
    #[command(flatten)]
    pub manner: Manner,
    /// Print the plan and the expected figures, and move nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print what each round of the run planned, moved and left, and why it ended
    #[arg(long, conflicts_with = "dry_run")]
    pub explain: bool,
    /// Confirm that the virtual machine of a disk image is shut down, where that cannot be seen (btrfs)
    #[arg(long)]
    pub machine_is_off: bool,
    /// Optimize an NTFS volume although it has shadow copies (restore points, previous versions, backups): they become wrong
    ///
    /// Windows keeps the old content of a block when it writes to it. What is written while Windows is off it does not see: a shadow
    /// copy then shows other data in the place of its own. Delete shadow copies afterwards, and do not restore from them. The files of
    /// the volume itself are not in danger. Nothing else that is refused is permitted by this.
    #[arg(long)]
    pub spoil_shadow_copies: bool,
    /// Place hot files where the disk reads faster, after everything else; by default where it pays
    #[arg(long, value_enum)]
    pub placement: Option<PlacementName>,
    /// Take the counts of reads and the profile of the disk from this state directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE, value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
    /// Work in this process even if the service runs
    ///
    /// A whole mounted volume that the running service looks after is optimized by the service, as a job: one place decides who works
    /// on a disk, a pause and the permission of a fleet hold, mending rests, and the history has it. This command then shows the
    /// progress and the report, and Ctrl-C cancels the job. A volume for which a job may not take enough memory is optimized here.
    #[arg(long)]
    pub alone: bool,
    /// Ask the service on this socket
    #[arg(long, value_name = "PATH", env = "LONGRUN_SOCKET", default_value = DEFAULT_SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// What the verdict may lead to at most; for jobs of the service.
    #[arg(skip)]
    pub at_most: Option<ModeName>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// What is done about hot files, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementName {
    /// Place them where that pays, at most 1 % of the used bytes a day, and say why where it does not
    Auto,
    /// Leave them where they are
    Off,
    /// Print what would be placed, and move nothing for it
    Plan,
}

/// The modes, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Put every file into one fragment, and the free space into as few pieces as possible
    Full,
    /// Remove most of the excess fragments for the fewest bytes moved
    Efficient,
    /// Defragment fragmented files only, and leave the free space as it is
    Files,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Full => Self::Full,
            ModeName::Efficient => Self::Efficient,
            ModeName::Files => Self::Files,
        }
    }
}

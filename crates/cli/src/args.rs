//! The command line as the user types it. Owns the words; does nothing.

pub mod bench;
pub mod prevent;
pub mod sensor;
pub mod service;
pub mod trace;

use crate::report::history::{Moment, parse_moment};
use crate::text::{parse_duration, parse_size};
use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use longrun_ageing::Recipe;
use longrun_governor::{Duty, Pace};
use longrun_layout::Bytes;
use longrun_planner::Mode;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    something failed on the way
  2    the command line makes no sense
  3    refused: it would be unsafe, or it is not supported; nothing was changed
  130  interrupted; everything that was held has been given back";

/// Keeps the files and the free space of a volume in long runs.
///
/// Longrun shows how fragmented the files and the free space of a volume are, and puts both into long runs while the
/// volume stays in use; its service keeps growing files from fragmenting. TARGET is a mount point, a block device, a file or directory, or a disk image.
#[derive(Debug, Parser)]
#[command(name = "longrun", version, after_help = EXIT_STATUS, max_term_width = 100)]
#[command(arg_required_else_help = true, infer_subcommands = false, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. Each one here works.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how fragmented a volume, directory or file is
    ///
    /// As root, a whole volume is read from its inode tables, which takes seconds for a million files. Without root, or
    /// for a single directory or file, each file is asked for its extents (FIEMAP); the free space is then known in
    /// size only. Nothing is changed.
    Analyze(AnalyzeArgs),
    /// Put files and free space into long runs while the volume is in use
    ///
    /// Needs root and a mounted ext4 or XFS volume. Files keep their content, times, owners and attributes; every move is made
    /// by the kernel, atomically and journalled, so that a power cut leaves each file in its old or its new place.
    /// Files that are busy or must not move are left alone and counted in the report. On SIGINT, SIGTERM and SIGHUP it
    /// stops after the present move and gives everything back.
    Optimize(OptimizeArgs),
    /// Draw what lies where on a volume, or name the owner of a block
    ///
    /// Needs to read the block device, and hence usually root. Nothing is changed.
    Map(MapArgs),
    /// Make fragmentation on purpose, for tests
    ///
    /// Either one file with a given number of fragments, or a whole volume that is filled, thinned out and filled again
    /// by a seeded recipe. Only for volumes that you made for the purpose: a recipe fills the volume it is given.
    Fragment(FragmentArgs),
    /// Keep growing files whole, in the foreground
    ///
    /// Needs root and mounted volumes. Files that grow in pieces get free space behind their end before they need it, and what
    /// they did not need is taken back when they are closed; no data is moved. It works until SIGINT or SIGTERM, gives
    /// everything back, prints its totals, and ends with status 0: there is no other end.
    Prevent(prevent::PreventArgs),
    /// Measure what Longrun brings on a volume, and what it costs
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show what a device is asked for: sizes, latency, seeks, queue depth, split requests
    ///
    /// Needs root. Requests are counted inside the kernel, at the lowest devices on which the target lies (the disks below
    /// partitions, device-mapper and RAID), whoever makes them. It works for the time of --duration or until Ctrl-C, and
    /// ends with the totals and status 0. Nothing is changed.
    Trace(trace::TraceArgs),
    /// Show what prevention and mending did, and what it was good for
    ///
    /// Reads the history that the service keeps, also while it runs. Times are UTC. Nothing is changed.
    Report(ReportArgs),
    /// Run the service in the foreground, as systemd wants it
    ///
    /// Looks after all volumes that the configuration does not exclude: growing files get runways before they fragment, what
    /// fragments all the same is mended, and history is kept. On SIGHUP it reads its configuration again; on SIGTERM and
    /// SIGINT it gives everything back and ends with status 0.
    Daemon(service::DaemonArgs),
    /// Show what the running service does
    Status(service::StatusArgs),
    /// Watch what the running service does
    ///
    /// Keys: q ends, s changes what is sorted by, h or ? explains.
    Top(service::TopArgs),
    /// Check or show the configuration of the service
    #[command(subcommand)]
    Config(service::Config),
    /// Print the completion script for a shell
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// An existing directory, for example /usr/local/share/man/man1.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// Arguments of `analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// Mount point, block device, disk image, directory or file
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Print one JSON object instead of text
    ///
    /// Names are given as they are. A name that is not valid UTF-8 is given in "path" with U+FFFD for what cannot be
    /// shown, and beside it exactly in "path_hex", as the hexadecimal digits of its bytes.
    #[arg(long)]
    pub json: bool,
    /// How many of the most fragmented files to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// How reading the volume gives way.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// How reading a volume gives way.
#[derive(Debug, Args)]
pub struct ReadingArgs {
    /// How much reading the volume gives way to others who use the device, for 2 minutes at most
    #[arg(long, value_enum, default_value_t = PaceName::Fast)]
    pub pace: PaceName,
}

/// Arguments of `optimize`.
#[derive(Debug, Args)]
pub struct OptimizeArgs {
    /// Mount point or block device of a mounted volume, or a directory or file on it
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// How far to go; by default "full" for a volume and "files" for a directory or file
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// Move at most this much (k, M, G, T: powers of 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub budget: Option<Bytes>,
    /// Stop in good order after this time (90s, 30m, 1h30m)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub deadline: Option<Duration>,
    /// How much to give way to others who use the device
    #[arg(long, value_enum, default_value_t = PaceName::Invisible)]
    pub pace: PaceName,
    /// Work for at most this share of the time (40%), at whatever pace
    #[arg(long, value_name = "PERCENT")]
    pub max_duty: Option<Duty>,
    /// Only show what would be moved, why, and what it would bring
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The modes, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Every file in one fragment, and the free space in as few pieces as possible
    Full,
    /// Nearly all of the gain for the fewest bytes moved
    Efficient,
    /// Only the fragmented files; free space as it comes
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

/// The paces, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaceName {
    /// Pause as soon as anybody else uses the device, and on battery
    Invisible,
    /// Let others go first, but go on beside a light load
    Balanced,
    /// Give way to nobody
    Fast,
}

impl From<PaceName> for Pace {
    fn from(name: PaceName) -> Self {
        match name {
            PaceName::Invisible => Self::Invisible,
            PaceName::Balanced => Self::Balanced,
            PaceName::Fast => Self::Fast,
        }
    }
}

/// Arguments of `map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Mount point, block device, disk image, or anything on the volume
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Write the map as an SVG picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write the map as a PNG picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub png: Option<PathBuf>,
    /// Name the owner of this block (counted in file-system blocks from the start of the volume)
    #[arg(long, value_name = "BLOCK", conflicts_with_all = ["svg", "png"])]
    pub at: Option<u64>,
    /// Width: pixels of a picture, columns in the terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=10_000))]
    pub width: Option<u32>,
    /// Height: pixels of a picture, lines of cells in the terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub height: Option<u32>,
    /// Colours in the terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
    /// How reading the volume gives way.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal that can show them, unless NO_COLOR is set
    Auto,
    /// Always, in 24 bits
    Always,
    /// Never: letters instead
    Never,
}

/// Arguments of `fragment`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "volume"]))]
pub struct FragmentArgs {
    /// The file to fragment; its content stays, and it is made when --size is given
    #[arg(value_hint = ValueHint::FilePath, requires = "fragments")]
    pub file: Option<PathBuf>,
    /// How many fragments the file shall have
    #[arg(long, value_name = "N", requires = "file", value_parser = clap::value_parser!(u64).range(1..))]
    pub fragments: Option<u64>,
    /// Make the file, new, of this size (k, M, G, T: powers of 1024)
    #[arg(long, value_name = "BYTES", requires = "file", value_parser = parse_size)]
    pub size: Option<Bytes>,
    /// Age the whole volume that holds this directory, in a new directory there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["fragments", "size"])]
    pub volume: Option<PathBuf>,
    /// Also age a volume that others use: the recipe fills it
    ///
    /// Without this a volume is refused unless it is nearly empty, or has nothing but earlier aged directories on it.
    #[arg(long, requires = "volume")]
    pub force: bool,
    /// How the volume has been used
    #[arg(long, value_name = "NAME", default_value = "aged", value_parser = recipe_names())]
    pub recipe: Recipe,
    /// The same seed makes the same files
    #[arg(long, value_name = "NUMBER", default_value_t = 42)]
    pub seed: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The recipes by name, so that help, completion and errors list them.
fn recipe_names() -> impl clap::builder::TypedValueParser<Value = Recipe> {
    clap::builder::PossibleValuesParser::new(Recipe::ALL.map(Recipe::name)).try_map(|name| name.parse::<Recipe>())
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// From when on: 7d, 12h or 2w ago, or a date like 2026-11-01 or 2026-11-01T08:30
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_moment)]
    pub since: Moment,
    /// Up to when; now by default
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub until: Option<Moment>,
    /// Only this volume: its mount point, device, label or UUID
    #[arg(long, value_name = "VOLUME", value_hint = ValueHint::DirPath)]
    pub volume: Option<String>,
    /// In which form
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Write it to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Where the service keeps its history
    #[arg(long, value_name = "DIR", default_value = "/var/lib/longrun", value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For reading in a terminal
    Text,
    /// One JSON object
    Json,
    /// One self-contained page with charts
    Html,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn budgets_and_deadlines_are_read_with_units() {
        let words =
            "longrun optimize /mnt --mode efficient --budget 20G --deadline 1h30m --max-duty 40% --dry-run".split(' ');
        let Command::Optimize(args) = Cli::try_parse_from(words).unwrap().command else { panic!("not optimize") };
        assert_eq!(args.budget, Some(Bytes(20 << 30)));
        assert_eq!(args.max_duty, Some("40%".parse().unwrap()));
        assert_eq!(args.deadline, Some(Duration::from_secs(5400)));
        assert_eq!((args.mode, args.dry_run, args.json), (Some(ModeName::Efficient), true, false));
    }

    #[test]
    fn nonsense_is_refused_as_usage() {
        for words in [
            "longrun",
            "longrun analyze",
            "longrun optimize /mnt --budget lots",
            "longrun optimize /mnt --max-duty 0%",
            "longrun optimize /mnt --mode fast",
            "longrun map /mnt --at -1",
            "longrun map /mnt --at 5 --svg x",
            "longrun map /mnt --width 0",
            "longrun fragment",
            "longrun fragment FILE",
            "longrun fragment FILE --fragments 5 --volume /mnt --recipe aged",
            "longrun prevent",
            "longrun trace",
            "longrun trace /mnt --duration 0",
            "longrun trace /mnt --pid x",
            "longrun trace --compare A",
            "longrun trace /mnt --compare A B",
            "longrun bench",
            "longrun bench prevention",
            "longrun bench prevention /mnt --profile fast",
            "longrun bench prevention /mnt --bytes 100k",
            "longrun bench prevention /mnt --writers 0",
        ] {
            let error = Cli::try_parse_from(words.split(' ')).err();
            assert!(error.is_some_and(|e| e.exit_code() == 2), "accepted: {words}");
        }
    }
}

//! The arguments of the command line and their help texts. Parses only; runs nothing.

pub mod bench;
pub mod boot;
pub mod heat;
pub mod optimize;
pub mod prevent;
pub mod profile;
pub mod reclaim;
pub mod sensor;
pub mod service;
pub mod trace;

use crate::report::history::{Moment, parse_moment};
use crate::text::parse_size;
use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use longrun_ageing::Recipe;
use longrun_governor::{Duty, Governor, MinProgress, Pace};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use std::path::PathBuf;

const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    an operation failed
  2    the command line or the configuration is invalid
  3    refused, because it would be unsafe or is not supported; nothing was changed
  130  interrupted; all space that was held has been given back";

/// Prevent and repair file and free-space fragmentation on mounted volumes
///
/// Longrun reports how fragmented the files and the free space of a volume are. It defragments both while the volume
/// stays in use. Its service prevents fragmentation while files grow. TARGET is a mount point, a block device, a file, a
/// directory or a disk image.
#[derive(Debug, Parser)]
#[command(name = "longrun", version, after_help = EXIT_STATUS, max_term_width = 100)]
#[command(arg_required_else_help = true, infer_subcommands = false, disable_help_subcommand = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how fragmented a volume, directory or file is
    ///
    /// As root, it reads a whole volume from its metadata, which takes seconds for a million files. Without root, and for
    /// a single directory or file, it asks the kernel for the extents of each file (FIEMAP); of the free space it then
    /// knows only the size. Nothing is changed.
    Analyze(AnalyzeArgs),
    /// Defragment files and free space while the volume is in use, or the volumes of a virtual disk that is not
    ///
    /// Needs root and a mounted ext4, XFS or btrfs volume. Files keep their content, times, owners and attributes. The
    /// kernel makes each move atomically and through its journal, so that after a power cut each file is at its old or
    /// its new place. Files that are busy or must not move stay in place and are counted in the report. On SIGINT,
    /// SIGTERM and SIGHUP it stops after the current move and gives back all space that it holds.
    ///
    /// NTFS volumes are optimized while they are not mounted, directories and $MFT included, on devices and in disk images
    /// (raw, qcow2, VMDK, VHDX, VHD, VDI) of virtual machines that are shut down. A journal beside the image makes each
    /// step atomic: after a power cut run the same command again. Of an image with partitions each volume is optimized;
    /// IMAGE#2 names one of them.
    Optimize(optimize::OptimizeArgs),
    /// Give the free space of a volume back to the thin storage, image or SSD below
    ///
    /// Needs root and a mounted ext4, XFS or btrfs volume whose device accepts discards. The kernel decides what is free, slice by
    /// slice, so that no file can lose data (FITRIM, as fstrim does). It gives way to other I/O between two slices. On SIGINT,
    /// SIGTERM and SIGHUP it stops after the current slice; the next run goes on from there.
    ///
    /// Of disk images and unmounted NTFS volumes it gives back what is free by their own bitmap. Images that keep their space
    /// (VMDK, VHDX, VHD, VDI) are written with zeros there; --compact then rewrites the image without them.
    Reclaim(reclaim::ReclaimArgs),
    /// Draw a map of a volume, or name the owner of a block
    ///
    /// Reads the block device, which usually needs root. Nothing is changed.
    Map(MapArgs),
    /// List the disk images in a directory, with how fragmented the volumes on them are
    ///
    /// Reads each image, in whatever format it is. NTFS volumes are read as they are; for ext4, XFS and btrfs it needs root.
    /// Nothing is changed.
    Images(ImagesArgs),
    /// Make fragmentation on purpose, for tests
    ///
    /// Makes either one file with a given number of fragments, or an aged volume: a seeded recipe fills the volume,
    /// deletes a part of the files and fills it again. Use it only on volumes that you made for this purpose.
    Fragment(FragmentArgs),
    /// Prevent the fragmentation of growing files, in the foreground
    ///
    /// Needs root and mounted volumes. A file that grows in pieces gets free space behind its end (a runway) before it
    /// needs it. The unused rest is taken back after the file has been closed. No data is moved. It runs until SIGINT or
    /// SIGTERM, gives back all runways, prints its totals and ends with status 0.
    Prevent(prevent::PreventArgs),
    /// Measure what Longrun gains on a volume, and what it costs
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Trace the requests to a device: sizes, latency, seeks, queue depth, split requests
    ///
    /// Needs root. The kernel counts the requests of all processes at the lowest devices below the target (the disks below
    /// partitions, device-mapper and RAID). The trace ends after --duration or on Ctrl-C, with the totals and status 0.
    /// Nothing is changed.
    Trace(trace::TraceArgs),
    /// Measure how fast a disk is at which place, and whether placing files there can pay
    ///
    /// Needs root. Reads at 16 places, 3 times in another order each, past the page cache, and gives way to other I/O between two
    /// reads; places that were not read twice alike are read again. The result is kept for 30 days. Of an array (md) and of a btrfs on
    /// several devices each device is measured. Nothing is changed.
    Profile(profile::ProfileArgs),
    /// List the files and directories for which the disk is read most, and whether placing them would pay
    ///
    /// Needs root. The service counts inside the kernel which files the device is read for; what programs find in memory does not count.
    /// All counts lose half of their value in seven days. For the names it reads the volume, as analyze does. Nothing is changed.
    Heat(heat::HeatArgs),
    /// Have the next boot, or the start of an application, read in one sweep what it will need
    ///
    /// A recorder notes what is read from the disk until the system is up. What two of the last three boots have read is read ahead in
    /// the next one: metadata first, on hard disks in the order of the disk. Every eighth boot goes without, and it is switched off
    /// when it does not pay; `status` has the reason. The kernel argument longrun.preload=0 forbids it.
    #[command(subcommand)]
    Boot(boot::Boot),
    /// Report what prevention and mending did, and what it gained
    ///
    /// Reads the history that the service keeps, also while the service runs. Times are UTC. Nothing is changed.
    Report(ReportArgs),
    /// Run the service in the foreground, as systemd expects it
    ///
    /// Watches all volumes that the configuration does not exclude: it gives growing files runways before they fragment,
    /// mends files that fragment nevertheless, and keeps a history. On SIGHUP it reads its configuration again. On SIGTERM
    /// and SIGINT it gives back all runways and ends with status 0.
    Daemon(service::DaemonArgs),
    /// Show what the running service does, and what is wrong
    Status(service::StatusArgs),
    /// Watch the running service
    ///
    /// Keys: q quits, s changes the sort order, h or ? shows help.
    Top(service::TopArgs),
    /// Run many hosts by one policy, and have them take turns on storage that they share (package longrun-fleet)
    #[command(disable_help_flag = true)]
    Fleet(service::FleetArgs),
    /// Do one job for the service, which writes the order to standard input
    #[command(hide = true)]
    Job,
    /// Check or show the configuration of the service
    #[command(subcommand)]
    Config(service::Config),
    /// Print the completion script for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// An existing directory, for example /usr/local/share/man/man1.
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// Arguments of `images`.
#[derive(Debug, Args)]
pub struct ImagesArgs {
    /// The directory with the images
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Look into the directories below, too
    #[arg(long)]
    pub recursive: bool,
    /// Print a JSON array instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// Mount point, block device, disk image, directory or file
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Print one JSON object instead of text
    ///
    /// Names are not escaped for terminals. A name that is not valid UTF-8 is in "path" with U+FFFD for each invalid
    /// part, and in "path_hex" as the hexadecimal digits of its bytes.
    #[arg(long)]
    pub json: bool,
    /// List this many of the most fragmented files
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// How reading the volume gives way to other I/O.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// How reading a volume gives way to other I/O.
#[derive(Debug, Args)]
pub struct ReadingArgs {
    /// Set how much reading the volume gives way to other I/O; it waits for at most 2 minutes in all
    #[arg(long, value_enum, default_value_t = PaceName::Fast)]
    pub pace: PaceName,
}

/// How work gives way to other I/O.
#[derive(Debug, Args)]
pub struct Manner {
    /// Set how much to give way to other I/O on the device
    #[arg(long, value_enum, default_value_t = PaceName::Invisible)]
    pub pace: PaceName,
    /// Work for at most this share of the time (40%), at every pace
    #[arg(long, value_name = "PERCENT")]
    pub max_duty: Option<Duty>,
    /// Work for this share of the time even if other I/O is delayed more than the pace allows; 0% waits for ever
    #[arg(long, value_name = "PERCENT", default_value_t = MinProgress::default())]
    pub min_progress: MinProgress,
}

impl Manner {
    /// What permits the work on a device.
    pub fn governor(&self, device: Option<DeviceNumber>) -> Governor {
        let duty = self.max_duty.unwrap_or(Duty::ALL);
        Governor::new(device, self.pace.into()).at_most(duty).at_least(self.min_progress)
    }
}

/// The paces, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaceName {
    /// Aim to slow other I/O by at most 3 % on average, and pause on battery
    Invisible,
    /// Aim to slow other I/O by at most 10 % on average
    Balanced,
    /// Do not give way to other I/O
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
    /// Mount point, block device, disk image, or any path on the volume
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// Write the map as an SVG picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write the map as a PNG picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub png: Option<PathBuf>,
    /// Name the owner of this block (a block number of the file system, from the start of the volume)
    #[arg(long, value_name = "BLOCK", conflicts_with_all = ["svg", "png"])]
    pub at: Option<u64>,
    /// Set the width: pixels of a picture, columns in the terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=10_000))]
    pub width: Option<u32>,
    /// Set the height: pixels of a picture, lines of cells in the terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub height: Option<u32>,
    /// Choose when to use colours in the terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
    /// How reading the volume gives way to other I/O.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// Use colours on a terminal that supports them, unless NO_COLOR is set
    Auto,
    /// Always use 24-bit colours
    Always,
    /// Use letters instead
    Never,
}

/// Arguments of `fragment`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "volume"]))]
pub struct FragmentArgs {
    /// The file to fragment; its content stays the same
    #[arg(value_hint = ValueHint::FilePath, requires = "fragments")]
    pub file: Option<PathBuf>,
    /// Make this many fragments
    #[arg(long, value_name = "N", requires = "file", value_parser = clap::value_parser!(u64).range(1..))]
    pub fragments: Option<u64>,
    /// Create the file first, with this size (k, M, G, T: powers of 1024)
    #[arg(long, value_name = "BYTES", requires = "file", value_parser = parse_size)]
    pub size: Option<Bytes>,
    /// Age the whole volume that holds this directory, in a new directory there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["fragments", "size"])]
    pub volume: Option<PathBuf>,
    /// Age the volume even if it holds other files; the recipe fills it
    ///
    /// Without this option a volume is refused unless it is nearly empty or holds only directories of earlier ageing.
    #[arg(long, requires = "volume")]
    pub force: bool,
    /// Choose the history of use that the recipe imitates
    #[arg(long, value_name = "NAME", default_value = "aged", value_parser = recipe_names())]
    pub recipe: Recipe,
    /// Seed the random numbers; the same seed makes the same files
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
    /// Start the period at this time: 7d, 12h or 2w ago, or a date like 2026-11-01 or 2026-11-01T08:30
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_moment)]
    pub since: Moment,
    /// End the period at this time; the default is now
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub until: Option<Moment>,
    /// Report on this volume only: its mount point, device, label or UUID
    #[arg(long, value_name = "VOLUME", value_hint = ValueHint::DirPath)]
    pub volume: Option<String>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,
    /// Print JSON; the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Write the report to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Read the history from this state directory of the service
    #[arg(long, value_name = "DIR", default_value = "/var/lib/longrun", value_hint = ValueHint::DirPath)]
    pub state: PathBuf,
}

/// Output formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Text for the terminal
    Text,
    /// One JSON object
    Json,
    /// One self-contained page with charts
    Html,
}

#[cfg(test)]
mod tests {
    use super::optimize::ModeName;
    use super::*;
    use clap::CommandFactory;
    use std::time::Duration;

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
        assert_eq!(args.manner.max_duty, Some("40%".parse().unwrap()));
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
            "longrun reclaim",
            "longrun reclaim /mnt --rate fast",
            "longrun reclaim /mnt --min-extent 0",
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

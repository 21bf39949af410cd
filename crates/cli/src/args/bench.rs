//! Arguments of `bench`.

use crate::text::{parse_duration, parse_size};
use clap::builder::TypedValueParser as _;
use clap::{Args, Subcommand, ValueHint};
use longrun_bench::invisibility::Mode;
use longrun_bench::oltp::OltpProfile;
use longrun_bench::{Parameters, Profile};
use longrun_layout::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Compare writing files with prevention and without it
    ///
    /// Runs the same workload several times, in turn with `longrun prevent` on the volume and without it. Prints the
    /// averages of both: fragments, split I/Os, the work of the device, and the cost of prevention. Writes only into a new
    /// directory in TARGETDIR and removes it at the end, also when it is interrupted. Needs root. Use a volume without
    /// other I/O, because other I/O is measured too.
    Prevention(PreventionArgs),
    /// Compare reading contiguous and fragmented files
    ///
    /// Writes the same bytes several times into a new directory in TARGETDIR, each copy with a different layout:
    /// contiguous, in fragments of several sizes, shuffled, and shuffled and then optimized. Reads each copy in order from a
    /// cold cache with requests of 128 KiB. Prints time, MB/s and the work of the device. Removes what it made, also when
    /// it is interrupted. Needs root.
    Reads(LayoutArgs),
    /// Compare reading and copying files before and after optimizing
    ///
    /// Writes the same bytes three times into a new directory in TARGETDIR: contiguous, in shuffled fragments, and in
    /// shuffled fragments that are then optimized. The bytes are one file, or several (--files). Reads and copies each from
    /// a cold cache; a copy ends when it is durable. Removes what it made, also when it is interrupted. Needs root.
    Copy(CopyArgs),
    /// Compare the I/O of databases and file servers on a file before and after optimizing
    ///
    /// Makes two files in shuffled fragments of 16 KiB and optimizes one of them. Then runs fio, which must be installed,
    /// on both in turn. One profile imitates a file server (4 to 32 KiB at random, four reads to each write), the others a
    /// database (64, 128 and 256 KiB, at random and in order, reading and writing). All use O_DIRECT. Removes what it made,
    /// also when it is interrupted. Needs root. On btrfs the profiles that write are left out, because each write moves the
    /// data there.
    Oltp(OltpArgs),
    /// Compare unpacking software on an aged volume and on an optimized one
    ///
    /// Unpacks an archive several times into a new directory in TARGETDIR, and as often, in turn, into OPTIMIZED. The
    /// archive is given (--archive), or made of programs that are installed here (--tree). OPTIMIZED is a directory on
    /// another volume: an optimized copy of the first (a clone, or a writable snapshot). Without such a volume, --optimize
    /// optimizes the whole volume of TARGETDIR after half of the runs. A run ends when the files are durable. Prints the
    /// time, the work of the device, and from the I/O trace the share of sequential requests and the wasted seeks. Removes
    /// what it unpacked, also when it is interrupted. Needs root and GNU tar. Use volumes without other I/O.
    Install(InstallArgs),
    /// Compare the speed of other programs beside an optimizer, in several modes, and alone
    ///
    /// Copies a large file from a cold cache until the copy is durable, and makes small O_DIRECT reads at random times. The
    /// modes take turns: alone, beside an optimizer that does not give way, beside the same one in the idle I/O class
    /// (ionice), and beside "longrun optimize" with its defaults. Says for each mode whether the optimizer was noticeable,
    /// was not, or whether the measurement shows neither, and prints the noise. The optimizer works on fragmented files of
    /// its own. Everything is in a new directory in TARGETDIR, which is removed at the end, also when it is interrupted.
    /// Needs root. Use a volume whose disk has no other I/O.
    Invisibility(InvisibilityArgs),
    /// Compare weeks of use: no maintenance, the file system's own tool, and the service
    ///
    /// Simulates the same days in a new directory in TARGETDIR, once with each kind of maintenance. Eight new files at a
    /// time grow together through direct, synchronous or buffered writes, old files are deleted, and logs are appended to.
    /// A day takes seconds. Prints the excess fragments and the pieces of free space at the end of the days, and the bytes
    /// moved. The file system's own tool (e4defrag, xfs_fsr, btrfs defragment) runs on these files every seventh day, if it
    /// is installed. Removes what it made, also when it is interrupted. Needs root; no other Longrun service may run. Use a
    /// volume without other I/O.
    Ageing(AgeingArgs),
    /// Write files in a way that fragments them, and watch them grow
    ///
    /// Shows what a running service does. Runs a workload of "prevention" once and prints the fragmentation of the files
    /// every half second. Writes only into a new directory in TARGETDIR and removes it at the end.
    Write(WriteArgs),
}

/// How much is written.
#[derive(Debug, Args)]
pub struct Work {
    /// Run this many writers at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub writers: u32,
    /// Set the size that the file of each writer reaches (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = file_size)]
    pub bytes: Bytes,
    /// Seed the random numbers; the same seed makes the same workload
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

impl From<&Work> for Parameters {
    fn from(work: &Work) -> Self {
        Self { writers: work.writers, bytes: work.bytes, seed: work.seed, ..Parameters::default() }
    }
}

/// Where the results of a benchmark go.
#[derive(Debug, Args)]
pub struct BenchOutput {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write an HTML page with tables and charts to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Arguments of `bench prevention`.
#[derive(Debug, Args)]
pub struct PreventionArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Choose the workloads (can be repeated)
    ///
    /// Files fragment in direct, dsync, slow-append, office, sparse, logs and install ("all"). Prevention should change
    /// nothing in buffered, single, short, compile and sqlite ("controls").
    #[arg(long = "profile", value_name = "NAME", default_value = "all", value_parser = profile_names())]
    pub profiles: Vec<Profiles>,
    /// Run each workload this often with prevention, and as often without it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// How much.
    #[command(flatten)]
    pub work: Work,
    /// Where the results go.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of the benchmarks that measure the same bytes in several layouts.
#[derive(Debug, Args)]
pub struct LayoutArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Set the total size of the files of each layout (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = file_size)]
    pub bytes: Bytes,
    /// Measure each layout this often
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// Seed the random numbers; the same seed makes the same layouts
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where the results go.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The files that are made.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Divide the bytes into this many files of equal size
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files: u32,
    /// Set the size of each fragment (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = fragment_size)]
    pub fragment: Bytes,
}

/// Arguments of `bench oltp`.
#[derive(Debug, Args)]
pub struct OltpArgs {
    /// The files that are made.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Run only this profile (can be repeated)
    #[arg(long = "profile", value_name = "NAME", value_parser = oltp_profiles())]
    pub profiles: Vec<OltpProfile>,
    /// Run each profile for this time on each layout, in each iteration
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = run_time)]
    pub time: Duration,
    /// Run this fio program
    #[arg(long, value_name = "PROGRAM", default_value = "fio", value_hint = ValueHint::CommandName)]
    pub fio: PathBuf,
}

/// The profiles by name, so that help, completion and errors list them.
fn oltp_profiles() -> impl clap::builder::TypedValueParser<Value = OltpProfile> {
    let names = clap::builder::PossibleValuesParser::new(OltpProfile::ALL.map(OltpProfile::name));
    names.try_map(|name| name.parse::<OltpProfile>())
}

fn run_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time < Duration::from_secs(1) || time > Duration::from_secs(3600) {
        return Err("the time must be between 1s and 1h".to_owned());
    }
    Ok(time)
}

fn fragment_size(text: &str) -> Result<Bytes, String> {
    let bytes = parse_size(text)?;
    if !(4096..=1 << 20).contains(&bytes.0) || !bytes.0.is_multiple_of(4096) {
        return Err("the size must be between 4k and 1M, and a multiple of 4k".to_owned());
    }
    Ok(bytes)
}

/// Arguments of `bench install`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("with").required(true).args(["optimized", "optimize"]))]
pub struct InstallArgs {
    /// A directory on the volume to measure
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// A directory on an optimized copy of that volume
    #[arg(value_name = "OPTIMIZED", value_hint = ValueHint::DirPath)]
    pub optimized: Option<PathBuf>,
    /// Optimize the whole volume of TARGETDIR after half of the runs
    #[arg(long)]
    pub optimize: bool,
    /// Unpack this tar archive, compressed or not; keep it on another disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
    /// Pack this directory into an archive first, in the directory for temporary files (TMPDIR)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/usr", conflicts_with = "archive")]
    pub tree: PathBuf,
    /// Pack at most this much of the directory, evenly chosen (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "400M", value_parser = file_size, conflicts_with = "archive")]
    pub bytes: Bytes,
    /// Unpack the archive this often on each volume
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// Where the results go.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench invisibility`.
#[derive(Debug, Args)]
pub struct InvisibilityArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Measure only this mode (can be repeated)
    #[arg(long = "mode", value_name = "NAME", value_parser = modes())]
    pub modes: Vec<Mode>,
    /// Set the size of the copied file (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "500M", value_parser = file_size)]
    pub bytes: Bytes,
    /// Make this many small reads in each turn
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub reads: u32,
    /// Make this many of them per second, on average; choose a load that is light for the disk
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Also make this many small writes durable per second meanwhile
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub writes: u32,
    /// Give each mode this many turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// Seed the random numbers; the same seed reads the same offsets
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where the results go.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench ageing`.
#[derive(Debug, Args)]
pub struct AgeingArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Simulate this many days, after the day that makes the first files
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub days: u32,
    /// Set the total size of the files (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = lived_size)]
    pub bytes: Bytes,
    /// Replace this percentage of the files each day
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub daily: u32,
    /// Seed the random numbers; the same seed makes the same days
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where the results go.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// With a smaller size there is no room for the files that stay from day to day.
fn lived_size(text: &str) -> Result<Bytes, String> {
    let bytes = file_size(text)?;
    if bytes < Bytes(256 << 20) { Err("the size must be at least 256M".to_owned()) } else { Ok(bytes) }
}

/// The modes by name, so that help, completion and errors list them.
fn modes() -> impl clap::builder::TypedValueParser<Value = Mode> {
    clap::builder::PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(|name| name.parse::<Mode>())
}

/// Arguments of `bench write`.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// A directory on the volume to write to
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Choose the workload
    #[arg(long, value_name = "NAME", default_value = "direct", value_parser = one_profile())]
    pub profile: Profile,
    /// How much.
    #[command(flatten)]
    pub work: Work,
    /// Watch the files for this time after they have been written; a running service mends them in this time
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub watch: Duration,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

fn one_profile() -> impl clap::builder::TypedValueParser<Value = Profile> {
    clap::builder::PossibleValuesParser::new(Profile::ALL.map(Profile::name)).try_map(|name| name.parse::<Profile>())
}

/// A profile, or several under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiles {
    /// The workloads that fragment files.
    All,
    /// The workloads that do not.
    Controls,
    /// This workload only.
    One(Profile),
}

impl Profiles {
    /// The profiles meant.
    pub fn list(self) -> Vec<Profile> {
        match self {
            Self::All => Profile::GROWING.to_vec(),
            Self::Controls => Profile::CONTROLS.to_vec(),
            Self::One(profile) => vec![profile],
        }
    }
}

/// The profiles by name, so that help, completion and errors list them.
fn profile_names() -> impl clap::builder::TypedValueParser<Value = Profiles> {
    let names = ["all", "controls"].into_iter().chain(Profile::ALL.map(Profile::name));
    clap::builder::PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "all" => Ok(Profiles::All),
        "controls" => Ok(Profiles::Controls),
        one => one.parse().map(Profiles::One),
    })
}

/// Direct writes need whole blocks, and a file of a few requests shows nothing.
fn file_size(text: &str) -> Result<Bytes, String> {
    let bytes = parse_size(text)?;
    if bytes < Bytes(1 << 20) || !bytes.0.is_multiple_of(4096) {
        return Err("the size must be at least 1M, and a multiple of 4k".to_owned());
    }
    Ok(bytes)
}

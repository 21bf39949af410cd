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
    /// Does the same work several times, by turns with `longrun prevent` at work on the volume and without it, and puts
    /// the averages beside each other: fragments, split I/Os, what the device had to do, and what the service cost. Writes
    /// only into a new directory in TARGETDIR, which it removes in the end, also when it is interrupted. Needs root. Take a
    /// volume that nobody else uses meanwhile: what others do there is measured too.
    Prevention(PreventionArgs),
    /// Compare reading files that lie in one piece and in many
    ///
    /// Writes the same bytes several times into a new directory in TARGETDIR, lays each copy differently (whole, in fragments
    /// of several sizes, shuffled, and optimized after that), and reads them one after the other from a cold cache by requests
    /// of 128 KiB. Tells time, MB/s and what the device had to do. Removes what it made, also when it is interrupted. Needs
    /// root.
    Reads(LayoutArgs),
    /// Compare reading and copying files before and after optimizing
    ///
    /// Writes the same bytes three times into a new directory in TARGETDIR: whole, in fragments that lie on the device in any
    /// order, and optimized after that; as one file, or as many (--files). Reads and copies each from a cold cache, the copy
    /// being done when it is durable. Removes what it made, also when it is interrupted. Needs root.
    Copy(CopyArgs),
    /// Compare what databases and file servers get from a file before and after optimizing
    ///
    /// Lays a file in shuffled fragments of 16 KiB, and another one so and optimizes that; then has fio, which has to be
    /// installed, make requests to both by turns: a file server's (4 to 32 KiB at random, four reads to a write), and a
    /// database's (64, 128 and 256 KiB, at random and in order, reading and writing). They go past the page cache. Removes
    /// what it made, also when it is interrupted. Needs root. On btrfs the profiles that write are left out, because every
    /// write gets a new place there.
    Oltp(OltpArgs),
    /// Compare unpacking software on a volume that has aged and on one that is optimized
    ///
    /// Unpacks an archive (--archive), or one that it packs of programs that are installed here (--tree), into a new directory
    /// in TARGETDIR until it is durable, several times; and as often in OPTIMIZED, by turns, which is a directory on another
    /// volume: a copy of the first (a clone, a snapshot made writable) that has been optimized. Without such a volume,
    /// --optimize has all of the volume of TARGETDIR optimized after half of the runs. Tells time, what the device had to do, and
    /// from the I/O trace how much of that was in sequence and how many seeks were wasted. What was unpacked is removed again,
    /// also when it is interrupted. Needs root, and GNU tar. Take volumes that nobody else uses meanwhile.
    Install(InstallArgs),
    /// Compare working beside an optimizer in several modes with working alone
    ///
    /// Copies a large file from a cold cache until the copy is durable, and makes small reads at random times past the page
    /// cache: alone, beside an optimizer that yields to nobody, beside the same in the idle I/O class (ionice), and beside
    /// "longrun optimize" as it is by default. The modes take turns. Says of each mode, with the noise in figures, whether it is
    /// noticed, is not, or whether nothing was shown. The optimizer has fragmented files of its own to work on. All
    /// of it is in a new directory in TARGETDIR, which is removed in the end, also when it is interrupted. Needs root. Take a
    /// volume whose disk nobody else uses meanwhile.
    Invisibility(InvisibilityArgs),
    /// Compare weeks of use with nobody, the file system's own tool, and the service looking after the files
    ///
    /// Lives through the same days in a new directory in TARGETDIR, once with each care: files come, eight of them growing beside each
    /// other by direct, synchronous or buffered writes, others are deleted, logs are added to. A day takes seconds. Tells the excess
    /// fragments and the pieces of free space in the evenings, and what was moved. The file system's own tool (e4defrag, xfs_fsr, btrfs
    /// defragment) runs every seventh evening on these files, where it is installed. What was made is removed, also when it is
    /// interrupted. Needs root, and that no other service runs. Take a volume that nobody else uses meanwhile.
    Ageing(AgeingArgs),
    /// Write files in one of the ways that fragment them, and watch them grow
    ///
    /// For looking at what a running service does: the same work as in "prevention", once, with a line now and then about how
    /// the files lie. Writes only into a new directory in TARGETDIR, which it removes in the end.
    Write(WriteArgs),
}

/// How much is written.
#[derive(Debug, Args)]
pub struct Work {
    /// How many write at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub writers: u32,
    /// How large the file of each becomes (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = file_size)]
    pub bytes: Bytes,
    /// The same seed does the same work
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

impl From<&Work> for Parameters {
    fn from(work: &Work) -> Self {
        Self { writers: work.writers, bytes: work.bytes, seed: work.seed, ..Parameters::default() }
    }
}

/// Where what a benchmark found goes.
#[derive(Debug, Args)]
pub struct BenchOutput {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write a page with tables and charts, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Arguments of `bench prevention`.
#[derive(Debug, Args)]
pub struct PreventionArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// What to write; may be given several times
    ///
    /// direct, dsync, slow-append, office, sparse, logs and install are where files fragment ("all"); buffered, single, short,
    /// compile and sqlite are where nothing should change ("controls").
    #[arg(long = "profile", value_name = "NAME", default_value = "all", value_parser = profile_names())]
    pub profiles: Vec<Profiles>,
    /// How often with the service, and as often without it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// How much.
    #[command(flatten)]
    pub work: Work,
    /// Where what was found goes.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// What the benchmarks have in common that measure the same bytes laid in several ways.
#[derive(Debug, Args)]
pub struct LayoutArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// How large the files of each layout are together (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = file_size)]
    pub bytes: Bytes,
    /// How often each layout is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// The same seed shuffles the same way
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where what was found goes.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// What is laid.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// In how many files of equal size
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files: u32,
    /// How large each fragment is (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = fragment_size)]
    pub fragment: Bytes,
}

/// Arguments of `bench oltp`.
#[derive(Debug, Args)]
pub struct OltpArgs {
    /// What is laid.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Only these requests; may be given several times
    #[arg(long = "profile", value_name = "NAME", value_parser = oltp_profiles())]
    pub profiles: Vec<OltpProfile>,
    /// For how long each profile is run on each layout, each time
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = run_time)]
    pub time: Duration,
    /// The fio to run
    #[arg(long, value_name = "PROGRAM", default_value = "fio", value_hint = ValueHint::CommandName)]
    pub fio: PathBuf,
}

/// The requests by name, so that help, completion and errors list them.
fn oltp_profiles() -> impl clap::builder::TypedValueParser<Value = OltpProfile> {
    let names = clap::builder::PossibleValuesParser::new(OltpProfile::ALL.map(OltpProfile::name));
    names.try_map(|name| name.parse::<OltpProfile>())
}

fn run_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time < Duration::from_secs(1) || time > Duration::from_secs(3600) {
        return Err("between 1s and 1h".to_owned());
    }
    Ok(time)
}

fn fragment_size(text: &str) -> Result<Bytes, String> {
    let bytes = parse_size(text)?;
    if !(4096..=1 << 20).contains(&bytes.0) || !bytes.0.is_multiple_of(4096) {
        return Err("between 4k and 1M, in whole blocks of 4k".to_owned());
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
    /// A directory on a copy of that volume which has been optimized
    #[arg(value_name = "OPTIMIZED", value_hint = ValueHint::DirPath)]
    pub optimized: Option<PathBuf>,
    /// Optimize the whole volume of TARGETDIR after half of the runs
    #[arg(long)]
    pub optimize: bool,
    /// Unpack this tar archive, compressed or not; keep it on another disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
    /// Unpack what is in this directory; it is packed first, where temporary files are (TMPDIR)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/usr", conflicts_with = "archive")]
    pub tree: PathBuf,
    /// Of that, at most so much, evenly chosen (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "400M", value_parser = file_size, conflicts_with = "archive")]
    pub bytes: Bytes,
    /// How often it is unpacked on each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// Where what was found goes.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench invisibility`.
#[derive(Debug, Args)]
pub struct InvisibilityArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Only these modes; may be given several times
    #[arg(long = "mode", value_name = "NAME", value_parser = modes())]
    pub modes: Vec<Mode>,
    /// How large the copied file is (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "500M", value_parser = file_size)]
    pub bytes: Bytes,
    /// How many small reads there are in each turn
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub reads: u32,
    /// How many of them come in a second, on average; a load that the disk alone hardly notices
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Turns of each mode
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub iterations: u32,
    /// The same seed reads at the same places
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where what was found goes.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// Arguments of `bench ageing`.
#[derive(Debug, Args)]
pub struct AgeingArgs {
    /// A directory on the volume to measure (ext4, XFS or btrfs)
    #[arg(value_name = "TARGETDIR", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// How many days, after the one that makes the first files
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub days: u32,
    /// How much is in files (k, M, G: powers of 1024)
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = lived_size)]
    pub bytes: Bytes,
    /// How much of that is written anew each day, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub daily: u32,
    /// The same seed lives through the same days
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where what was found goes.
    #[command(flatten)]
    pub output: BenchOutput,
}

/// In less there is no room for what lives on from day to day.
fn lived_size(text: &str) -> Result<Bytes, String> {
    let bytes = file_size(text)?;
    if bytes < Bytes(256 << 20) { Err("at least 256M".to_owned()) } else { Ok(bytes) }
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
    /// What to write
    #[arg(long, value_name = "NAME", default_value = "direct", value_parser = one_profile())]
    pub profile: Profile,
    /// How much.
    #[command(flatten)]
    pub work: Work,
    /// Watch the files for so long after they have been written: a service mends what is left
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
    /// Those that fragment.
    All,
    /// Those that do not.
    Controls,
    /// Just this one.
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

/// Direct writes want whole blocks, and less than a few requests show nothing.
fn file_size(text: &str) -> Result<Bytes, String> {
    let bytes = parse_size(text)?;
    if bytes < Bytes(1 << 20) || !bytes.0.is_multiple_of(4096) {
        return Err("at least 1M, in whole blocks of 4k".to_owned());
    }
    Ok(bytes)
}

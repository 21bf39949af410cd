//! `heat`: for which files the disk is read most.

use crate::args::heat::HeatArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::heat::{Directory, File, Heat, Source};
use crate::report::{json_name, print, print_json};
use crate::survey::Survey;
use jiff::Timestamp;
use longrun_api::{Client, ClientError};
use longrun_engine::{NoProgress, ScanProgress};
use longrun_governor::{DiskKind, Governor};
use longrun_heat::{Below, Found, HeatError, HeatTable, HotDirectory, HotFile, Kept, Minute, Placing, Ranking};
use longrun_layout::FileId;
use longrun_profile::{Kept as Profiles, members};
use longrun_sys::{DeviceNumber, FileSystem, format_uuid};
use longrun_volume::identity::names::Names;
use longrun_volume::{Identity, Target};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where directories are known by the paths of their files only, those of so many of the hottest files.
const NAMED: usize = 10_000;

/// Asks the service, reads the volume, and prints.
pub fn run(args: &HeatArgs) -> Result<(), Failure> {
    let target = Target::resolve(&args.target)?;
    let counted = counted(&target, &args.state)?;
    let (table, source) = table(args, &target, &counted)?;
    let now = Minute::of_seconds(Timestamp::now().as_second()).max(table.updated());
    let mut watch = Watch::start()?;
    watch.govern(Governor::new(target.device_number, args.reading.pace.into()));
    watch.phase("reading the volume", Unit::Steps);
    let survey = Survey::read(&target, &ScanProgress::new(&mut watch, 0));
    watch.finish();
    let survey = survey?;
    let ranking = Ranking::of(survey.layout(), &table, now, counted.filesystem == FileSystem::Btrfs);
    let report = report(args, &survey, &table, now, &ranking, source)?;
    if args.json { print_json(&report) } else { print(&report.text()) }
}

/// A mounted volume, as its reads are counted.
pub struct Counted {
    /// Its id in the service.
    pub id: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its file system.
    pub filesystem: FileSystem,
}

/// By what the counts of the mounted volume are kept in the state directory `state`.
pub fn counted(target: &Target, state: &Path) -> Result<Counted, Failure> {
    let refused = |why: &str| Failure::new(Status::Refused, format!("{}: {why}", target.given.display()));
    let mount = target.mount.as_ref().ok_or_else(|| refused("not mounted; reads are counted of mounted volumes"))?;
    let filesystem = FileSystem::from_name(&mount.filesystem)
        .ok_or_else(|| refused("reads are counted on ext4, XFS and btrfs only"))?;
    let identity = Identity::of(mount.id, || fs::File::open(&mount.point))
        .map_err(|error| Failure::io(&target.device, "reading the superblock", &error))?;
    let uuid = identity.superblock.uuid;
    let uuid = uuid.ok_or_else(|| refused("the volume has no UUID, so that its counts cannot be kept"))?;
    let id = Names::within(state).find(&format_uuid(&uuid), &identity.device);
    let id = id.ok_or_else(|| refused("it is a clone, and the service has not counted its reads yet"))?;
    Ok(Counted { id, uuid, filesystem })
}

/// What the service has counted: from the service itself, or what it left when it ended.
fn table(args: &HeatArgs, target: &Target, counted: &Counted) -> Result<(HeatTable, Source), Failure> {
    let Counted { id, uuid, .. } = counted;
    let given = target.given.display();
    let asked = Client::new(&args.socket).get_bytes(&format!("/v1/volumes/{id}/heat/table"));
    let not_running = match asked {
        Ok(bytes) => {
            let table = HeatTable::from_bytes(&bytes, *uuid).map_err(|error| {
                Failure::new(Status::Failed, format!("{given}: the service answered with what is {error}"))
            })?;
            return Ok((table, Source::Service));
        }
        Err(error @ ClientError::NotRunning { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    match Kept::within(&args.state).find(id, *uuid)? {
        Found::Table(table) => Ok((table, Source::Kept)),
        Found::Damaged(what) => {
            let path = Kept::within(&args.state).path(id);
            let text = format!("{}: {what}; start the service, which begins anew", path.display());
            Err(Failure::new(Status::Failed, text))
        }
        Found::Nothing => {
            let text = format!("{given}: nothing was counted yet: {not_running}; it counts while it runs");
            Err(Failure::new(Status::Failed, text))
        }
    }
}

fn report(
    args: &HeatArgs,
    survey: &Survey,
    table: &HeatTable,
    now: Minute,
    ranking: &Ranking,
    source: Source,
) -> Result<Heat, Failure> {
    let top = args.top as usize;
    // On XFS a scan does not tell who is in which directory.
    let by_path = ranking.directories.is_empty();
    let named = ranking.files.iter().take(if by_path { top.max(NAMED) } else { top });
    let directories = ranking.directories.iter().take(top);
    let ids: Vec<FileId> =
        named.clone().map(|file| file.id).chain(directories.clone().filter_map(|directory| directory.id)).collect();
    let mut names = survey.names(&ids, &NoProgress)?.into_iter();
    let totals = table.totals(now);
    let share = |reads: f64| if totals.reads > 0.0 { (reads / totals.reads).min(1.0) } else { 0.0 };
    let paths: Vec<PathBuf> = names.by_ref().take(named.len()).collect();
    let files = named.clone().zip(&paths).take(top).map(|(file, path)| of_file(file, path, &share)).collect();
    let directories = if by_path {
        let mut directories = by_parent(named.zip(&paths));
        directories.truncate(top);
        directories.iter().map(|(path, directory)| of_directory(directory, path, &share)).collect()
    } else {
        let unknown = || PathBuf::from("<unknown directory>");
        directories
            .map(|directory| {
                let path = directory.id.and_then(|_| names.next()).unwrap_or_else(unknown);
                of_directory(directory, &path, &share)
            })
            .collect()
    };
    let filesystem = longrun_volume::file_system_name(&survey.target);
    let below = below(survey.target.device_number, &args.state)?;
    let placing = Placing::on(&filesystem, &below);
    let sentence = placing.sentence(&args.target.display().to_string(), &filesystem, &below);
    let known: f64 = ranking.files.iter().map(|file| f64::from(file.heat.reads)).sum();
    Ok(Heat {
        target: args.target.clone(),
        device: survey.target.device.clone(),
        filesystem,
        source,
        began: time(table.began()),
        minutes: table.recorded(),
        updated: time(table.updated()),
        reads: totals.reads,
        read_bytes: totals.bytes,
        known_files: ranking.files.len() as u64,
        share_of_files: share(known),
        share_of_deleted: share(ranking.gone_reads),
        files,
        directories,
        placing,
        placing_sentence: sentence,
    })
}

fn of_file(file: &HotFile, path: &Path, share: &dyn Fn(f64) -> f64) -> File {
    let ((path, path_hex), reads) = (json_name(path), f64::from(file.heat.reads));
    File {
        path,
        path_hex,
        inode: file.id.inode.0,
        size: file.size,
        reads,
        read_bytes: file.heat.bytes.into(),
        share: share(reads),
        reads_per_mib: file.density(),
        changes: file.heat.changes.into(),
    }
}

fn of_directory(directory: &HotDirectory, path: &Path, share: &dyn Fn(f64) -> f64) -> Directory {
    let (path, path_hex) = json_name(path);
    Directory {
        path,
        path_hex,
        files: directory.files,
        size: directory.size,
        reads: directory.reads,
        read_bytes: directory.bytes,
        share: share(directory.reads),
        reads_per_mib: longrun_heat::density(directory.reads as f32, directory.size),
    }
}

/// The directories of files by their paths, the hottest first.
fn by_parent<'a>(files: impl Iterator<Item = (&'a HotFile, &'a PathBuf)>) -> Vec<(PathBuf, HotDirectory)> {
    let mut directories: BTreeMap<PathBuf, HotDirectory> = BTreeMap::new();
    for (file, path) in files {
        let Some(parent) = path.parent() else { continue };
        let of = directories.entry(parent.to_owned()).or_default();
        of.files += 1;
        of.size += file.size;
        of.reads += f64::from(file.heat.reads);
        of.bytes += f64::from(file.heat.bytes);
    }
    let mut directories: Vec<_> = directories.into_iter().collect();
    directories.sort_by(|a, b| b.1.reads.total_cmp(&a.1.reads));
    directories
}

/// What lies below a device, and what was measured of it.
pub fn below(device: Option<DeviceNumber>, state: &Path) -> Result<Below, Failure> {
    let Some(device) = device else {
        return Ok(Below { rotates: false, kind: DiskKind::Virtual.to_string(), gradients: Vec::new() });
    };
    let kind = DiskKind::below(device).unwrap_or(DiskKind::Virtual);
    let (kept, now) = (Profiles::within(state), Timestamp::now());
    let gradients = members(device).into_iter().map(|member| {
        let Some(identity) = member.identity() else { return Ok(None) };
        Ok(kept.find(&identity, now)?.map(|profile| profile.verdict.gradient))
    });
    let gradients = gradients.collect::<Result<Vec<_>, longrun_profile::ProfileError>>()?;
    Ok(Below { rotates: kind == DiskKind::Rotational, kind: kind.to_string(), gradients })
}

fn time(minute: Minute) -> String {
    Timestamp::from_second(minute.seconds()).unwrap_or_default().to_string()
}

impl From<HeatError> for Failure {
    fn from(error: HeatError) -> Self {
        let status = match &error {
            HeatError::NotPermitted | HeatError::Unsupported { .. } => Status::Refused,
            HeatError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Status::Refused,
            HeatError::Broken { .. } | HeatError::Io { .. } | HeatError::Damaged { .. } => Status::Failed,
        };
        let mut failure = Self::new(status, error.to_string());
        failure.needs_root = status == Status::Refused;
        failure
    }
}

//! `profile`: measures how fast a disk is at which place, or shows what was measured before.

use crate::args::profile::ProfileArgs;
use crate::exit::{Failure, Status};
use crate::fresh;
use crate::progress::Watch;
use crate::report::profile::{Measured, Profiled, page, svg};
use crate::report::{print, print_json};
use jiff::Timestamp;
use longrun_governor::DiskKind;
use longrun_profile::{DirectReads, Kept, Profile, ProfileError, Reads as _, measure, members};
use longrun_sys::{BlockDevice, DeviceNumber};
use longrun_volume::Target;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// What is said to a signal that ends the work, and to later ones.
const ANSWERS: [&str; 2] = ["stopping after the current read", "the current read is not done yet; please wait"];

/// Measures the devices of the target, one after the other, and prints what was found.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let number = device_of(&args.target)?;
    let devices = members(number);
    if devices.is_empty() {
        let text = format!("{}: it is not on a block device, so there is nothing to measure", args.target.display());
        return Err(Failure::new(Status::Refused, text));
    }
    let kind = DiskKind::below(number).unwrap_or(DiskKind::Virtual);
    if kind != DiskKind::Rotational && !args.any_disk {
        let text = format!(
            "{}: a {kind} has no fast and slow places of its own, so there is nothing to gain by placing files; --any-disk measures it all the same",
            args.target.display()
        );
        return Err(Failure::new(Status::Refused, text));
    }
    let mut watch = Watch::start_for(&ANSWERS)?;
    watch.govern(args.manner.governor(Some(number)));
    let kept = Kept::within(&args.state);
    let devices = devices.iter().map(|device| profile(args, device, &kept, &mut watch)).collect::<Result<_, _>>()?;
    watch.finish();
    let found = Profiled { target: args.target.clone(), kind, devices };
    if let Some(path) = &args.svg {
        write(path, &svg(&found))?;
    }
    if let Some(path) = &args.html {
        write(path, &page(&found))?;
    }
    if args.json { print_json(&found) } else { print(&found.text()) }
}

/// The profile of one device: the kept one, or a new one, which is kept.
fn profile(args: &ProfileArgs, device: &BlockDevice, kept: &Kept, watch: &mut Watch) -> Result<Measured, Failure> {
    let mut reads = DirectReads::open(&device.node())?;
    let (identity, now) = (device.identity(), Timestamp::now());
    if let Some(identity) = identity.as_ref().filter(|_| !args.again)
        && let Some(profile) = kept.find(identity, now)?.filter(|profile| profile.bytes == reads.bytes())
    {
        return Ok(Measured { profile, from_before: true });
    }
    let seed = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let profile: Profile = measure(&mut reads, &device.name, seed, watch)?;
    if let Some(identity) = identity {
        kept.keep(&identity, &profile)?;
    }
    Ok(Measured { profile, from_before: false })
}

/// The device that is named: itself, or that of the volume.
fn device_of(target: &Path) -> Result<DeviceNumber, Failure> {
    let meta = fs::metadata(target).map_err(|e| Failure::io(target, "looking at it", &e))?;
    if meta.file_type().is_block_device() {
        return Ok(DeviceNumber::from_stat(meta.rdev()));
    }
    let found = Target::resolve(target)?;
    found.device_number.ok_or_else(|| {
        Failure::new(
            Status::Refused,
            format!("{}: not on a block device; there is no disk to measure", target.display()),
        )
    })
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    fresh::write(path, |file| file.write_all(content.as_bytes()))
        .map_err(|e| Failure::io(path, "writing the chart", &e))
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        let status = match &error {
            ProfileError::TooSmall { .. } => Status::Refused,
            ProfileError::Open { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Status::Refused
            }
            ProfileError::Interrupted { .. } => Status::Interrupted,
            ProfileError::Open { .. } | ProfileError::Read { .. } | ProfileError::Keep { .. } => Status::Failed,
        };
        let mut failure = Self::new(status, error.to_string());
        failure.needs_root = status == Status::Refused && matches!(error, ProfileError::Open { .. });
        failure
    }
}

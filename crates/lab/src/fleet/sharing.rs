//! Two real services whose volumes are on shared storage, with one slot: passes on both are asked for at the same moment.

use super::broker::Brokers;
use super::real::{GROUP, Real, until};
use super::{host, in_directory};
use crate::oracle::{compare, dump, excess_of};
use crate::{LoopVolume, Running, VolumeSpec, longrun_binary, write_in_pieces};
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const HOSTS: usize = 2;
const FILES: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the story; how often one of the services was seen at work.
///
/// # Errors
/// Both worked at a time, one without permission, or not all was done; or the system's.
pub fn share_one_slot(spec: &VolumeSpec, term: Duration) -> Result<u32> {
    in_directory(|directory| run(spec, term, directory))
}

fn run(spec: &VolumeSpec, term: Duration, directory: &Path) -> Result<u32> {
    let (brokers, admin) = Brokers::of_a_fleet(directory, 1)?;
    let set = |slots: &str| host::command(&admin)?.run(&["groups", "set", GROUP, "--slots", slots]);
    set("0")?;
    let volumes = (0..HOSTS).map(|_| fragmented(spec)).collect::<Result<Vec<_>>>()?;
    let before = volumes.iter().map(|volume| dump(&volume.mount_point())).collect::<Result<Vec<_>>>()?;
    let start = |(number, volume): (usize, &LoopVolume)| {
        let name = format!("host-{number}");
        Real::start(&directory.join(&name), &name, &brokers.servers(), term, std::slice::from_ref(volume))
    };
    let hosts = volumes.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    until("the services know the group", || {
        hosts.iter().try_fold(true, |all, host| Ok(all && host.part()?.pointer("/groups/0").is_some()))
    })?;
    let pass = |(host, volume): (&Real, &LoopVolume)| {
        let mut command = Command::new(longrun_binary()?);
        command.args(["optimize", "--mode", "full", "--pace", "fast", "--socket"]).arg(host.service.socket());
        Running::start(command.arg(volume.mount_point()))
    };
    let mut passes = hosts.iter().zip(&volumes).map(pass).collect::<Result<Vec<_>>>()?;
    until("both want to work", || hosts.iter().try_fold(true, |all, host| Ok(all && host.group_is("wants")?)))?;
    thread::sleep(term * 2);
    for host in &hosts {
        ensure!(!host.group_is("permitted")?, "work is permitted where there is no slot");
    }
    for pass in &mut passes {
        ensure!(!pass.has_ended()?, "a pass has ended without permission");
    }
    set("1")?;
    let [first, second] = hosts.as_slice() else { anyhow::bail!("the story is about two hosts") };
    let mut seen = 0;
    until("both passes end", || {
        // The second is asked twice: permissions between the two looks must not count as simultaneous.
        let permitted = [second.group_is("permitted")?, first.group_is("permitted")?, second.group_is("permitted")?];
        ensure!(permitted != [true; 3], "both services may work at a time");
        seen += u32::from(permitted.contains(&true));
        passes.iter_mut().try_fold(true, |all, pass| Ok(all & pass.has_ended()?))
    })?;
    for pass in passes {
        let finished = pass.wait(PATIENCE)?;
        ensure!(finished.status.success(), "a pass failed: {}", finished.stderr);
    }
    for (volume, before) in volumes.iter().zip(&before) {
        let mount = volume.mount_point();
        for number in 0..FILES {
            let left = excess_of(&mount.join(format!("file-{number}")))?;
            ensure!(left == 0, "file-{number} has {left} excess fragments");
        }
        compare(before, &dump(&mount)?).context("what was moved is not as before")?;
    }
    for Real { service, agent, .. } in hosts {
        agent.end()?;
        service.stop()?;
    }
    volumes.iter().try_for_each(LoopVolume::check)?;
    Ok(seen)
}

fn fragmented(spec: &VolumeSpec) -> Result<LoopVolume> {
    let volume = LoopVolume::create(spec)?;
    for number in 0..FILES {
        let file = volume.mount_point().join(format!("file-{number}"));
        let content: Vec<u8> = (0..2_u32 << 20).map(|at| (at % 251) as u8 ^ number).collect();
        write_in_pieces(volume.kind(), &file, &content, Bytes(128 << 10), u64::from(number))?;
    }
    Ok(volume)
}

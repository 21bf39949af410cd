//! `longrun bench install` on modelled disks.
//!
//! Owns the two volumes: an aged one, and an optimized copy of it. Each disk gets byte-identical copies of both.

use crate::disk::{DiskModel, ModelledDisk};
use crate::layouts::{Found, LayoutCampaign, OnDisk};
use crate::{FileSystemKind, LoopVolume, Optimizer, VolumeSpec};
use anyhow::{Context, Result, ensure};
use longrun_ageing::Recipe;
use longrun_bench::install::{Install, Software};
use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Size of the volumes.
const MEBIBYTES: u64 = 1536;
/// A server's life, after which 40 % are free, in thousands of pieces.
const RECIPE: Recipe = Recipe::Server;
/// Longer than optimizing takes.
const LIMIT: Duration = Duration::from_secs(3600);

/// What the document says of them.
pub(crate) const CONDITIONS: &str = "Programs installed on this machine (240 MiB of /usr, evenly chosen, or the \
     archive of --archive), unpacked by tar until they are durable, on an aged volume of 1.5 GiB (`longrun fragment \
     --volume DIR --recipe server`), and on a copy of it after `longrun optimize --mode full`. The archive is in \
     memory. Before each run the unpacked files are removed and the volume is remounted. Sequential share, \
     latencies, split requests and wasted seeks are those of `longrun trace` (docs/trace.md). In the literature on \
     defragmentation, installing an office suite took 21 % and 36 % fewer requests on optimized volumes, and the \
     share of wasted seeks fell from 7.1 % to 1.6 %";

/// The volumes, and what is installed there.
#[derive(Debug)]
pub(crate) struct Installing {
    software: Software,
    aged: LoopVolume,
    optimized: LoopVolume,
    stop: AtomicBool,
}

impl Installing {
    /// Makes them.
    pub(crate) fn prepare(campaign: &LayoutCampaign, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        ensure!(
            campaign.kind != FileSystemKind::Btrfs,
            "a btrfs volume and its copy must not both be mounted: install is measured on ext4 and xfs"
        );
        let stop = AtomicBool::new(false);
        progress("install: packing software");
        let software = Software::prepare(&campaign.software, &stop)?;
        progress(&format!("install: ageing a volume of {MEBIBYTES} MiB"));
        let spec = VolumeSpec::of(campaign.kind, MEBIBYTES).mount("noatime");
        let (aged, _) = LoopVolume::aged(&spec, RECIPE, campaign.seed)?;
        progress("install: optimizing its copy");
        let optimized = aged.copy("noatime")?;
        Optimizer::longrun("full")?.run(&optimized.mount_point(), LIMIT)?;
        Ok(Self { software, aged, optimized, stop })
    }

    /// Measures on a disk like this.
    pub(crate) fn on_disk(
        &self,
        campaign: &LayoutCampaign,
        model: DiskModel,
        progress: &mut dyn FnMut(&str),
        text: &mut String,
    ) -> Result<()> {
        let aged = self.aged.copy_to_disk(model, campaign.seed)?;
        let optimized = self.optimized.copy_to_disk(model, campaign.seed)?;
        let (aged_disk, optimized_disk) = (disk_of(&aged)?, disk_of(&optimized)?);
        [aged_disk, optimized_disk].iter().try_for_each(|disk| disk.set_read_ahead(campaign.read_ahead_kib))?;
        let (aged_start, optimized_start) = (aged_disk.statistics()?, optimized_disk.statistics()?);
        let progress = RefCell::new(progress);
        let tell = |what: &str| progress.borrow_mut()(what);
        let (mut of_aged, mut of_optimized) = (tell, tell);
        let mut first = OnDisk { disk: aged_disk, volume: &aged, progress: &mut of_aged, before: aged_start };
        let mut second =
            OnDisk { disk: optimized_disk, volume: &optimized, progress: &mut of_optimized, before: optimized_start };
        let points = [aged.mount_point(), optimized.mount_point()];
        let targets: Vec<&Path> = points.iter().map(AsRef::as_ref).collect();
        let install = Install::prepare(&targets, &self.software, campaign.iterations, &self.stop)?;
        let report = install.by_turns([&mut first, &mut second])?;
        let mut found = Found { text, json: serde_json::Value::Null };
        found.add(&report)?;
        let late = |disk: &ModelledDisk, start| Ok::<_, anyhow::Error>(disk.statistics()?.since(start).late_micros());
        let late = f64::midpoint(late(aged_disk, aged_start)?, late(optimized_disk, optimized_start)?);
        found.finish("install", late, campaign, model)
    }
}

fn disk_of(volume: &LoopVolume) -> Result<&ModelledDisk> {
    volume.disk().context("the volume is on no modelled disk")
}

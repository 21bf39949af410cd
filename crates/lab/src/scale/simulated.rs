//! Plans for files that exist in memory only.

use crate::Running;
use anyhow::{Context, Result, ensure};
use longrun_engine::Settings;
use longrun_engine::sim::recipes;
use longrun_layout::{Blocks, Bytes, ExtentSet, VolumeLayout};
use longrun_planner::{Mode, Planner};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::{Duration, Instant};

/// The hidden command of the laboratory that plans for many files.
pub const PLAN_COMMAND: &str = "plan-many-files";

/// Longer than any plan takes.
const LIMIT: Duration = Duration::from_secs(7200);

/// What a plan for simulated files costs, and what comes of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SimulatedCost {
    /// Files and directories.
    pub files: u64,
    /// The size of the volume.
    pub bytes: Bytes,
    /// Used by files.
    pub used: Bytes,
    /// How long making the model took, the inventing of the files included.
    pub model_seconds: f64,
    /// How long the plan took, all batches one after the other.
    pub plan_seconds: f64,
    /// The most memory of the process until the model was there, in bytes.
    pub model_memory: u64,
    /// The most memory of the process.
    pub memory: u64,
    /// Moves of the plan.
    pub moves: u64,
    /// Their bytes.
    pub moved: Bytes,
    /// Batches of the plan.
    pub batches: u64,
    /// Excess fragments of movable files before, and what is left of them.
    pub excess: [u64; 2],
    /// Free pieces before and after.
    pub pieces: [u64; 2],
    /// The fewest pieces that are possible.
    pub floor_pieces: u64,
}

/// Plans for `files` simulated files, in this process.
///
/// # Errors
/// When the system does not say how much memory it took.
pub fn plan_many_files(files: u32, mode: Mode, seed: u64) -> Result<SimulatedCost> {
    let begun = Instant::now();
    let layout = recipes::many_files(seed, files);
    let model_seconds = begun.elapsed().as_secs_f64();
    let model_memory = most_memory()?;
    let before = layout.fragmentation();
    let policy = Settings { mode, ..Settings::default() }.policy(&layout, Bytes(0));
    let mut free: ExtentSet = layout.free().iter().copied().collect();
    let (mut plan_seconds, mut moves, mut moved, mut batches, mut saved) = (0.0, 0, Blocks(0), 0, 0);
    let begun = Instant::now();
    let mut planner = Planner::new(&layout, policy);
    plan_seconds += begun.elapsed().as_secs_f64();
    loop {
        let begun = Instant::now();
        let batch = planner.next();
        plan_seconds += begun.elapsed().as_secs_f64();
        let Some(batch) = batch else { break };
        batches += 1;
        saved += batch.saves;
        for planned in batch.moves() {
            free.remove(planned.step.occupies());
            free.insert(planned.step.vacates());
            moves += 1;
            moved += planned.step.length;
        }
    }
    let excess = movable_excess(&layout);
    Ok(SimulatedCost {
        files: layout.file_count() as u64,
        bytes: layout.block_size().to_bytes(layout.total_blocks()),
        used: before.used_bytes,
        model_seconds,
        plan_seconds,
        model_memory,
        memory: most_memory()?,
        moves,
        moved: layout.block_size().to_bytes(moved),
        batches,
        excess: [excess, excess.saturating_sub(saved)],
        pieces: [before.free_space.pieces, free.pieces() as u64],
        floor_pieces: before.free_space.floor_pieces,
    })
}

fn movable_excess(layout: &VolumeLayout) -> u64 {
    layout.files().filter(|file| file.is_movable()).map(|file| file.fragments().saturating_sub(1)).sum()
}

/// The most memory that this process had, in bytes.
fn most_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(kilobytes.context("/proc/self/status has no VmHWM")?.parse::<u64>()? << 10)
}

/// The same in a process of its own.
///
/// # Errors
/// When it fails.
pub fn simulated(files: u32, mode: &str, seed: u64) -> Result<SimulatedCost> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([PLAN_COMMAND, "--mode", mode, "--files", &files.to_string(), "--seed", &seed.to_string()]);
    let finished = Running::start(&mut command)?.wait(LIMIT)?;
    ensure!(finished.status.success(), "planning for {files} files failed: {}", finished.stderr);
    Ok(serde_json::from_str(&finished.stdout)?)
}

//! The production sequence on a simulated file system: a loss of power at every call, every call failing, somebody writing before
//! every call.

use super::unit::Member;
use super::{Durable, Ended, Request, rewrite};
use crate::Unobserved;
use crate::sim::{BLOCK, ShareFaults, SimShared};
use longrun_layout::{BlockSize, Blocks, Bytes, Run};

const TOTAL: Blocks = Blocks(1000);
/// More calls than any of these files takes.
const MOST_CALLS: u64 = 500;

/// One file in many pieces; and three of which the second is a clone of the first and the third shares a part.
fn units() -> [Vec<Member>; 2] {
    let file = |runs: Vec<Run>| {
        let blocks: u64 = runs.iter().map(|run| run.length.0).sum();
        Member::plain(runs, Bytes(blocks * BLOCK))
    };
    let pieces: Vec<Run> = (0..12).map(|n| Run::new(n * 5, 10 + n * 20, 5)).collect();
    let part = vec![Run::new(0, 10, 5), Run::new(5, 600, 3), Run::new(8, 30, 5), Run::new(13, 610, 4)];
    [vec![file(pieces.clone())], vec![file(pieces.clone()), file(pieces), file(part)]]
}

fn run(sim: &mut SimShared, members: &[Member], durable: Durable) -> Result<(), Ended> {
    let block_size = BlockSize::new(BLOCK as u32).unwrap();
    let request = Request { members, block_size, durable, beside: true };
    rewrite(sim, &request, &mut Unobserved, &mut Bytes(0))
}

/// As XFS and as btrfs have it.
const KINDS: [(Durable, bool); 2] = [(Durable::BeforeItIsTaken, false), (Durable::WithTheCommit, true)];

#[test]
fn files_that_nobody_disturbs_are_whole_afterwards_and_share_what_they_shared() {
    for (durable, flushes) in KINDS {
        for members in units() {
            let mut sim = SimShared::new(&members, TOTAL, flushes, ShareFaults::default(), 1);
            let (free, blocks) = (sim.free(), sim.blocks());
            let before = sim.fragments();
            run(&mut sim, &members, durable).unwrap();
            sim.check().unwrap();
            assert_eq!((sim.free(), sim.blocks()), (free, blocks), "space was lost");
            assert!(sim.fragments() * 3 <= before, "{} of {before}", sim.fragments());
        }
    }
}

/// What is found on the medium after a loss of power at each call, in some of the ways that it can be.
fn crashes(durable: Durable, flushes: bool) -> Result<u64, String> {
    let mut points = 0;
    for members in units() {
        for at in 1..MOST_CALLS {
            let faults = ShareFaults { crash_at: Some(at), ..ShareFaults::default() };
            let mut sim = SimShared::new(&members, TOTAL, flushes, faults, at);
            let ended = run(&mut sim, &members, durable);
            for _ in 0..20 {
                sim.check_after_crash().map_err(|error| format!("power lost at call {at}: {error}"))?;
            }
            if !sim.was_reached(at) {
                ended.map_err(|ended| format!("{ended:?}"))?;
                break;
            }
            points += 1;
        }
    }
    Ok(points)
}

#[test]
fn a_loss_of_power_at_any_call_costs_no_byte() {
    for (durable, flushes) in KINDS {
        assert!(crashes(durable, flushes).unwrap() > 10);
    }
}

/// What the sync before the taking is for.
#[test]
fn without_a_durable_copy_a_loss_of_power_costs_bytes_where_commits_do_not_flush() {
    let error = crashes(Durable::WithTheCommit, false).unwrap_err();
    assert!(error.contains("in place of"), "{error}");
}

#[test]
fn a_call_that_fails_costs_neither_bytes_nor_space() {
    for (durable, flushes) in KINDS {
        for members in units() {
            for at in 1..MOST_CALLS {
                let faults = ShareFaults { fail_at: Some(at), ..ShareFaults::default() };
                let mut sim = SimShared::new(&members, TOTAL, flushes, faults, at);
                let (free, blocks) = (sim.free(), sim.blocks());
                let done = run(&mut sim, &members, durable);
                sim.check().unwrap();
                // What several files share and only some have taken lies there twice; never is it lost.
                assert_eq!(sim.free() + sim.blocks(), free + blocks, "call {at}");
                if !sim.was_reached(at) {
                    done.unwrap();
                    break;
                }
            }
        }
    }
}

/// Somebody writes before each call, with some luck without a trace in the file's times.
fn writers(compares_nothing: bool) -> Result<(), String> {
    for (durable, flushes) in KINDS {
        for members in units() {
            for at in 1..MOST_CALLS {
                for seed in 0..8 {
                    let faults = ShareFaults { write_at: Some(at), compares_nothing, ..ShareFaults::default() };
                    let mut sim = SimShared::new(&members, TOTAL, flushes, faults, at * 8 + seed);
                    let _ = run(&mut sim, &members, durable);
                    sim.check().map_err(|error| format!("written before call {at}: {error}"))?;
                    if !sim.was_reached(at) {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn what_somebody_writes_meanwhile_stays_written() {
    writers(false).unwrap();
    let error = writers(true).unwrap_err();
    assert!(error.contains("in place of"), "without the comparison: {error}");
}

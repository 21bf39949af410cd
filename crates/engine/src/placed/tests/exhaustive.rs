//! Every plan of three single-block moves on every layout of a volume of five blocks, crashed at every point.

use super::support::{FixedPlan, Impatient};
use crate::Settings;
use crate::placed::optimize_with;
use crate::settings::Rule;
use crate::sim::{Faults, SimVolume};
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, FileId, FileIndex, FileMove, InodeNumber, LayoutBuilder, LogicalBlock,
    NO_DIRECTORY, PhysicalBlock, Run, VolumeLayout,
};
use longrun_planner::{Batch, PlannedMove, Step, Why};

/// Who has blocks 1, 2, 3 and 4: a block of a file, or nobody.
type Owners = [Option<(u32, u64)>; 4];

/// File 0 has two blocks, file 1 has one, one is free: all twelve-times-two arrangements.
fn layouts() -> Vec<Owners> {
    let pieces = [Some((0, 0)), Some((0, 1)), Some((1, 0)), None];
    let mut all = Vec::new();
    for a in 0..4 {
        for b in (0..4).filter(|b| *b != a) {
            for c in (0..4).filter(|c| *c != a && *c != b) {
                let d = 6 - a - b - c;
                all.push([pieces[a], pieces[b], pieces[c], pieces[d]]);
            }
        }
    }
    all
}

fn layout(owners: &Owners) -> VolumeLayout {
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(5));
    for file in 0..2 {
        let place = |(at, owner): (usize, &Option<(u32, u64)>)| {
            let (_, logical) = owner.filter(|(owner, _)| *owner == file)?;
            Some(Run::new(logical, at as u64 + 1, 1))
        };
        let mut runs = owners.iter().enumerate().filter_map(place).collect();
        let id = FileId { inode: InodeNumber(12 + u64::from(file)), generation: 1 };
        builder.push_file(id, NO_DIRECTORY, false, None, &mut runs);
    }
    for (at, _) in owners.iter().enumerate().filter(|(_, owner)| owner.is_none()) {
        builder.push_free(Extent::new(at as u64 + 1, 1));
    }
    builder.build().unwrap()
}

/// All sequences of `depth` legal moves.
fn plans(owners: Owners, depth: u32) -> Vec<Vec<FileMove>> {
    if depth == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    let free = owners.iter().position(Option::is_none).unwrap();
    for (at, owner) in owners.iter().enumerate() {
        let Some((file, logical)) = *owner else { continue };
        let step = FileMove {
            file: FileIndex(file),
            logical: LogicalBlock(logical),
            source: PhysicalBlock(at as u64 + 1),
            target: PhysicalBlock(free as u64 + 1),
            length: Blocks(1),
        };
        let mut next = owners;
        next.swap(at, free);
        for mut rest in plans(next, depth - 1) {
            rest.insert(0, step);
            all.push(rest);
        }
    }
    all
}

/// Plans that can be broken by a crash at some point.
fn harmed(broken: Option<Rule>) -> (usize, usize) {
    // Every plan is carried out, whatever it does to the files: only crashes are of interest here.
    let also_broken = Some(Rule::NeverWorse);
    let settings = Settings { rounds: 1, reserve: Some(Bytes(0)), broken, also_broken, ..Settings::default() };
    let (mut harmed, mut all) = (0, 0);
    for owners in layouts() {
        for moves in plans(owners, 3) {
            all += 1;
            let wrap = |step| Step::Move(PlannedMove { step, why: Why::MakeRoom });
            let plan = FixedPlan(vec![Batch { steps: moves.into_iter().map(wrap).collect(), saves: 0 }]);
            for crash_at in 1.. {
                let faults = Faults { crash_at: Some(crash_at), ..Faults::default() };
                let mut sim = SimVolume::new(layout(&owners), crash_at).with_faults(faults);
                let outcome = optimize_with(&mut sim, &settings, &mut Impatient::default(), &plan);
                if !sim.fault_happened() {
                    assert_eq!(outcome.unwrap().moves, 3);
                    break;
                }
                if sim.after_crash().check().is_err() {
                    harmed += 1;
                    break;
                }
            }
        }
    }
    (harmed, all)
}

#[test]
fn no_plan_on_a_tiny_volume_can_be_broken_by_a_crash() {
    assert_eq!(harmed(None), (0, 24 * 27));
}

#[test]
fn without_the_barrier_rule_many_plans_on_a_tiny_volume_can_be_broken() {
    let (harmed, all) = harmed(Some(Rule::Barrier));
    assert!(harmed > all / 4, "only {harmed} of {all} plans are harmed");
}

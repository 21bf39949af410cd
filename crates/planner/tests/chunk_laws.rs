//! Laws that every stage of a chunk-wise plan obeys, on random volumes.

use longrun_layout::Blocks;
use longrun_planner::Mode;
use longrun_planner::chunks::{
    Area, AreaIndex, Chunk, ChunkIndex, ChunkLimits, ChunkMap, Consolidation, Portion, Stage, Unit, next_stage,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const AREA: u64 = 1024;

fn maps() -> impl Strategy<Value = ChunkMap> {
    let piece = 1_u64..700;
    let chunk = (1_u64..5, prop::collection::vec(piece, 0..12), prop::bool::weighted(0.1), 0_u8..16);
    let unit = (0_u64..40, 1_u64..900, prop::collection::vec((0_usize..20, 1_u64..300), 1..5));
    (prop::collection::vec(chunk, 1..8), prop::collection::vec(unit, 0..40), 0_u64..8000).prop_map(
        |(chunks, units, unallocated)| {
            let mut areas = Vec::new();
            let chunks: Vec<Chunk> = chunks
                .into_iter()
                .zip(0..)
                .map(|((count, mut free, stays, done), number)| {
                    let length = count * AREA;
                    while free.iter().sum::<u64>() > length {
                        free.pop();
                    }
                    for area in 0..count {
                        let own: Vec<Blocks> =
                            if area == 0 { free.iter().map(|p| Blocks(*p)).collect() } else { Vec::new() };
                        let used = AREA.saturating_sub(own.iter().map(|p| p.0).sum());
                        areas.push(Area {
                            chunk: ChunkIndex(number),
                            old: done >> area & 1 == 0,
                            tidied: done & 12 == 12,
                            length: Blocks(AREA),
                            used: Blocks(used),
                            free: own,
                        });
                    }
                    Chunk { length: Blocks(length), free: free.into_iter().map(Blocks).collect(), stays }
                })
                .collect();
            let units = units
                .into_iter()
                .map(|(excess, written, vacates)| Unit {
                    excess,
                    written: Blocks(written),
                    divisible: written % 2 == 0,
                    vacates: vacates
                        .into_iter()
                        .map(|(at, b)| (AreaIndex((at % areas.len()) as u32), Blocks(b)))
                        .collect::<BTreeMap<_, _>>()
                        .into_iter()
                        .collect(),
                })
                .collect();
            ChunkMap {
                chunks,
                areas,
                unallocated: Blocks(unallocated),
                chunk_length: Blocks(2048),
                cleared_alone: Blocks(AREA * 2),
                units,
            }
        },
    )
}

fn limits() -> impl Strategy<Value = ChunkLimits> {
    let modes = prop_oneof![Just(Mode::Full), Just(Mode::Efficient), Just(Mode::Files)];
    (modes, prop::option::of(0_u64..9000), 0_u64..2000, 0_u64..100).prop_map(|(mode, budget, reserve, goal)| {
        ChunkLimits {
            mode,
            budget: budget.map(Blocks),
            for_files: Blocks(if goal % 5 == 0 { goal } else { u64::MAX }),
            reserve: Blocks(reserve),
            reserve_beside: Blocks(reserve / 2),
            has_just_emptied: reserve % 2 == 0,
            makes_room: reserve % 2 == 0,
            into_pieces: reserve % 3 == 0,
            space: if goal % 3 == 0 { Consolidation::Pays } else { Consolidation::OnTrial },
            goal,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_stage_needs_no_more_than_is_free_beside_the_reserve_and_in_the_budget(map in maps(), limits in limits()) {
        let stage = next_stage(&map, &limits);
        prop_assert_eq!(&stage, &next_stage(&map, &limits), "the same volume, the same stage");
        match stage {
            None => {}
            Some(Stage::Gather { portions: units, .. }) => {
                let distinct: BTreeSet<&Portion> = units.iter().collect();
                prop_assert!(!units.is_empty() && distinct.len() == units.len(), "each unit once");
                let written: u64 = units.iter().map(|portion| {
                    let unit = &map.units[portion.unit.0 as usize];
                    let inside = unit.vacates.iter().filter(|(area, _)| portion.within.contains(area));
                    if portion.within.is_empty() { unit.written.0 } else { inside.map(|(_, blocks)| blocks.0).sum() }
                }).sum();
                prop_assert!(written + limits.reserve.0 <= map.free_blocks().0);
                prop_assert!(limits.budget.is_none_or(|budget| written <= budget.0));
                let wanted = units.iter().any(|portion| map.units[portion.unit.0 as usize].excess > 0);
                prop_assert!(wanted || limits.mode == Mode::Full, "never for nothing");
            }
            Some(Stage::Evacuate { chunk, .. }) => {
                prop_assert!(limits.mode != Mode::Files, "files mode leaves free space alone");
                let chunk = &map.chunks[chunk.0 as usize];
                let elsewhere = map.free_blocks().0 - chunk.free_blocks().0;
                prop_assert!(!chunk.stays);
                prop_assert!(chunk.used().0 + limits.reserve_beside.0 <= elsewhere);
                prop_assert!(limits.budget.is_none_or(|budget| chunk.used() <= budget));
            }
        }
    }

    #[test]
    fn where_parts_are_moved_to_clear_areas_all_that_lies_there_is_moved(map in maps(), limits in limits()) {
        if let Some(Stage::Gather { portions, clears, .. }) = next_stage(&map, &limits)
            && portions.iter().any(|portion| !portion.within.is_empty())
        {
            for (area, (number, unit)) in clears.iter().flat_map(|area| (0..).zip(&map.units).map(move |unit| (area, unit))) {
                let here = unit.vacates.iter().any(|(at, _)| at == area);
                let moves = |portion: &Portion| {
                    portion.unit.0 == number && (portion.within.is_empty() || portion.within.contains(area))
                };
                prop_assert!(!here || portions.iter().any(moves), "{:?} stays in {:?}", unit, area);
            }
        }
    }

    #[test]
    fn what_is_done_for_the_free_space_promises_what_it_costs_and_is_little_until_it_has_paid(
        mut map in maps(),
        limits in limits(),
    ) {
        map.units.iter_mut().for_each(|unit| unit.excess = 0);
        let limits = ChunkLimits { mode: Mode::Full, ..limits };
        let used: u64 = map.chunks.iter().map(|chunk| chunk.used().0).sum();
        if let Some(stage) = next_stage(&map, &limits) {
            let (cost, promises) = match &stage {
                Stage::Gather { portions, promises, .. } => {
                    (portions.iter().map(|portion| map.units[portion.unit.0 as usize].written.0).sum(), *promises)
                }
                Stage::Evacuate { chunk, promises } => (map.chunks[chunk.0 as usize].used().0, *promises),
            };
            prop_assert!(promises > 0, "for nothing: {:?}", stage);
            prop_assert!(limits.space == Consolidation::Pays || cost <= used / 100, "{} of {}: {:?}", cost, used, stage);
        }
        let disappointed = ChunkLimits { space: Consolidation::Disappoints, ..limits };
        prop_assert_eq!(next_stage(&map, &disappointed), None);
    }

    #[test]
    fn where_nothing_is_in_pieces_only_a_full_plan_goes_on_for_the_free_space(mut map in maps(), limits in limits()) {
        map.units.iter_mut().for_each(|unit| unit.excess = 0);
        if limits.mode != Mode::Full {
            prop_assert_eq!(next_stage(&map, &limits), None);
        }
    }
}

#[test]
fn a_promise_that_is_not_kept_is_tried_once_more_if_one_was_before() {
    let begun = Consolidation::default();
    assert_eq!(begun.after(true), Consolidation::Pays);
    assert_eq!(begun.after(true).after(false), begun);
    assert_eq!(begun.after(false), Consolidation::Disappoints);
}

//! Laws that every stage of a chunk-wise plan obeys, on random volumes.

use longrun_layout::Blocks;
use longrun_planner::Mode;
use longrun_planner::chunks::{Area, AreaIndex, Chunk, ChunkLimits, ChunkMap, Portion, Stage, Unit, next_stage};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const AREA: u64 = 1024;

fn maps() -> impl Strategy<Value = ChunkMap> {
    let piece = 1_u64..700;
    let chunk = (1_u64..5, prop::collection::vec(piece, 0..12), prop::bool::weighted(0.1));
    let unit = (0_u64..40, 1_u64..900, prop::collection::vec((0_usize..20, 1_u64..300), 1..5));
    (prop::collection::vec(chunk, 1..8), prop::collection::vec(unit, 0..40), 0_u64..8000).prop_map(
        |(chunks, units, unallocated)| {
            let mut areas = Vec::new();
            let chunks: Vec<Chunk> = chunks
                .into_iter()
                .map(|(count, mut free, stays)| {
                    let length = count * AREA;
                    while free.iter().sum::<u64>() > length {
                        free.pop();
                    }
                    for area in 0..count {
                        let own: Vec<Blocks> =
                            if area == 0 { free.iter().map(|p| Blocks(*p)).collect() } else { Vec::new() };
                        let used = AREA.saturating_sub(own.iter().map(|p| p.0).sum());
                        areas.push(Area { length: Blocks(AREA), used: Blocks(used), free: own });
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
            ChunkMap { chunks, areas, unallocated: Blocks(unallocated), chunk_length: Blocks(2048), units }
        },
    )
}

fn limits() -> impl Strategy<Value = ChunkLimits> {
    let modes = prop_oneof![Just(Mode::Full), Just(Mode::Efficient), Just(Mode::Files)];
    (modes, prop::option::of(0_u64..9000), 0_u64..2000, 0_u64..100).prop_map(|(mode, budget, reserve, goal)| {
        ChunkLimits {
            mode,
            budget: budget.map(Blocks),
            reserve: Blocks(reserve),
            reserve_beside: Blocks(reserve / 2),
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
            Some(Stage::Gather(units)) => {
                let distinct: BTreeSet<Portion> = units.iter().copied().collect();
                prop_assert!(!units.is_empty() && distinct.len() == units.len(), "each unit once");
                let written: u64 = units.iter().map(|portion| {
                    let unit = &map.units[portion.unit.0 as usize];
                    portion.within.map_or(unit.written.0, |area| {
                        unit.vacates.iter().find(|(at, _)| *at == area).map_or(0, |(_, blocks)| blocks.0)
                    })
                }).sum();
                prop_assert!(written + limits.reserve.0 <= map.free_blocks().0);
                prop_assert!(limits.budget.is_none_or(|budget| written <= budget.0));
                let wanted = units.iter().any(|portion| map.units[portion.unit.0 as usize].excess > 0);
                prop_assert!(wanted || limits.mode == Mode::Full, "never for nothing");
            }
            Some(Stage::Evacuate(chunks)) => {
                prop_assert!(limits.mode != Mode::Files, "files mode leaves free space alone");
                prop_assert_eq!(chunks.len(), 1);
                for index in chunks {
                    let chunk = &map.chunks[index.0 as usize];
                    let elsewhere = map.free_blocks().0 - chunk.free_blocks().0;
                    prop_assert!(!chunk.stays);
                    prop_assert!(chunk.used().0 + limits.reserve_beside.0 <= elsewhere);
                    prop_assert!(limits.budget.is_none_or(|budget| chunk.used() <= budget));
                }
            }
        }
    }

    #[test]
    fn where_nothing_is_in_pieces_only_a_full_plan_goes_on_for_the_free_space(mut map in maps(), limits in limits()) {
        map.units.iter_mut().for_each(|unit| unit.excess = 0);
        if limits.mode != Mode::Full {
            prop_assert_eq!(next_stage(&map, &limits), None);
        }
    }
}

//! Trees are encoded, and read again by the reader that everything else uses.

use super::*;
use crate::bytes::{le16, le32};
use crate::ext4::scan::checksum::Crc32c;
use longrun_layout::{Blocks, LogicalBlock};
use std::collections::BTreeMap;

const BLOCK: usize = 1024;

/// Reads an encoded tree naively: the extents that it tells, and how many records each node has at most.
fn decode(encoded: &Encoded) -> Vec<Piece> {
    let nodes: BTreeMap<u64, &[u8]> = encoded.nodes.iter().map(|(block, node)| (*block, node.as_slice())).collect();
    let mut pieces = Vec::new();
    walk(&encoded.root, &nodes, le16(&encoded.root, 6), &mut pieces);
    pieces
}

fn walk(node: &[u8], nodes: &BTreeMap<u64, &[u8]>, depth: u16, pieces: &mut Vec<Piece>) {
    assert_eq!((le16(node, 0), le16(node, 6)), (EXTENT_MAGIC, depth));
    assert!(le16(node, 2) <= le16(node, 4) && usize::from(le16(node, 4)) < node.len() / RECORD);
    for record in node.chunks_exact(RECORD).skip(1).take(usize::from(le16(node, 2))) {
        if depth > 0 {
            let child = nodes[&(u64::from(le32(record, 4)) | u64::from(le16(record, 8)) << 32)];
            assert_eq!(le32(child, RECORD), le32(record, 0), "an index names the first block of its child");
            walk(child, nodes, depth - 1, pieces);
            continue;
        }
        let coded = le16(record, 4);
        let is_unwritten = coded > WRITTEN_LIMIT;
        let length = u64::from(if is_unwritten { coded - WRITTEN_LIMIT } else { coded });
        let physical = u64::from(le32(record, 8)) | u64::from(le16(record, 6)) << 32;
        pieces.push(Piece { logical: u64::from(le32(record, 0)), physical, length, is_unwritten });
    }
}

fn tree(pieces: Vec<Piece>) -> Tree {
    let mut tree = Tree::of(pieces, Vec::new());
    tree.nodes = (1000..).take(tree.needs(capacity(BLOCK))).collect();
    tree
}

fn piece(logical: u64, physical: u64, length: u64, is_unwritten: bool) -> Piece {
    Piece { logical, physical, length, is_unwritten }
}

#[test]
fn trees_of_every_depth_tell_the_extents_that_they_were_made_of() {
    for count in [0, 1, 4, 5, 84, 85, 336, 337, 7057, 30000] {
        let pieces: Vec<Piece> = (0..count).map(|at| piece(at * 3, (1 << 33) + at * 7, 2, at % 5 == 0)).collect();
        let tree = tree(pieces.clone());
        let encoded = tree.encode(BLOCK, Some(Crc32c::START));
        assert_eq!(encoded.nodes.len(), tree.nodes.len(), "{count}");
        assert_eq!(decode(&encoded), pieces, "{count}");
    }
}

#[test]
fn long_pieces_are_cut_where_a_record_can_hold_no_more() {
    let tree = tree(vec![piece(0, 100, 100_000, false), piece(100_000, 300_000, 70_000, true)]);
    let decoded = decode(&tree.encode(BLOCK, None));
    let lengths: Vec<u64> = decoded.iter().map(|piece| piece.length).collect();
    assert_eq!(lengths, [32768, 32768, 32768, 1696, 32767, 32767, 4466]);
    assert!(decoded.windows(2).all(|pair| pair[0].end() == pair[1].logical));
}

#[test]
fn what_moves_keeps_its_state_and_is_joined_with_its_neighbours() {
    let map = FileMap::default();
    assert_eq!(Tree::new(&map).runs(), []);
    let mut tree = tree(vec![piece(0, 10, 4, false), piece(4, 50, 4, true), piece(8, 90, 4, false)]);
    assert_eq!(tree.within(2, 8).unwrap().len(), 3);
    assert!(tree.within(10, 3).is_none());
    tree.put(2, 200, 8);
    assert_eq!(
        tree.pieces,
        [
            piece(0, 10, 2, false),
            piece(2, 200, 2, false),
            piece(4, 202, 4, true),
            piece(8, 206, 2, false),
            piece(10, 92, 2, false)
        ]
    );
    tree.put(0, 198, 2);
    tree.put(10, 208, 2);
    assert_eq!(tree.pieces, [piece(0, 198, 4, false), piece(4, 202, 4, true), piece(8, 206, 4, false)]);
    assert_eq!(tree.runs(), [Run::new(0, 198, 12)]);
}

#[test]
fn of_a_file_in_many_pieces_those_around_a_range_are_told() {
    let tree = tree((0..100).map(|at| piece(at * 3, at * 70, 2, false)).collect());
    let around = |start, length| {
        let range = LogicalRange { start: LogicalBlock(start), length: Blocks(length) };
        tree.runs_around(range).iter().map(|run| run.logical.0).collect::<Vec<u64>>()
    };
    assert_eq!(around(31, 4), [27, 30, 33, 36]);
    assert_eq!(around(32, 1), [30, 33], "a hole");
    assert_eq!(around(0, 1), [0, 3]);
    assert_eq!(around(297, 9), [294, 297]);
    assert_eq!(around(1000, 5), [297]);
    assert_eq!(tree.runs().len(), 100);
}

proptest::proptest! {
    /// Against a map of single blocks.
    #[test]
    fn any_moves_leave_each_block_where_the_last_one_put_it(
        lengths in proptest::collection::vec((1u64..6, 0u64..3, proptest::bool::ANY), 1..20),
        moves in proptest::collection::vec((0u64..80, 1u64..12), 0..20),
    ) {
        let (mut pieces, mut naive, mut logical) = (Vec::new(), BTreeMap::new(), 0);
        for (index, (length, hole, is_unwritten)) in lengths.iter().enumerate() {
            logical += hole;
            let physical = 100 + index as u64 * 10;
            pieces.push(piece(logical, physical, *length, *is_unwritten));
            naive.extend((0..*length).map(|at| (logical + at, (physical + at, *is_unwritten))));
            logical += length;
        }
        let mut tree = tree(pieces);
        for (number, (at, length)) in moves.into_iter().enumerate() {
            let target = 10_000 + number as u64 * 5;
            let is_whole = (at..at + length).all(|block| naive.contains_key(&block));
            proptest::prop_assert_eq!(tree.within(at, length).is_some(), is_whole);
            if is_whole {
                // A move that turns out to be impossible is taken back.
                let (before, pieces) = (tree.clone(), tree.within(at, length).unwrap());
                tree.put(at, target, length);
                pieces.iter().for_each(|piece| tree.put(piece.logical, piece.physical, piece.length));
                proptest::prop_assert_eq!(&tree, &before);
                tree.put(at, target, length);
                (0..length).for_each(|block| naive.get_mut(&(at + block)).unwrap().0 = target + block);
            }
        }
        let told: BTreeMap<u64, (u64, bool)> = tree
            .pieces
            .iter()
            .flat_map(|piece| (0..piece.length).map(move |at| (piece.logical + at, (piece.physical + at, piece.is_unwritten))))
            .collect();
        proptest::prop_assert_eq!(told, naive);
        proptest::prop_assert!(tree.pieces.windows(2).all(|pair| !pair[0].continues_into(&pair[1])));
        proptest::prop_assert_eq!(tree.records, records(&tree.pieces));
    }
}

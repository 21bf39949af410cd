//! Directories are made in memory, and read again by the checks that those of the kernel must pass.

use super::read::{Content, Entry};
use super::*;
use crate::ext4::scan::superblock::NameHash;
use std::collections::BTreeSet;

const OWN: u32 = 12;

fn format(block_bytes: usize, version: u8, has_sums: bool) -> Format {
    Format {
        block_bytes,
        seed: has_sums.then_some(Crc32c::from_seed(77)),
        has_types: true,
        has_index: true,
        most_levels: 1,
        name_hash: NameHash { seed: [1, 2, 3, 4], version, is_unsigned: Some(version == 1) },
        inodes: 1 << 20,
    }
}

fn content(names: &[Vec<u8>]) -> Content<'_> {
    let entries = names.iter().zip(20..).map(|(name, inode)| Entry { name, inode, kind: 1 }).collect();
    let dot = |name, inode| Entry { name, inode, kind: 2 };
    Content { dots: [dot(b".", OWN), dot(b"..", 2)], entries, version: None }
}

fn names(random: &mut fastrand::Rng, count: usize, lengths: std::ops::RangeInclusive<usize>) -> Vec<Vec<u8>> {
    let mut made = BTreeSet::new();
    while made.len() < count {
        let length = random.usize(lengths.clone());
        made.insert((0..length).map(|_| random.u8(b'0'..)).collect::<Vec<u8>>());
    }
    let mut names: Vec<Vec<u8>> = made.into_iter().collect();
    random.shuffle(&mut names);
    names
}

#[test]
fn directories_of_every_format_say_the_same_in_as_few_blocks_as_the_slack_allows() {
    let seed = longrun_lab::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..300 {
        let format = Format {
            has_index: round % 5 > 0,
            has_types: round % 7 > 0,
            ..format([1024, 2048, 4096, 65536][round % 4], (round % 3) as u8, round % 2 == 0)
        };
        let count = random.usize(0..2000);
        let names = names(&mut random, count, 4..=60);
        let mut made = content(&names);
        if !format.has_types {
            made.dots.iter_mut().chain(&mut made.entries).for_each(|entry| entry.kind = 0);
        }
        // It compares what it has made with what it was to make.
        let built = build(&format, OWN, &made).unwrap();
        let again = read(&format, OWN, built.is_indexed, &built.data).unwrap();
        assert_eq!(again.entries.len(), count);
        let bytes: usize = names.iter().map(|name| needs(name)).sum();
        let room = format.room() - if built.is_indexed { format.block_bytes / 5 } else { needs(&[0; 60]) };
        let blocks = built.data.len() / format.block_bytes;
        assert!(blocks <= bytes / room + 2 + blocks / 50, "{blocks} blocks for {bytes} bytes");
        assert_eq!(built.is_indexed, blocks > 1 && format.has_index);
    }
}

#[test]
fn a_third_level_is_made_only_where_the_volume_allows_it() {
    let names = names(&mut fastrand::Rng::with_seed(3), 60_000, 250..=250);
    let two = format(1024, 1, true);
    assert!(build(&two, OWN, &content(&names)).is_none());
    let three = Format { most_levels: 2, ..two };
    let built = build(&three, OWN, &content(&names)).unwrap();
    assert_eq!((built.data[INFO + 6], read(&three, OWN, true, &built.data).unwrap().entries.len()), (2, 60_000));
    assert!(read(&two, OWN, true, &built.data).is_err());
}

#[test]
fn names_with_the_same_hash_are_found_in_two_blocks() {
    let format = format(1024, 0, false);
    let hasher = hash::Hasher::new(&format.name_hash, 0).unwrap();
    let mut many = names(&mut fastrand::Rng::with_seed(5), 200_000, 250..=250);
    many.sort_by_key(|name| hasher.of(name).0);
    let same = many.windows(2).position(|pair| hasher.of(&pair[0]).0 == hasher.of(&pair[1]).0).unwrap();
    let mut odd = 0;
    // Three names fill a block: in one of these the pair is torn apart.
    for first in same - 3..=same {
        let built = build(&format, OWN, &content(&many[first..first + 12])).unwrap();
        let root = &built.data[IN_ROOT..];
        odd += (1..usize::from(root[2])).filter(|at| root[at * INDEX_ENTRY] & 1 == 1).count();
    }
    assert!(odd > 0);
}

#[test]
fn damage_is_noticed_or_means_nothing_and_never_panics() {
    let seed = longrun_lab::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for has_sums in [true, false] {
        let format = format(1024, 1, has_sums);
        let names = names(&mut random, 600, 10..=40);
        let sound = build(&format, OWN, &content(&names)).unwrap().data;
        let said = read(&format, OWN, true, &sound).unwrap();
        let mut refused = 0;
        for _ in 0..3000 {
            let mut data = sound.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..data.len());
                data[at] ^= 1 << random.u8(..8);
            }
            match read(&format, OWN, true, &data) {
                Err(_) => refused += 1,
                Ok(found) if has_sums => assert_eq!(found, said),
                Ok(found) => _ = build(&format, OWN, &found),
            }
            let _ = read(&format, OWN, false, &data);
            space_needed(&format, &data);
        }
        assert!(refused > 1000, "{refused}");
    }
}

#[test]
fn what_no_kernel_would_have_made_is_left_alone() {
    let plain = Format { has_index: false, ..format(1024, 1, false) };
    let with = |names: &[&[u8]], change: &dyn Fn(&mut Content<'_>)| {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        let mut made = content(&names);
        change(&mut made);
        build(&plain, OWN, &made).is_some()
    };
    assert!(with(&[b"a", b"b"], &|_| {}));
    assert!(!with(&[b"a", b"a"], &|_| {}), "a name twice");
    assert!(!with(&[b"a", b".."], &|_| {}) && !with(&[b"a/b"], &|_| {}) && !with(&[b"a\0"], &|_| {}));
    assert!(!with(&[b"a"], &|made| made.entries[0].inode = 2 << 20), "an inode that is not there");
    assert!(!with(&[b"a"], &|made| made.dots[0].inode = 13), "the inode of another directory");
    assert!(!with(&[b"a"], &|made| made.dots.swap(0, 1)));
}

//! A file is written over several records and read again: with records in memory.

use super::super::attribute::tests::data;
use super::super::record::tests::empty;
use super::super::runs::Segment;
use super::*;
use longrun_layout::{Blocks, LogicalBlock, PhysicalBlock, Run};
use proptest::prelude::*;
use std::cell::RefCell;

const CLUSTERS: u64 = 1 << 30;
const BASE: u64 = 64;

/// Records in memory, as a volume would have them.
#[derive(Default)]
struct Shelf(RefCell<BTreeMap<u64, Vec<u8>>>);

impl Records for Shelf {
    fn record(&self, number: u64) -> Read<Record> {
        let found = self.0.borrow().get(&number).cloned();
        found.map_or_else(|| damaged("no such record"), |bytes| Record::decode(number, bytes))
    }

    fn content(&self, _: &Map, _: u64) -> Read<Vec<u8>> {
        damaged("no list lies in clusters here")
    }

    fn clusters(&self) -> u64 {
        CLUSTERS
    }
}

impl Shelf {
    fn put(&self, composed: &Composed) {
        for record in composed.records.iter().chain(&composed.freed) {
            self.0.borrow_mut().insert(record.number, record.encode());
        }
    }

    fn in_use(&self) -> Vec<u64> {
        let is_in_use = |number: &u64| self.record(*number).is_ok_and(|record| record.is_in_use());
        self.0.borrow().keys().copied().filter(is_in_use).collect()
    }
}

fn resident(kind: u8, bytes: usize) -> Attribute {
    let mut raw = vec![0; 0x18];
    raw[0] = kind;
    raw[4] = 0x18;
    raw[0x14] = 0x18;
    raw.extend([0xff; 4]);
    let attribute = Attribute::parse_all(&raw, CLUSTERS).unwrap().remove(0);
    attribute.with_value(&vec![kind; bytes])
}

fn scattered(count: u64, step: u64) -> Map {
    let mut map = Map::default();
    (0..count).for_each(|n| map.push(Segment { vcn: n, lcn: Some(7 + n * step % 999_983), length: 1 }));
    map
}

/// A file of one record with $DATA in these clusters.
fn file(clusters: &Map) -> NtfsFile {
    let base = Record::decode(BASE, empty(BASE as u32)).unwrap();
    let attributes = [resident(0x10, 0x48), resident(0x30, 0x60), data(clusters.segments())];
    let members = attributes.into_iter().map(|attribute| Member::new(0, attribute)).collect();
    NtfsFile { records: vec![base], members, list: None, used: None }
}

/// Gives records of the shelf that are not in use.
fn spares(shelf: &Shelf) -> impl FnMut() -> Option<Record> {
    let mut next = 100;
    move || {
        while shelf.in_use().contains(&next) {
            next += 1;
        }
        next += 1;
        Some(shelf.record(next - 1).unwrap_or_else(|_| Record::blank(next - 1, 1024)))
    }
}

/// The file as it is written, distributed anew where it does not fit as it is.
fn composed(file: &NtfsFile, shelf: &Shelf) -> Option<Composed> {
    if file.clone().fits_as_it_is() { file.compose() } else { file.spread(&mut spares(shelf))?.compose() }
}

fn described(file: &NtfsFile) -> Vec<(Name, Vec<u8>, Option<Map>)> {
    let of = |a: &Attribute| (a.of.clone(), a.value().to_vec(), a.outside.clone());
    file.members.iter().map(|member| of(&member.attribute)).collect()
}

#[test]
fn a_file_grows_over_several_records_and_comes_back_into_one() {
    let shelf = Shelf::default();
    let large = file(&scattered(300, 70_001));
    let written = composed(&large, &shelf).unwrap();
    shelf.put(&written);
    assert!(shelf.in_use().len() > 2, "{:?}", shelf.in_use());
    let mut again = NtfsFile::read(&shelf, BASE).unwrap();
    assert_eq!(described(&again), described(&large));
    assert!(again.list.is_some() && again.map(0).is_some());
    again.put(0, LogicalBlock(0), PhysicalBlock(5000), Blocks(300));
    let written = composed(&again, &shelf).unwrap();
    shelf.put(&written);
    assert_eq!(shelf.in_use(), [BASE]);
    let whole = NtfsFile::read(&shelf, BASE).unwrap();
    assert_eq!(whole.map(0).unwrap().runs().collect::<Vec<_>>(), [Run::new(0, 5000, 300)]);
    assert!(whole.list.is_none());
}

#[test]
fn without_a_record_to_spare_nothing_is_written() {
    let mut large = file(&scattered(300, 70_001));
    let before = described(&large);
    assert!(!large.fits_as_it_is() && large.compose().is_none() && large.spread(&mut || None).is_none());
    assert_eq!((described(&large), large.records.len()), (before, 1), "nothing has changed");
    let mut small = file(&scattered(20, 70_001));
    assert!(small.fits_as_it_is() && small.compose().is_some());
}

#[test]
fn a_list_that_contradicts_the_records_is_found() {
    let shelf = Shelf::default();
    shelf.put(&composed(&file(&scattered(300, 70_001)), &shelf).unwrap());
    let others: Vec<u64> = shelf.in_use().into_iter().filter(|number| *number != BASE).collect();
    let freed = shelf.record(others[0]).unwrap().freed();
    shelf.0.borrow_mut().insert(freed.number, freed.encode());
    let error = format!("{:?}", NtfsFile::read(&shelf, BASE).unwrap_err());
    assert!(error.contains("listed in record 64 and not of it"), "{error}");
}

/// Story: of a file with two names in one record, the list named one of them twice. Both were read as that one, and the other was lost.
#[test]
fn a_list_that_names_an_attribute_twice_is_found() {
    let shelf = Shelf::default();
    let mut two_names = file(&scattered(300, 70_001));
    two_names.members.insert(1, Member::new(0, resident(0x30, 0x60)));
    shelf.put(&composed(&two_names, &shelf).unwrap());
    assert_eq!(described(&NtfsFile::read(&shelf, BASE).unwrap()), described(&two_names));
    let base = shelf.record(BASE).unwrap();
    let put = |change: &dyn Fn(&mut Vec<Attribute>)| {
        let mut attributes = Attribute::parse_all(base.attributes(), CLUSTERS).unwrap();
        change(&mut attributes);
        let bytes: Vec<u8> = attributes.iter().flat_map(Attribute::encode).collect();
        shelf.0.borrow_mut().insert(BASE, base.with_attributes(&bytes, 9).encode());
        NtfsFile::read(&shelf, BASE).map_err(|error| format!("{error:?}"))
    };
    assert!(put(&|_| ()).is_ok());
    let is_list = |attribute: &Attribute| attribute.of.kind == kind::ATTRIBUTE_LIST;
    let error = put(&|attributes| {
        let list = attributes.iter_mut().find(|attribute| is_list(attribute)).unwrap();
        let mut entries = Entry::parse_all(list.value()).unwrap();
        let names: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].of.kind == 0x30).collect();
        entries[names[0]].instance = entries[names[1]].instance;
        *list = list.with_value(&entries.iter().flat_map(Entry::encode).collect::<Vec<_>>());
    })
    .unwrap_err();
    assert!(error.contains("names what is not there"), "{error}");
    let error = put(&|attributes| {
        let at = attributes.iter().position(is_list).unwrap();
        attributes.insert(at, attributes[at].clone());
    })
    .unwrap_err();
    assert!(error.contains("several attribute lists"), "{error}");
}

proptest! {
    /// Whatever moves: what was written is read again, and every record has room for what it holds.
    #[test]
    fn what_is_composed_is_read_again(moves in proptest::collection::vec((0u64..250, 1u64..60, 0u64..CLUSTERS - 999), 1..12), count in 1u64..250) {
        let shelf = Shelf::default();
        let mut current = file(&scattered(count, 70_001));
        shelf.put(&composed(&current, &shelf).unwrap());
        for (at, length, target) in moves {
            current = NtfsFile::read(&shelf, BASE).unwrap();
            let length = length.min(count.saturating_sub(at));
            if length == 0 { continue }
            current.put(0, LogicalBlock(at), PhysicalBlock(target), Blocks(length));
            let written = composed(&current, &shelf).unwrap();
            prop_assert!(written.records.iter().all(|record| record.encode().len() == 1024));
            shelf.put(&written);
            let again = NtfsFile::read(&shelf, BASE).unwrap();
            prop_assert_eq!(described(&again), described(&current));
            prop_assert_eq!(again.records.len(), shelf.in_use().len(), "no record is lost");
        }
    }

    /// A file that moves many times before it is written, and is distributed anew when that is needed, is written once.
    #[test]
    fn many_moves_are_written_at_once(moves in proptest::collection::vec((0u64..600, 1u64..90, 0u64..CLUSTERS - 999), 1..40)) {
        let shelf = Shelf::default();
        shelf.put(&composed(&file(&scattered(600, 70_001)), &shelf).unwrap());
        let mut current = NtfsFile::read(&shelf, BASE).unwrap();
        let mut next = spares(&shelf);
        for (at, length, target) in moves {
            current.put(0, LogicalBlock(at), PhysicalBlock(target), Blocks(length.min(600 - at)));
            if !current.fits_as_it_is() {
                current = current.spread(&mut next).unwrap();
                prop_assert!(current.fits_as_it_is());
            }
        }
        shelf.put(&current.compose().unwrap());
        let again = NtfsFile::read(&shelf, BASE).unwrap();
        prop_assert_eq!(described(&again), described(&current));
        prop_assert_eq!(again.records.len(), shelf.in_use().len(), "no record is lost");
    }

    /// What is counted as a file moves step by step is what its records take in the end, and it fits where that says so.
    #[test]
    fn what_fits_as_it_is_can_be_written_without_another_record(moves in proptest::collection::vec((0u64..600, 1u64..90, 0u64..CLUSTERS - 999), 1..40)) {
        let shelf = Shelf::default();
        shelf.put(&composed(&file(&scattered(600, 70_001)), &shelf).unwrap());
        let mut current = NtfsFile::read(&shelf, BASE).unwrap();
        prop_assert!(current.fits_as_it_is() && current.records.len() > 3);
        for (at, length, target) in moves {
            let (at, length) = (LogicalBlock(at), Blocks(length.min(600 - at)));
            let before = current.map(0).unwrap().within(at, length).unwrap();
            current.put(0, at, PhysicalBlock(target), length);
            let mut anew = NtfsFile { used: None, ..current.clone() };
            let fits = current.fits_as_it_is();
            prop_assert_eq!(anew.fits_as_it_is(), fits);
            prop_assert_eq!(&current.used, &anew.used);
            if fits {
                prop_assert!(current.compose().is_some());
            } else {
                before.iter().for_each(|run| current.put(0, run.logical, run.physical, run.length));
                prop_assert!(current.fits_as_it_is(), "taken back, it fits again");
            }
        }
    }
}

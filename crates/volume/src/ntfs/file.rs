//! A file in all its records: its streams, and how they are written back after some of them have moved.
//!
//! Owns which attribute stands in which record. Never reads or writes the disk itself.

mod spread;

use super::attribute::{Attribute, Name, kind};
use super::fault::{Read, damaged};
use super::list::Entry;
use super::record::{Record, Reference};
use super::runs::Map;
use longrun_layout::{Blocks, LogicalBlock, PhysicalBlock};
use std::collections::{BTreeMap, BTreeSet};

/// The stream that holds the list of a file's attributes, among the numbers of its streams.
pub(super) const LIST: u16 = u16::MAX;
/// $MFT. Where its records lie is told by these records, so that they are kept where every reader looks first.
pub(super) const MFT: u64 = 0;

/// Where records are read from.
pub(super) trait Records {
    /// The record of this number.
    fn record(&self, number: u64) -> Read<Record>;
    /// The first `bytes` bytes that lie there.
    fn content(&self, map: &Map, bytes: u64) -> Read<Vec<u8>>;
    /// Clusters of the volume.
    fn clusters(&self) -> u64;
}

/// A file in all its records.
#[derive(Clone, Debug)]
pub(super) struct NtfsFile {
    /// The base record, and those that extend it. What stands in them on the disk may be older than the members.
    records: Vec<Record>,
    /// In the order in which NTFS has them. A stream that has several extents is one of them, and stands where its first does.
    members: Vec<Member>,
    list: Option<Attribute>,
    /// The bytes that attributes take in each record. Known while the file moves.
    used: Option<Vec<usize>>,
}

#[derive(Clone, Debug)]
struct Member {
    /// Which of the records.
    at: usize,
    attribute: Attribute,
    /// The other extents of a stream: in which of the records each stands, and the first cluster that it maps.
    more: Vec<(usize, u64)>,
}

impl Member {
    fn new(at: usize, attribute: Attribute) -> Self {
        Self { at, attribute, more: Vec::new() }
    }

    /// The extents of a stream: in which of the records each stands, its first cluster, and the one
    /// behind its last.
    fn extents(&self, map: &Map) -> impl Iterator<Item = (usize, u64, u64)> {
        let starts = std::iter::once((self.at, 0)).chain(self.more.iter().copied());
        let ends = self.more.iter().map(|(_, lowest)| *lowest).chain([map.end()]);
        starts.zip(ends).map(|((at, start), end)| (at, start, end))
    }
}

/// A file as it shall be written.
#[derive(Debug)]
pub(super) struct Composed {
    /// Records in use.
    pub(super) records: Vec<Record>,
    /// Records that are not in use any more.
    pub(super) freed: Vec<Record>,
    /// The content of the list, where it does not stand in the base record, and where it lies.
    pub(super) list: Option<(Map, Vec<u8>)>,
    /// Where a list lay that is not needed any more.
    pub(super) vacated: Map,
}

/// One record while a file is composed.
struct Slot {
    record: Record,
    used: usize,
    /// By the member that it is of.
    content: Vec<(usize, Attribute)>,
    is_new: bool,
}

impl Slot {
    fn left(&self) -> usize {
        self.record.room().saturating_sub(self.used)
    }

    fn take(&mut self, member: usize, attribute: Attribute) {
        self.used += attribute.encoded_len();
        self.content.push((member, attribute));
    }
}

impl NtfsFile {
    /// Reads the file whose base record has this number.
    pub(super) fn read(records: &dyn Records, number: u64) -> Read<Self> {
        let base = records.record(number)?;
        let own = Attribute::parse_all(base.attributes(), records.clusters())?;
        let (lists, attributes): (Vec<_>, Vec<_>) = own.into_iter().partition(|a| a.of.kind == kind::ATTRIBUTE_LIST);
        if lists.len() > 1 {
            return damaged(format!("file record {number} has several attribute lists"));
        }
        let Some(list) = lists.into_iter().next() else {
            let members = merged(attributes.into_iter().map(|attribute| Member::new(0, attribute)).collect())?;
            return Ok(Self { records: vec![base], members, list: None, used: None });
        };
        let entries = Entry::parse_all(&match &list.outside {
            None => list.value().to_vec(),
            Some(map) => records.content(map, list.size())?,
        })?;
        let reference = base.reference();
        let others: BTreeSet<Reference> =
            entries.iter().map(|entry| entry.record).filter(|r| *r != reference).collect();
        let mut all = vec![base];
        let mut found = vec![attributes];
        for other in others {
            let record = records.record(other.number)?;
            if !record.is_in_use() || record.reference() != other || record.base() != Some(reference) {
                return damaged(format!("file record {} is listed in record {number} and not of it", other.number));
            }
            let attributes = Attribute::parse_all(record.attributes(), records.clusters())?;
            found.push(attributes);
            all.push(record);
        }
        // The list has the right order. Each attribute is taken once: of a name that is listed twice in the place of another one, that
        // other one would be lost when the file is written.
        let mut members = Vec::with_capacity(entries.len());
        for entry in &entries {
            let at = all.iter().position(|record| record.reference() == entry.record);
            let attribute = at.and_then(|at| {
                let here = found.get_mut(at)?;
                let is_meant =
                    |a: &Attribute| a.of == entry.of && a.lowest == entry.lowest && a.instance() == entry.instance;
                Some(here.swap_remove(here.iter().position(is_meant)?))
            });
            let (Some(at), Some(attribute)) = (at, attribute) else {
                return damaged(format!("the attribute list of file record {number} names what is not there"));
            };
            members.push(Member::new(at, attribute));
        }
        if found.iter().any(|left| !left.is_empty()) {
            return damaged(format!("the attribute list of file record {number} is not complete"));
        }
        Ok(Self { records: all, members: merged(members)?, list: Some(list), used: None })
    }

    /// Its base record's number and sequence number.
    pub(super) fn reference(&self) -> Reference {
        self.records.first().map_or(Reference { number: 0, sequence: 0 }, Record::reference)
    }

    /// Its attributes; each stream is one.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.members.iter().map(|member| &member.attribute).chain(&self.list)
    }

    /// The attribute of this name.
    pub(super) fn attribute(&self, of: &Name) -> Option<&Attribute> {
        self.attributes().find(|attribute| attribute.of == *of)
    }

    /// Where the stream of this number lies ([`numbered`]).
    pub(super) fn map(&self, stream: u16) -> Option<&Map> {
        if stream == LIST {
            return self.list.as_ref()?.outside.as_ref();
        }
        let of = self.name_of(stream)?;
        self.attribute(&of)?.outside.as_ref()
    }

    /// Says that clusters of the stream of this number lie elsewhere now. Costs what the extents cost that they are of, however many
    /// there are: a file in thousands of fragments moves by thousands of steps.
    pub(super) fn put(&mut self, stream: u16, logical: LogicalBlock, target: PhysicalBlock, length: Blocks) {
        if stream == LIST {
            // How long its mapping pairs are is no figure of `used`: it is made anew.
            self.used = None;
            if let Some(map) = self.list.as_mut().and_then(|list| list.outside.as_mut()) {
                map.put(logical, target, length);
            }
            return;
        }
        let Some(of) = self.name_of(stream) else { return };
        let found = self.members.iter_mut().find(|member| member.attribute.of == of && !member.attribute.is_resident());
        let Some(member) = found else { return };
        let (start, end) = (logical.0, logical.0 + length.0);
        let touched: Vec<(usize, u64, u64)> = match &member.attribute.outside {
            Some(map) if self.used.is_some() => {
                member.extents(map).filter(|(_, from, to)| *from < end && *to > start).collect()
            }
            _ => Vec::new(),
        };
        let lengths = |attribute: &Attribute| {
            let length = |(at, from, to): &(usize, u64, u64)| (*at, attribute.part_len(*from, *to));
            touched.iter().map(length).collect::<Vec<_>>()
        };
        let before = lengths(&member.attribute);
        if let Some(map) = member.attribute.outside.as_mut() {
            map.put(logical, target, length);
        }
        let after = lengths(&member.attribute);
        for ((at, before), (_, after)) in before.into_iter().zip(after) {
            if let Some(used) = self.used.as_mut().and_then(|used| used.get_mut(at)) {
                *used = (*used + after).saturating_sub(before);
            }
        }
    }

    /// Whether it can be written with every extent in the record where it is.
    pub(super) fn fits_as_it_is(&mut self) -> bool {
        let Some(list) = &self.list else { return self.fits_in_one() };
        if self.used.is_none() {
            self.used = self.as_they_are(list).map(|slots| slots.iter().map(|slot| slot.used).collect());
        }
        let rooms = self.records.iter().map(Record::room);
        let fits = self.used.as_ref().is_some_and(|used| used.iter().zip(rooms).all(|(used, room)| *used <= room));
        fits || self.fits_in_one()
    }

    /// Whether its base record has room for everything.
    fn fits_in_one(&self) -> bool {
        let needed: usize = self.members.iter().map(|member| member.attribute.encoded_len()).sum();
        self.records.first().is_some_and(|base| needed <= base.room())
    }

    fn name_of(&self, stream: u16) -> Option<Name> {
        let numbers = numbered(self.attributes());
        numbers.into_iter().find(|(_, number)| *number == stream).map(|(of, _)| of)
    }

    /// The same file with another value of a resident attribute, which must be as long as the old one.
    pub(super) fn set_value(&mut self, of: &Name, value: &[u8]) {
        for member in self.members.iter_mut().filter(|member| member.attribute.of == *of) {
            member.attribute = member.attribute.with_value(value);
        }
    }

    /// The file as it shall be written: in its base record alone when that has room for everything; else with every extent in the
    /// record where it is. `None` when there is no room for that.
    pub(super) fn compose(&self) -> Option<Composed> {
        let (base, others) = self.records.split_first()?;
        if self.fits_in_one() {
            let mut slot = Slot { record: base.clone(), used: 0, content: Vec::new(), is_new: false };
            self.members.iter().enumerate().for_each(|(at, member)| slot.take(at, member.attribute.clone()));
            let vacated = self.list.as_ref().and_then(|list| list.outside.clone()).unwrap_or_default();
            let freed = others.iter().map(Record::freed).collect();
            return Some(Composed { records: vec![written(slot, None)], freed, list: None, vacated });
        }
        let fits = |slots: &Vec<Slot>| slots.iter().all(|slot| slot.used <= slot.record.room());
        let list = self.list.as_ref()?;
        compose_listed(self.as_they_are(list).filter(fits)?, list)
    }

    fn slots(&self) -> Vec<Slot> {
        let slot = |record: &Record| Slot { record: record.clone(), used: 0, content: Vec::new(), is_new: false };
        self.records.iter().map(slot).collect()
    }

    /// Every extent where it is, whether it fits or not: what has moved together has fewer pieces than before.
    fn as_they_are(&self, list: &Attribute) -> Option<Vec<Slot>> {
        let mut slots = self.slots();
        slots.first_mut()?.used += list.encoded_len();
        for (number, member) in self.members.iter().enumerate() {
            let Some(map) = &member.attribute.outside else {
                slots.get_mut(member.at)?.take(number, member.attribute.clone());
                continue;
            };
            for (at, start, end) in member.extents(map) {
                slots.get_mut(at)?.take(number, member.attribute.part(start, end)?);
            }
        }
        Some(slots)
    }
}

/// The records of a file that has a list.
fn compose_listed(slots: Vec<Slot>, list: &Attribute) -> Option<Composed> {
    let (mut records, mut freed, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for (at, slot) in slots.iter().enumerate() {
        if at > 0 && slot.content.is_empty() {
            freed.push(slot.record.freed());
            continue;
        }
        for ((member, attribute), instance) in ordered(&slot.content).into_iter().zip(instances(at)) {
            let entry =
                Entry { of: attribute.of.clone(), lowest: attribute.lowest, record: slot.record.reference(), instance };
            entries.push((*member, attribute.lowest, entry));
        }
    }
    entries.sort_by_key(|(member, lowest, _)| (*member, *lowest));
    let bytes: Vec<u8> = entries.iter().flat_map(|(_, _, entry)| entry.encode()).collect();
    let (own, content) = match &list.outside {
        None => (list.with_value(&bytes), None),
        Some(_) if bytes.len() as u64 > list.allocated() => return None,
        Some(map) => (list.resized(bytes.len() as u64), Some((map.clone(), bytes))),
    };
    let mut own = Some(own);
    for (at, slot) in slots.into_iter().enumerate() {
        if at == 0 || !slot.content.is_empty() {
            records.push(written(slot, own.take()));
        }
    }
    Some(Composed { records, freed, list: content, vacated: Map::default() })
}

/// The numbers of the attributes of a record. The first one of a base record with a list is the list's.
fn instances(slot: usize) -> std::ops::RangeFrom<u16> {
    u16::from(slot == 0)..
}

/// In the order in which attributes stand in a record.
fn ordered(content: &[(usize, Attribute)]) -> Vec<&(usize, Attribute)> {
    let mut ordered: Vec<_> = content.iter().collect();
    ordered.sort_by_key(|(member, attribute)| (*member, attribute.lowest));
    ordered
}

/// The record with its attributes, numbered anew: nothing but the list refers to these numbers.
fn written(slot: Slot, list: Option<Attribute>) -> Record {
    let first = u16::from(list.is_some());
    let mut list = list.map(|list| list.numbered(0).encode());
    let mut bytes = Vec::new();
    let mut next = first;
    for (_, attribute) in ordered(&slot.content) {
        if attribute.of.kind > kind::ATTRIBUTE_LIST {
            bytes.extend(list.take().unwrap_or_default());
        }
        bytes.extend(attribute.numbered(next).encode());
        next += 1;
    }
    bytes.extend(list.unwrap_or_default());
    slot.record.with_attributes(&bytes, next)
}

/// The attributes with each stream as one: its extents must follow each other without a gap.
fn merged(members: Vec<Member>) -> Read<Vec<Member>> {
    let mut whole: Vec<Member> = Vec::with_capacity(members.len());
    let mut streams: BTreeMap<Name, usize> = BTreeMap::new();
    for member in members {
        let Some(map) = member.attribute.outside.as_ref() else {
            whole.push(member);
            continue;
        };
        match streams.get(&member.attribute.of).and_then(|at| whole.get_mut(*at)) {
            None if member.attribute.lowest == 0 => {
                streams.insert(member.attribute.of.clone(), whole.len());
                whole.push(member);
            }
            Some(first) => {
                let Some(joined) = first.attribute.outside.as_mut().filter(|m| m.end() == member.attribute.lowest)
                else {
                    return damaged("the extents of an attribute do not follow each other");
                };
                map.segments().iter().for_each(|segment| joined.push(*segment));
                first.more.push((member.at, member.attribute.lowest));
            }
            None => return damaged("the first extent of an attribute is missing"),
        }
    }
    Ok(whole)
}

/// The attributes of a file, collected from all its records in any order, with each stream as one.
pub(super) fn joined(mut attributes: Vec<Attribute>) -> Read<Vec<Attribute>> {
    attributes.sort_by(|a, b| (&a.of, a.lowest).cmp(&(&b.of, b.lowest)));
    let members = attributes.into_iter().map(|attribute| Member::new(0, attribute)).collect();
    Ok(merged(members)?.into_iter().map(|member| member.attribute).collect())
}

/// The streams among the attributes of a file, each with the number by which the model knows it. Only what does not stand in a
/// record is a stream. The numbers stay the same when a file moves, whether it has a list or not.
pub(super) fn numbered<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> Vec<(Name, u16)> {
    let names: BTreeSet<&Name> = attributes.filter(|attribute| !attribute.is_resident()).map(|a| &a.of).collect();
    let mut next = 0;
    let mut number = |of: &&Name| {
        if of.kind == kind::ATTRIBUTE_LIST {
            return LIST;
        }
        next += 1;
        next - 1
    };
    names.into_iter().map(|of| (of.clone(), number(&of))).collect()
}

#[cfg(test)]
mod tests;

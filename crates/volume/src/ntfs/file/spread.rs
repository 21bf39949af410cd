//! The extents of a file's streams are distributed over its records anew, when one has grown out of its record.
//!
//! Owns how many records that takes, and what is left free in each.

use super::{MFT, NtfsFile, Slot};
use crate::ntfs::attribute::Attribute;
use crate::ntfs::list::{self, Entry};
use crate::ntfs::record::Record;

/// A part of a stream that takes less of a record is not worth an extent of its own.
const LEAST_EXTENT: usize = 64;
/// Of a record that has extents of streams, this part is left free.
const SLACK: usize = 8;
/// Attempts to find how long the list gets: each extent makes it longer, and that can make one more.
const ATTEMPTS: u32 = 16;

impl NtfsFile {
    /// The same file with the extents of its streams distributed over as many records as it takes, new ones by `spare`; `None` when there
    /// is no room. In each record a part is left free: the next moves change how long an extent is, and need not distribute all of them
    /// once more.
    pub(in super::super) fn spread(&self, spare: &mut dyn FnMut() -> Option<Record>) -> Option<Self> {
        // Every reader must find the records of $MFT before it knows where records lie: they are not distributed anew.
        let base = self.records.first().filter(|base| base.number != MFT)?;
        let (slack, mut spares) = (base.room() / SLACK, Vec::new());
        self.spread_with(slack, &mut spares, spare).or_else(|| self.spread_with(0, &mut spares, spare))
    }

    /// The same file with `slack` bytes left free in each record. `spares` are records that `spare` gave before.
    fn spread_with(
        &self,
        slack: usize,
        spares: &mut Vec<Record>,
        spare: &mut dyn FnMut() -> Option<Record>,
    ) -> Option<Self> {
        let mut guess = self.members.iter().map(|member| Entry::length(&member.attribute.of)).sum::<usize>();
        let list = self.list.clone().or_else(|| list::empty().ok())?;
        for _ in 0..ATTEMPTS {
            let mut taken = 0;
            let mut next = || {
                if spares.len() == taken {
                    spares.push(spare()?);
                }
                taken += 1;
                spares.get(taken - 1).cloned()
            };
            let slots = self.distribute(&list, guess, slack, &mut next)?;
            let length: usize = slots.iter().flat_map(|slot| &slot.content).map(|(_, a)| Entry::length(&a.of)).sum();
            if list.outside.is_some() {
                return (length as u64 <= list.allocated()).then(|| self.in_slots(slots, list))?;
            }
            if length <= guess {
                return self.in_slots(slots, list.with_value(&vec![0; length]));
            }
            guess = length;
        }
        None
    }

    /// The same file with every extent in the record of its slot. Records that it does not need any more stay its own until it is
    /// written.
    fn in_slots(&self, slots: Vec<Slot>, list: Attribute) -> Option<Self> {
        let mut file = Self { records: Vec::new(), members: self.members.clone(), list: Some(list), used: None };
        let mut extents = vec![Vec::new(); file.members.len()];
        for slot in slots {
            if slot.is_new && slot.content.is_empty() {
                continue;
            }
            for (member, part) in &slot.content {
                extents.get_mut(*member)?.push((part.lowest, file.records.len()));
            }
            file.records.push(slot.record);
        }
        for (member, mut extents) in file.members.iter_mut().zip(extents) {
            extents.sort_unstable();
            let mut places = extents.into_iter().map(|(lowest, at)| (at, lowest));
            member.at = places.next()?.0;
            member.more = places.collect();
        }
        Some(file)
    }

    /// Puts every attribute into a record: what is resident stays where it is; streams go into the base record as far
    /// as they fit there, the shortest first, and the others into those that extend it.
    fn distribute(
        &self,
        list: &Attribute,
        entries: usize,
        slack: usize,
        spare: &mut dyn FnMut() -> Option<Record>,
    ) -> Option<Vec<Slot>> {
        let mut slots = self.slots();
        let own = if list.is_resident() { list.with_value(&vec![0; entries]) } else { list.clone() };
        slots.first_mut()?.used += own.encoded_len();
        let mut streams = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            if member.attribute.is_resident() {
                slots.get_mut(member.at)?.take(number, member.attribute.clone());
            } else {
                streams.push((member.attribute.encoded_len(), number));
            }
        }
        if slots.iter().any(|slot| slot.used > slot.record.room()) {
            return None;
        }
        streams.sort_unstable();
        for (length, number) in streams {
            let attribute = &self.members.get(number)?.attribute;
            let base = slots.first_mut()?;
            if length <= base.left() {
                base.take(number, attribute.clone());
                continue;
            }
            let (mut vcn, end, mut at) = (0, attribute.outside.as_ref()?.end(), 1);
            loop {
                if at == slots.len() {
                    let base = slots.first()?.record.clone();
                    let record = spare()?.extending(base.reference(), &base);
                    slots.push(Slot { record, used: 0, content: Vec::new(), is_new: true });
                }
                let slot = slots.get_mut(at)?;
                match attribute.extent(vcn, slot.left().saturating_sub(slack)) {
                    Some((part, to)) if to >= end || part.encoded_len() >= LEAST_EXTENT + 0x40 => {
                        slot.take(number, part);
                        vcn = to;
                    }
                    _ if slot.is_new && slot.content.is_empty() => return None,
                    _ => {}
                }
                if vcn >= end {
                    break;
                }
                at += 1;
            }
        }
        Some(slots)
    }
}

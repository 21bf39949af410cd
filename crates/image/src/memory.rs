//! A disk in memory whose power can be cut: for tests of what writes to disks.
//!
//! Owns the record of what was written since the last flush, and the states that a cut can leave. Never touches a device.
//! States share the pages in which they do not differ, so that thousands of them are cheap.

use crate::Disk;
use crate::disk::within;
use longrun_layout::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a device writes as one: a cut leaves it old or new.
const SECTOR: usize = 512;
/// What states share.
const PAGE: usize = 4096;

/// A disk in memory. It records its writes, so that [`MemoryDisk::cut`] can tell what a loss of power at any moment
/// would leave.
pub struct MemoryDisk {
    state: Mutex<State>,
    length: u64,
}

struct State {
    now: MemoryImage,
    /// The image as it was made; all writes since are in `events`.
    before: MemoryImage,
    events: Vec<Event>,
    /// The image when so many events had happened, the last of them a flush: cuts in ascending order do not begin at the
    /// beginning again.
    reached: (usize, MemoryImage),
}

enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// What was on a disk in memory at one moment. A copy is cheap.
#[derive(Clone)]
pub struct MemoryImage {
    base: Arc<Vec<u8>>,
    /// The pages that are not as in `base`.
    changed: BTreeMap<usize, Arc<Vec<u8>>>,
}

impl MemoryImage {
    fn new(content: Vec<u8>) -> Self {
        Self { base: Arc::new(content), changed: BTreeMap::new() }
    }

    /// Its bytes.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        let mut content = self.base.to_vec();
        for (number, page) in &self.changed {
            if let Some(place) = content.get_mut(number * PAGE..number * PAGE + page.len()) {
                place.copy_from_slice(page);
            }
        }
        content
    }

    /// Calls `see` with every range in which this may differ from `other`, and what is there: little more than what was
    /// written, when both come from the same disk. `false` when they do not, or are not equally long: nothing is known
    /// then.
    pub fn differences(&self, other: &Self, mut see: impl FnMut(Bytes, &[u8])) -> bool {
        if !Arc::ptr_eq(&self.base, &other.base) {
            return false;
        }
        for (number, page) in &self.changed {
            if other.changed.get(number).is_none_or(|theirs| !Arc::ptr_eq(page, theirs) && page != theirs) {
                see(Bytes((number * PAGE) as u64), page);
            }
        }
        for number in other.changed.keys().filter(|number| !self.changed.contains_key(number)) {
            see(Bytes((number * PAGE) as u64), self.page(*number));
        }
        true
    }

    fn page(&self, number: usize) -> &[u8] {
        if let Some(page) = self.changed.get(&number) {
            return page;
        }
        let rest = self.base.get(number * PAGE..).unwrap_or_default();
        rest.get(..PAGE).unwrap_or(rest)
    }

    fn read(&self, mut at: usize, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let inside = at % PAGE;
            let page = self.page(at / PAGE).get(inside..).unwrap_or_default();
            // Nothing lies behind the end: the caller has looked.
            let length = page.len().min(buffer.len());
            let (now, rest) = buffer.split_at_mut(length);
            now.copy_from_slice(page.get(..length).unwrap_or_default());
            if length == 0 {
                return;
            }
            at += length;
            buffer = rest;
        }
    }

    fn write(&mut self, mut at: usize, mut data: &[u8]) {
        while !data.is_empty() {
            let (number, inside) = (at / PAGE, at % PAGE);
            let (now, rest) = data.split_at(data.len().min(PAGE - inside));
            if !self.changed.contains_key(&number) {
                let page = self.page(number).to_vec();
                self.changed.insert(number, Arc::new(page));
            }
            if let Some(page) = self.changed.get_mut(&number)
                && let Some(place) = Arc::make_mut(page).get_mut(inside..inside + now.len())
            {
                place.copy_from_slice(now);
            }
            at += now.len();
            data = rest;
        }
    }
}

impl MemoryDisk {
    /// A disk with this content, which is durable.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        Self::from_image(MemoryImage::new(content))
    }

    /// A disk with this content, which is durable. It shares what it does not change with all other disks that were made
    /// of the same image.
    #[must_use]
    pub fn from_image(image: MemoryImage) -> Self {
        let length = image.base.len() as u64;
        let (before, reached) = (image.clone(), (0, image.clone()));
        Self { state: Mutex::new(State { before, now: image, events: Vec::new(), reached }), length }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content as the last write left it.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state().now.content()
    }

    /// The content as the last write left it, in a form that is cheap to keep.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        self.state().now.clone()
    }

    /// How many writes and flushes there were: a cut can come before each, and after the last.
    #[must_use]
    pub fn events(&self) -> usize {
        self.state().events.len()
    }

    /// Which events were flushes. Most is at stake when power is lost before one of them.
    #[must_use]
    pub fn flushes(&self) -> Vec<usize> {
        let state = self.state();
        let numbered = state.events.iter().enumerate();
        numbered.filter(|(_, event)| matches!(event, Event::Flush)).map(|(number, _)| number).collect()
    }

    /// The content if power had been lost before event `at`: everything up to the last flush before it, and of the sectors
    /// written after that those for which `lands` says so.
    pub fn cut(&self, at: usize, lands: impl FnMut() -> bool) -> Vec<u8> {
        self.image_after_cut(at, lands).content()
    }

    /// As [`Self::cut`], in a form that shares with this disk what was not written.
    pub fn image_after_cut(&self, at: usize, mut lands: impl FnMut() -> bool) -> MemoryImage {
        let mut state = self.state();
        let at = at.min(state.events.len());
        let flushed = state.flushed_before(at);
        let mut image = state.reached_at(flushed).clone();
        for event in state.events.get(flushed..at).unwrap_or_default() {
            for_each_sector(event, |place, sector| {
                if lands() {
                    image.write(place, sector);
                }
            });
        }
        image
    }

    /// How many sectors may or may not be written when power is lost before event `at`: so often does
    /// [`Self::cut`] ask.
    #[must_use]
    pub fn sectors_at_stake(&self, at: usize) -> usize {
        let state = self.state();
        let at = at.min(state.events.len());
        let mut count = 0;
        for event in state.events.get(state.flushed_before(at)..at).unwrap_or_default() {
            for_each_sector(event, |_, _| count += 1);
        }
        count
    }
}

impl State {
    /// How many events are durable when power is lost before event `at`.
    fn flushed_before(&self, at: usize) -> usize {
        let events = self.events.get(..at).unwrap_or(&self.events);
        events.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |flush| flush + 1)
    }

    /// The image after so many events.
    fn reached_at(&mut self, events: usize) -> &MemoryImage {
        if self.reached.0 > events {
            self.reached = (0, self.before.clone());
        }
        let (from, image) = &mut self.reached;
        for event in self.events.get(*from..events).unwrap_or_default() {
            if let Event::Write(offset, data) = event {
                image.write(*offset as usize, data);
            }
        }
        *from = events;
        image
    }
}

/// Calls `see` with each part of a write that lies in a sector of its own.
fn for_each_sector(event: &Event, mut see: impl FnMut(usize, &[u8])) {
    let Event::Write(offset, data) = event else { return };
    let (mut start, mut rest) = (*offset as usize, data.as_slice());
    while !rest.is_empty() {
        // Up to the end of the sector.
        let (sector, behind) = rest.split_at(rest.len().min(SECTOR - start % SECTOR));
        see(start, sector);
        start += sector.len();
        rest = behind;
    }
}

impl Disk for MemoryDisk {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn length(&self) -> Bytes {
        Bytes(self.length)
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        within(at, buffer.len() as u64, self.length())?;
        self.state().now.read(at.0 as usize, buffer);
        Ok(())
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        within(at, data.len() as u64, self.length())?;
        let mut state = self.state();
        state.now.write(at.0 as usize, data);
        state.events.push(Event::Write(at.0, data.to_vec()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.state().events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        within(at, length.0, self.length())?;
        // What is not defined is anything but what it was.
        self.write(at, &vec![0xdd; length.0 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_sectors_of_the_rest() {
        let disk = MemoryDisk::new(vec![0; 2048]);
        disk.write(Bytes(0), &[1; 512]).unwrap();
        disk.flush().unwrap();
        disk.write(Bytes(256), &[2; 1024]).unwrap();
        assert_eq!(disk.events(), 3);
        let sum = |content: &[u8]| content.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        assert_eq!(sum(&disk.cut(1, || false)), 0, "not flushed yet");
        assert_eq!(sum(&disk.cut(2, || false)), 512, "flushed by then");
        assert_eq!(sum(&disk.cut(3, || false)), 512);
        assert_eq!(disk.cut(3, || true), disk.content());
        let mut number = 0;
        let second = disk.cut(3, || {
            number += 1;
            number == 2
        });
        assert_eq!(
            (second[255], second[256], second[511], second[512], second[1023], second[1024]),
            (1, 1, 1, 2, 2, 0)
        );
    }

    /// Against a disk that keeps every byte of every state.
    #[test]
    fn shared_pages_hold_what_whole_copies_would_in_whatever_order_cuts_are_made() {
        const LENGTH: usize = 3 * PAGE + 700;
        let mut rng = fastrand::Rng::with_seed(3);
        let disk = MemoryDisk::new((0..LENGTH).map(|n| n as u8).collect());
        let mut durable = vec![disk.content()];
        for _ in 0..200 {
            if rng.u8(..4) == 0 {
                disk.flush().unwrap();
            } else {
                let at = rng.usize(..LENGTH);
                let data = vec![rng.u8(..); rng.usize(..=(LENGTH - at).min(6000))];
                disk.write(Bytes(at as u64), &data).unwrap();
            }
            let mut all = vec![0; LENGTH];
            disk.read(Bytes(0), &mut all).unwrap();
            assert_eq!(all, disk.content());
            durable.push(all);
        }
        for _ in 0..300 {
            let at = rng.usize(..=200);
            assert_eq!(disk.cut(at, || true), durable[at], "everything before event {at} lands");
            let flushed = disk.flushes().into_iter().rfind(|flush| *flush < at).map_or(0, |flush| flush + 1);
            let mut asked = 0;
            let none = disk.cut(at, || {
                asked += 1;
                false
            });
            assert_eq!((none, asked), (durable[flushed].clone(), disk.sectors_at_stake(at)));
        }
    }

    #[test]
    fn disks_of_one_image_do_not_change_each_other_and_tell_where_they_differ() {
        let disk = MemoryDisk::new(vec![0; 4 * PAGE]);
        disk.write(Bytes(0), &[1; 10]).unwrap();
        let [one, two] = [(); 2].map(|()| MemoryDisk::from_image(disk.image_after_cut(1, || true)));
        one.write(Bytes(PAGE as u64), &[2; 10]).unwrap();
        two.write(Bytes(2 * PAGE as u64), &[3; 10]).unwrap();
        let mut seen = Vec::new();
        assert!(one.image().differences(&two.image(), |at, page| seen.push((at.0 as usize / PAGE, page[0]))));
        assert_eq!(seen, [(1, 2), (2, 0)]);
        assert_eq!(disk.content()[PAGE], 0);
        assert!(!one.image().differences(&MemoryDisk::new(vec![0; 4 * PAGE]).image(), |_, _| ()));
    }
}

//! The volume as it shall be after the next commit, and the commit.
//!
//! Owns the files that have moved since the last commit, the bitmaps, and the order in which all that reaches the disk: data
//! first, then the journal, then the records. Never decides where data goes.

use super::attribute::{Name, kind};
use super::bitmap::Bitmap;
use super::boot::{BOOT_BYTES, Geometry};
use super::fault::{Fault, Read, damaged};
use super::file::{Composed, MFT, NtfsFile, Records};
use super::reader::{Reader, system};
use super::record::Record;
use super::runs::Map;
use crate::bytes::put;
use crate::offline::{Copied, CopyError, Held, Journal, Phase, SECTOR, Write, apply, copy, joined};
use longrun_image::{Disk as _, FailStop};
use longrun_layout::{Bytes, Extent, ExtentSet, LogicalBlock, Run};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The volume must be checked before it is used.
pub(super) const DIRTY: u16 = 1;

/// A file that has moved. It fits as it is; its records are made when it is committed, once and not for each move.
struct Changed {
    file: NtfsFile,
    /// Those of its records that were free before.
    spares: Vec<u64>,
}

/// A volume that is being changed.
pub(super) struct State {
    pub(super) reader: Reader,
    /// That of the reader. After a failure nothing is committed: what is on the disk is known to the journal alone.
    disk: Arc<FailStop>,
    /// Which clusters are in use after the next commit, and which are on the disk.
    clusters: Bitmap,
    clusters_on_disk: Bitmap,
    /// What the first one says is free: asked for with every move.
    free: ExtentSet,
    bitmap: Map,
    /// The same for file records. The bitmap is a stream of $MFT, and can move.
    records: Bitmap,
    records_on_disk: Bitmap,
    mirror: Map,
    /// How many records $MFTMirr has.
    mirrored: u64,
    changed: BTreeMap<u64, Changed>,
    /// The file that was asked for last, as it is on the disk: each is asked for several times while it moves.
    last: Option<NtfsFile>,
    pub(super) held: Held,
    journal: Journal,
    is_marked: bool,
    /// What was copied since the last commit.
    copies: Vec<Copied>,
}

impl State {
    /// The state of a volume that is as its records say. `is_marked`: an interrupted run may have marked it as dirty.
    pub(super) fn new(
        reader: Reader,
        disk: Arc<FailStop>,
        clusters: Bitmap,
        records: Bitmap,
        journal: Journal,
        is_marked: bool,
    ) -> Read<Self> {
        let bitmap = NtfsFile::read(&reader, system::BITMAP)?;
        let data = Name::unnamed(kind::DATA);
        let Some(bitmap) = bitmap.attribute(&data).and_then(|data| data.outside.clone()) else {
            return damaged("$Bitmap has no clusters");
        };
        let mirror = NtfsFile::read(&reader, system::MIRROR)?;
        let Some(mirror) = mirror.attribute(&data).filter(|data| !data.is_resident()) else {
            return damaged("$MFTMirr has no clusters");
        };
        let mirrored = mirror.size() / u64::from(reader.geometry.record);
        let mirror = mirror.outside.clone().unwrap_or_default();
        Ok(Self {
            free: clusters.free().into_iter().collect(),
            clusters_on_disk: clusters.clone(),
            clusters,
            bitmap,
            records_on_disk: records.clone(),
            records,
            mirror,
            mirrored,
            reader,
            disk,
            changed: BTreeMap::new(),
            last: None,
            held: Held::default(),
            journal,
            is_marked,
            copies: Vec::new(),
        })
    }

    /// Frees what nothing has by the next commit. No file refers to it, so that its clusters can be used before that.
    pub(super) fn free_leaks(&mut self, clusters: &ExtentSet, records: &[u64]) {
        clusters.iter().for_each(|extent| self.set(extent, false));
        records.iter().for_each(|number| self.records.set(Extent::new(*number, 1), false));
    }

    /// The free clusters, those included that become free by the next commit.
    pub(super) fn free(&self) -> &ExtentSet {
        &self.free
    }

    /// Holds what of `wanted` is free.
    pub(super) fn capture(&mut self, wanted: &ExtentSet) -> ExtentSet {
        self.held.capture(&self.free, wanted)
    }

    /// Marks clusters as in use, or as free.
    fn set(&mut self, extent: Extent, in_use: bool) {
        self.clusters.set(extent, in_use);
        if in_use {
            self.free.remove(extent);
        } else {
            self.free.insert(extent);
        }
    }

    /// The file as it shall be.
    pub(super) fn file(&mut self, number: u64) -> Read<&NtfsFile> {
        if !self.changed.contains_key(&number) {
            self.last = Some(self.as_on_disk(number)?);
        }
        let changed = self.changed.get(&number).map(|changed| &changed.file);
        changed.or(self.last.as_ref()).map_or_else(|| damaged("a file that was read is gone"), Ok)
    }

    /// The file as it is on the disk.
    fn as_on_disk(&mut self, number: u64) -> Read<NtfsFile> {
        match self.last.take().filter(|file| file.reference().number == number) {
            Some(file) => Ok(file),
            None => NtfsFile::read(&self.reader, number),
        }
    }

    /// Copies clusters, each piece from its first extent to its second. The targets must be free.
    pub(super) fn copy(&self, pieces: &[(Extent, Extent)], buffer: &mut Vec<u8>) -> Result<Vec<Copied>, CopyError> {
        copy(&*self.disk, self.reader.geometry.bytes(1), pieces.iter().copied(), buffer)
    }

    /// Notes that clusters of a stream lie elsewhere: from `logical` on at `target`, where they were `copied`; those at `sources` are free
    /// after the next commit. False, and nothing is noted, when the file's records have no room for that.
    pub(super) fn note(
        &mut self,
        (number, stream): (u64, u16),
        logical: LogicalBlock,
        target: Extent,
        copied: Vec<Copied>,
        sources: &[Run],
    ) -> Read<bool> {
        let before = self.changed.remove(&number);
        let is_first = before.is_none();
        let (mut file, mut spares) = match before {
            Some(Changed { file, spares }) => (file, spares),
            None => (self.as_on_disk(number)?, Vec::new()),
        };
        file.put(stream, logical, target.start, target.length);
        let fits = if file.fits_as_it_is() { Ok(true) } else { self.spread(&mut file, &mut spares) };
        if !matches!(fits, Ok(true)) {
            // What was noted before stays noted: its clusters are marked already.
            sources.iter().for_each(|run| file.put(stream, run.logical, run.physical, run.length));
            if is_first {
                self.last = Some(file);
            } else {
                self.changed.insert(number, Changed { file, spares });
            }
            return fits;
        }
        self.copies.extend(copied);
        self.set(target, true);
        let sources: Vec<Extent> = sources.iter().map(Run::extent).collect();
        sources.iter().for_each(|source| self.set(*source, false));
        self.held.exchanged(target, &sources);
        self.changed.insert(number, Changed { file, spares });
        Ok(true)
    }

    /// Distributes a file over its records and others that are free, which become `spares` too. False when they have no room. Then, and
    /// after an error, nothing has changed.
    fn spread(&self, file: &mut NtfsFile, spares: &mut Vec<u64>) -> Read<bool> {
        let is_taken = |number: &u64| self.changed.values().any(|changed| changed.spares.contains(number));
        let mut more = Vec::new();
        let mut after = system::FIRST_OTHER;
        let mut fault = None;
        let spread = file.spread(&mut || {
            let next = loop {
                let found = self.records.first_free(after)?;
                after = found + 1;
                if !is_taken(&found) && !spares.contains(&found) {
                    break found;
                }
            };
            more.push(next);
            match self.spare(next) {
                Ok(record) => Some(record),
                Err(error) => {
                    fault = Some(error);
                    None
                }
            }
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        let Some(spread) = spread else { return Ok(false) };
        *file = spread;
        spares.extend(more);
        Ok(true)
    }

    /// The record of this number, which is not in use.
    fn spare(&self, number: u64) -> Read<Record> {
        match self.reader.record(number) {
            Ok(record) if record.is_in_use() => damaged(format!("file record {number} is in use and marked as free")),
            Err(Fault::Io(error)) => Err(Fault::Io(error)),
            Ok(record) => Ok(record),
            // It was never used.
            Err(_) => Ok(Record::blank(number, self.reader.geometry.record as usize)),
        }
    }

    /// Makes everything durable that was noted: the data, then the records by one transaction.
    pub(super) fn commit(&mut self) -> Read<()> {
        // What is taken here is either written or never: after an error there is no second attempt.
        let disk = Arc::clone(&self.disk);
        let is_changed = !self.changed.is_empty() || self.clusters.is_changed() || self.records.is_changed();
        disk.change(|| if is_changed { self.commit_changes() } else { Ok(()) })
    }

    fn commit_changes(&mut self) -> Read<()> {
        let composed = self.changed.iter().map(|(number, changed)| match changed.file.compose() {
            Some(composed) => Ok(composed),
            None => damaged(format!("file record {number} has no room for the places of its clusters")),
        });
        let composed = composed.collect::<Read<Vec<Composed>>>()?;
        self.mark()?;
        self.disk.flush()?;
        let witness = self.witness()?;
        let mut writes = Vec::new();
        let mft = std::mem::take(&mut self.changed).remove(&MFT).map(|changed| changed.file);
        let data = Name::unnamed(kind::DATA);
        let moved =
            mft.as_ref().and_then(|mft| mft.attribute(&data)?.outside.clone()).filter(|map| *map != self.reader.mft);
        for composed in &composed {
            for record in &composed.records {
                self.records.set(Extent::new(record.number, 1), true);
            }
            for record in &composed.freed {
                self.records.set(Extent::new(record.number, 1), false);
            }
            composed.vacated.runs().for_each(|run| self.set(run.extent(), false));
            for record in composed.records.iter().chain(&composed.freed) {
                self.put_record(record, moved.as_ref(), &mut writes)?;
            }
            if let Some((map, content)) = &composed.list {
                self.put(Phase::Change, map, 0, content, &mut writes)?;
            }
        }
        if let Some(map) = &moved {
            self.put_boot(map, &mut writes)?;
        }
        let (clusters, records) = (self.clusters.take_changed(), self.records.take_changed());
        self.put_bitmap(&self.bitmap, &clusters, &self.clusters_on_disk, &mut writes)?;
        self.put_bitmap_of_records(mft.as_ref(), &records, &mut writes)?;
        let mut copies = std::mem::take(&mut self.copies);
        copies.extend(witness);
        self.write(&copies, &writes)?;
        self.clusters_on_disk.put_sectors(&clusters);
        self.records_on_disk.put_sectors(&records);
        self.held.committed();
        if let Some(map) = moved {
            self.reader.geometry.mft = map.segments().first().and_then(|part| part.lcn).unwrap_or_default();
            self.reader.mft = map;
        }
        Ok(())
    }

    /// The record by which we have marked the volume, as something that was there before: a volume that was restored from a backup
    /// does not have it, whatever else of the transaction is as it was.
    fn witness(&self) -> Read<Vec<Copied>> {
        let record = self.reader.raw_record(system::VOLUME)?;
        let at = system::VOLUME * record.len() as u64;
        let mut rest = record.as_slice();
        let places = self.reader.places(&self.reader.mft, at, record.len() as u64)?;
        let copied = places.into_iter().map(|(place, length)| {
            let (here, behind) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
            rest = behind;
            Copied::new(place, here)
        });
        Ok(copied.collect())
    }

    /// A transaction: the journal, the volume, the journal again.
    fn write(&mut self, copies: &[Copied], writes: &[Write]) -> Read<()> {
        self.last = None;
        let writes = joined(writes);
        // Until the journal is durable nothing has changed; from then on it knows what to complete.
        self.journal.put(&*self.disk, copies, &writes)?;
        apply(&*self.disk, &writes)?;
        Ok(self.journal.done()?)
    }

    /// Whole sectors of a stream, as they shall be.
    fn put(&self, phase: Phase, map: &Map, at: u64, content: &[u8], writes: &mut Vec<Write>) -> Read<()> {
        let sector = SECTOR as u64;
        let start = at / sector * sector;
        let end = (at + content.len() as u64).next_multiple_of(sector);
        let mut whole = vec![0; (end - start) as usize];
        if whole.len() > content.len() {
            self.reader.read_stream(map, start, &mut whole)?;
        }
        put(&mut whole, (at - start) as usize, content);
        let mut rest = whole.as_slice();
        for (at, length) in self.reader.places(map, start, end - start)? {
            let (here, behind) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
            writes.push(Write { phase, at, data: here.to_vec() });
            rest = behind;
        }
        Ok(())
    }

    /// A record: in its place, after a move of $MFT in its old place too, and in the mirror.
    fn put_record(&self, record: &Record, moved: Option<&Map>, writes: &mut Vec<Write>) -> Read<()> {
        let (at, bytes) = (record.number * u64::from(self.reader.geometry.record), record.encode());
        self.put(Phase::Change, &self.reader.mft, at, &bytes, writes)?;
        if let Some(moved) = moved
            && self.reader.places(moved, at, bytes.len() as u64)?
                != self.reader.places(&self.reader.mft, at, bytes.len() as u64)?
        {
            self.put(Phase::Change, moved, at, &bytes, writes)?;
        }
        if record.number < self.mirrored {
            self.put(Phase::Change, &self.mirror, at, &bytes, writes)?;
        }
        Ok(())
    }

    /// The boot sector and its copies, when $MFT begins elsewhere.
    fn put_boot(&self, map: &Map, writes: &mut Vec<Write>) -> Read<()> {
        let disk = &*self.reader.disk;
        let first = map.segments().first().and_then(|part| part.lcn).unwrap_or_default();
        if first == self.reader.geometry.mft {
            return Ok(());
        }
        let mut boot = vec![0; BOOT_BYTES];
        disk.read(Bytes(0), &mut boot)?;
        Geometry::with_mft(&mut boot, first);
        writes.push(Write { phase: Phase::Change, at: Bytes(0), data: boot });
        // One copy lies behind the volume. After a change of its size another one can lie at the end of the device.
        let sector = u64::from(self.reader.geometry.sector);
        let ends = [self.reader.geometry.length(), disk.length().saturating_sub(Bytes(sector))];
        for at in ends.into_iter().collect::<std::collections::BTreeSet<_>>() {
            let mut copy = vec![0; BOOT_BYTES];
            if at < self.reader.geometry.length() || disk.read(at, &mut copy).is_err() {
                continue;
            }
            let is_copy = Geometry::parse(&copy).is_ok_and(|found| found.serial == self.reader.geometry.serial);
            if is_copy {
                Geometry::with_mft(&mut copy, first);
                writes.push(Write { phase: Phase::Change, at, data: copy });
            }
        }
        Ok(())
    }

    fn put_bitmap_of_records(
        &self,
        mft: Option<&NtfsFile>,
        changed: &[(u64, Vec<u8>)],
        writes: &mut Vec<Write>,
    ) -> Read<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let read;
        let mft = match mft {
            Some(mft) => mft,
            None => {
                read = NtfsFile::read(&self.reader, MFT)?;
                &read
            }
        };
        match mft.attribute(&Name::unnamed(kind::BITMAP)).and_then(|bitmap| bitmap.outside.as_ref()) {
            Some(map) => self.put_bitmap(map, changed, &self.records_on_disk, writes),
            None => Err(Fault::Unsupported("a volume whose list of file records has no clusters".into())),
        }
    }

    /// What becomes used is written before the records, what becomes free after them.
    fn put_bitmap(&self, map: &Map, changed: &[(u64, Vec<u8>)], on_disk: &Bitmap, writes: &mut Vec<Write>) -> Read<()> {
        for (at, new) in changed {
            let old = on_disk.sector(*at);
            let both: Vec<u8> = new.iter().zip(old).map(|(new, old)| new | old).collect();
            if both != old {
                self.put(Phase::Allocate, map, *at, &both, writes)?;
            }
            if both != *new {
                self.put(Phase::Free, map, *at, new, writes)?;
            }
        }
        Ok(())
    }

    /// Marks the volume as to be checked, for the case that this run is interrupted and the journal is lost. That changes a record:
    /// it comes before $MFT is copied.
    pub(super) fn mark(&mut self) -> Read<()> {
        if self.is_marked {
            return Ok(());
        }
        let disk = Arc::clone(&self.disk);
        disk.change(|| self.set_flags(|flags| flags | DIRTY, true))?;
        self.is_marked = true;
        Ok(())
    }

    fn set_flags(&mut self, change: impl Fn(u16) -> u16, is_mark: bool) -> Read<()> {
        let flags = self.reader.volume_information()?.flags;
        let mut file = NtfsFile::read(&self.reader, system::VOLUME)?;
        let of = Name::unnamed(kind::VOLUME_INFORMATION);
        let mut value = file.attribute(&of).map(|information| information.value().to_vec()).unwrap_or_default();
        put(&mut value, 10, &change(flags).to_le_bytes());
        file.set_value(&of, &value);
        let Some(composed) = file.compose() else { return damaged("$Volume has no room for its flags") };
        let mut writes = Vec::new();
        for record in &composed.records {
            self.put_record(record, None, &mut writes)?;
            if is_mark {
                self.journal.set_mark(&record.encode());
            }
        }
        self.write(&[], &writes)
    }

    /// Commits, and says that the volume need not be checked and that nothing is left to be completed.
    pub(super) fn close(mut self) -> Read<()> {
        self.commit()?;
        let disk = Arc::clone(&self.disk);
        disk.change(|| {
            if self.is_marked {
                self.set_flags(|flags| flags & !DIRTY, false)?;
            }
            Ok(self.journal.remove()?)
        })
    }
}

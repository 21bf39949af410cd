//! Records in groups of 4096: within a group each is told by its difference from the one before, and a table tells where each group
//! begins. So one record is found by reading one group.

use crate::AtlasError;
use crate::varint::Cursor;
use std::io::{self, Write};

/// The most records of a group.
pub(crate) const IN_GROUP: usize = 4096;
/// No group takes more bytes.
pub(crate) const LARGEST_GROUP: usize = IN_GROUP * 64;

/// What the table knows of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// Where its bytes begin in the file.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) length: u32,
    /// How many records.
    pub(crate) count: u32,
    /// What is needed to find it and to read it; see [`Coded::keys`].
    pub(crate) keys: [u64; 3],
    /// CRC-32C of its bytes.
    pub(crate) checksum: u32,
}

impl Group {
    /// Bytes of an entry of the table.
    pub(crate) const SIZE: usize = 44;

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.length.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        self.keys.iter().for_each(|key| out.extend(key.to_le_bytes()));
        out.extend(self.checksum.to_le_bytes());
    }

    pub(crate) fn take(bytes: &[u8]) -> Option<Self> {
        let short = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let long = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some(Self {
            offset: long(0)?,
            length: short(8)?,
            count: short(12)?,
            keys: [long(16)?, long(24)?, long(32)?],
            checksum: short(40)?,
        })
    }
}

/// A record that is told by its difference from the one before.
pub(crate) trait Coded: Copy {
    /// What is known of the records before.
    type State;

    /// The keys of a group that begins with this record.
    fn keys(&self) -> [u64; 3];

    /// Changes the keys because this record is in the group, too.
    fn widen(&self, _keys: &mut [u64; 3]) {}

    /// The state before the first record of a group with these keys, whatever [`Self::widen`] changed.
    fn start(keys: &[u64; 3]) -> Self::State;

    /// Appends it.
    fn put(&self, state: &mut Self::State, out: &mut Vec<u8>);

    /// Reads the next one.
    fn take(state: &mut Self::State, bytes: &mut Cursor<'_>) -> Option<Self>;
}

/// A file that is being written, and how far.
pub(crate) struct Output<W> {
    pub(crate) file: W,
    pub(crate) at: u64,
}

impl<W: Write> Output<W> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), AtlasError> {
        self.file.write_all(bytes).map_err(AtlasError::io("writing the map"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Writes a group, and answers with its entry of the table.
    pub(crate) fn group(&mut self, bytes: &[u8], count: u32, keys: [u64; 3]) -> Result<Group, AtlasError> {
        let length = u32::try_from(bytes.len()).map_err(|_| AtlasError::Io {
            act: "writing the map",
            source: io::Error::other("a group of records is too large"),
        })?;
        let group = Group { offset: self.at, length, count, keys, checksum: crc32c::crc32c(bytes) };
        self.write(bytes)?;
        Ok(group)
    }
}

/// Groups that are being written.
pub(crate) struct Stream<R: Coded> {
    group: Option<(R::State, [u64; 3])>,
    bytes: Vec<u8>,
    count: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) records: u64,
}

impl<R: Coded> Default for Stream<R> {
    fn default() -> Self {
        Self { group: None, bytes: Vec::new(), count: 0, groups: Vec::new(), records: 0 }
    }
}

impl<R: Coded> Stream<R> {
    pub(crate) fn push(&mut self, record: &R, output: &mut Output<impl Write>) -> Result<(), AtlasError> {
        let (state, keys) = self.group.get_or_insert_with(|| {
            let keys = record.keys();
            (R::start(&keys), keys)
        });
        record.widen(keys);
        record.put(state, &mut self.bytes);
        self.count += 1;
        self.records += 1;
        if self.count as usize == IN_GROUP { self.flush(output) } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self, output: &mut Output<impl Write>) -> Result<(), AtlasError> {
        if let Some((_, keys)) = self.group.take() {
            self.groups.push(output.group(&self.bytes, self.count, keys)?);
            self.bytes.clear();
            self.count = 0;
        }
        Ok(())
    }
}

/// The records of a group, if these are its bytes.
pub(crate) fn decode<R: Coded>(group: &Group, bytes: &[u8]) -> Option<Vec<R>> {
    let (mut state, mut cursor) = (R::start(&group.keys), Cursor(bytes));
    let count = (group.count as usize).min(IN_GROUP);
    let mut records = Vec::with_capacity(count);
    for _ in 0..group.count {
        records.push(R::take(&mut state, &mut cursor)?);
    }
    cursor.0.is_empty().then_some(records)
}

/// The group numbered `number`.
pub(crate) fn group_at(groups: &[Group], number: u64) -> Result<&Group, AtlasError> {
    usize::try_from(number).ok().and_then(|at| groups.get(at)).ok_or(crate::read::DAMAGED)
}

//! What a volume holds, counted: a fixture says what is in it, and a test can insist on that.

use super::census::{AttributeKind, AttributeName, Census, Record, StoredAttribute};
use serde::Serialize;

/// The records below are NTFS's own.
const FIRST_USER_RECORD: u64 = 24;
/// The directory of further files of NTFS.
const EXTEND: u64 = 11;
/// What counts as many fragments.
const MANY: usize = 200;
/// A name this long hardly leaves room for anything else in a record of 1 KiB.
const LONG_NAME: usize = 200;

/// Counts of a volume. Unless something else is said they are about files and directories of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Bytes of a cluster.
    pub cluster_bytes: u64,
    /// Bytes of an MFT record.
    pub record_bytes: usize,
    /// Clusters of the volume.
    pub clusters: u64,
    /// Free ones.
    pub free_clusters: u64,
    /// Free ranges.
    pub free_pieces: usize,
    /// Files; symbolic links and other special files are among them.
    pub files: usize,
    /// Directories.
    pub directories: usize,
    /// Fragments of $MFT.
    pub mft_fragments: usize,
    /// Records that $MFT needs besides its first one: it has an attribute list then.
    pub mft_extension_records: usize,
    /// Attributes with more than one fragment, those of NTFS's own files included.
    pub fragmented_attributes: usize,
    /// Sum over all attributes of (fragments − 1), those of NTFS's own files included.
    pub excess_fragments: usize,
    /// Attributes with more than 200 fragments.
    pub attributes_with_many_fragments: usize,
    /// Fragments of the most fragmented index of a directory.
    pub most_index_fragments: usize,
    /// Files with an attribute list in the record.
    pub resident_attribute_lists: usize,
    /// Files with an attribute list outside of it.
    pub nonresident_attribute_lists: usize,
    /// Compressed files with at least one compressed unit, and those of them with more than one fragment.
    pub compressed: usize,
    /// See [`Self::compressed`].
    pub fragmented_compressed: usize,
    /// Files with holes that are not compressed, and those of them with more than one fragment.
    pub sparse: usize,
    /// See [`Self::sparse`].
    pub fragmented_sparse: usize,
    /// Named streams in records.
    pub resident_streams: usize,
    /// Named streams outside of them.
    pub nonresident_streams: usize,
    /// Named streams with more than one fragment.
    pub fragmented_streams: usize,
    /// Files with more than one name, DOS aliases not counted.
    pub hard_linked: usize,
    /// Files and directories with a reparse point.
    pub reparse_points: usize,
    /// Files with an alias for DOS.
    pub dos_names: usize,
    /// Files with extended attributes (of OS/2).
    pub extended_attributes: usize,
    /// Files with content in the record, which is not empty.
    pub resident_files: usize,
    /// Files without content.
    pub empty_files: usize,
    /// Names of at least 200 characters.
    pub long_names: usize,
    /// Names that are not ASCII.
    pub non_ascii_names: usize,
    /// Directories on the way to the deepest file.
    pub depth: usize,
}

impl Contents {
    /// Counts.
    #[must_use]
    pub fn of(census: &Census) -> Self {
        let mut contents = Self {
            cluster_bytes: census.cluster_bytes,
            record_bytes: census.record_bytes,
            clusters: census.clusters,
            free_clusters: census.free.iter().map(|(_, clusters)| clusters).sum(),
            free_pieces: census.free.len(),
            depth: census.paths().keys().map(|path| path.matches('/').count()).max().unwrap_or(0),
            ..Self::default()
        };
        for (number, record) in &census.records {
            for attribute in record.attributes.values() {
                let fragments = attribute.fragments();
                contents.fragmented_attributes += usize::from(fragments > 1);
                contents.excess_fragments += fragments.saturating_sub(1);
            }
            let of_ntfs = record.names.iter().any(|(parent, ..)| *parent == EXTEND);
            if *number >= FIRST_USER_RECORD && !of_ntfs {
                contents.add(record);
            }
        }
        if let Some(mft) = census.records.get(&0) {
            let content = mft.attributes.get(&AttributeName::content());
            contents.mft_fragments = content.map_or(0, StoredAttribute::fragments);
            contents.mft_extension_records = mft.extension_records;
        }
        contents
    }

    fn add(&mut self, record: &Record) {
        let has = |kind| record.attributes.keys().any(|name| name.kind == kind);
        let real_names = || record.names.iter().filter(|(_, _, alias)| !alias).map(|(_, name, _)| name);
        if record.directory {
            self.directories += 1;
        } else {
            self.files += 1;
            self.hard_linked += usize::from(real_names().count() > 1);
        }
        self.dos_names += usize::from(record.names.iter().any(|(_, _, alias)| *alias));
        self.long_names += real_names().filter(|name| name.chars().count() >= LONG_NAME).count();
        self.non_ascii_names += real_names().filter(|name| !name.is_ascii()).count();
        self.reparse_points += usize::from(has(AttributeKind::REPARSE_POINT));
        self.extended_attributes += usize::from(has(AttributeKind::EA));
        for (name, attribute) in &record.attributes {
            self.count(record, name, attribute);
        }
    }

    fn count(&mut self, record: &Record, name: &AttributeName, attribute: &StoredAttribute) {
        let fragments = attribute.fragments();
        let fragmented = usize::from(fragments > 1);
        self.attributes_with_many_fragments += usize::from(fragments > MANY);
        match (name.kind, name.name.as_str()) {
            (AttributeKind::ATTRIBUTE_LIST, _) if attribute.resident => self.resident_attribute_lists += 1,
            (AttributeKind::ATTRIBUTE_LIST, _) => self.nonresident_attribute_lists += 1,
            (AttributeKind::INDEX_ALLOCATION, _) => {
                self.most_index_fragments = self.most_index_fragments.max(fragments);
            }
            (AttributeKind::DATA, "") if !record.directory => {
                let holes = attribute.runs.iter().any(|run| run.lcn.is_none());
                if attribute.compressed && holes && fragments > 0 {
                    self.compressed += 1;
                    self.fragmented_compressed += fragmented;
                } else if attribute.sparse && holes {
                    self.sparse += 1;
                    self.fragmented_sparse += fragmented;
                }
                self.empty_files += usize::from(attribute.bytes == 0);
                self.resident_files += usize::from(attribute.resident && attribute.bytes > 0);
            }
            (AttributeKind::DATA, _) => {
                self.resident_streams += usize::from(attribute.resident);
                self.nonresident_streams += usize::from(!attribute.resident);
                self.fragmented_streams += fragmented;
            }
            _ => {}
        }
    }
}

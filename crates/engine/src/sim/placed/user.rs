//! Single operations of other users, for tests that need one at a certain moment.

use super::state::State;
use longrun_layout::{Blocks, Extent, FileId, LogicalBlock};

/// Another user of the volume during a pass. Files that do not exist, and space that is not free, are left unchanged.
#[derive(Debug)]
pub struct User<'s> {
    pub(super) state: &'s mut State,
}

impl User<'_> {
    /// Deletes a file.
    pub fn delete(&mut self, file: FileId) {
        let Some(number) = self.state.number(file) else { return };
        self.cut_all(number);
        if let Some(file) = self.state.change(number) {
            file.deleted = true;
        }
    }

    /// Replaces all content of a file by new content at `place`, which must be free.
    pub fn rewrite(&mut self, file: FileId, place: Extent) {
        if let Some(number) = self.state.number(file).filter(|_| self.state.free.covers(place)) {
            self.cut_all(number);
            self.state.extend(number, LogicalBlock(0), place);
        }
    }

    /// Appends to a file at `place`, which must be free.
    pub fn append(&mut self, file: FileId, place: Extent) {
        if let Some(number) = self.state.number(file).filter(|_| self.state.free.covers(place)) {
            let end = self.state.view(number).map(|f| f.end()).unwrap_or_default();
            self.state.extend(number, end, place);
        }
    }

    /// Fills free blocks with a new file.
    pub fn take(&mut self, place: Extent) {
        if self.state.free.covers(place) {
            let number = self.state.create();
            self.state.extend(number, LogicalBlock(0), place);
        }
    }

    /// Takes blocks from the optimizer, as happens when space is short; they are free after the next commit.
    pub fn reclaim(&mut self, place: Extent) {
        let held: Vec<Extent> = self.state.owned.overlapping(place).collect();
        self.state.owned.remove(place);
        self.state.freed.extend(held);
    }

    /// Has everything committed, as a sync does.
    pub fn sync(&mut self) {
        self.state.commit();
    }

    fn cut_all(&mut self, number: u32) {
        let size = self.state.view(number).map(|f| f.end()).unwrap_or_default();
        self.state.cut(number, LogicalBlock(0), Blocks(size.0));
    }
}

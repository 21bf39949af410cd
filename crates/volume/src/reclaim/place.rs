//! Where the last run over a volume was stopped.
//!
//! Owns the note of that. It lies beside the lock, in a directory that is gone with the next start of the machine. A note that
//! is lost or that another volume has left does no harm: a run goes all round, wherever it begins.

use longrun_layout::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The name of the note, behind that of the lock.
pub(super) const NAME: &str = "reclaim";
/// As long as the longest number.
const MOST: usize = 20;

/// The note.
#[derive(Debug)]
pub(super) struct Place(pub(super) File);

impl Place {
    /// Where to begin.
    pub(super) fn read(&self) -> Bytes {
        let mut text = [0; MOST];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let digits = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
        Bytes(digits.and_then(|digits| digits.trim().parse().ok()).unwrap_or(0))
    }

    /// Where the next run is to begin: at the start after a complete one.
    pub(super) fn note(&self, at: Option<Bytes>) -> io::Result<()> {
        self.0.set_len(0)?;
        at.map_or(Ok(()), |at| self.0.write_all_at(at.0.to_string().as_bytes(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_begins_where_the_last_one_was_stopped_or_at_the_start() {
        let place = Place(tempfile::tempfile().unwrap());
        assert_eq!(place.read(), Bytes(0));
        for at in [7, u64::MAX, 12] {
            place.note(Some(Bytes(at))).unwrap();
            assert_eq!(place.read(), Bytes(at));
        }
        place.note(None).unwrap();
        assert_eq!(place.read(), Bytes(0));
        place.0.write_all_at(b"nonsense", 0).unwrap();
        assert_eq!(place.read(), Bytes(0));
    }
}

//! What one host has seen of one slot, and from when on it may take it.

use super::record::Seen;
use super::{Found, Moment, Revision, Term};

/// A slot as one host has seen it on its present connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    seen: Option<Seen>,
}

impl Slot {
    /// This was the answer of the broker, which came at `answered`.
    pub fn saw(&mut self, found: Found, answered: Moment) {
        match &self.seen {
            Some(seen) if seen.found == found => {}
            _ => self.seen = Some(Seen { found, since: answered }),
        }
    }

    /// Another connection, which may be to a broker with other data: what was seen counts no more.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// The revision that taking it replaces.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.seen.as_ref().map(|seen| seen.found.revision)
    }

    /// From when on a host that does not hold it, and is connected since `connected`, may take it.
    #[must_use]
    pub fn free_from(&self, connected: Moment, term: Term) -> Option<Moment> {
        let Seen { found, since } = self.seen.as_ref()?;
        Some(match found.record() {
            Some(record) if !record.held => connected.plus(term.full()),
            Some(record) => since.plus(record.patience(term)),
            None => since.plus(term.full()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Owner, Record};
    use std::time::Duration;

    const TERM: Term = Term::of(Duration::from_secs(60));

    fn at(seconds: u64) -> Moment {
        Moment::after_boot(Duration::from_secs(seconds))
    }

    fn owner(host: &str) -> Owner {
        Owner { host: host.parse().unwrap(), instance: "1".to_owned() }
    }

    fn found(host: &str, held: bool, revision: u64) -> Found {
        let record = Record { owner: owner(host), serial: revision, held, term_ms: TERM.milliseconds() };
        Found { revision: Revision(revision), value: record.to_value() }
    }

    /// From when on it is free for host `a`, connected since 0, who saw these.
    fn free_from(seen: &[(Found, u64)]) -> Option<Moment> {
        let mut slot = Slot::default();
        for (found, when) in seen {
            slot.saw(found.clone(), at(*when));
        }
        slot.free_from(at(0), TERM)
    }

    #[test]
    fn a_slot_is_taken_when_it_was_seen_unchanged_for_a_full_term_or_at_once_when_it_was_given_back() {
        assert_eq!(free_from(&[]), None);
        assert_eq!(free_from(&[(found("b", true, 7), 100), (found("b", true, 7), 150)]), Some(at(160)));
        assert_eq!(free_from(&[(found("b", true, 7), 100), (found("b", true, 8), 150)]), Some(at(210)));
        // Absence may be loss: it is no sign that the slot is free.
        assert_eq!(free_from(&[(found("b", true, 7), 100), (Found::default(), 150)]), Some(at(210)));
        assert_eq!(free_from(&[(found("b", false, 7), 100)]), Some(at(60)));
        // Its own, of a request whose answer was lost, is as any other.
        assert_eq!(free_from(&[(found("a", true, 7), 100)]), Some(at(160)));
        // A revision that a broker without its data has given a second time.
        assert_eq!(free_from(&[(found("b", true, 7), 100), (found("c", true, 7), 150)]), Some(at(210)));
    }

    #[test]
    fn a_record_that_is_none_and_one_of_a_longer_term_wait_too() {
        let garbage = Found { revision: Revision(3), value: b"{}".to_vec() };
        assert_eq!(free_from(&[(garbage, 100)]), Some(at(160)));
        let mut record = found("b", true, 7).record().unwrap();
        record.term_ms = 90_000;
        let longer = Found { revision: Revision(7), value: record.to_value() };
        assert_eq!(free_from(&[(longer, 100)]), Some(at(190)));
    }
}

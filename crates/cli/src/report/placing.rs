//! What `optimize` tells about placing by heat: text and JSON.

use crate::text::{counted, printable, size};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// What is printed as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Placed {
    /// Why files are not placed, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Nothing is moved: it was asked for the plan.
    pub only_planned: bool,
    /// Files that go to their zone.
    pub files: u64,
    /// What is planned to be moved for that, those that make room included.
    pub bytes: Bytes,
    /// What may be moved today.
    pub allowed_today: Bytes,
    /// Files for which no others of the same length make room.
    pub without_partner: u64,
    /// Files that wait for another day.
    pub over_budget: u64,
    /// What a read takes on average, by the model, when all hot files are placed: that can take days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// What a read takes on average, by the model, when what is planned now is moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_now: Option<f64>,
    /// What was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Bytes>,
    /// What a read takes on average on the volume as it is now, by the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<f64>,
}

/// The mean time of a counted read, in seconds, by the model of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// As it is.
    pub before: f64,
    /// As it is to be.
    pub after: f64,
}

impl Placed {
    /// Nothing is placed.
    pub fn refused(why: String) -> Self {
        Self { refused: Some(why), ..Self::default() }
    }

    /// The plan, for people.
    pub fn text(&self) -> String {
        if let Some(why) = &self.refused {
            return format!("Placing hot files: {}.\n", printable(why));
        }
        if self.files == 0 {
            let mut text = "Placing hot files: nothing to move".to_owned();
            self.left(&mut text);
            return text + ".\n";
        }
        let files = counted(self.files, "file goes", "files go");
        let (bytes, allowed) = (size(self.bytes), size(self.allowed_today));
        let mut text = format!(
            "Placing hot files: {files} to where the disk reads faster, {bytes} moved of {allowed} allowed today"
        );
        self.left(&mut text);
        text.push_str(".\n");
        if let Some(Expected { before, after }) = self.expected {
            _ = writeln!(
                text,
                "  Expected by the model of a disk when all hot files are placed: {}.",
                change(before, after)
            );
        }
        if self.only_planned {
            text.push_str("  Only planned: nothing is moved for it.\n");
        }
        text
    }

    /// What came of it, for people.
    pub fn result(&self) -> String {
        let Some(moved) = self.moved else { return String::new() };
        let reached = self.expected.zip(self.reached);
        let reached = reached.map_or_else(String::new, |(from, now)| {
            let expected = self
                .expected_now
                .map_or_else(String::new, |expected| format!("; {:.1} % were expected", less(from.before, expected)));
            format!("; by the model of a disk, {}{expected}", change(from.before, now))
        });
        format!("Placing hot files: {} moved{reached}.\n", size(moved))
    }

    fn left(&self, text: &mut String) {
        if self.over_budget > 0 {
            _ = write!(text, "; {} for another day", counted(self.over_budget, "file waits", "files wait"));
        }
        if self.without_partner > 0 {
            let files = counted(self.without_partner, "file stays", "files stay");
            _ = write!(text, "; {files}, because no others of the same length can make room");
        }
    }
}

fn change(before: f64, after: f64) -> String {
    let less = less(before, after);
    format!("a read of a file takes {:.2} ms instead of {:.2} ms ({less:.1} % less)", after * 1e3, before * 1e3)
}

/// Per cent.
fn less(before: f64, after: f64) -> f64 {
    if before > 0.0 { 100.0 - 100.0 * after / before } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_what_is_placed_what_is_left_and_why_not() {
        let placed = Placed {
            files: 3,
            bytes: Bytes(5 << 20),
            allowed_today: Bytes(9 << 20),
            without_partner: 1,
            over_budget: 2,
            expected: Some(Expected { before: 0.012, after: 0.009 }),
            expected_now: Some(0.0093),
            moved: Some(Bytes(4 << 20)),
            reached: Some(0.0096),
            ..Placed::default()
        };
        insta::assert_snapshot!(placed.text() + &placed.result(), @"
        Placing hot files: 3 files go to where the disk reads faster, 5.00 MiB moved of 9.00 MiB allowed today; 2 files wait for another day; 1 file stays, because no others of the same length can make room.
          Expected by the model of a disk when all hot files are placed: a read of a file takes 9.00 ms instead of 12.00 ms (25.0 % less).
        Placing hot files: 4.00 MiB moved; by the model of a disk, a read of a file takes 9.60 ms instead of 12.00 ms (20.0 % less); 22.5 % were expected.
        ");
        assert_eq!(Placed::default().text(), "Placing hot files: nothing to move.\n");
        assert_eq!(Placed::refused("no\nbenefit".into()).result(), "");
        assert!(!Placed::refused("no\nbenefit".into()).text().trim_end().contains('\n'));
    }
}

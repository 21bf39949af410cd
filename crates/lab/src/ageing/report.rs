//! The results of the simulated weeks: a table, the goals, a picture.

use super::chart::{Curve, curves};
use super::{AgeingSettings, Course, Maintenance};
use crate::bench::{load, machine};
use anyhow::{Context, Result};
use longrun_bench::Table;
use longrun_bench::ageing::{Evening, PERIOD, average_excess, told};
use longrun_layout::Bytes;
use std::fmt::Write as _;

/// The goal: with Longrun the excess must be less than without maintenance by at least this, in per cent.
const FEWER_PERCENT: f64 = 98.0;
/// Free pieces count as unchanged if they are at most this many times those of the seventh day.
const FLAT: f64 = 1.1;

/// The report in Markdown, and its picture as SVG, which the report calls `picture`.
///
/// # Errors
/// When a course is missing.
pub fn report(settings: &AgeingSettings, courses: &[Course], picture: &str) -> Result<(String, String)> {
    let &AgeingSettings { kind, mebibytes, days, full_percent, daily_percent, seed } = settings;
    let mut text = format!(
        "# Weeks of ageing: {}\n\nWritten by `make bench-ageing`; do not edit. The same days (seed {seed}) are \
         simulated on volumes of {mebibytes} MiB that are byte-identical at the start, on a loop device with direct \
         I/O. New files are written, eight at a time, by direct, synchronous or buffered writes of 4 to 64 KiB. As \
         many files of similar sizes are deleted at random, and six logs are appended to. {full_percent} % of the \
         volume is in use, and {daily_percent} % is written each day. A day takes seconds, so the service waits for \
         one second instead of five until a file is quiet, and does not give way to other I/O (`pace = \"fast\"`). \
         The figures at the end of each day are those of `longrun analyze`. \"Moved\" is the count of the service; \
         for a tool that runs once a week it is what the device wrote meanwhile. \"Additional writes\" are the \
         writes of the device beyond those of the volume without maintenance.\n\nMachine: {}. Processes that wanted \
         to run: {}.\n\n",
        kind.name(),
        machine(),
        load(),
    );
    let of =
        |maintenance| courses.iter().find(|course| course.maintenance == maintenance).context("a course is missing");
    let (nobody, peer) = (of(Maintenance::Nobody)?, of(Maintenance::Peer)?);
    text += &table(courses, nobody, days).markdown();
    writeln!(text, "\n![the same as curves]({picture})\n")?;
    for course in courses {
        writeln!(
            text,
            "- {}: {:.0} excess fragments on average at the end of all days (the table lists only days on which \
             something ran). At the end filefrag finds {}, and the file system's own tool {} free pieces; the \
             volume is clean. The run took {:.0} s.",
            course.name,
            average_excess(&course.evenings),
            course.judged_excess,
            course.judged_pieces,
            course.seconds
        )?;
    }
    text.push('\n');
    for ours in [of(Maintenance::Longrun)?, of(Maintenance::LongrunAndPass)?] {
        for (holds, what) in claims(nobody, peer, ours) {
            writeln!(
                text,
                "- {}: {}: {what}",
                if holds { "holds" } else { "**not better, or goal missed**" },
                ours.name
            )?;
        }
    }
    Ok((text, drawn(courses, nobody)))
}

fn more_written(evening: &Evening, nobody: &Course, day: usize) -> f64 {
    let without = nobody.evenings.get(day).map_or(Bytes(0), |evening| evening.written);
    evening.written.mebibytes() - without.mebibytes()
}

/// The pieces of free space, which `longrun analyze` tells on every file system.
fn pieces(evening: &Evening) -> u64 {
    evening.free_pieces.unwrap_or_default()
}

/// A row for each week and care.
fn table(courses: &[Course], nobody: &Course, days: u32) -> Table {
    let mut table = Table::with_columns(&[
        "maintenance",
        "day",
        "files",
        "excess fragments",
        "free pieces",
        "largest free, MiB",
        "moved, MiB",
        "additional writes, MiB",
    ]);
    for course in courses {
        for day in told(days) {
            let Some(evening) = course.evenings.get(day as usize) else { continue };
            table.rows.push(vec![
                course.name.clone(),
                day.to_string(),
                evening.files.to_string(),
                evening.excess_fragments.to_string(),
                pieces(evening).to_string(),
                format!("{:.1}", evening.largest_free.unwrap_or_default().mebibytes()),
                format!("{:.0}", evening.moved.mebibytes()),
                format!("{:.0}", more_written(evening, nobody, day as usize)),
            ]);
        }
    }
    table
}

/// The goals, and whether they hold.
fn claims(nobody: &Course, peer: &Course, longrun: &Course) -> Vec<(bool, String)> {
    let last = |course: &Course| course.evenings.last().copied().unwrap_or_default();
    let (without, with) = (last(nobody).excess_fragments, last(longrun).excess_fragments);
    let fewer = if without == 0 { 0.0 } else { 100.0 * (1.0 - with as f64 / without as f64) };
    let then = longrun.evenings.get(PERIOD as usize).map_or(0, pieces);
    let now = pieces(&last(longrun));
    let end = nobody.evenings.len().saturating_sub(1);
    let (ours, theirs) = (more_written(&last(longrun), nobody, end), more_written(&last(peer), nobody, end));
    let (moved, moved_by_peer) = (last(longrun).moved.mebibytes(), last(peer).moved.mebibytes());
    vec![
        (
            fewer >= FEWER_PERCENT,
            format!(
                "at least {FEWER_PERCENT} % fewer excess fragments than without maintenance: {with} against {without} \
                 ({fewer:.1} % fewer)"
            ),
        ),
        (
            with <= last(peer).excess_fragments,
            format!("no more excess fragments than with {}: {with} against {}", peer.name, last(peer).excess_fragments),
        ),
        (
            now as f64 <= then as f64 * FLAT,
            format!(
                "no more free pieces than on day {PERIOD}: {then} then, {now} at the end ({} without maintenance, {} \
                 with the peer)",
                pieces(&last(nobody)),
                pieces(&last(peer))
            ),
        ),
        (
            moved < moved_by_peer && ours < theirs,
            format!(
                "moves less than {}: {moved:.0} MiB against {moved_by_peer:.0}; more written {ours:.0} against {theirs:.0}",
                peer.name
            ),
        ),
    ]
}

fn drawn(courses: &[Course], nobody: &Course) -> String {
    let lines = |value: &dyn Fn(usize, &Evening) -> f64| -> Vec<Curve> {
        let curve = |course: &Course| Curve {
            name: course.name.clone(),
            values: course.evenings.iter().enumerate().map(|(day, evening)| value(day, evening)).collect(),
        };
        courses.iter().map(curve).collect()
    };
    curves(&[
        ("Excess fragments at the end of each day", lines(&|_, evening| evening.excess_fragments as f64)),
        ("Pieces of free space", lines(&|_, evening| pieces(evening) as f64)),
        (
            "MiB written in addition to the volume without maintenance",
            lines(&|day, evening| more_written(evening, nobody, day)),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSystemKind;

    fn course(maintenance: Maintenance, excess: [u64; 9], pieces: u64, written: u64) -> Course {
        let evening = |excess_fragments| Evening {
            excess_fragments,
            free_pieces: Some(pieces + excess_fragments / 10),
            written: Bytes(written << 20),
            moved: Bytes((written - 100) << 20),
            ..Evening::default()
        };
        Course {
            maintenance,
            name: format!("{maintenance:?}"),
            evenings: excess.into_iter().map(evening).collect(),
            judged_excess: excess[8],
            judged_pieces: pieces,
            seconds: 1.0,
        }
    }

    const GROWING: [u64; 9] = [0, 100, 200, 300, 400, 500, 600, 700, 800];

    fn settings() -> AgeingSettings {
        let kind = FileSystemKind::Xfs;
        AgeingSettings { kind, mebibytes: 1024, days: 8, full_percent: 60, daily_percent: 5, seed: 1 }
    }

    #[test]
    fn goals_are_told_as_they_are() {
        let nobody = course(Maintenance::Nobody, GROWING, 10, 100);
        let peer = course(Maintenance::Peer, [5; 9], 10, 400);
        let good = claims(&nobody, &peer, &course(Maintenance::Longrun, [4; 9], 10, 200));
        assert!(good.iter().all(|(holds, _)| *holds), "{good:?}");
        assert!(good[0].1.contains("4 against 800 (99.5 % fewer)"), "{good:?}");
        let bad = claims(&nobody, &peer, &course(Maintenance::Longrun, GROWING, 10, 500));
        assert!(bad.iter().all(|(holds, _)| !*holds), "{bad:?}");
        let none = course(Maintenance::Nobody, [0; 9], 10, 100);
        assert!(
            !claims(&none, &peer, &course(Maintenance::Longrun, [0; 9], 10, 200))[0].0,
            "nothing to prevent is no success"
        );
    }

    #[test]
    fn the_report_has_each_week_and_a_picture() {
        let courses = [
            course(Maintenance::Nobody, GROWING, 10, 100),
            course(Maintenance::Peer, [5; 9], 10, 400),
            course(Maintenance::Longrun, [4; 9], 10, 200),
            course(Maintenance::LongrunAndPass, [0; 9], 10, 300),
        ];
        let (text, picture) = report(&settings(), &courses, "ageing-xfs.svg").unwrap();
        assert!(
            text.contains("| Longrun | 7 |") && text.contains("| Longrun | 8 |") && !text.contains("| Longrun | 6 |")
        );
        assert!(text.contains("(ageing-xfs.svg)") && text.matches("- holds").count() == 8, "{text}");
        assert_eq!(picture.matches("<polyline").count(), 12);
        assert!(report(&settings(), &courses[..3], "x").is_err());
    }
}

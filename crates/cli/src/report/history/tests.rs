//! A history with hostile names, in every form.

use super::*;
use longrun_ledger::{Benefit, EventShown, Gauge, GaugeShown, Period, SeriesPoint, Severity, VolumeIdentity};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn tallies(figures: &[(Counter, u64)]) -> Tallies {
    Tallies(figures.iter().copied().collect())
}

fn scan(time: &str, excess: u64, largest: u64) -> GaugeShown {
    let gauge = Gauge {
        files: Some(1000),
        fragmented_files: Some(excess / 3),
        excess_fragments: Some(excess),
        free_pieces: Some(300 - excess / 10),
        largest_free_bytes: Some(largest),
        free_bytes: Some(4 << 30),
        used_bytes: Some(6 << 30),
        floor_pieces: None,
    };
    GaugeShown { at: at(time), gauge }
}

fn sample() -> Report {
    let totals = tallies(&[
        (Counter::FragmentsPrevented, 98_500),
        (Counter::FragmentsSlipped, 1500),
        (Counter::FilesMended, 12),
        (Counter::FragmentsMended, 1499),
        (Counter::BytesMoved, 3 << 30),
        (Counter::ReadTimeSaved, 799_992_000),
        (Counter::BytesReclaimed, 5 << 30),
        (Counter::FilesFragmenting, 40),
        (Counter::RunwaysGranted, 130),
        (Counter::RunwayBytesGranted, 2 << 30),
        (Counter::RunwayBytesGivenBack, 1 << 30),
        (Counter::LeftLowSpace, 3),
        (Counter::LeftCompressed, 1),
        (Counter::Signals, 5000),
        (Counter::SignalsLost, 2),
        (Counter::OwnIoBytes, 7 << 30),
        (Counter::SpaceAlerts, 1),
        (Counter::CpuMillis, 12_345),
    ]);
    let point = |time: &str, prevented, mended| SeriesPoint {
        at: at(time),
        tallies: tallies(&[
            (Counter::FragmentsPrevented, prevented),
            (Counter::FragmentsMended, mended),
            (Counter::OwnIoBytes, mended << 21),
        ]),
    };
    let series = vec![
        point("2026-11-18T00:00:00Z", 500, 0),
        point("2026-11-20T00:00:00Z", 68_000, 1400),
        point("2026-11-21T00:00:00Z", 30_000, 99),
    ];
    let benefit = Benefit {
        excess_avoided: 99_999,
        prevented_per_mille: Some(985),
        requests_saved_per_full_read: 99_999,
        microseconds_saved_per_full_read: 799_992_000,
        statements: vec!["98,500 excess fragments prevented, 98.5 % of those that were expected.".into()],
    };
    let volume = VolumeIdentity {
        uuid: "3c0d…".into(),
        label: Some("</title><script>alert(1)</script>\x1b[2J".into()),
        point: OsString::from_vec(b"/mnt/\x1b]0;x\x07<b>\xff".to_vec()).into(),
        device: "/dev/\"sdb1'&".into(),
        filesystem: "xfs".into(),
    };
    let event = |severity, path: Option<&str>| EventShown {
        at: at("2026-11-20T10:20:30Z"),
        volume: Some("3c0d…".into()),
        severity,
        kind: "mended".into(),
        text: "a file was <mended>\nand more".into(),
        path: path.map(str::to_owned),
        path_hex: None,
    };
    Report {
        period: Period { from: at("2026-11-14T12:00:00Z"), to: at("2026-11-21T12:00:00Z") },
        step: Step::Day,
        has_history: true,
        series: series.clone(),
        benefit: benefit.clone(),
        volumes: vec![VolumeReport {
            volume,
            first_seen: None,
            last_seen: None,
            totals: totals.clone(),
            series,
            scans: vec![scan("2026-11-18T01:00:00Z", 1700, 22 << 20), scan("2026-11-21T01:00:00Z", 201, 512 << 20)],
            benefit,
        }],
        totals,
        events: vec![event(Severity::Alert, None), event(Severity::Info, Some("/mnt/<img src=x onerror=1>\u{202e}"))],
        events_left_out: 7,
    }
}

#[test]
fn the_text_is_stable_and_cannot_drive_the_terminal() {
    let text = text(&sample());
    assert!(!text.contains(['\x1b', '\x07', '\u{202e}']));
    insta::assert_snapshot!(text);
}

#[test]
fn the_json_is_stable() {
    insta::assert_json_snapshot!(sample());
}

#[test]
fn the_page_has_charts_and_nothing_that_a_name_could_make_run() {
    let page = page(&sample());
    for hostile in ["<script", "<img", "<b>", "\x1b", "\x07", "\u{202e}", "http://", "https://", "src=\"", "href="] {
        assert!(!page.contains(hostile), "{hostile:?} is in the page");
    }
    assert_eq!(page.matches("<svg").count(), 5);
    assert_eq!(page.matches("</svg>").count(), 5);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the name is shown as it is");
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn without_history_every_form_says_so() {
    let empty = Report::empty(sample().period);
    assert!(text(&empty).contains(NO_HISTORY));
    assert!(page(&empty).contains(NO_HISTORY));
}

#[test]
fn the_largest_figures_can_be_drawn() {
    let mut report = sample();
    for counter in Counter::ALL {
        report.totals.add(*counter, u64::MAX);
        report.series.iter_mut().for_each(|point| point.tallies.add(*counter, u64::MAX));
    }
    report.volumes.iter_mut().flat_map(|v| &mut v.scans).for_each(|scan| scan.gauge.free_pieces = Some(u64::MAX));
    let page = page(&report);
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    assert!(text(&report).contains("18,446,744,073,709,551,615"));
}

#[test]
fn times_are_read_as_ago_or_as_dates_of_utc() {
    let now = at("2026-11-21T12:00:00Z");
    let seen = |text: &str| parse_moment(text).ok().map(|moment| moment.seen_from(now).to_string());
    let known = [
        ("7d", "2026-11-14T12:00:00Z"),
        ("12h", "2026-11-21T00:00:00Z"),
        ("2w", "2026-11-07T12:00:00Z"),
        ("2026-11-01", "2026-11-01T00:00:00Z"),
        ("2026-11-01T08:30", "2026-11-01T08:30:00Z"),
        ("2026-11-01 08:30", "2026-11-01T08:30:00Z"),
        ("2026-11-01T08:30:00+01:00", "2026-11-01T07:30:00Z"),
    ];
    for (text, expected) in known {
        assert_eq!(seen(text).as_deref(), Some(expected), "{text}");
    }
    for text in ["", "7", "d", "0d", "-1d", "7 parsecs", "2026-13-01", "2026-02-30", "yesterday", "99999999999d"] {
        assert!(parse_moment(text).is_err_and(|e| e.contains("2026-11-01")), "{text}");
    }
    assert!(seen("4294967295y").is_some(), "the beginning of time");
}

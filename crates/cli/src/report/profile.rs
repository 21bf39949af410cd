//! The report of `profile`: text, JSON, SVG and HTML.

use super::page::chart::{Bars, bars};
use super::page::{figure, shell};
use crate::text::{counted, duration, printable_path, size};
use longrun_governor::DiskKind;
use longrun_profile::{Fastest, PLACES, Place, Profile, Verdict};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The longest bar, in letters.
const WIDTH: f64 = 40.0;

/// What is printed as JSON.
#[derive(Debug, Serialize)]
pub struct Profiled {
    /// As the user named it.
    pub target: PathBuf,
    /// What the system says that it is.
    pub kind: DiskKind,
    /// The devices that it is made of.
    pub devices: Vec<Measured>,
}

/// A device, and when it was measured.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// What was found.
    #[serde(flatten)]
    pub profile: Profile,
    /// Whether it was measured by an earlier run.
    pub from_before: bool,
}

impl Profiled {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", printable_path(&self.target), self.kind);
        for device in &self.devices {
            text += &device.text();
        }
        if self.devices.len() > 1 {
            text += "\nA share of the way through an array is the same share of the way through each of its members, except in a linear one.\n";
        }
        text
    }
}

impl Measured {
    fn text(&self) -> String {
        let profile = &self.profile;
        let mut text = format!("\n{} ({}), {}\n", profile.device, size(profile.bytes), self.when());
        let most = profile.places.iter().map(Place::speed).fold(0.0, f64::max);
        for place in &profile.places {
            let length = if most > 0.0 { (place.speed() / most * WIDTH).round() as usize } else { 0 };
            _ = writeln!(text, "  {:>5}  {:>8}  {}", share(place, profile), speed(place.speed()), "█".repeat(length));
        }
        text += &sentence(&profile.verdict);
        if profile.unsettled() > 0 {
            _ = write!(
                text,
                " {} of {PLACES} could not be measured twice alike: others used the disk.",
                counted(profile.unsettled() as u64, "place", "places")
            );
        }
        text + "\n"
    }

    fn when(&self) -> String {
        let profile = &self.profile;
        let took = duration(Duration::try_from_secs_f64(profile.seconds).unwrap_or_default());
        if self.from_before {
            format!("measured on {} (--again measures it again)", profile.measured.strftime("%Y-%m-%d"))
        } else {
            format!("measured in {took}")
        }
    }
}

fn share(place: &Place, profile: &Profile) -> String {
    format!("{:.0} %", place.at.0 as f64 / profile.bytes.0.max(1) as f64 * 100.0)
}

/// In millions of bytes a second, as makers of disks count.
fn speed(bytes: f64) -> String {
    format!("{:.0} MB/s", bytes / 1e6)
}

fn sentence(verdict: &Verdict) -> String {
    let figures = format!("slope {:+.1} standard errors, rank correlation {:+.2}", verdict.t, verdict.rho);
    match verdict.gradient {
        Some(fastest) => {
            let (fast, slow) = match fastest {
                Fastest::Beginning => ("beginning", "end"),
                Fastest::End => ("end", "beginning"),
            };
            format!("A gradient: its {fast} is {:.0} % faster than its {slow} ({figures}).", verdict.gain * 100.0)
        }
        None => format!("No gradient: where files lie makes no difference to their speed ({figures})."),
    }
}

/// A page with a chart of each device.
pub fn page(found: &Profiled) -> String {
    let mut body = String::new();
    for device in &found.devices {
        let title = format!("{} ({}), {}", device.profile.device, size(device.profile.bytes), device.when());
        figure(&mut body, &title, &chart(&device.profile), &[]);
        _ = writeln!(body, "<p class=\"note\">{}</p>", super::page::escape(&sentence(&device.profile.verdict)));
    }
    shell("Speed by place", &format!("{}: {}", found.target.display(), found.kind), &body)
}

/// The chart of the first device, or of all of them below each other, as a file of its own.
pub fn svg(found: &Profiled) -> String {
    let style = "<style>.mark{fill:#5d6878;font:11px sans-serif}.part0{fill:#3b7dc4}</style>";
    let mut charts = String::new();
    let mut down = 0.0;
    for device in &found.devices {
        let chart = chart(&device.profile);
        let height = height(&chart);
        let title = super::page::escape(&device.profile.device);
        _ = write!(charts, "<text class=\"mark\" x=\"0\" y=\"{:.0}\">{title}</text>", down + 14.0);
        _ = write!(charts, "<svg x=\"0\" y=\"{:.0}\" width=\"560\" height=\"{height:.0}\"", down + 20.0);
        charts += chart.strip_prefix("<svg").unwrap_or_default();
        down += height + 30.0;
    }
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 560 {down:.0}\">{style}{charts}</svg>\n")
}

/// How high a chart says that it is.
fn height(chart: &str) -> f64 {
    let inside = chart.split('"').nth(1).unwrap_or_default();
    inside.rsplit(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn chart(profile: &Profile) -> String {
    let groups: Vec<(String, Vec<f64>)> =
        profile.places.iter().map(|place| (share(place, profile), vec![place.speed() / 1e6])).collect();
    let parts = ["speed".to_owned()];
    let title = format!("Speed of {} by place", profile.device);
    bars(&Bars { title: &title, parts: &parts, groups: &groups }, |value| format!("{value:.0} MB/s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use longrun_layout::Bytes;

    fn profiled(end: f64) -> Profiled {
        let place = |nth: usize| {
            let speed = 160e6 - (160e6 - end) * nth as f64 / 15.0;
            Place { at: Bytes((nth as u64) << 30), speeds: vec![speed; 3] }
        };
        let places: Vec<Place> = (0..PLACES).map(place).collect();
        let verdict = Verdict::of(&places);
        let (device, measured) = ("sd<a>".to_owned(), Timestamp::UNIX_EPOCH);
        let profile = Profile { device, bytes: Bytes(16 << 30), measured, seconds: 4.25, places, verdict };
        let devices = vec![Measured { profile, from_before: false }];
        Profiled { target: "/dev/sd\x1ba".into(), kind: DiskKind::Rotational, devices }
    }

    #[test]
    fn the_text_has_a_line_for_each_place_and_says_what_follows() {
        let text = profiled(80e6).text();
        assert!(text.starts_with("/dev/sd\\x1ba: rotational disk\n\nsd<a> (16.0 GiB), measured in 4.2 s\n"), "{text}");
        assert!(text.contains("    0 %  160 MB/s  ████████████████████████████████████████\n"), "{text}");
        assert!(text.contains("   94 %   80 MB/s  ████████████████████\n"), "{text}");
        assert!(text.contains("A gradient: its beginning is 100 % faster than its end (slope -1000.0"), "{text}");
        assert!(profiled(160e6).text().contains("No gradient"));
    }

    #[test]
    fn pictures_have_a_bar_for_each_place_and_no_foreign_markup() {
        let found = profiled(80e6);
        for picture in [page(&found), svg(&found)] {
            assert_eq!(picture.matches("class=\"part0\"").count(), PLACES);
            assert!(!picture.contains("sd<a>"));
        }
        let (svg, opened) = (svg(&found), svg(&found).matches("<svg").count());
        assert_eq!(svg.matches("</svg>").count(), opened);
    }
}

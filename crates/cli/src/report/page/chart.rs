//! Charts as SVG: columns for what was counted, a line for what was found, bars for what was measured.
//!
//! Owns geometry only. Colours are classes of the page, so that they follow its light or dark ground; what a point says
//! is its `title`, which browsers show without a script.

use super::escape;
use super::scale::{Axis, Kind, minute, step_label, time_label, time_marks};
use jiff::Timestamp;
use longrun_ledger::Step;
use std::fmt::Write as _;

const WIDE: f64 = 560.0;
/// Three of them stand side by side.
const NARROW: f64 = 370.0;
const HEIGHT: f64 = 210.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;
const RIGHT: f64 = 14.0;
const LETTER: f64 = 6.4;
/// A few columns shall not look like walls.
const WIDEST_COLUMN: f64 = 34.0;
const TIME_LABELS: usize = 7;
/// More points cannot be told apart.
const POINTS: usize = 280;
/// So few points are marked each.
const MARKED: usize = 50;

/// Columns, one a step of time; each of several parts upon each other.
pub struct Columns<'a> {
    /// What it is, for those who cannot see it.
    pub title: &'a str,
    /// What the parts are; the first stands at the foot.
    pub parts: &'a [&'a str],
    /// What they are numbers of.
    pub kind: Kind,
    /// How long a step is.
    pub step: Step,
    /// Each step, and its parts.
    pub slots: Vec<(Timestamp, Vec<u64>)>,
}

/// The part of the picture where values are drawn.
struct Plot {
    axis: Axis,
    left: f64,
    whole: f64,
}

impl Plot {
    fn new(whole: f64, most: u64, kind: Kind) -> Self {
        let axis = Axis::up_to(most, kind);
        let left = (axis.width() as f64 * LETTER + 12.0).max(40.0);
        Self { axis, left, whole }
    }

    fn width(&self) -> f64 {
        self.whole - RIGHT - self.left
    }

    fn y(&self, value: u64) -> f64 {
        self.at(self.axis.share(value))
    }

    fn at(&self, share: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)
    }

    /// The picture begun: frame, lines and marks.
    fn begin(&self, title: &str) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"{}\" preserveAspectRatio=\"xMidYMid meet\">\n",
            self.whole,
            escape(title)
        );
        let right = self.whole - RIGHT;
        for (value, label) in &self.axis.ticks {
            let y = self.at(value / self.axis.top);
            let class = if *value == 0.0 { "base" } else { "grid" };
            _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"mark end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.left,
                self.left - 7.0,
                y + 3.5,
                escape(label)
            );
        }
        svg
    }

    /// A mark below the picture. What stands at the edges shall not be cut off.
    fn below(&self, svg: &mut String, x: f64, label: &str) {
        let half = label.chars().count() as f64 * LETTER / 2.0;
        let x = x.clamp(half, self.whole - half);
        let y = HEIGHT - 8.0;
        _ = writeln!(svg, "<text class=\"mark middle\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(label));
    }
}

/// Begins what belongs together in a chart: a band of its height that says what it is when it is touched.
fn begin_slot(svg: &mut String, middle: f64, band: f64) {
    svg.push_str("<g class=\"slot\">");
    _ = write!(
        svg,
        "<rect class=\"touch\" x=\"{:.1}\" y=\"{TOP}\" width=\"{band:.1}\" height=\"{:.1}\"/>",
        middle - band / 2.0,
        HEIGHT - TOP - BOTTOM
    );
}

/// Draws columns.
pub fn columns(chart: &Columns<'_>) -> String {
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
    let plot = Plot::new(WIDE, chart.slots.iter().map(|(_, parts)| sum(parts)).max().unwrap_or(0), chart.kind);
    let mut svg = plot.begin(chart.title);
    let band = plot.width() / chart.slots.len().max(1) as f64;
    let column = (band * 0.72).min(WIDEST_COLUMN);
    let label_each = chart.slots.len().div_ceil(TIME_LABELS).max(1);
    for (nth, (at, parts)) in chart.slots.iter().enumerate() {
        let middle = plot.left + band * (nth as f64 + 0.5);
        let mut says = step_label(chart.step, *at) + " UTC";
        begin_slot(&mut svg, middle, band);
        let mut foot = 0u64;
        for (part, value) in parts.iter().enumerate() {
            let name = chart.parts.get(part).copied().unwrap_or_default();
            _ = write!(says, "\n{name}: {}", chart.kind.show(*value));
            let head = foot.saturating_add(*value);
            let (y, bottom) = (plot.y(head), plot.y(foot));
            foot = head;
            if *value > 0 {
                // What is there is seen, be it ever so little.
                let height = (bottom - y).max(1.0);
                _ = write!(
                    svg,
                    "<rect class=\"part{part}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{column:.1}\" height=\"{height:.1}\" rx=\"1.5\"/>",
                    middle - column / 2.0,
                    bottom - height
                );
            }
        }
        _ = writeln!(svg, "<title>{}</title></g>", escape(&says));
        if nth % label_each == label_each / 2 {
            plot.below(&mut svg, middle, &time_label(chart.step, *at));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Columns beside each other, one for each part, for things that have names.
pub struct Groups<'a> {
    /// What it is, for those who cannot see it.
    pub title: &'a str,
    /// What the parts are.
    pub parts: &'a [&'a str],
    /// The names, and the number of each part.
    pub groups: Vec<(String, Vec<u64>)>,
}

/// Draws numbers of things by name.
pub fn groups(chart: &Groups<'_>) -> String {
    let most = chart.groups.iter().flat_map(|(_, parts)| parts).max().copied().unwrap_or(0);
    let plot = Plot::new(WIDE, most, Kind::Count);
    let mut svg = plot.begin(chart.title);
    let band = plot.width() / chart.groups.len().max(1) as f64;
    let column = (band * 0.8 / chart.parts.len().max(1) as f64).min(WIDEST_COLUMN);
    // As many names as find room beside each other.
    let longest = chart.groups.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(1) as f64 * LETTER + 6.0;
    let label_each = (longest / band).ceil().max(1.0) as usize;
    for (nth, (name, parts)) in chart.groups.iter().enumerate() {
        let middle = plot.left + band * (nth as f64 + 0.5);
        let mut says = name.clone();
        let mut x = middle - column * parts.len() as f64 / 2.0;
        begin_slot(&mut svg, middle, band);
        for (part, value) in parts.iter().enumerate() {
            let name = chart.parts.get(part).copied().unwrap_or_default();
            _ = write!(says, "\n{name}: {}", Kind::Count.show(*value));
            if *value > 0 {
                // What is there is seen, be it ever so little.
                let height = (plot.y(0) - plot.y(*value)).max(1.0);
                _ = write!(
                    svg,
                    "<rect class=\"part{part}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"1.5\"/>",
                    plot.y(0) - height,
                    column * 0.92
                );
            }
            x += column;
        }
        _ = writeln!(svg, "<title>{}</title></g>", escape(&says));
        if nth % label_each == label_each / 2 {
            plot.below(&mut svg, middle, name);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line through what was found at some times.
pub struct Line<'a> {
    /// What it is.
    pub title: &'a str,
    /// What it is a number of.
    pub kind: Kind,
    /// Which colour: 0 or 1.
    pub class: usize,
    /// When what was found, oldest first.
    pub points: Vec<(Timestamp, u64)>,
}

/// Draws a line. Of many points, the last of each stretch is shown.
pub fn line(chart: &Line<'_>) -> String {
    let each = chart.points.len().div_ceil(POINTS).max(1);
    let points: Vec<(Timestamp, u64)> =
        chart.points.chunks(each).filter_map(|stretch| stretch.last().copied()).collect();
    let plot = Plot::new(NARROW, points.iter().map(|(_, value)| *value).max().unwrap_or(0), chart.kind);
    let mut svg = plot.begin(chart.title);
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else {
        return svg + "</svg>\n";
    };
    let span = last.duration_since(*first).as_secs_f64();
    let x_of = |at: Timestamp| match span > 0.0 {
        true => plot.left + plot.width() * at.duration_since(*first).as_secs_f64() / span,
        false => plot.left + plot.width() / 2.0,
    };
    let class = chart.class;
    let path: Vec<String> =
        points.iter().map(|(at, value)| format!("{:.1},{:.1}", x_of(*at), plot.y(*value))).collect();
    if let (true, Some(start), Some(end)) = (points.len() > 1, points.first(), points.last()) {
        let foot = plot.at(0.0);
        let (from, to) = (x_of(start.0), x_of(end.0));
        _ = writeln!(
            svg,
            "<polygon class=\"area{class}\" points=\"{from:.1},{foot:.1} {line} {to:.1},{foot:.1}\"/>\
             <polyline class=\"line{class}\" points=\"{line}\"/>",
            line = path.join(" ")
        );
    }
    let radius = if points.len() <= MARKED { 2.6 } else { 1.2 };
    for (at, value) in &points {
        _ = writeln!(
            svg,
            "<circle class=\"part{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\"><title>{} UTC\n{}</title></circle>",
            x_of(*at),
            plot.y(*value),
            minute(*at),
            escape(&chart.kind.show(*value))
        );
    }
    for (at, label) in time_marks(*first, *last) {
        plot.below(&mut svg, x_of(at), &label);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Bars below each other, one for each part, for things that were measured.
pub struct Bars<'a> {
    /// What it is, for those who cannot see it.
    pub title: &'a str,
    /// What the parts are.
    pub parts: &'a [String],
    /// The names, and the value of each part.
    pub groups: &'a [(String, Vec<f64>)],
}

/// Draws values of things by name; beside each bar stands its value as `show` has it.
pub fn bars(chart: &Bars<'_>, show: impl Fn(f64) -> String) -> String {
    const THICK: f64 = 16.0;
    const GAP: f64 = 12.0;
    const VALUE: f64 = 76.0;
    let values = || chart.groups.iter().flat_map(|(_, values)| values).copied().filter(|value| value.is_finite());
    let most = values().fold(0.0, f64::max);
    let room = WIDE - RIGHT - VALUE;
    let mut down = 0.0;
    let mut drawn = String::new();
    for (name, values) in chart.groups {
        down += 15.0;
        _ = writeln!(drawn, "<text class=\"mark\" x=\"0\" y=\"{:.1}\">{}</text>", down - 4.0, escape(name));
        for (part, value) in values.iter().enumerate() {
            let length = if most > 0.0 && value.is_finite() { (value / most).max(0.0) * room } else { 0.0 };
            // What is there is seen, be it ever so little.
            let length = if *value > 0.0 { length.max(1.0) } else { length };
            let says = chart.parts.get(part).map_or_else(|| name.clone(), |part| format!("{name}: {part}"));
            let shown = escape(&show(*value));
            _ = writeln!(
                drawn,
                "<g><title>{}\n{shown}</title><rect class=\"part{part}\" x=\"0\" y=\"{down:.1}\" width=\"{length:.1}\" \
                 height=\"{:.1}\" rx=\"1.5\"/><text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\">{shown}</text></g>",
                escape(&says),
                THICK - 2.0,
                length + 6.0,
                down + THICK - 5.0
            );
            down += THICK;
        }
        down += GAP;
    }
    format!(
        "<svg viewBox=\"0 0 {WIDE} {down:.0}\" role=\"img\" aria-label=\"{}\" preserveAspectRatio=\"xMidYMid meet\">\n{drawn}</svg>\n",
        escape(chart.title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_stand_for_and_fit() {
        let groups = [("a <name>".to_owned(), vec![4.0, 1.0]), ("none".to_owned(), vec![0.0, f64::NAN])];
        let parts = ["before".to_owned(), "after".to_owned()];
        let svg = bars(&Bars { title: "Time", parts: &parts, groups: &groups }, |value| format!("{value:.1}"));
        assert!(svg.contains("a &lt;name&gt;: before") && !svg.contains("<name>"), "{svg}");
        let widths: Vec<f64> =
            svg.split(" width=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        assert_eq!(widths, [470.0, 117.5, 0.0, 0.0], "{svg}");
        assert!(bars(&Bars { title: "", parts: &[], groups: &[] }, |_| String::new()).contains("<svg"));
    }
}

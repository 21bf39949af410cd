//! Draws curves over days as a self-contained SVG picture.
//!
//! Owns the geometry only, never the content.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 28.0;
/// Told apart in grey as well.
const COLOURS: [&str; 4] = ["#c0504d", "#c98a1b", "#2f7d4f", "#2b5fa5"];
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "none"];

/// A line with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is.
    pub name: String,
    /// The value of each day, from day 0.
    pub values: Vec<f64>,
}

/// Pictures below each other, one for each title.
#[must_use]
pub fn curves(pictures: &[(&str, Vec<Curve>)]) -> String {
    let height = HEIGHT * pictures.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (number, (title, curves)) in pictures.iter().enumerate() {
        let down = HEIGHT * number as f64;
        // Writing to a string never fails.
        _ = writeln!(svg, "<g transform=\"translate(0 {down})\" role=\"img\" aria-label=\"{}\">", escape(title));
        picture(&mut svg, title, curves);
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

fn picture(svg: &mut String, title: &str, curves: &[Curve]) {
    let values = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let top = round_up(values().fold(0.0, f64::max));
    let days = curves.iter().map(|curve| curve.values.len()).max().unwrap_or_default().saturating_sub(1).max(1);
    let x = |day: usize| LEFT + (WIDTH - LEFT - RIGHT) * day as f64 / days as f64;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value.max(0.0) / top);
    _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"16\" font-weight=\"600\">{}</text>", escape(title));
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let at = y(value);
        _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for day in (0..=days).step_by(days.div_ceil(8).max(1)) {
        let (at, below) = (x(day), HEIGHT - 10.0);
        _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\" fill=\"#555\">{day}</text>");
    }
    for (number, (curve, colour)) in curves.iter().zip(COLOURS).enumerate() {
        let points: Vec<String> =
            (0..).zip(&curve.values).map(|(day, value)| format!("{:.1},{:.1}", x(day), y(*value))).collect();
        let (name, dashes) = (escape(&curve.name), DASHES.get(number).unwrap_or(&"none"));
        _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\">\
             <title>{name}</title></polyline><text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            LEFT + 8.0,
            TOP + 14.0 * (number + 1) as f64
        );
    }
}

/// The next 1, 2, 4 or 8 with zeros: a quarter of it is a number that one reads.
fn round_up(most: f64) -> f64 {
    let ten = 10f64.powf(most.max(4.0).log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0].map(|times| times * ten).into_iter().find(|top| *top >= most).unwrap_or(most)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_drawn_within_the_picture() {
        let curve = |name: &str, values: &[f64]| Curve { name: name.to_owned(), values: values.to_vec() };
        let svg = curves(&[("Excess", vec![curve("no <care>", &[0.0, 950.0, 3999.0]), curve("ours", &[0.0; 3])])]);
        assert!(svg.contains("no &lt;care&gt;") && !svg.contains("<care>"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
        let line = svg.split("<polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
        let points: Vec<(f64, f64)> = line
            .split(' ')
            .filter_map(|point| point.split_once(','))
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!(points.len(), 3);
        assert!(
            points.iter().all(|(x, y)| (LEFT..=WIDTH - RIGHT).contains(x) && (TOP..=HEIGHT - BOTTOM).contains(y)),
            "{points:?}"
        );
        assert!(points[2].1 < points[1].1 && points[1].1 < points[0].1, "more is higher: {points:?}");
        assert!(svg.contains(">4000<"), "the axis ends at a round number: {svg}");
    }
}

//! The scene as SVG text.

use super::palette::Color;
use super::scene::{Font, Scene};
use std::fmt::Write as _;

/// A complete SVG document.
pub fn render(scene: &Scene) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         shape-rendering=\"crispEdges\" font-family=\"ui-monospace, 'Noto Sans Mono', 'DejaVu Sans Mono', monospace\">\n",
        w = scene.width,
        h = scene.height
    );
    for r in &scene.rectangles {
        _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
            r.x,
            r.y,
            r.width,
            r.height,
            hex(r.color)
        );
    }
    for t in &scene.texts {
        let (points, weight, baseline) = match t.font {
            Font::Title => (20, 600, t.y + 18),
            Font::Body => (13, 400, t.y + 12),
        };
        // The length is fixed, so that a browser's other font does not run into the neighbour.
        let length = t.text.chars().count() as u32 * t.font.advance();
        _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" font-size=\"{points}\" font-weight=\"{weight}\" fill=\"{}\" \
             textLength=\"{length}\" xml:space=\"preserve\">{}</text>",
            t.x,
            hex(t.color),
            escape(&t.text)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn hex(color: Color) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

/// Text content: markup is escaped; control characters, which XML forbids, have been escaped by the caller.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{scene, tests::sample};

    #[test]
    fn the_picture_is_stable() {
        let scene = scene::compose(&sample(), "/mnt <&>", &["1 excess fragment".to_owned()], 300, 200);
        insta::assert_snapshot!(render(&scene));
    }
}

//! The picture of a volume as rectangles and lines of text; SVG and PNG draw the same scene.

use super::model::{Map, State};
use super::palette::{Color, Palette};
use crate::text::{percent, size};
use longrun_layout::{Blocks, Bytes, VolumeLayout};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster_width};

/// A filled rectangle, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// Its colour.
    pub color: Color,
}

/// The sizes of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Font {
    /// The title.
    Title,
    /// Everything else.
    Body,
}

impl Font {
    /// The height of a line in pixels.
    pub const fn height(self) -> u32 {
        match self {
            Self::Title => 24,
            Self::Body => 16,
        }
    }

    /// The width of a character in pixels: the fonts are monospaced.
    pub const fn advance(self) -> u32 {
        match self {
            Self::Title => get_raster_width(FontWeight::Bold, RasterHeight::Size24) as u32,
            Self::Body => get_raster_width(FontWeight::Regular, RasterHeight::Size16) as u32,
        }
    }
}

/// A line of text, in pixels; `x` and `y` are its upper left corner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// Size.
    pub font: Font,
    /// Its colour.
    pub color: Color,
    /// The characters.
    pub text: String,
}

/// The whole picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Drawn in this order.
    pub rectangles: Vec<Rectangle>,
    /// Drawn above them.
    pub texts: Vec<Text>,
}

const INK: Color = Color(0x1d, 0x25, 0x30);
const FAINT: Color = Color(0x5c, 0x67, 0x75);
const MARGIN: u32 = 24;
const LABELS: u32 = 80;
/// Edge of a cell, in pixels.
const CELL: u32 = 6;
const LINE: u32 = 22;
/// Edge of the squares in the legend, in pixels.
const SWATCH: u32 = 14;

/// Composes the picture: title, figures, cells with addresses, legend.
pub fn compose(layout: &VolumeLayout, title: &str, figures: &[String], width: u32, height: u32) -> Scene {
    let width = width.max(MARGIN * 2 + LABELS + CELL * 10);
    let head = MARGIN + Font::Title.height() + 10 + LINE * figures.len() as u32 + 14;
    let whole = Map::new(layout, 1);
    let entries = place_legend(&whole, width);
    let foot = 18 + LINE * (entries.last().map_or(0, |e| e.row + 1) + 2) + MARGIN;
    let height = height.max(head + foot + CELL * 4);
    let columns = (width - MARGIN * 2 - LABELS) / CELL;
    let rows = (height - head - foot) / CELL;
    let map = Map::new(layout, columns as usize * rows as usize);

    let mut scene = Scene { width, height, rectangles: Vec::new(), texts: Vec::new() };
    scene.rectangles.push(Rectangle { x: 0, y: 0, width, height, color: Color(255, 255, 255) });
    scene.write(MARGIN, MARGIN, Font::Title, INK, title);
    for (line, figure) in (0..).zip(figures) {
        scene.write(MARGIN, MARGIN + Font::Title.height() + 10 + LINE * line, Font::Body, INK, figure);
    }
    scene.cells(&map, layout, columns, head);
    let cell = Bytes(layout.block_size().to_bytes(map.whole.total()).0 / map.cells.len().max(1) as u64);
    scene.legend(&entries, cell, height - foot + 18);
    scene
}

impl Scene {
    /// Adds a line of text, cut where the picture ends.
    fn write(&mut self, x: u32, y: u32, font: Font, color: Color, text: &str) {
        let room = (self.width.saturating_sub(x + MARGIN / 2) / font.advance()) as usize;
        let text = if text.chars().count() <= room {
            text.to_owned()
        } else {
            text.chars().take(room.saturating_sub(3)).chain("...".chars()).collect()
        };
        self.texts.push(Text { x, y, font, color, text });
    }

    fn cells(&mut self, map: &Map, layout: &VolumeLayout, columns: u32, top: u32) {
        let total = map.cells.len().max(1) as u128;
        for (row, cells) in (0..).zip(map.cells.chunks(columns as usize)) {
            let y = top + row * CELL;
            if row % 8 == 0 {
                let first = u128::from(row) * u128::from(columns) * u128::from(layout.total_blocks().0) / total;
                let label = match layout.block_size().to_bytes(Blocks(first as u64)) {
                    Bytes(0) => "0".to_owned(),
                    address => size(address),
                };
                let x = MARGIN + (LABELS - 12).saturating_sub(label.len() as u32 * Font::Body.advance());
                self.write(x, y.saturating_sub(5), Font::Body, FAINT, &label);
            }
            // Neighbours of one colour are one rectangle: a map of a tidy volume stays a small file.
            let mut x = MARGIN + LABELS;
            for run in cells.chunk_by(|a, b| Palette::LIGHT.cell(a) == Palette::LIGHT.cell(b)) {
                let width = run.len() as u32 * CELL;
                if let Some(cell) = run.first() {
                    let color = Palette::LIGHT.cell(cell);
                    self.rectangles.push(Rectangle { x, y, width, height: CELL, color });
                }
                x += width;
            }
        }
    }

    fn legend(&mut self, entries: &[LegendEntry], cell: Bytes, top: u32) {
        for entry in entries {
            let (x, y) = (entry.x, top + entry.row * LINE);
            let color = Palette::LIGHT.state(entry.state);
            self.rectangles.push(Rectangle { x, y: y + 1, width: SWATCH, height: SWATCH, color });
            self.write(x + SWATCH + 6, y, Font::Body, INK, &entry.label);
        }
        let notes = [
            format!(
                "One cell is {}. It shows the most frequent content (fragmented data from a quarter up);",
                size(cell)
            ),
            "paler cells have more free space.".to_owned(),
        ];
        let rows = entries.last().map_or(0, |e| e.row + 1);
        for (row, note) in (rows..).zip(&notes) {
            self.write(MARGIN, top + row * LINE, Font::Body, FAINT, note);
        }
    }
}

/// One state in the legend.
struct LegendEntry {
    state: State,
    label: String,
    x: u32,
    row: u32,
}

/// Places the entries of the legend from left to right, in as many rows as they need.
fn place_legend(map: &Map, width: u32) -> Vec<LegendEntry> {
    let (mut x, mut row) = (MARGIN, 0);
    let mut entries = Vec::new();
    for state in State::ALL {
        let label = format!("{} {}", state.label(), percent(map.whole.of(state).0, map.whole.total().0));
        let length = SWATCH + 6 + label.len() as u32 * Font::Body.advance();
        if x > MARGIN && x + length > width - MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        entries.push(LegendEntry { state, label, x, row });
        x += length + 24;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::sample;

    #[test]
    fn nothing_lies_outside_the_picture() {
        for (width, height) in [(20, 1), (300, 200), (1280, 800), (10_000, 50)] {
            let scene = compose(&sample(), "A title that is long", &["figures".repeat(40)], width, height);
            for r in &scene.rectangles {
                assert!(r.x + r.width <= scene.width && r.y + r.height <= scene.height, "{r:?}");
            }
            for t in &scene.texts {
                assert!(t.x + t.text.chars().count() as u32 * t.font.advance() <= scene.width, "{t:?}");
                assert!(t.y + t.font.height() <= scene.height, "{t:?}");
            }
        }
    }
}

//! The map in a terminal: coloured cells where colours can be shown, letters elsewhere.

use super::model::{Map, State};
use super::palette::{Color, Palette};
use crate::args::ColorWhen;
use crate::text::{percent, size};
use longrun_layout::{BlockSize, Blocks, Bytes, VolumeLayout};
use std::fmt::Write as _;

/// Columns taken by the address at the start of each line.
pub const LABEL_WIDTH: usize = 9;

/// What the terminal can display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One letter a cell.
    Letters,
    /// Coloured cells.
    Colors {
        /// 24-bit colours; otherwise the 256 of the palette.
        true_color: bool,
        /// Two cells, one above the other, in each character; needs Unicode.
        half_blocks: bool,
    },
}

impl Style {
    /// The style for the terminal (`is_terminal`), the user's choice and the environment (`get` reads a variable).
    pub fn choose(when: ColorWhen, is_terminal: bool, get: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| get(name).filter(|value| !value.is_empty());
        let terminal = set("TERM").unwrap_or_default();
        let wanted = match when {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => is_terminal && set("NO_COLOR").is_none() && !matches!(&*terminal, "" | "dumb"),
        };
        let announced = set("COLORTERM").is_some_and(|v| v == "truecolor" || v == "24bit");
        let true_color = announced || when == ColorWhen::Always || terminal.contains("direct");
        if !wanted || !(true_color || terminal.contains("256color")) {
            return Self::Letters;
        }
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let unicode = locale.to_ascii_lowercase().replace('-', "").contains("utf8");
        Self::Colors { true_color, half_blocks: unicode }
    }

    /// Cells one above the other in a line of text.
    const fn cells_a_line(self) -> usize {
        match self {
            Self::Colors { half_blocks: true, .. } => 2,
            _ => 1,
        }
    }
}

/// Draws the map in `columns` × `lines` characters (labels not counted), with its legend.
pub fn draw(layout: &VolumeLayout, columns: usize, lines: usize, style: Style) -> String {
    let (columns, lines) = (columns.max(1), lines.max(1));
    let map = Map::new(layout, columns * lines * style.cells_a_line());
    let mut text = String::new();
    let total = map.cells.len().max(1) as u128;
    for (line, cells) in map.cells.chunks(columns * style.cells_a_line()).enumerate() {
        let first = (line * columns * style.cells_a_line()) as u128 * u128::from(layout.total_blocks().0) / total;
        let address = layout.block_size().to_bytes(Blocks(first as u64));
        let label = if address.0 == 0 { "0".to_owned() } else { size(address) };
        _ = write!(text, "{label:>8} ");
        draw_line(&mut text, cells, columns, style);
        text.push('\n');
    }
    legend(&mut text, &map, layout.block_size(), style);
    text
}

fn draw_line(text: &mut String, cells: &[super::model::Tally], columns: usize, style: Style) {
    let Style::Colors { true_color, half_blocks } = style else {
        text.extend(cells.iter().map(|cell| letter(cell.shown(), cell.used_share() > 0.5)));
        return;
    };
    let (upper, lower) = cells.split_at(columns.min(cells.len()));
    for (column, cell) in upper.iter().enumerate() {
        let top = Palette::DARK.cell(cell);
        match lower.get(column).map(|cell| Palette::DARK.cell(cell)) {
            Some(bottom) if half_blocks => {
                _ = write!(text, "{}{}\u{2580}", escape(38, top, true_color), escape(48, bottom, true_color));
            }
            None if half_blocks => _ = write!(text, "\x1b[49m{}\u{2580}", escape(38, top, true_color)),
            _ => _ = write!(text, "{} ", escape(48, top, true_color)),
        }
    }
    text.push_str("\x1b[0m");
}

/// The escape sequence that sets the colour of the ground (48) or of the character (38).
fn escape(ground: u8, color: Color, true_color: bool) -> String {
    if true_color {
        format!("\x1b[{ground};2;{};{};{}m", color.0, color.1, color.2)
    } else {
        format!("\x1b[{ground};5;{}m", color.in_cube())
    }
}

/// The letter of a cell: capital when more than half of it is used.
const fn letter(state: State, mostly_used: bool) -> char {
    match (state, mostly_used) {
        (State::Free, _) => '.',
        (State::Contiguous, true) => 'C',
        (State::Contiguous, false) => 'c',
        (State::Fragmented, true) => 'F',
        (State::Fragmented, false) => 'f',
        (State::Directory, true) => 'D',
        (State::Directory, false) => 'd',
        (State::Fixed, true) => 'M',
        (State::Fixed, false) => 'm',
    }
}

fn legend(text: &mut String, map: &Map, block_size: BlockSize, style: Style) {
    let total = map.whole.total();
    let entries = State::ALL.map(|state| {
        let mark = match style {
            Style::Letters => letter(state, true).to_string(),
            Style::Colors { true_color, .. } => {
                format!("{}  \x1b[0m", escape(48, Palette::DARK.state(state), true_color))
            }
        };
        format!("{mark} {} {}", state.label(), percent(map.whole.of(state).0, total.0))
    });
    _ = writeln!(text, "{}", entries.join("   "));
    let cell = Bytes(block_size.to_bytes(total).0 / map.cells.len().max(1) as u64);
    let shade = match style {
        Style::Letters => "a small letter means that at least half of it is free",
        Style::Colors { .. } => "darker cells have more free space",
    };
    _ = writeln!(
        text,
        "One cell is {}. It shows the most frequent content (fragmented data from a quarter up);\n{shade}.",
        size(cell)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::sample;

    #[test]
    fn letters_show_what_lies_where() {
        insta::assert_snapshot!(draw(&sample(), 25, 4, Style::Letters));
    }

    #[test]
    fn colors_are_reset_at_the_end_of_every_line() {
        for style in [(true, true), (true, false), (false, true)] {
            let style = Style::Colors { true_color: style.0, half_blocks: style.1 };
            let text = draw(&sample(), 25, 3, style);
            for line in text.lines().filter(|l| l.contains('\x1b')) {
                let last = line.rsplit('\x1b').next().unwrap();
                assert!(last.starts_with("[0m"), "{line:?}");
            }
        }
    }

    #[test]
    fn a_tiny_volume_or_a_huge_terminal_is_drawn_too() {
        for (columns, lines) in [(1, 1), (0, 0), (400, 300)] {
            assert!(draw(&sample(), columns, lines, Style::Letters).contains("One cell is"));
        }
    }

    #[test]
    fn colors_are_chosen_by_terminal_wish_and_environment() {
        let choose = |when, is_terminal, variables: &[(&str, &str)]| {
            Style::choose(when, is_terminal, |name| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
        };
        let term = ("TERM", "xterm-256color");
        let utf8 = ("LANG", "de_DE.UTF-8");
        let best = Style::Colors { true_color: true, half_blocks: true };
        assert_eq!(choose(ColorWhen::Auto, true, &[term, utf8, ("COLORTERM", "truecolor")]), best);
        let palette = Style::Colors { true_color: false, half_blocks: false };
        assert_eq!(choose(ColorWhen::Auto, true, &[term, ("LANG", "C")]), palette);
        assert_eq!(choose(ColorWhen::Auto, false, &[term, utf8]), Style::Letters);
        assert_eq!(choose(ColorWhen::Auto, true, &[term, utf8, ("NO_COLOR", "1")]), Style::Letters);
        assert_eq!(choose(ColorWhen::Auto, true, &[("TERM", "dumb"), utf8]), Style::Letters);
        assert_eq!(choose(ColorWhen::Auto, true, &[("TERM", "vt100"), utf8]), Style::Letters);
        assert_eq!(choose(ColorWhen::Never, true, &[term, utf8, ("COLORTERM", "truecolor")]), Style::Letters);
        assert_eq!(choose(ColorWhen::Always, false, &[utf8]), best);
    }
}

//! The colours of the map, the same in the terminal and in pictures.

use super::model::{State, Tally};

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

/// The colours of the states on a given ground.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    free: Color,
}

impl Palette {
    /// For pictures: on white.
    pub const LIGHT: Self = Self { free: Color(0xe9, 0xed, 0xf2) };
    /// For terminals, most of which are dark.
    pub const DARK: Self = Self { free: Color(0x23, 0x2a, 0x33) };

    /// The colour of a state. Told apart also by those who do not see red and green as different.
    pub const fn state(&self, state: State) -> Color {
        match state {
            State::Free => self.free,
            State::Contiguous => Color(0x3b, 0x7d, 0xc4),
            State::Fragmented => Color(0xe8, 0x5d, 0x2a),
            State::Directory => Color(0x1f, 0xa1, 0x8a),
            State::Fixed => Color(0x7a, 0x82, 0x8f),
        }
    }

    /// The colour of a cell: that of what fills it, the paler the more of it is free.
    pub fn cell(&self, cell: &Tally) -> Color {
        let share = cell.used_share();
        // A cell that holds anything at all is told from an empty one.
        let weight = if share > 0.0 { 0.18 + 0.82 * share } else { 0.0 };
        let (from, to) = (self.free, self.state(cell.shown()));
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * weight).round() as u8;
        Color(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
    }
}

impl Color {
    /// The nearest of the 216 colours of the cube that 256-colour terminals have.
    pub fn in_cube(self) -> u8 {
        let level = |v: u8| match v {
            0..48 => 0,
            48..115 => 1,
            v => (v - 35) / 40,
        };
        16 + 36 * level(self.0) + 6 * level(self.1) + level(self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_has_its_corners() {
        assert_eq!([Color(0, 0, 0), Color(255, 255, 255), Color(95, 135, 175)].map(Color::in_cube), [16, 231, 67]);
    }
}

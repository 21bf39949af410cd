//! What a scheduled pass does at most.

use std::fmt;
use std::str::FromStr;

/// What a scheduled pass does at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassMode {
    /// There are no passes.
    #[default]
    Off,
    /// Files, as efficient mode does.
    Efficient,
    /// Files and free space, where the free space is so fragmented that this pays.
    Full,
}

impl PassMode {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Efficient => "efficient",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for PassMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PassMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Off, Self::Efficient, Self::Full].into_iter().find(|mode| mode.name() == text).ok_or(())
    }
}

//! The presets that determine how much background work gives way.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much background work gives way to other I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// The aim: the requests of others take at most 3 % longer on average.
    #[default]
    Invisible,
    /// The aim: the requests of others take at most 10 % longer on average.
    Balanced,
    /// Does not give way.
    Fast,
}

/// Not the name of a pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPace(String);

impl fmt::Display for UnknownPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a pace; use invisible, balanced or fast", self.0)
    }
}

impl std::error::Error for UnknownPace {}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invisible => "invisible",
            Self::Balanced => "balanced",
            Self::Fast => "fast",
        })
    }
}

impl FromStr for Pace {
    type Err = UnknownPace;

    fn from_str(text: &str) -> Result<Self, UnknownPace> {
        let known = [Self::Invisible, Self::Balanced, Self::Fast];
        known.into_iter().find(|pace| pace.to_string() == text).ok_or_else(|| UnknownPace(text.to_owned()))
    }
}

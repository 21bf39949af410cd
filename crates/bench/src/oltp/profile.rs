//! The profiles of requests.

use longrun_layout::Bytes;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// In which order a file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any.
    Random,
    /// From its beginning to its end, and again.
    Sequential,
}

/// A kind of user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OltpProfile {
    /// A file server's: at random places, four reads to a write, of 4 (40 %), 8 (30 %), 16 (20 %) and 32 KiB (10 %).
    FileServer,
    /// A database's: all alike.
    Sql {
        /// In which order.
        order: Order,
        /// Whether it writes, or reads.
        write: bool,
        /// The size of the requests.
        request: Bytes,
    },
}

const fn sql(order: Order, write: bool, kib: u64) -> OltpProfile {
    OltpProfile::Sql { order, write, request: Bytes(kib << 10) }
}

/// What users type.
const NAMES: [(&str, OltpProfile); 13] = [
    ("file-server", OltpProfile::FileServer),
    ("random-read-64k", sql(Order::Random, false, 64)),
    ("random-read-128k", sql(Order::Random, false, 128)),
    ("random-read-256k", sql(Order::Random, false, 256)),
    ("sequential-read-64k", sql(Order::Sequential, false, 64)),
    ("sequential-read-128k", sql(Order::Sequential, false, 128)),
    ("sequential-read-256k", sql(Order::Sequential, false, 256)),
    ("random-write-64k", sql(Order::Random, true, 64)),
    ("random-write-128k", sql(Order::Random, true, 128)),
    ("random-write-256k", sql(Order::Random, true, 256)),
    ("sequential-write-64k", sql(Order::Sequential, true, 64)),
    ("sequential-write-128k", sql(Order::Sequential, true, 128)),
    ("sequential-write-256k", sql(Order::Sequential, true, 256)),
];

impl OltpProfile {
    /// Every profile.
    pub const ALL: [Self; NAMES.len()] = {
        let mut all = [Self::FileServer; NAMES.len()];
        let mut index = 0;
        while index < NAMES.len() {
            all[index] = NAMES[index].1;
            index += 1;
        }
        all
    };

    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, profile)| *profile == self).map_or("", |(name, _)| name)
    }

    /// Whether it changes the file.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::FileServer => true,
            Self::Sql { write, .. } => write,
        }
    }

    /// Whether it is one of the database's.
    #[must_use]
    pub const fn is_sql(self) -> bool {
        matches!(self, Self::Sql { .. })
    }

    /// What fio has to be told.
    pub(super) fn arguments(self) -> Vec<String> {
        let argument = |text: &str| text.to_owned();
        match self {
            Self::FileServer => {
                ["--rw=randrw", "--rwmixread=80", "--bssplit=4k/40:8k/30:16k/20:32k/10"].map(argument).to_vec()
            }
            Self::Sql { order, write, request } => {
                let how = match (order, write) {
                    (Order::Random, false) => "--rw=randread",
                    (Order::Random, true) => "--rw=randwrite",
                    (Order::Sequential, false) => "--rw=read",
                    (Order::Sequential, true) => "--rw=write",
                };
                vec![argument(how), format!("--bs={}", request.0)]
            }
        }
    }
}

impl fmt::Display for OltpProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OltpProfile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| Self::ALL.map(Self::name).join(", "))
    }
}

impl Serialize for OltpProfile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_a_name_that_leads_back_to_it() {
        for profile in OltpProfile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        let said = "random-read".parse::<OltpProfile>().unwrap_err();
        assert!(said.contains("sequential-write-256k"), "{said}");
    }

    #[test]
    fn fio_is_told_what_the_name_says() {
        let profile: OltpProfile = "sequential-write-128k".parse().unwrap();
        assert_eq!(profile.arguments(), ["--rw=write", "--bs=131072"]);
        assert!(profile.writes());
        assert!(!"random-read-64k".parse::<OltpProfile>().unwrap().writes());
    }
}

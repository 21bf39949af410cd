//! Whether placing hot files pays on a volume. Pure.

use longrun_profile::Fastest;
use serde::Serialize;

/// What lies below a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Whether it has a head that moves.
    pub rotates: bool,
    /// What it is, in words.
    pub kind: String,
    /// What the kept profile of each of its devices says; `None` where none was measured, or not within 30 days.
    pub gradients: Vec<Option<Option<Fastest>>>,
}

/// Whether placing hot files pays, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// The disk has fast and slow places, and the file system lets us choose.
    Pays(Fastest),
    /// The disk rotates, and its places were not measured.
    NotMeasured,
    /// Its places were measured, and are equally fast.
    NoGradient,
    /// It has no head that moves.
    DoesNotRotate,
    /// It lies on several devices: which place is on which, the file system decides.
    SeveralDevices,
    /// The file system does not let us choose places.
    NotOnThisFileSystem,
}

impl Placing {
    /// Of a volume of this file system.
    #[must_use]
    pub fn on(filesystem: &str, below: &Below) -> Self {
        if !below.rotates {
            return Self::DoesNotRotate;
        }
        match (filesystem, below.gradients.as_slice()) {
            ("ext4" | "xfs", [Some(Some(fastest))]) => Self::Pays(*fastest),
            ("ext4" | "xfs", [Some(None)]) => Self::NoGradient,
            ("ext4" | "xfs", [None] | []) => Self::NotMeasured,
            ("ext4" | "xfs", _) => Self::SeveralDevices,
            _ => Self::NotOnThisFileSystem,
        }
    }

    /// The faster end, where it pays.
    #[must_use]
    pub const fn fastest(self) -> Option<Fastest> {
        match self {
            Self::Pays(fastest) => Some(fastest),
            _ => None,
        }
    }

    /// In one sentence, for people. `target` is what they would name.
    #[must_use]
    pub fn sentence(self, target: &str, filesystem: &str, below: &Below) -> String {
        match self {
            Self::Pays(fastest) => {
                let end = if fastest == Fastest::Beginning { "beginning" } else { "end" };
                format!("placing pays here: the {} is faster at its {end}", below.kind)
            }
            Self::NotMeasured => {
                format!(
                    "not known: the {} was not measured in the last 30 days; run: longrun profile {target}",
                    below.kind
                )
            }
            Self::NoGradient => format!("no benefit: all places of the {} are equally fast", below.kind),
            Self::DoesNotRotate => format!("no benefit: a {} has no fast and slow places of its own", below.kind),
            Self::SeveralDevices => {
                "not done: the volume lies on several disks, and a place on it is one on each of them".to_owned()
            }
            Self::NotOnThisFileSystem => format!("not done: {filesystem} decides by itself where files go"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placing_pays_only_on_one_rotating_disk_with_a_measured_gradient() {
        let below = |rotates, gradients: &[Option<Option<Fastest>>]| Below {
            rotates,
            kind: "disk".into(),
            gradients: gradients.to_vec(),
        };
        let found = Some(Some(Fastest::Beginning));
        for filesystem in ["ext4", "xfs"] {
            let on = |rotates, gradients: &[_]| Placing::on(filesystem, &below(rotates, gradients));
            assert_eq!(on(true, &[found]), Placing::Pays(Fastest::Beginning));
            assert_eq!(on(true, &[Some(None)]), Placing::NoGradient);
            assert_eq!(on(true, &[None]), Placing::NotMeasured);
            assert_eq!(on(true, &[]), Placing::NotMeasured);
            assert_eq!(on(true, &[found, found]), Placing::SeveralDevices);
            assert_eq!(on(false, &[found]), Placing::DoesNotRotate);
        }
        for filesystem in ["btrfs", "ntfs", ""] {
            assert_eq!(Placing::on(filesystem, &below(true, &[found])), Placing::NotOnThisFileSystem);
            assert_eq!(Placing::on(filesystem, &below(false, &[found])), Placing::DoesNotRotate);
        }
    }
}

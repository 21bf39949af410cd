//! Units of the model. A count, an index and a size have different types, so they cannot be confused.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(
            /// The bare number, for formatting and for system calls.
            pub u64,
        );

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit!(
    /// The address of a block on the volume, counted in file-system blocks from its start.
    PhysicalBlock
);
unit!(
    /// The address of a block inside a file, counted in file-system blocks from its start.
    LogicalBlock
);
unit!(
    /// A number of file-system blocks.
    Blocks
);
unit!(
    /// A number of bytes.
    Bytes
);
unit!(
    /// A file's inode number, unique on its volume.
    InodeNumber
);

macro_rules! position {
    ($name:ident) => {
        impl Add<Blocks> for $name {
            type Output = Self;
            fn add(self, rhs: Blocks) -> Self {
                Self(self.0 + rhs.0)
            }
        }
        impl Sub<Blocks> for $name {
            type Output = Self;
            fn sub(self, rhs: Blocks) -> Self {
                Self(self.0 - rhs.0)
            }
        }
        impl Sub for $name {
            type Output = Blocks;
            /// The distance from `rhs` up to `self`; `rhs` must not lie behind `self`.
            fn sub(self, rhs: Self) -> Blocks {
                Blocks(self.0 - rhs.0)
            }
        }
    };
}
position!(PhysicalBlock);
position!(LogicalBlock);

macro_rules! amount {
    ($name:ident) => {
        impl Add for $name {
            type Output = Self;
            fn add(self, rhs: Self) -> Self {
                Self(self.0 + rhs.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, rhs: Self) -> Self {
                Self(self.0 - rhs.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, rhs: Self) {
                self.0 += rhs.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, rhs: Self) {
                self.0 -= rhs.0;
            }
        }
        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self(0), |a, b| a + b)
            }
        }
        impl $name {
            /// `self - rhs`, or zero where `rhs` is larger.
            #[must_use]
            pub fn saturating_sub(self, rhs: Self) -> Self {
                Self(self.0.saturating_sub(rhs.0))
            }
        }
    };
}
amount!(Blocks);
amount!(Bytes);

impl Bytes {
    /// In MiB, for showing.
    #[must_use]
    pub fn mebibytes(self) -> f64 {
        self.0 as f64 / f64::from(1 << 20)
    }
}

/// The size of a file-system block, a power of two; the one place where blocks become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct BlockSize {
    log2: u8,
}

impl BlockSize {
    /// `bytes` must be a power of two from 512 bytes to 2 MiB, the largest cluster of NTFS.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        let valid = bytes.is_power_of_two() && (512..=2 << 20).contains(&bytes);
        valid.then_some(Self { log2: bytes.trailing_zeros() as u8 })
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.log2
    }

    /// The bytes in `blocks` blocks (saturating: a lying count must not wrap).
    #[must_use]
    pub fn to_bytes(self, blocks: Blocks) -> Bytes {
        Bytes(blocks.0.saturating_mul(u64::from(self.bytes())))
    }

    /// The blocks that `bytes` bytes need, rounded up.
    #[must_use]
    pub fn to_blocks(self, bytes: Bytes) -> Blocks {
        Blocks(bytes.0.div_ceil(u64::from(self.bytes())))
    }
}

impl TryFrom<u32> for BlockSize {
    type Error = String;
    fn try_from(bytes: u32) -> Result<Self, String> {
        Self::new(bytes).ok_or_else(|| format!("{bytes} is not a block size"))
    }
}

impl From<BlockSize> for u32 {
    fn from(size: BlockSize) -> u32 {
        size.bytes()
    }
}

/// A count with its thousands set apart: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A duration for people: `0.05 s`, `7.2 s`, `3 min 20 s`, `2 h 05 min`.
#[must_use]
pub fn shown_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let whole = time.as_secs();
    match whole {
        _ if seconds < 1.0 => format!("{seconds:.2} s"),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

//! The hashes of names by which ext4 finds them in an indexed directory.
//!
//! Pure. The functions are those of the format: a reduced MD4, TEA, and the function of the first version.

use crate::ext4::scan::superblock::NameHash;

/// The functions, by the numbers that the index of a directory has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// What MD4 starts with, where the volume has no seed of its own.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Hashes that mean "the end" to readers of directories are not used.
const END: u32 = 0xffff_fffe;

/// The function of one directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    function: Function,
    is_unsigned: bool,
    start: [u32; 4],
}

impl Hasher {
    /// The function with this number in the index; `None` for those that need more than the name, and where the signedness of bytes
    /// is not known.
    pub(super) fn new(volume: &NameHash, version: u8) -> Option<Self> {
        let function = match version {
            0 => Function::Legacy,
            1 => Function::HalfMd4,
            2 => Function::Tea,
            _ => return None,
        };
        let start = if volume.seed == [0; 4] { START } else { volume.seed };
        Some(Self { function, is_unsigned: volume.is_unsigned?, start })
    }

    /// The hash of a name, and the lesser one that orders names with the same hash.
    pub(super) fn of(&self, name: &[u8]) -> (u32, u32) {
        let [mut a, mut b, mut c, mut d] = self.start;
        let (hash, minor) = match self.function {
            Function::Legacy => (self.legacy(name), 0),
            Function::HalfMd4 => {
                let mut at = 0;
                while at < name.len() {
                    let words = self.words::<8>(name.get(at..).unwrap_or_default());
                    [a, b, c, d] = half_md4([a, b, c, d], &words);
                    at += 32;
                }
                (b, c)
            }
            Function::Tea => {
                let mut at = 0;
                while at < name.len() {
                    let words = self.words::<4>(name.get(at..).unwrap_or_default());
                    (a, b) = tea(a, b, &words);
                    at += 16;
                }
                (a, b)
            }
        };
        let hash = hash & !1;
        (if hash == END { END - 2 } else { hash }, minor)
    }

    /// A byte of a name as a number. That it can be negative comes from compilers on which characters are.
    fn number(&self, byte: u8) -> u32 {
        if self.is_unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    /// The next bytes of a name as `N` words, filled up with its remaining length.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let length = rest.len() as u32;
        let twice = length | length << 8;
        let filling = twice | twice << 16;
        let mut words = [filling; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(filling, |word, byte| self.number(*byte).wrapping_add(word << 8));
        }
        words
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for byte in name {
            let mut next = before.wrapping_add(last ^ self.number(*byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }
}

/// Which words each of the three rounds takes, by how far it rotates, and what it adds.
const ROUNDS: [([usize; 8], [u32; 4], u32); 3] = [
    ([0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], 0),
    ([1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], 0x5a82_7999),
    ([3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], 0x6ed9_eba1),
];

fn half_md4(start: [u32; 4], words: &[u32; 8]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = start;
    for (round, (order, turns, add)) in ROUNDS.into_iter().enumerate() {
        for (index, turn) in order.into_iter().zip(turns.into_iter().cycle()) {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let word = words.get(index).copied().unwrap_or_default();
            let next = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(add).rotate_left(turn);
            (a, b, c, d) = (d, next, b, c);
        }
    }
    let [e, f, g, h] = start;
    [e.wrapping_add(a), f.wrapping_add(b), g.wrapping_add(c), h.wrapping_add(d)]
}

fn tea(start: u32, other: u32, words: &[u32; 4]) -> (u32, u32) {
    let [a, b, c, d] = *words;
    let (mut first, mut second, mut sum) = (start, other, 0_u32);
    let mixed = |of: u32, sum: u32, low: u32, high: u32| {
        (of << 4).wrapping_add(low) ^ of.wrapping_add(sum) ^ (of >> 5).wrapping_add(high)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        first = first.wrapping_add(mixed(second, sum, a, b));
        second = second.wrapping_add(mixed(first, sum, c, d));
    }
    (start.wrapping_add(first), other.wrapping_add(second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What debugfs says of a name: the hash and the minor hash.
    fn judged(version: u8, seed: &str, name: &str) -> (u32, u32) {
        let request = format!("dx_hash -h {version} -s {seed} {name}");
        let output = Command::new("debugfs").args(["-R", &request]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "Hash of NAME is 0x… (minor 0x…)": no name here has a space or a parenthesis.
        let number = |word: &str| {
            let digits: String = text.split(word).nth(1).unwrap().chars().take_while(char::is_ascii_hexdigit).collect();
            u32::from_str_radix(&digits, 16).unwrap()
        };
        (number(" is 0x"), number("(minor 0x"))
    }

    #[test]
    fn hashes_are_those_of_debugfs() {
        let seed = "01234567-89ab-cdef-8421-fedcba987654";
        let digits = seed.replace('-', "");
        let bytes: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&digits[at * 2..][..2], 16).unwrap()).collect();
        let words = [0, 1, 2, 3].map(|at| u32::from_le_bytes(bytes[at * 4..][..4].try_into().unwrap()));
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..60 {
            let name: String = (0..random.usize(1..=if round < 30 { 40 } else { 120 }))
                .map(|_| if random.u8(..3) == 0 { random.char('à'..'ÿ') } else { random.alphanumeric() })
                .collect();
            for version in 0..3 {
                for is_unsigned in [false, true] {
                    let volume = NameHash { seed: words, version: 0, is_unsigned: Some(is_unsigned) };
                    let hasher = Hasher::new(&volume, version).unwrap();
                    // To debugfs the functions on unsigned bytes are functions of their own.
                    let called = version + 3 * u8::from(is_unsigned);
                    assert_eq!(hasher.of(name.as_bytes()), judged(called, seed, &name), "{called} of {name}");
                }
            }
        }
    }

    #[test]
    fn a_function_that_is_not_known_is_none() {
        let volume = NameHash { seed: [0; 4], version: 1, is_unsigned: None };
        assert!(Hasher::new(&volume, 1).is_none());
        assert!(Hasher::new(&NameHash { is_unsigned: Some(true), ..volume }, 6).is_none());
    }
}

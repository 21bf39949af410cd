//! Images whose structures are damaged: one field gets a number that a hostile or broken writer could put there.
//!
//! Owns the maps of structures (which field lies where in a sound image) and the choice of what to change. The maps are read with no code of
//! Longrun. Never decides whether an answer to a damaged image is right.

mod blocks;
mod ext4;
mod ntfs;
mod partitions;
mod qcow2;

pub use blocks::{vdi, vhd, vhdx, vmdk};
pub use ext4::ext4;
pub use ntfs::ntfs;
pub use partitions::{gpt, mbr};
pub use qcow2::qcow2;

use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

/// A number in an image.
#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    at: usize,
    /// At most 8.
    bytes: usize,
    is_big_endian: bool,
}

impl Field {
    fn get(&self, image: &[u8]) -> u64 {
        let bytes = image.get(self.at..self.at + self.bytes).unwrap_or_default();
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    fn set(&self, image: &mut [u8], value: u64) {
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        let bytes = if self.is_big_endian { &big[8 - self.bytes..] } else { &little[..self.bytes] };
        if let Some(place) = image.get_mut(self.at..self.at + self.bytes) {
            place.copy_from_slice(bytes);
        }
    }
}

/// Name, offset and bytes of a field, as the format defines them.
type Layout = &'static [(&'static str, usize, usize)];

/// Makes checksums and second copies right after a change.
type Seal = Box<dyn Fn(&mut [u8])>;

/// The structures of a sound image.
pub struct Structures {
    /// By what they are: all that a format defines alike.
    kinds: BTreeMap<&'static str, Vec<(usize, usize)>>,
    fields: BTreeMap<(&'static str, &'static str), Vec<Field>>,
    /// Numbers that mean something in this image: its length in blocks, the number of its inodes, places.
    notable: Vec<u64>,
    seal: Seal,
}

impl Structures {
    fn new(seal: impl Fn(&mut [u8]) + 'static) -> Self {
        Self { kinds: BTreeMap::new(), fields: BTreeMap::new(), notable: Vec::new(), seal: Box::new(seal) }
    }

    /// Adds a structure whose numbers are little-endian.
    fn add(&mut self, kind: &'static str, at: usize, length: usize, layout: Layout) {
        self.add_ordered(kind, (at, length), layout, false);
    }

    fn add_ordered(&mut self, kind: &'static str, (at, length): (usize, usize), layout: Layout, is_big_endian: bool) {
        self.kinds.entry(kind).or_default().push((at, length));
        for (name, offset, bytes) in layout {
            if offset + bytes <= length {
                self.add_field(kind, Field { name, at: at + offset, bytes: *bytes, is_big_endian });
            }
        }
    }

    fn add_field(&mut self, kind: &'static str, field: Field) {
        self.fields.entry((kind, field.name)).or_default().push(field);
    }

    /// Adds each byte of a range as a field.
    fn add_bytes(&mut self, kind: &'static str, bytes: Range<usize>) {
        for at in bytes {
            self.add_field(kind, Field { name: "byte", at, bytes: 1, is_big_endian: false });
        }
    }

    /// Leaves out the fields of which `is_plain`, given first byte and length, says no.
    fn retain(&mut self, mut is_plain: impl FnMut(usize, usize) -> bool) {
        for fields in self.fields.values_mut() {
            fields.retain(|field| is_plain(field.at, field.bytes));
        }
        self.fields.retain(|_, fields| !fields.is_empty());
    }

    /// How many kinds of fields, and how many fields.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        (self.fields.len(), self.fields.values().map(Vec::len).sum())
    }

    /// Changes a field, or puts one structure in the place of another of its kind. Says what.
    pub fn change(&self, image: &mut [u8], random: &mut Rng) -> String {
        let said = if random.u8(..8) == 0 { self.exchange(image, random) } else { self.set(image, random) };
        (self.seal)(image);
        said
    }

    fn exchange(&self, image: &mut [u8], random: &mut Rng) -> String {
        let Some((kind, places)) = random.choice(&self.kinds) else { return String::new() };
        let [from, to] = [(); 2].map(|()| random.choice(places).copied().unwrap_or_default());
        let length = from.1.min(to.1);
        image.copy_within(from.0..from.0 + length, to.0);
        format!("{kind} at {} is a copy of the one at {}", to.0, from.0)
    }

    fn set(&self, image: &mut [u8], random: &mut Rng) -> String {
        let Some(((kind, name), fields)) = random.choice(&self.fields) else { return String::new() };
        let Some(field) = random.choice(fields) else { return String::new() };
        let was = field.get(image);
        let all = u64::MAX >> (64 - 8 * field.bytes);
        let others = random.choice(fields).map_or(0, |other| other.get(image));
        let notable = random.choice(&self.notable).copied().unwrap_or(0);
        let value = match random.u8(..14) {
            0 => 0,
            1 => 1,
            2 => all,
            3 => all / 2,
            4 => all / 2 + 1,
            5 => was.wrapping_add(1),
            6 => was.wrapping_sub(1),
            7 => was ^ 1 << random.usize(..8 * field.bytes),
            8 => was.wrapping_mul(2),
            9 => notable.wrapping_add(random.u64(..3)).wrapping_sub(1),
            10 => random.u64(..),
            // As of another structure of the kind, or close to it: what two own, or what overlaps.
            11 => others.wrapping_add(random.u64(..9)).wrapping_sub(4),
            _ => others,
        } & all;
        if value == was {
            return self.set(image, random);
        }
        field.set(image, value);
        format!("{kind} {name} at {}: {was:#x} -> {value:#x}", field.at)
    }
}

/// A little-endian number of at most 8 bytes; 0 beyond the end of the image.
fn number(image: &[u8], at: usize, bytes: usize) -> u64 {
    Field { name: "", at, bytes, is_big_endian: false }.get(image)
}

/// As [`number`], big-endian.
fn big_endian_number(image: &[u8], at: usize, bytes: usize) -> u64 {
    Field { name: "", at, bytes, is_big_endian: true }.get(image)
}

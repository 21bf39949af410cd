//! A volume with everything that NTFS can hold, made by mkntfs and ntfs-3g.
//!
//! Owns the image and its directory. Never uses Longrun's own code on it.

use super::census::Census;
use super::contents::Contents;
use super::mount::{self, Access, Mounted};
use super::{kinds, recipes};
use crate::{cleanup, tool};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::PathBuf;

/// Where a fixture has what, from the root of the volume.
pub mod places {
    /// Files with more than 200 fragments: `0`, `1`, ….
    pub const FRAGMENTED: &str = "fragmented";
    /// A directory with a fragmented index.
    pub const BIG_DIRECTORY: &str = "big directory";
    /// A compressed directory with compressed files.
    pub const COMPRESSED: &str = "compressed";
    /// Files with holes.
    pub const SPARSE: &str = "sparse";
    /// Files with named streams: of `0`, `1`, … the stream [`LARGE_STREAM`] is fragmented.
    pub const STREAMS: &str = "streams";
    /// The name of large streams.
    pub const LARGE_STREAM: &str = "large";
    /// The name of small streams.
    pub const SMALL_STREAM: &str = "small";
    /// Files with several names.
    pub const LINKS: &str = "links";
    /// Symbolic links, junctions and other reparse points.
    pub const REPARSE: &str = "reparse";
    /// Files with long and with foreign names.
    pub const NAMES: &str = "names";
    /// Empty and tiny files.
    pub const TINY: &str = "tiny";
    /// Directories in each other.
    pub const DEEP: &str = "deep";
    /// Files with attributes, old times, aliases, object identifiers and extended attributes.
    pub const MARKED: &str = "marked";
    /// Ordinary files.
    pub const ORDINARY: &str = "ordinary";
}

/// Other seeds that are tried when a recipe finds no room.
const TRIES: u64 = 4;

fn is_out_of_space(error: &anyhow::Error) -> bool {
    let of =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    error.chain().any(|cause| of(cause) == Some(std::io::ErrorKind::StorageFull))
}

/// How much a fixture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Some hundreds of files; small enough to be copied a thousand times.
    Small,
    /// As small, with some thousands of files, and $MFT in so many fragments that it has an attribute list.
    FragmentedMft,
    /// More than 13,000 files, and $MFT in at least 20 fragments.
    Full,
    /// A few large files; nine tenths of the space are used.
    NearlyFull,
}

/// Which fixture to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What it holds.
    pub recipe: Recipe,
    /// Its size.
    pub bytes: u64,
    /// Bytes of a cluster: a power of two. Compression needs 4 KiB or less.
    pub cluster_bytes: u64,
    /// Bytes of a sector; with 4096, MFT records are as large, too.
    pub sector_bytes: u64,
    /// What random choices are made from. Times and the volume's serial number differ each time all the same.
    pub seed: u64,
}

impl Spec {
    /// [`Recipe::Small`]: 32 MiB.
    #[must_use]
    pub const fn small() -> Self {
        Self::of(Recipe::Small, 32 << 20)
    }

    /// [`Recipe::FragmentedMft`]: 32 MiB.
    #[must_use]
    pub const fn fragmented_mft() -> Self {
        Self::of(Recipe::FragmentedMft, 32 << 20)
    }

    /// [`Recipe::Full`]: 512 MiB.
    #[must_use]
    pub const fn full() -> Self {
        Self::of(Recipe::Full, 512 << 20)
    }

    /// [`Recipe::NearlyFull`]: 4 GiB.
    #[must_use]
    pub const fn nearly_full() -> Self {
        Self::of(Recipe::NearlyFull, 4 << 30)
    }

    const fn of(recipe: Recipe, bytes: u64) -> Self {
        Self { recipe, bytes, cluster_bytes: 4096, sector_bytes: 512, seed: 1 }
    }

    /// With clusters of this size; the volume becomes larger where it would have too few of them.
    #[must_use]
    pub const fn clusters(mut self, bytes: u64) -> Self {
        const ENOUGH: u64 = 4096;
        self.cluster_bytes = bytes;
        if self.bytes < bytes * ENOUGH {
            self.bytes = bytes * ENOUGH;
        }
        self
    }

    /// With sectors of this size.
    #[must_use]
    pub const fn sectors(mut self, bytes: u64) -> Self {
        self.sector_bytes = bytes;
        self
    }

    /// Of this size.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// With other random choices.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether NTFS compresses files on such a volume.
    #[must_use]
    pub const fn compresses(&self) -> bool {
        self.cluster_bytes <= 4096
    }
}

/// An image, in a directory of its own, that goes with it.
#[derive(Debug)]
pub struct Fixture {
    directory: PathBuf,
    spec: Spec,
    contents: Contents,
}

impl Fixture {
    /// Makes one, and counts what is in it.
    ///
    /// # Errors
    /// When a tool fails; needs root.
    pub fn make(spec: Spec) -> Result<Self> {
        // Recipes run the volume nearly full, and when ntfs-3g writes its records back differs from run to run: now and then one
        // finds no room for a file.
        let mut tries = (0..TRIES).map(|more| Self::attempt(spec.seed(spec.seed + more)));
        let made = tries.find(|made| !made.as_ref().is_err_and(is_out_of_space));
        made.unwrap_or_else(|| Self::attempt(spec.seed(spec.seed + TRIES)))
    }

    fn attempt(spec: Spec) -> Result<Self> {
        // From here on the value exists, so that an error takes down what is there.
        let mut fixture = Self { directory: cleanup::fresh_directory()?, spec, contents: Contents::default() };
        fixture.format()?;
        let mounted = Mounted::new(&fixture.image(), Access::Write)?;
        recipes::furnish(&mounted.root(), &spec).with_context(|| format!("cannot make {spec:?}"))?;
        mounted.unmount()?;
        fixture.contents = Contents::of(&Census::of(&fixture.image())?);
        Ok(fixture)
    }

    fn format(&self) -> Result<()> {
        let image = self.image();
        File::create_new(&image)?.set_len(self.spec.bytes)?;
        let arguments = [
            "--force".to_owned(),
            "--quick".to_owned(),
            "--quiet".to_owned(),
            "--label=fixture".to_owned(),
            format!("--cluster-size={}", self.spec.cluster_bytes),
            format!("--sector-size={}", self.spec.sector_bytes),
            image.display().to_string(),
        ];
        tool::run("mkntfs", arguments)?;
        Ok(())
    }

    /// The image file.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// How it was made.
    #[must_use]
    pub const fn spec(&self) -> Spec {
        self.spec
    }

    /// What was in it when it was made.
    #[must_use]
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The bytes of the image.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> Result<Vec<u8>> {
        fs::read(self.image()).with_context(|| format!("cannot read {}", self.image().display()))
    }

    /// A copy with the same content.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn copy(&self) -> Result<Self> {
        let copy = Self { directory: cleanup::fresh_directory()?, spec: self.spec, contents: self.contents.clone() };
        mount::copy(&self.image(), &copy.image())?;
        Ok(copy)
    }

    /// Fails when something is missing that its recipe promises.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn promises_kept(&self) -> Result<()> {
        let missing = kinds::missing(&self.contents, &self.spec);
        ensure!(missing.is_empty(), "the fixture lacks {}: {:?}", missing.join(", "), self.contents);
        Ok(())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
    }
}

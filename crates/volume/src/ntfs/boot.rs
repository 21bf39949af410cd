//! The boot sector: sizes, and where the master file table begins.
//!
//! Owns the checks of what a boot sector may say. Pure.

use super::fault::{Fault, Read, damaged};
use crate::bytes::{byte, le16, le64, put};
use longrun_image::Disk;
use longrun_layout::{BlockSize, Bytes};

/// The bytes that a boot sector is read from, whatever the sector size of the device.
pub(super) const BOOT_BYTES: usize = 512;
/// Where the name of the file system stands.
const NAME: std::ops::Range<usize> = 3..11;
/// Where the first cluster of $MFT stands.
const MFT_AT: usize = 0x30;

/// The sizes of a volume. Immutable but for `mft`, which a move of $MFT changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of a sector, 512 to 4096.
    pub(super) sector: u32,
    /// A cluster, 512 bytes to 2 MiB: the block of the model.
    pub(super) cluster: BlockSize,
    /// Sectors of the volume. Behind them lies one more, with the copy of the boot sector.
    pub(super) sectors: u64,
    /// Clusters of the volume.
    pub(super) clusters: u64,
    /// The first cluster of $MFT.
    pub(super) mft: u64,
    /// The first cluster of $MFTMirr.
    pub(super) mirror: u64,
    /// Bytes of a file record.
    pub(super) record: u32,
    /// What tells volumes apart.
    pub(super) serial: u64,
}

impl Geometry {
    /// Reads the boot sector of a volume.
    pub(super) fn read(disk: &dyn Disk) -> Read<Self> {
        let mut boot = [0; BOOT_BYTES];
        match disk.read(Bytes(0), &mut boot) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Fault::NotNtfs("no NTFS file system".into()))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Self::parse(&boot),
        }
    }

    /// Takes a boot sector apart.
    pub(super) fn parse(boot: &[u8]) -> Read<Self> {
        match boot.get(NAME) {
            Some(b"NTFS    ") => {}
            Some(b"-FVE-FS-") => return Err(Fault::Unsupported("a volume that BitLocker encrypts".into())),
            _ => return Err(Fault::NotNtfs("no NTFS file system".into())),
        }
        let sector = u32::from(le16(boot, 0x0b));
        if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
            return damaged(format!("boot sector: {sector} bytes a sector"));
        }
        let per_cluster = match byte(boot, 0x0d) {
            few @ 1..=0x80 => u64::from(few),
            // From Windows 10 on, a power of two, negated, for clusters of more than 128 sectors.
            many => 1u64.checked_shl(u32::from(many.wrapping_neg())).unwrap_or(0),
        };
        let bytes = per_cluster.saturating_mul(u64::from(sector));
        let cluster = u32::try_from(bytes).ok().and_then(BlockSize::new);
        let Some(cluster) = cluster.filter(|_| per_cluster.is_power_of_two()) else {
            return damaged(format!("boot sector: {bytes} bytes a cluster"));
        };
        let (sectors, mft, mirror) = (le64(boot, 0x28), le64(boot, MFT_AT), le64(boot, 0x38));
        let clusters = sectors / per_cluster;
        if clusters == 0 || sectors > i64::MAX as u64 / u64::from(sector) {
            return damaged(format!("boot sector: {sectors} sectors"));
        }
        if mft == 0 || mft >= clusters || mirror == 0 || mirror >= clusters {
            return damaged("boot sector: $MFT or $MFTMirr lies outside the volume");
        }
        let record = sized(byte(boot, 0x40), cluster);
        let Some(record) = record.filter(|bytes| bytes.is_power_of_two() && (512..=1 << 16).contains(bytes)) else {
            return damaged("boot sector: the size of a file record is not valid");
        };
        Ok(Self { sector, cluster, sectors, clusters, mft, mirror, record, serial: le64(boot, 0x48) })
    }

    /// The same boot sector after a move of $MFT to this cluster.
    pub(super) fn with_mft(boot: &mut [u8], mft: u64) {
        put(boot, MFT_AT, &mft.to_le_bytes());
    }

    /// What the volume needs of its disk: its sectors. The copy of the boot sector behind them may be missing.
    pub(super) fn length(&self) -> Bytes {
        Bytes(self.sectors * u64::from(self.sector))
    }

    /// The bytes of `clusters` clusters.
    pub(super) fn bytes(&self, clusters: u64) -> u64 {
        clusters.saturating_mul(u64::from(self.cluster.bytes()))
    }
}

/// A size that is told in clusters, or negated as a power of two of bytes.
fn sized(field: u8, cluster: BlockSize) -> Option<u32> {
    match field.cast_signed() {
        clusters @ 1.. => u32::from(clusters.unsigned_abs()).checked_mul(cluster.bytes()),
        power => 1u32.checked_shl(u32::from(power.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn boot(sector: u16, per_cluster: u8, record: u8) -> Vec<u8> {
        let mut boot = vec![0; BOOT_BYTES];
        boot[NAME].copy_from_slice(b"NTFS    ");
        boot[0x0b..0x0d].copy_from_slice(&sector.to_le_bytes());
        boot[0x0d] = per_cluster;
        boot[0x28..0x30].copy_from_slice(&(1u64 << 20).to_le_bytes());
        boot[0x30..0x38].copy_from_slice(&4u64.to_le_bytes());
        boot[0x38..0x40].copy_from_slice(&2u64.to_le_bytes());
        boot[0x40] = record;
        boot
    }

    #[test]
    fn sizes_are_read_in_both_forms() {
        let read = |sector, per_cluster, record| {
            let geometry = Geometry::parse(&boot(sector, per_cluster, record)).unwrap();
            (geometry.cluster.bytes(), geometry.record)
        };
        assert_eq!(read(512, 8, 0xf6), (4096, 1024));
        assert_eq!(read(512, 1, 2), (512, 1024));
        assert_eq!(read(4096, 1, 1), (4096, 4096));
        assert_eq!(read(512, 0xf4, 0xf6), (2 << 20, 1024), "4096 sectors of 512 bytes");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let told = |boot: &[u8]| format!("{:?}", Geometry::parse(boot).unwrap_err());
        assert!(told(&boot(500, 8, 0xf6)).contains("500 bytes a sector"));
        assert!(told(&boot(512, 3, 0xf6)).contains("bytes a cluster"));
        assert!(told(&boot(512, 8, 0)).contains("file record"));
        let mut encrypted = boot(512, 8, 0xf6);
        encrypted[NAME].copy_from_slice(b"-FVE-FS-");
        assert!(told(&encrypted).contains("BitLocker"));
        assert!(told(&[]).contains("no NTFS"));
    }

    proptest! {
        #[test]
        fn no_boot_sector_makes_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), BOOT_BYTES)) {
            bytes[NAME].copy_from_slice(b"NTFS    ");
            let _ = Geometry::parse(&bytes);
        }
    }
}

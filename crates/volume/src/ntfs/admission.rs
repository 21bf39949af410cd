//! The conditions that a volume must meet to be changed.
//!
//! Owns the refusals. Each is made before anything is written, but for the replay of our own journal.

use super::attribute::{Name, kind};
use super::bitmap::Bitmap;
use super::fault::{Read, damaged};
use super::file::{NtfsFile, Records};
use super::reader::{Reader, system};
use super::record::take_fixups;
use super::scan::{NtfsScan, beginning};
use super::state::DIRTY;
use crate::bytes::le16;
use crate::offline::AFTER_A_RUN;

/// Flags of $Volume that tell of work which Windows has to do first: a larger log, an upgrade, the deletion of the change journal,
/// a check under way.
const UNFINISHED: u16 = 0x0002 | 0x0004 | 0x0010 | 0x4000;
/// Restart pages of $LogFile are looked for in so many bytes.
const LOG_BYTES: usize = 8192;
/// No program has the log open, and the volume was left in order.
const NO_CLIENT: u16 = 0xffff;
const CLEAN: u16 = 2;

/// Why the volume must not be changed, in the order in which that is found out; empty when nothing speaks against it.
/// `is_ours`: it was marked as dirty by a run of ours that was interrupted. `spoils_shadow_copies`: the user has agreed to that.
pub(super) fn refusals(
    reader: &Reader,
    scan: &NtfsScan,
    is_ours: bool,
    spoils_shadow_copies: bool,
) -> Read<Vec<String>> {
    let mut reasons = Vec::new();
    let information = reader.volume_information()?;
    if information.major != 3 {
        reasons.push(format!("NTFS version {}.{}", information.major, information.minor));
    }
    if information.flags & DIRTY != 0 && !is_ours {
        reasons.push(format!("a volume that is marked as dirty (let Windows check it: chkdsk /f{AFTER_A_RUN})"));
    }
    if information.flags & UNFINISHED != 0 {
        reasons.push("a volume on which Windows has not finished its work (start Windows, and shut it down)".into());
    }
    if !is_log_clean(reader)? {
        reasons.push("a volume that was not shut down (start Windows, and shut it down)".into());
    }
    if let Some(number) = scan.hibernation {
        let mut mark = [0; 4];
        beginning(reader, number, &mut mark)?;
        if mark.eq_ignore_ascii_case(b"hibr") {
            let what =
                "a volume of a hibernated Windows (shut it down with: shutdown /s /f /t 0, or switch fast startup off)";
            reasons.push(what.into());
        }
    }
    if scan.has_shadow_copies && !spoils_shadow_copies {
        let what = "a volume with shadow copies, which blocks that move while Windows is off would make wrong \
                    (delete them first: vssadmin delete shadows; or give them up with --spoil-shadow-copies)";
        reasons.push(what.into());
    }
    let mirror = NtfsFile::read(reader as &dyn Records, system::MIRROR)?;
    let map = mirror.attribute(&Name::unnamed(kind::DATA)).and_then(|data| data.outside.as_ref());
    if map.is_none_or(|map| map.segments().len() != 1) {
        reasons.push("a volume whose $MFTMirr is in several pieces".into());
    }
    Ok(reasons)
}

/// Whether the first records and their mirror agree, as far as they are in use.
pub(super) fn check_mirror(reader: &Reader, in_use: &Bitmap) -> Read<()> {
    let mirror = NtfsFile::read(reader as &dyn Records, system::MIRROR)?;
    let Some(data) = mirror.attribute(&Name::unnamed(kind::DATA)) else { return damaged("$MFTMirr has no content") };
    let Some(map) = &data.outside else { return damaged("$MFTMirr has no content") };
    let size = reader.geometry.record as usize;
    let copies = reader.content(map, data.size())?;
    for (number, copy) in (0u64..).zip(copies.chunks_exact(size)).filter(|(number, _)| in_use.is_set(*number)) {
        let (record, copy) = (reader.record(number)?, super::record::Record::decode(number, copy.to_vec())?);
        if record.attributes() != copy.attributes() || record.reference() != copy.reference() {
            return damaged(format!("$MFTMirr differs from $MFT in record {number}"));
        }
    }
    Ok(())
}

/// Whether nothing in $LogFile waits to be done. A log that was reset is full of ones.
fn is_log_clean(reader: &Reader) -> Read<bool> {
    let mut log = vec![0; LOG_BYTES];
    let file = NtfsFile::read(reader as &dyn Records, system::LOG)?;
    let Some(map) = file.attribute(&Name::unnamed(kind::DATA)).and_then(|data| data.outside.as_ref()) else {
        return damaged("$LogFile has no content");
    };
    reader.read_stream(map, 0, &mut log)?;
    if log.iter().all(|byte| *byte == 0xff) {
        return Ok(true);
    }
    let (mut found, mut clean) = (false, true);
    for mut page in log.chunks(LOG_BYTES / 2).map(<[u8]>::to_vec) {
        if !page.starts_with(b"RSTR") && !page.starts_with(b"CHKD") {
            continue;
        }
        if take_fixups(&mut page).is_err() {
            return Ok(false);
        }
        let area = usize::from(le16(&page, 0x18));
        found = true;
        clean &= le16(&page, area + 12) == NO_CLIENT || le16(&page, area + 14) & CLEAN != 0;
    }
    Ok(found && clean)
}

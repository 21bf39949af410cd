use super::*;
use longrun_image::{FileDisk, MemoryDisk};
use std::os::unix::fs::FileExt as _;

fn answer(status: i32, text: &str) -> Result<Option<Sign>, String> {
    meaning(&tool::Answer { text: text.to_owned(), status: Some(status) }, Some(EXT4))
}

#[test]
fn an_answer_that_is_not_understood_is_no_permission() {
    let found = |kind: &str, usage: &str| answer(0, &format!("DEVNAME=x\nTYPE={kind}\nUSAGE={usage}\n"));
    for (kind, usage) in [("ext4", "filesystem"), ("ext2", "filesystem"), ("BitLocker", "crypto")] {
        assert_eq!(found(kind, usage), Ok(None), "{kind}");
    }
    for kind in ["btrfs", "ntfs"] {
        assert_eq!(found(kind, "filesystem"), Ok(Some(Sign::Signatures)), "{kind}");
    }
    for (kind, usage) in
        [("linux_raid_member", "raid"), ("bcache", "other"), ("zfs_member", "filesystem"), ("crypto_LUKS", "crypto")]
    {
        assert_eq!(found(kind, usage), Ok(Some(Sign::Signature(kind.to_owned()))), "{kind}");
    }
    assert_eq!(answer(2, ""), Ok(None));
    assert_eq!(answer(0, "DEVNAME=x\nPTTYPE=gpt\n"), Ok(None));
    let ambivalent = "x: ambivalent result (probably more filesystems on the device)\n";
    // Older programs end with 2.
    for status in [2, 8] {
        assert_eq!(answer(status, ambivalent), Ok(Some(Sign::Signatures)));
    }
    for (status, text) in
        [(2, "blkid: error: x: Permission denied"), (4, "usage"), (0, ""), (0, "TYPE=ext4\n"), (1, "")]
    {
        assert_eq!(answer(status, text), Err(text.trim().to_owned()), "{status}");
    }
    assert!(meaning(&tool::Answer { text: String::new(), status: None }, Some(EXT4)).is_err());
}

/// A file with ext4's superblock, as far as blkid looks at it, behind `start` bytes.
fn volume(start: u64, length: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(start + length).unwrap();
    let status = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", &format!("offset={start}")])
        .arg(file.path())
        .arg(format!("{}k", length / 1024))
        .status();
    assert!(status.unwrap().success());
    file
}

#[test]
fn a_signature_counts_in_the_part_that_it_ends() {
    const MIB: u64 = 1 << 20;
    let file = volume(MIB, 4 * MIB);
    // Of Intel's RAID, two sectors before the end.
    file.as_file().write_all_at(b"Intel Raid ISM Cfg Sig. 1.0.00", 5 * MIB - 1024).unwrap();
    let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(FileDisk::open(file.path(), Access::Read).unwrap());
    let part = |start, length| longrun_image::Part::new(disk.clone(), Bytes(start), Bytes(length)).unwrap();
    let member = Some(Sign::Signature("isw_raid_member".into()));
    assert_eq!(of_volume(&part(MIB, 4 * MIB), EXT4).unwrap(), member);
    assert_eq!(of_volume(&part(MIB, 4 * MIB - 512), EXT4).unwrap(), None);
    assert_eq!(of_disk(&*disk).unwrap(), Some(Sign::DiskSignature("isw_raid_member".into())));
    assert_eq!(of_volume(&MemoryDisk::new(vec![0; 4096]), EXT4).unwrap(), None);
}

#[test]
fn a_refusal_says_what_was_found_and_what_to_do() {
    let text = |sign: Sign| sign.on(Path::new("disk")).to_string();
    let signature = text(Sign::Signature("linux_raid_member".into()));
    assert!(
        signature.starts_with("disk: a part of a larger device (blkid finds linux_raid_member; use"),
        "{signature}"
    );
    assert!(
        signature.contains("remove the signature with wipefs) is not supported; nothing was changed"),
        "{signature}"
    );
    assert!(text(Sign::DiskSignature("ddf".into())).contains("ddf on its disk"));
    assert!(text(Sign::Type("Linux RAID".into())).contains("sfdisk --part-type"));
    assert!(text(Sign::Signatures).contains("wipefs lists them"));
}

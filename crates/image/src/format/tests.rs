use super::*;
use crate::MemoryDisk;
use proptest::prelude::*;

fn with(length: usize, parts: &[(usize, &[u8])]) -> MemoryDisk {
    let mut content = vec![0; length];
    for (at, bytes) in parts {
        content[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    MemoryDisk::new(content)
}

fn found(parts: &[(usize, &[u8])]) -> Description {
    identify(&with(65536, parts)).unwrap()
}

fn refusal(parts: &[(usize, &[u8])]) -> String {
    identify(&with(65536, parts)).unwrap_err().to_string()
}

const QCOW2: (usize, &[u8]) = (0, b"QFI\xfb\0\0\0\x03");

#[test]
fn a_qcow2_tells_its_snapshots_and_its_backing_file() {
    assert_eq!(found(&[QCOW2]), Description::of(Format::Qcow2));
    assert_eq!(found(&[QCOW2, (60, &[0, 0, 1, 2])]).snapshots, 258);
    let name = (0x2000, &b"base\xff.img"[..]);
    let backing = found(&[QCOW2, (14, &[0x20, 0]), (19, &[9]), name]).backing.unwrap();
    assert_eq!(backing.as_os_str().as_encoded_bytes(), b"base\xff.img");
    for wrong in [&[(14, &[0x20, 0][..])][..], &[(14, &[0x20, 0]), (18, &[4])], &[(8, &[0xff; 8]), (19, &[9])]] {
        let mut parts = vec![QCOW2];
        parts.extend(wrong);
        assert!(refusal(&parts).contains("its qcow2 header is damaged"), "{wrong:?}");
    }
}

#[test]
fn an_image_that_leads_to_other_files_is_refused() {
    assert!(refusal(&[QCOW2, (79, &[4])]).contains("whose data are in another file"));
    // Version 2 has no such field.
    assert_eq!(found(&[(0, b"QFI\xfb\0\0\0\x02"), (79, &[4])]).format, Format::Qcow2);
    assert!(refusal(&[(0, b"# Disk DescriptorFile\nRW 1 FLAT \"/etc/shadow\"")]).contains("data are in other files"));
    let vmdk = |capacity: u8, place: u8, text: &str| {
        refusal(&[(0, b"KDMV"), (12, &[capacity]), (28, &[place]), (36, &[20]), (512, text.as_bytes())])
    };
    let plain = "parentCID=ffffffff\ncreateType=\"monolithicSparse\"";
    assert!(vmdk(0, 1, plain).contains("VMDK of several files"));
    assert!(vmdk(1, 0, plain).contains("VMDK of several files"));
    assert!(vmdk(1, 1, "parentCID=ffffffff\ncreateType=\"custom\"").contains("VMDK of several files"));
    assert!(vmdk(1, 1, &format!("{plain}\nparentFileNameHint=\"x\"")).contains("differs from another one"));
    assert!(vmdk(1, 1, "parentCID=12345678\ncreateType=\"monolithicSparse\"").contains("differs from another one"));
    assert!(refusal(&[(64, &[0x7f, 0x10, 0xda, 0xbe]), (76, &[4])]).contains("differs from another one"));
    assert!(refusal(&[(0, b"conectix"), (63, &[4])]).contains("differs from another one"));
}

#[test]
fn what_qemu_could_not_write_to_is_refused_before() {
    assert!(refusal(&[QCOW2, (35, &[1])]).contains("encrypted"));
    assert!(refusal(&[QCOW2, (79, &[2])]).contains("damaged"));
    assert!(refusal(&[(0, b"QFI\xfb\0\0\0\x01")]).contains("another version"));
    let text = "parentCID=ffffffff\ncreateType=\"streamOptimized\"";
    let packed = found(&[(0, b"KDMV"), (10, &[1]), (12, &[9]), (28, &[1]), (36, &[20]), (512, text.as_bytes())]);
    assert!(packed.read_only.is_some());
}

#[test]
fn every_other_format_has_its_signature() {
    assert_eq!(found(&[(0, b"vhdxfile")]).format, Format::Vhdx);
    assert_eq!(found(&[(64, &[0x7f, 0x10, 0xda, 0xbe]), (76, &[1])]).format, Format::Vdi);
    assert_eq!(found(&[(0, b"conectix"), (63, &[3])]).format, Format::Vhd);
    let raw = found(&[]);
    assert_eq!((raw.format, raw.plain), (Format::Raw, Some(Bytes(65536))));
    assert_eq!(identify(&with(0, &[])).unwrap().plain, Some(Bytes(0)));
}

#[test]
fn a_vhd_of_fixed_size_ends_before_its_footer() {
    let end = 65536 - 512;
    let footer = |size: u16, checksum: u32| {
        let (size, checksum) = (size.to_be_bytes(), checksum.to_be_bytes());
        identify(&with(65536, &[(end, b"conectix"), (end + 54, &size), (end + 63, &[2]), (end + 64, &checksum)]))
    };
    let sum =
        |size: u16| !(b"conectix".iter().chain(&size.to_be_bytes()).map(|byte| u32::from(*byte)).sum::<u32>() + 2);
    let vhd = footer(65024, sum(65024)).unwrap();
    assert_eq!((vhd.format, vhd.plain), (Format::Vhd, Some(Bytes(65024))));
    assert_eq!(footer(65024, 7).unwrap().format, Format::Raw, "data that only look so");
    for wrong in [0, 65025] {
        assert!(footer(wrong, sum(wrong)).unwrap_err().to_string().contains("vpc header is damaged"), "{wrong}");
    }
}

proptest! {
    #[test]
    fn whatever_the_header_says_nothing_goes_wrong(
        mut content in proptest::collection::vec(any::<u8>(), 8..4096),
        signature in prop::sample::select(vec![&b"QFI\xfb\0\0\0\x03"[..], b"KDMV", b"conectix", b"vhdxfile", b""]),
    ) {
        content[..signature.len()].copy_from_slice(signature);
        _ = identify(&MemoryDisk::new(content));
    }
}

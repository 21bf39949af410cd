//! Story: files as only Windows makes them (change journal, WOF compression, EFS, deduplication). Their streams move as the streams
//! they are, and hold the same bytes afterwards; what they mean is not touched.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_lab::ntfs::windows::{self, CHANGE_JOURNAL, COMPRESSED_FOR_READING, DEDUPLICATED, ENCRYPTED};
use longrun_lab::ntfs::{AttributeKind, AttributeName, Census, Fixture, Inventory, Spec};
use longrun_lab::oracle::ntfs as oracle;
use std::time::Duration;

#[test]
fn loop_what_only_windows_makes_moves_as_the_streams_that_it_is() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let image = fixture.image();
    windows::furnish(&image).unwrap();
    oracle::check(&image).unwrap();
    let paths = [CHANGE_JOURNAL, COMPRESSED_FOR_READING, ENCRYPTED, DEDUPLICATED];
    let (before, streams) = (Inventory::of(&image).unwrap(), windows::streams(&image, &paths).unwrap());
    let census = Census::of(&image).unwrap();
    let data = |name: &str| AttributeName::new(AttributeKind::DATA, name);
    let (reparse, utility) =
        (AttributeName::new(AttributeKind(0xc0), ""), AttributeName::new(AttributeKind(0x100), "$EFS"));
    let moving = [
        (CHANGE_JOURNAL, data("$J")),
        (COMPRESSED_FOR_READING, data("WofCompressedData")),
        (ENCRYPTED, data("")),
        (DEDUPLICATED, data("of its own")),
    ];
    let fragments =
        |census: &Census, path: &str, name: &AttributeName| census.record(path).unwrap().attributes[name].fragments();
    for (path, name) in &moving {
        assert!(fragments(&census, path, name) > 5, "{path} {name}: {:?}", census.record(path).unwrap());
    }
    // Streams without a fragment too much, which move or do not.
    assert!(fragments(&census, DEDUPLICATED, &reparse) > 0 && fragments(&census, ENCRYPTED, &utility) > 0);
    let journal = &census.record(CHANGE_JOURNAL).unwrap().attributes;
    assert!(journal[&data("$J")].sparse && journal[&data("$J")].runs[0].lcn.is_none(), "{journal:?}");
    assert!(journal[&data("$Max")].resident);

    let finished = common::longrun("full").run(&image, Duration::from_secs(600)).unwrap();
    let after = Census::of(&image).unwrap();
    for (path, name) in &moving {
        assert_eq!(fragments(&after, path, name), 1, "{path} {name}: {}", finished.stdout);
    }
    assert_eq!(windows::streams(&image, &paths).unwrap(), streams);
    assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None);
    oracle::check(&image).unwrap();
    oracle::then_usable(&image).unwrap();
}

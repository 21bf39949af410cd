//! Story: power is lost while an NTFS volume that is not mounted is optimized, $MFT and leaked clusters included. At each moment the
//! volume is clean after the next opening, and has every byte; without the journal it would not be.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use anyhow::{Result, ensure};
use longrun_engine::{NoProgress, Placed, Settings, Unobserved, Volume};
use longrun_image::{Disk, MemoryDisk};
use longrun_lab::ntfs::{Census, Cuts, Fixture, Inventory, Spec, Stage, Watched, leak};
use longrun_lab::oracle::ntfs as oracle;
use longrun_layout::Extent;
use longrun_planner::Mode;
use longrun_volume::ntfs::NtfsVolume;
use longrun_volume::thin::Thinned;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn optimize(volume: &mut dyn Placed) -> Result<()> {
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    longrun_engine::placed::optimize(volume, &settings, &mut Unobserved)?;
    Ok(())
}

/// States of one run that power losses leave, judged after the next opening, or as they are found when there is no journal.
fn cut(fixture: &Fixture, with_journal: bool, cuts: Cuts) -> Result<usize> {
    cut_on(fixture, false, with_journal, cuts)
}

/// The same; on a thin disk what files leave is discarded.
fn cut_on(fixture: &Fixture, is_thin: bool, with_journal: bool, cuts: Cuts) -> Result<usize> {
    let expected = Inventory::of(&fixture.image())?;
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(fixture.read()?));
    let watched = Arc::new(Watched::new(Arc::clone(&disk), &journal));
    let volume = NtfsVolume::open(Path::new("cut"), Arc::clone(&watched) as Arc<dyn Disk>, &journal)?;
    let mut volume: Box<dyn Placed> = Box::new(volume);
    if is_thin {
        volume = Box::new(Thinned::new(volume, Arc::clone(&watched) as Arc<dyn Disk>));
    }
    optimize(&mut *volume)?;
    drop(volume);
    watched.note();
    ensure!(is_thin == (watched.discards() > 0), "the test proves nothing");
    let mut stage = Stage::new()?;
    let reopen = |disk, journal: &Path| NtfsVolume::open(Path::new("cut"), disk, journal).map(drop).map_err(Into::into);
    watched.judge(&cuts, with_journal, reopen, |recovered, number| {
        let image = stage.show(recovered)?;
        oracle::check(image)?;
        ensure!(!with_journal || !oracle::is_dirty(image)?, "the volume is left dirty");
        // Reading all of it takes longest.
        if number % 8 == 0 {
            let image = stage.give_away(recovered)?;
            let found = Inventory::of(image)?;
            let difference = expected.difference(&found);
            ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
        Ok(())
    })
}

#[test]
fn loop_power_lost_at_any_moment_leaves_a_clean_volume_with_every_byte() {
    let states = cut(&Fixture::make(Spec::small()).unwrap(), true, Cuts::sample(16, 3)).unwrap();
    assert!(states >= 40, "{states}");
    // Where the list of $MFT's own extents has to be rewritten while $MFT moves.
    cut(&Fixture::make(Spec::fragmented_mft()).unwrap(), true, Cuts::sample(6, 3)).unwrap();
}

#[test]
fn loop_power_lost_on_thin_storage_where_what_files_leave_is_discarded_costs_no_byte() {
    let states = cut_on(&Fixture::make(Spec::small()).unwrap(), true, true, Cuts::sample(16, 3)).unwrap();
    assert!(states >= 40, "{states}");
}

#[test]
fn loop_mft_can_be_the_first_that_moves_and_power_be_lost_then() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(fixture.read().unwrap()));
    let mut volume = NtfsVolume::open(Path::new("cut"), Arc::clone(&disk) as Arc<dyn Disk>, &journal).unwrap();
    let layout = volume.scan(&NoProgress).unwrap();
    let mft = layout.files().find(|file| file.record.inode.0 == 0).unwrap();
    let first = mft.runs().next().unwrap();
    let piece = layout.free().iter().find(|piece| piece.length >= first.length).unwrap();
    let target = Extent { start: piece.start, length: first.length };
    assert_eq!(volume.capture(&[target].into_iter().collect()).unwrap().total(), first.length);
    let done = volume.exchange(mft.id(), first.logical, target.start, first.length).unwrap();
    assert_eq!(done.blocks, first.length);
    // The power goes: the run is not closed.
    let (left, held) = (disk.content(), fs::read(&journal).unwrap());
    drop(volume);
    fs::write(&journal, held).unwrap();
    let found = Arc::new(MemoryDisk::new(left));
    drop(NtfsVolume::open(Path::new("cut"), Arc::clone(&found) as Arc<dyn Disk>, &journal).unwrap());
    let image = directory.path().join("image");
    fs::write(&image, found.content()).unwrap();
    oracle::check(&image).unwrap();
    assert!(!oracle::is_dirty(&image).unwrap());
    let expected = Inventory::of(&fixture.image()).unwrap();
    assert_eq!(expected.difference(&Inventory::of(&image).unwrap()), None);
}

#[test]
fn loop_without_the_journal_power_losses_damage_the_volume() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let error = format!("{:#}", cut(&fixture, false, Cuts::sample(400, 4)).unwrap_err());
    eprintln!("{error}");
}

#[test]
fn loop_power_lost_while_leaked_clusters_are_freed_and_used_leaves_a_clean_volume() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let census = Census::of(&fixture.image()).unwrap();
    // Most of the free space: files have to move there.
    let (last, _) = census.free.split_last().unwrap();
    leak(&fixture.image(), &[*last], &[]).unwrap();
    let end = census.records.keys().next_back().unwrap();
    let leak_one = |record: &u64| leak(&fixture.image(), &[], &[*record]).is_ok();
    assert!((64..*end).filter(|record| !census.records.contains_key(record)).any(|record| leak_one(&record)));
    oracle::check(&fixture.image()).unwrap_err();
    assert!(cut(&fixture, true, Cuts::sample(10, 3)).unwrap() > 12);
}

//! Story: a run that came to a block which the disk cannot read never ended: the kernel was asked to bring the page into memory
//! and tried for ever. A file that cannot be read stays where it is, the run ends, and everything else is done.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may fail loudly")]

use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::oracle::{compare, dump, excess_of};
use longrun_lab::{FileSystemKind, LoopVolume, Running, VolumeSpec, longrun_binary, write_in_pieces};
use longrun_layout::Bytes;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Far longer than a run takes on any machine.
const PATIENCE: Duration = Duration::from_secs(300);
const PIECE: Bytes = Bytes(256 << 10);

#[test]
fn loop_a_file_with_a_block_that_cannot_be_read_is_left_and_the_run_ends() {
    for kind in FileSystemKind::ALL {
        let size = Bytes(512 << 20);
        let disk = Arc::new(ModelledDisk::start(DiskModel::by_name("ssd").unwrap(), 1, &[size]).unwrap());
        disk.set_modelled(false).unwrap();
        let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(kind, 512)).unwrap();
        let mount = volume.mount_point();
        let [bad, good] = ["bad", "good"].map(|name| mount.join(name));
        let (mut content, mark) = (vec![7; 8 << 20], b"of this block there is one");
        content[4 << 20..][..mark.len()].copy_from_slice(mark);
        for (path, content) in [(&bad, &content), (&good, &vec![7; 8 << 20])] {
            write_in_pieces(kind, path, content, PIECE, 3).unwrap();
        }
        let before = dump(&mount).unwrap();
        // Wherever it is: where a file is on the device each file system says in its own way.
        let device = std::fs::read(disk.backing(0).unwrap()).unwrap();
        let marked = device.chunks(4096).enumerate().filter(|(_, block)| block.starts_with(mark));
        let marked: Vec<_> = marked.map(|(at, _)| (Bytes(at as u64 * 4096), Bytes(4096))).collect();
        disk.fail_reads(0, &marked).unwrap();
        volume.drop_caches().unwrap();
        assert!(std::fs::read(&bad).is_err(), "{kind:?}: the block can be read");

        for mode in ["files", "full"] {
            volume.drop_caches().unwrap();
            let mut command = Command::new(longrun_binary().unwrap());
            command.args(["optimize", "--pace", "fast", "--mode", mode]).arg(&mount);
            let finished = Running::start(&mut command).unwrap().wait(PATIENCE).unwrap();
            let told = format!("{kind:?} {mode}: {}\n{}", finished.stdout, finished.stderr);
            assert!(finished.stdout.contains("could not be read"), "{told}");
            assert_eq!(excess_of(&good).unwrap(), 0, "{told}");
        }

        disk.fail_reads(0, &[]).unwrap();
        volume.drop_caches().unwrap();
        compare(&before, &dump(&mount).unwrap()).unwrap();
        volume.check().unwrap();
    }
}

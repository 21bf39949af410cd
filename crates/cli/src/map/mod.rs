//! Pictures of a volume: one model of cells, drawn in the terminal, as SVG or as PNG.

pub mod model;
pub mod palette;
pub mod png;
pub mod scene;
pub mod svg;
pub mod terminal;

#[cfg(test)]
pub mod tests {
    use longrun_layout::{
        BlockSize, Blocks, Extent, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin, Run, VolumeLayout,
    };

    /// 1000 blocks of 4 KiB with one file of each kind.
    pub fn sample() -> VolumeLayout {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        let mut add = |inode, is_directory, pin, runs: &[Run]| {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            b.push_file(id, NO_DIRECTORY, is_directory, pin, &mut runs.to_vec());
        };
        add(11, false, None, &[Run::new(0, 100, 100)]);
        add(12, true, None, &[Run::new(0, 200, 20)]);
        add(13, false, Some(Pin::Immutable), &[Run::new(0, 220, 10)]);
        add(14, false, None, &[Run::new(0, 300, 50), Run::new(50, 370, 50)]);
        for piece in [Extent::new(230, 70), Extent::new(350, 20), Extent::new(420, 580)] {
            b.push_free(piece);
        }
        b.build().unwrap()
    }
}

//! Which blocks of a clip stand still.

use crate::geometry::Size;
use crate::view::View;

/// Pixels that are summed before they are compared: noise does not count as motion.
const RUN: usize = 8;
/// One row of so many is looked at.
const ROWS: u32 = 4;
/// Mean change of the sums' pixels, in levels of full range, from which on a block moves.
const MOVES: f32 = 8.0;
/// Frames for which a block must have stood still to be marked.
const RESTED: u8 = 5;
/// Share of blocks that must stand still; where fewer do, all are marked.
const FEW: usize = 8;

/// What was seen of a block in a frame.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    change: f32,
    level: f32,
    runs: u32,
}

/// Compares each frame with the one before it.
pub(super) struct Motion {
    blocks: Size,
    moves: f32,
    /// Of each run of each row that is looked at, in the frame before.
    sums: Vec<u16>,
    /// Of each block.
    seen: Vec<Seen>,
    levels: f32,
    /// Frames since each block moved.
    rested: Vec<u8>,
    still: Vec<bool>,
    began: bool,
    /// Of each run and each row, the block's number.
    columns: Vec<u32>,
    rows: Vec<u32>,
}

impl Motion {
    pub(super) fn new(size: Size, blocks: Size, levels: f32) -> Self {
        let count = blocks.pixels() as usize;
        let runs = if count == 0 { 0 } else { size.width as usize / RUN };
        let rows = if count == 0 { 0 } else { size.height.div_ceil(ROWS) };
        let block = |at: u64, of: u32, side: u32| (at * u64::from(of) / u64::from(side)) as u32;
        let middle = |run: usize| (run * RUN + RUN / 2) as u64;
        Self {
            blocks,
            moves: MOVES * levels * RUN as f32,
            sums: vec![0; runs * rows as usize],
            seen: vec![Seen::default(); count],
            levels,
            rested: vec![u8::MAX; count],
            still: vec![true; count],
            began: false,
            columns: (0..runs).map(|run| block(middle(run), blocks.width, size.width)).collect(),
            rows: (0..rows)
                .map(|row| block(u64::from(row * ROWS), blocks.height, size.height))
                .collect(),
        }
    }

    pub(super) fn is_still(&self, block: usize) -> bool {
        self.still[block]
    }

    /// How bright a block was in the last frame, in levels of full range; `None` when none of it
    /// was looked at.
    pub(super) fn level(&self, block: usize) -> Option<f32> {
        let Seen { level, runs, .. } = self.seen[block];
        (runs > 0).then(|| level / ((runs * RUN as u32) as f32 * self.levels))
    }

    /// Looks at the next frame; `gone` is told of each block that stood still and moves now.
    pub(super) fn look(&mut self, luma: View<'_, 1>, mut gone: impl FnMut(usize)) {
        if self.columns.is_empty() {
            return;
        }
        self.seen.fill(Seen::default());
        let width = self.blocks.width;
        for ((row, block), before) in
            (0..).zip(&self.rows).zip(self.sums.chunks_exact_mut(self.columns.len()))
        {
            let seen = &mut self.seen[(block * width) as usize..][..width as usize];
            let runs = luma.row(row * ROWS).as_chunks::<RUN>().0;
            for ((run, column), before) in runs.iter().zip(&self.columns).zip(before) {
                let sum: u16 = run.iter().map(|v| u16::from(*v)).sum();
                let seen = &mut seen[*column as usize];
                seen.change += f32::from(sum.abs_diff(*before));
                seen.level += f32::from(sum);
                seen.runs += 1;
                *before = sum;
            }
        }
        if !std::mem::replace(&mut self.began, true) {
            return;
        }
        for (block, Seen { change, runs, .. }) in self.seen.iter().enumerate() {
            if *change > self.moves * *runs as f32 {
                self.rested[block] = 0;
                if std::mem::take(&mut self.still[block]) {
                    gone(block);
                }
            } else {
                self.rested[block] = self.rested[block].saturating_add(1);
            }
        }
    }

    /// A new residual is made: says anew which blocks stand still.
    pub(super) fn settle(&mut self) {
        let rested = self.rested.iter().filter(|frames| **frames >= RESTED).count();
        let few = rested * FEW < self.rested.len();
        for (still, frames) in self.still.iter_mut().zip(&self.rested) {
            *still = few || *frames >= RESTED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Grey, Image};

    #[test]
    fn what_moves_is_told_once_and_rests_before_it_is_still() {
        let size = Size::new(320, 256);
        let mut motion = Motion::new(size, Size::new(20, 16), 1.0);
        let frame = |shift: u32, noise: bool| {
            let mut plane: Grey = Image::filled(size, [100]);
            for y in 0..256 {
                for (x, value) in (0_u32..).zip(plane.view_mut().row_mut(y)) {
                    *value = if x < 160 { 100 } else { ((x + shift) * 9 % 180) as u8 };
                    *value += if noise { ((x * 31 + y * 17 + shift * 7) % 9) as u8 } else { 0 };
                }
            }
            plane
        };
        let mut gone = Vec::new();
        motion.look(frame(0, true).view(), |block| gone.push(block));
        assert!(gone.is_empty(), "one frame shows no motion");
        motion.look(frame(4, true).view(), |block| gone.push(block));
        motion.look(frame(8, true).view(), |block| gone.push(block));
        let right: Vec<usize> = (0..320).filter(|block| block % 20 >= 10).collect();
        assert_eq!(gone, right, "noise is no motion");
        for _ in 0..4 {
            motion.look(frame(8, true).view(), |_| {});
        }
        motion.settle();
        assert!(motion.is_still(0) && !motion.is_still(19));
        motion.look(frame(8, true).view(), |_| {});
        motion.settle();
        assert!(motion.is_still(19));
    }

    #[test]
    fn where_all_moves_all_is_marked() {
        let size = Size::new(64, 64);
        let mut motion = Motion::new(size, Size::new(4, 4), 1.0);
        for level in [10, 200, 10, 200] {
            motion.look(Grey::filled(size, [level]).view(), |_| {});
        }
        assert!((0..16).all(|block| !motion.is_still(block)));
        motion.settle();
        assert!((0..16).all(|block| motion.is_still(block)));
    }
}

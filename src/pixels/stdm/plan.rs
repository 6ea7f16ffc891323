//! From a picture to the coefficients of a grid's blocks, and back: tables and buffers, made once.

use super::grid::{Axis, FREQUENCIES, Grid, Span};
use crate::geometry::Size;
use crate::simd::stdm as loops;
use crate::view::{View, ViewMut};

/// Ordered dither, 4 by 4.
pub(super) const BAYER: [[i16; 4]; 4] =
    [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]];

/// One grid over pictures of one size and `C` channels.
pub(super) struct Plan<const C: usize> {
    grid: Grid,
    down: Axis,
    across: Vec<Columns>,
    sums: [Vec<f32>; 3],
    dither: [Vec<i16>; 4],
    drawn: Vec<f32>,
    laid: Vec<i16>,
    rows: [Vec<i16>; 3],
    above: [Vec<i16>; 3],
}

/// A block's columns, with tables per byte (`C` a pixel).
struct Columns {
    start: usize,
    /// Luma weights folded in.
    analysis: [Vec<f32>; 3],
    synthesis: [Vec<f32>; 3],
}

impl Columns {
    fn new<const C: usize>(span: &Span, weights: [f32; C], scale: f32) -> Self {
        let bytes = |values: &[[f32; 3]], u: usize, by: [f32; C]| -> Vec<f32> {
            values.iter().flat_map(|v| by.map(|s| v[u] * s)).collect()
        };
        Self {
            start: span.start * C,
            analysis: [0, 1, 2].map(|u| bytes(&span.analysis, u, weights)),
            synthesis: [0, 1, 2].map(|u| bytes(&span.synthesis, u, [scale; C])),
        }
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.analysis[0].len()
    }
}

fn slices(tables: &[Vec<f32>; 3]) -> [&[f32]; 3] {
    [&tables[0], &tables[1], &tables[2]]
}

impl<const C: usize> Plan<C> {
    /// Luma is the sum of the channels times `weights`; what is drawn is `scale` times as strong.
    pub(super) fn new(grid: Grid, size: Size, weights: [f32; C], scale: f32) -> Self {
        let blocks = grid.blocks();
        let spans = Axis::new(size.width, blocks.width).spans;
        let width = size.width as usize * C;
        let blank = || [vec![0; width], vec![0; width], vec![0; width]];
        Self {
            grid,
            down: Axis::new(size.height, blocks.height),
            across: spans.iter().map(|span| Columns::new(span, weights, scale)).collect(),
            sums: [vec![0.0; width], vec![0.0; width], vec![0.0; width]],
            dither: BAYER.map(|row| {
                let level = |i: usize| (row[i / C % 4] * 2 + 1) << (loops::LEVEL_BITS - 5);
                (0..width).map(level).collect()
            }),
            drawn: vec![0.0; width],
            laid: vec![0; width],
            rows: blank(),
            above: blank(),
        }
    }

    pub(super) const fn grid(&self) -> Grid {
        self.grid
    }

    /// All coefficients, block by block, in place of what `out` held.
    pub(super) fn analyse(&mut self, picture: View<'_, C>, out: &mut Vec<f32>) {
        out.clear();
        for span in &self.down.spans {
            let rows = |i: usize| picture.row((span.start + i) as u32);
            loops::fold_rows(rows, &span.analysis, &mut self.sums);
            for columns in &self.across {
                let part = [0, 1, 2].map(|v| &self.sums[v][columns.range()]);
                let found = loops::products(part, slices(&columns.analysis));
                out.extend((0..FREQUENCIES.len()).map(|k| {
                    let (across, down) = self.grid.frequency(k);
                    found[down][across]
                }));
            }
        }
    }

    /// Adds changes of coefficients to the picture; gives the sum of the bytes' squared changes.
    pub(super) fn synthesise(&mut self, changes: &[f32], picture: &mut ViewMut<'_, C>) -> u64 {
        let Self { grid, down, across, dither, drawn, laid, rows, above, .. } = self;
        let mut squares = 0;
        let per_row = across.len() * FREQUENCIES.len();
        for (b, (span, changes)) in down.spans.iter().zip(changes.chunks_exact(per_row)).enumerate()
        {
            std::mem::swap(rows, above);
            for (down, row) in rows.iter_mut().enumerate() {
                drawn.fill(0.0);
                for (columns, block) in across.iter().zip(changes.chunks_exact(FREQUENCIES.len())) {
                    let mut weights = [0.0; 3];
                    for (k, change) in block.iter().enumerate() {
                        let (across, d) = grid.frequency(k);
                        if d == down {
                            weights[across] = *change;
                        }
                    }
                    loops::spread(slices(&columns.synthesis), weights, &mut drawn[columns.range()]);
                }
                loops::fix(drawn, row);
            }
            // A row that belongs to two blocks is written with the lower one.
            let shared = |at: usize| down.spans.get(at).map(|s| s.start);
            let last = span.start + span.synthesis.len();
            let end = shared(b + 1).unwrap_or(last).min(last);
            let before = b.checked_sub(1).map(|b| &down.spans[b]);
            for y in span.start..end {
                let weights = fixed(&span.synthesis[y - span.start]);
                let dither = &dither[y % 4];
                let row = picture.row_mut(y as u32);
                let other = before.and_then(|s| s.synthesis.get(y - s.start));
                squares += match other {
                    None => loops::add(row, views(rows), weights, dither),
                    Some(other) => {
                        loops::lay(views(above), fixed(other), dither, laid);
                        loops::add(row, views(rows), weights, laid)
                    }
                };
            }
        }
        squares
    }
}

fn views(rows: &[Vec<i16>; 3]) -> [&[i16]; 3] {
    [&rows[0], &rows[1], &rows[2]]
}

fn fixed(weights: &[f32; 3]) -> [i16; 3] {
    weights.map(|w| (w * loops::WEIGHT_ONE) as i16)
}

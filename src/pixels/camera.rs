//! Frames as cameras pack them, straight into planes: the only copy that a raw frame undergoes.

use crate::geometry::Size;
use crate::i420::{I420, chroma_size};
use crate::view::View;

impl I420 {
    /// Makes it of YUYV (Y0 U Y1 V), the size and colour that it was reset to. Chroma of two rows
    /// is averaged.
    ///
    /// # Panics
    /// When the pairs do not fit the frame.
    pub fn fill_yuyv(&mut self, pairs: View<'_, 4>) {
        let (size, half) = (self.size(), chroma_size(self.size()));
        assert!(pairs.size() == Size::new(half.width, size.height), "pairs fit the frame");
        let [mut y, mut u, mut v] = self.planes_mut();
        for row in 0..size.height {
            let from = pairs.row(row);
            let to = y.row_mut(row);
            let (twos, last) = to.as_chunks_mut::<2>();
            let quads = from.as_chunks::<4>().0;
            for (two, quad) in twos.iter_mut().zip(quads) {
                *two = [quad[0], quad[2]];
            }
            if let ([last], Some(quad)) = (last, quads.last()) {
                *last = quad[0];
            }
        }
        for row in 0..half.height {
            let top = pairs.row(2 * row).as_chunks::<4>().0;
            let bottom = pairs.row((2 * row + 1).min(size.height - 1)).as_chunks::<4>().0;
            let (u, v) = (u.row_mut(row), v.row_mut(row));
            for (((a, b), u), v) in top.iter().zip(bottom).zip(u).zip(v) {
                *u = u16::midpoint(a[1].into(), u16::from(b[1]) + 1) as u8;
                *v = u16::midpoint(a[3].into(), u16::from(b[3]) + 1) as u8;
            }
        }
    }

    /// Makes it of NV12, the size and colour that it was reset to.
    ///
    /// # Panics
    /// When the planes do not fit the frame.
    pub fn fill_nv12(&mut self, luma: View<'_, 1>, chroma: View<'_, 2>) {
        let (size, half) = (self.size(), chroma_size(self.size()));
        assert!(luma.size() == size && chroma.size() == half, "planes fit the frame");
        let [mut y, mut u, mut v] = self.planes_mut();
        (0..size.height).for_each(|row| y.row_mut(row).copy_from_slice(luma.row(row)));
        for row in 0..half.height {
            let (u, v) = (u.row_mut(row), v.row_mut(row));
            let pairs = chroma.row(row).as_chunks::<2>().0;
            for ((pair, u), v) in pairs.iter().zip(u).zip(v) {
                (*u, *v) = (pair[0], pair[1]);
            }
        }
    }

    /// Writes it as YUYV rows of `stride` bytes.
    ///
    /// # Panics
    /// When `into` has no room for all rows.
    pub fn write_yuyv(&self, into: &mut [u8], stride: usize) {
        let size = self.size();
        let [y, u, v] = self.view().planes();
        for (row, to) in (0..size.height).zip(into.chunks_mut(stride.max(1))) {
            let (luma, u, v) = (y.row(row), u.row(row / 2), v.row(row / 2));
            let quads = to.as_chunks_mut::<4>().0;
            for (((quad, two), u), v) in quads.iter_mut().zip(luma.chunks(2)).zip(u).zip(v) {
                *quad = [two[0], *u, two[two.len() - 1], *v];
            }
        }
    }

    /// Writes it as NV12: rows of luma, then rows of pairs, all of `stride` bytes.
    ///
    /// # Panics
    /// When `into` has no room for all rows.
    pub fn write_nv12(&self, into: &mut [u8], stride: usize) {
        let (size, half) = (self.size(), chroma_size(self.size()));
        let [y, u, v] = self.view().planes();
        let (luma, chroma) = into.split_at_mut(stride * size.height as usize);
        for (row, to) in (0..size.height).zip(luma.chunks_mut(stride.max(1))) {
            to[..size.width as usize].copy_from_slice(y.row(row));
        }
        for (row, to) in (0..half.height).zip(chroma.chunks_mut(stride.max(1))) {
            let pairs = to.as_chunks_mut::<2>().0;
            for ((pair, u), v) in pairs.iter_mut().zip(u.row(row)).zip(v.row(row)) {
                *pair = [*u, *v];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Colour;

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 9_u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn frames_go_in_and_come_out_as_they_were_also_with_wide_rows() {
        let size = Size::new(38, 22);
        let mut frame = I420::default();
        frame.reset(size, Colour::BT601_LIMITED);
        let (stride, bytes) = (48, noise(48 * 33));
        let luma = View::<1>::new(&bytes[..48 * 22], size, stride).unwrap();
        let pairs = View::<2>::new(&bytes[48 * 22..], Size::new(19, 11), stride).unwrap();
        frame.fill_nv12(luma, pairs);
        assert_eq!(frame.view().planes()[2].pixel(3, 4), [bytes[48 * 26 + 7]]);
        let mut out = bytes.clone();
        out.iter_mut().for_each(|b| *b ^= 255);
        frame.write_nv12(&mut out, stride);
        for (row, (a, b)) in bytes.chunks(48).zip(out.chunks(48)).enumerate() {
            assert_eq!(a[..38], b[..38], "{row}");
        }

        let mut packed = vec![0; 80 * 22];
        frame.write_yuyv(&mut packed, 80);
        let mut again = I420::default();
        again.reset(size, Colour::BT601_LIMITED);
        again.fill_yuyv(View::<4>::new(&packed, Size::new(19, 22), 80).unwrap());
        assert!(again == frame, "each chroma row stands twice in YUYV, so that its mean is itself");
    }

    #[test]
    fn chroma_of_two_rows_is_their_mean_and_an_odd_frame_keeps_its_edge() {
        let size = Size::new(3, 3);
        let mut frame = I420::default();
        frame.reset(size, Colour::BT601_LIMITED);
        let rows: [[u8; 8]; 3] = [
            [1, 10, 2, 20, 3, 30, 0, 40],
            [4, 13, 5, 22, 6, 30, 0, 40],
            [7, 90, 8, 91, 9, 92, 0, 93],
        ];
        frame.fill_yuyv(View::<4>::new(rows.as_flattened(), Size::new(2, 3), 8).unwrap());
        let [y, u, v] = frame.view().planes();
        assert_eq!([y.row(0), y.row(2)], [&[1, 2, 3], &[7, 8, 9]]);
        assert_eq!([u.row(0), u.row(1)], [&[12, 30], &[90, 92]]);
        assert_eq!([v.row(0), v.row(1)], [&[21, 40], &[91, 93]]);
    }
}

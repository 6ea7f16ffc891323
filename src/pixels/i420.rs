//! Frames of clips: planes of Y, U and V, each chroma plane halved and rounded up.
//!
//! A frame is decoded into a pooled `I420`, converted to RGB where faces are worked on, and what
//! was altered there is written back. Where RGB still is what the planes give, their bytes stay
//! exactly as they were decoded.

use crate::convert::{self, Colour};
use crate::geometry::{Roi, Size};
use crate::simd::{self, Level, cells::Row};
use crate::view::{Grey, View, ViewMut};

/// Pixels of a row that are compared at once.
const CHUNK: usize = 64;
/// Largest side of a block of `Cells`: sums of 16 bits hold it.
const MOST: usize = 16;

/// A frame that owns its planes, rows without gaps.
#[derive(Clone, PartialEq, Eq)]
pub struct I420 {
    colour: Colour,
    y: Grey,
    u: Grey,
    v: Grey,
}

impl std::fmt::Debug for I420 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "I420({}x{})", self.size().width, self.size().height)
    }
}

impl Default for I420 {
    /// An empty one, for a pool.
    fn default() -> Self {
        Self::new(Size::new(0, 0), Colour::BT601_LIMITED)
    }
}

/// Size of the chroma planes.
#[must_use]
pub const fn chroma_size(size: Size) -> Size {
    Size::new(size.width.div_ceil(2), size.height.div_ceil(2))
}

/// The region grown so that it begins and ends between chroma samples, or at the frame's edge.
///
/// # Panics
/// When the region reaches outside.
#[must_use]
pub fn aligned(roi: Roi, size: Size) -> Roi {
    assert!(roi.lies_in(size), "The region {roi:?} reaches outside {size:?}");
    let grown = |at: u32, len: u32, side: u32| {
        let start = at & !1;
        let end = (at + len).next_multiple_of(2).min(side);
        (start, if len == 0 { 0 } else { end - start })
    };
    let (x, width) = grown(roi.x, roi.width, size.width);
    let (y, height) = grown(roi.y, roi.height, size.height);
    Roi { x, y, width, height }
}

fn chroma_roi(aligned: Roi) -> Roi {
    let size = chroma_size(aligned.size());
    Roi { x: aligned.x / 2, y: aligned.y / 2, width: size.width, height: size.height }
}

impl I420 {
    /// A black frame.
    #[must_use]
    pub fn new(size: Size, colour: Colour) -> Self {
        let half = chroma_size(size);
        let grey = |size, v| Grey::filled(size, [v]);
        Self { colour, y: grey(size, colour.black()), u: grey(half, 128), v: grey(half, 128) }
    }

    /// Makes it a frame of this size whose bytes are yet to be written. Allocates only when it
    /// never was that large.
    pub fn reset(&mut self, size: Size, colour: Colour) {
        self.colour = colour;
        self.y.reset(size);
        self.u.reset(chroma_size(size));
        self.v.reset(chroma_size(size));
    }

    /// Paints it black.
    pub fn blacken(&mut self) {
        let black = self.colour.black();
        self.y.bytes_all_mut().fill(black);
        self.u.bytes_all_mut().fill(128);
        self.v.bytes_all_mut().fill(128);
    }

    /// Takes over another frame's size, colour and bytes.
    pub fn copy_from(&mut self, other: I420View<'_>) {
        self.reset(other.size(), other.colour);
        for (to, from) in self.planes_mut().into_iter().zip(other.planes()) {
            copy(to, from);
        }
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.y.size()
    }

    /// What the values mean.
    #[must_use]
    pub const fn colour(&self) -> Colour {
        self.colour
    }

    /// Luma.
    #[must_use]
    pub fn y(&self) -> View<'_, 1> {
        self.y.view()
    }

    /// Luma, for writing.
    pub fn y_mut(&mut self) -> ViewMut<'_, 1> {
        self.y.view_mut()
    }

    /// Y, U and V for writing.
    pub fn planes_mut(&mut self) -> [ViewMut<'_, 1>; 3] {
        [self.y.view_mut(), self.u.view_mut(), self.v.view_mut()]
    }

    #[must_use]
    pub fn view(&self) -> I420View<'_> {
        let (y, u, v) = (self.y.view(), self.u.view(), self.v.view());
        I420View { y, u, v, colour: self.colour }
    }

    /// Makes all of it from a picture of its size.
    ///
    /// # Panics
    /// When the sizes differ.
    pub fn fill_from(&mut self, rgb: View<'_, 3>) {
        let colour = self.colour;
        let [mut y, mut u, mut v] = self.planes_mut();
        convert::rgb_to_i420(rgb, colour, &mut y, &mut u, &mut v);
    }

    /// Writes back what was altered in a region of `rgb`, the picture of the whole frame that
    /// `to_rgb` gave. Luma changes only where a pixel did, chroma only where one of its four did.
    ///
    /// # Panics
    /// When the sizes differ or the region reaches outside.
    pub fn write_back(&mut self, rgb: View<'_, 3>, roi: Roi) {
        let (size, colour) = (self.size(), self.colour);
        assert!(rgb.size() == size, "the picture is as large as the frame");
        let roi = aligned(roi, size);
        let (decode, encode, level) = (colour.decode(), colour.encode(), Level::current());
        let (first, last) = (roi.x as usize, (roi.x + roi.width) as usize);
        for top in (roi.y..roi.y + roi.height).step_by(2) {
            let rows = [top, (top + 1).min(size.height - 1)];
            for x in (first..last).step_by(CHUNK) {
                let n = CHUNK.min(last - x);
                let mut was = [[0; 3 * CHUNK]; 2];
                for (row, was) in rows.iter().zip(&mut was) {
                    let y = &self.y.view().row(*row)[x..x + n];
                    let half = x / 2..x / 2 + n.div_ceil(2);
                    let (u, v) = (self.u.view(), self.v.view());
                    let (u, v) = (&u.row(top / 2)[half.clone()], &v.row(top / 2)[half]);
                    convert::i420_row(level, &decode, [y, u, v], &mut was[..3 * n]);
                }
                let now = rows.map(|row| &rgb.row(row)[3 * x..3 * (x + n)]);
                if now[0] == &was[0][..3 * n] && now[1] == &was[1][..3 * n] {
                    continue;
                }
                for (row, (was, now)) in rows.iter().zip(was.iter().zip(now)) {
                    let mut fresh = [0; CHUNK];
                    encode.luma_row(now, &mut fresh[..n]);
                    let mut view = self.y.view_mut();
                    let luma = &mut view.row_mut(*row)[x..x + n];
                    let pixels = was.chunks_exact(3).zip(now.chunks_exact(3));
                    for ((to, fresh), (was, now)) in luma.iter_mut().zip(fresh).zip(pixels) {
                        if was != now {
                            *to = fresh;
                        }
                    }
                }
                for cx in 0..n.div_ceil(2) {
                    let pair = 6 * cx..(6 * cx + 6).min(3 * n);
                    let same = |row: usize| now[row][pair.clone()] == was[row][pair.clone()];
                    if same(0) && same(1) {
                        continue;
                    }
                    let [u, v] = encode.chroma(convert::block_sum(now[0], now[1], cx), 2);
                    self.u.view_mut().row_mut(top / 2)[x / 2 + cx] = u;
                    self.v.view_mut().row_mut(top / 2)[x / 2 + cx] = v;
                }
            }
        }
    }
}

fn copy(mut to: ViewMut<'_, 1>, from: View<'_, 1>) {
    (0..from.size().height).for_each(|y| to.row_mut(y).copy_from_slice(from.row(y)));
}

/// Borrowed planes, each with a stride of its own.
#[derive(Debug, Clone, Copy)]
pub struct I420View<'a> {
    y: View<'a, 1>,
    u: View<'a, 1>,
    v: View<'a, 1>,
    colour: Colour,
}

impl<'a> I420View<'a> {
    /// Borrows the planes Y, U and V; `None` when a chroma plane has another size than it must.
    #[must_use]
    pub fn new(y: View<'a, 1>, u: View<'a, 1>, v: View<'a, 1>, colour: Colour) -> Option<Self> {
        let half = chroma_size(y.size());
        (u.size() == half && v.size() == half).then_some(Self { y, u, v, colour })
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.y.size()
    }

    /// What the values mean.
    #[must_use]
    pub const fn colour(&self) -> Colour {
        self.colour
    }

    /// Y, U and V.
    #[must_use]
    pub const fn planes(&self) -> [View<'a, 1>; 3] {
        [self.y, self.u, self.v]
    }

    /// Luma.
    #[must_use]
    pub const fn y(&self) -> View<'a, 1> {
        self.y
    }

    /// Converts a region, grown as `aligned` does, into its place in a picture of the whole frame.
    ///
    /// # Panics
    /// When the sizes differ or the region reaches outside.
    pub fn to_rgb(&self, roi: Roi, rgb: &mut ViewMut<'_, 3>) {
        assert!(rgb.size() == self.size(), "the picture is as large as the frame");
        let roi = aligned(roi, self.size());
        let half = chroma_roi(roi);
        convert::i420_to_rgb(
            self.y.crop(roi),
            self.u.crop(half),
            self.v.crop(half),
            self.colour,
            &mut rgb.reborrow().crop(roi),
        );
    }
}

/// One value for each block of pixels, in sixteenths of a level: a thumbnail of luma, or how far
/// two lumas are apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cells {
    block: u32,
    across: u32,
    down: u32,
    values: Vec<u16>,
}

impl Cells {
    /// Sixteenths of a level.
    pub const ONE: u16 = 16;

    /// Means of luma over blocks of `block` by `block` pixels, those at the edges smaller.
    /// Allocates only when there never were as many.
    ///
    /// # Panics
    /// When `block` is not 1..=16.
    pub fn means(&mut self, luma: View<'_, 1>, block: u32) {
        self.fold(luma.size(), block, |level, y, x, sums| {
            simd::cells::add(level, Row(&luma.row(y)[x..x + sums.len()], &[]), sums);
        });
    }

    /// Mean absolute differences of two lumas over blocks.
    ///
    /// # Panics
    /// When the sizes differ, or `block` is not 1..=16.
    pub fn differences(&mut self, a: View<'_, 1>, b: View<'_, 1>, block: u32) {
        assert!(a.size() == b.size(), "both lumas have one size");
        self.fold(a.size(), block, |level, y, x, sums| {
            let part = x..x + sums.len();
            let rows = Row(&a.row(y)[part.clone()], &b.row(y)[part]);
            simd::cells::add_apart(level, rows, sums);
        });
    }

    fn fold(&mut self, size: Size, block: u32, add: impl Fn(Level, u32, usize, &mut [u16])) {
        assert!((1..=MOST as u32).contains(&block), "blocks of 1 to 16 pixels");
        self.block = block;
        (self.across, self.down) = (size.width.div_ceil(block), size.height.div_ceil(block));
        self.values.clear();
        let level = Level::current();
        let side = block as usize;
        // As many whole blocks as fit, so that every strip begins with one.
        let strip = 32 * MOST / side * side;
        let mut sums = [0_u16; 32 * MOST];
        for top in (0..size.height).step_by(side) {
            let rows = top..size.height.min(top + block);
            for x in (0..size.width as usize).step_by(strip) {
                let sums = &mut sums[..strip.min(size.width as usize - x)];
                sums.fill(0);
                rows.clone().for_each(|y| add(level, y, x, sums));
                for cell in sums.chunks(side) {
                    let sum: u32 = cell.iter().map(|v| u32::from(*v)).sum();
                    let area = cell.len() as u32 * rows.len() as u32;
                    self.values.push(((sum * u32::from(Self::ONE) + area / 2) / area) as u16);
                }
            }
        }
    }

    /// Side of a block in pixels; 0 before the first frame.
    #[must_use]
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// Blocks across and down.
    #[must_use]
    pub const fn size(&self) -> Size {
        Size::new(self.across, self.down)
    }

    /// All values, row after row.
    #[must_use]
    pub fn values(&self) -> &[u16] {
        &self.values
    }

    /// The value of block (x, y); `None` outside.
    #[must_use]
    pub fn get(&self, x: u32, y: u32) -> Option<u16> {
        let inside = x < self.across && y < self.down;
        inside.then(|| self.values[y as usize * self.across as usize + x as usize])
    }

    /// Values of all blocks that touch a region of pixels.
    pub fn touching(&self, roi: Roi) -> impl Iterator<Item = u16> {
        let block = self.block.max(1);
        let span = |at: u32, len: u32, most: u32| {
            let end = at.saturating_add(len).div_ceil(block).min(most);
            (at / block).min(end)..if len == 0 { (at / block).min(end) } else { end }
        };
        let across = span(roi.x, roi.width, self.across);
        span(roi.y, roi.height, self.down).flat_map(move |y| {
            let row = y as usize * self.across as usize;
            self.values[row + across.start as usize..row + across.end as usize].iter().copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::Rgb;

    const COLOURS: [Colour; 3] = [Colour::BT601_LIMITED, Colour::BT709_LIMITED, Colour::BT601_FULL];

    fn frame(size: Size, colour: Colour, seed: u32) -> I420 {
        let mut frame = I420::new(size, colour);
        for (i, mut plane) in frame.planes_mut().into_iter().enumerate() {
            let bytes = noise::<1>(plane.size(), seed ^ i as u32);
            copy(plane.reborrow(), bytes.view());
        }
        frame
    }

    fn rgb_of(frame: &I420) -> Rgb {
        let mut rgb = Rgb::filled(frame.size(), [0; 3]);
        frame.view().to_rgb(Roi::whole(frame.size()), &mut rgb.view_mut());
        rgb
    }

    fn size_and_roi() -> impl Strategy<Value = (Size, Roi)> {
        let part = |side: u32| (0..side).prop_flat_map(move |at| (Just(at), 0..=side - at));
        (1_u32..150, 1_u32..12).prop_flat_map(move |(w, h)| {
            (part(w), part(h)).prop_map(move |((x, width), (y, height))| {
                (Size::new(w, h), Roi { x, y, width, height })
            })
        })
    }

    proptest! {
        #[test]
        fn what_was_not_altered_keeps_its_bytes(
            (size, roi) in size_and_roi(),
            colour in prop::sample::select(&COLOURS[..]),
            seed in any::<u32>(),
        ) {
            let before = frame(size, colour, seed);
            let mut after = before.clone();
            after.write_back(rgb_of(&before).view(), roi);
            prop_assert_eq!(&after, &before);
        }

        #[test]
        fn an_altered_pixel_changes_its_own_luma_and_chroma_alone(
            (size, roi) in size_and_roi(),
            colour in prop::sample::select(&COLOURS[..]),
            seed in any::<u32>(),
        ) {
            prop_assume!(roi.width > 0 && roi.height > 0);
            let before = frame(size, colour, seed);
            let mut rgb = rgb_of(&before);
            let (px, py) = (roi.x + seed % roi.width, roi.y + seed % roi.height);
            let pixel = &mut rgb.view_mut();
            let pixel = &mut pixel.row_mut(py)[3 * px as usize..3 * px as usize + 3];
            pixel.iter_mut().for_each(|v| *v ^= 0x80);
            let pixel: [u8; 3] = pixel.try_into().unwrap();
            let mut after = before.clone();
            after.write_back(rgb.view(), roi);
            for (i, (was, now)) in before.view().planes().iter().zip(after.view().planes()).enumerate() {
                for y in 0..was.size().height {
                    for x in 0..was.size().width {
                        let own = if i == 0 { (x, y) == (px, py) } else { (x, y) == (px / 2, py / 2) };
                        prop_assert!(own || was.pixel(x, y) == now.pixel(x, y), "plane {} {} {}", i, x, y);
                    }
                }
            }
            let mut whole = I420::new(size, colour);
            whole.fill_from(rgb.view());
            prop_assert_eq!(after.y().pixel(px, py), whole.y().pixel(px, py), "{:?}", pixel);
            let chroma = |f: &I420| f.view().planes()[1..].iter().map(|p| p.pixel(px / 2, py / 2)[0]).collect::<Vec<_>>();
            prop_assert_eq!(chroma(&after), chroma(&whole));
        }

        #[test]
        fn a_region_converts_as_the_whole_does_and_nothing_else_is_touched(
            (size, roi) in size_and_roi(),
            colour in prop::sample::select(&COLOURS[..]),
            seed in any::<u32>(),
        ) {
            let frame = frame(size, colour, seed);
            let whole = rgb_of(&frame);
            let mut part = Rgb::filled(size, [9; 3]);
            frame.view().to_rgb(roi, &mut part.view_mut());
            let grown = aligned(roi, size);
            prop_assert!(grown.lies_in(size) && (grown.x | grown.y).is_multiple_of(2));
            for (x, y) in (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y))) {
                let inside = (grown.x..grown.x + grown.width).contains(&x)
                    && (grown.y..grown.y + grown.height).contains(&y);
                let want = if inside { whole.view().pixel(x, y) } else { [9; 3] };
                prop_assert_eq!(part.view().pixel(x, y), want);
            }
        }

        #[test]
        fn every_level_writes_the_same_back(
            (size, roi) in size_and_roi(),
            seed in any::<u32>(),
        ) {
            let before = frame(size, Colour::BT709_LIMITED, seed);
            let rgb = noise::<3>(size, seed ^ 77);
            same_at_every_level::<1>(size, |dst| {
                let mut after = before.clone();
                after.write_back(rgb.view(), roi);
                copy(dst.reborrow(), after.y());
            });
            same_at_every_level::<1>(chroma_size(size), |dst| {
                let mut after = before.clone();
                after.write_back(rgb.view(), roi);
                copy(dst.reborrow(), after.view().planes()[2]);
            });
        }

        #[test]
        fn cells_are_means_of_their_blocks(
            (w, h) in (1_u32..700, 1_u32..40),
            block in 1_u32..=16,
            seed in any::<u32>(),
        ) {
            let (a, b) = (noise::<1>(Size::new(w, h), seed), noise::<1>(Size::new(w, h), seed ^ 5));
            let (mut means, mut apart) = (Cells::default(), Cells::default());
            means.means(a.view(), block);
            apart.differences(a.view(), b.view(), block);
            prop_assert_eq!(means.size(), Size::new(w.div_ceil(block), h.div_ceil(block)));
            for (x, y) in (0..means.down).flat_map(|y| (0..means.across).map(move |x| (x, y))) {
                let (mut sum, mut far, mut n) = (0.0, 0.0, 0.0);
                for py in y * block..((y + 1) * block).min(h) {
                    for px in x * block..((x + 1) * block).min(w) {
                        let (a, b) = (a.view().pixel(px, py)[0], b.view().pixel(px, py)[0]);
                        sum += f64::from(a);
                        far += f64::from(a.abs_diff(b));
                        n += 1.0;
                    }
                }
                let near = |got: Option<u16>, want: f64| (f64::from(got.unwrap()) - want * 16.0).abs() <= 0.5;
                prop_assert!(near(means.get(x, y), sum / n));
                prop_assert!(near(apart.get(x, y), far / n));
            }
            for level in [Level::SCALAR, Level::BASELINE] {
                let mut other = Cells::default();
                level.run(|| other.differences(a.view(), b.view(), block));
                prop_assert_eq!(&other, &apart);
            }
        }
    }

    #[test]
    fn a_pooled_frame_does_not_allocate_again() {
        let mut pooled = I420::new(Size::new(64, 48), Colour::BT601_LIMITED);
        let at = |f: &I420| f.view().planes().map(|p| p.row(0).as_ptr());
        let before = at(&pooled);
        pooled.reset(Size::new(3, 5), Colour::BT601_FULL);
        assert_eq!((pooled.size(), pooled.colour()), (Size::new(3, 5), Colour::BT601_FULL));
        pooled.copy_from(frame(Size::new(64, 48), Colour::BT709_LIMITED, 4).view());
        assert_eq!(pooled, frame(Size::new(64, 48), Colour::BT709_LIMITED, 4));
        assert_eq!(at(&pooled), before);
        let mut cells = Cells::default();
        cells.means(pooled.y(), 16);
        let held = cells.values.as_ptr();
        cells.means(pooled.y(), 16);
        assert_eq!(cells.values.as_ptr(), held);
    }

    #[test]
    fn planes_of_a_decoder_are_taken_with_their_strides() {
        let data = noise::<1>(Size::new(40, 30), 3);
        let plane = |x, w, h| {
            let rest = &data.bytes_all()[x..];
            View::<1>::new(rest, Size::new(w, h), 40).unwrap()
        };
        let view =
            I420View::new(plane(1, 7, 5), plane(9, 4, 3), plane(20, 4, 3), Colour::BT601_FULL);
        let mut own = I420::default();
        own.copy_from(view.unwrap());
        assert_eq!(own.y().row(4), plane(1, 7, 5).row(4));
        assert_eq!(own.view().planes()[2].row(2), plane(20, 4, 3).row(2));
        let wrong =
            I420View::new(plane(1, 7, 5), plane(9, 3, 3), plane(20, 4, 3), Colour::BT601_FULL);
        assert!(wrong.is_none());
    }

    #[test]
    fn black_is_black_in_either_range() {
        for colour in COLOURS {
            let mut frame = frame(Size::new(9, 4), colour, 8);
            frame.blacken();
            assert_eq!(frame, I420::new(Size::new(9, 4), colour));
            assert!(rgb_of(&frame).bytes_all().iter().all(|v| *v == 0));
        }
    }

    #[test]
    fn cells_that_touch_a_region_are_given() {
        let mut cells = Cells::default();
        let ramp = Grey::from_vec(Size::new(6, 4), (0..24).collect()).unwrap();
        cells.means(ramp.view(), 2);
        let all = |roi| cells.touching(roi).map(|v| v / 16).collect::<Vec<_>>();
        assert_eq!(all(Roi { x: 1, y: 1, width: 2, height: 1 }), [3, 5]);
        assert_eq!(all(Roi { x: 0, y: 0, width: 6, height: 4 }).len(), 6);
        assert_eq!(all(Roi { x: 3, y: 3, width: 900, height: 900 }), [17, 19]);
        assert_eq!(all(Roi { x: 900, y: 0, width: 3, height: 3 }), [0_u16; 0]);
        assert_eq!(all(Roi { x: 2, y: 2, width: 0, height: 1 }), [0_u16; 0]);
        assert_eq!(Cells::default().touching(Roi { x: 0, y: 0, width: 9, height: 9 }).count(), 0);
    }
}

//! Interleaved 8-bit pictures of C channels: owned, borrowed, borrowed for writing. Rows may have a stride.

use crate::geometry::{Roi, Size};

/// Owned rows without gaps, C bytes a pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Image<const C: usize> {
    size: Size,
    data: Vec<u8>,
}

/// R, G, B.
pub type Rgb = Image<3>;
/// One channel: grey, luma, or alpha 0..=255.
pub type Grey = Image<1>;

impl<const C: usize> std::fmt::Debug for Image<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image<{C}>({}x{})", self.size.width, self.size.height)
    }
}

impl<const C: usize> Image<C> {
    /// A picture of one colour.
    #[must_use]
    pub fn filled(size: Size, colour: [u8; C]) -> Self {
        let mut data = vec![0; Self::bytes(size)];
        data.chunks_exact_mut(C).for_each(|p| p.copy_from_slice(&colour));
        Self { size, data }
    }

    /// Takes rows without gaps; `None` when the length does not fit the size.
    #[must_use]
    pub fn from_vec(size: Size, data: Vec<u8>) -> Option<Self> {
        (data.len() == Self::bytes(size)).then_some(Self { size, data })
    }

    /// Makes it a picture of this size whose pixels are yet to be written. Allocates only when it
    /// never was that large.
    pub fn reset(&mut self, size: Size) {
        self.size = size;
        self.data.resize(Self::bytes(size), 0);
    }

    fn bytes(size: Size) -> usize {
        usize::try_from(size.pixels()).expect("bounded by limits") * C
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// All bytes, row after row.
    #[must_use]
    pub fn bytes_all(&self) -> &[u8] {
        &self.data
    }

    /// All bytes, row after row.
    pub fn bytes_all_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Gives the buffer back, for a pool.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.data
    }

    #[must_use]
    pub fn view(&self) -> View<'_, C> {
        View { data: &self.data, size: self.size, stride: self.size.width as usize * C }
    }

    pub fn view_mut(&mut self) -> ViewMut<'_, C> {
        ViewMut { stride: self.size.width as usize * C, size: self.size, data: &mut self.data }
    }
}

/// Borrowed rows with a stride in bytes.
#[derive(Clone, Copy)]
pub struct View<'a, const C: usize> {
    data: &'a [u8],
    size: Size,
    stride: usize,
}

impl<const C: usize> std::fmt::Debug for View<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View<{C}>({}x{})", self.size.width, self.size.height)
    }
}

fn fits(len: usize, size: Size, stride: usize, channels: usize) -> bool {
    let row = size.width as usize * channels;
    let last = (size.height as usize).checked_sub(1);
    last.is_none_or(|y| {
        let end = y.checked_mul(stride).and_then(|start| start.checked_add(row));
        stride >= row && end.is_some_and(|end| len >= end)
    })
}

impl<'a, const C: usize> View<'a, C> {
    /// Borrows rows; `None` when the data is too short for the size and stride.
    #[must_use]
    pub fn new(data: &'a [u8], size: Size, stride: usize) -> Option<Self> {
        fits(data.len(), size, stride, C).then_some(Self { data, size, stride })
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// From the first pixel to the last, with what stands between the rows.
    pub(crate) const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Row y, width * C bytes.
    ///
    /// # Panics
    /// When y is not below the height.
    #[must_use]
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = y as usize * self.stride;
        &self.data[start..start + self.size.width as usize * C]
    }

    /// All bytes where the rows have no gaps between them.
    #[must_use]
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        let row = self.size.width as usize * C;
        (self.stride == row).then(|| &self.data[..row * self.size.height as usize])
    }

    /// Rows from top to bottom.
    pub fn rows(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (0..self.size.height).map(move |y| self.row(y))
    }

    /// The pixel at (x, y).
    ///
    /// # Panics
    /// When it lies outside.
    #[must_use]
    pub fn pixel(&self, x: u32, y: u32) -> [u8; C] {
        let at = x as usize * C;
        self.row(y)[at..at + C].try_into().expect("C bytes")
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the region reaches outside.
    #[must_use]
    pub fn crop(&self, roi: Roi) -> Self {
        assert!(roi.lies_in(self.size), "The region {roi:?} reaches outside {:?}", self.size);
        let start = roi.y as usize * self.stride + roi.x as usize * C;
        let data = if roi.height == 0 { &[] } else { &self.data[start..] };
        Self { data, size: roi.size(), stride: self.stride }
    }

    /// A copy without gaps.
    #[must_use]
    pub fn to_image(&self) -> Image<C> {
        let mut data = Vec::with_capacity(Image::<C>::bytes(self.size));
        self.rows().for_each(|row| data.extend_from_slice(row));
        Image { size: self.size, data }
    }
}

/// Borrowed rows for writing.
pub struct ViewMut<'a, const C: usize> {
    data: &'a mut [u8],
    size: Size,
    stride: usize,
}

impl<const C: usize> std::fmt::Debug for ViewMut<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ViewMut<{C}>({}x{})", self.size.width, self.size.height)
    }
}

impl<'a, const C: usize> ViewMut<'a, C> {
    /// Borrows rows for writing; `None` when the data is too short for the size and stride.
    #[must_use]
    pub fn new(data: &'a mut [u8], size: Size, stride: usize) -> Option<Self> {
        fits(data.len(), size, stride, C).then_some(Self { data, size, stride })
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Row y, width * C bytes.
    ///
    /// # Panics
    /// When y is not below the height.
    pub fn row_mut(&mut self, y: u32) -> &mut [u8] {
        let start = y as usize * self.stride;
        &mut self.data[start..start + self.size.width as usize * C]
    }

    /// The same rows for reading.
    #[must_use]
    pub fn as_view(&self) -> View<'_, C> {
        View { data: self.data, size: self.size, stride: self.stride }
    }

    /// Borrows again for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, C> {
        ViewMut { data: self.data, size: self.size, stride: self.stride }
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the region reaches outside.
    #[must_use]
    pub fn crop(self, roi: Roi) -> Self {
        assert!(roi.lies_in(self.size), "The region {roi:?} reaches outside {:?}", self.size);
        let start = roi.y as usize * self.stride + roi.x as usize * C;
        let data = if roi.height == 0 { &mut [][..] } else { &mut self.data[start..] };
        Self { data, size: roi.size(), stride: self.stride }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_refuse_what_is_too_short() {
        let data = [0_u8; 20];
        let view = |w, h, stride| View::<3>::new(&data, Size::new(w, h), stride);
        assert!(view(2, 3, 7).is_some());
        assert!(view(2, 3, 8).is_none(), "the last row ends at 22");
        assert!(view(3, 2, 8).is_none(), "rows overlap");
        assert!(view(u32::MAX, 1, usize::MAX).is_none());
        assert!(view(1, 2, usize::MAX).is_none());
        assert!(view(1, u32::MAX, usize::MAX).is_none());
        assert!(view(5, 0, 0).is_some());
    }

    #[test]
    fn images_refuse_a_wrong_length() {
        assert!(Image::<3>::from_vec(Size::new(2, 2), vec![0; 11]).is_none());
        assert!(Image::<3>::from_vec(Size::new(0, 2), Vec::new()).is_some());
    }

    #[test]
    fn crops_of_crops_read_the_same_pixels() {
        let data: Vec<u8> = (0..6 * 5 * 2).collect();
        let image = Image::<2>::from_vec(Size::new(6, 5), data).unwrap();
        let outer = image.view().crop(Roi { x: 1, y: 1, width: 4, height: 3 });
        let inner = outer.crop(Roi { x: 2, y: 1, width: 2, height: 2 });
        assert_eq!(inner.pixel(1, 1), image.view().pixel(4, 3));
        assert_eq!(inner.to_image().bytes_all(), [30, 31, 32, 33, 42, 43, 44, 45]);
        assert_eq!(inner.rows().count(), 2);
    }

    #[test]
    fn writing_a_crop_leaves_the_rest() {
        let mut image = Image::<1>::filled(Size::new(4, 3), [1]);
        let mut part = image.view_mut();
        let mut part = part.reborrow().crop(Roi { x: 1, y: 1, width: 2, height: 2 });
        (0..2).for_each(|y| part.row_mut(y).fill(9));
        assert_eq!(image.bytes_all(), [1, 1, 1, 1, 1, 9, 9, 1, 1, 9, 9, 1]);
    }

    #[test]
    #[should_panic(expected = "reaches outside")]
    fn crops_do_not_reach_outside() {
        let image = Image::<1>::filled(Size::new(4, 3), [1]);
        let _ = image.view().crop(Roi { x: u32::MAX, y: 0, width: 2, height: 1 });
    }
}

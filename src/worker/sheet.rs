//! Several finished pictures, or frames of clips, on one sheet, for people who compare.

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::recipe::Mark;
use mien_base::wire::{Event, Output, Stage};
use mien_engine::backend::Backend;
use mien_face::mark::{self, Altered, Payload};
use mien_pixels::codec::FileFormat;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::resize::resize;
use mien_pixels::stdm;
use mien_pixels::view::{Rgb, View};

use crate::clip::{Stages, is_clip};
use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result, sink};

/// Pixels between pictures.
const GAP: u32 = 8;
const PAPER: [u8; 3] = [245; 3];
/// The frame of a clip that is laid.
const SHOWN: u64 = 30;

/// Share of the shorter side that is left free below for the sheet's own label.
const LABEL: f32 = 0.12;

/// Where the cells lie.
#[derive(Debug, Clone, Copy)]
struct Grid {
    columns: u32,
    cell: Size,
}

impl Grid {
    fn new(pictures: usize, columns: u8, cell: (u16, u16)) -> Result<Self> {
        let bad = Error::Protocol { what: "a sheet without cells, or too large" };
        let (pictures, columns) = (pictures as u64, u64::from(columns));
        let cell = Size::new(cell.0.into(), cell.1.into());
        if pictures == 0 || pictures > 1000 || columns == 0 || cell.short_side() < 16 {
            return Err(bad);
        }
        let side = |cells: u64, cell: u32| cells * u64::from(cell + GAP) + u64::from(GAP);
        let width = side(columns.min(pictures), cell.width);
        let height = side(pictures.div_ceil(columns) + 1, cell.height);
        let most = u64::from(limits::PICTURE_SIDE);
        if width.max(height) > most || width * height > limits::PICTURE_PIXELS {
            return Err(bad);
        }
        Ok(Self { columns: columns as u32, cell })
    }

    /// A picture as large as fits into a cell.
    fn fit(&self, picture: Size) -> Size {
        let scale = |cell: u32, side: u32| f64::from(cell) / f64::from(side.max(1));
        let scale =
            scale(self.cell.width, picture.width).min(scale(self.cell.height, picture.height));
        let side = |v: u32, most: u32| ((f64::from(v) * scale).round() as u32).clamp(1, most);
        Size::new(side(picture.width, self.cell.width), side(picture.height, self.cell.height))
    }

    /// Where fitted pictures lie, each row as high as its highest, and the size of it all.
    fn places(&self, fitted: &[Size], has_label: bool) -> (Vec<Roi>, Size) {
        if let [one] = fitted {
            let (x, y) = ((self.cell.width - one.width) / 2, (self.cell.height - one.height) / 2);
            return (vec![Roi { x, y, width: one.width, height: one.height }], self.cell);
        }
        let (mut places, mut y) = (Vec::with_capacity(fitted.len()), GAP);
        for row in fitted.chunks(self.columns as usize) {
            let high = row.iter().map(|size| size.height).max().unwrap_or(0);
            for (column, size) in (0..).zip(row) {
                let left = GAP + column * (self.cell.width + GAP);
                places.push(Roi {
                    x: left + (self.cell.width - size.width) / 2,
                    y: y + (high - size.height) / 2,
                    width: size.width,
                    height: size.height,
                });
            }
            y += high + GAP;
        }
        let columns = self.columns.min(fitted.len() as u32);
        let width = GAP + columns * (self.cell.width + GAP);
        let strip = if has_label { (width.min(y) as f32 * LABEL) as u32 } else { 0 };
        (places, Size::new(width, y + strip))
    }
}

fn altered(picture: View<'_, 3>) -> Altered {
    stdm::read(picture).and_then(Payload::parse).map_or(Altered::Nothing, |p| p.altered)
}

impl<B: Backend> Desk<'_, B> {
    /// Lays pictures on a sheet. What one of them says of itself, the sheet says of all.
    ///
    /// # Errors
    /// Of inputs and output; `Protocol` for a sheet that can't be; `Cancelled`.
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub fn sheet(
        &self,
        job: JobId,
        columns: u8,
        cell: (u16, u16),
        output: Output,
        sign: &Mark,
        wall: Wall,
        mut files: Files,
        stages: &Stages,
    ) -> Result<Event> {
        let pictures = files.left().saturating_sub(1);
        let grid = Grid::new(pictures, columns, cell)?;
        let mut strongest = Altered::Nothing;
        let mut fitted = Vec::with_capacity(pictures);
        for _ in 0..pictures {
            let input = files.take()?;
            let (picture, says) = if is_clip(&input)? {
                self.shown(input, stages, SHOWN)?
            } else {
                let picture = self.open(&input)?.rgb;
                let says = altered(picture.view());
                (picture, says)
            };
            strongest = strongest.max(says);
            let mut small = Rgb::filled(grid.fit(picture.size()), PAPER);
            resize(picture.view(), &mut small.view_mut());
            fitted.push(small);
        }
        let sizes: Vec<Size> = fitted.iter().map(Rgb::size).collect();
        let (places, size) = grid.places(&sizes, strongest != Altered::Nothing);
        let mut sheet = Rgb::filled(size, PAPER);
        for (small, roi) in fitted.iter().zip(places) {
            let mut place = sheet.view_mut().crop(roi);
            for (y, row) in (0..).zip(small.view().rows()) {
                place.row_mut(y).copy_from_slice(row);
            }
        }
        let backend = self.models.backend();
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let sheet = backend.adopt(sheet).map_err(Error::Engine)?;
        let marked =
            mark::apply(&**backend, sheet, strongest, sign, &clock).map_err(Error::Face)?;
        self.pulse.enter(Stage::Encode)?;
        let encoded = sink::encode(&**backend, marked, FileFormat::Jpeg, output)?;
        self.pulse.enter(Stage::Write)?;
        let written = encoded.write(&files.take()?)?;
        Ok(Event::Sheeted { job, written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_any_shape_lie_inside_the_sheet_and_apart() {
        let grid = Grid::new(5, 3, (100, 50)).unwrap();
        let shapes = [(1, 1), (4000, 10), (7, 9000), (100, 50), (3, 3)];
        let sizes: Vec<Size> = shapes.iter().map(|(w, h)| grid.fit(Size::new(*w, *h))).collect();
        let (places, sheet) = grid.places(&sizes, false);
        assert_eq!(sheet, Size::new(332, 124), "two rows of full height");
        for (index, roi) in (0u32..).zip(&places) {
            let left = 8 + index % 3 * 108;
            assert!(roi.width >= 1 && roi.height >= 1);
            assert!(roi.x >= left && roi.x + roi.width <= left + 100, "{roi:?}");
            assert!(roi.y >= 8 && roi.y + roi.height <= sheet.height - 8, "{roi:?}");
        }
        let (_, flat) = grid.places(&[Size::new(100, 10), Size::new(100, 20)], true);
        assert_eq!(flat.height, 8 + 20 + 8 + 4, "a flat row is low, and the label has its strip");
    }

    #[test]
    fn one_picture_fills_the_asked_size() {
        let grid = Grid::new(1, 1, (160, 90)).unwrap();
        let (places, sheet) = grid.places(&[grid.fit(Size::new(50, 50))], true);
        assert_eq!((sheet, places[0].x), (Size::new(160, 90), 35));
    }

    #[test]
    fn a_sheet_that_can_not_be_is_refused() {
        for (pictures, columns, cell) in [(0, 1, 100), (1, 0, 100), (1, 1, 15), (15, 1, u16::MAX)] {
            assert!(Grid::new(pictures, columns, (cell, cell)).is_err());
        }
    }
}

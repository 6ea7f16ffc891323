//! Several finished pictures on one sheet, for people who compare.

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

use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result, sink};

/// Pixels between pictures.
const GAP: u32 = 8;
const PAPER: [u8; 3] = [245; 3];

/// Where the cells lie.
#[derive(Debug, Clone, Copy)]
struct Grid {
    columns: u32,
    cell: Size,
    /// Pixels around and between cells; none when there is but one.
    gap: u32,
    size: Size,
}

impl Grid {
    fn new(pictures: usize, columns: u8, cell: (u16, u16)) -> Result<Self> {
        let bad = Error::Protocol { what: "a sheet without cells, or too large" };
        let pictures = u32::try_from(pictures).unwrap_or(u32::MAX);
        let (columns, cell) = (u32::from(columns), Size::new(cell.0.into(), cell.1.into()));
        if pictures == 0 || pictures > 1000 || columns == 0 || cell.short_side() < 16 {
            return Err(bad);
        }
        let gap = if pictures == 1 { 0 } else { GAP };
        let side = |cells: u32, cell: u32| gap + cells * (cell + gap);
        let size = Size::new(
            side(columns.min(pictures), cell.width),
            side(pictures.div_ceil(columns), cell.height),
        );
        if size.width.max(size.height) > limits::PICTURE_SIDE
            || size.pixels() > limits::PICTURE_PIXELS
        {
            return Err(bad);
        }
        Ok(Self { columns, cell, gap, size })
    }

    /// The part of a cell that a picture fills: as large as fits, in the middle.
    fn place(&self, index: u32, picture: Size) -> Roi {
        let fit = |cell: u32, side: u32| f64::from(cell) / f64::from(side.max(1));
        let scale = fit(self.cell.width, picture.width).min(fit(self.cell.height, picture.height));
        let side = |v: u32, most: u32| ((f64::from(v) * scale).round() as u32).clamp(1, most);
        let width = side(picture.width, self.cell.width);
        let height = side(picture.height, self.cell.height);
        let at = |index: u32, cell: u32| self.gap + index * (cell + self.gap);
        let x = at(index % self.columns, self.cell.width) + (self.cell.width - width) / 2;
        let y = at(index / self.columns, self.cell.height) + (self.cell.height - height) / 2;
        Roi { x, y, width, height }
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
    ) -> Result<Event> {
        let pictures = files.left().saturating_sub(1);
        let grid = Grid::new(pictures, columns, cell)?;
        let mut sheet = Rgb::filled(grid.size, PAPER);
        let mut strongest = Altered::Nothing;
        for index in 0..pictures as u32 {
            let picture = self.open(&files.take()?)?.rgb;
            strongest = strongest.max(altered(picture.view()));
            let roi = grid.place(index, picture.size());
            resize(picture.view(), &mut sheet.view_mut().crop(roi));
        }
        let backend = self.models.backend();
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let sheet = backend.adopt(sheet).map_err(Error::Engine)?;
        let marked =
            mark::apply(&**backend, sheet, strongest, sign, &clock).map_err(Error::Face)?;
        self.pulse.enter(Stage::Encode)?;
        let encoded = sink::encode(&**backend, marked, None, FileFormat::Jpeg, output)?;
        self.pulse.enter(Stage::Write)?;
        let written = encoded.write(&files.take()?)?;
        Ok(Event::Sheeted { job, written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_any_shape_lie_inside_their_cells_and_apart() {
        let grid = Grid::new(5, 3, (100, 50)).unwrap();
        assert_eq!(grid.size, Size::new(332, 124));
        for picture in [Size::new(1, 1), Size::new(4000, 10), Size::new(7, 9000)] {
            for index in 0..5 {
                let roi = grid.place(index, picture);
                let (left, top) = (8 + index % 3 * 108, 8 + index / 3 * 58);
                assert!(roi.width >= 1 && roi.height >= 1);
                assert!(roi.x >= left && roi.x + roi.width <= left + 100, "{roi:?}");
                assert!(roi.y >= top && roi.y + roi.height <= top + 50, "{roi:?}");
            }
        }
    }

    #[test]
    fn a_sheet_that_can_not_be_is_refused() {
        for (pictures, columns, cell) in [(0, 1, 100), (1, 0, 100), (1, 1, 15), (15, 1, u16::MAX)] {
            assert!(Grid::new(pictures, columns, (cell, cell)).is_err());
        }
    }
}

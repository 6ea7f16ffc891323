//! A picture that moves, where there is no camera: spots, bars, and a square on its way.

use std::time::Duration;

use mien_base::clock::SystemClock;
use mien_base::wire::live::Delivers;
use mien_pixels::convert::Colour;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use mien_pixels::made;

use super::clip::Pace;
use super::{Fault, FrameSource, Shot, now};

/// Pixels that the square moves from one frame to the next.
const STEP: u64 = 4;

/// Makes its frames itself.
#[derive(Debug)]
pub struct Pattern {
    ground: I420,
    delivers: Delivers,
    pace: Pace,
}

impl Pattern {
    /// A pattern of a size and rate (thousandths of frames a second).
    ///
    /// # Errors
    /// `Unusable` for a size that is none.
    pub fn new(size: (u32, u32), millihertz: u32, clock: SystemClock) -> Result<Self, Fault> {
        let (width, height) = size;
        if !(64..=4096).contains(&width) || !(64..=2304).contains(&height) {
            let detail = format!("a pattern of {width}x{height}; 64x64 to 4096x2304 can be made");
            return Err(Fault::Unusable { detail });
        }
        let mut ground = I420::new(Size::new(width, height), Colour::BT601_LIMITED);
        ground.fill_from(made::ground(ground.size(), 1).view());
        let delivers = Delivers { size, pixel: "pattern".to_owned(), millihertz };
        Ok(Self { ground, delivers, pace: Pace::new(clock, millihertz) })
    }

    /// Lays the square of a frame's number.
    fn draw(&self, number: u64, into: &mut I420) {
        into.copy_from(self.ground.view());
        let Size { width, height } = into.size();
        let side = width.min(height) / 5;
        let place = |span: u32, step: u64| {
            let span = u64::from(span - side);
            let at = number * step % (2 * span);
            at.min(2 * span - at) as usize
        };
        let (x, y) = (place(width, STEP), place(height, STEP / 2));
        let mut luma = into.y_mut();
        for row in 0..side {
            luma.row_mut(y as u32 + row)[x..x + side as usize].fill(200);
        }
    }
}

impl FrameSource for Pattern {
    fn delivers(&self) -> &Delivers {
        &self.delivers
    }

    fn next(&mut self, into: &mut I420, most: Duration) -> Result<Shot, Fault> {
        let silent = || Fault::Silent { millis: u64::try_from(most.as_millis()).unwrap_or(0) };
        let sequence = self.pace.wait(most).ok_or_else(silent)?;
        let fetched = now();
        self.draw(sequence, into);
        Ok(Shot { sequence, at: Some(fetched), fetched })
    }

    fn reopen(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_moves_and_never_leaves() {
        let pattern = Pattern::new((160, 96), 30_000, SystemClock::start()).unwrap();
        let (mut one, mut two) = (I420::default(), I420::default());
        for number in (0..600).step_by(7) {
            pattern.draw(number, &mut one);
            pattern.draw(number + 1, &mut two);
            assert!(one != two, "{number}");
        }
        assert!(Pattern::new((0, 96), 1, SystemClock::start()).is_err());
    }
}

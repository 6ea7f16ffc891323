//! Quarter turns of frames into buffers that are kept.

use crate::geometry::Size;
use crate::i420::{I420, I420View, chroma_size};
use crate::view::{View, ViewMut};

/// Side of the tiles in which a turn works, so that both sides stay in the cache.
const TILE: u32 = 32;

/// Makes `to` the frame turned clockwise by so many degrees. A frame of odd size that is turned
/// keeps each of its chroma samples.
///
/// # Panics
/// When `degrees` is not 0, 90, 180 or 270.
pub fn turn_frame(from: I420View<'_>, degrees: u32, to: &mut I420) {
    to.reset(turned(from.size(), degrees), from.colour());
    debug_assert_eq!(chroma_size(to.size()), turned(chroma_size(from.size()), degrees));
    for (from, mut to) in from.planes().into_iter().zip(to.planes_mut()) {
        turn(from, degrees, &mut to);
    }
}

/// Size of a picture that was turned.
#[must_use]
pub const fn turned(size: Size, degrees: u32) -> Size {
    match degrees {
        90 | 270 => Size::new(size.height, size.width),
        _ => size,
    }
}

/// Turns a picture clockwise.
///
/// # Panics
/// When `degrees` is not 0, 90, 180 or 270, or `to` has not the turned size.
pub fn turn<const C: usize>(from: View<'_, C>, degrees: u32, to: &mut ViewMut<'_, C>) {
    assert!(to.size() == turned(from.size(), degrees), "the target has the turned size");
    let (width, height) = (from.size().width, from.size().height);
    match degrees {
        0 => (0..height).for_each(|y| to.row_mut(y).copy_from_slice(from.row(y))),
        180 => {
            for y in 0..height {
                let row = from.row(height - 1 - y).as_chunks::<C>().0.iter().rev();
                let to = to.row_mut(y).as_chunks_mut::<C>().0;
                to.iter_mut().zip(row).for_each(|(to, from)| *to = *from);
            }
        }
        90 | 270 => {
            for top in (0..width).step_by(TILE as usize) {
                for left in (0..height).step_by(TILE as usize) {
                    for y in top..(top + TILE).min(width) {
                        let column = if degrees == 270 { width - 1 - y } else { y } as usize;
                        let to = to.row_mut(y).as_chunks_mut::<C>().0;
                        for x in left..(left + TILE).min(height) {
                            let line = if degrees == 90 { height - 1 - x } else { x };
                            to[x as usize] = from.row(line).as_chunks::<C>().0[column];
                        }
                    }
                }
            }
        }
        other => panic!("{other} degrees are no quarter turns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::Colour;
    use crate::view::Image;

    #[test]
    fn a_turn_is_clockwise() {
        // a b c
        // d e f
        let from = Image::<1>::from_vec(Size::new(3, 2), b"abcdef".to_vec()).unwrap();
        for (degrees, letters) in [(0, "abcdef"), (90, "daebfc"), (180, "fedcba"), (270, "cfbead")]
        {
            let mut to = Image::<1>::filled(turned(from.size(), degrees), [0]);
            turn(from.view(), degrees, &mut to.view_mut());
            assert_eq!(to.bytes_all(), letters.as_bytes(), "{degrees}");
        }
    }

    #[test]
    fn four_quarter_turns_of_an_odd_frame_give_it_back() {
        let mut frame = I420::new(Size::new(67, 45), Colour::BT601_LIMITED);
        for (seed, mut plane) in frame.planes_mut().into_iter().enumerate() {
            for y in 0..plane.size().height {
                let row = plane.row_mut(y).iter_mut().enumerate();
                row.for_each(|(x, v)| *v = (x * 7 + y as usize * 13 + seed) as u8);
            }
        }
        let (mut now, mut next) = (frame.clone(), I420::default());
        for _ in 0..4 {
            turn_frame(now.view(), 90, &mut next);
            std::mem::swap(&mut now, &mut next);
        }
        assert_eq!(now, frame);
        turn_frame(frame.view(), 90, &mut now);
        turn_frame(now.view(), 270, &mut next);
        assert_eq!(next, frame);
    }
}

//! Lines and dots over a picture, for people who look at what was found.

use crate::geometry::{Point, Rect, Roi};
use crate::view::ViewMut;

/// Draws the outline of a rectangle, `width` pixels thick, where it lies inside the picture.
pub fn outline(picture: &mut ViewMut<'_, 3>, rect: &Rect, width: u32, colour: [u8; 3]) {
    let w = width.max(1) as f32;
    for side in [
        Rect::new(rect.x0, rect.y0, rect.x1, rect.y0 + w),
        Rect::new(rect.x0, rect.y1 - w, rect.x1, rect.y1),
        Rect::new(rect.x0, rect.y0, rect.x0 + w, rect.y1),
        Rect::new(rect.x1 - w, rect.y0, rect.x1, rect.y1),
    ] {
        fill(picture, &side, colour);
    }
}

/// Draws a square dot about a point.
pub fn dot(picture: &mut ViewMut<'_, 3>, at: Point, width: u32, colour: [u8; 3]) {
    let half = width.max(1) as f32 / 2.0;
    fill(picture, &Rect::new(at.x - half, at.y - half, at.x + half, at.y + half), colour);
}

/// Fills whole pixels: from the rounded near corner to before the rounded far one.
fn fill(picture: &mut ViewMut<'_, 3>, rect: &Rect, colour: [u8; 3]) {
    let size = picture.size();
    let cut = |v: f32, most: u32| v.round().clamp(0.0, most as f32) as u32;
    let (x0, y0) = (cut(rect.x0, size.width), cut(rect.y0, size.height));
    let (x1, y1) = (cut(rect.x1, size.width), cut(rect.y1, size.height));
    if x1 <= x0 || y1 <= y0 {
        return;
    }
    let mut part = picture.reborrow().crop(Roi { x: x0, y: y0, width: x1 - x0, height: y1 - y0 });
    for y in 0..y1 - y0 {
        part.row_mut(y).as_chunks_mut::<3>().0.fill(colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;
    use crate::view::Rgb;

    const RED: [u8; 3] = [255, 0, 0];

    fn drawn(rect: &Rect) -> Rgb {
        let mut picture = Rgb::filled(Size::new(10, 8), [0; 3]);
        outline(&mut picture.view_mut(), rect, 1, RED);
        picture
    }

    #[test]
    fn an_outline_stands_on_its_rectangle_and_leaves_the_inside() {
        let picture = drawn(&Rect::new(2.0, 1.0, 8.0, 6.0));
        let red = |x, y| picture.view().pixel(x, y) == RED;
        assert!(red(2, 1) && red(7, 1) && red(2, 5) && red(7, 5) && red(4, 1) && red(2, 3));
        assert!(!red(3, 2) && !red(8, 3) && !red(4, 6) && !red(1, 1));
    }

    #[test]
    fn what_lies_outside_is_left_out() {
        for rect in [
            Rect::new(-50.0, -50.0, 50.0, 50.0),
            Rect::new(20.0, 20.0, 30.0, 30.0),
            Rect::new(f32::NAN, 0.0, f32::INFINITY, 3.0),
            Rect::new(5.0, 5.0, 1.0, 1.0),
        ] {
            drawn(&rect);
        }
        let mut picture = Rgb::filled(Size::new(3, 3), [0; 3]);
        dot(&mut picture.view_mut(), Point::new(-1.0, 9.0), 2, RED);
        assert_eq!(picture, Rgb::filled(Size::new(3, 3), [0; 3]));
    }
}

//! A made clip of which everything is known: pictures that move, turn and grow over soft noise.
//!
//! For the demo and for tests. Where a point of a picture stands in a frame is what `paths` says.

use crate::blend;
use crate::cover::Random;
use crate::geometry::{Affine2, Point, Rect, Roi, Size};
use crate::raster;
use crate::resize::resize;
use crate::view::{Grey, Rgb, View};
use crate::warp::{Border, affine_area};

/// Size of the frames that `paths` is made for.
pub const SIZE: Size = Size::new(960, 540);
/// Frames a second.
pub const RATE: u32 = 30;
/// What is cut out of the three pictures: the astronaut of 512x512 pixels, the portrait of Hopper
/// of 512x600, a frame of carphone of 176x144.
pub const CUTS: [Roi; 3] = [
    Roi { x: 60, y: 0, width: 340, height: 300 },
    Roi { x: 70, y: 20, width: 370, height: 400 },
    Roi { x: 0, y: 0, width: 176, height: 144 },
];

/// Where the three cuts stand in a frame: each map takes a cut's pixels to the frame's.
#[must_use]
pub fn paths(index: u32) -> [Affine2; 3] {
    let t = f64::from(index);
    let place = |cut: Roi, x: f64, y: f64, scale: f64, degrees: f64| {
        Affine2::translate(-f64::from(cut.width) / 2.0, -f64::from(cut.height) / 2.0)
            .then(&Affine2::scale(scale, scale))
            .then(&Affine2::rotate(degrees.to_radians()))
            .then(&Affine2::translate(x, y))
    };
    let [astronaut, hopper, carphone] = CUTS;
    [
        place(
            astronaut,
            170.0 + 60.0 * (t * 0.07).sin(),
            170.0 + 20.0 * (t * 0.05).cos(),
            0.75 + 0.15 * (t * 0.06).sin(),
            -10.0 * (t * 0.09).sin(),
        ),
        place(hopper, 480.0 + 30.0 * (t * 0.05 + 1.0).sin(), 380.0, 0.7, 8.0 * (t * 0.08).sin()),
        place(carphone, 780.0, 200.0, 1.9, 0.0),
    ]
}

/// A ground of soft noise, the same for the same seed: levels 60 to 160, spots of 25 pixels.
#[must_use]
pub fn ground(size: Size, seed: u64) -> Rgb {
    const SPOT: u32 = 25;
    let mut random = Random(seed);
    let mut spots =
        Rgb::filled(Size::new(size.width.div_ceil(SPOT), size.height.div_ceil(SPOT)), [0; 3]);
    for level in spots.bytes_all_mut() {
        *level = 60 + (random.next() % 101) as u8;
    }
    let mut ground = Rgb::filled(size, [0; 3]);
    resize(spots.view(), &mut ground.view_mut());
    ground
}

/// Lays pictures over a frame, later ones over earlier ones; each map takes a picture's pixels to
/// the frame's. What reaches outside is cut off.
pub fn lay(frame: &mut Rgb, pictures: &[(View<'_, 3>, Affine2)]) {
    let size = frame.size();
    for (picture, map) in pictures {
        let (w, h) = (picture.size().width as f32 - 1.0, picture.size().height as f32 - 1.0);
        let corners =
            [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(x, y)| map.apply(Point::new(x, y)));
        let roi = Rect::around(&corners).and_then(|r| r.pixels(size));
        let (Some(roi), Some(back)) = (roi, map.inverse()) else { continue };
        let back = Affine2::translate(f64::from(roi.x), f64::from(roi.y)).then(&back);
        let mut layer = Rgb::filled(roi.size(), [0; 3]);
        affine_area(*picture, &back, &mut layer.view_mut(), Border::Replicate);
        let mut alpha = Grey::filled(roi.size(), [255]);
        raster::polygon(&corners, 1.5, roi, &mut alpha);
        blend::paste(&mut frame.view_mut().crop(roi), layer.view(), alpha.view());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_stands_where_its_path_says() {
        let mut picture = Rgb::filled(Size::new(40, 40), [200, 10, 10]);
        picture.view_mut().row_mut(20)[3 * 20..3 * 21].copy_from_slice(&[10, 250, 10]);
        let mut frame = ground(Size::new(200, 100), 3);
        let map = Affine2::translate(-20.0, -20.0)
            .then(&Affine2::scale(2.0, 2.0))
            .then(&Affine2::translate(90.0, 50.0));
        lay(&mut frame, &[(picture.view(), map)]);
        assert_eq!(frame.view().pixel(90, 50), [10, 250, 10]);
        assert_eq!(frame.view().pixel(70, 30), [200, 10, 10]);
        assert_eq!(
            frame.view().pixel(180, 50),
            ground(Size::new(200, 100), 3).view().pixel(180, 50)
        );
    }

    #[test]
    fn the_ground_is_soft_and_the_same_each_time() {
        let one = ground(SIZE, 3);
        assert!(one == ground(SIZE, 3) && one != ground(SIZE, 4));
        let row = one.view().row(100);
        assert!(row.chunks(3).zip(row[3..].chunks(3)).all(|(a, b)| a[0].abs_diff(b[0]) < 12));
        assert!(one.bytes_all().iter().all(|v| (60..=160).contains(v)));
    }

    #[test]
    fn every_cut_stays_in_the_frame_by_its_middle() {
        for index in 0..300 {
            for (map, cut) in paths(index).iter().zip(CUTS) {
                let half = Point::new(cut.width as f32 / 2.0, cut.height as f32 / 2.0);
                let p = map.apply(half);
                assert!((100.0..860.0).contains(&p.x) && (100.0..440.0).contains(&p.y), "{p:?}");
            }
        }
    }
}

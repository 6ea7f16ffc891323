//! Landmarks to a canonical crop: templates, the similarity between them, and what is implausible.

use mien_pixels::geometry::{Affine2, Point, Size};

use crate::subject::Landmarks5;
use crate::{Error, Result};

/// Where the five points stand in a crop, as fractions of its side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Template {
    pub name: &'static str,
    points: [(f64, f64); 5],
}

/// Of the older face nets: ghost and simswap.
pub const ARCFACE_112_V1: Template = Template {
    name: "arcface_112_v1",
    points: [
        (0.354_732_14, 0.456_589_29),
        (0.645_267_86, 0.456_589_29),
        (0.5, 0.611_544_64),
        (0.379_133_93, 0.776_875),
        (0.620_866_07, 0.776_875),
    ],
};

/// Of the embedders.
pub const ARCFACE_112_V2: Template = Template {
    name: "arcface_112_v2",
    points: [
        (0.341_916_07, 0.461_574_11),
        (0.656_533_93, 0.459_833_93),
        (0.500_225, 0.640_505_36),
        (0.370_975_89, 0.824_691_96),
        (0.631_516_96, 0.823_250_89),
    ],
};

/// `ARCFACE_112_V2` set into 128 pixels with 8 more on each side: inswapper and its kin.
pub const ARCFACE_128: Template =
    Template { name: "arcface_128", points: widened(&ARCFACE_112_V2.points) };

/// Of a whole face to the hairline.
pub const DFL_WHOLE_FACE: Template = Template {
    name: "dfl_whole_face",
    points: [
        (0.353_422_66, 0.392_857_16),
        (0.627_976_22, 0.392_857_16),
        (0.486_607_13, 0.540_178_6),
        (0.388_392_87, 0.687_500_11),
        (0.598_214_27, 0.687_500_11),
    ],
};

/// Of the FFHQ data set.
pub const FFHQ_512: Template = Template {
    name: "ffhq_512",
    points: [
        (0.376_916_76, 0.468_646_64),
        (0.622_856_97, 0.469_128_13),
        (0.501_238_59, 0.613_319_04),
        (0.393_088_22, 0.725_411),
        (0.611_502_05, 0.724_904_65),
    ],
};

/// Of hififace.
pub const MTCNN_512: Template = Template {
    name: "mtcnn_512",
    points: [
        (0.365_628_65, 0.467_337_99),
        (0.633_053_91, 0.465_858_85),
        (0.500_191_27, 0.619_429_59),
        (0.390_329_51, 0.775_988_22),
        (0.611_789_45, 0.774_763_28),
    ],
};

/// Of a styled FFHQ at 384.
pub const STYLEGANEX_384: Template = Template {
    name: "styleganex_384",
    points: [
        (0.423_537_45, 0.522_898_79),
        (0.577_250_08, 0.523_199_72),
        (0.501_238_59, 0.613_319_04),
        (0.433_614_41, 0.683_376_52),
        (0.570_153_25, 0.683_060_05),
    ],
};

const fn widened(points: &[(f64, f64); 5]) -> [(f64, f64); 5] {
    let mut wide = [(0.0, 0.0); 5];
    let mut i = 0;
    while i < 5 {
        wide[i] = ((points[i].0 * 112.0 + 8.0) / 128.0, points[i].1 * 112.0 / 128.0);
        i += 1;
    }
    wide
}

impl Template {
    /// The points in a crop of `side` pixels.
    #[must_use]
    pub fn at(&self, side: u32) -> [Point; 5] {
        let side = f64::from(side);
        self.points.map(|(x, y)| Point::new((x * side) as f32, (y * side) as f32))
    }
}

/// Largest mean distance of a face's points from the template after the fit, as a share of the
/// crop's side: 0.03 for a frontal face, 0.06 when it is turned by 45 degrees, 0.11 by 72; mirrored
/// points give 0.18.
const RESIDUAL_MOST: f32 = 0.11;
/// Least eye distance in pixels of the picture.
const EYES_LEAST: f32 = 1.0;

/// Where the crop of a template lies: takes picture pixels to crop pixels.
///
/// # Errors
/// `Face` when the points are no face's: mirrored, scattered, too small, or far outside.
pub fn to_crop(
    landmarks: &Landmarks5,
    template: &Template,
    side: u32,
    picture: Size,
) -> Result<Affine2> {
    let no = |detail: &str| Error::Face { detail: format!("its points {detail}") };
    let (points, wanted) = (landmarks.points(), template.at(side));
    let map = Affine2::similarity(points, &wanted).ok_or_else(|| no("coincide"))?;
    let far = |p: &Point, q: &Point| map.apply(*p).distance(*q);
    let residual = points.iter().zip(&wanted).map(|(p, q)| far(p, q)).sum::<f32>() / 5.0;
    if residual.is_nan() || residual > RESIDUAL_MOST * side as f32 {
        return Err(no("don't stand as a face's do"));
    }
    // The crop of a face covers more than a pixel and at most a few pictures.
    let crop = f64::from(side) / map.mean_scale();
    let longest = f64::from(picture.width.max(picture.height));
    if !(crop >= 2.0 && crop <= 4.0 * longest && landmarks.eye_distance() >= EYES_LEAST) {
        return Err(no("are too near or too far from each other"));
    }
    let back = map.inverse().ok_or_else(|| no("coincide"))?;
    let middle = back.apply(Point::new(side as f32 / 2.0, side as f32 / 2.0));
    let (half_w, half_h) = (picture.width as f32 / 2.0, picture.height as f32 / 2.0);
    let outside = (middle.x - half_w).abs() > 3.0 * half_w + crop as f32
        || (middle.y - half_h).abs() > 3.0 * half_h + crop as f32;
    if outside {
        return Err(no("lie outside the picture"));
    }
    Ok(map)
}

/// The same the other way, as sampling takes it: crop pixels to picture pixels.
///
/// # Errors
/// See `to_crop`.
pub fn from_crop(
    landmarks: &Landmarks5,
    template: &Template,
    side: u32,
    picture: Size,
) -> Result<Affine2> {
    let map = to_crop(landmarks, template, side, picture)?;
    map.inverse().ok_or_else(|| Error::Face { detail: "its points coincide".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Size = Size::new(512, 512);

    /// The astronaut of `golden/golden.json`.
    fn astronaut() -> [Point; 5] {
        [
            Point::new(203.153_88, 101.679_474),
            Point::new(247.007_17, 104.513_794),
            Point::new(223.264_91, 125.075_76),
            Point::new(203.377_9, 142.327_21),
            Point::new(241.334_88, 144.418_8),
        ]
    }

    fn crop(points: [Point; 5], template: &Template, side: u32) -> Result<Affine2> {
        to_crop(&Landmarks5::new(points).unwrap(), template, side, PICTURE)
    }

    #[test]
    fn the_golden_similarities_are_met() {
        // a, b, c, f of OpenCV's estimate: [[a, b, c], [-b, a, f]].
        for (template, side, [a, b, c, f]) in [
            (&ARCFACE_112_V1, 112, [0.804_447_457, 0.051_778_966, -130.296_81, -18.895_11]),
            (&ARCFACE_112_V1, 512, [3.677_474_072, 0.236_703_601, -595.642_53, -86.377_695]),
            (&ARCFACE_112_V2, 112, [0.892_534_063, 0.062_538_675, -151.299_193, -24.433_729]),
            (&ARCFACE_112_V2, 256, [2.040_077_893, 0.142_945_448, -345.826_721, -55.848_551]),
            (&ARCFACE_128, 128, [0.892_534_063, 0.062_538_675, -143.299_193, -24.433_729]),
            (&ARCFACE_128, 512, [3.570_136_252, 0.250_154_7, -573.196_772, -97.734_918]),
            (&FFHQ_512, 128, [0.766_201_414, 0.053_088_925, -113.762_424, -5.996_56]),
            (&FFHQ_512, 512, [3.064_805_696, 0.212_355_7, -455.049_698, -23.986_241]),
        ] {
            let map = crop(astronaut(), template, side).unwrap();
            for corner in [(0.0, 0.0), (512.0, 0.0), (0.0, 512.0), (512.0, 512.0)] {
                let got = map.apply(Point::new(corner.0 as f32, corner.1 as f32));
                let want = (a * corner.0 + b * corner.1 + c, a * corner.1 - b * corner.0 + f);
                let off = (f64::from(got.x) - want.0).hypot(f64::from(got.y) - want.1);
                assert!(off < 0.5, "{} at {side}: {off} px", template.name);
            }
        }
    }

    #[test]
    fn mirrored_points_are_no_face() {
        let [l, r, n, ml, mr] = astronaut();
        assert!(crop([r, l, n, mr, ml], &ARCFACE_112_V2, 112).is_err());
    }

    #[test]
    fn points_that_are_no_face_are_refused() {
        let [l, r, n, ml, mr] = astronaut();
        let p = |x, y| Point::new(x, y);
        for (what, points) in [
            ("one place", [l; 5]),
            ("eyes below the mouth but not turned", [ml, mr, n, l, p(r.x, r.y - 40.0)]),
            ("one far away", [l, r, n, ml, p(2000.0, 30.0)]),
            ("a line", [0.0, 1.0, 2.0, 3.0, 4.0].map(|x| p(200.0 + 10.0 * x, 100.0))),
            ("huge", astronaut().map(|q| p(q.x * 1e5, q.y * 1e5))),
            ("tiny", astronaut().map(|q| p(q.x * 1e-3, q.y * 1e-3))),
            ("elsewhere", astronaut().map(|q| p(q.x + 9000.0, q.y))),
        ] {
            assert!(crop(points, &ARCFACE_112_V2, 112).is_err(), "{what}");
        }
    }

    #[test]
    fn a_face_may_be_turned_by_any_angle() {
        for degrees in [30.0, 90.0, 180.0, 270.0] {
            let turn = Affine2::translate(-225.0, -120.0)
                .then(&Affine2::rotate(f64::to_radians(degrees)))
                .then(&Affine2::translate(225.0, 120.0));
            assert!(crop(astronaut().map(|p| turn.apply(p)), &ARCFACE_128, 128).is_ok());
        }
    }
}

//! Numbers and pixels that OpenCV gave for a known picture: tests/golden/.

#![allow(clippy::unwrap_used)]

use mien_pixels::codec;
use mien_pixels::geometry::{Affine2, Point, Size};
use mien_pixels::view::Rgb;
use mien_pixels::warp::{self, Border};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../tests/golden/similarity.json")).unwrap()
}

fn points(list: &Value, side: f64) -> Vec<Point> {
    let value = |v: &Value| (v.as_f64().unwrap() * side) as f32;
    list.as_array().unwrap().iter().map(|p| Point::new(value(&p[0]), value(&p[1]))).collect()
}

fn decoded(bytes: &[u8]) -> Rgb {
    codec::decode(bytes, &codec::Bounds::default()).unwrap().rgb
}

#[test]
fn similarities_are_those_of_opencv() {
    let golden = golden();
    let landmarks = points(&golden["landmarks"], 1.0);
    let matrices = golden["similarity"].as_object().unwrap();
    assert_eq!(matrices.len(), 16);
    for (name, want) in matrices {
        let (template, side) = name.split_once('@').unwrap();
        let onto = points(&golden["templates"][template], side.parse().unwrap());
        let m = Affine2::similarity(&landmarks, &onto).unwrap();
        for (got, want) in [m.a, m.b, m.c, m.d, m.e, m.f].iter().zip(want.as_array().unwrap()) {
            assert!((got - want.as_f64().unwrap()).abs() < 1e-3, "{name}: {m:?} {want}");
        }
    }
}

#[test]
#[ignore = "needs pictures: tests/run sets MIEN_PICTURES"]
fn crop_is_that_of_opencv() {
    let folder = std::env::var_os("MIEN_PICTURES").expect("MIEN_PICTURES names a folder");
    let file = std::path::Path::new(&folder).join("astronaut.png");
    let picture = decoded(&std::fs::read(file).unwrap());
    let want = decoded(include_bytes!("../../../tests/golden/crop128.png"));

    let golden = golden();
    let m: Vec<f64> =
        serde_json::from_value(golden["similarity"]["arcface_128@128"].clone()).unwrap();
    let onto_crop = Affine2 { a: m[0], b: m[1], c: m[2], d: m[3], e: m[4], f: m[5] };
    let map = onto_crop.inverse().unwrap();
    let mut crop = Rgb::filled(Size::new(128, 128), [0; 3]);
    warp::affine(picture.view(), &map, &mut crop.view_mut(), Border::Replicate);

    let differences = crop.bytes_all().iter().zip(want.bytes_all()).map(|(a, b)| a.abs_diff(*b));
    let (worst, sum) =
        differences.fold((0, 0_u32), |(worst, sum), d| (d.max(worst), sum + u32::from(d)));
    let mean = f64::from(sum) / (3.0 * 128.0 * 128.0);
    assert!(worst <= 1 && mean < 0.05, "worst {worst}, mean {mean}");
}

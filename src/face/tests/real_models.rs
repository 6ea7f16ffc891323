//! The stages on real models and pictures. `tests/run` sets MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mien_base::clock::SystemClock;
use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;
use mien_face::detect::{Detector, Fit, Options};
use mien_face::meter::Meter;
use mien_face::subject::Face;
use mien_pixels::codec;
use mien_pixels::geometry::Size;
use mien_pixels::resize::resize;
use mien_pixels::view::Rgb;

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).expect("tests/run sets it")
}

fn picture(name: &str) -> Rgb {
    let bytes = std::fs::read(folder("MIEN_PICTURES").join(name)).unwrap();
    codec::decode(&bytes, &codec::Bounds::default()).unwrap().rgb
}

fn model(id: &str, role: Role, family: Family) -> (Manifest, Vec<u8>) {
    let bytes = std::fs::read(folder("MIEN_MODELS").join(format!("{id}.onnx"))).unwrap();
    let manifest = Manifest {
        id: id.parse().unwrap(),
        role,
        family,
        sha256: "0".repeat(64),
        bytes: bytes.len() as u64,
        licence: String::new(),
        commercial: true,
    };
    (manifest, bytes)
}

fn detector(backend: &Cpu, id: &str, family: Family) -> Detector<Cpu> {
    let (manifest, bytes) = model(id, Role::Detector, family);
    Detector::load(backend, manifest, bytes).unwrap()
}

fn backend() -> Arc<Cpu> {
    Arc::new(Cpu::new(2))
}

fn faces(
    backend: &Cpu,
    detector: &mut Detector<Cpu>,
    name: &str,
    options: &Options,
) -> (<Cpu as Backend>::Picture, Vec<Face>) {
    let picture = backend.adopt(picture(name)).unwrap();
    let clock = SystemClock::start();
    let mut meter = Meter::new(&clock);
    let found = detector.detect(backend, &picture, options, &mut meter).unwrap();
    (picture, found)
}

fn assert_near(face: &Face, rect: [f32; 4], score: f32, points: [[f32; 2]; 5]) {
    let r = face.rect;
    for (got, want) in [r.x0, r.y0, r.x1, r.y1].into_iter().zip(rect) {
        assert!((got - want).abs() <= 0.5, "{got} {want}");
    }
    assert!((face.score - score).abs() < 0.02, "{} {score}", face.score);
    for (got, want) in face.landmarks.points().iter().zip(points) {
        assert!(
            (got.x - want[0]).abs() <= 0.5 && (got.y - want[1]).abs() <= 0.5,
            "{got:?} {want:?}"
        );
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_golden_face_is_found_within_half_a_pixel() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    let options = Options { score: 0.3, ..Options::default() };
    let (_, found) = faces(&backend, &mut detector, "astronaut.png", &options);
    assert_eq!(found.len(), 1);
    let points = [
        [203.153_88, 101.679_47],
        [247.007_17, 104.513_79],
        [223.264_91, 125.075_76],
        [203.377_9, 142.327_21],
        [241.334_88, 144.418_8],
    ];
    assert_near(&found[0], [181.529_82, 58.202_01, 269.882_7, 177.811_1], 0.929_106, points);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_stretched_picture_gives_the_golden_face_too() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    let mut big = Rgb::filled(Size::new(1280, 720), [0; 3]);
    resize(picture("astronaut.png").view(), &mut big.view_mut());
    let big = backend.adopt(big).unwrap();
    let fit = Fit::Stretch(Size::new(640, 360));
    let options = Options { score: 0.3, fit, ..Options::default() };
    let clock = SystemClock::start();
    let found = detector.detect(&*backend, &big, &options, &mut Meter::new(&clock)).unwrap();
    assert_eq!(found.len(), 1);
    let points = [
        [519.170_53, 129.655_62],
        [619.770_94, 139.373_05],
        [560.547_7, 182.923_08],
        [522.318, 210.618_15],
        [603.304, 218.547_67],
    ];
    assert_near(&found[0], [462.632_7, 53.846_97, 680.355_2, 267.981_54], 0.875_912, points);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn every_face_of_the_groups_is_found_and_no_other() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    // At the score of privacy every face is found as well; a cover too many does no harm.
    for (score, extra) in [(0.5, 0), (0.2, 1)] {
        let options = Options { score, ..Options::default() };
        let mut count = BTreeMap::new();
        for (name, present) in [
            ("sample1.jpg", 3),
            ("sample2.jpg", 3),
            ("sample3.jpg", 3),
            ("sample4.jpg", 4),
            ("sample5.jpg", 5),
            ("sample6.jpg", 4),
            ("solvay.png", 29),
        ] {
            let (_, found) = faces(&backend, &mut detector, name, &options);
            let scores: Vec<f32> = found.iter().map(|f| f.score).collect();
            println!("{score} {name}: {} of {present}, {scores:.2?}", found.len());
            count.insert(name, (found.len(), present));
        }
        let fine = |&(found, present)| (present..=present + extra).contains(&found);
        assert!(count.values().all(fine), "{score}: {count:?}");
    }
}

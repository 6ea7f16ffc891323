//! The stages on real models and pictures. `tests/run` sets MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod real;

use std::collections::BTreeMap;

use mien_base::clock::{SystemClock, Wall};
use mien_base::model::{Family, Role};
use mien_base::recipe::Recipe;
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;
use mien_face::detect::{Detector, Fit, Options};
use mien_face::embed::Embedder;
use mien_face::enrol::enrol;
use mien_face::landmarks::Landmarker;
use mien_face::meter::Meter;
use mien_face::subject::Face;
use mien_pixels::geometry::Size;
use mien_pixels::resize::resize;
use mien_pixels::view::Rgb;
use real::{backend, model, models, picture};

fn detector(backend: &Cpu, id: &str, family: Family) -> Detector<Cpu> {
    let (manifest, bytes) = model(id, Role::Detector, family);
    Detector::load(backend, manifest, &bytes).unwrap()
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
    // Where privacy depends on it every face is found as well; a cover too many does no harm.
    for (score, thorough, extra) in [(0.5, false, 0), (0.2, false, 1), (0.2, true, 2)] {
        let options = Options { score, thorough, ..Options::default() };
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
            println!("{score} {thorough} {name}: {} of {present}, {scores:.2?}", found.len());
            count.insert(name, (found.len(), present));
        }
        let fine = |&(found, present)| (present..=present + extra).contains(&found);
        assert!(count.values().all(fine), "{score}: {count:?}");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn portraits_are_enrolled_and_groups_are_not() {
    let mut models = models();
    let clock = SystemClock::start();
    let how = Recipe::default().detect;
    for name in ["astronaut.png", "hopper.jpg"] {
        let identity = "somebody".parse().unwrap();
        let mut meter = Meter::new(&clock);
        let (record, portrait) =
            enrol(&mut models, identity, &how, picture(name), Wall(1), &mut meter).unwrap();
        println!("{name} {:?} {portrait:?} {:?}", record.quality, meter.into_stages());
        assert_eq!((record.mesh.len(), record.embedding.len()), (468, 192));
        // Enrolled again from its own portrait it is the same person in the same place.
        let identity = "somebody".parse().unwrap();
        let mut meter = Meter::new(&clock);
        let (again, _) = enrol(&mut models, identity, &how, portrait, Wall(1), &mut meter).unwrap();
        let cosine: f32 = record.embedding.iter().zip(&again.embedding).map(|(a, b)| a * b).sum();
        assert!(cosine > 0.95, "{name}: {cosine}");
    }
    let identity = "somebody".parse().unwrap();
    let mut meter = Meter::new(&clock);
    let group = enrol(&mut models, identity, &how, picture("sample1.jpg"), Wall(1), &mut meter);
    assert!(group.unwrap_err().to_string().contains("3 faces"));
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn small_detectors_find_a_portrait_and_the_mesh_agrees() {
    let backend = backend();
    let (manifest, bytes) = model("facemesh468", Role::Landmarks, Family::FaceMesh);
    let mut landmarks = Landmarker::load(&*backend, manifest, &bytes).unwrap();
    let clock = SystemClock::start();
    let mut five = Vec::new();
    for (id, family) in [
        ("centerface", Family::CenterFace),
        ("blazeface_back256", Family::BlazeBack),
        ("blazeface_short128", Family::BlazeShort),
    ] {
        let mut detector = detector(&backend, id, family);
        let (picture, found) = faces(&backend, &mut detector, "astronaut.png", &Options::default());
        assert_eq!(found.len(), 1, "{id}");
        let mesh = landmarks.find(&*backend, &picture, &found[0], &mut Meter::new(&clock)).unwrap();
        five.push((id, mesh.five()));
    }
    for (id, points) in &five[1..] {
        for (p, q) in points.points().iter().zip(five[0].1.points()) {
            // 4 % of the distance between the eyes.
            assert!(p.distance(*q) < 1.8, "{id}: {p:?} {q:?}");
        }
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_turned_picture_is_tried_at_other_angles() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    let clock = SystemClock::start();
    let upright = picture("astronaut.png");
    let side = upright.size().width;
    // Turned clockwise: what stood at (x, y) stands at (side - 1 - y, x).
    let mut turned = Rgb::filled(upright.size(), [0; 3]);
    for y in 0..side {
        for x in 0..side {
            let at = ((x * side + side - 1 - y) * 3) as usize;
            turned.bytes_all_mut()[at..at + 3].copy_from_slice(&upright.view().pixel(x, y));
        }
    }
    let turned = backend.adopt(turned).unwrap();
    // Only the right angle gives the score of the upright picture.
    let unasked = Options { score: 0.92, ..Options::default() };
    let asked = Options { angles: vec![0, 90, 180, 270], ..Options::default() };
    for options in [&unasked, &asked] {
        let found = detector.detect(&*backend, &turned, options, &mut Meter::new(&clock)).unwrap();
        assert_eq!(found.len(), 1);
        let eye = found[0].landmarks.points()[0];
        let (x, y) = (side as f32 - 101.68, 203.15);
        assert!((eye.x - x).abs() < 1.0 && (eye.y - y).abs() < 1.0, "{eye:?} is not at {x}, {y}");
    }
    let only = Options { angles: vec![0], ..unasked };
    let none = detector.detect(&*backend, &turned, &only, &mut Meter::new(&clock)).unwrap();
    assert!(none.is_empty(), "then the test proves nothing");
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn centre_crops_and_both_sizes_give_one_face() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    let clock = SystemClock::start();
    let whole = picture("hopper.jpg");
    for percent in [100, 80, 70, 60] {
        for size in [320, 640] {
            let Size { width, height } = whole.size();
            let (w, h) = (width * percent / 100, height * percent / 100);
            let roi = mien_pixels::geometry::Roi {
                x: (width - w) / 2,
                y: (height - h) / 8,
                width: w,
                height: h,
            };
            let crop = backend.adopt(whole.view().crop(roi).to_image()).unwrap();
            let options = Options { size: Some(size), ..Options::default() };
            let found =
                detector.detect(&*backend, &crop, &options, &mut Meter::new(&clock)).unwrap();
            assert_eq!(found.len(), 1, "{percent} % at {size}");
        }
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn no_two_people_of_the_groups_are_taken_for_one() {
    let backend = backend();
    let mut detector = detector(&backend, "centerface", Family::CenterFace);
    let (manifest, bytes) = model("facemesh468", Role::Landmarks, Family::FaceMesh);
    let mut landmarks = Landmarker::load(&*backend, manifest, &bytes).unwrap();
    let (manifest, bytes) = model("mobilefacenet192", Role::Embedder, Family::ArcFace);
    let mut embedder = Embedder::load(&*backend, manifest, &bytes).unwrap();
    let clock = SystemClock::start();
    let mut meter = Meter::new(&clock);
    for name in ["sample1.jpg", "sample4.jpg", "sample5.jpg", "sample6.jpg", "solvay.png"] {
        let (picture, found) = faces(&backend, &mut detector, name, &Options::default());
        let mut gallery = mien_face::gallery::Gallery::default();
        for (i, face) in found.iter().enumerate() {
            let five = landmarks.find(&*backend, &picture, face, &mut meter).unwrap().five();
            let embedding = embedder.embed(&*backend, &picture, &five, &mut meter).unwrap();
            let least = mien_face::gallery::least(face.side());
            let who = gallery.recognise(&embedding, least);
            assert_eq!(who, mien_face::gallery::Match::Stranger, "{name}: face {i}");
            gallery.add(format!("face-{i}").parse().unwrap(), embedding);
        }
    }
}

//! Swaps and covers on real faces, judged by an embedder that is no part of them. `tests/run`
//! sets MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod real;

use mien_base::clock::SystemClock;
use mien_base::model::{Family, Role};
use mien_base::recipe::{Anonymise, Mask};
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;
use mien_face::anonymise::{self, Overlay};
use mien_face::detect::{Detector, Options};
use mien_face::judge::{self, Descriptor, Judge};
use mien_face::landmarks::Landmarker;
use mien_face::mask::Region;
use mien_face::meter::Meter;
use mien_face::subject::{Face, Landmarks5, Mesh};
use mien_face::swap::mesh;
use mien_face::swap::texture::Texture;
use mien_pixels::geometry::{Point, Rect, Roi, Size};
use mien_pixels::resize::resize;
use mien_pixels::view::Rgb;

/// One real face in its surroundings.
struct Subject {
    name: String,
    picture: Rgb,
    face: Face,
    mesh: Mesh,
}

struct Bench {
    backend: std::sync::Arc<Cpu>,
    clock: SystemClock,
    detector: Detector<Cpu>,
    landmarker: Landmarker<Cpu>,
    judge: Judge<Cpu>,
}

fn mask() -> Mask {
    Mask { kinds: Vec::new(), scale: 1.3, padding: [0.0; 4], blur: 0.3 }
}

impl Bench {
    fn new() -> Self {
        let backend = real::backend();
        let (manifest, bytes) = real::model("centerface", Role::Detector, Family::CenterFace);
        let detector = Detector::load(&*backend, manifest, &bytes).unwrap();
        let (manifest, bytes) = real::model("facemesh468", Role::Landmarks, Family::FaceMesh);
        let landmarker = Landmarker::load(&*backend, manifest, &bytes).unwrap();
        let (manifest, bytes) = real::model("dlib_resnet128", Role::Judge, Family::DlibResNet);
        let judge = Judge::load(&*backend, manifest, &bytes).unwrap();
        Self { backend, clock: SystemClock::start(), detector, landmarker, judge }
    }

    fn faces(&mut self, picture: &Rgb) -> Vec<Face> {
        let held = self.backend.adopt(picture.clone()).unwrap();
        let mut meter = Meter::new(&self.clock);
        let options = Options::default();
        let mut faces = self.detector.detect(&self.backend, &held, &options, &mut meter).unwrap();
        faces.retain(|f| f.score > 0.5);
        faces.sort_by(|a, b| a.rect.x0.total_cmp(&b.rect.x0));
        faces
    }

    fn subjects(&mut self, file: &str) -> Vec<Subject> {
        let picture = real::picture(file);
        let faces = self.faces(&picture);
        let held = self.backend.adopt(picture.clone()).unwrap();
        let mut out = Vec::new();
        for (i, face) in faces.into_iter().enumerate() {
            let mut meter = Meter::new(&self.clock);
            let mesh = self.landmarker.find(&self.backend, &held, &face, &mut meter).unwrap();
            out.push(Subject { name: format!("{file} {i}"), picture: picture.clone(), face, mesh });
        }
        out
    }

    fn describe(&mut self, picture: &Rgb, points: &Landmarks5) -> Descriptor {
        let held = self.backend.adopt(picture.clone()).unwrap();
        let mut meter = Meter::new(&self.clock);
        self.judge.describe(&self.backend, &held, points, &mut meter).unwrap()
    }

    fn swapped(&self, source: &Subject, target: &Subject) -> Rgb {
        let backend = &*self.backend;
        let portrait = backend.adopt(source.picture.clone()).unwrap();
        let texture = Texture::bake(backend, &portrait, &source.mesh).unwrap();
        let mut picture = backend.adopt(target.picture.clone()).unwrap();
        let mask = mask();
        let region = Region { mask: &mask, mesh: Some(&target.mesh), person: None };
        mesh::apply(backend, &mut picture, &target.face, &target.mesh, &texture, &region).unwrap();
        backend.release(picture).unwrap()
    }

    /// `None` when the face is one that is covered instead.
    fn covered(&self, subject: &Subject, how: &Anonymise) -> Option<Rgb> {
        let backend = &*self.backend;
        let mut picture = backend.adopt(subject.picture.clone()).unwrap();
        let mask = mask();
        let region = Region { mask: &mask, mesh: Some(&subject.mesh), person: None };
        let yellow = Rgb::filled(Size::new(64, 64), [250, 210, 60]);
        let overlay = Overlay::new(backend, yellow, None).unwrap();
        let face = &subject.face;
        anonymise::apply(backend, &mut picture, face, how, &region, Some(&overlay), 7).ok()?;
        Some(backend.release(picture).unwrap())
    }
}

/// The face and what is around it, scaled so that the face is about `width` pixels wide.
fn at_width(subject: &Subject, width: f32) -> Subject {
    let size = subject.picture.size();
    let around = subject.face.rect.scaled(3.0);
    let cut = Rect::new(around.x0.max(0.0), around.y0.max(0.0), around.x1, around.y1);
    let roi: Roi = cut.pixels(size).unwrap();
    let factor = width / subject.face.rect.width();
    let scaled = |v: u32| ((v as f32 * factor).round() as u32).max(8);
    let to = Size::new(scaled(roi.width), scaled(roi.height));
    let mut picture = Rgb::filled(to, [0; 3]);
    resize(subject.picture.view().crop(roi), &mut picture.view_mut());
    let (kx, ky) = (to.width as f32 / roi.width as f32, to.height as f32 / roi.height as f32);
    let place = |x: f32, y: f32| {
        Point::new((x - roi.x as f32 + 0.5) * kx - 0.5, (y - roi.y as f32 + 0.5) * ky - 0.5)
    };
    let r = subject.face.rect;
    let (a, b) = (place(r.x0, r.y0), place(r.x1, r.y1));
    let landmarks = subject.face.landmarks.points().map(|p| place(p.x, p.y));
    let mesh = subject.mesh.points().iter().map(|p| {
        let q = place(p[0], p[1]);
        [q.x, q.y, p[2] * kx]
    });
    Subject {
        name: format!("{} at {width}", subject.name),
        picture,
        face: Face {
            rect: Rect::new(a.x, a.y, b.x, b.y),
            score: subject.face.score,
            landmarks: Landmarks5::new(landmarks).unwrap(),
        },
        mesh: Mesh::new(mesh.collect()).unwrap(),
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn twelve_swaps_are_nearer_to_their_source_and_are_taken_for_it() {
    let mut bench = Bench::new();
    let mut subjects = Vec::new();
    for (file, which) in [
        ("astronaut.png", 0),
        ("hopper.jpg", 0),
        ("carphone.png", 0),
        ("sample1.jpg", 0),
        ("sample3.jpg", 1),
    ] {
        subjects.push(bench.subjects(file).swap_remove(which));
    }
    let (mut count, mut sum) = (0, 0.0);
    for source in 0..3 {
        for target in 0..5 {
            if source == target {
                continue;
            }
            let (s, t) = (&subjects[source], &subjects[target]);
            let out = bench.swapped(s, t);
            let near = |f: &Face| f.rect.iou(&t.face.rect);
            let again = bench.faces(&out);
            let found = again.iter().max_by(|a, b| near(a).total_cmp(&near(b))).unwrap();
            assert!(near(found) > 0.5, "{} on {}: no face is left", s.name, t.name);
            let points = found.landmarks;
            let made = bench.describe(&out, &points);
            let to_source = made.distance(&bench.describe(&s.picture, &s.face.landmarks));
            let to_target = made.distance(&bench.describe(&t.picture, &t.face.landmarks));
            println!("{} on {}: source {to_source:.3}, target {to_target:.3}", s.name, t.name);
            assert!(to_source < judge::SAME && to_source < to_target);
            count += 1;
            sum += to_source;
        }
    }
    println!("mean {:.3}", sum / count as f32);
    assert_eq!(count, 12);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn no_size_and_no_mode_leaves_a_face_that_is_known() {
    let mut bench = Bench::new();
    let mut subjects = Vec::new();
    for file in ["astronaut.png", "hopper.jpg", "carphone.png", "sample1.jpg", "sample4.jpg"] {
        subjects.extend(bench.subjects(file));
    }
    let gallery: Vec<Descriptor> =
        subjects.iter().map(|s| bench.describe(&s.picture, &s.face.landmarks)).collect();
    for how in [
        Anonymise::Solid { colour: [127; 3] },
        Anonymise::Mosaic { cells: 6 },
        Anonymise::Blur { sigma: anonymise::BLUR },
        Anonymise::Image,
        Anonymise::Synthetic { seed: 1 },
    ] {
        for width in [24.0, 60.0, 150.0, 400.0] {
            let (mut least, mut known) = (f32::MAX, 0);
            for (i, subject) in subjects.iter().enumerate() {
                let small = at_width(subject, width);
                let Some(out) = bench.covered(&small, &how) else { continue };
                let made = bench.describe(&out, &small.face.landmarks);
                let distances: Vec<f32> = gallery.iter().map(|g| made.distance(g)).collect();
                assert!(distances[i] > judge::SAME, "{how:?} {}: {}", small.name, distances[i]);
                least = least.min(distances[i]);
                let nearest =
                    (0..distances.len()).min_by(|a, b| distances[*a].total_cmp(&distances[*b]));
                known += usize::from(nearest == Some(i));
            }
            println!("{how:?} at {width}: least {least:.3}, {known} of {}", subjects.len());
            // Chance is one; four of ten would be no chance.
            assert!(known <= 3, "{how:?} at {width}: {known} of {} named", subjects.len());
        }
    }
}

//! The pipeline on real models, judged by an embedder that is no part of it. `tests/run` sets
//! MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod asked;
mod real;

use asked::{clock, recipe};
use mien_base::recipe::Recipe;
use mien_base::report::{FaceReport, PictureReport};
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;
use mien_face::judge::{self, Descriptor};
use mien_face::meter::Meter;
use mien_face::models::Models;
use mien_face::pipeline::process;
use mien_face::policy::Policy;
use mien_face::recipe::check;
use mien_face::subject::Landmarks5;
use mien_pixels::geometry::{Point, Size};
use mien_pixels::view::Rgb;
use real::{models, picture};

/// astronaut may be put on others and shown, hopper too.
fn policy(models: &mut Models<Cpu>) -> Policy<Cpu> {
    let sources = [("astronaut", picture("astronaut.png")), ("hopper", picture("hopper.jpg"))];
    asked::policy(models, &sources.each_ref().map(|(name, picture)| (*name, picture)))
}

fn run(
    models: &mut Models<Cpu>,
    policy: &Policy<Cpu>,
    picture: &Rgb,
    recipe: &Recipe,
) -> (Rgb, PictureReport) {
    let checked = check(recipe).unwrap();
    let (marked, report) =
        process(models, policy, &checked, picture.clone(), None, &clock()).unwrap();
    let backend = models.backend().clone();
    (backend.release(marked.into_parts().0).unwrap(), report)
}

fn describe(models: &mut Models<Cpu>, picture: &Rgb, points: [[f32; 2]; 5]) -> Descriptor {
    let backend = models.backend().clone();
    let picture = backend.adopt(picture.clone()).unwrap();
    let points = Landmarks5::new(points.map(|[x, y]| Point::new(x, y))).unwrap();
    let clock = clock();
    let judge = models.judge().unwrap();
    judge.describe(&backend, &picture, &points, &mut Meter::new(&clock)).unwrap()
}

/// What a low score finds beside faces is covered as well, but says nothing.
fn is_face(face: &&FaceReport) -> bool {
    face.score > 0.5
}

/// Pictures side by side, the lower ones on black.
fn beside(pictures: &[Rgb]) -> Rgb {
    let height = pictures.iter().map(|p| p.size().height).max().unwrap();
    let width = pictures.iter().map(|p| p.size().width).sum();
    let mut out = Rgb::filled(Size::new(width, height), [0; 3]);
    let mut x = 0;
    for picture in pictures {
        for y in 0..picture.size().height {
            let row = picture.view().row(y);
            out.view_mut().row_mut(y)[3 * x..3 * x + row.len()].copy_from_slice(row);
        }
        x += picture.size().width as usize;
    }
    out
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_judge_knows_nobody_who_was_anonymised() {
    let mut models = models();
    let policy = Policy::new(1);
    for name in ["astronaut.png", "hopper.jpg", "sample1.jpg", "sample5.jpg"] {
        let raw = picture(name);
        for action in ["solid", "mosaic:6", "blur:0.15"] {
            let (out, report) = run(&mut models, &policy, &raw, &recipe(action, &[]));
            // The attacker knows where each face was.
            for face in report.faces.iter().filter(is_face) {
                let before = describe(&mut models, &raw, face.landmarks);
                let after = describe(&mut models, &out, face.landmarks);
                let distance = before.distance(&after);
                assert!(distance > judge::SAME, "{name} {action}: {distance}");
            }
        }
    }
}

/// Faces 60 pixels high, among which the judge takes strangers for each other: who is who of them
/// must be a matter of chance, one in 29.
#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn of_a_group_the_judge_tells_nobody_apart() {
    let mut models = models();
    let policy = Policy::new(1);
    let raw = picture("solvay.png");
    for action in ["solid", "mosaic:6", "mosaic:4", "blur:0.15", "blur:0.25"] {
        let (out, report) = run(&mut models, &policy, &raw, &recipe(action, &[]));
        let faces: Vec<[[f32; 2]; 5]> =
            report.faces.iter().filter(is_face).map(|f| f.landmarks).collect();
        let gallery: Vec<Descriptor> =
            faces.iter().map(|f| describe(&mut models, &raw, *f)).collect();
        let mut known = 0;
        for (i, face) in faces.iter().enumerate() {
            let after = describe(&mut models, &out, *face);
            let nearest = (0..gallery.len()).min_by(|&a, &b| {
                after.distance(&gallery[a]).total_cmp(&after.distance(&gallery[b]))
            });
            known += usize::from(nearest == Some(i));
        }
        println!("{action}: {known} of {} named right", faces.len());
        assert!(known <= 3 && faces.len() == 29, "{action}: {known}");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn rules_swap_one_pass_another_and_hide_the_rest() {
    let mut models = models();
    let policy = policy(&mut models);
    let (astronaut, hopper) = (picture("astronaut.png"), picture("hopper.jpg"));
    let group = beside(&[astronaut, hopper, picture("sample2.jpg")]);
    let rules = recipe("solid", &[("astronaut", "swap:hopper"), ("hopper", "pass")]);
    let (out, report) = run(&mut models, &policy, &group, &rules);
    println!("{:#?}", report.stages);
    let find = |done: &str| report.faces.iter().filter(|f| f.done == done).collect::<Vec<_>>();
    let (swapped, passed, hidden) = (find("swap:hopper"), find("pass"), find("solid"));
    assert_eq!((swapped.len(), passed.len()), (1, 1), "{report:#?}");
    assert!(hidden.len() >= 3 && report.faces.len() == 2 + hidden.len());

    let source = describe(&mut models, &group, passed[0].landmarks);
    let target = describe(&mut models, &group, swapped[0].landmarks);
    let made = describe(&mut models, &out, swapped[0].landmarks);
    let (to_source, to_target) = (made.distance(&source), made.distance(&target));
    println!("swapped: {to_source:.2} to the source, {to_target:.2} to the target");
    assert!(to_source < judge::SAME && to_source < to_target, "{to_source} {to_target}");
    let shown = describe(&mut models, &out, passed[0].landmarks);
    assert!(shown.distance(&source) < 0.2, "who is passed stays who it is");
    for face in hidden.into_iter().filter(is_face) {
        let before = describe(&mut models, &group, face.landmarks);
        let after = describe(&mut models, &out, face.landmarks);
        assert!(before.distance(&after) > judge::SAME);
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_same_job_twice_gives_the_same_pixels() {
    let mut models = models();
    let policy = policy(&mut models);
    let raw = picture("astronaut.png");
    for action in ["swap:hopper", "mosaic:5"] {
        let (one, first) = run(&mut models, &policy, &raw, &recipe(action, &[]));
        let (two, second) = run(&mut models, &policy, &raw, &recipe(action, &[]));
        assert_eq!((first.faces, first.marks), (second.faces, second.marks));
        assert!(one == two, "{action}");
    }
}

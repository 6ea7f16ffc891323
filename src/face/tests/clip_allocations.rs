//! A frame in which no model runs allocates nothing once the clip is under way; what one with
//! models allocates is bounded and stated. `tests/run` sets MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod asked;
mod clips;
#[path = "../../../tests/support/counted.rs"]
mod counted;
mod real;

use std::collections::BTreeMap;
use std::time::Duration;

use mien_base::clock::{Clock, Mono, SystemClock, Wall};
use mien_base::recipe::Recipe;
use mien_engine::cpu::Cpu;
use mien_face::clip::{ClipRun, Frame, Shape, Tools};
use mien_face::models::Models;
use mien_face::policy::Policy;
use mien_face::recipe::check;
use mien_pixels::i420::I420;
use mien_pixels::made;

/// Frames until everything has found its size: each has been there once.
const WARM: u64 = 120;
const FRAMES: u64 = 300;

/// Time goes on, and every consent holds.
struct Held(SystemClock);

impl Clock for Held {
    fn mono(&self) -> Mono {
        self.0.mono()
    }
    fn wall(&self) -> Wall {
        Wall(150)
    }
    fn cpu(&self) -> Duration {
        self.0.cpu()
    }
}

/// What frames allocated on their way in and out, apart by whether a model ran meanwhile.
#[derive(Debug, Default)]
struct Spent {
    plain: BTreeMap<u64, u64>,
    models: BTreeMap<u64, u64>,
}

/// Runs frames to and fro, so that no scene ends.
fn run(models: &mut Models<Cpu>, policy: &Policy<Cpu>, recipe: &Recipe, frames: &[I420]) -> Spent {
    let clock = Held(SystemClock::start());
    let mut tools = Tools { models, policy, overlay: None, clock: &clock };
    let shape = Shape { size: frames[0].size(), rotation: 0, segment: clips::LONG };
    let mut clip = ClipRun::new(&mut tools, check(recipe).unwrap(), shape).unwrap();
    let (mut spent, mut faces) = (Spent::default(), 0);
    let mut pool: Vec<I420> = Vec::new();
    for number in 0..FRAMES {
        let far = frames.len() as u64 - 1;
        let at = if (number / far).is_multiple_of(2) { number % far } else { far - number % far };
        let mut image = pool.pop().unwrap_or_else(|| frames[0].clone());
        image.clone_from(&frames[at as usize]);
        let at = Duration::from_micros(number * 1_000_000 / u64::from(made::RATE));
        let (before, ran) = (counted::own(), clip.inference());
        clip.push(&mut tools, Frame { number, at, image }).unwrap();
        while let Some(done) = clip.next(&mut tools) {
            let (frame, report) = done.unwrap();
            faces += report.faces.len();
            pool.push(frame.image);
            clip.recycle(report);
        }
        let by = if clip.inference() == ran { &mut spent.plain } else { &mut spent.models };
        let count = counted::own() - before;
        if number >= WARM {
            by.insert(number, count);
        }
    }
    assert!(faces as u64 > FRAMES / 2, "{faces} faces were altered");
    spent
}

fn carphone() -> Vec<I420> {
    clips::carphone().iter().map(clips::planes).collect()
}

#[test]
#[ignore = "needs the models and ffmpeg: tests/run has both"]
fn a_frame_that_is_anonymised_allocates_nothing_but_for_models() {
    let (mut models, policy, frames) = (real::models(), Policy::new(1), carphone());
    for how in ["solid", "mosaic:5", "blur:0.3"] {
        let spent = run(&mut models, &policy, &asked::recipe(how, &[]), &frames);
        let most = spent.models.values().max().copied().unwrap_or(0);
        println!(
            "{how}: 0 in {} frames; models ran in {}, {most} at most",
            spent.plain.len(),
            spent.models.len()
        );
        let some: Vec<_> = spent.plain.iter().filter(|(_, count)| **count > 0).collect();
        assert!(some.is_empty() && spent.plain.len() > 60, "{how}: {some:?}");
        assert!(most <= 50, "{how}: {:?}", spent.models);
    }
}

#[test]
#[ignore = "needs the models and ffmpeg: tests/run has both"]
fn a_frame_that_is_swapped_allocates_little() {
    let (mut models, frames) = (real::models(), carphone());
    let source = real::picture("astronaut.png");
    let policy = asked::policy(&mut models, &[("astronaut", &source)]);
    let spent = run(&mut models, &policy, &asked::recipe("swap:astronaut", &[]), &frames);
    let most = spent.models.values().max().copied().unwrap_or(0);
    println!("swap: models ran in {} frames, {most} at most", spent.models.len());
    assert!(most <= 200, "{:?}", spent.models);
}

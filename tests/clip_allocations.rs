//! Frames of a clip go round in a pool: in steady state no stage of ours allocates for one.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/clips.rs"]
mod clips;
#[path = "support/counted.rs"]
mod counted;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use counted::counts;
use mien_base::clock::{SystemClock, Wall};
use mien_base::id::JobId;
use mien_base::model::Role;
use mien_base::recipe::{Detect, Recipe};
use mien_base::wire::clip::{Clip, ClipOutput, Container, Plan, Rate};
use mien_base::wire::fds::Received;
use mien_base::wire::{Event, Request};
use mien_engine::cpu::Cpu;
use mien_vault::models::ModelSource as _;
use mien_vault::{Home, ModelStore};
use mien_worker::clip::Stages;
use mien_worker::compute::Compute;
use mien_worker::link;
use mien_worker::meter::Pulse;
use support::Bench;

fn file(bytes: &[u8]) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::write(&fd, rest).unwrap();
        rest = &rest[n..];
    }
    fd
}

/// Works on clips of so many frames, one after the other, and says what each thread allocated for
/// each, and how often the detector ran.
fn work(
    bench: &Bench,
    lengths: &[u32],
    make: fn(u32) -> Vec<u8>,
) -> Vec<(BTreeMap<String, u64>, u64)> {
    let (outbox, events) = link::outbox().unwrap();
    let (requests, queue) = std::sync::mpsc::sync_channel(8);
    let pulse = Arc::new(Pulse::default());
    let (stages, _) = Stages::start(&pulse).unwrap();
    let compute = std::thread::Builder::new().name("compute".to_owned()).spawn(move || {
        Compute::new(Arc::new(Cpu::new(1)), outbox, pulse, stages, true).run(&queue);
    });
    let models = ModelStore::new(&Home::at(&bench.home()), Arc::new(SystemClock::start()));
    let fallback = Recipe::default();
    let recipe = Recipe {
        detect: Detect { size: Some(96), angles: vec![0], ..fallback.detect.clone() },
        ..fallback
    };
    let gate = models.by_role(Role::Gate).unwrap().unwrap();
    let detector = models.by_id(&recipe.detect.model).unwrap();
    for manifest in [gate, detector] {
        let fds = vec![models.open(&manifest).unwrap()];
        requests.send(Received { message: Request::Load(manifest), fds }).unwrap();
    }
    let mut all = Vec::new();
    for frames in lengths {
        let before = counts();
        let clip = Clip {
            job: JobId([1; 16]),
            recipe: recipe.clone(),
            write: ClipOutput { container: Container::Mp4, rate: Rate::AsInput, audio: true },
            range: None,
            wall: Wall(1_796_000_000),
            overlay: false,
            head: Vec::new(),
            plan: Plan::Segments { from: None },
        };
        let fds = vec![file(&make(*frames)), file(&[]), file(&[])];
        requests.send(Received { message: Request::Clip(Box::new(clip)), fds }).unwrap();
        let report = loop {
            match events.recv().unwrap() {
                Event::ClipDone { report, .. } => break report,
                Event::Failed { failure, .. } => panic!("{failure:?}"),
                Event::NotLoaded { failure, .. } => panic!("{failure:?}"),
                _ => {}
            }
        };
        assert_eq!(report.frames, u64::from(*frames));
        let mut spent = counts();
        spent.iter_mut().for_each(|(name, n)| *n -= before.get(name).copied().unwrap_or(0));
        all.push((spent, report.detected));
    }
    drop(requests);
    compute.unwrap().join().unwrap();
    all
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn no_stage_allocates_for_a_frame_but_for_models() {
    let bench = Bench::new("clip-allocations");
    for (name, make) in
        [("moving face", clips::wandering as fn(u32) -> Vec<u8>), ("still", clips::empty)]
    {
        // The first warms up; all have one segment and two GOPs.
        let [_, (short, looks), (long, more_looks)] =
            <[_; 3]>::try_from(work(&bench, &[100, 66, 116], make)).unwrap();
        let of = |thread: &str| {
            let (short, long) = (short.get(thread).copied(), long.get(thread).copied());
            long.unwrap_or(0) as i64 - short.unwrap_or(0) as i64
        };
        println!(
            "{name}: 50 frames more: decode {}, encode {}; compute {} in {} more looks",
            of("decode"),
            of("encode"),
            of("compute"),
            more_looks - looks
        );
        assert_eq!(of("decode"), 0, "{name}: {short:?} {long:?}");
        // The index of a longer segment is longer: that is once a segment, not once a frame.
        assert!(of("encode") <= 2, "{name}: {short:?} {long:?}");
        // Models give what they find in memory of its own, the gate once a second among them.
        let models = more_looks.saturating_sub(looks) + 2;
        assert!(of("compute") <= 50 * models as i64, "{name}: {short:?} {long:?}");
    }
}

//! Live frames go round in a pool: in steady state neither camera nor outputs allocate for one.

#![allow(unsafe_code)] // A global allocator can't be counted without.
#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/counted.rs"]
mod counted;
#[path = "support/scene.rs"]
mod scene;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use counted::counts;
use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::model::{Family, Manifest, Role};
use mien_base::recipe::{Detect, Recipe};
use mien_base::wire::fds::Received;
use mien_base::wire::live::{Camera, Live, Output, Patience};
use mien_base::wire::{Event, Request};
use mien_engine::cpu::Cpu;
use mien_worker::clip::Stages;
use mien_worker::compute::Compute;
use mien_worker::link;
use mien_worker::live::Threads;
use mien_worker::meter::Pulse;

/// Seconds that are counted, after one that is not.
const SECONDS: u64 = 3;

fn file(bytes: &[u8]) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::write(&fd, rest).unwrap();
        rest = &rest[n..];
    }
    fd
}

fn sealed(bytes: &[u8]) -> OwnedFd {
    let fd = file(bytes);
    mien_vault::memfd::seal(&fd).unwrap();
    fd
}

fn load(requests: &SyncSender<Received<Request>>, id: &str, role: Role, bytes: &[u8]) {
    let family = if role == Role::Gate { Family::OpenNsfw } else { Family::CenterFace };
    let manifest = Manifest {
        id: id.parse().unwrap(),
        role,
        family,
        sha256: mien_vault::digest::of(bytes),
        bytes: bytes.len() as u64,
        licence: "MIT".to_owned(),
        commercial: true,
    };
    requests.send(Received { message: Request::Load(manifest), fds: vec![sealed(bytes)] }).unwrap();
}

/// Runs the scene at so many frames a second: frames that left in the counted time, and what each
/// thread allocated in it.
fn run(
    requests: &SyncSender<Received<Request>>,
    events: &Receiver<Event>,
    pulse: &Pulse,
    fps: u32,
) -> (u64, BTreeMap<String, u64>) {
    let fallback = Recipe::default();
    let recipe = Recipe {
        detect: Detect {
            model: "made".parse().unwrap(),
            size: Some(320),
            angles: vec![0],
            ..fallback.detect.clone()
        },
        ..fallback
    };
    let live = Live {
        job: JobId([1; 16]),
        recipe,
        camera: Camera::Clip { millihertz: Some(fps * 1000) },
        patience: Patience::default(),
        outputs: vec![Output::Segments { millis: 600_000, bytes: 1 << 30, quality: 40 }],
        wall: Wall(1_796_000_000),
        overlay: false,
    };
    let fds = vec![file(&scene::clip(30)), file(&[]), file(&[])];
    requests.send(Received { message: Request::Live(Box::new(live)), fds }).unwrap();
    let (mut told, mut first, mut done) = (0, None, None);
    loop {
        match events.recv().unwrap() {
            Event::LiveStats { stats, .. } => {
                told += 1;
                if told == 3 {
                    first = Some((stats.left, counts()));
                } else if told == 3 + SECONDS {
                    done = Some((stats.left, counts()));
                    pulse.cancel();
                }
            }
            Event::LiveEnded { .. } => break,
            Event::Failed { failure, .. } | Event::NotLoaded { failure, .. } => {
                panic!("{failure:?}")
            }
            _ => {}
        }
    }
    let ((before, from), (after, to)) = (first.unwrap(), done.unwrap());
    let spent = to.into_iter().map(|(name, n)| {
        let n = n - from.get(&name).copied().unwrap_or(0);
        (name, n)
    });
    (after - before, spent.collect())
}

#[test]
fn camera_and_outputs_allocate_nothing_for_a_frame() {
    let (outbox, events) = link::outbox().unwrap();
    let (requests, queue) = std::sync::mpsc::sync_channel(8);
    let pulse = Arc::new(Pulse::default());
    let (stages, _) = Stages::start(&pulse).unwrap();
    let (threads, _) = Threads::start(&pulse).unwrap();
    let of_compute = Arc::clone(&pulse);
    let compute = std::thread::Builder::new().name("compute".to_owned()).spawn(move || {
        Compute::new(Arc::new(Cpu::new(1)), outbox, of_compute, stages, true)
            .with_live(threads)
            .run(&queue);
    });
    load(&requests, "made-gate", Role::Gate, &scene::gate());
    load(&requests, "made", Role::Detector, &scene::detector(0.0));
    run(&requests, &events, &pulse, 10);
    let (few, slow) = run(&requests, &events, &pulse, 6);
    let (many, quick) = run(&requests, &events, &pulse, 24);
    drop(requests);
    compute.unwrap().join().unwrap();
    assert!(many > few + 15, "{few} and {many} frames");
    let more = (many - few) as f64;
    for thread in ["capture", "compute", "look", "sink"] {
        let of = |spent: &BTreeMap<String, u64>| spent.get(thread).copied().unwrap_or(0);
        let each = (of(&quick) as f64 - of(&slow) as f64) / more;
        println!(
            "{thread}: {} for {few} frames, {} for {many}: {each:.2} a frame",
            of(&slow),
            of(&quick)
        );
    }
    for thread in ["capture", "sink"] {
        let of = |spent: &BTreeMap<String, u64>| spent.get(thread).copied().unwrap_or(0);
        // What is told once a second is told in both.
        let most = of(&slow) + (many - few) / 8;
        assert!(of(&quick) <= most, "{thread}: {slow:?} {quick:?}");
    }
    // Masks, tracks and reports of three faces, and a detector's outputs, still do: no more.
    for thread in ["compute", "look"] {
        let of = |spent: &BTreeMap<String, u64>| spent.get(thread).copied().unwrap_or(0);
        assert!(of(&quick) <= 60 * many, "{thread}: {slow:?} {quick:?}");
    }
}

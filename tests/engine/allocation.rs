//! A run of our engine asks for no memory once its shapes have been seen.

#![allow(unsafe_code, clippy::unwrap_used)] // A counting allocator; helpers only serve the test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mien_engine::made::{Attribute, Model};
use mien_nn::{Input, Memory, Network, Output, Team};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as asked.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One of everything that a detector has, and its tail.
fn model() -> Vec<u8> {
    let attributes = |kernel: &'static [i64], pads: &'static [i64], group: i64| {
        [
            Attribute::Ints("kernel_shape", kernel),
            Attribute::Ints("strides", &[1, 1]),
            Attribute::Ints("dilations", &[1, 1]),
            Attribute::Ints("pads", pads),
            Attribute::Int("group", group),
        ]
    };
    let (point, three) = (attributes(&[1, 1], &[0; 4], 1), attributes(&[3, 3], &[1; 4], 1));
    let each = attributes(&[3, 3], &[1; 4], 32);
    Model::new()
        .input("x", &[1, 3, 0, 0])
        .weight("w1", &[16, 3, 3, 3], &[0.1; 16 * 27])
        .weight("w2", &[32, 16, 1, 1], &[0.1; 32 * 16])
        .weight("w3", &[32, 1, 3, 3], &[0.1; 32 * 9])
        .weight("w4", &[16, 32, 1, 1], &[0.1; 16 * 32])
        .integers("shape", &[1, -1, 4])
        .node("Conv", &["x", "w1"], &["a"], &three)
        .node("Relu", &["a"], &["b"], &[])
        .node("Conv", &["b", "w2"], &["c"], &point)
        .node("Relu", &["c"], &["d"], &[])
        .node("Conv", &["d", "w3"], &["e"], &each)
        .node("Conv", &["e", "w4"], &["f"], &point)
        .node("Add", &["b", "f"], &["g"], &[])
        .node("Concat", &["g", "b"], &["h"], &[Attribute::Int("axis", 1)])
        .node("Sigmoid", &["h"], &["i"], &[])
        .node("GlobalAveragePool", &["i"], &["j"], &[])
        .node("Mul", &["i", "j"], &["k"], &[])
        .node("Transpose", &["k"], &["l"], &[Attribute::Ints("perm", &[0, 2, 3, 1])])
        .node("Reshape", &["l", "shape"], &["m"], &[])
        .node("Softmax", &["m"], &["y"], &[Attribute::Int("axis", 2)])
        .output("y", &[])
        .bytes()
}

#[test]
fn a_run_allocates_nothing_once_its_shapes_were_seen() {
    let mut network = Network::compile(&model(), &[0]).unwrap();
    let values = vec![0.5; 3 * 96 * 80];
    let shapes = [[1, 3, 96, 80], [1, 3, 40, 80]];
    for threads in [1, 3] {
        let team = Team::new(threads);
        let (mut memory, mut out) = (Memory::default(), [Output::default()]);
        let mut run = |shape: &[usize; 4]| {
            let values = &values[..shape.iter().product()];
            let before = CALLS.load(Relaxed);
            network.run(&team, &mut memory, &[Input { shape, values }], &mut out).unwrap();
            CALLS.load(Relaxed) - before
        };
        assert!(shapes.iter().map(&mut run).sum::<usize>() > 0, "the first runs plan");
        // The harness may ask for memory meanwhile, but not in every run.
        let least = (0..20).map(|_| shapes.iter().map(&mut run).sum::<usize>()).min();
        assert_eq!(least, Some(0), "{threads} threads");
    }
}

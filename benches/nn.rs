//! Our engine against rten, model by model in one run: processor time, memory, load and the largest
//! difference. `MIEN_MODELS=folder cargo bench -p mien-engine --bench nn [-- part of a name]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]
#![allow(unsafe_code)] // A counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use mien_nn::{Input, Memory, Network, Output, Team};
use rten_tensor::{AsView as _, Layout as _, TensorView};

/// Counts what is held, its peak, and how often it was asked.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as asked.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// File, shapes of the inputs, number of outputs.
const MODELS: [(&str, &[&[usize]], usize); 11] = [
    ("centerface", &[&[1, 3, 640, 640]], 4),
    ("centerface", &[&[1, 3, 320, 320]], 4),
    ("facemesh468", &[&[1, 3, 192, 192]], 2),
    ("mobilefacenet192", &[&[1, 3, 112, 112]], 1),
    ("open_nsfw", &[&[1, 224, 224, 3]], 1),
    ("selfie256", &[&[1, 3, 256, 256]], 1),
    ("blazeface_back256", &[&[1, 3, 256, 256]], 2),
    ("blazeface_short128", &[&[1, 3, 128, 128]], 2),
    ("dlib_resnet128", &[&[1, 150, 150, 3]], 1),
    ("nsfwjs_mobilenet_v2", &[&[1, 224, 224, 3]], 1),
    ("swapper-bench", &[&[1, 3, 128, 128], &[1, 512]], 1),
];

/// Milliseconds of processor time that all threads have used: the machine may be busy.
fn used() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and `time` is there to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Least milliseconds of processor time of several calls, bytes at the peak of one, and how often
/// one asks for memory.
fn least(mut work: impl FnMut()) -> (f64, usize, usize) {
    work();
    PEAK.store(HELD.load(Relaxed), Relaxed);
    let (held, calls) = (HELD.load(Relaxed), CALLS.load(Relaxed));
    work();
    let (peak, calls) = (PEAK.load(Relaxed) - held, CALLS.load(Relaxed) - calls);
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    for round in 0.. {
        let start = used();
        work();
        best = best.min(used() - start);
        if round >= 4 && begin.elapsed().as_millis() > 900 {
            break;
        }
    }
    (best, peak, calls)
}

fn main() {
    let folder = std::path::PathBuf::from(std::env::var_os("MIEN_MODELS").expect("MIEN_MODELS"));
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    println!("processor time; one thread where THREADS says nothing; MiB beside the weights");
    println!(
        "{:<24} {:>9} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9}",
        "",
        "ours ms",
        "rten ms",
        "ratio",
        "ours MiB",
        "rten MiB",
        "load ms",
        "rten ms",
        "allocs",
        "rel. diff"
    );
    for (name, shapes, outputs) in MODELS.iter().filter(|(name, ..)| name.contains(&wanted)) {
        let Ok(bytes) = std::fs::read(folder.join(format!("{name}.onnx"))) else { continue };
        let data: Vec<Vec<f32>> = shapes
            .iter()
            .map(|s| {
                (0..s.iter().product()).map(|i: usize| (i * 7919 % 509) as f32 / 509.0).collect()
            })
            .collect();
        let team = Team::new(threads);
        let start = used();
        let every: Vec<usize> = (0..*outputs).collect();
        let mut network = match Network::compile(&bytes, &every) {
            Ok(network) => network,
            Err(error) => {
                println!("{name:<24} {error}");
                continue;
            }
        };
        let load = used() - start;
        let inputs: Vec<Input<'_>> =
            shapes.iter().zip(&data).map(|(shape, values)| Input { shape, values }).collect();
        let (mut memory, mut out) = (Memory::default(), vec![Output::default(); *outputs]);
        if let Err(error) = network.run(&team, &mut memory, &inputs, &mut out) {
            println!("{name:<24} {error}");
            continue;
        }
        let (ours, _, calls) =
            least(|| network.run(&team, &mut memory, &inputs, &mut out).unwrap());

        let start = used();
        let model = rten::ModelOptions::with_all_ops().load(bytes).unwrap();
        let rten_load = used() - start;
        let pool = Arc::new(rten::ThreadPool::with_num_threads(threads));
        let nodes = model.output_ids().to_vec();
        let mut theirs = Vec::new();
        let (rten, rten_memory, _) = least(|| {
            let given = model.input_ids().iter().zip(&inputs).map(|(id, input)| {
                (*id, rten::ValueOrView::from(TensorView::from_data(input.shape, input.values)))
            });
            let options = rten::RunOptions::default().with_thread_pool(Some(Arc::clone(&pool)));
            theirs = model.run(given.collect(), &nodes, Some(options)).unwrap();
        });
        let mut worst = 0.0_f32;
        for (ours, theirs) in out.iter().zip(&theirs) {
            let rten::Value::FloatTensor(theirs) = theirs else { continue };
            assert_eq!(theirs.shape(), &ours.shape[..], "{name}");
            let most = theirs.iter().fold(1e-6_f32, |m, v| m.max(v.abs()));
            for (a, b) in ours.values.iter().zip(theirs.iter()) {
                worst = worst.max((a - b).abs() / most);
            }
        }
        let mib = |bytes: usize| bytes as f64 / 1048576.0;
        println!(
            "{:<24} {ours:>9.2} {rten:>9.2} {:>6.2}x {:>8.1} {:>8.1} {load:>8.1} {rten_load:>8.1} {calls:>7} {worst:>9.1e}",
            format!("{name} {}", shapes[0][2]),
            rten / ours,
            mib(memory.bytes()),
            mib(rten_memory),
        );
    }
}

//! A worker whose detector fails as detectors do: late, dead, hung, with numbers that are none. A test
//! double of the backend: everything else is the real worker, in its real sandbox.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mien_base::model::{Manifest, Role};
use mien_engine::backend::{Backend, Cover, Likeness, MeshWarp, Normalise, Session, Shape, Tone};
use mien_engine::contract::{Contract, Port};
use mien_engine::cpu::Cpu;
use mien_engine::tensor::Tensor;
use mien_engine::{Error, Result};
use mien_pixels::geometry::{Affine2, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

/// Longer than a frame waits for its look, and than masks are held.
const LATE: Duration = Duration::from_millis(400);
const VERY_LATE: Duration = Duration::from_millis(1800);
/// Longer than anybody waits.
const HUNG: Duration = Duration::from_secs(60);

/// What a look meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    Late,
    VeryLate,
    Error,
    Dead,
    NotFinite,
    Hung,
}

/// What the look of this number meets in a worker of this seed.
pub fn fault(look: u64, seed: u64) -> Fault {
    match look {
        n if n % 37 == 20 => Fault::Late,
        n if n % 53 == 30 => Fault::Error,
        n if n % 61 == 40 => Fault::Dead,
        n if n % 71 == 50 => Fault::NotFinite,
        n if n % 149 == 100 => Fault::VeryLate,
        // One worker in three: the pipeline must not wait for it.
        n if n == 165 && seed.is_multiple_of(3) => Fault::Hung,
        _ => Fault::None,
    }
}

/// The CPU with a detector that fails; or with one that is made of whole numbers, for emulators in
/// which floats are some hundred times slower.
#[derive(Debug)]
pub struct Faulty {
    cpu: Cpu,
    whole: bool,
    looks: &'static AtomicU64,
    seed: u64,
}

static LOOKS: AtomicU64 = AtomicU64::new(0);

impl Faulty {
    pub fn new(threads: usize) -> Self {
        let seed = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs().into();
        Self { cpu: Cpu::new(threads), whole: false, looks: &LOOKS, seed }
    }

    /// Without faults, and with a detector of whole numbers.
    pub fn whole(threads: usize) -> Self {
        Self { whole: true, ..Self::new(threads) }
    }

    /// As `Backend::letterbox`, by the nearest pixel.
    fn nearest(&self, picture: &Picture, canvas: Size, fit: Size) -> Result<Held> {
        let rgb = self.cpu.release(self.cpu.duplicate(picture)?)?;
        let (size, plane) = (rgb.size(), canvas.pixels() as usize);
        let mut data = vec![0.0; 3 * plane];
        for y in 0..fit.height {
            for x in 0..fit.width {
                let (from_x, from_y) = (x * size.width / fit.width, y * size.height / fit.height);
                let pixel = rgb.view().pixel(from_x, from_y);
                let at = (y * canvas.width + x) as usize;
                pixel.iter().enumerate().for_each(|(c, v)| data[c * plane + at] = f32::from(*v));
            }
        }
        let shape = vec![1, 3, canvas.height as usize, canvas.width as usize];
        self.cpu.upload(Tensor { shape, data })
    }
}

pub struct Model {
    inner: <Cpu as Backend>::Session,
    is_detector: bool,
    whole: bool,
    looks: &'static AtomicU64,
    seed: u64,
}

/// What the made detector answers, of the pixel in the middle of each cell.
fn look(input: &Tensor) -> Vec<Tensor> {
    let (h, w) = (input.shape[2], input.shape[3]);
    let (rows, columns) = (h / 4, w / 4);
    let planes = |n: usize, values: &[f32]| {
        let data = (0..n).flat_map(|c| vec![values[c]; rows * columns]).collect();
        Tensor { shape: vec![1, n, rows, columns], data }
    };
    let mut heat = planes(1, &[0.01]);
    for row in 0..rows {
        for column in 0..columns {
            let at = |c: usize| input.data[(c * h + 4 * row + 2) * w + 4 * column + 2] as i32;
            if at(0) + at(2) - 2 * at(1) > 300 {
                heat.data[row * columns + column] = 0.95;
            }
        }
    }
    // Faces of a quarter of the width of 320, at whatever size they are looked at.
    let side = (w as f32 / 20.0).ln();
    let points = [0.4, 0.3, 0.4, 0.7, 0.55, 0.5, 0.75, 0.35, 0.75, 0.65];
    vec![heat, planes(2, &[side, side]), planes(2, &[0.0, 0.0]), planes(10, &points)]
}

impl Session for Model {
    type Tensor = <Cpu as Backend>::Tensor;

    fn run(&mut self, inputs: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>> {
        if !self.is_detector {
            return self.inner.run(inputs);
        }
        if self.whole {
            return Ok(look(inputs[0]));
        }
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        match fault(look, self.seed) {
            Fault::Late => std::thread::sleep(LATE),
            Fault::VeryLate => std::thread::sleep(VERY_LATE),
            Fault::Hung => std::thread::sleep(HUNG),
            Fault::Error => {
                return Err(Error::Run { model: "made".into(), detail: "injected".into() });
            }
            Fault::Dead => panic!("injected"),
            Fault::NotFinite => {
                return Err(Error::NotFinite { model: "made".into(), output: "heat".into() });
            }
            Fault::None => {}
        }
        self.inner.run(inputs)
    }

    fn inputs(&self) -> &[Port] {
        self.inner.inputs()
    }

    fn outputs(&self) -> &[Port] {
        self.inner.outputs()
    }
}

type Picture = <Cpu as Backend>::Picture;
type Alpha = <Cpu as Backend>::Alpha;
type Held = <Cpu as Backend>::Tensor;

/// Goes to the CPU as it is.
macro_rules! same {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $out { self.cpu.$name($($arg),*) })*
    };
}

impl Backend for Faulty {
    type Picture = Picture;
    type Tensor = Held;
    type Alpha = Alpha;
    type Session = Model;

    fn load(&self, manifest: &Manifest, contract: &Contract, bytes: &[u8]) -> Result<Model> {
        let inner = self.cpu.load(manifest, contract, bytes)?;
        let is_detector = manifest.role == Role::Detector;
        let whole = self.whole;
        Ok(Model { inner, is_detector, whole, looks: self.looks, seed: self.seed })
    }

    fn letterbox(&self, p: &Picture, canvas: Size, fit: Size, n: &Normalise) -> Result<Held> {
        if self.whole {
            self.nearest(p, canvas, fit)
        } else {
            self.cpu.letterbox(p, canvas, fit, n)
        }
    }

    same! {
        name() -> &'static str;
        adopt(image: Rgb) -> Result<Picture>;
        release(picture: Picture) -> Result<Rgb>;
        duplicate(picture: &Picture) -> Result<Picture>;
        size(picture: &Picture) -> Size;
        upload(tensor: Tensor) -> Result<Held>;
        download(tensor: &Held) -> Result<Tensor>;
        crop_batch(p: &Picture, m: &[Affine2], s: Size, n: &Normalise) -> Result<Held>;
        crop(picture: &Picture, map: &Affine2, size: Size) -> Result<Picture>;
        to_picture(tensor: &Held, scale: f32, offset: f32) -> Result<Picture>;
        polyphase_split(tensor: &Held, k: usize) -> Result<Held>;
        polyphase_join(tensor: &Held, k: usize) -> Result<Held>;
        warp_mesh(source: &Picture, warp: &MeshWarp<'_>) -> Result<(Picture, Alpha)>;
        mask(shapes: &[Shape<&Held>], roi: Roi) -> Result<Alpha>;
        meet(alpha: &mut Alpha, other: &Alpha) -> Result<()>;
        join(alpha: &mut Alpha, other: &Alpha) -> Result<()>;
        invert(alpha: &mut Alpha) -> Result<()>;
        likeness(p: &Picture, roi: Roi, sample: &Alpha, like: &Likeness) -> Result<Alpha>;
        fill(picture: &mut Picture, keep: &Alpha) -> Result<()>;
        adopt_alpha(alpha: Grey) -> Result<Alpha>;
        release_alpha(alpha: Alpha) -> Result<Grey>;
        match_tone(layer: &mut Picture, onto: &Picture, roi: Roi, alpha: &Alpha, tone: &Tone) -> Result<()>;
        paste(onto: &mut Picture, layer: &Picture, roi: Roi, alpha: &Alpha) -> Result<()>;
        warp_back(crop: &Picture, map: &Affine2, roi: Roi) -> Result<Picture>;
        cover(p: &mut Picture, roi: Roi, alpha: &Alpha, cover: &Cover) -> Result<()>;
        mark_add(picture: &mut Picture, payload: u64) -> Result<f32>;
        mark_read(picture: &Picture) -> Result<Option<u64>>;
        spare(alpha: Alpha) -> ();
    }
}

//! A made world for the pipeline: pictures with faces of noise, models that know them, and faults.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mien_base::clock::{ManualClock, Wall};
use mien_base::consent::{ConsentRecord, Quality, Scope, SourceRecord};
use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Cover, Likeness, MeshWarp, Normalise, Session, Shape, Tone};
use mien_engine::contract::{Contract, Port};
use mien_engine::cpu::Cpu;
use mien_engine::tensor::Tensor;
use mien_engine::{Error, Result};
use mien_face::models::Models;
use mien_face::policy::{Policy, Source};
use mien_pixels::geometry::{Affine2, Rect, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

/// Side of the pictures: the detector sees them as they are.
pub(crate) const SIDE: u32 = 256;

/// splitmix64.
pub(crate) fn random(state: &AtomicU64) -> u64 {
    let mut z = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Who a face is: the channel that is strongest in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    /// Red: enrolled, agreed to be put on others.
    Ada = 0,
    /// Green: enrolled, agreed to be shown.
    Bob = 1,
    /// Blue: nobody.
    Stranger = 2,
}

/// A face of noise around a colour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    pub(crate) person: Person,
    pub(crate) centre: (u32, u32),
    pub(crate) side: u32,
}

impl Made {
    pub(crate) const fn new(person: Person, centre: (u32, u32), side: u32) -> Self {
        Self { person, centre, side }
    }

    pub(crate) fn rect(&self) -> Rect {
        let (x, y, half) = (self.centre.0 as f32, self.centre.1 as f32, self.side as f32 / 2.0);
        Rect::new(x - half, y - half, x + half, y + half)
    }

    /// Mean distance of the picture from the raw one over the middle of the face, in levels.
    pub(crate) fn distance(&self, raw: &Rgb, out: &Rgb) -> f64 {
        let radius = f64::from(self.side) * 0.35;
        let (mut sum, mut count) = (0.0, 0.0);
        for y in 0..SIDE {
            for x in 0..SIDE {
                let off = (f64::from(x) - f64::from(self.centre.0))
                    .hypot(f64::from(y) - f64::from(self.centre.1));
                if off < radius {
                    let (a, b) = (raw.view().pixel(x, y), out.view().pixel(x, y));
                    sum += (0..3).map(|c| f64::from(a[c].abs_diff(b[c]))).sum::<f64>() / 3.0;
                    count += 1.0;
                }
            }
        }
        sum / count
    }
}

/// A picture with the faces in it, later ones over earlier ones.
pub(crate) fn picture(faces: &[Made], seed: u64) -> Rgb {
    let state = AtomicU64::new(seed);
    let mut image = Rgb::filled(Size::new(SIDE, SIDE), [0; 3]);
    for y in 0..SIDE {
        for x in 0..SIDE {
            let within = |f: &&Made| {
                let r = f.rect();
                (r.x0..r.x1).contains(&(x as f32)) && (r.y0..r.y1).contains(&(y as f32))
            };
            let noise = random(&state);
            let mut colour = [40; 3];
            if let Some(face) = faces.iter().rev().find(within) {
                for (c, value) in colour.iter_mut().enumerate() {
                    let base = if c == face.person as usize { 150 } else { 70 };
                    *value = base + (noise >> (8 * c)) as u8 % 101;
                }
            }
            let at = ((y * SIDE + x) * 3) as usize;
            image.bytes_all_mut()[at..at + 3].copy_from_slice(&colour);
        }
    }
    image
}

/// What goes wrong: each in so many of 1000 calls.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) state: AtomicU64,
    pub(crate) model: AtomicU64,
    pub(crate) picture: u64,
    /// Faults that were made.
    pub(crate) made: AtomicU64,
}

impl Faults {
    fn strikes(&self, of_thousand: u64) -> bool {
        let strikes = random(&self.state) % 1000 < of_thousand;
        if strikes {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        strikes
    }
}

/// The CPU with made models and faults.
#[derive(Debug)]
pub(crate) struct World {
    cpu: Cpu,
    pub(crate) faults: Arc<Faults>,
    faces: Arc<Mutex<Vec<Made>>>,
}

/// A made model.
pub(crate) struct Oracle {
    family: Family,
    faults: Arc<Faults>,
    faces: Arc<Mutex<Vec<Made>>>,
}

fn tensor(shape: &[usize]) -> Tensor {
    Tensor { shape: shape.to_vec(), data: vec![0.0; shape.iter().product()] }
}

impl Oracle {
    fn outputs(&self, input: &Tensor) -> Vec<Tensor> {
        match self.family {
            Family::OpenNsfw => vec![Tensor { shape: vec![1, 2], data: vec![0.9, 0.1] }],
            Family::Selfie => {
                let mut map = tensor(&[1, 1, 256, 256]);
                map.data.fill(1.0);
                vec![map]
            }
            Family::FaceMesh => vec![mesh(), Tensor { shape: vec![1, 1], data: vec![6.0] }],
            Family::ArcFace => {
                let plane = 112 * 112;
                let mean = |c: usize| {
                    input.data[c * plane..(c + 1) * plane].iter().sum::<f32>() / plane as f32
                };
                let best = (0..3).max_by(|&a, &b| mean(a).total_cmp(&mean(b))).unwrap();
                let mut data = vec![0.0; 3];
                data[best] = 7.0;
                vec![Tensor { shape: vec![1, 3], data }]
            }
            Family::CenterFace => self.centerface(input),
            Family::Ghost => {
                let mut made = tensor(&input.shape);
                made.data.fill(-0.7);
                vec![made]
            }
            Family::Crossface => vec![input.clone()],
            other => panic!("no {other:?} in this world"),
        }
    }

    fn centerface(&self, input: &Tensor) -> Vec<Tensor> {
        let (h, w) = (input.shape[2] / 4, input.shape[3] / 4);
        let mut out = [1, 2, 2, 10].map(|c| tensor(&[1, c, h, w]));
        for face in self.faces.lock().unwrap().iter() {
            let (x, y) = (face.centre.0 as f32 / 4.0, face.centre.1 as f32 / 4.0);
            let (column, row) = (x as usize, y as usize);
            let mut set = |t: usize, c: usize, v: f32| {
                out[t].data[(c * h + row) * w + column] = v;
            };
            set(0, 0, 0.9);
            (0..2).for_each(|c| set(1, c, (face.side as f32 / 4.0).ln()));
            set(2, 0, y - row as f32 - 0.5);
            set(2, 1, x - column as f32 - 0.5);
            let points = [(0.3, 0.4), (0.7, 0.4), (0.5, 0.6), (0.35, 0.8), (0.65, 0.8)];
            for (j, (px, py)) in points.into_iter().enumerate() {
                set(3, 2 * j, py);
                set(3, 2 * j + 1, px);
            }
        }
        out.to_vec()
    }
}

/// The mean face at two thirds of its crop, wherever the crop lies.
fn mesh() -> Tensor {
    let mut t = tensor(&[1, 1404]);
    for (at, [x, y, z]) in t.data.chunks_exact_mut(3).zip(mien_face::swap::mean()) {
        at.copy_from_slice(&[96.0 + 71.0 * x, 100.0 + 71.0 * y, 71.0 * z]);
    }
    t
}

impl Session for Oracle {
    type Tensor = Tensor;

    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut outputs = self.outputs(inputs[0]);
        if self.faults.strikes(self.faults.model.load(Ordering::Relaxed)) {
            let dice = random(&self.faults.state);
            let which = (dice >> 8) as usize % outputs.len();
            let data = &mut outputs[which].data;
            let at = (dice >> 16) as usize % data.len();
            match dice % 8 {
                0 => return Err(Error::Run { model: "m".into(), detail: "fault".into() }),
                1 => {
                    return Err(Error::NotFinite { model: "m".into(), output: "o".into() });
                }
                2 => data[at] = f32::NAN,
                3 => data.fill(f32::NAN),
                4 => data[at] = f32::NEG_INFINITY,
                5 => data.truncate(at),
                6 => data.iter_mut().for_each(|v| *v *= 1e30),
                _ => drop(outputs.remove(which)),
            }
        }
        Ok(outputs)
    }

    fn inputs(&self) -> &[Port] {
        &[]
    }

    fn outputs(&self) -> &[Port] {
        &[]
    }
}

impl World {
    fn fault(&self) -> Result<()> {
        if self.faults.strikes(self.faults.picture) {
            return Err(Error::Picture { what: "fault".into() });
        }
        Ok(())
    }

    pub(crate) fn show(&self, faces: &[Made]) {
        *self.faces.lock().unwrap() = faces.to_vec();
    }
}

type Picture = <Cpu as Backend>::Picture;
type Alpha = <Cpu as Backend>::Alpha;

impl Backend for World {
    type Picture = Picture;
    type Tensor = Tensor;
    type Alpha = Alpha;
    type Session = Oracle;

    fn name(&self) -> &'static str {
        "world"
    }
    fn load(&self, manifest: &Manifest, _: &Contract, _: &[u8]) -> Result<Oracle> {
        let (faults, faces) = (Arc::clone(&self.faults), Arc::clone(&self.faces));
        Ok(Oracle { family: manifest.family, faults, faces })
    }
    fn adopt(&self, image: Rgb) -> Result<Picture> {
        self.cpu.adopt(image)
    }
    fn release(&self, picture: Picture) -> Result<Rgb> {
        self.cpu.release(picture)
    }
    fn duplicate(&self, picture: &Picture) -> Result<Picture> {
        self.fault()?;
        self.cpu.duplicate(picture)
    }
    fn size(&self, picture: &Picture) -> Size {
        self.cpu.size(picture)
    }
    fn upload(&self, tensor: Tensor) -> Result<Tensor> {
        self.fault()?;
        self.cpu.upload(tensor)
    }
    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        self.fault()?;
        self.cpu.download(tensor)
    }
    fn letterbox(&self, p: &Picture, canvas: Size, fit: Size, n: &Normalise) -> Result<Tensor> {
        self.fault()?;
        self.cpu.letterbox(p, canvas, fit, n)
    }
    fn crop_batch(&self, p: &Picture, m: &[Affine2], s: Size, n: &Normalise) -> Result<Tensor> {
        self.fault()?;
        self.cpu.crop_batch(p, m, s, n)
    }
    fn crop(&self, picture: &Picture, map: &Affine2, size: Size) -> Result<Picture> {
        self.fault()?;
        self.cpu.crop(picture, map, size)
    }
    fn to_picture(&self, tensor: &Tensor, scale: f32, offset: f32) -> Result<Picture> {
        self.fault()?;
        self.cpu.to_picture(tensor, scale, offset)
    }
    fn polyphase_split(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        self.fault()?;
        self.cpu.polyphase_split(tensor, k)
    }
    fn polyphase_join(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        self.fault()?;
        self.cpu.polyphase_join(tensor, k)
    }
    fn warp_mesh(&self, source: &Picture, warp: &MeshWarp<'_>) -> Result<(Picture, Alpha)> {
        self.fault()?;
        self.cpu.warp_mesh(source, warp)
    }
    fn mask(&self, shapes: &[Shape<&Tensor>], roi: Roi) -> Result<Alpha> {
        self.fault()?;
        self.cpu.mask(shapes, roi)
    }
    fn spare(&self, alpha: Alpha) {
        self.cpu.spare(alpha);
    }
    fn meet(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        self.fault()?;
        self.cpu.meet(alpha, other)
    }
    fn join(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        self.fault()?;
        self.cpu.join(alpha, other)
    }
    fn invert(&self, alpha: &mut Alpha) -> Result<()> {
        self.fault()?;
        self.cpu.invert(alpha)
    }
    fn likeness(&self, p: &Picture, roi: Roi, sample: &Alpha, like: &Likeness) -> Result<Alpha> {
        self.fault()?;
        self.cpu.likeness(p, roi, sample, like)
    }
    fn fill(&self, picture: &mut Picture, keep: &Alpha) -> Result<()> {
        self.fault()?;
        self.cpu.fill(picture, keep)
    }
    fn adopt_alpha(&self, alpha: Grey) -> Result<Alpha> {
        self.fault()?;
        self.cpu.adopt_alpha(alpha)
    }
    fn release_alpha(&self, alpha: Alpha) -> Result<Grey> {
        self.fault()?;
        self.cpu.release_alpha(alpha)
    }
    fn match_tone(
        &self,
        layer: &mut Picture,
        onto: &Picture,
        roi: Roi,
        alpha: &Alpha,
        tone: &Tone,
    ) -> Result<()> {
        self.fault()?;
        self.cpu.match_tone(layer, onto, roi, alpha, tone)
    }
    fn paste(&self, onto: &mut Picture, layer: &Picture, roi: Roi, alpha: &Alpha) -> Result<()> {
        self.fault()?;
        self.cpu.paste(onto, layer, roi, alpha)
    }
    fn warp_back(&self, crop: &Picture, map: &Affine2, roi: Roi) -> Result<Picture> {
        self.fault()?;
        self.cpu.warp_back(crop, map, roi)
    }
    fn cover(&self, p: &mut Picture, roi: Roi, alpha: &Alpha, cover: &Cover) -> Result<()> {
        self.fault()?;
        self.cpu.cover(p, roi, alpha, cover)
    }
    fn mark_add(&self, picture: &mut Picture, payload: u64) -> Result<f32> {
        self.fault()?;
        self.cpu.mark_add(picture, payload)
    }
    fn mark_read(&self, picture: &Picture) -> Result<Option<u64>> {
        self.fault()?;
        self.cpu.mark_read(picture)
    }
}

pub(crate) fn manifest(role: Role, family: Family, id: &str) -> Manifest {
    Manifest {
        id: id.parse().unwrap(),
        role,
        family,
        sha256: "0".repeat(64),
        bytes: 1,
        licence: String::new(),
        commercial: true,
    }
}

pub(crate) const MODELS: [(Role, Family, &str); 7] = [
    (Role::Gate, Family::OpenNsfw, "gate"),
    (Role::Detector, Family::CenterFace, "centerface"),
    (Role::Landmarks, Family::FaceMesh, "mesh"),
    (Role::Embedder, Family::ArcFace, "embedder"),
    (Role::Segmenter, Family::Selfie, "selfie"),
    (Role::Swapper, Family::Ghost, "ghost"),
    (Role::Crossface, Family::Crossface, "ghost-crossface"),
];

/// A world without faults, with all its models.
pub(crate) fn world() -> (Arc<World>, Models<World>) {
    let (state, model, made) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
    let faults = Faults { state, model, picture: 0, made };
    faulty(faults)
}

pub(crate) fn faulty(faults: Faults) -> (Arc<World>, Models<World>) {
    let world = Arc::new(World {
        cpu: Cpu::new(1),
        faults: Arc::new(faults),
        faces: Arc::new(Mutex::new(Vec::new())),
    });
    let mut models = Models::new(Arc::clone(&world));
    for (role, family, id) in MODELS {
        models.load(manifest(role, family, id), &[]).unwrap();
    }
    (world, models)
}

/// Now, when every consent holds.
pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Wall(150))
}

/// Ada may be put on others, Bob may be shown.
pub(crate) fn policy(world: &World) -> Policy<World> {
    let mut policy = Policy::new(1);
    for (name, person, scope) in
        [("ada", Person::Ada, Scope::Swap), ("bob", Person::Bob, Scope::Reveal)]
    {
        let made = Made::new(person, (128, 128), 160);
        let portrait = picture(&[made], 5);
        let mut embedding = vec![0.0; 3];
        embedding[person as usize] = 1.0;
        let r = made.rect();
        let place = |x: f32, y: f32| [r.x0 + x * r.width(), r.y0 + y * r.height()];
        let unit = mesh();
        let point = |p: &[f32]| {
            let [x, y] = place((p[0] - 32.0) / 128.0, (p[1] - 32.0) / 128.0);
            [x, y, p[2] * r.width() / 128.0]
        };
        let record = SourceRecord {
            identity: name.parse().unwrap(),
            embedder: Some(("embedder".parse().unwrap(), "0".repeat(64))),
            embedding,
            mesh: unit.data.chunks_exact(3).map(point).collect(),
            landmarks: [
                place(0.3, 0.4),
                place(0.7, 0.4),
                place(0.5, 0.6),
                place(0.35, 0.8),
                place(0.65, 0.8),
            ],
            quality: Quality { face_px: 160.0, sharpness: 99.0, yaw: 0.0, pitch: 0.0, score: 0.9 },
            enrolled: Wall(1),
        };
        let consent = ConsentRecord {
            identity: name.parse().unwrap(),
            subject: "p".into(),
            purpose: "test".into(),
            scope: vec![scope],
            granted: Wall(100),
            expires: Wall(200),
            revoked: None,
            evidence: None,
            operator: "op".into(),
        };
        policy.add(Source::new(world, record, portrait).unwrap(), vec![consent]).unwrap();
    }
    policy
}

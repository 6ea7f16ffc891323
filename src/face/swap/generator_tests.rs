//! Generators made for the test: one that gives its crop back, one that knows two faces.

use mien_base::clock::{ManualClock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::recipe::Mask;
use mien_engine::cpu::Cpu;
use mien_engine::made::{Attribute, Model};
use mien_pixels::geometry::{Point, Rect};
use mien_pixels::view::{Image, Rgb};

use super::*;

const SIDE: usize = 32;
const SIZE: Size = Size::new(240, 200);

fn manifest(family: Family, role: Role) -> Manifest {
    Manifest {
        id: "made".parse().unwrap(),
        role,
        family,
        sha256: "0".repeat(64),
        bytes: 1,
        licence: "none".to_owned(),
        commercial: true,
    }
}

/// Soft waves: what a crop and its way back keep.
fn picture() -> Rgb {
    let level = |v: f32| (128.0 + 90.0 * v.sin()) as u8;
    let pixel = |x: u32, y: u32| {
        [level(x as f32 / 23.0), level(y as f32 / 31.0), level((x + y) as f32 / 37.0)]
    };
    let data = (0..SIZE.height).flat_map(|y| (0..SIZE.width).flat_map(move |x| pixel(x, y)));
    Image::from_vec(SIZE, data.collect()).unwrap()
}

fn face() -> Face {
    let p = Point::new;
    let points = [p(98.0, 82.0), p(142.0, 84.0), p(118.0, 106.0), p(99.0, 123.0), p(137.0, 125.0)];
    let landmarks = Landmarks5::new(points).unwrap();
    Face { rect: Rect::new(76.0, 38.0, 164.0, 158.0), score: 0.9, landmarks }
}

fn consent(clock: &ManualClock) -> Consent {
    let record = ConsentRecord {
        identity: "ada".parse().unwrap(),
        subject: "p1".to_owned(),
        purpose: "test".to_owned(),
        scope: vec![Scope::Swap],
        granted: Wall(0),
        expires: Wall(u64::MAX),
        revoked: None,
        evidence: None,
        operator: "op".to_owned(),
    };
    crate::consent::check(&record, Scope::Swap, clock).unwrap()
}

fn unit_map() -> [f32; 16] {
    std::array::from_fn(|i| f32::from(u8::from(i % 5 == 0)))
}

/// `target` * scale + offset per channel, whatever the source is. With `batch` 1 it takes one crop.
fn returning(batch: usize, scale: [f32; 3], offset: [f32; 3]) -> Model {
    Model::new()
        .input("target", &[batch, 3, SIDE, SIDE])
        .input("source", &[1, 4])
        .weight("none", &[], &[0.0])
        .weight("scale", &[1, 3, 1, 1], &scale)
        .weight("offset", &[1, 3, 1, 1], &offset)
        .node("ReduceMax", &["source"], &["most"], &[Attribute::Int("keepdims", 0)])
        .node("Mul", &["most", "none"], &["zero"], &[])
        .node("Mul", &["target", "scale"], &["scaled"], &[])
        .node("Add", &["scaled", "offset"], &["moved"], &[])
        .node("Add", &["moved", "zero"], &["output"], &[])
        .output("output", &[batch, 3, SIDE, SIDE])
        .weight("emap", &[4, 4], &unit_map())
}

/// The closed-form generator of the design: the nearest of two enrolled textures.
fn knowing(red: [f32; 4], blue: [f32; 4]) -> Model {
    let keys: Vec<f32> = (0..4).flat_map(|i| [20.0 * red[i], 20.0 * blue[i]]).collect();
    let area = SIDE * SIDE;
    let plane = |v: f32| std::iter::repeat_n(v, area);
    let textures: Vec<f32> = [[0.9, 0.1, 0.1], [0.1, 0.1, 0.9]]
        .iter()
        .flat_map(|c| c.iter().flat_map(|v| plane(*v)))
        .collect();
    Model::new()
        .input("target", &[0, 3, SIDE, SIDE])
        .input("source", &[1, 4])
        .weight("keys", &[4, 2], &keys)
        .weight("textures", &[2, 3 * area], &textures)
        .weight("none", &[], &[0.0])
        .integers("shape", &[1, 3, SIDE as i64, SIDE as i64])
        .node("MatMul", &["source", "keys"], &["near"], &[])
        .node("Softmax", &["near"], &["share"], &[Attribute::Int("axis", 1)])
        .node("MatMul", &["share", "textures"], &["flat"], &[])
        .node("Reshape", &["flat", "shape"], &["texture"], &[])
        .node("Mul", &["target", "none"], &["zero"], &[])
        .node("Add", &["texture", "zero"], &["output"], &[])
        .output("output", &[0, 3, SIDE, SIDE])
        .weight("emap", &[4, 4], &unit_map())
}

struct Bench {
    backend: Cpu,
    clock: ManualClock,
    embedding: Embedding,
}

impl Bench {
    fn new(values: [f32; 4]) -> Self {
        let embedding = Embedding::new(values.to_vec()).unwrap();
        Self { backend: Cpu::new(1), clock: ManualClock::at(Wall(5)), embedding }
    }

    fn load(&self, family: Family, model: &Model) -> Result<Generator<Cpu>> {
        Generator::load(&self.backend, manifest(family, Role::Swapper), &model.bytes())
    }

    fn run(&self, generator: &mut Generator<Cpu>, weight: f32, boost: u32) -> Result<Rgb> {
        let backend = &self.backend;
        let mut picture = backend.adopt(picture()).unwrap();
        let mask = Mask { kinds: Vec::new(), scale: 1.3, padding: [0.0; 4], blur: 0.3 };
        let region = Region { mask: &mask, mesh: None, person: None };
        let consent = consent(&self.clock);
        let (consent, embedding) = (&consent, &self.embedding);
        let wish = Wish { consent, embedding, target: None, weight, boost };
        let named = manifest(Family::Crossface, Role::Crossface);
        let crossface = Model::identity(&[1, 4]).bytes();
        let mut crossface = Crossface::load(backend, named, &crossface).unwrap();
        let beside = generator.needs_crossface().then_some(&mut crossface);
        let mut meter = Meter::new(&self.clock);
        let face = face();
        let points = &face.landmarks;
        generator.apply(
            backend,
            &mut picture,
            &face,
            points,
            &wish,
            beside,
            &region,
            &mut meter,
        )?;
        Ok(backend.release(picture).unwrap())
    }
}

fn largest_difference(a: &Rgb, b: &Rgb) -> u8 {
    let pairs = a.bytes_all().iter().zip(b.bytes_all());
    pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

const IMAGENET: ([f32; 3], [f32; 3]) = ([0.229, 0.224, 0.225], [0.485, 0.456, 0.406]);

#[test]
fn each_family_is_fed_and_read_so_that_a_returned_crop_changes_nothing() {
    let bench = Bench::new([1.0, 0.0, 0.0, 0.0]);
    let plain = returning(0, [1.0; 3], [0.0; 3]);
    for (family, model) in [
        (Family::InSwapper, plain.clone()),
        (Family::Ghost, plain),
        (Family::SimSwap, returning(0, IMAGENET.0, IMAGENET.1)),
    ] {
        let mut generator = bench.load(family, &model).unwrap();
        for (boost, least) in [(1, 40), (2, 14), (4, 4)] {
            let out = bench.run(&mut generator, 0.5, boost).unwrap();
            let off = largest_difference(&out, &picture());
            assert!(off <= least, "{family:?} at {boost}: off by {off}");
        }
    }
}

#[test]
fn a_model_without_batches_gives_the_same_one_by_one() {
    let bench = Bench::new([1.0, 0.0, 0.0, 0.0]);
    let mut many = bench.load(Family::InSwapper, &returning(0, [1.0; 3], [0.0; 3])).unwrap();
    let single = returning(1, [1.0; 3], [0.0; 3])
        .integers("one", &[1, 3, SIDE as i64, SIDE as i64])
        .node("Reshape", &["output", "one"], &["only"], &[])
        .output("only", &[1, 3, SIDE, SIDE])
        .weight("emap", &[4, 4], &unit_map());
    let mut single = bench.load(Family::InSwapper, &single).unwrap();
    let (a, b) = (bench.run(&mut many, 0.5, 3), bench.run(&mut single, 0.5, 3));
    assert_eq!(a.unwrap(), b.unwrap());
}

#[test]
fn the_face_becomes_the_sources_and_nothing_outside_the_crop_changes() {
    let (red, blue) = ([1.0, 0.0, 0.0, 0.0], [0.0, 0.6, 0.8, 0.0]);
    for (who, colour) in [(red, [230, 26, 26]), (blue, [26, 26, 230])] {
        for boost in [1, 2] {
            let bench = Bench::new(who);
            let mut generator = bench.load(Family::InSwapper, &knowing(red, blue)).unwrap();
            let out = bench.run(&mut generator, 0.5, boost).unwrap();
            let got = out.view().pixel(119, 105);
            assert!((0..3).all(|c| got[c].abs_diff(colour[c]) <= 2), "{got:?}");
            let side = SIDE as u32 * boost;
            let map = align::from_crop(&face().landmarks, &ARCFACE_128, side, SIZE).unwrap();
            let back = map.inverse().unwrap();
            let last = side as f32 - 1.0;
            let (before, mut changed) = (picture(), 0);
            for y in 0..SIZE.height {
                for x in 0..SIZE.width {
                    let p = back.apply(Point::new(x as f32, y as f32));
                    let inside = p.x > 0.0 && p.y > 0.0 && p.x < last && p.y < last;
                    let same = out.view().pixel(x, y) == before.view().pixel(x, y);
                    assert!(inside || same, "{x},{y}");
                    changed += u32::from(!same);
                }
            }
            assert!(changed > 5_000, "{changed}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new([1.0, 0.0, 0.0, 0.0]);
    let model = returning(0, [1.0; 3], [0.0; 3]);
    let mut generator = bench.load(Family::InSwapper, &model).unwrap();
    // No embedding of the target to weigh with.
    assert!(matches!(bench.run(&mut generator, 0.9, 1), Err(Error::Face { .. })));
    // An embedder of another width.
    let wide = Bench {
        embedding: Embedding::new(vec![1.0; 6]).unwrap(),
        ..Bench::new([1.0, 0.0, 0.0, 0.0])
    };
    assert!(matches!(wide.run(&mut generator, 0.5, 1), Err(Error::Face { .. })));
    // Another family, another role, no map of embeddings.
    assert!(bench.load(Family::ArcFace, &model).is_err());
    let flat = model.clone().weight("last", &[3], &[1.0; 3]);
    assert!(bench.load(Family::InSwapper, &flat).is_err());
    assert!(
        Generator::load(&bench.backend, manifest(Family::Ghost, Role::Judge), &model.bytes())
            .is_err()
    );
}

#[test]
fn an_output_of_another_size_or_no_number_is_refused() {
    let bench = Bench::new([1.0, 0.0, 0.0, 0.0]);
    let wrong = Model::answering(
        &[("target", &[0, 3, SIDE, SIDE]), ("source", &[1, 4])],
        &[("output", &[1, 3, 8, 8], &[0.5; 192])],
    );
    let mut generator = bench.load(Family::Ghost, &wrong).unwrap();
    assert!(bench.run(&mut generator, 0.5, 1).is_err());
    let mut nan = bench.load(Family::Ghost, &returning(0, [f32::NAN; 3], [0.0; 3])).unwrap();
    assert!(bench.run(&mut nan, 0.5, 1).is_err());
}

#[test]
fn the_weight_leads_from_the_target_to_the_source() {
    let source = Embedding::new(vec![1.0, 0.0]).unwrap();
    let target = Embedding::new(vec![0.0, 1.0]).unwrap();
    let clock = ManualClock::at(Wall(5));
    let consent = consent(&clock);
    let at = |weight| {
        let wish =
            Wish { consent: &consent, embedding: &source, target: Some(&target), weight, boost: 1 };
        blended(&wish).unwrap()
    };
    assert_eq!(at(0.5), [1.0, 0.0]);
    // k = 0.35: (0.65, 0.35), of length 1.
    let low = at(0.0);
    assert!((low[1] / low[0] - 0.35 / 0.65).abs() < 1e-5);
    // k = -0.35: away from the target.
    let high = at(1.0);
    assert!((high[1] / high[0] + 0.35 / 1.35).abs() < 1e-5);
}

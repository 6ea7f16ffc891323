//! The CPU passes the suite, and hostile files are refused without a crash.

use proptest::prelude::*;

use super::Cpu;
use crate::Error;
use crate::backend::{Backend, Session};
use crate::contract::Contract;
use crate::made::{Attribute, Model};
use crate::suite::{Tolerance, run_all};
use crate::tensor::Tensor;
use mien_base::model::{Family, Manifest, Role};

fn manifest() -> Manifest {
    Manifest {
        id: "made".parse().unwrap(),
        role: Role::Detector,
        family: Family::CenterFace,
        sha256: "0".repeat(64),
        bytes: 0,
        licence: "CC0-1.0".into(),
        commercial: true,
    }
}

pub(super) fn load(cpu: &Cpu, bytes: &[u8]) -> crate::Result<super::Session> {
    cpu.load(&manifest(), &Contract::default(), bytes)
}

#[test]
fn the_cpu_passes_the_suite() {
    for threads in [1, 2] {
        let failures = run_all(&Cpu::new(threads), Tolerance { levels: 1, values: 2e-5 });
        let shown: Vec<_> = failures.iter().map(|f| format!("{}: {}", f.claim, f.detail)).collect();
        assert!(failures.is_empty(), "with {threads} threads:\n{}", shown.join("\n"));
    }
}

/// Models small enough to be mutated thousands of times, of every kind of part that is read.
fn seeds() -> Vec<Vec<u8>> {
    let weights: Vec<f32> = (0..2 * 3 * 9).map(|i| i as f32 / 54.0).collect();
    let resize = Model::new()
        .input("x", &[1, 1, 0, 0])
        .integers("sizes", &[1, 1, 8, 8])
        .node("Resize", &["x", "", "", "sizes"], &["big"], &[Attribute::Text("mode", "nearest")])
        .integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1])
        .node("Pad", &["big", "pads"], &["padded"], &[])
        .integers("shape", &[1, -1])
        .node("Reshape", &["padded", "shape"], &["y"], &[])
        .output("y", &[1, 0]);
    let fill = Model::new()
        .input("x", &[1, 4])
        .integers("shape", &[3, 4])
        .node("Expand", &["x", "shape"], &["wide"], &[])
        .node("ConstantOfShape", &["shape"], &["zeros"], &[])
        .node("Concat", &["wide", "zeros"], &["both"], &[Attribute::Int("axis", 0)])
        .node("Softmax", &["both"], &["y"], &[Attribute::Int("axis", 1)])
        .output("y", &[6, 4]);
    let pool = [Attribute::Ints("kernel_shape", &[2, 2]), Attribute::Ints("strides", &[2, 2])];
    let pool = Model::new()
        .input("x", &[1, 2, 4, 4])
        .half("h", &[2, 1, 1], &[0x3c00, 0x3800])
        .node("Cast", &["h"], &["slope"], &[Attribute::Int("to", 1)])
        .node("PRelu", &["x", "slope"], &["p"], &[])
        .node("MaxPool", &["p"], &["m"], &pool)
        .node("Transpose", &["m"], &["y"], &[Attribute::Ints("perm", &[0, 2, 3, 1])])
        .output("y", &[1, 2, 2, 2]);
    vec![
        Model::convolution(3, 2, &weights, &[0.5, -0.5]).bytes(),
        Model::answering(&[("x", &[1, 3, 4, 4])], &[("y", &[1, 2], &[1.0, 2.0])]).bytes(),
        resize.bytes(),
        fill.bytes(),
        pool.bytes(),
    ]
}

/// Runs what was loaded on an input of the size that it declares; only errors may come of it.
fn run_as_declared(mut session: super::Session) {
    let shape_of = |port: &crate::contract::Port| {
        let side = |dim: &crate::contract::Dim| match dim {
            crate::contract::Dim::Fixed(n) => (*n).min(64),
            crate::contract::Dim::Any => 4,
        };
        port.shape.iter().map(side).collect::<Vec<_>>()
    };
    let inputs: Vec<Tensor> = session
        .inputs()
        .iter()
        .map(shape_of)
        .filter(|shape| shape.iter().product::<usize>() <= 1 << 16)
        .map(|shape| Tensor::filled(&shape, 0.5))
        .collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let _answer = session.run(&inputs);
}

#[test]
fn the_seeds_of_the_mutations_run() {
    let cpu = Cpu::new(1);
    for (i, bytes) in seeds().into_iter().enumerate() {
        let mut session = load(&cpu, &bytes).unwrap();
        let shape: &[usize] =
            [&[1, 3, 4, 4][..], &[1, 3, 4, 4], &[1, 1, 4, 4], &[1, 4], &[1, 2, 4, 4]][i];
        session.run(&[&Tensor::filled(shape, 0.5)]).unwrap();
    }
}

#[test]
fn a_file_cut_anywhere_is_refused_or_runs_into_errors_only() {
    let cpu = Cpu::new(1);
    for bytes in seeds() {
        for length in 0..bytes.len() {
            if let Ok(session) = load(&cpu, &bytes[..length]) {
                run_as_declared(session);
            }
        }
    }
}

fn refused(model: &Model, because: &str) {
    match load(&Cpu::new(1), &model.bytes()).map(|_| ()) {
        Err(Error::Load { detail, .. }) => assert!(detail.contains(because), "{detail}"),
        other => panic!("{other:?} where `{because}` is right"),
    }
}

#[test]
fn a_tensor_that_claims_more_than_it_carries_is_refused() {
    let with = |shape: &[usize]| {
        let model = Model::new().input("x", &[4]).weight("w", shape, &[1.0; 4]);
        model.node("Mul", &["x", "w"], &["y"], &[]).output("y", &[])
    };
    load(&Cpu::new(1), &with(&[4]).bytes()).unwrap();
    refused(&with(&[5]), "claims 5 values and carries 4");
    refused(&with(&[3]), "claims 3 values and carries 4");
    refused(&with(&[1 << 40]), "claims more than");
    refused(&with(&[1 << 33, 1 << 33]), "claims more than");
    refused(&with(&[1; 20]), "axes");
}

#[test]
fn a_constant_that_would_blow_up_is_refused() {
    let huge = [1 << 20, 1 << 20];
    let by = |operator: &str, value: &[i64]| {
        let model = Model::new().input("x", &[1, 1]).integers("n", value);
        let inputs: &[&str] = match operator {
            "ConstantOfShape" => &["n"],
            "Resize" => &["x", "", "", "n"],
            _ => &["x", "n"],
        };
        model.node(operator, inputs, &["y"], &[]).output("y", &[0, 0])
    };
    for operator in ["ConstantOfShape", "Expand", "Tile", "Resize"] {
        refused(&by(operator, &huge), "huge");
        load(&Cpu::new(1), &by(operator, &[2, 2]).bytes()).unwrap();
    }
    let pads = [Attribute::Ints("pads", &[1 << 40, 0, 0, 0])];
    refused(
        &Model::new().input("x", &[1]).node("Pad", &["x"], &["y"], &pads).output("y", &[0]),
        "pads",
    );
}

#[test]
fn control_flow_is_refused() {
    let model = Model::new().input("x", &[1]);
    refused(&model.clone().node("Loop", &["x"], &["y"], &[]).output("y", &[0]), "Loop");
    refused(&model.node("RandomNormal", &[], &["y"], &[]).output("y", &[0]), "RandomNormal");
}

#[test]
fn an_integer_port_is_refused() {
    // Element type 7 in the only input's type: the byte after its field tag.
    let mut bytes = Model::identity(&[4]).bytes();
    let at = bytes.windows(4).position(|w| w == [0x08, 1, 0x12, 4]).unwrap();
    bytes[at + 1] = 7;
    let answer = load(&Cpu::new(1), &bytes).map(|_| ());
    assert!(matches!(answer, Err(Error::Contract { .. })), "{answer:?}");
}

#[test]
fn a_panic_inside_the_runtime_would_be_an_error() {
    // Many inputs that rten has been seen to panic on are refused before; what is left is caught.
    let caught =
        std::panic::catch_unwind(|| panic!("as if")).map_err(|p| super::rten::panic_text(&*p));
    assert_eq!(caught, Err("the runtime panicked: as if".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_never_panics_or_aborts(
        seed in 0..5_usize,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        doubled in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = seeds().swap_remove(seed);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        if let Some(at) = doubled {
            let tail = bytes[at.index(bytes.len())..].to_vec();
            bytes.extend(tail);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        static CPU: std::sync::LazyLock<Cpu> = std::sync::LazyLock::new(|| Cpu::new(1));
        if let Ok(session) = load(&CPU, &bytes) {
            run_as_declared(session);
        }
    }
}

/// File and shapes: inputs given, outputs expected.
type Real = (&'static str, &'static [usize], &'static [&'static [usize]]);

const REAL: [Real; 10] = [
    (
        "centerface",
        &[1, 3, 96, 160],
        &[&[1, 1, 24, 40], &[1, 2, 24, 40], &[1, 2, 24, 40], &[1, 10, 24, 40]],
    ),
    (
        "centerface",
        &[1, 3, 64, 64],
        &[&[1, 1, 16, 16], &[1, 2, 16, 16], &[1, 2, 16, 16], &[1, 10, 16, 16]],
    ),
    ("blazeface_back256", &[1, 3, 256, 256], &[&[1, 896, 16], &[1, 896, 1]]),
    ("blazeface_short128", &[1, 3, 128, 128], &[&[1, 896, 16], &[1, 896, 1]]),
    ("facemesh468", &[1, 3, 192, 192], &[&[1, 1404], &[1, 1]]),
    ("mobilefacenet192", &[3, 3, 112, 112], &[&[3, 192]]),
    ("dlib_resnet128", &[2, 150, 150, 3], &[&[2, 128]]),
    ("open_nsfw", &[1, 224, 224, 3], &[&[1, 2]]),
    ("nsfwjs_mobilenet_v2", &[2, 224, 224, 3], &[&[2, 5]]),
    ("selfie256", &[1, 3, 256, 256], &[&[1, 1, 256, 256]]),
];

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_real_models_run_the_same_on_one_thread_and_two() {
    let folder = std::path::PathBuf::from(std::env::var_os("MIEN_MODELS").unwrap());
    let (one, two) = (Cpu::new(1), Cpu::new(2));
    for (name, input, outputs) in REAL {
        let bytes = std::fs::read(folder.join(format!("{name}.onnx"))).unwrap();
        let count: usize = input.iter().product();
        let data = (0..count).map(|i| ((i * 7919) % 256) as f32 / 255.0).collect();
        let x = Tensor { shape: input.to_vec(), data };
        let mut sessions = [&one, &two].map(|cpu| load(cpu, &bytes).unwrap());
        let [a, b] = sessions.each_mut().map(|session| session.run(&[&x]).unwrap());
        let shapes: Vec<_> = a.iter().map(|t| t.shape.as_slice()).collect();
        assert_eq!(shapes, outputs, "{name}");
        assert!(a == b, "{name} differs between one thread and two");
    }
}

/// The largest difference, relative to the largest value of the output.
pub(super) fn difference(ours: &Tensor, theirs: &Tensor) -> f32 {
    assert_eq!(ours.shape, theirs.shape);
    let most = theirs.data.iter().fold(1e-6_f32, |most, v| most.max(v.abs()));
    let off = ours.data.iter().zip(&theirs.data).map(|(a, b)| (a - b).abs());
    off.fold(0.0, f32::max) / most
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_real_models_run_on_our_engine_and_give_what_rten_gives() {
    let folder = std::path::PathBuf::from(std::env::var_os("MIEN_MODELS").unwrap());
    let (ours, rten) = (Cpu::new(1), Cpu::on_rten(1));
    for (name, input, _) in REAL {
        let bytes = std::fs::read(folder.join(format!("{name}.onnx"))).unwrap();
        let count: usize = input.iter().product();
        let data = (0..count).map(|i| ((i * 7919) % 256) as f32 / 255.0).collect();
        let x = Tensor { shape: input.to_vec(), data };
        let mut sessions = [&ours, &rten].map(|cpu| load(cpu, &bytes).unwrap());
        assert!(sessions[0].is_ours() && !sessions[1].is_ours(), "{name}");
        let [a, b] = sessions.each_mut().map(|session| session.run(&[&x]).unwrap());
        for (a, b) in a.iter().zip(&b) {
            let off = difference(a, b);
            assert!(off < 1e-3, "{name}: {off}");
        }
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_batch_gives_what_its_pictures_give_alone() {
    let folder = std::path::PathBuf::from(std::env::var_os("MIEN_MODELS").unwrap());
    let bytes = std::fs::read(folder.join("mobilefacenet192.onnx")).unwrap();
    let mut session = load(&Cpu::new(1), &bytes).unwrap();
    let each = 3 * 112 * 112;
    let data: Vec<f32> =
        (0..each * 4).map(|i| ((i * 104_729) % 511) as f32 / 255.5 - 1.0).collect();
    let batch = Tensor { shape: vec![4, 3, 112, 112], data: data.clone() };
    let together = session.run(&[&batch]).unwrap().remove(0);
    for (alone, right) in data.chunks(each).zip(together.data.chunks(192)) {
        let x = Tensor { shape: vec![1, 3, 112, 112], data: alone.to_vec() };
        let alone = session.run(&[&x]).unwrap().remove(0);
        let worst = alone.data.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{worst}");
    }
}

//! What is folded computes the same as before, and nothing else is touched.

use mien_base::model::{Family, Manifest, Role};
use proptest::prelude::*;

use super::*;
use crate::backend::{Backend as _, Session as _};
use crate::contract::Contract;
use crate::cpu::Cpu;
use crate::made::{Attribute, Model};
use crate::onnx::{Constant, constant};
use crate::tensor::Tensor;

fn facts_of(bytes: &[u8]) -> onnx::Facts {
    onnx::facts(bytes).unwrap()
}

fn operators(bytes: &[u8]) -> Vec<String> {
    facts_of(bytes).operators.into_keys().collect()
}

/// What a model answers to a picture that is the same each time.
fn run(bytes: &[u8], shape: &[usize]) -> Vec<f32> {
    let manifest = Manifest {
        id: "made".parse().unwrap(),
        role: Role::Detector,
        family: Family::CenterFace,
        sha256: "0".repeat(64),
        bytes: 0,
        licence: "CC0-1.0".into(),
        commercial: true,
    };
    let count: usize = shape.iter().product();
    let data = (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut session = Cpu::new(1).load(&manifest, &Contract::default(), bytes).unwrap();
    session.run(&[&Tensor { shape: shape.to_vec(), data }]).unwrap().remove(0).data
}

fn same(before: &[f32], after: &[f32]) {
    assert_eq!(before.len(), after.len());
    let far = before.iter().zip(after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-5, "{far}");
    assert!(before.iter().any(|v| v.abs() > 0.01), "it computes something");
}

/// A model whose weights are stored as halves, as codes of one scale, and as codes of a scale for
/// each channel, and which keeps a table as its last constant.
fn stored() -> Vec<u8> {
    let around = [
        Attribute::Ints("kernel_shape", &[1, 1]),
        Attribute::Ints("strides", &[1, 1]),
        Attribute::Ints("dilations", &[1, 1]),
        Attribute::Ints("pads", &[0, 0, 0, 0]),
    ];
    let float = [Attribute::Int("to", 1)];
    Model::new()
        .input("x", &[1, 2, 4, 4])
        .half("a_h", &[3, 2, 1, 1], &[0x3c00, 0xc000, 0x3800, 0xb400, 0x4200, 0x3555])
        .codes("b_q", &[2, 3, 1, 1], false, &[0, 17, 128, 200, 255, 3])
        .weight("b_s", &[], &[0.031])
        .codes("b_z", &[], false, &[128])
        .codes("c_q", &[2, 2, 1, 1], true, &[0x80, 0x7f, 5, 0xfb])
        .weight("c_s", &[2], &[0.02, 0.5])
        .codes("c_z", &[2], true, &[0, 0xff])
        .node("Cast", &["a_h"], &["a"], &float)
        .node("DequantizeLinear", &["b_q", "b_s", "b_z"], &["b"], &[])
        .node("DequantizeLinear", &["c_q", "c_s", "c_z"], &["c"], &[Attribute::Int("axis", 0)])
        .node("Conv", &["x", "a"], &["p"], &around)
        .node("Conv", &["p", "b"], &["q"], &around)
        .node("Conv", &["q", "c"], &["y"], &around)
        .half("emap", &[1, 2], &[0x3c00, 0x4000])
        .node("Cast", &["emap"], &["table"], &float)
        .output("y", &[1, 2, 4, 4])
        .bytes()
}

#[test]
fn weights_stored_as_halves_or_codes_become_floats_and_the_answers_stay() {
    let before = stored();
    let (after, done) = fold("made", &before).unwrap();
    assert_eq!(done, Folded { inputs: 0, weights: 4, attributes: 0 });
    assert_eq!(operators(&after), ["Conv"]);
    same(&run(&before, &[1, 2, 4, 4]), &run(&after, &[1, 2, 4, 4]));
    let c = constant("made", &after, Constant::Named("c")).unwrap();
    assert_eq!(c.data, [-128.0 * 0.02, 127.0 * 0.02, 6.0 * 0.5, -4.0 * 0.5]);
    // What served them is gone, and the table is still the last.
    assert!(constant("made", &after, Constant::Named("a_h")).is_err());
    assert_eq!(constant("made", &after, Constant::Last).unwrap().data, [1.0, 2.0]);
    let (again, none) = fold("made", &after).unwrap();
    assert_eq!((again, none.count()), (after, 0));
}

#[test]
fn a_model_whose_activations_are_quantised_keeps_its_codes() {
    let bytes = Model::new()
        .input("x", &[1, 2])
        .weight("s", &[], &[0.1])
        .codes("z", &[], false, &[0])
        .codes("w_q", &[1, 2], false, &[1, 2])
        .node("QuantizeLinear", &["x", "s", "z"], &["x_q"], &[])
        .node("DequantizeLinear", &["x_q", "s", "z"], &["x_f"], &[])
        .node("DequantizeLinear", &["w_q", "s", "z"], &["w"], &[])
        .node("Mul", &["x_f", "w"], &["y"], &[])
        .output("y", &[1, 2])
        .bytes();
    let (after, done) = fold("made", &bytes).unwrap();
    assert_eq!((after, done.count()), (bytes, 0));
}

#[test]
fn initialisers_leave_the_inputs() {
    let bytes = Model::new()
        .input("x", &[1, 4])
        .input("w", &[4])
        .weight("w", &[4], &[1.0, 2.0, 3.0, 4.0])
        .node("Mul", &["x", "w"], &["y"], &[])
        .output("y", &[1, 4])
        .bytes();
    let (after, done) = fold("made", &bytes).unwrap();
    assert_eq!(done, Folded { inputs: 1, weights: 0, attributes: 0 });
    assert!(after.len() < bytes.len());
    same(&run(&bytes, &[1, 4]), &run(&after, &[1, 4]));
}

/// A convolution of two channels to one by a kernel of 3 x 2, with these attributes alone.
fn convolution(attributes: &[Attribute<'_>]) -> Vec<u8> {
    let weights: Vec<f32> = (0..12).map(|i| i as f32 / 7.0 - 0.9).collect();
    Model::new()
        .input("x", &[1, 2, 6, 5])
        .weight("w", &[1, 2, 3, 2], &weights)
        .node("Conv", &["x", "w"], &["y"], attributes)
        .output("y", &[1, 1, 0, 0])
        .bytes()
}

/// The lists of integers and the rule that the only node of a model says.
fn says(bytes: &[u8]) -> (BTreeMap<String, Vec<i64>>, Option<String>) {
    let mut fields = Fields(onnx::graph(bytes).unwrap());
    while let Some(field) = fields.next().unwrap() {
        let Field::Bytes(1, message) = field else { continue };
        let node = node(message).unwrap();
        let lists = node.attributes.iter().filter_map(|(name, value)| match value {
            Value::Numbers(numbers) => Some(((*name).to_owned(), numbers.clone())),
            _ => None,
        });
        let rule = match node.attributes.get("auto_pad") {
            Some(Value::Text(rule)) => Some((*rule).to_owned()),
            _ => None,
        };
        return (lists.collect(), rule);
    }
    panic!("no node");
}

#[test]
fn a_convolution_says_its_kernel_strides_dilations_and_pads() {
    type Row<'a> = (&'a [Attribute<'a>], &'a [(&'a str, &'a [i64])], u32);
    let rows: &[Row<'_>] = &[
        (
            &[],
            &[
                ("dilations", &[1, 1]),
                ("kernel_shape", &[3, 2]),
                ("pads", &[0, 0, 0, 0]),
                ("strides", &[1, 1]),
            ],
            4,
        ),
        (
            &[Attribute::Text("auto_pad", "VALID"), Attribute::Ints("strides", &[2, 1])],
            &[
                ("dilations", &[1, 1]),
                ("kernel_shape", &[3, 2]),
                ("pads", &[0, 0, 0, 0]),
                ("strides", &[2, 1]),
            ],
            3,
        ),
        (
            &[Attribute::Text("auto_pad", "SAME_UPPER"), Attribute::Ints("dilations", &[2, 1])],
            &[
                ("dilations", &[2, 1]),
                ("kernel_shape", &[3, 2]),
                ("pads", &[2, 0, 2, 1]),
                ("strides", &[1, 1]),
            ],
            3,
        ),
        (
            &[Attribute::Text("auto_pad", "SAME_LOWER")],
            &[
                ("dilations", &[1, 1]),
                ("kernel_shape", &[3, 2]),
                ("pads", &[1, 1, 1, 0]),
                ("strides", &[1, 1]),
            ],
            4,
        ),
    ];
    for (attributes, expected, count) in rows {
        let before = convolution(attributes);
        let (after, done) = fold("made", &before).unwrap();
        assert_eq!(done, Folded { inputs: 0, weights: 0, attributes: *count }, "{attributes:?}");
        let expected: BTreeMap<String, Vec<i64>> =
            expected.iter().map(|(name, list)| ((*name).to_owned(), list.to_vec())).collect();
        assert_eq!(says(&after), (expected, None), "{attributes:?}");
        same(&run(&before, &[1, 2, 6, 5]), &run(&after, &[1, 2, 6, 5]));
        assert_eq!(fold("made", &after).unwrap().1.count(), 0);
    }
}

#[test]
fn pads_that_depend_on_the_picture_stay_a_rule() {
    let same = [Attribute::Text("auto_pad", "SAME_UPPER"), Attribute::Ints("strides", &[2, 2])];
    let (after, done) = fold("made", &convolution(&same)).unwrap();
    let (lists, rule) = says(&after);
    assert_eq!((done.attributes, rule.as_deref()), (2, Some("SAME_UPPER")));
    assert!(!lists.contains_key("pads"));
}

#[test]
fn pools_say_what_their_version_knows() {
    let bytes = Model::new()
        .input("x", &[1, 1, 4, 4])
        .node("MaxPool", &["x"], &["m"], &[Attribute::Ints("kernel_shape", &[2, 2])])
        .node("AveragePool", &["m"], &["y"], &[Attribute::Ints("kernel_shape", &[2, 2])])
        .output("y", &[1, 1, 0, 0])
        .bytes();
    let (after, done) = fold("made", &bytes).unwrap();
    // Opset 17: dilations of MaxPool, none of AveragePool.
    assert_eq!(done.attributes, 3 + 2);
    same(&run(&bytes, &[1, 1, 4, 4]), &run(&after, &[1, 1, 4, 4]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Hostile files: an error or a file that is read again, never a panic.
    #[test]
    fn a_mutated_model_is_refused_or_folded(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(), cuts: bool, plain: bool,
    ) {
        let mut bytes = if plain {
            convolution(&[Attribute::Text("auto_pad", "SAME_UPPER")])
        } else {
            stored()
        };
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok((after, _)) = fold("made", &bytes) {
            prop_assert!(onnx::graph(&after).is_ok());
        }
    }
}

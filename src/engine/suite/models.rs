//! Sessions: what runs gives what arithmetic gives, and what is wrong is refused by its name.

use super::{Check, Checked, Tolerance, got, holds, like_values, manifest};
use crate::Error;
use crate::backend::{Backend, Session};
use crate::contract::{Contract, Dim, Port};
use crate::made::{Attribute, Model};
use crate::tensor::Tensor;

pub(super) fn checks<B: Backend>() -> Vec<(&'static str, Check<B>)> {
    vec![
        ("a convolution is what its sum says, for any size and batch", convolution),
        ("half-precision weights are read as what they are", half_weights),
        ("the same input gives the same bits, however often", same_bits),
        ("outputs come in the contract's order", outputs_in_order),
        ("a model declares its shapes", declared_shapes),
        ("a NaN and an infinity are errors", not_finite),
        ("a contract that the file breaks is refused at load", broken_at_load),
        ("a contract that an output breaks is refused at run", broken_at_run),
        ("inputs of the wrong number or shape are refused, and the session lives on", bad_inputs),
        ("a file that is cut, empty or foreign is refused", bad_files),
    ]
}

fn port(name: &str, shape: &[usize]) -> Port {
    Port::named(name, shape)
}

fn contract(inputs: Vec<Port>, outputs: Vec<Port>) -> Contract {
    Contract { inputs, outputs }
}

type Loaded<B> = std::result::Result<<B as Backend>::Session, Error>;

fn load<B: Backend>(backend: &B, model: &Model, contract: &Contract) -> Loaded<B> {
    let manifest = manifest().map_err(|detail| Error::Picture { what: detail })?;
    backend.load(&manifest, contract, &model.bytes())
}

fn run<B: Backend>(
    backend: &B,
    session: &mut B::Session,
    inputs: Vec<Tensor>,
) -> crate::Result<Vec<Tensor>> {
    let inputs =
        inputs.into_iter().map(|t| backend.upload(t)).collect::<crate::Result<Vec<_>>>()?;
    let inputs: Vec<&B::Tensor> = inputs.iter().collect();
    session.run(&inputs)?.iter().map(|t| backend.download(t)).collect()
}

/// Values between -1 and 1 that repeat nowhere soon.
fn made_up(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let data = (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0).collect();
    Tensor { shape: shape.to_vec(), data }
}

fn convolution<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let (from, to) = (3, 5);
    let (weights, bias) = (made_up(&[to, from, 3, 3]).data, made_up(&[to]).data);
    let model = Model::convolution(from, to, &weights, &bias);
    let mut session = got(load(backend, &model, &Contract::default()))?;
    for (n, h, w) in [(1, 8, 8), (1, 5, 11), (3, 4, 4), (1, 1, 1)] {
        let x = made_up(&[n, from, h, w]);
        let mut right = Vec::new();
        for (image, o) in (0..n).flat_map(|i| (0..to).map(move |o| (i, o))) {
            for (y, x0) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                let mut sum = f64::from(bias[o]);
                for (c, k) in (0..from).flat_map(|c| (0..9).map(move |k| (c, k))) {
                    let (yy, xx) = (y + k / 3, x0 + k % 3);
                    if (1..=h).contains(&yy) && (1..=w).contains(&xx) {
                        let at = ((image * from + c) * h + yy - 1) * w + xx - 1;
                        sum += f64::from(x.data[at]) * f64::from(weights[(o * from + c) * 9 + k]);
                    }
                }
                right.push(sum.max(0.0) as f32);
            }
        }
        let out = got(run(backend, &mut session, vec![x]))?;
        holds(out.len() == 1 && out[0].shape == [n, to, h, w], || format!("{:?}", out[0].shape))?;
        like_values(&out[0].data, &right, tolerance)?;
    }
    Ok(())
}

fn half_weights<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let model = Model::new()
        .input("x", &[1, 4])
        .half("h", &[4], &[0x3c00, 0xc000, 0x3555, 0x7bff])
        .node("Cast", &["h"], &["w"], &[Attribute::Int("to", 1)])
        .node("Mul", &["x", "w"], &["y"], &[])
        .output("y", &[1, 4]);
    let mut session = got(load(backend, &model, &Contract::default()))?;
    let out = got(run(backend, &mut session, vec![Tensor::filled(&[1, 4], 1.0)]))?;
    like_values(&out[0].data, &[1.0, -2.0, 0.333_251_95, 65504.0], tolerance)
}

fn same_bits<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let model = Model::convolution(16, 24, &made_up(&[24, 16, 3, 3]).data, &made_up(&[24]).data);
    let mut session = got(load(backend, &model, &Contract::default()))?;
    let x = made_up(&[1, 16, 40, 56]);
    let first = got(run(backend, &mut session, vec![x.clone()]))?;
    for _ in 0..5 {
        // Another shape between, so that nothing is left of it.
        got(run(backend, &mut session, vec![made_up(&[2, 16, 9, 7])]))?;
        let again = got(run(backend, &mut session, vec![x.clone()]))?;
        holds(again == first, || "two runs differ".into())?;
    }
    Ok(())
}

fn outputs_in_order<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let model = Model::new()
        .input("a", &[2])
        .input("b", &[2])
        .node("Add", &["a", "b"], &["sum"], &[])
        .node("Sub", &["a", "b"], &["difference"], &[])
        .node("Mul", &["a", "b"], &["product"], &[])
        .output("sum", &[2])
        .output("difference", &[2])
        .output("product", &[2]);
    let wanted = contract(
        vec![port("b", &[2]), port("a", &[2])],
        vec![port("product", &[2]), port("sum", &[2])],
    );
    let mut session = got(load(backend, &model, &wanted))?;
    let inputs = || [[1.0, 2.0], [10.0, 30.0]].map(|v| Tensor { shape: vec![2], data: v.to_vec() });
    let out = got(run(backend, &mut session, inputs().to_vec()))?;
    holds(out.len() == 2, || format!("{} outputs", out.len()))?;
    like_values(&out[0].data, &[10.0, 60.0], tolerance)?;
    like_values(&out[1].data, &[11.0, 32.0], tolerance)?;
    let by_position = contract(vec![port("", &[2]), port("", &[])], vec![port("", &[2]); 2]);
    let mut session = got(load(backend, &model, &by_position))?;
    let out = got(run(backend, &mut session, inputs().to_vec()))?;
    like_values(&out[1].data, &[-9.0, -28.0], tolerance)
}

fn declared_shapes<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let session = got(load(backend, &Model::identity(&[0, 3, 8, 0]), &Contract::default()))?;
    let dims = [Dim::Any, Dim::Fixed(3), Dim::Fixed(8), Dim::Any];
    for (ports, name) in [(session.inputs(), "x"), (session.outputs(), "y")] {
        let right = ports.len() == 1 && ports[0].name == name && ports[0].shape == dims;
        holds(right, || format!("{ports:?}"))?;
    }
    Ok(())
}

fn not_finite<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let mut session = got(load(backend, &Model::not_a_number(&[1, 8]), &Contract::default()))?;
    let answer = run(backend, &mut session, vec![made_up(&[1, 8])]);
    holds(matches!(answer, Err(Error::NotFinite { .. })), || format!("{answer:?}"))?;
    let root = Model::new().input("x", &[0]).node("Exp", &["x"], &["y"], &[]).output("y", &[0]);
    let mut session = got(load(backend, &root, &Contract::default()))?;
    let mut x = Tensor::filled(&[1000], 1.0);
    got(run(backend, &mut session, vec![x.clone()]))?;
    x.data[777] = 1000.0;
    let answer = run(backend, &mut session, vec![x]);
    holds(matches!(answer, Err(Error::NotFinite { .. })), || "e^1000 passes".into())
}

fn broken_at_load<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let model = Model::identity(&[1, 3, 0, 0]);
    let fits = contract(vec![port("x", &[1, 3, 64, 64])], vec![port("y", &[0, 3, 64, 64])]);
    got(load(backend, &model, &fits))?;
    let x = || vec![port("x", &[])];
    let wrong = [
        ("name of an input", contract(vec![port("image", &[])], Vec::new())),
        ("name of an output", contract(x(), vec![port("z", &[])])),
        ("number of inputs", contract(vec![port("x", &[]), port("", &[])], Vec::new())),
        ("number of outputs", contract(x(), vec![port("", &[]), port("", &[])])),
        ("channels", contract(vec![port("x", &[1, 4, 0, 0])], Vec::new())),
        ("axes", contract(vec![port("x", &[1, 3, 0])], Vec::new())),
        ("shape of an output", contract(x(), vec![port("y", &[2, 3, 0, 0])])),
    ];
    for (what, contract) in wrong {
        let answer = load(backend, &model, &contract).map(|_| ());
        let refused = matches!(answer, Err(Error::Contract { .. }));
        holds(refused, || format!("the wrong {what} gives {answer:?}"))?;
    }
    Ok(())
}

fn broken_at_run<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    // The file says nothing about the output's shape.
    let model = Model::new().input("x", &[0, 4]).node("Identity", &["x"], &["y"], &[]);
    let model = model.output("y", &[0, 0]);
    let wanted = contract(vec![port("x", &[0, 4])], vec![port("y", &[2, 4])]);
    let mut session = got(load(backend, &model, &wanted))?;
    got(run(backend, &mut session, vec![made_up(&[2, 4])]))?;
    let answer = run(backend, &mut session, vec![made_up(&[3, 4])]);
    holds(matches!(answer, Err(Error::Contract { .. })), || format!("{answer:?}"))?;
    got(run(backend, &mut session, vec![made_up(&[2, 4])])).map(|_| ())
}

fn bad_inputs<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let weights = made_up(&[2, 3, 3, 3]).data;
    let model = Model::convolution(3, 2, &weights, &[0.0, 0.0]);
    let mut session = got(load(backend, &model, &Contract::default()))?;
    let cases: [Vec<Tensor>; 4] = [
        Vec::new(),
        vec![made_up(&[1, 3, 4, 4]), made_up(&[1])],
        vec![made_up(&[1, 4, 4, 4])],
        vec![made_up(&[3, 4, 4])],
    ];
    for case in cases {
        let shapes: Vec<_> = case.iter().map(|t| t.shape.clone()).collect();
        let answer = run(backend, &mut session, case);
        let refused = matches!(answer, Err(Error::Run { .. } | Error::Contract { .. }));
        holds(refused, || format!("{shapes:?} gives {answer:?}"))?;
    }
    got(run(backend, &mut session, vec![made_up(&[1, 3, 4, 4])])).map(|_| ())
}

fn bad_files<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let good = Model::convolution(3, 2, &made_up(&[2, 3, 3, 3]).data, &[0.0, 0.0]).bytes();
    let mut files = vec![Vec::new(), b"%PDF-1.7".to_vec(), vec![0xff; 4096]];
    files.extend([good.len() / 2, good.len() - 1].map(|n| good[..n].to_vec()));
    for file in files {
        let length = file.len();
        let answer = backend.load(&manifest()?, &Contract::default(), &file).map(|_| ());
        let refused = matches!(answer, Err(Error::Load { .. }));
        holds(refused, || format!("{length} bytes give {answer:?}"))?;
    }
    Ok(())
}

//! Tests only: the best level of this processor gives what plain code gives.

use crate::ops::{Loose, LooseAct, Source};
use crate::simd::bands::{Residual, With};
use crate::simd::chain::{self, Chain};
use crate::simd::dense::{self, Border, Image, Window};
use crate::simd::team::Team;
use crate::simd::{Lane, Level, depthwise, floats, spread};

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 331 + 13) % 1009) as f32 / 504.5 - 1.0).collect()
}

fn loose(window: Window, (inputs, outputs): (usize, usize), groups: usize, act: LooseAct) -> Loose {
    let taps = window.kernel.0 * window.kernel.1;
    Loose {
        weights: values(inputs * outputs * taps, 1),
        bias: values(outputs, 2),
        inputs,
        groups,
        window,
        border: Border::Zero,
        act,
        after: false,
        transposed: false,
        flat: false,
    }
}

fn square(kernel: usize, stride: usize, pads: [usize; 4]) -> Window {
    Window { kernel: (kernel, kernel), stride: (stride, stride), dilation: (1, 1), pads }
}

/// Runs the same work at both levels and on one thread and three, and compares.
fn same(what: &str, lanes: usize, work: impl Fn(&mut With<'_>, &mut [Lane])) {
    let run = |level: Level, threads: usize| {
        let (team, mut scratch) = (Team::new(threads), vec![Lane([f32::NAN; 8]); 1 << 18]);
        let mut y = vec![Lane([0.25; 8]); lanes];
        work(&mut With { level, team: &team, scratch: &mut scratch }, &mut y);
        y
    };
    let (plain, best) = (run(Level::PLAIN, 1), run(Level::best(), 1));
    for (i, (a, b)) in floats(&plain).iter().zip(floats(&best)).enumerate() {
        assert!((a - b).abs() < 2e-4, "{what}: {b} where {a} is right, at {i}");
    }
    assert!(plain.iter().any(|lane| *lane != plain[0]), "{what} computes something");
    assert!(run(Level::best(), 3) == best, "{what} differs on three threads");
}

#[test]
fn dense_convolutions_are_the_same_at_every_level() {
    let size = (13, 21);
    for (kernel, stride, pads) in
        [(1, 1, [0; 4]), (3, 1, [1; 4]), (3, 2, [0, 1, 2, 1]), (1, 2, [0; 4])]
    {
        for (inputs, outputs) in [(8, 8), (16, 24), (13, 40), (3, 16)] {
            let window = square(kernel, stride, pads);
            let (h, w) = window.output(size).unwrap();
            let slopes = LooseAct::Slope(values(outputs, 5));
            let of = loose(window, (inputs, outputs), 1, slopes);
            let lanes = outputs.div_ceil(8) * h * w;
            let what = format!("{kernel} {stride} {inputs} {outputs}");
            let x = values(inputs.div_ceil(8) * 8 * size.0 * size.1, 3);
            let blocked = Image::blocked(&x, inputs, size);
            let packed = of.dense(Source::Blocked);
            same(&what, lanes, |with, y| {
                dense::convolve(with, &packed, &blocked, 0, y, Residual::InPlace(1));
            });
            let planar = Image::planar(&x, inputs, size);
            let packed = of.dense(Source::Planar);
            same(&what, lanes, |with, y| {
                dense::convolve(with, &packed, &planar, 0, y, Residual::None);
            });
            let together = Image::interleaved(&x, inputs, size);
            let packed = of.dense(Source::Interleaved);
            same(&what, lanes, |with, y| {
                dense::convolve(with, &packed, &together, 0, y, Residual::None);
            });
        }
    }
}

#[test]
fn chains_are_the_same_at_every_level() {
    let size = (40, 17);
    let x = values(16 * size.0 * size.1, 3);
    let image = Image::blocked(&x, 16, size);
    for (kernel, stride, pads) in [(3, 1, [1; 4]), (3, 2, [0, 0, 1, 1]), (5, 1, [2; 4])] {
        for (wide, act) in
            [(16, LooseAct::None), (72, LooseAct::HardSwish), (37, LooseAct::Clip(0.0, 6.0))]
        {
            let window = square(kernel, stride, pads);
            let (h, w) = window.output(size).unwrap();
            let filter = loose(window, (1, wide), wide, act.clone());
            let narrow = loose(Window::POINT, (wide, 24), 1, LooseAct::None);
            let widen = loose(Window::POINT, (16, wide), 1, act);
            for widen in [Some(widen.dense(Source::Blocked)), None] {
                if widen.is_none() && wide != 16 {
                    continue;
                }
                let chain = Chain {
                    widen,
                    depthwise: filter.depthwise(),
                    narrow: narrow.dense(Source::Blocked),
                    channels: wide,
                };
                same(&format!("{kernel} {stride} {wide}"), 3 * h * w, |with, y| {
                    chain::convolve(with, &chain, &image, 0, y, Residual::InPlace(3));
                });
            }
        }
    }
}

#[test]
fn depthwise_and_transposed_convolutions_are_the_same_at_every_level() {
    let size = (11, 19);
    let x = values(24 * size.0 * size.1, 3);
    let image = Image::blocked(&x, 24, size);
    for (kernel, stride, pads) in
        [(3, 1, [1; 4]), (3, 2, [1; 4]), (5, 2, [1, 1, 2, 2]), (7, 1, [0; 4])]
    {
        let window = square(kernel, stride, pads);
        let (h, w) = window.output(size).unwrap();
        let of = loose(window, (1, 24), 24, LooseAct::Slope(vec![0.2])).depthwise();
        same(&format!("depthwise {kernel} {stride}"), 3 * h * w, |with, y| {
            depthwise::convolve(with, &of, &image, 0, y, Residual::InPlace(3));
        });
    }
    let mut of = loose(square(2, 2, [0; 4]), (24, 9), 1, LooseAct::None);
    of.transposed = true;
    let places = of.spread();
    same("transposed", 2 * 4 * size.0 * size.1, |with, y| {
        spread::convolve(with, &places, (2, 2), &image, 0, y, Residual::None);
    });
}

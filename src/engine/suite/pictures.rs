//! From pictures to tensors and back.

use mien_pixels::geometry::{Affine2, Size};
use mien_pixels::view::Rgb;

use super::{Check, Checked, Tolerance, got, holds, like_bytes, like_values, picture, texture};
use crate::backend::{Backend, Layout, Normalise};
use crate::tensor::Tensor;

pub(super) fn checks<B: Backend>() -> Vec<(&'static str, Check<B>)> {
    vec![
        ("a picture comes back as it was, of any size", round_trip),
        ("a letterbox of the picture's own size keeps every value, in any layout", letterbox_plain),
        ("a letterbox averages when it shrinks, and the rest of the canvas is black", shrinks),
        ("a letterbox is bilinear when it grows", grows),
        ("a crop moves, turns and repeats the border", crops),
        ("a crop that shrinks averages", crop_shrinks),
        ("a crop is the same as a picture and as a tensor", crop_alike),
        ("a generator's output is scaled, rounded and clipped", to_picture),
        ("the polyphase split follows its index rule, and the join undoes it", polyphase),
        ("what is impossible is refused", refusals),
    ]
}

/// The values as they are.
const PLAIN: Normalise =
    Normalise { mean: [0.0; 3], scale: [1.0; 3], bgr: false, layout: Layout::Nchw };

fn letterboxed<B: Backend>(
    backend: &B,
    picture: &Rgb,
    canvas: Size,
    fit: Size,
    normalise: &Normalise,
) -> std::result::Result<Tensor, String> {
    let picture = got(backend.adopt(picture.clone()))?;
    let tensor = got(backend.letterbox(&picture, canvas, fit, normalise))?;
    got(backend.download(&tensor))
}

/// Planar values of a picture from a function of channel, x and y.
fn planar(width: u32, height: u32, at: impl Fn(usize, u32, u32) -> f32) -> Vec<f32> {
    let mut out = Vec::new();
    for c in 0..3 {
        for y in 0..height {
            out.extend((0..width).map(|x| at(c, x, y)));
        }
    }
    out
}

fn levels(tolerance: &Tolerance) -> Tolerance {
    Tolerance { values: tolerance.values + f32::from(tolerance.levels) / 255.0, ..*tolerance }
}

fn round_trip<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    for (w, h) in [(1, 1), (7, 3), (64, 48), (1, 200), (333, 1)] {
        let rgb = picture(w, h, texture);
        let held = got(backend.adopt(rgb.clone()))?;
        holds(backend.size(&held) == Size::new(w, h), || format!("{:?}", backend.size(&held)))?;
        let copy = got(backend.duplicate(&held))?;
        holds(got(backend.release(held))? == rgb, || format!("{w}x{h} differs"))?;
        holds(got(backend.release(copy))? == rgb, || format!("the copy of {w}x{h} differs"))?;
    }
    let tensor = Tensor { shape: vec![2, 1, 3], data: vec![1.0, -2.5, 0.0, 1e9, -1e-9, 7.0] };
    let held = got(backend.upload(tensor.clone()))?;
    holds(got(backend.download(&held))? == tensor, || "a tensor differs".into())
}

fn letterbox_plain<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let (w, h) = (9, 5);
    let (rgb, canvas) = (picture(w, h, texture), Size::new(12, 8));
    let (mean, scale) = ([123.0, 116.0, 104.0], [1.0 / 58.0, 1.0 / 57.0, 1.0 / 57.5]);
    for (bgr, layout) in [(false, Layout::Nchw), (true, Layout::Nchw), (true, Layout::Nhwc)] {
        let normalise = Normalise { mean, scale, bgr, layout };
        let out = letterboxed(backend, &rgb, canvas, Size::new(w, h), &normalise)?;
        let value = |c: usize, x: u32, y: u32| {
            let from = if bgr { 2 - c } else { c };
            let level = if x < w && y < h { texture(x, y)[from] } else { 0 };
            (f32::from(level) - mean[c]) * scale[c]
        };
        let (shape, right) = match layout {
            Layout::Nchw => ([1, 3, 8, 12], planar(12, 8, value)),
            Layout::Nhwc => {
                let places = (0..96 * 3).map(|i| value(i % 3, i as u32 / 3 % 12, i as u32 / 36));
                ([1, 8, 12, 3], places.collect())
            }
        };
        holds(out.shape == shape, || format!("{:?}", out.shape))?;
        like_values(&out.data, &right, tolerance).map_err(|e| format!("{normalise:?}: {e}"))?;
    }
    Ok(())
}

fn shrinks<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let rgb = picture(24, 12, texture);
    let out = letterboxed(backend, &rgb, Size::new(10, 6), Size::new(8, 6), &PLAIN)?;
    let right = planar(10, 6, |c, x, y| {
        let cell = (0..6).map(|i| f32::from(texture(x * 3 + i % 3, y * 2 + i / 3)[c]));
        if x < 8 { cell.sum::<f32>() / 6.0 } else { 0.0 }
    });
    like_values(&out.data, &right, &levels(tolerance))
}

fn grows<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let (w, h) = (10, 4);
    let ramp = picture(w, h, |x, y| [20 * x as u8, 40 * y as u8, 100]);
    let size = Size::new(40, 8);
    let out = letterboxed(backend, &ramp, size, size, &PLAIN)?;
    let at = |x: u32, n: u32, of: u32| {
        let place = (x as f32 + 0.5) * n as f32 / of as f32 - 0.5;
        place.clamp(0.0, n as f32 - 1.0)
    };
    let right = planar(40, 8, |c, x, y| [20.0 * at(x, w, 40), 40.0 * at(y, h, 8), 100.0][c]);
    like_values(&out.data, &right, &levels(tolerance))
}

/// Bilinear with the border repeated, in floats.
fn sample(rgb: &Rgb, x: f64, y: f64, c: usize) -> f32 {
    let size = rgb.size();
    let x = x.clamp(0.0, f64::from(size.width - 1));
    let y = y.clamp(0.0, f64::from(size.height - 1));
    let (x0, y0) = (x.floor(), y.floor());
    let at = |x: f64, y: f64| {
        let (x, y) = (x.min(f64::from(size.width - 1)), y.min(f64::from(size.height - 1)));
        f64::from(rgb.view().pixel(x as u32, y as u32)[c])
    };
    let (fx, fy) = (x - x0, y - y0);
    let top = at(x0, y0) * (1.0 - fx) + at(x0 + 1.0, y0) * fx;
    let bottom = at(x0, y0 + 1.0) * (1.0 - fx) + at(x0 + 1.0, y0 + 1.0) * fx;
    (top * (1.0 - fy) + bottom * fy) as f32
}

fn crops<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let rgb = picture(40, 30, texture);
    let held = got(backend.adopt(rgb.clone()))?;
    let maps = [
        Affine2::IDENTITY,
        Affine2::translate(7.0, 3.0),
        Affine2::translate(-5.5, 20.25),
        Affine2::rotate(0.4).then(&Affine2::translate(12.0, 2.0)),
        Affine2::scale(1.3, 0.4).then(&Affine2::translate(3.0, 3.0)),
    ];
    let (w, h) = (16, 12);
    let out = got(backend.crop_batch(&held, &maps, Size::new(w, h), &PLAIN))?;
    let out = got(backend.download(&out))?;
    holds(out.shape == [5, 3, 12, 16], || format!("{:?}", out.shape))?;
    for (i, (map, values)) in maps.iter().zip(out.data.chunks(3 * 12 * 16)).enumerate() {
        let right = planar(w, h, |c, x, y| {
            let (x, y) = (f64::from(x), f64::from(y));
            let to = (map.a * x + map.b * y + map.c, map.d * x + map.e * y + map.f);
            sample(&rgb, to.0, to.1, c)
        });
        let close = levels(tolerance);
        like_values(values, &right, &close).map_err(|e| format!("map {i}: {e}"))?;
    }
    Ok(())
}

fn crop_shrinks<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    // One pixel wide stripes: plain bilinear sampling would give stripes or one of the two.
    let held = got(backend.adopt(picture(400, 400, |x, _| [255 * (x % 2) as u8; 3])))?;
    let maps = [Affine2::scale(8.0, 8.0).then(&Affine2::translate(20.0, 20.0))];
    let out = got(backend.crop_batch(&held, &maps, Size::new(40, 40), &PLAIN))?;
    let values = got(backend.download(&out))?.data;
    let worst = values.iter().map(|v| (v - 127.5).abs());
    let worst = worst.fold(0.0, f32::max);
    holds(worst < 24.0, || format!("stripes of {worst} are left"))
}

fn crop_alike<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let held = got(backend.adopt(picture(50, 40, texture)))?;
    let map = Affine2::rotate(-0.7).then(&Affine2::translate(10.0, 25.0));
    let size = Size::new(20, 20);
    let tensor = got(backend.crop_batch(&held, &[map], size, &PLAIN))?;
    let tensor = got(backend.download(&tensor))?;
    let crop = got(backend.release(got(backend.crop(&held, &map, size))?))?;
    let right = planar(20, 20, |c, x, y| f32::from(crop.view().pixel(x, y)[c]));
    like_values(&tensor.data, &right, tolerance)
}

fn to_picture<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let data: Vec<f32> = (0..3 * 4 * 5).map(|i| i as f32 / 20.0 - 1.0).collect();
    let tensor = got(backend.upload(Tensor { shape: vec![1, 3, 4, 5], data: data.clone() }))?;
    let out = got(backend.release(got(backend.to_picture(&tensor, 127.5, 127.5))?))?;
    holds(out.size() == Size::new(5, 4), || format!("{:?}", out.size()))?;
    let right: Vec<u8> = (0..20)
        .flat_map(|i| [data[i], data[20 + i], data[40 + i]])
        .map(|v| (v * 127.5 + 127.5).round().clamp(0.0, 255.0) as u8)
        .collect();
    like_bytes(out.bytes_all(), &right, tolerance)
}

fn polyphase<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let (k, n) = (3, 4);
    let side = k * n;
    let data: Vec<f32> = (0..3 * side * side).map(|i| i as f32).collect();
    let whole = got(backend.upload(Tensor { shape: vec![1, 3, side, side], data: data.clone() }))?;
    let parts = got(backend.polyphase_split(&whole, k))?;
    let out = got(backend.download(&parts))?;
    holds(out.shape == [k * k, 3, n, n], || format!("{:?}", out.shape))?;
    for (i, v) in out.data.iter().enumerate() {
        let (x, y, c, t) = (i % n, i / n % n, i / (n * n) % 3, i / (3 * n * n));
        let right = data[(c * side + y * k + t / k) * side + x * k + t % k];
        holds(*v == right, || format!("part {t} at {x},{y} is {v} where {right} is right"))?;
    }
    let joined = got(backend.download(&got(backend.polyphase_join(&parts, k))?))?;
    let undone = joined.shape == [1, 3, side, side] && joined.data == data;
    holds(undone, || "the join does not undo the split".into())
}

fn refusals<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let held = got(backend.adopt(picture(20, 20, texture)))?;
    let size = Size::new(8, 8);
    let nan = Affine2 { b: f64::NAN, ..Affine2::IDENTITY };
    let bad = Normalise { scale: [1.0, f32::INFINITY, 1.0], ..PLAIN };
    let upload = |shape: &[usize], v: f32| got(backend.upload(Tensor::filled(shape, v)));
    let wide = upload(&[1, 3, 8, 9], 0.0)?;
    let huge = Size::new(1 << 20, 1 << 20);
    let refused = [
        (
            "a fit beyond the canvas",
            backend.letterbox(&held, size, Size::new(9, 8), &PLAIN).is_err(),
        ),
        ("an empty fit", backend.letterbox(&held, size, Size::new(0, 8), &PLAIN).is_err()),
        ("a huge canvas", backend.letterbox(&held, huge, size, &PLAIN).is_err()),
        ("an infinite scale", backend.letterbox(&held, size, size, &bad).is_err()),
        ("no map", backend.crop_batch(&held, &[], size, &PLAIN).is_err()),
        ("a NaN in a map", backend.crop_batch(&held, &[nan], size, &PLAIN).is_err()),
        ("a NaN in a crop", backend.crop(&held, &nan, size).is_err()),
        ("a huge crop", backend.crop(&held, &Affine2::IDENTITY, huge).is_err()),
        ("four channels", backend.to_picture(&upload(&[1, 4, 8, 8], 0.0)?, 1.0, 0.0).is_err()),
        ("two pictures", backend.to_picture(&upload(&[2, 3, 8, 8], 0.0)?, 1.0, 0.0).is_err()),
        ("NaN pixels", backend.to_picture(&upload(&[1, 3, 8, 8], f32::NAN)?, 1.0, 0.0).is_err()),
        ("an uneven split", backend.polyphase_split(&wide, 2).is_err()),
        ("a split in none", backend.polyphase_split(&wide, 0).is_err()),
        ("a join of too few", backend.polyphase_join(&wide, 2).is_err()),
    ];
    match refused.iter().find(|(_, refused)| !refused) {
        Some((what, _)) => Err(format!("{what} passes")),
        None => Ok(()),
    }
}

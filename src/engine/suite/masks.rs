//! Masks: shapes, and what is done to them.

use mien_pixels::geometry::{Affine2, Point, Roi, Size};
use mien_pixels::view::Grey;

use super::{Check, Checked, Tolerance, got, grey, holds, like_bytes, picture, roi};
use crate::backend::{Backend, Feather, Likeness, Shape};
use crate::tensor::Tensor;

pub(super) fn checks<B: Backend>() -> Vec<(&'static str, Check<B>)> {
    vec![
        ("a polygon is 0 outside, 255 inside, smooth between", polygon),
        ("an ellipse is 0 outside, 255 inside, smooth between", ellipse),
        ("a crop's box is exactly 0 at its edge", crop_box),
        ("a map is laid over the picture, bilinear", map),
        ("values at vertices are linear between them", vertices),
        ("shapes meet in their minimum", shapes_meet),
        ("meet, join and invert are minimum, maximum and complement", combine),
        ("likeness tells skin from what is not", likeness),
        ("what can't be a mask is refused or empty", refusals),
    ]
}

fn drawn<B: Backend>(
    backend: &B,
    shapes: &[Shape<&B::Tensor>],
    roi: Roi,
) -> std::result::Result<Grey, String> {
    let alpha = got(backend.release_alpha(got(backend.mask(shapes, roi))?))?;
    holds(alpha.size() == roi.size(), || format!("a mask of {:?}", alpha.size()))?;
    Ok(alpha)
}

/// What smoothstep over `width` pixels makes of a distance inside an outline.
fn rises(distance: f32, width: f32) -> u8 {
    let t = (distance / width).clamp(0.0, 1.0);
    (t * t * (3.0 - 2.0 * t) * 255.0).round() as u8
}

fn square<T>(x0: f32, y0: f32, x1: f32, y1: f32, width: f32) -> Shape<T> {
    let corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)];
    let points = corners.map(|(x, y)| Point::new(x, y)).to_vec();
    Shape::Polygon { points, feather: Feather { width } }
}

fn polygon<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let at = roi(5, 3, 50, 40);
    let alpha = drawn(backend, &[square(10.0, 8.0, 45.0, 38.0, 6.0)], at)?;
    let right = grey(50, 40, |x, y| {
        let (x, y) = ((x + at.x) as f32, (y + at.y) as f32);
        rises((x - 10.0).min(45.0 - x).min(y - 8.0).min(38.0 - y), 6.0)
    });
    like_bytes(alpha.bytes_all(), right.bytes_all(), tolerance)
}

fn ellipse<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let (a, b, angle) = (20.0, 12.0, 0.5_f64);
    let to_picture =
        Affine2::scale(a, b).then(&Affine2::rotate(angle)).then(&Affine2::translate(32.0, 30.0));
    let shape = Shape::Ellipse { to_picture, feather: Feather { width: 4.0 } };
    let alpha = drawn(backend, &[shape], roi(0, 0, 64, 60))?;
    let radius = |x: f64, y: f64| {
        let (dx, dy) = (x - 32.0, y - 30.0);
        let (u, v) = (dx * angle.cos() + dy * angle.sin(), dy * angle.cos() - dx * angle.sin());
        (u / a).hypot(v / b)
    };
    for (x, y) in (0..60).flat_map(|y| (0..64).map(move |x| (x, y))) {
        let (r, v) = (radius(f64::from(x), f64::from(y)), alpha.view().pixel(x, y)[0]);
        holds(r < 1.0 || v == 0, || format!("{v} at {x},{y} outside"))?;
        // Four pixels inside, wherever: the short axis has 12.
        holds(r > 1.0 - 4.5 / 12.0 || v == 255, || format!("{v} at {x},{y} inside"))?;
    }
    let edge: Vec<u8> = (0..13)
        .map(|i| {
            let along = 12.0 - f64::from(i);
            let (x, y) = (32.0 - along * angle.sin(), 30.0 + along * angle.cos());
            alpha.view().pixel(x.round() as u32, y.round() as u32)[0]
        })
        .collect();
    holds(edge.windows(2).all(|w| w[0] <= w[1]), || format!("it does not rise: {edge:?}"))
}

fn crop_box<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    for (blur, padding) in [(0.3, [0.0; 4]), (0.1, [0.0; 4]), (0.3, [10.0, 0.0, 0.0, 5.0])] {
        let shape = |to_picture| Shape::CropBox { to_picture, side: 128.0, padding, blur };
        let alpha = drawn(backend, &[shape(Affine2::IDENTITY)], roi(0, 0, 140, 140))?;
        let at = |x: u32, y: u32| alpha.view().pixel(x, y)[0];
        for i in 0..140 {
            let edge = [at(i, 0), at(i, 127), at(0, i), at(127, i), at(i, 128), at(139, i)];
            holds(edge == [0; 6], || format!("blur {blur}: {edge:?} at {i}"))?;
        }
        holds(at(64, 64) == 255, || format!("blur {blur}: {} in the middle", at(64, 64)))?;
        let row: Vec<u8> = (0..65).map(|x| at(x, 64)).collect();
        holds(row.windows(2).all(|w| w[0] <= w[1]), || format!("blur {blur}: {row:?}"))?;
        // Turned about the middle, nothing is left outside either.
        let turned = Affine2::translate(-63.5, -63.5)
            .then(&Affine2::rotate(0.6))
            .then(&Affine2::translate(100.0, 100.0));
        let alpha = drawn(backend, &[shape(turned)], roi(0, 0, 200, 200))?;
        let back = turned.inverse().ok_or("a map without inverse")?;
        for (x, y) in (0..200).flat_map(|y| (0..200).map(move |x| (x, y))) {
            let p = back.apply(Point::new(x as f32, y as f32));
            let outside = p.x <= 0.0 || p.y <= 0.0 || p.x >= 127.0 || p.y >= 127.0;
            let v = alpha.view().pixel(x, y)[0];
            holds(!outside || v == 0, || format!("blur {blur}: {v} at {x},{y}, turned"))?;
        }
    }
    Ok(())
}

fn map<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let data: Vec<f32> = (0..12).map(|i| (i % 4) as f32 / 4.0 + (i / 4) as f32 / 10.0).collect();
    let tensor = got(backend.upload(Tensor { shape: vec![1, 1, 3, 4], data }))?;
    let to_picture = Affine2::scale(8.0, 6.0).then(&Affine2::translate(4.0, 2.0));
    let shape = Shape::Map { tensor: &tensor, to_picture };
    let alpha = drawn(backend, &[shape], roi(2, 0, 30, 20))?;
    let right = grey(30, 20, |x, y| {
        let u = ((x as f32 + 2.0 - 4.0) / 8.0).clamp(0.0, 3.0);
        let v = ((y as f32 - 2.0) / 6.0).clamp(0.0, 2.0);
        ((u / 4.0 + v / 10.0) * 255.0).round() as u8
    });
    like_bytes(alpha.bytes_all(), right.bytes_all(), tolerance)
}

fn vertices<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let points = [(0.0, 0.0), (40.0, 0.0), (40.0, 40.0), (0.0, 40.0)];
    let points = points.map(|(x, y)| Point::new(x, y)).to_vec();
    let shape = Shape::Vertices {
        points,
        triangles: vec![[0, 1, 2], [0, 2, 3]],
        values: vec![0.0, 1.0, 1.0, 0.0],
    };
    let alpha = drawn(backend, &[shape], roi(0, 0, 60, 41))?;
    let value = |x: u32| (x as f32 / 40.0 * 255.0).round() as u8;
    let right = grey(60, 41, |x, _| if x <= 40 { value(x) } else { 0 });
    like_bytes(alpha.bytes_all(), right.bytes_all(), tolerance)
}

fn shapes_meet<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let (a, b) = (square(2.0, 2.0, 30.0, 25.0, 9.0), square(10.0, 5.0, 38.0, 28.0, 7.0));
    let at = roi(0, 0, 40, 30);
    let one = drawn(backend, std::slice::from_ref(&a), at)?;
    let two = drawn(backend, std::slice::from_ref(&b), at)?;
    let both = drawn(backend, &[a, b], at)?;
    let least = one.bytes_all().iter().zip(two.bytes_all()).map(|(a, b)| *a.min(b));
    holds(both.bytes_all().iter().copied().eq(least), || "not the minimum".into())?;
    backend.spare(got(backend.mask(&[square(0.0, 0.0, 70.0, 70.0, 9.0)], roi(0, 0, 70, 70)))?);
    let none = drawn(backend, &[], at)?;
    holds(none.bytes_all().iter().all(|v| *v == 255), || "no shape is not 255".into())
}

fn combine<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let one = grey(33, 7, |x, y| (x * 7 + y * 31) as u8);
    let two = grey(33, 7, |x, y| (200 - x * 3 + y * 5) as u8);
    let held = |grey: &Grey| got(backend.adopt_alpha(grey.clone()));
    let other = held(&two)?;
    let pairs = || one.bytes_all().iter().zip(two.bytes_all());
    let mut alpha = held(&one)?;
    got(backend.meet(&mut alpha, &other))?;
    let is = got(backend.release_alpha(alpha))?;
    let least = pairs().map(|(a, b)| *a.min(b));
    holds(is.bytes_all().iter().copied().eq(least), || "meet is not the minimum".into())?;
    let mut alpha = held(&one)?;
    got(backend.join(&mut alpha, &other))?;
    let is = got(backend.release_alpha(alpha))?;
    let most = pairs().map(|(a, b)| *a.max(b));
    holds(is.bytes_all().iter().copied().eq(most), || "join is not the maximum".into())?;
    let mut alpha = held(&one)?;
    got(backend.invert(&mut alpha))?;
    let is = got(backend.release_alpha(alpha))?;
    let rest = one.bytes_all().iter().map(|v| 255 - v);
    holds(is.bytes_all().iter().copied().eq(rest), || "invert is not 255 - v".into())?;
    let other = got(backend.adopt_alpha(grey(7, 33, |_, _| 0)))?;
    let (meet, join) =
        (backend.meet(&mut held(&one)?, &other), backend.join(&mut held(&one)?, &other));
    holds(meet.is_err() && join.is_err(), || "two sizes pass".into())
}

fn likeness<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let stripe = |x: u32| (40..60).contains(&x);
    let rgb = picture(100, 80, |x, y| {
        let grain = ((x * 7 + y * 13) % 5) as u8;
        if stripe(x) { [30, 30, 40] } else { [196 + grain, 150 + grain, 130 + grain] }
    });
    let held = got(backend.adopt(rgb))?;
    let at = roi(10, 0, 90, 80);
    let sample = got(backend.adopt_alpha(grey(90, 80, |x, _| 255 * u8::from(x < 25))))?;
    let like = Likeness { near: 3.0, far: 6.0, grow: 0.0, soft: 0.2 };
    let alpha = got(backend.release_alpha(got(backend.likeness(&held, at, &sample, &like))?))?;
    for (x, y) in [(5, 10), (20, 70), (70, 40), (85, 5)] {
        let v = alpha.view().pixel(x, y)[0];
        holds(v > 200, || format!("{v} at {x},{y}, which is like the sample"))?;
    }
    for (x, y) in [(36, 10), (40, 40), (44, 70)] {
        let v = alpha.view().pixel(x, y)[0];
        holds(v < 55, || format!("{v} at {x},{y}, which is unlike the sample"))?;
    }
    let outside = backend.likeness(&held, roi(11, 0, 90, 80), &sample, &like);
    holds(outside.is_err(), || "a region outside passes".into())
}

fn refusals<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let at = roi(0, 0, 16, 16);
    let huge = roi(0, 0, 1 << 20, 1 << 20);
    holds(backend.mask(&[], huge).is_err(), || "a huge mask passes".into())?;
    holds(backend.mask(&[], roi(0, 0, 0, 16)).is_err(), || "an empty mask passes".into())?;
    let tensor = got(backend.upload(Tensor::filled(&[4, 4], f32::NAN)))?;
    let shape = Shape::Map { tensor: &tensor, to_picture: Affine2::scale(4.0, 4.0) };
    holds(backend.mask(&[shape], at).is_err(), || "a map of NaN passes".into())?;
    let flat = Affine2::scale(0.0, 1.0);
    let nowhere = Affine2 { c: f64::NAN, ..Affine2::IDENTITY };
    let feather = Feather { width: 2.0 };
    let degenerate: [Shape<&B::Tensor>; 5] = [
        Shape::Ellipse { to_picture: flat, feather },
        Shape::Ellipse { to_picture: nowhere, feather },
        Shape::CropBox { to_picture: flat, side: 16.0, padding: [0.0; 4], blur: 0.3 },
        Shape::Polygon { points: vec![Point::new(1.0, 1.0), Point::new(9.0, 9.0)], feather },
        square(1.0, f32::NAN, 15.0, 15.0, 2.0),
    ];
    for (i, shape) in degenerate.into_iter().enumerate() {
        // An error, or nothing is inside: never a mask that covers.
        if let Ok(alpha) = backend.mask(&[shape], at) {
            let alpha = got(backend.release_alpha(alpha))?;
            let covers = alpha.bytes_all().iter().any(|v| *v > 0);
            holds(!covers && alpha.size() == Size::new(16, 16), || format!("shape {i} covers"))?;
        }
    }
    Ok(())
}

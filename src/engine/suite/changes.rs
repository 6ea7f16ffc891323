//! What changes pictures: mesh warps, tone, pasting, covers and the invisible mark.

use mien_pixels::geometry::{Affine2, Point, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

use super::{
    Check, Checked, Tolerance, differ, got, grey, holds, like_bytes, picture, roi, texture,
};
use crate::backend::{Backend, Cover, MeshWarp, Tone};

pub(super) fn checks<B: Backend>() -> Vec<(&'static str, Check<B>)> {
    vec![
        ("a mesh carries each triangle to its place, and says where", mesh),
        ("a crop is warped back to where it came from", warp_back),
        ("tone leads the mean to the picture's, and leaves what alpha leaves", tone),
        ("pasting is an exact blend, and touches nothing else", paste),
        ("a solid cover leaves nothing where alpha is full", solid),
        ("a mosaic's cells hold one colour, the same for the same seed", mosaic),
        ("a blur keeps the mean and takes the detail", blur),
        ("filling takes what stands around", fill),
        ("the invisible mark is read back, and not where there is none", mark),
        ("sizes and regions that do not agree are refused, and nothing changes", refusals),
    ]
}

fn adopted<B: Backend>(backend: &B, rgb: &Rgb) -> std::result::Result<B::Picture, String> {
    got(backend.adopt(rgb.clone()))
}

fn full<B: Backend>(backend: &B, roi: Roi) -> std::result::Result<B::Alpha, String> {
    got(backend.adopt_alpha(Grey::filled(roi.size(), [255])))
}

/// True when two pictures of one size are equal outside a region.
fn equal_outside(a: &Rgb, b: &Rgb, roi: Roi) -> bool {
    let size = a.size();
    let inside = |x: u32, y: u32| {
        (roi.x..roi.x + roi.width).contains(&x) && (roi.y..roi.y + roi.height).contains(&y)
    };
    (0..size.height).all(|y| {
        (0..size.width).all(|x| inside(x, y) || a.view().pixel(x, y) == b.view().pixel(x, y))
    })
}

fn part(rgb: &Rgb, roi: Roi) -> Rgb {
    rgb.view().crop(roi).to_image()
}

fn mesh<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let rgb = picture(60, 50, texture);
    let from = [(10.0, 10.0), (40.0, 10.0), (40.0, 40.0), (10.0, 40.0)];
    let from = from.map(|(x, y)| Point::new(x, y));
    let to = from.map(|p| Point::new(p.x + 5.0, p.y - 4.0));
    let at = roi(8, 2, 50, 40);
    let triangles = [[0, 1, 2], [0, 2, 3], [0, 9, 2]];
    let warp = MeshWarp { from: &from, to: &to, triangles: &triangles, roi: at };
    let (layer, cover) = got(backend.warp_mesh(&adopted(backend, &rgb)?, &warp))?;
    let (layer, cover) = (got(backend.release(layer))?, got(backend.release_alpha(cover))?);
    holds(layer.size() == at.size() && cover.size() == at.size(), || "another size".into())?;
    for (x, y) in (0..40).flat_map(|y| (0..50).map(move |x| (x, y))) {
        let (px, py) = (x + at.x, y + at.y);
        let covered = cover.view().pixel(x, y)[0];
        let (inside, outside) = (
            (16..45).contains(&px) && (7..36).contains(&py),
            !(14..=46).contains(&px) || !(5..=37).contains(&py),
        );
        holds(!inside || covered == 255, || format!("{covered} at {px},{py} inside"))?;
        holds(!outside || covered == 0, || format!("{covered} at {px},{py} outside"))?;
        if inside {
            let right = texture(px - 5, py + 4);
            like_bytes(&layer.view().pixel(x, y), &right, tolerance)?;
        }
    }
    let short = MeshWarp { to: &to[..3], ..warp };
    let answer = backend.warp_mesh(&adopted(backend, &rgb)?, &short);
    holds(answer.is_err(), || "meshes of different length pass".into())
}

fn warp_back<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let rgb = picture(80, 60, texture);
    let crop = adopted(backend, &part(&rgb, roi(20, 10, 32, 32)))?;
    let at = roi(25, 15, 20, 20);
    let back = got(backend.warp_back(&crop, &Affine2::translate(-20.0, -10.0), at))?;
    let back = got(backend.release(back))?;
    like_bytes(back.bytes_all(), part(&rgb, at).bytes_all(), tolerance)?;
    // Beyond the crop its border is repeated.
    let at = roi(0, 20, 10, 1);
    let back = got(backend.warp_back(&crop, &Affine2::translate(-20.0, -10.0), at))?;
    let back = got(backend.release(back))?;
    like_bytes(&back.view().pixel(3, 0), &texture(20, 20), tolerance)
}

fn mean(rgb: &Rgb) -> [f64; 3] {
    let count = rgb.size().pixels() as f64;
    let sum = |c| rgb.bytes_all().iter().skip(c).step_by(3).map(|v| f64::from(*v)).sum::<f64>();
    [sum(0) / count, sum(1) / count, sum(2) / count]
}

fn deviation(rgb: &Rgb) -> f64 {
    let (m, count) = (mean(rgb), rgb.bytes_all().len() as f64);
    let squares = rgb.bytes_all().iter().enumerate();
    (squares.map(|(i, v)| (f64::from(*v) - m[i % 3]).powi(2)).sum::<f64>() / count).sqrt()
}

fn tone<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let onto = adopted(backend, &picture(64, 64, |x, y| texture(x, y).map(|v| v / 2 + 90)))?;
    let layer = picture(32, 32, |x, y| {
        let [r, g, b] = texture(x * 3, y * 3);
        [r / 2, g / 2 + 30, b / 3]
    });
    let at = roi(16, 20, 32, 32);
    let alpha = grey(32, 32, |x, _| if x < 4 { 0 } else { 255 });
    let alpha = got(backend.adopt_alpha(alpha))?;
    let mut held = adopted(backend, &layer)?;
    let tone = Tone { ratio: (0.7, 1.4), relight: 0.0, rim: 0.0, sigma: 8.0 };
    got(backend.match_tone(&mut held, &onto, at, &alpha, &tone))?;
    let (is, onto) = (got(backend.release(held))?, got(backend.release(onto))?);
    let lit = roi(4, 0, 28, 32);
    let (was, is_mean) = (mean(&part(&layer, lit)), mean(&part(&is, lit)));
    let wanted = mean(&part(&part(&onto, at), lit));
    for c in 0..3 {
        let (before, after) = ((was[c] - wanted[c]).abs(), (is_mean[c] - wanted[c]).abs());
        holds(after < 4.0 && after < before, || {
            format!("channel {c}: {} is led to {} where {} is", was[c], is_mean[c], wanted[c])
        })?;
    }
    let left = roi(0, 0, 4, 32);
    holds(part(&is, left) == part(&layer, left), || "it changes where alpha is 0".into())
}

fn paste<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let rgb = picture(50, 40, texture);
    let layer = picture(21, 17, |x, y| texture(y * 5 + 1, x * 3));
    let alpha = grey(21, 17, |x, y| (x * 13 + y * 7) as u8);
    let alpha = grey(21, 17, |x, y| match x % 7 {
        0 => 0,
        1 => 255,
        _ => alpha.view().pixel(x, y)[0],
    });
    let at = roi(13, 9, 21, 17);
    let mut held = adopted(backend, &rgb)?;
    let weights = got(backend.adopt_alpha(alpha.clone()))?;
    got(backend.paste(&mut held, &adopted(backend, &layer)?, at, &weights))?;
    let is = got(backend.release(held))?;
    holds(equal_outside(&is, &rgb, at), || "it changes outside the region".into())?;
    for (x, y) in (0..17).flat_map(|y| (0..21).map(move |x| (x, y))) {
        let (d, s) = (texture(x + at.x, y + at.y), layer.view().pixel(x, y));
        let a = u32::from(alpha.view().pixel(x, y)[0]);
        let blend = |c: usize| (u32::from(d[c]) * (255 - a) + u32::from(s[c]) * a + 127) / 255;
        let right = [blend(0) as u8, blend(1) as u8, blend(2) as u8];
        let is = is.view().pixel(x + at.x, y + at.y);
        holds(is == right, || format!("alpha {a}: {is:?} where {right:?} is right"))?;
    }
    Ok(())
}

/// Covers a region of a texture and gives before and after; what is outside must stay.
fn covered<B: Backend>(
    backend: &B,
    at: Roi,
    alpha: &Grey,
    cover: &Cover,
) -> std::result::Result<(Rgb, Rgb), String> {
    let rgb = picture(96, 80, texture);
    let mut held = adopted(backend, &rgb)?;
    let alpha = got(backend.adopt_alpha(alpha.clone()))?;
    got(backend.cover(&mut held, at, &alpha, cover))?;
    let is = got(backend.release(held))?;
    holds(equal_outside(&is, &rgb, at), || "it changes outside the region".into())?;
    Ok((rgb, is))
}

fn solid<B: Backend>(backend: &B, tolerance: &Tolerance) -> Checked {
    let (at, colour) = (roi(10, 12, 40, 30), [7, 200, 90]);
    let alpha = grey(40, 30, |x, _| [0, 255, 100][x as usize % 3]);
    let (was, is) = covered(backend, at, &alpha, &Cover::Solid { colour })?;
    for (x, y) in (0..30).flat_map(|y| (0..40).map(move |x| (x, y))) {
        let (d, is) = (was.view().pixel(x + 10, y + 12), is.view().pixel(x + 10, y + 12));
        match x % 3 {
            0 => holds(is == d, || format!("{is:?} where alpha is 0"))?,
            1 => holds(is == colour, || format!("{is:?} where alpha is 255"))?,
            _ => {
                let blend = |c: usize| (u32::from(d[c]) * 155 + u32::from(colour[c]) * 100) as f32;
                let right = [0, 1, 2].map(|c| (blend(c) / 255.0).round() as u8);
                like_bytes(&is, &right, tolerance)?;
            }
        }
    }
    Ok(())
}

fn mosaic<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let at = roi(8, 8, 64, 48);
    let alpha = Grey::filled(at.size(), [255]);
    let cell = 16;
    let cover = |noise, seed| Cover::Mosaic { cell, noise, seed };
    let (was, is) = covered(backend, at, &alpha, &cover(0.0, 1))?;
    for (cx, cy) in (0..3).flat_map(|y| (0..4).map(move |x| (x, y))) {
        let own = roi(at.x + cx * cell, at.y + cy * cell, cell, cell);
        let (before, after) = (part(&was, own), part(&is, own));
        let first = after.view().pixel(0, 0);
        let one = after.bytes_all().chunks_exact(3).all(|p| p == first);
        holds(one, || format!("cell {cx},{cy} holds two colours"))?;
        let mean = mean(&before);
        let near = (0..3).all(|c| (f64::from(first[c]) - mean[c]).abs() <= 1.5);
        holds(near, || format!("cell {cx},{cy} is {first:?} where the mean is {mean:?}"))?;
    }
    let noisy = |seed| covered(backend, at, &alpha, &cover(20.0, seed)).map(|(_, is)| is);
    holds(noisy(5)? == noisy(5)?, || "one seed gives two pictures".into())?;
    holds(noisy(5)? != noisy(6)?, || "two seeds give one picture".into())
}

fn blur<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let at = roi(8, 8, 64, 64);
    let alpha = grey(64, 64, |x, _| if x < 8 { 0 } else { 255 });
    for sigma in [2.0, 6.0, 20.0] {
        let (was, is) = covered(backend, at, &alpha, &Cover::Blur { sigma })?;
        let left = roi(8, 8, 8, 64);
        holds(part(&is, left) == part(&was, left), || format!("{sigma}: alpha 0 changes"))?;
        let inner = roi(24, 24, 32, 32);
        let (before, after) = (part(&was, inner), part(&is, inner));
        let shift = (0..3).map(|c| (mean(&before)[c] - mean(&after)[c]).abs()).fold(0.0, f64::max);
        holds(shift < 12.0, || format!("{sigma}: the mean moves by {shift}"))?;
        // The noise of the texture has 4 to 5 levels of deviation from one pixel to the next.
        let steps = after.bytes_all().windows(4).map(|w| w[0].abs_diff(w[3])).filter(|d| *d > 8);
        let rough = steps.count();
        holds(rough < 96, || format!("{sigma}: {rough} rough steps are left"))?;
        let (b, a) = (deviation(&before), deviation(&after));
        holds(a < b, || format!("{sigma}: deviation {b} becomes {a}"))?;
    }
    Ok(())
}

fn fill<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let hole = |x: u32, y: u32| (30..50).contains(&x) && (20..40).contains(&y);
    let rgb = picture(80, 64, |x, y| if hole(x, y) { [250, 0, 250] } else { [60, 120, 30] });
    let mut held = adopted(backend, &rgb)?;
    let keep = grey(80, 64, |x, y| if hole(x, y) { 0 } else { 255 });
    got(backend.fill(&mut held, &got(backend.adopt_alpha(keep))?))?;
    let is = got(backend.release(held))?;
    let worst = differ(is.bytes_all(), picture(80, 64, |_, _| [60, 120, 30]).bytes_all())?;
    holds(worst <= 3, || format!("{worst} levels off"))
}

fn mark<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let rgb = picture(512, 384, texture);
    holds(got(backend.mark_read(&adopted(backend, &rgb)?))?.is_none(), || {
        "a mark is read where there is none".into()
    })?;
    for payload in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let mut held = adopted(backend, &rgb)?;
        let psnr = got(backend.mark_add(&mut held, payload))?;
        holds(psnr > 44.0 && psnr.is_finite(), || format!("PSNR {psnr} dB"))?;
        let read = got(backend.mark_read(&held))?;
        holds(read == Some(payload), || format!("{payload:x} is read as {read:x?}"))?;
        let worst = differ(got(backend.release(held))?.bytes_all(), rgb.bytes_all())?;
        holds((1..=16).contains(&worst), || format!("the mark changes {worst} levels"))?;
    }
    Ok(())
}

fn refusals<B: Backend>(backend: &B, _: &Tolerance) -> Checked {
    let rgb = picture(40, 30, texture);
    let mut held = adopted(backend, &rgb)?;
    let small = roi(0, 0, 8, 8);
    let layer = adopted(backend, &part(&rgb, small))?;
    let alpha = full(backend, small)?;
    let tone = Tone { ratio: (0.7, 1.4), relight: 0.4, rim: 0.4, sigma: 4.0 };
    let black = Cover::Solid { colour: [0; 3] };
    let regions = [
        roi(33, 0, 8, 8),
        roi(0, 23, 8, 8),
        roi(u32::MAX, 0, 8, 8),
        roi(0, 0, 9, 8),
        roi(0, 0, u32::MAX, 8),
    ];
    for at in regions {
        let mut own = adopted(backend, &part(&rgb, small))?;
        let passed = [
            backend.paste(&mut held, &layer, at, &alpha).is_ok(),
            backend.cover(&mut held, at, &alpha, &black).is_ok(),
            backend.match_tone(&mut own, &held, at, &alpha, &tone).is_ok(),
        ];
        holds(passed == [false; 3], || format!("{at:?} passes: {passed:?}"))?;
    }
    let bad = [
        Cover::Blur { sigma: f32::NAN },
        Cover::Blur { sigma: 0.0 },
        Cover::Mosaic { cell: 0, noise: 0.0, seed: 0 },
        Cover::Mosaic { cell: 4, noise: f32::INFINITY, seed: 0 },
    ];
    for cover in bad {
        let passed = backend.cover(&mut held, small, &alpha, &cover).is_ok();
        holds(!passed, || format!("{cover:?} passes"))?;
    }
    let nan = Affine2 { e: f64::NAN, ..Affine2::IDENTITY };
    holds(backend.warp_back(&layer, &nan, small).is_err(), || "a NaN in a map passes".into())?;
    let keep = full(backend, small)?;
    holds(backend.fill(&mut held, &keep).is_err(), || "fill takes another size".into())?;
    holds(backend.size(&held) == Size::new(40, 30), || "the size changes".into())?;
    holds(got(backend.release(held))? == rgb, || "a refused operation changes pixels".into())
}

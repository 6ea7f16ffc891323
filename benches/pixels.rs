//! How much faster each pixel kernel is than its plain definition: a table of ratios.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

use std::time::Instant;

use mien_pixels::convert::{self, Colour, Matrix};
use mien_pixels::filter;
use mien_pixels::geometry::{Affine2, Size};
use mien_pixels::simd::Level;
use mien_pixels::tensor::{self, Layout, Packing, Unpacking};
use mien_pixels::view::{Grey, Image, Rgb};
use mien_pixels::warp::{self, Border};
use mien_pixels::{blend, resize};

/// Least time of one call in milliseconds: the machine may be busy.
fn least(level: Level, work: &mut dyn FnMut()) -> f64 {
    level.run(|| {
        let mut best = f64::INFINITY;
        let begin = Instant::now();
        for round in 0.. {
            let start = Instant::now();
            work();
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
            if round >= 4 && begin.elapsed().as_millis() > 250 {
                break;
            }
        }
        best
    })
}

fn row(name: &str, mut work: impl FnMut()) {
    let scalar = least(Level::SCALAR, &mut work);
    let baseline = least(Level::BASELINE, &mut work);
    let best = least(Level::best(), &mut work);
    println!(
        "{name:<34} {scalar:>9.3} {baseline:>9.3} {best:>9.3} {:>7.1}x {:>7.1}x",
        scalar / best,
        baseline / best
    );
}

fn noise<const C: usize>(size: Size) -> Image<C> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    Image::from_vec(size, (0..size.pixels() as usize * C).map(next).collect()).unwrap()
}

/// Bytes about the middle.
fn calm<const C: usize>(mut image: Image<C>) -> Image<C> {
    image.bytes_all_mut().iter_mut().for_each(|v| *v = 96 + *v / 4);
    image
}

/// A round mask that fills three quarters of its side.
fn disc(size: Size) -> Grey {
    let mut mask = Grey::filled(size, [0]);
    let (width, centre) = (size.width as usize, size.width as f32 / 2.0);
    for (i, v) in mask.bytes_all_mut().iter_mut().enumerate() {
        let (x, y) = ((i % width) as f32 - centre, (i / width) as f32 - centre);
        *v = if x.hypot(y) < 0.75 * centre { 255 } else { 0 };
    }
    mask
}

fn main() {
    let (hd, half) = (Size::new(1920, 1080), Size::new(960, 540));
    println!("{:<34} {:>9} {:>9} {:>9}", "ms", "scalar", "baseline", Level::best().name());
    let (frame, mut out) = (noise::<3>(hd), Rgb::filled(hd, [0; 3]));

    // Few colours lie outside RGB, as in pictures: cutting them is what costs a branch.
    let (y, uv) = (calm(noise::<1>(hd)), calm(noise::<2>(half)));
    let (u, v) = (calm(noise::<1>(half)), calm(noise::<1>(half)));
    let pairs = calm(noise::<4>(Size::new(960, 1080)));
    let colour = Colour::BT709_LIMITED;
    row("NV12 to RGB 1080p", || {
        convert::nv12_to_rgb(y.view(), uv.view(), colour, &mut out.view_mut());
    });
    row("I420 to RGB 1080p", || {
        convert::i420_to_rgb(y.view(), u.view(), v.view(), colour, &mut out.view_mut());
    });
    row("YUYV to RGB 1080p", || {
        convert::yuyv_to_rgb(pairs.view(), colour, &mut out.view_mut());
    });
    let (mut luma, mut chroma) = (Grey::filled(hd, [0]), Image::<2>::filled(half, [0; 2]));
    row("luma 1080p", || convert::luma(frame.view(), Matrix::Bt601, &mut luma.view_mut()));
    row("RGB to NV12 1080p", || {
        convert::rgb_to_nv12(frame.view(), colour, &mut luma.view_mut(), &mut chroma.view_mut());
    });

    for (name, to) in [
        ("resize 1080p to 640x360", Size::new(640, 360)),
        ("resize 1080p to 1137x640", Size::new(1137, 640)),
    ] {
        let mut small = Rgb::filled(to, [0; 3]);
        row(name, || resize::resize(frame.view(), &mut small.view_mut()));
    }
    let crop = noise::<3>(Size::new(256, 256));
    let mut large = Rgb::filled(Size::new(700, 700), [0; 3]);
    row("resize 256 to 700", || resize::resize(crop.view(), &mut large.view_mut()));
    let mask = noise::<1>(Size::new(256, 256));
    let mut large_mask = Grey::filled(Size::new(700, 700), [0]);
    row("resize mask 256 to 700", || resize::resize(mask.view(), &mut large_mask.view_mut()));

    let map = Affine2::rotate(0.2)
        .then(&Affine2::scale(1.6, 1.6))
        .then(&Affine2::translate(700.0, 300.0));
    let mut face = Rgb::filled(Size::new(256, 256), [0; 3]);
    row("affine 256 from 1080p", || {
        warp::affine(frame.view(), &map, &mut face.view_mut(), Border::Replicate);
    });
    let map = Affine2::scale(4.5, 4.5).then(&map);
    row("affine_area 256 from 1080p", || {
        warp::affine_area(frame.view(), &map, &mut face.view_mut(), Border::Replicate);
    });

    let vga = Size::new(640, 640);
    let picture = noise::<3>(vga);
    let mut values = vec![0.0; 3 * 640 * 640];
    for (name, layout, bgr) in [
        ("pack 640 planar", Layout::Planar, false),
        ("pack 640 interleaved BGR", Layout::Interleaved, true),
    ] {
        let packing = Packing { mean: [127.5; 3], scale: [1.0 / 127.5; 3], bgr, layout };
        row(name, || tensor::pack(picture.view(), vga, &packing, &mut values));
    }
    let packing =
        Packing { mean: [127.5; 3], scale: [1.0 / 127.5; 3], bgr: false, layout: Layout::Planar };
    tensor::pack(picture.view(), vga, &packing, &mut values);
    let unpacking =
        Unpacking { scale: [127.5; 3], offset: [127.5; 3], bgr: false, layout: Layout::Planar };
    let mut back = Rgb::filled(vga, [0; 3]);
    row("unpack 640 planar", || tensor::unpack(&values, &unpacking, &mut back.view_mut()));

    let (layer, alpha) = (noise::<3>(vga), noise::<1>(vga));
    row("paste 640", || blend::paste(&mut back.view_mut(), layer.view(), alpha.view()));

    for radius in [3, 40] {
        row(&format!("box blur 640 radius {radius}"), || filter::box_blur(&mut back, radius));
    }
    for sigma in [2.0, 20.0] {
        row(&format!("gaussian 640 sigma {sigma}"), || filter::gaussian(&mut back, sigma));
    }
    let mut distances = Vec::new();
    let blob = disc(vga);
    row("distance 640", || filter::distance_inside(blob.view(), &mut distances));
    row("laplacian 640", || assert!(filter::laplacian_variance(blob.view()) > 0.0));
}

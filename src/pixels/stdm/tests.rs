//! Tests of the watermark on made pictures, and on real ones from the folder in MIEN_PICTURES.

use super::grid::Axis;
use super::plan::BAYER;
use super::*;
use crate::view::{Image, Rgb};
use mien_base::clock::{Clock, SystemClock};

const PAYLOAD: u64 = 0x1abc_def0_1234_5678;

/// Smooth noise of four octaves, edges and flat parts, different in each channel.
fn made(size: Size, seed: u64) -> Rgb {
    let mut image = Image::filled(size, [0; 3]);
    let lattice = |x: u64, y: u64, o: u64| (keyed(seed << 40 ^ o << 32 ^ y << 16 ^ x) >> 40) as f32;
    let noise = |x: f32, y: f32, o: u64| {
        let (i, j) = (x as u64, y as u64);
        let (fx, fy) = (x.fract(), y.fract());
        let (sx, sy) = (fx * fx * (3.0 - 2.0 * fx), fy * fy * (3.0 - 2.0 * fy));
        let mix = |a: f32, b: f32, t: f32| a + (b - a) * t;
        let top = mix(lattice(i, j, o), lattice(i + 1, j, o), sx);
        let bottom = mix(lattice(i, j + 1, o), lattice(i + 1, j + 1, o), sx);
        mix(top, bottom, sy) / (1 << 24) as f32 - 0.5
    };
    let unit = size.short_side() as f32;
    for y in 0..size.height {
        for x in 0..size.width {
            let (u, v) = (x as f32 / unit, y as f32 / unit);
            let mut level = 128.0;
            for (o, (cells, strength)) in
                [(3.0, 160.0), (13.0, 60.0), (53.0, 30.0), (190.0, 16.0)].into_iter().enumerate()
            {
                level += noise(u * cells, v * cells, o as u64) * strength;
            }
            if (u * 2.3 + v).sin() > 0.8 {
                level = 96.0;
            }
            if (u * 7.0).fract() < 0.05 {
                level += 70.0;
            }
            let tint = noise(u * 2.0, v * 2.0, 9) * 60.0;
            let p = [level + tint, level, level - tint].map(|c| c.clamp(0.0, 255.0) as u8);
            let at = (y as usize * size.width as usize + x as usize) * 3;
            image.bytes_all_mut()[at..at + 3].copy_from_slice(&p);
        }
    }
    image
}

/// Triangle filter, as wide as the scale asks for.
fn resized(image: &Rgb, to: Size) -> Rgb {
    let taps = |from: u32, to: u32| -> Vec<(usize, Vec<f32>)> {
        let scale = from as f32 / to as f32;
        let reach = scale.max(1.0);
        (0..to)
            .map(|i| {
                let centre = (i as f32 + 0.5) * scale - 0.5;
                let first = (centre - reach).ceil().max(0.0) as usize;
                let last = ((centre + reach).floor() as usize).min(from as usize - 1);
                let w: Vec<f32> =
                    (first..=last).map(|x| 1.0 - (x as f32 - centre).abs() / reach).collect();
                let sum: f32 = w.iter().sum();
                (first, w.iter().map(|v| v / sum).collect())
            })
            .collect()
    };
    let (size, bytes) = (image.size(), image.bytes_all());
    let (xs, ys) = (taps(size.width, to.width), taps(size.height, to.height));
    let mut middle = vec![0.0_f32; to.width as usize * size.height as usize * 3];
    for y in 0..size.height as usize {
        for (x, (first, w)) in xs.iter().enumerate() {
            for c in 0..3 {
                let row = y * size.width as usize;
                middle[(y * to.width as usize + x) * 3 + c] = w
                    .iter()
                    .enumerate()
                    .map(|(i, w)| w * f32::from(bytes[(row + first + i) * 3 + c]))
                    .sum();
            }
        }
    }
    let stride = to.width as usize * 3;
    let mut data = Vec::with_capacity(stride * to.height as usize);
    for (first, w) in &ys {
        for x in 0..stride {
            let v: f32 =
                w.iter().enumerate().map(|(i, w)| w * middle[(first + i) * stride + x]).sum();
            data.push((v + 0.5).clamp(0.0, 255.0) as u8);
        }
    }
    Image::from_vec(to, data).unwrap()
}

fn scaled(image: &Rgb, factor: f32) -> Rgb {
    let side = |v: u32| (v as f32 * factor).round() as u32;
    resized(image, Size::new(side(image.size().width), side(image.size().height)))
}

fn jpeg(image: &Rgb, quality: u8) -> Rgb {
    let (mut file, size) = (Vec::new(), image.size());
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    let (w, h) = (size.width as u16, size.height as u16);
    encoder.encode(image.bytes_all(), w, h, jpeg_encoder::ColorType::Rgb).unwrap();
    unjpeg(&file)
}

fn unjpeg(file: &[u8]) -> Rgb {
    let mut decoder = zune_jpeg::JpegDecoder::new(zune_core::bytestream::ZCursor::new(file));
    let data = decoder.decode().unwrap();
    let (w, h) = decoder.dimensions().unwrap();
    Image::from_vec(Size::new(w as u32, h as u32), data).unwrap()
}

fn noisy(image: &Rgb, sigma: f32, seed: u64) -> Rgb {
    let mut out = image.clone();
    for (i, byte) in out.bytes_all_mut().iter_mut().enumerate() {
        // Twelve uniform numbers make a good normal one.
        let r: f32 = (0..6)
            .map(|k| {
                let bits = keyed(seed << 36 ^ (i as u64 * 6 + k));
                (bits & 0xffff_ffff) as f32 / 4_294_967_296.0
                    + (bits >> 32) as f32 / 4_294_967_296.0
            })
            .sum::<f32>()
            - 6.0;
        *byte = (f32::from(*byte) + r * sigma).round().clamp(0.0, 255.0) as u8;
    }
    out
}

fn luma(image: &Rgb) -> Vec<f64> {
    let value =
        |p: &[u8]| 0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2]);
    image.bytes_all().chunks_exact(3).map(value).collect()
}

fn psnr(a: &Rgb, b: &Rgb) -> f64 {
    let (a, b) = (luma(a), luma(b));
    let mse = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / a.len() as f64;
    10.0 * (255.0_f64 * 255.0 / mse).log10()
}

/// Mean SSIM of luma, uniform window of 7.
fn ssim(a: &Rgb, b: &Rgb) -> f64 {
    let (w, h) = (a.size().width as usize, a.size().height as usize);
    let (a, b) = (luma(a), luma(b));
    let box_mean = |f: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let mut table = vec![0.0; (w + 1) * (h + 1)];
        for y in 0..h {
            let mut run = 0.0;
            for x in 0..w {
                run += f(y * w + x);
                table[(y + 1) * (w + 1) + x + 1] = table[y * (w + 1) + x + 1] + run;
            }
        }
        let at = |x: usize, y: usize| table[y * (w + 1) + x];
        (0..h - 6)
            .flat_map(|y| (0..w - 6).map(move |x| (x, y)))
            .map(|(x, y)| (at(x + 7, y + 7) - at(x, y + 7) - at(x + 7, y) + at(x, y)) / 49.0)
            .collect()
    };
    let (ma, mb) = (box_mean(&|i| a[i]), box_mean(&|i| b[i]));
    let (aa, bb) = (box_mean(&|i| a[i] * a[i]), box_mean(&|i| b[i] * b[i]));
    let ab = box_mean(&|i| a[i] * b[i]);
    let (c1, c2) = (2.55_f64.powi(2), 7.65_f64.powi(2));
    let sum: f64 = (0..ma.len())
        .map(|i| {
            let (va, vb, cov) =
                (aa[i] - ma[i] * ma[i], bb[i] - mb[i] * mb[i], ab[i] - ma[i] * mb[i]);
            (2.0 * ma[i] * mb[i] + c1) * (2.0 * cov + c2)
                / ((ma[i] * ma[i] + mb[i] * mb[i] + c1) * (va + vb + c2))
        })
        .sum();
    sum / ma.len() as f64
}

fn marked(image: &Rgb) -> Rgb {
    let mut out = image.clone();
    add(&mut out.view_mut(), PAYLOAD);
    out
}

type Attack = fn(&Rgb) -> Rgb;

/// What a picture must survive, and under which name.
fn attacks() -> [(&'static str, Attack); 7] {
    [
        ("as it is", |i| i.clone()),
        ("jpeg 75", |i| jpeg(i, 75)),
        ("jpeg 50", |i| jpeg(i, 50)),
        ("jpeg 30", |i| jpeg(i, 30)),
        ("half", |i| scaled(i, 0.5)),
        ("1.5x", |i| scaled(i, 1.5)),
        ("noise 5", |i| noisy(i, 5.0, 3)),
    ]
}

fn survives(name: &str, image: &Rgb) -> Vec<String> {
    let out = marked(image);
    let told = add(&mut image.clone().view_mut(), PAYLOAD);
    let (db, like) = (psnr(image, &out), ssim(image, &out));
    let mut failed = Vec::new();
    let mut line =
        format!("{name} {:?}: told {told:.2} dB, PSNR-Y {db:.2}, SSIM {like:.4}", image.size());
    if db < 48.0 || like < 0.994 || f64::from(told) > db + 0.02 {
        failed.push(format!("{name}: {db:.2} dB, SSIM {like:.4}, told {told:.2}"));
    }
    for (attack, make) in attacks() {
        let reading = examine(make(&out).view());
        line += &match reading {
            Some(r) => format!(" | {attack} z {:.1} ber {:.3}", r.pilots, r.corrected),
            None => format!(" | {attack} LOST"),
        };
        if reading.map(|r| r.payload) != Some(PAYLOAD) {
            failed.push(format!("{name}: {attack}"));
        }
    }
    println!("{line}");
    failed
}

#[test]
fn made_pictures_keep_payload_and_quality() {
    let sizes = [(1920, 1080), (600, 512), (512, 512), (480, 853)];
    let failed: Vec<String> = sizes
        .iter()
        .flat_map(|(w, h)| survives("made", &made(Size::new(*w, *h), u64::from(*w))))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

fn real_pictures() -> Vec<(String, Rgb)> {
    let folder = std::env::var_os("MIEN_PICTURES").expect("MIEN_PICTURES names a folder");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "png" || e == "jpg"))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).unwrap();
            if path.extension().unwrap() == "jpg" {
                return (name, unjpeg(&bytes));
            }
            let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
            let mut data = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut data).unwrap();
            assert_eq!(info.color_type, png::ColorType::Rgb);
            (name, Image::from_vec(Size::new(info.width, info.height), data).unwrap())
        })
        .collect()
}

#[test]
#[ignore = "needs pictures: tests/run sets MIEN_PICTURES"]
fn real_pictures_keep_payload_and_quality() {
    let mut failed = Vec::new();
    // Below 256 pixels there are too few tiles to survive all of this: the module says so.
    let large = real_pictures().into_iter().filter(|(_, image)| image.size().short_side() >= 256);
    for (name, image) in large {
        failed.extend(survives(&name, &image));
        if image.size().width == image.size().height {
            failed.extend(survives(&name, &resized(&image, Size::new(1080, 1080))));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn turned_mirrored_and_dimmed_pictures_are_read() {
    for (w, h) in [(640, 400), (512, 512), (300, 420)] {
        let out = marked(&made(Size::new(w, h), 5));
        let turn = |f: &dyn Fn(u32, u32) -> (u32, u32), size: Size| {
            let mut image: Rgb = Image::filled(size, [0; 3]);
            for y in 0..size.height {
                for x in 0..size.width {
                    let (sx, sy) = f(x, y);
                    let at = (y * size.width + x) as usize * 3;
                    image.bytes_all_mut()[at..at + 3].copy_from_slice(&out.view().pixel(sx, sy));
                }
            }
            image
        };
        let (same, other) = (Size::new(w, h), Size::new(h, w));
        for (name, image) in [
            ("mirrored", turn(&|x, y| (w - 1 - x, y), same)),
            ("upside down", turn(&|x, y| (w - 1 - x, h - 1 - y), same)),
            ("turned right", turn(&|x, y| (y, h - 1 - x), other)),
            ("turned left", turn(&|x, y| (w - 1 - y, x), other)),
        ] {
            assert_eq!(read(image.view()), Some(PAYLOAD), "{name} {w}x{h}");
        }
        for gain in [0.7, 0.8, 1.15] {
            let mut dim = out.clone();
            dim.bytes_all_mut().iter_mut().for_each(|b| *b = (f32::from(*b) * gain) as u8);
            assert_eq!(read(dim.view()), Some(PAYLOAD), "{gain} {w}x{h}");
        }
    }
}

#[test]
fn plain_pictures_are_not_read() {
    let wrong: Vec<u64> = (0..1_000_u64)
        .filter(|seed| {
            let (w, h) = (128 + (seed * 37 % 260) as u32, 128 + (seed * 53 % 200) as u32);
            let size = Size::new(w, h);
            let image = match seed % 4 {
                0 => made(size, *seed),
                1 => noisy(&Image::filled(size, [keyed(*seed) as u8; 3]), 40.0, *seed),
                2 => Image::filled(size, [keyed(*seed) as u8; 3]),
                _ => {
                    let mut ramp = Image::filled(size, [0; 3]);
                    let (a, b) = (seed % 7 + 1, seed % 11);
                    for (i, p) in ramp.bytes_all_mut().chunks_exact_mut(3).enumerate() {
                        let (x, y) = (i as u64 % u64::from(w), i as u64 / u64::from(w));
                        p.fill(((x * a + y * b) / 4 % 256) as u8);
                    }
                    ramp
                }
            };
            read(image.view()).is_some()
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
#[ignore = "needs pictures: tests/run sets MIEN_PICTURES"]
fn crops_of_real_pictures_are_not_read() {
    let mut seen = 0;
    for (name, image) in real_pictures() {
        for n in 0..100_u64 {
            let size = image.size();
            let side = 128 + (keyed(n) % u64::from(size.short_side() - 128)) as u32;
            let roi = crate::geometry::Roi {
                x: (keyed(n + 1_000) % u64::from(size.width - side + 1)) as u32,
                y: (keyed(n + 2_000) % u64::from(size.height - side + 1)) as u32,
                width: side,
                height: side,
            };
            assert_eq!(read(image.view().crop(roi)), None, "{name} {roi:?}");
            seen += 1;
        }
    }
    assert!(seen >= 800, "{seen}");
}

#[test]
fn marking_again_replaces_the_payload() {
    let mut image = marked(&made(Size::new(700, 500), 1));
    add(&mut image.view_mut(), !PAYLOAD);
    assert_eq!(read(image.view()), Some(!PAYLOAD));
}

#[test]
fn flat_black_and_white_pictures_are_read_back() {
    for size in [Size::new(640, 480), Size::new(200, 150), Size::new(128, 128)] {
        for level in [0, 1, 64, 254, 255] {
            let out = marked(&Image::filled(size, [level; 3]));
            let reading = examine(out.view());
            assert_eq!(reading.map(|r| r.payload), Some(PAYLOAD), "{size:?} {level}");
        }
    }
}

#[test]
fn small_pictures_are_read_back_from_the_least_size_on() {
    for side in [128, 150, 200, 255, 256, 300] {
        for seed in 0..4 {
            for (w, h) in [(side, side), (side * 3 / 2, side), (side, side * 2)] {
                let out = marked(&made(Size::new(w, h), seed));
                let now = examine(out.view());
                let later = examine(jpeg(&out, 85).view());
                assert_eq!(now.map(|r| r.payload), Some(PAYLOAD), "{w}x{h}");
                assert_eq!(later.map(|r| r.payload), Some(PAYLOAD), "{w}x{h} jpeg 85");
            }
        }
    }
}

#[test]
fn odd_sizes_never_panic_and_tiny_ones_stay_as_they_are() {
    for (w, h) in [(1, 1), (0, 0), (5, 0), (127, 9_000), (3, 127), (64, 64)] {
        let image = made(Size::new(w, h), 2);
        let mut out = image.clone();
        assert!(add(&mut out.view_mut(), PAYLOAD).is_infinite());
        assert_eq!(out, image);
        assert_eq!(read(out.view()), None);
    }
    for (w, h) in [(128, 6_000), (4_999, 131), (257, 383), (1_001, 999)] {
        assert_eq!(read(marked(&made(Size::new(w, h), 4)).view()), Some(PAYLOAD), "{w}x{h}");
    }
}

/// The mark as the head of `mod.rs` defines it, in plain double loops over whole pictures.
#[test]
fn picture_is_what_the_definition_gives() {
    let image = made(Size::new(331, 262), 8);
    let (grid, size) = (Grid::of(image.size()).unwrap(), image.size());
    let blocks = grid.blocks();
    let (down, across) =
        (Axis::new(size.height, blocks.height), Axis::new(size.width, blocks.width));
    let y = luma(&image);
    let mut coefficients = Vec::new();
    for rows in &down.spans {
        for columns in &across.spans {
            for k in 0..FREQUENCIES.len() {
                let (u, v) = grid.frequency(k);
                let mut sum = 0.0;
                for (j, a) in rows.analysis.iter().enumerate() {
                    for (i, b) in columns.analysis.iter().enumerate() {
                        let at = (rows.start + j) * size.width as usize + columns.start + i;
                        sum += f64::from(a[v]) * f64::from(b[u]) * y[at];
                    }
                }
                coefficients.push(sum as f32);
            }
        }
    }
    let room: Vec<f32> = rooms(&coefficients).collect();
    let (laid, bits) = ((grid, Scheme::STILL), code::encode(PAYLOAD));
    quantise(laid, &mut coefficients, &room, &bits, slack(size), &mut []);
    let mut residual = vec![0.0_f64; y.len()];
    let mut left = coefficients.iter();
    for rows in &down.spans {
        for columns in &across.spans {
            for k in 0..FREQUENCIES.len() {
                let (u, v) = grid.frequency(k);
                let change = f64::from(*left.next().unwrap());
                for (j, a) in rows.synthesis.iter().enumerate() {
                    for (i, b) in columns.synthesis.iter().enumerate() {
                        let at = (rows.start + j) * size.width as usize + columns.start + i;
                        residual[at] += f64::from(a[v]) * f64::from(b[u]) * change;
                    }
                }
            }
        }
    }
    let out = marked(&image);
    let mut differ = 0;
    for (at, (before, after)) in image.bytes_all().iter().zip(out.bytes_all()).enumerate() {
        let (x, y) = (at / 3 % size.width as usize, at / 3 / size.width as usize);
        let dither = (f64::from(BAYER[y % 4][x % 4]) + 0.5) / 16.0;
        let want = (f64::from(*before) + residual[at / 3] + dither).floor().clamp(0.0, 255.0);
        assert!((want - f64::from(*after)).abs() <= 1.0, "{at}");
        differ += usize::from(want != f64::from(*after));
    }
    assert!(differ * 100 < out.bytes_all().len(), "{differ}");
}

#[test]
#[ignore = "a measurement: run it alone, in release"]
fn cost_of_a_1080p_frame() {
    let clock = SystemClock::start();
    let image = made(Size::new(1920, 1080), 3);
    let (mut adding, mut reading) = (f64::MAX, f64::MAX);
    for _ in 0..40 {
        let mut out = image.clone();
        let start = clock.mono();
        add(&mut out.view_mut(), PAYLOAD);
        let middle = clock.mono();
        assert!(read(out.view()).is_some());
        adding = adding.min(middle.since(start).as_secs_f64());
        reading = reading.min(clock.mono().since(middle).as_secs_f64());
    }
    let start = clock.mono();
    assert!(read(image.view()).is_none());
    let none = clock.mono().since(start).as_secs_f64();
    println!(
        "add {:.2} ms, read {:.2} ms, read an unmarked one {:.2} ms",
        adding * 1e3,
        reading * 1e3,
        none * 1e3
    );
}

//! Files as they come: every kind that is read, every way to break them.

use std::time::Duration;

use mien_base::clock::{Clock, SystemClock};
use mien_base::error::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::codec::exif::tests::block_with_orientation;
use crate::geometry::{Roi, Size};
use crate::view::Image;
use hostile::{png_chunk, png_header};

#[path = "../../../tests/support/hostile.rs"]
mod hostile;

/// A smooth coloured picture with a little structure.
fn picture(width: u32, height: u32) -> Rgb {
    let data = (0..height)
        .flat_map(|y| (0..width).map(move |x| (x, y)))
        .flat_map(|(x, y)| {
            [x * 255 / width, y * 255 / height, (x / 4 + y / 4) % 2 * 40 + 100].map(|v| v as u8)
        })
        .collect();
    Image::from_vec(Size::new(width, height), data).unwrap()
}

fn worst(a: &Rgb, b: &Rgb) -> u8 {
    assert_eq!(a.size(), b.size());
    a.bytes_all().iter().zip(b.bytes_all()).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

fn open(bytes: &[u8]) -> Result<Decoded> {
    decode(bytes, &Bounds::default())
}

fn plain(rgb: &Rgb, format: FileFormat, quality: u8) -> Vec<u8> {
    encode(rgb.view(), None, format, quality, &Metadata::default()).unwrap()
}

fn progressive(rgb: &Rgb) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, 85);
    encoder.set_progressive(true);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::R_4_2_0);
    let side = |v: u32| u16::try_from(v).unwrap();
    let (width, height) = (side(rgb.size().width), side(rgb.size().height));
    encoder.encode(rgb.bytes_all(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    out
}

fn restarting(rgb: &Rgb) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, 85);
    encoder.set_restart_interval(3);
    let side = |v: u32| u16::try_from(v).unwrap();
    let (width, height) = (side(rgb.size().width), side(rgb.size().height));
    encoder.encode(rgb.bytes_all(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    out
}

/// A lossless WebP file, with chunks of metadata where asked for.
fn webp(rgb: &Rgb, exif: Option<Vec<u8>>, xmp: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = image_webp::WebPEncoder::new(&mut out);
    if let Some(exif) = exif {
        encoder.set_exif_metadata(exif);
    }
    if let Some(xmp) = xmp {
        encoder.set_xmp_metadata(xmp.as_bytes().to_vec());
    }
    let (width, height) = (rgb.size().width, rgb.size().height);
    encoder.encode(rgb.bytes_all(), width, height, image_webp::ColorType::Rgb8).unwrap();
    out
}

/// A lossy WebP file of 16 x 11 pixels.
const LOSSY: &[u8] = include_bytes!("lossy.webp");

/// One of each coding, with a name.
fn good() -> Vec<(&'static str, Vec<u8>)> {
    let rgb = picture(61, 47);
    vec![
        ("baseline", plain(&rgb, FileFormat::Jpeg, 80)),
        ("restarts", restarting(&rgb)),
        ("progressive", progressive(&rgb)),
        ("png", plain(&rgb, FileFormat::Png, 0)),
        ("lossless", webp(&rgb, None, None)),
        ("lossy", LOSSY.to_vec()),
    ]
}

fn with_exif(jpeg: &[u8], block: &[u8]) -> Vec<u8> {
    let body = [b"Exif\0\0", block].concat();
    let length = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, &body, &jpeg[2..]].concat()
}

#[test]
fn png_round_trip_is_exact_and_jpeg_is_near_at_any_size() {
    for (width, height) in [(1, 1), (1, 7), (8, 8), (17, 9), (64, 48), (131, 67)] {
        let rgb = picture(width, height);
        let back = open(&plain(&rgb, FileFormat::Png, 0)).unwrap();
        assert_eq!((back.format, &back.rgb), (FileFormat::Png, &rgb));
        let back = open(&plain(&rgb, FileFormat::Jpeg, 95)).unwrap();
        assert_eq!(back.format, FileFormat::Jpeg);
        assert!(worst(&back.rgb, &rgb) < 24, "{width}x{height}");
        let back = open(&webp(&rgb, None, None)).unwrap();
        assert_eq!((back.format, &back.rgb), (FileFormat::WebP, &rgb));
    }
}

#[test]
fn every_jpeg_coding_gives_the_same_picture() {
    let rgb = picture(61, 47);
    for (name, file) in good().into_iter().take(3) {
        let mean = |a: &Rgb| {
            let sum =
                a.bytes_all().iter().zip(rgb.bytes_all()).map(|(a, b)| u32::from(a.abs_diff(*b)));
            f64::from(sum.sum::<u32>()) / a.bytes_all().len() as f64
        };
        let back = open(&file).unwrap().rgb;
        assert!(mean(&back) < 6.0, "{name}: {}", mean(&back));
    }
}

#[test]
fn a_lossy_webp_is_read() {
    let back = open(LOSSY).unwrap();
    assert_eq!((back.format, back.rgb.size()), (FileFormat::WebP, Size::new(16, 11)));
    assert!(back.alpha.is_none());
}

#[test]
fn all_orientations_come_out_upright_from_every_format() {
    let rgb = picture(23, 9);
    for value in 1..=8 {
        let want = |stored: &Rgb| {
            let value = u8::try_from(value).unwrap();
            orient::upright(stored.clone(), orient::Orientation::from_exif(value).unwrap())
        };
        let block = block_with_orientation(value, value % 2 == 0);
        let jpeg = plain(&rgb, FileFormat::Jpeg, 92);
        let stored = open(&jpeg).unwrap().rgb;
        assert_eq!(open(&with_exif(&jpeg, &block)).unwrap().rgb, want(&stored), "{value}");
        assert_eq!(open(&webp(&rgb, Some(block.clone()), None)).unwrap().rgb, want(&rgb));
        let png = plain(&rgb, FileFormat::Png, 0);
        let turned = [&png[..33], &png_chunk(b"eXIf", &block), &png[33..]].concat();
        assert_eq!(open(&turned).unwrap().rgb, want(&rgb), "{value}");
    }
}

#[test]
fn grey_is_written_with_one_channel_and_comes_back_grey() {
    let grey = Image::from_vec(
        Size::new(20, 10),
        (0..200u32).flat_map(|i| [(i * 255 / 199) as u8; 3]).collect(),
    )
    .unwrap();
    let png = plain(&grey, FileFormat::Png, 0);
    assert_eq!(png[25], 0, "colour type grey");
    assert_eq!(open(&png).unwrap().rgb, grey);
    let jpeg = plain(&grey, FileFormat::Jpeg, 92);
    let frame = hostile::jpeg_markers(&jpeg).into_iter().find(|m| m.1 == 0xc0).unwrap().0;
    assert_eq!(jpeg[frame + 9], 1, "components");
    let back = open(&jpeg).unwrap().rgb;
    assert!(worst(&back, &grey) < 8);
    assert!(is_grey(back.view()));
}

#[test]
fn ink_becomes_light_in_adobe_and_plain_cmyk_and_in_ycck() {
    use jpeg_encoder::ColorType;
    let inks: [[u8; 4]; 4] = [[0, 0, 0, 0], [255, 0, 0, 0], [20, 200, 90, 60], [0, 0, 0, 255]];
    for ink in inks {
        let data = ink.repeat(16 * 16);
        let want: Vec<u8> = (0..3)
            .map(|i| u32::from(255 - ink[i]) * u32::from(255 - ink[3]))
            .map(|light| ((light + 127) / 255) as u8)
            .collect();
        for colour in [ColorType::Cmyk, ColorType::CmykAsYcck] {
            let mut file = Vec::new();
            let encoder = jpeg_encoder::Encoder::new(&mut file, 100);
            encoder.encode(&data, 16, 16, colour).unwrap();
            let got = open(&file).unwrap().rgb.view().pixel(7, 7);
            assert!(got.iter().zip(&want).all(|(a, b)| a.abs_diff(*b) < 5), "{got:?} {want:?}");
            if colour == ColorType::Cmyk {
                // Without Adobe's mark the samples are not inverted: this file means the contrary.
                let at = hostile::jpeg_markers(&file).into_iter().find(|m| m.1 == 0xee).unwrap().0;
                let unmarked = [&file[..at], &file[at + 16..]].concat();
                let got = open(&unmarked).unwrap().rgb.view().pixel(7, 7);
                let light = |i: usize| u32::from(ink[i]) * u32::from(ink[3]) / 255;
                assert!((0..3).all(|i| light(i).abs_diff(u32::from(got[i])) < 5), "{got:?}");
            }
        }
    }
}

#[test]
fn adobe_rgb_and_components_named_rgb_are_not_taken_for_ycbcr() {
    // A file of YCbCr samples that then says they are RGB: its colours are the samples.
    let rgb = Image::filled(Size::new(16, 16), [200, 40, 90]);
    let file = plain(&rgb, FileFormat::Jpeg, 100);
    let samples = jpeg_encoder::rgb_to_ycbcr(200, 40, 90);
    let without_jfif = [&file[..2], &file[20..]].concat();
    let adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0";
    let marked = [&without_jfif[..2], &adobe[..], &without_jfif[2..]].concat();
    let mut named = without_jfif;
    let frame = hostile::jpeg_markers(&named).into_iter().find(|m| m.1 == 0xc0).unwrap().0;
    let scan = hostile::jpeg_markers(&named).into_iter().find(|m| m.1 == 0xda).unwrap().0;
    for (i, id) in b"RGB".iter().enumerate() {
        named[frame + 10 + 3 * i] = *id;
        named[scan + 5 + 2 * i] = *id;
    }
    for file in [marked, named] {
        let [r, g, b] = open(&file).unwrap().rgb.view().pixel(5, 5);
        let off = r.abs_diff(samples.0).max(g.abs_diff(samples.1)).max(b.abs_diff(samples.2));
        assert!(off < 3, "{r} {g} {b} {samples:?}");
    }
}

/// A PNG file of raw rows (each with its filter byte).
fn raw_png(header: &[u8], extra: &[u8], rows: &[u8]) -> Vec<u8> {
    let data = png_chunk(b"IDAT", &fdeflate::compress_to_vec(rows));
    [header, extra, &data, &png_chunk(b"IEND", &[])].concat()
}

#[test]
fn sixteen_bits_are_rounded_to_the_nearest_of_eight() {
    let samples: Vec<u16> = (0..=255u16)
        .flat_map(|i| [i * 257, (i * 257).saturating_add(128), (i * 257).saturating_add(129)])
        .collect();
    let mut rows = vec![0];
    rows.extend(samples.iter().flat_map(|s| s.to_be_bytes()));
    let file = raw_png(&png_header(256, 1, 16, 2, 0), &[], &rows);
    let back = open(&file).unwrap();
    for (sample, got) in samples.iter().zip(back.rgb.bytes_all()) {
        let want = (f64::from(*sample) * 255.0 / 65535.0).round() as u8;
        assert_eq!(*got, want, "{sample}");
    }
}

#[test]
fn small_depths_palettes_and_transparency_are_expanded() {
    // Grey of 1, 2 and 4 bits: one row of 0, most, 0, most.
    for (depth, row) in [(1, 0b0101_0000u8), (2, 0b0011_0011)] {
        let file = raw_png(&png_header(4, 1, depth, 0, 0), &[], &[0, row]);
        let want = [[0; 3], [255; 3], [0; 3], [255; 3]].concat();
        assert_eq!(open(&file).unwrap().rgb.bytes_all(), want);
    }
    let file = raw_png(&png_header(4, 1, 4, 0, 0), &[], &[0, 0x0f, 0x5a]);
    let want = [[0; 3], [255; 3], [85; 3], [170; 3]].concat();
    assert_eq!(open(&file).unwrap().rgb.bytes_all(), want);
    // Three colours of a palette, the second half transparent.
    let palette = png_chunk(b"PLTE", &[1, 2, 3, 40, 50, 60, 7, 8, 9]);
    let clear = png_chunk(b"tRNS", &[255, 128]);
    let extra = [palette, clear].concat();
    let back = open(&raw_png(&png_header(3, 1, 8, 3, 0), &extra, &[0, 2, 1, 0])).unwrap();
    assert_eq!(back.rgb.bytes_all(), [7, 8, 9, 40, 50, 60, 1, 2, 3]);
    assert_eq!(back.alpha.unwrap().bytes_all(), [255, 128, 255]);
    // One grey value that stands for "nothing".
    let clear = png_chunk(b"tRNS", &[0, 9]);
    let back = open(&raw_png(&png_header(3, 1, 8, 0, 0), &clear, &[0, 8, 9, 10])).unwrap();
    assert_eq!(back.alpha.unwrap().bytes_all(), [255, 0, 255]);
    // Grey and colour with alpha, 16 bits.
    let row = [0, 0xff, 0xff, 0x80, 0x80];
    let back = open(&raw_png(&png_header(1, 1, 16, 4, 0), &[], &row)).unwrap();
    assert_eq!(back.rgb.bytes_all(), [255; 3]);
    assert_eq!(back.alpha.unwrap().bytes_all(), [128]);
    let row = [0, 0, 0, 0xff, 0xff, 0x80, 0x80, 0x40, 0x40];
    let back = open(&raw_png(&png_header(1, 1, 16, 6, 0), &[], &row)).unwrap();
    assert_eq!(back.rgb.bytes_all(), [0, 255, 128]);
    assert_eq!(back.alpha.unwrap().bytes_all(), [64]);
}

#[test]
fn interlaced_rows_go_to_their_places() {
    let rgb = picture(13, 11);
    let passes = [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ];
    let (mut colour, mut clear) = (Vec::new(), Vec::new());
    for (x0, y0, dx, dy) in passes {
        for y in (y0..11).step_by(dy) {
            let xs: Vec<u32> = (x0..13).step_by(dx).collect();
            if xs.is_empty() {
                continue;
            }
            colour.push(0);
            clear.push(0);
            for x in xs {
                let [r, g, b] = rgb.view().pixel(x, y);
                colour.extend([r, g, b]);
                clear.extend([r, r, g, g, b, b, x as u8, x as u8]);
            }
        }
    }
    let back = open(&raw_png(&png_header(13, 11, 8, 2, 1), &[], &colour)).unwrap();
    assert_eq!(back.rgb, rgb);
    let back = open(&raw_png(&png_header(13, 11, 16, 6, 1), &[], &clear)).unwrap();
    assert_eq!(back.rgb, rgb);
    assert_eq!(back.alpha.unwrap().view().row(10), (0..13).collect::<Vec<u8>>());
}

#[test]
fn alpha_survives_png_and_lies_on_white_in_jpeg() {
    let rgb = Image::filled(Size::new(16, 16), [200, 0, 100]);
    let mut alpha = Image::filled(Size::new(16, 16), [0u8]);
    alpha.bytes_all_mut()[128..].fill(255);
    let none = Metadata::default();
    let png = encode(rgb.view(), Some(alpha.view()), FileFormat::Png, 0, &none).unwrap();
    let back = open(&png).unwrap();
    assert_eq!((&back.rgb, back.alpha.as_ref()), (&rgb, Some(&alpha)));
    let jpeg = encode(rgb.view(), Some(alpha.view()), FileFormat::Jpeg, 95, &none).unwrap();
    let back = open(&jpeg).unwrap();
    assert!(back.rgb.view().pixel(8, 3).iter().all(|&v| v > 250), "what was hidden stays hidden");
    assert!(back.rgb.view().pixel(8, 13)[1] < 6);
    // An alpha channel of another size is refused, an opaque one is none.
    let wrong = Image::filled(Size::new(15, 16), [0u8]);
    assert!(encode(rgb.view(), Some(wrong.view()), FileFormat::Png, 0, &none).is_err());
    alpha.bytes_all_mut().fill(255);
    let png = encode(rgb.view(), Some(alpha.view()), FileFormat::Png, 0, &none).unwrap();
    assert!(open(&png).unwrap().alpha.is_none());
}

#[test]
fn a_part_of_a_picture_encodes_as_its_copy_does() {
    let rgb = picture(50, 40);
    let part = rgb.view().crop(Roi { x: 3, y: 5, width: 33, height: 21 });
    let copy = part.to_image();
    for format in [FileFormat::Jpeg, FileFormat::Png] {
        let none = Metadata::default();
        let from_part = encode(part, None, format, 85, &none).unwrap();
        assert_eq!(from_part, plain(&copy, format, 85), "{format:?}");
        assert_eq!(from_part, encode(part, None, format, 85, &none).unwrap());
    }
}

fn profile(space: &[u8; 4]) -> Vec<u8> {
    let mut icc = vec![0x11; 3000];
    let size = u32::try_from(icc.len()).unwrap();
    icc[..4].copy_from_slice(&size.to_be_bytes());
    icc[16..20].copy_from_slice(space);
    icc[36..40].copy_from_slice(b"acsp");
    icc
}

const XMP: &str = "<?xpacket begin=''?><x:xmpmeta xmlns:x='adobe:ns:meta/'>ä</x:xmpmeta>";
const AIGC: &str = r#"{"Label":"1","ContentProducer":"mien","ProduceID":"x"}"#;

#[test]
fn metadata_is_written_and_read_back_in_both_formats() {
    let rgb = picture(20, 20);
    let meta = Metadata {
        xmp: Some(XMP.to_owned()),
        aigc: Some(AIGC.to_owned()),
        icc: Some(profile(b"RGB ")),
    };
    for format in [FileFormat::Jpeg, FileFormat::Png] {
        let file = encode(rgb.view(), None, format, 92, &meta).unwrap();
        assert_eq!(read_metadata(&file).unwrap(), meta, "{format:?}");
        let back = open(&file).unwrap();
        assert_eq!(back.meta, Metadata { xmp: None, ..meta.clone() }, "XMP does not travel on");
    }
    let block = exif::with_comment(AIGC);
    let file = webp(&rgb, Some(block), Some(XMP));
    let want = Metadata { icc: None, ..meta };
    assert_eq!(read_metadata(&file).unwrap(), want);
}

#[test]
fn a_large_profile_is_split_and_put_together() {
    let mut icc = profile(b"RGB ");
    icc.resize(200_000, 7);
    let size = u32::try_from(icc.len()).unwrap();
    icc[..4].copy_from_slice(&size.to_be_bytes());
    let meta = Metadata { icc: Some(icc.clone()), ..Metadata::default() };
    let file = encode(picture(9, 9).view(), None, FileFormat::Jpeg, 92, &meta).unwrap();
    assert_eq!(open(&file).unwrap().meta.icc, Some(icc));
}

#[test]
fn a_profile_that_does_not_fit_the_pixels_is_left_out() {
    let (colour, grey) = (picture(20, 20), Image::filled(Size::new(8, 8), [9; 3]));
    let icc_of = |rgb: &Rgb, icc: Vec<u8>, format| {
        let meta = Metadata { icc: Some(icc), ..Metadata::default() };
        read_metadata(&encode(rgb.view(), None, format, 92, &meta).unwrap()).unwrap().icc
    };
    for format in [FileFormat::Jpeg, FileFormat::Png] {
        assert_eq!(icc_of(&colour, profile(b"CMYK"), format), None);
        assert_eq!(icc_of(&colour, profile(b"GRAY"), format), None);
        assert_eq!(icc_of(&grey, profile(b"GRAY"), format), Some(profile(b"GRAY")));
        assert_eq!(icc_of(&grey, profile(b"RGB "), format), Some(profile(b"RGB ")));
        assert_eq!(icc_of(&colour, vec![1, 2, 3], format), None);
    }
}

#[test]
fn nothing_personal_travels_on() {
    let rgb = picture(20, 20);
    let jpeg = with_exif(&plain(&rgb, FileFormat::Jpeg, 92), &exif::with_comment("at home, 52.1N"));
    let back = open(&jpeg).unwrap();
    assert_eq!(back.meta, Metadata::default());
    let out = encode(back.rgb.view(), None, FileFormat::Jpeg, 92, &back.meta).unwrap();
    assert!(!out.windows(4).any(|w| w == b"Exif"));
    assert!(!out.windows(5).any(|w| w == b"52.1N"));
}

#[test]
fn texts_that_a_format_cannot_carry_are_refused_before_encoding() {
    let rgb = picture(4, 4);
    for meta in [
        Metadata { aigc: Some("{\"Label\":\"é\"}".to_owned()), ..Metadata::default() },
        Metadata { aigc: Some("x".repeat(5000)), ..Metadata::default() },
        Metadata { xmp: Some("x".repeat(70_000)), ..Metadata::default() },
    ] {
        for format in [FileFormat::Jpeg, FileFormat::Png] {
            let error = encode(rgb.view(), None, format, 92, &meta).unwrap_err();
            assert!(matches!(error, Error::Metadata { .. }), "{error}");
        }
    }
    let most =
        Metadata { xmp: Some("x".repeat(mien_base::limits::XMP_WRITTEN)), ..Metadata::default() };
    assert!(encode(rgb.view(), None, FileFormat::Jpeg, 92, &most).is_ok());
}

#[test]
fn webp_is_not_written_and_the_error_says_what_to_do() {
    let error = encode(picture(4, 4).view(), None, FileFormat::WebP, 92, &Metadata::default());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains(".png or .jpg"), "{error}");
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    for (name, file) in good() {
        assert!(open(&file).is_ok(), "{name}");
        for cut in (0..file.len()).step_by((file.len() / 97).max(1)).chain([file.len() - 1]) {
            let error = open(&file[..cut]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput, "{name} at {cut}: {error}");
        }
    }
}

#[test]
fn a_jpeg_that_is_cut_and_closed_again_is_refused() {
    for (name, file) in good().into_iter().take(2) {
        let scan = hostile::jpeg_markers(&file).into_iter().find(|m| m.1 == 0xda).unwrap().0;
        for cut in (scan + 12..file.len() - 8).step_by(13) {
            let closed = [&file[..cut], &[0xff, 0xd9][..]].concat();
            assert!(open(&closed).is_err(), "{name} at {cut} of {}", file.len());
        }
    }
    // The first scan of a progressive file holds the picture; later ones only sharpen it.
    let file = progressive(&picture(61, 47));
    let markers = hostile::jpeg_markers(&file);
    let scan = markers.iter().position(|m| m.1 == 0xda).unwrap();
    for cut in markers[scan].0 + 12..markers[scan + 1].0 - 2 {
        assert!(open(&[&file[..cut], &[0xff, 0xd9][..]].concat()).is_err(), "at {cut}");
    }
}

#[test]
fn sizes_beyond_the_bounds_are_too_large_before_any_pixel() {
    let jpeg = plain(&picture(20, 20), FileFormat::Jpeg, 92);
    let frame = hostile::jpeg_markers(&jpeg).into_iter().find(|m| m.1 == 0xc0).unwrap().0;
    let mut wide = jpeg.clone();
    wide[frame + 5..frame + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
    let png =
        [png_header(16_384, 16_384, 8, 2, 0), png_chunk(b"IDAT", &hostile::zeros(999))].concat();
    let vp8l = b"RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0\x2f\xff\xff\xff\x0f\0\0\0\0\0";
    for file in [&wide[..], &png, vp8l] {
        let error = open(file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    }
    let small = Bounds { side: 19, ..Bounds::default() };
    assert_eq!(decode(&jpeg, &small).unwrap_err().kind(), ErrorKind::TooLarge);
    let few = Bounds { pixels: 399, ..Bounds::default() };
    assert_eq!(decode(&jpeg, &few).unwrap_err().kind(), ErrorKind::TooLarge);
    let short = Bounds { file: 100, ..Bounds::default() };
    assert_eq!(decode(&jpeg, &short).unwrap_err().kind(), ErrorKind::TooLarge);
    let many = hostile::scans(8_000, 8_000, 30);
    assert_eq!(open(&many).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(open(&hostile::scans(640, 480, 30)).is_ok());
}

#[test]
fn moving_pictures_are_refused_by_name() {
    let png = plain(&picture(9, 9), FileFormat::Png, 0);
    let frames = |n: u8| {
        let control = png_chunk(b"acTL", &[0, 0, 0, n, 0, 0, 0, 0]);
        [&png[..33], &control, &png[33..]].concat()
    };
    assert!(open(&frames(2)).unwrap_err().to_string().starts_with("Animated PNG is not read"));
    let still = webp(&picture(9, 9), None, None);
    let chunks = [b"VP8X\x0a\0\0\0\x02\0\0\0\x08\0\0\x08\0\0", &still[12..]].concat();
    let length = u32::try_from(chunks.len() + 4).unwrap().to_le_bytes();
    let moving = [b"RIFF", &length[..], b"WEBP", &chunks].concat();
    assert!(open(&moving).unwrap_err().to_string().starts_with("Animated WebP is not read"));
}

#[test]
fn hostile_files_are_refused_or_decoded_in_time() {
    let good = good();
    let good: Vec<(&str, &[u8])> = good.iter().map(|(n, b)| (*n, b.as_slice())).collect();
    let files = hostile::make(&good, 7);
    assert!(files.len() >= 240, "{}", files.len());
    let mut names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), files.len(), "names are unique");
    let clock = SystemClock::start();
    for file in &files {
        let start = clock.mono();
        let result = open(&file.bytes);
        let meta = read_metadata(&file.bytes);
        assert!(clock.mono().since(start) < Duration::from_secs(5), "{}", file.name);
        match result {
            Ok(_) => assert!(!file.refused, "{} was taken for a picture", file.name),
            Err(error) => {
                assert!(!error.to_string().contains("gave up"), "{}: a panic", file.name);
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::BadInput | ErrorKind::TooLarge), "{}", file.name);
            }
        }
        if let Ok(meta) = meta {
            assert!(meta.icc.is_none_or(|icc| icc.len() <= mien_base::limits::ICC_PROFILE));
        }
    }
    assert_eq!(
        files.iter().map(|f| f.bytes.len()).sum::<usize>(),
        hostile::make(&good, 7).iter().map(|f| f.bytes.len()).sum::<usize>()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_files_never_panic(which in 0usize..6, hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let (_, mut file) = good().swap_remove(which);
        for (at, to) in hits {
            let at = at.index(file.len());
            file[at] = to;
        }
        if which == 3 {
            file = hostile::mended(&file);
        }
        let _ = read_metadata(&file);
        if let Err(error) = open(&file) {
            prop_assert!(!error.to_string().contains("gave up"), "{}", error);
        }
    }

    #[test]
    fn any_bytes_behind_a_signature_are_handled(which in 0usize..3, rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let head: &[u8] = [&b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBP"][which];
        let file = [head, &rest].concat();
        let _ = read_metadata(&file);
        let _ = open(&file);
        let _ = sniff::refusal(&rest);
    }
}

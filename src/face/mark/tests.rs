//! Marks that are made, written to a file, damaged, and read back.

use super::*;
use mien_base::clock::ManualClock;
use mien_base::id::DeviceId;
use mien_base::recipe::{Corner, Recipe};
use mien_base::report::Verdict;
use mien_engine::cpu::Cpu;
use mien_pixels::codec::{self, Bounds, FileFormat};
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::view::{Image, Rgb};

fn made(width: u32, height: u32) -> Rgb {
    let data = (0..height)
        .flat_map(|y| (0..width).map(move |x| (x as f32, y as f32)))
        .flat_map(|(x, y)| {
            let wave = (x / 17.0).sin() * (y / 23.0).cos() * 60.0 + (x * 0.7 + y * 1.3).sin() * 9.0;
            [130.0 + wave, 120.0 + wave * 0.8, 100.0 + y % 40.0].map(|v| v as u8)
        })
        .collect();
    Image::from_vec(Size::new(width, height), data).unwrap()
}

fn mark() -> Mark {
    Mark { device: DeviceId::new(77).unwrap(), counter: 12_345, ..Recipe::default().mark }
}

fn applied(picture: Rgb, altered: Altered, mark: &Mark) -> Marked<Cpu> {
    let cpu = Cpu::new(1);
    let clock = ManualClock::at(Wall(1_796_063_974));
    apply(&cpu, cpu.adopt(picture).unwrap(), altered, mark, &clock).unwrap()
}

fn file(marked: Marked<Cpu>, format: FileFormat) -> (Vec<u8>, MarkReport) {
    let (picture, metadata, report) = marked.into_parts();
    let rgb = Cpu::new(1).release(picture).unwrap();
    (codec::encode(rgb.view(), None, format, 85, &metadata).unwrap(), report)
}

fn verdict(file: &[u8]) -> Verdict {
    let decoded = codec::decode(file, &Bounds::default()).unwrap();
    verify(decoded.rgb.view(), &codec::read_metadata(file).unwrap())
}

#[test]
fn marks_are_whole_in_files_of_both_formats_and_any_corner() {
    let corners = [Corner::TopLeft, Corner::TopRight, Corner::BottomLeft, Corner::BottomRight];
    for (format, corner) in
        [FileFormat::Png, FileFormat::Jpeg].into_iter().flat_map(|f| corners.map(|c| (f, c)))
    {
        for (altered, label) in
            [(Altered::Generated, "AI GENERATED · AI生成"), (Altered::Masked, "ANONYMISED")]
        {
            let mark = Mark { corner, ..mark() };
            let (bytes, report) = file(applied(made(640, 480), altered, &mark), format);
            assert!(report.visible && report.invisible && report.metadata, "{report:?}");
            assert!(report.psnr > 48.0 && report.reasons.is_empty(), "{report:?}");
            let verdict = verdict(&bytes);
            assert!(verdict.whole, "{format:?} {corner:?} {verdict:?}");
            assert_eq!(verdict.label.as_deref(), Some(label));
            assert_eq!(verdict.payload.as_deref(), Some(report.payload.as_str()));
            assert_eq!((verdict.device, verdict.counter), (Some(77), Some(12_345)));
            assert_eq!(verdict.generated, Some(altered == Altered::Generated));
            assert_eq!(verdict.aigc.is_some(), altered == Altered::Generated);
        }
    }
}

#[test]
fn unaltered_picture_leaves_marked_without_label() {
    let before = made(640, 480);
    let (bytes, report) = file(applied(before.clone(), Altered::Nothing, &mark()), FileFormat::Png);
    assert!(!report.visible && report.invisible && !report.metadata);
    let after = codec::decode(&bytes, &Bounds::default()).unwrap().rgb;
    let worst = before.bytes_all().iter().zip(after.bytes_all()).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst.unwrap() <= 7, "{worst:?}");
    let verdict = verdict(&bytes);
    assert!(verdict.whole && verdict.altered == Some(false) && verdict.label.is_none());
}

#[test]
fn plain_picture_has_no_marks_and_says_so() {
    let verdict = verify(made(640, 480).view(), &Metadata::default());
    assert!(!verdict.whole && verdict.payload.is_none() && verdict.label.is_none());
    assert_eq!(verdict.altered, None);
    assert_eq!(verdict.reasons.len(), 3, "{verdict:?}");
}

#[test]
fn each_mark_that_is_taken_away_is_named() {
    let (bytes, _) = file(applied(made(640, 480), Altered::Generated, &mark()), FileFormat::Png);
    let decoded = codec::decode(&bytes, &Bounds::default()).unwrap();
    let meta = codec::read_metadata(&bytes).unwrap();
    let named = |verdict: Verdict, word: &str| {
        assert!(!verdict.whole && verdict.reasons.iter().any(|r| r.contains(word)), "{verdict:?}");
    };
    named(verify(decoded.rgb.view(), &Metadata { xmp: None, ..meta.clone() }), "DigitalSourceType");
    named(verify(decoded.rgb.view(), &Metadata { aigc: None, ..meta.clone() }), "AIGC");
    let other = meta.aigc.clone().map(|text| text.replace("7000", "6000"));
    named(verify(decoded.rgb.view(), &Metadata { aigc: other, ..meta.clone() }), "another picture");
    let lies = meta
        .xmp
        .clone()
        .map(|x| x.replace("compositeWithTrainedAlgorithmicMedia", "digitalCapture"));
    named(verify(decoded.rgb.view(), &Metadata { xmp: lies, ..meta.clone() }), "digitalCapture");

    let mut covered = decoded.rgb.clone();
    let roi = Label::new(covered.size(), Altered::Generated, 0.05, Corner::BottomLeft).unwrap().roi;
    for y in roi.y..roi.y + roi.height {
        let at = roi.x as usize * 3;
        covered.view_mut().row_mut(y)[at..at + roi.width as usize * 3].fill(90);
    }
    named(verify(covered.view(), &meta), "no label");

    let part = decoded.rgb.view().crop(Roi { x: 3, y: 5, width: 600, height: 470 });
    named(verify(part, &meta), "no invisible mark");
}

#[test]
fn halved_picture_still_names_its_payload_and_label() {
    let marked = applied(made(1280, 960), Altered::Generated, &mark());
    let meta = marked.metadata().clone();
    let rgb = Cpu::new(1).release(marked.into_parts().0).unwrap();
    let mut half = Image::filled(Size::new(640, 480), [0; 3]);
    mien_pixels::resize::resize(rgb.view(), &mut half.view_mut());
    let verdict = verify(half.view(), &meta);
    assert!(verdict.whole, "{verdict:?}");
}

#[test]
fn small_pictures_leave_with_what_fits_and_say_why() {
    for (w, h, visible, invisible) in
        [(1, 1, false, false), (12, 5, false, false), (40, 30, true, false), (130, 128, true, true)]
    {
        let (bytes, report) =
            file(applied(made(w, h), Altered::Generated, &mark()), FileFormat::Png);
        assert_eq!((report.visible, report.invisible), (visible, invisible), "{w}x{h} {report:?}");
        assert!(report.metadata);
        let missing = usize::from(!visible) + usize::from(!invisible);
        assert_eq!(report.reasons.len(), missing, "{report:?}");
        assert!(report.psnr.is_finite());
        let verdict = verdict(&bytes);
        assert_eq!(verdict.whole, invisible, "{verdict:?}");
        assert_eq!(verdict.generated, Some(true), "{verdict:?}");
    }
}

#[test]
fn marks_and_profile_of_the_input_are_kept() {
    let (first, _) = file(applied(made(640, 480), Altered::Generated, &mark()), FileFormat::Png);
    let input = codec::decode(&first, &Bounds::default()).unwrap();
    let again = Mark { counter: 999, producer: "second".to_owned(), ..mark() };
    let carried = Metadata { icc: Some(vec![7; 200]), ..input.meta.clone() };
    let marked = applied(input.rgb, Altered::Masked, &again).carrying(&carried);
    assert_eq!(marked.metadata().icc, carried.icc);
    let fields = metadata::parse(marked.metadata().aigc.as_deref().unwrap()).unwrap();
    assert_eq!(
        (fields["ContentProducer"].as_str(), fields["ProduceID"].as_str()),
        ("mien", "7000004d00003039")
    );
    assert_eq!(
        (fields["ContentPropagator"].as_str(), fields["PropagateID"].as_str()),
        ("second", "6000004d000003e7")
    );
    let (bytes, report) = file(marked, FileFormat::Png);
    assert!(report.invisible);
    let verdict = verdict(&bytes);
    assert!(verdict.whole && verdict.counter == Some(999), "{verdict:?}");
}

#[test]
fn same_picture_and_clock_give_the_same_bytes() {
    let once = || file(applied(made(300, 200), Altered::Generated, &mark()), FileFormat::Jpeg).0;
    assert_eq!(once(), once());
}

#[test]
fn hostile_metadata_never_panic() {
    let rgb = made(130, 130);
    for text in
        ["", "\"", "DigitalSourceType=\"", "{\"Label\":\"1\"", "{", "é", "{\"Label\":\"9\"}"]
    {
        let meta = Metadata {
            xmp: Some(text.to_owned()),
            aigc: Some(text.to_owned()),
            ..Metadata::default()
        };
        assert!(!verify(rgb.view(), &meta).whole);
    }
    assert!(!verify(Image::filled(Size::new(0, 0), [0; 3]).view(), &Metadata::default()).whole);
}

#[test]
fn labels_of_any_height_are_found_also_after_resizing() {
    for (i, share) in [0.053, 0.066, 0.075, 0.091, 0.113, 0.149].into_iter().enumerate() {
        let corner =
            [Corner::BottomLeft, Corner::TopRight, Corner::TopLeft, Corner::BottomRight][i % 4];
        let mark = Mark { label_height: share, corner, ..mark() };
        let marked = applied(made(700, 520), Altered::Masked, &mark);
        let meta = marked.metadata().clone();
        let rgb = Cpu::new(1).release(marked.into_parts().0).unwrap();
        let label = Label::new(rgb.size(), Altered::Masked, share, corner).unwrap();
        for (w, h) in [(700, 520), (539, 400), (350, 260)] {
            let mut other = Image::filled(Size::new(w, h), [0; 3]);
            mien_pixels::resize::resize(rgb.view(), &mut other.view_mut());
            let verdict = verify(other.view(), &meta);
            assert_eq!(verdict.label.as_ref(), Some(&label.text), "{share} {w}x{h}");
        }
    }
    for seed in 0..4 {
        let plain = made(400 + 30 * seed, 300);
        assert_eq!(verify(plain.view(), &Metadata::default()).label, None);
    }
}

//! Tests of the marks of clips.

use super::*;
use mien_base::id::DeviceId;
use mien_base::recipe::{Corner, Recipe};
use mien_pixels::geometry::Roi;
use mien_pixels::glyph;
use mien_pixels::stdm::clip::Reader;
use mien_pixels::view::Rgb;

use crate::mark::ClipCheck;
use crate::recipe;

const COLOUR: Colour = Colour::BT709_LIMITED;

fn checked(action: &str, stands: Stands) -> Checked {
    let mut asked = Recipe { action: action.parse().unwrap(), ..Recipe::default() };
    asked.mark = Mark { device: DeviceId::new(9).unwrap(), counter: 41, stands, ..asked.mark };
    recipe::check(&asked).unwrap()
}

fn frame(size: Size, number: u32) -> I420 {
    let mut image = I420::new(size, COLOUR);
    for (p, mut plane) in image.planes_mut().into_iter().enumerate() {
        let Size { width, height } = plane.size();
        for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
            let wave = ((x + number) as f32 / 9.0).sin() * 30.0 + (y as f32 / 14.0).cos() * 25.0;
            let grain = (x * 7 + y * 13 + number * 5) % 11;
            plane.row_mut(y)[x as usize] = if p == 0 {
                (110.0 + wave) as u8 + grain as u8
            } else {
                (120.0 + wave / 4.0) as u8
            };
        }
    }
    image
}

fn at(number: u32) -> Duration {
    Duration::from_millis(u64::from(number) * 40)
}

/// How much the corner of the upright frame looks like the label.
fn likeness(image: &I420, turn: Turn, altered: Altered) -> f32 {
    let mut coded = Rgb::filled(image.size(), [0; 3]);
    image.view().to_rgb(Roi::whole(image.size()), &mut coded.view_mut());
    let size = turn.size(image.size());
    let pixels = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    let seen = pixels.flat_map(|p| {
        let (x, y) = turn.place(p, image.size());
        coded.view().pixel(x, y)
    });
    let seen = Rgb::from_vec(size, seen.collect()).unwrap();
    let label = Label::new(size, altered, 0.05, Corner::BottomLeft).unwrap();
    glyph::likeness(seen.view().crop(label.roi), &label.plate)
}

#[test]
fn every_frame_carries_label_and_payload() {
    let size = Size::new(640, 360);
    let recipe = checked("synthetic:1", Stands::Always);
    let mut clip = Clip::new(&recipe, size, Turn::None, COLOUR);
    let mut reader = Reader::new(size, COLOUR.range);
    let payload =
        Payload { altered: Altered::Generated, device: DeviceId::new(9).unwrap(), counter: 41 };
    for number in 0..30 {
        let altered = if number < 5 { Altered::Nothing } else { Altered::Generated };
        let marked =
            clip.apply(frame(size, number), altered, at(number), number % 10 == 0).unwrap();
        assert!(likeness(marked.image(), Turn::None, Altered::Generated) > 0.9, "{number}");
        reader.push(marked.image().y());
        if number % 10 == 9 {
            assert_eq!(reader.finish().map(|r| r.payload), Some(payload.bits()));
        }
    }
    let marks = clip.marks();
    assert!(marks.visible && marks.psnr > 45.0, "{marks:?}");
    assert_eq!((marks.gops, marks.marked), (3, 3));
    assert_eq!(marks.payload, payload.hex());
    let record = clip.record(None).unwrap();
    assert_eq!(metadata::parse(&record).unwrap()["ProduceID"], payload.hex());
}

#[test]
fn label_at_the_start_stands_for_two_seconds_and_no_longer() {
    let size = Size::new(320, 240);
    let mut clip = Clip::new(&checked("blur", Stands::Start), size, Turn::None, COLOUR);
    let mut seen = Vec::new();
    for number in 0..100 {
        let marked = clip.apply(frame(size, number), Altered::Masked, at(number), number == 0);
        let like = likeness(marked.unwrap().image(), Turn::None, Altered::Masked);
        seen.push(like > 0.9);
    }
    let until = seen.iter().position(|s| !s).unwrap();
    assert!(at(until as u32) >= Duration::from_secs(2), "{until}");
    assert!(seen[until..].iter().all(|s| !s), "it does not come back");
}

#[test]
fn label_stands_upright_in_turned_clips() {
    let size = Size::new(480, 270);
    for turn in [Turn::Right, Turn::Half, Turn::Left] {
        let mut clip = Clip::new(&checked("blur", Stands::Always), size, turn, COLOUR);
        let marked = clip.apply(frame(size, 1), Altered::Masked, at(0), true).unwrap();
        assert!(likeness(marked.image(), turn, Altered::Masked) > 0.9, "{turn:?}");
    }
}

#[test]
fn a_frame_that_was_altered_more_than_declared_raises_the_marks() {
    let size = Size::new(400, 300);
    let mut clip = Clip::new(&checked("pass", Stands::Always), size, Turn::None, COLOUR);
    assert_eq!(clip.declared(), Altered::Nothing);
    let first = clip.apply(frame(size, 0), Altered::Nothing, at(0), true).unwrap();
    let mut reader = Reader::new(size, COLOUR.range);
    let mut says = |frame: &MarkedFrame| {
        reader.push(frame.image().y());
        reader.finish().and_then(|r| Payload::parse(r.payload)).map(|p| p.altered)
    };
    assert_eq!(says(&first), Some(Altered::Nothing));
    for number in 1..4 {
        let altered = if number == 1 { Altered::Masked } else { Altered::Nothing };
        let marked = clip.apply(frame(size, number), altered, at(number), false).unwrap();
        assert_eq!(says(&marked), Some(Altered::Masked), "{number}");
        assert!(likeness(marked.image(), Turn::None, Altered::Masked) > 0.9, "{number}");
    }
    assert_eq!(clip.marks().gops, 1);
}

#[test]
fn small_clips_carry_what_fits_and_say_why() {
    for (w, h, visible, invisible) in
        [(64, 48, true, false), (16, 8, false, false), (176, 144, true, true)]
    {
        let size = Size::new(w, h);
        let mut clip = Clip::new(&checked("blur", Stands::Always), size, Turn::None, COLOUR);
        clip.apply(frame(size, 0), Altered::Masked, at(0), true).unwrap();
        let marks = clip.marks();
        assert_eq!((marks.visible, marks.marked == 1), (visible, invisible), "{marks:?}");
        let missing = usize::from(!visible) + usize::from(!invisible);
        assert_eq!(marks.reasons.len(), missing, "{marks:?}");
    }
}

#[test]
fn a_frame_of_another_size_is_refused() {
    let mut clip =
        Clip::new(&checked("blur", Stands::Always), Size::new(64, 64), Turn::None, COLOUR);
    let other = frame(Size::new(64, 62), 0);
    let error = clip.apply(other, Altered::Masked, at(0), true).unwrap_err();
    assert!(error.to_string().contains("another size"), "{error}");
}

/// Marks so many frames and looks at them again, changed by `alter`.
fn checked_again(
    recipe: &Checked,
    (size, turn): (Size, Turn),
    frames: u32,
    mut alter: impl FnMut(u32, I420) -> I420,
) -> (ClipCheck, Clip) {
    let mut clip = Clip::new(recipe, size, turn, COLOUR);
    let mut check = ClipCheck::new(size, turn, COLOUR.range);
    let kind = declared(recipe);
    for number in 0..frames {
        let idr = u64::from(number) % limits::CLIP_GOP == 0;
        let marked = clip.apply(frame(size, number / 8), kind, at(number), idr).unwrap();
        check.push(&alter(number, marked.into_image()));
    }
    (check, clip)
}

#[test]
fn a_marked_clip_is_whole_and_says_how_many_gops_are_marked() {
    for turn in [Turn::None, Turn::Right] {
        let recipe = checked("synthetic:1", Stands::Start);
        let shape = (Size::new(480, 300), turn);
        let (check, mut clip) = checked_again(&recipe, shape, 130, |_, image| image);
        let record = clip.record(None).unwrap();
        let verdict = check.finish(Some(Some(&record)));
        assert!(verdict.whole, "{verdict:?}");
        let found = verdict.clip.unwrap();
        assert_eq!((found.frames, found.gops, found.marked, found.others), (130, 3, 3, 0));
        assert_eq!((verdict.device, verdict.counter), (Some(9), Some(41)));
        assert_eq!(verdict.generated, Some(true));
        assert!(verdict.label.unwrap().starts_with("AI"));
    }
}

#[test]
fn what_a_clip_lacks_is_named() {
    let shape = (Size::new(320, 240), Turn::None);
    let named = |check: ClipCheck, record: Option<Option<&str>>, word: &str| {
        let verdict = check.finish(record);
        let said = verdict.reasons.join("; ");
        assert!(!verdict.whole && said.contains(word), "{said}");
    };
    let recipe = checked("synthetic:1", Stands::Always);
    let whole = || checked_again(&recipe, shape, 60, |_, image| image).0;
    named(whole(), Some(None), "AIGC record is missing");
    let verdict = whole().finish(None);
    assert!(verdict.whole, "raw frames carry no record: {verdict:?}");

    let plain = |_: u32, _: I420| frame(shape.0, 3);
    named(checked_again(&recipe, shape, 60, plain).0, None, "no invisible mark");
    let second =
        |number: u32, image: I420| if number < 60 { image } else { frame(shape.0, number) };
    named(checked_again(&recipe, shape, 120, second).0, None, "1 of 2 GOPs");
    let wiped = |_: u32, mut image: I420| {
        for y in 180..240 {
            image.y_mut().row_mut(y).fill(90);
        }
        image
    };
    named(checked_again(&recipe, shape, 60, wiped).0, None, "no label");
}

#[test]
fn a_clip_joined_of_two_is_not_whole() {
    let size = Size::new(320, 240);
    let mut other = checked("blur", Stands::Always).recipe().clone();
    other.mark.counter = 7;
    let mut clip = Clip::new(&recipe::check(&other).unwrap(), size, Turn::None, COLOUR);
    let foreign = |number: u32, image: I420| {
        if number < 60 {
            return image;
        }
        clip.apply(frame(size, 2), Altered::Masked, at(number), number == 60).unwrap().into_image()
    };
    let recipe = checked("blur", Stands::Always);
    let (check, _) = checked_again(&recipe, (size, Turn::None), 120, foreign);
    let verdict = check.finish(None);
    assert_eq!(verdict.clip.as_ref().map(|c| (c.gops, c.marked, c.others)), Some((2, 1, 1)));
    assert!(verdict.reasons.iter().any(|r| r.contains("another payload")), "{verdict:?}");
}

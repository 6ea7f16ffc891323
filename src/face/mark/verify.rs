//! Reads the marks of a finished picture back and says whether they are whole.

use std::collections::BTreeMap;

use mien_base::limits;
use mien_base::recipe::Corner;
use mien_base::report::{ClipVerdict, Verdict};
use mien_pixels::codec::Metadata;
use mien_pixels::convert::Range;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::glyph;
use mien_pixels::i420::I420;
use mien_pixels::resize::resize;
use mien_pixels::stamp::Turn;
use mien_pixels::stdm;
use mien_pixels::stdm::clip::Reader;
use mien_pixels::view::{Rgb, View};

use super::invisible::{Altered, Payload};
use super::metadata;
use super::visible::{Label, forms};

/// Heights of labels that are looked for first, as fractions of the shorter side.
const HEIGHTS: [f32; 6] = [0.05, 0.06, 0.07, 0.08, 0.1, 0.12];
/// Heights that are looked for at all, and the factor from one to the next.
const ANY: (f32, f32) = (0.039, 0.155);
const STEP: f32 = 1.012;
/// Shorter side of the picture in which that is done, in pixels.
const SMALL: u32 = 320;
const CORNERS: [Corner; 4] =
    [Corner::BottomLeft, Corner::BottomRight, Corner::TopLeft, Corner::TopRight];
/// Least correlation of a label with its redrawing.
const LIKE: f32 = 0.7;

/// What may have been done to a picture that carries a label.
const KINDS: [Altered; 2] = [Altered::Generated, Altered::Masked];

fn looked_for(altered: Option<&Altered>) -> &[Altered] {
    altered.map_or(&KINDS, std::slice::from_ref)
}

/// Looks for all marks. `meta` is what the file carries beside its pixels, read by
/// `codec::read_metadata`.
#[must_use]
pub fn verify(rgb: View<'_, 3>, meta: &Metadata) -> Verdict {
    let size = rgb.size();
    let bits = stdm::read(rgb);
    let payload = bits.and_then(Payload::parse);
    let stated = meta.xmp.as_deref().and_then(metadata::stated_source_type);
    // What the pixels say goes before what is written beside them.
    let by_source = KINDS.into_iter().find(|k| metadata::source_type(*k) == stated);
    let altered = payload.map(|p| p.altered).or(by_source.filter(|_| stated.is_some()));
    let label = looked_for(altered.as_ref()).iter().find_map(|kind| find_label(rgb, *kind));

    let mut reasons: Vec<String> = fault_of_pixels(bits, payload, size).into_iter().collect();
    let room = |kind| Label::new(size, kind, HEIGHTS[0], CORNERS[0]).is_some();
    if label.is_none() && altered.is_none_or(|kind| kind != Altered::Nothing && room(kind)) {
        reasons.push("no label was found in a corner".to_owned());
    }
    match altered.map_or(Some("one"), metadata::source_type) {
        Some(_) if stated.is_none() => {
            reasons.push("the metadata state no DigitalSourceType".to_owned());
        }
        Some(wanted) if altered.is_some() && stated != Some(wanted) => {
            let found = stated.unwrap_or_default();
            reasons.push(format!("DigitalSourceType is {found}, the picture is {wanted}"));
        }
        _ => {}
    }
    if altered == Some(Altered::Generated) {
        reasons.extend(fault_of_record(meta.aigc.as_deref(), payload));
    }
    let text = |t: &str| t.chars().take(mien_base::limits::WIRE_TEXT).collect();
    Verdict {
        whole: payload.is_some() && reasons.is_empty(),
        label: label.map(|text| text.replace('\n', " ")),
        source_type: stated.map(text),
        aigc: meta.aigc.clone(),
        reasons,
        ..said(payload, altered)
    }
}

/// Reads the marks of a clip from its frames.
pub struct ClipCheck {
    size: Size,
    turn: Turn,
    reader: Reader,
    /// Frames of the GOP that is looked at.
    held: u64,
    label: Option<(Altered, String)>,
    /// How often each payload was read.
    payloads: BTreeMap<u64, u64>,
    found: ClipVerdict,
}

impl std::fmt::Debug for ClipCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClipCheck").field("found", &self.found).finish_non_exhaustive()
    }
}

impl ClipCheck {
    /// Of frames of one size, which must be turned to stand upright.
    #[must_use]
    pub fn new(size: Size, turn: Turn, range: Range) -> Self {
        let reader = Reader::new(size, range);
        let (held, label) = (0, None);
        let (payloads, found) = (BTreeMap::new(), ClipVerdict::default());
        Self { size, turn, reader, held, label, payloads, found }
    }

    /// Takes the next frame; a GOP is whole when there are `limits::CLIP_GOP` of them. A frame of
    /// another size than the clip's says nothing.
    pub fn push(&mut self, frame: &I420) {
        if frame.size() != self.size {
            return;
        }
        // It stands there from the first frame on; more than one is looked at in case of damage.
        if self.label.is_none() && matches!(self.found.frames, 0 | 15 | 45) {
            let mut upright = Rgb::filled(self.turn.size(self.size), [0; 3]);
            self.turn.upright(frame.view(), &mut upright);
            let see = |kind: &Altered| find_label(upright.view(), *kind).map(|text| (*kind, text));
            self.label = KINDS.iter().find_map(see);
        }
        self.reader.push(frame.y());
        self.found.frames += 1;
        self.held += 1;
        if self.held == limits::CLIP_GOP {
            self.end_gop();
        }
    }

    /// Ends a GOP before it is whole: frames that follow are from elsewhere.
    pub fn end_gop(&mut self) {
        if std::mem::take(&mut self.held) == 0 {
            return;
        }
        match self.reader.finish() {
            Some(reading) => *self.payloads.entry(reading.payload).or_default() += 1,
            None if self.found.unmarked.len() < limits::CLIP_LISTED => {
                self.found.unmarked.push(self.found.gops);
            }
            None => {}
        }
        self.found.gops += 1;
    }

    /// What all frames say. `record` is what the file carries beside them; `None` where its format
    /// can't carry any.
    #[must_use]
    pub fn finish(mut self, record: Option<Option<&str>>) -> Verdict {
        self.end_gop();
        let most = self.payloads.iter().max_by_key(|(_, times)| **times);
        let bits = most.map(|(bits, _)| *bits);
        self.found.marked = most.map_or(0, |(_, times)| *times);
        self.found.others = self.payloads.values().sum::<u64>() - self.found.marked;
        let payload = bits.and_then(Payload::parse);
        let altered = payload.map(|p| p.altered).or(self.label.as_ref().map(|(kind, _)| *kind));
        let mut reasons = Vec::new();
        let ClipVerdict { gops, marked, others, .. } = self.found;
        reasons.extend(fault_of_pixels(bits, payload, self.size));
        if payload.is_some() && marked < gops {
            reasons.push(format!("the invisible mark was read from {marked} of {gops} GOPs"));
        }
        if others > 0 {
            reasons.push(format!("{others} of {gops} GOPs carry another payload"));
        }
        let upright = self.turn.size(self.size);
        let room = |kind| Label::new(upright, kind, HEIGHTS[0], CORNERS[0]).is_some();
        match &self.label {
            Some((kind, _)) if altered.is_some_and(|altered| altered != *kind) => {
                reasons.push("the label and the invisible mark disagree".to_owned());
            }
            None if altered.is_none_or(|kind| kind != Altered::Nothing && room(kind)) => {
                reasons.push("no label was found in a corner at the start".to_owned());
            }
            _ => {}
        }
        if let Some(record) = record
            && altered == Some(Altered::Generated)
        {
            reasons.extend(fault_of_record(record, payload));
        }
        Verdict {
            whole: payload.is_some() && reasons.is_empty(),
            label: self.label.map(|(_, text)| text.replace('\n', " ")),
            aigc: record.flatten().map(str::to_owned),
            clip: Some(self.found),
            reasons,
            ..said(payload, altered)
        }
    }
}

/// What a payload says.
fn said(payload: Option<Payload>, altered: Option<Altered>) -> Verdict {
    Verdict {
        payload: payload.map(Payload::hex),
        altered: altered.map(|kind| kind != Altered::Nothing),
        generated: altered.map(|kind| kind == Altered::Generated),
        device: payload.map(|p| p.device.get()),
        counter: payload.map(|p| p.counter),
        ..Verdict::default()
    }
}

/// Why there is no payload of ours, when there is none.
fn fault_of_pixels(bits: Option<u64>, payload: Option<Payload>, size: Size) -> Option<String> {
    if payload.is_some() {
        return None;
    }
    Some(match bits {
        Some(bits) => format!("the invisible mark {bits:016x} is of another maker"),
        None if !stdm::fits(size) => {
            let least = stdm::LEAST;
            format!("no invisible mark was found: it needs {least} pixels on the shorter side")
        }
        None => "no invisible mark was found".to_owned(),
    })
}

/// The words of the label that stands in a corner, its capitals of any height between 4 and 15 %
/// of the shorter side.
fn find_label(rgb: View<'_, 3>, kind: Altered) -> Option<String> {
    let size = rgb.size();
    let like = |label: &Label, corner| {
        glyph::likeness(rgb.crop(label.in_corner(size, corner)), &label.plate)
    };
    let usual = HEIGHTS.iter().find_map(|share| {
        let label = Label::new(size, kind, *share, CORNERS[0])?;
        CORNERS.into_iter().any(|corner| like(&label, corner) >= LIKE).then_some(label.text)
    });
    usual.or_else(|| {
        let short = size.short_side().min(SMALL);
        let scaled = |side: u32| {
            let side = u64::from(side) * u64::from(short);
            ((side / u64::from(size.short_side().max(1))) as u32).max(1)
        };
        let mut small = Rgb::filled(Size::new(scaled(size.width), scaled(size.height)), [0; 3]);
        resize(rgb, &mut small.view_mut());
        search_label(small.view(), kind)
    })
}

/// The same in a small picture, where all heights are tried. Words that are short look like too
/// much else.
fn search_label(rgb: View<'_, 3>, kind: Altered) -> Option<String> {
    let (size, short) = (rgb.size(), rgb.size().short_side() as f32);
    // The fullest words first: the shorter ones are parts of them.
    for lines in forms(kind).iter().filter(|lines| lines[0].chars().count() > 3) {
        let mut height = ANY.0 * short;
        while height < ANY.1 * short {
            let at = height;
            height *= STEP;
            let Some(label) = Label::drawn(size, lines, at, CORNERS[0]) else { continue };
            let near = |roi| glyph::likeness(rgb.crop(roi), &label.plate);
            let found = CORNERS.into_iter().any(|corner| {
                let roi = label.in_corner(size, corner);
                near(roi) >= LIKE / 2.0 && around(roi, size).any(|roi| near(roi) >= LIKE)
            });
            if found {
                return Some(label.text);
            }
        }
    }
    None
}

/// A region and those a pixel away from it.
fn around(roi: Roi, size: Size) -> impl Iterator<Item = Roi> {
    let places = (0..3).flat_map(|y| (0..3).map(move |x| (x, y)));
    places.filter_map(move |(x, y)| {
        let at = Roi { x: (roi.x + x).checked_sub(1)?, y: (roi.y + y).checked_sub(1)?, ..roi };
        at.lies_in(size).then_some(at)
    })
}

/// What is wrong with the record that generated content must carry.
fn fault_of_record(record: Option<&str>, payload: Option<Payload>) -> Option<String> {
    let Some(record) = record else {
        return Some("the AIGC record is missing".to_owned());
    };
    let Some(fields) = metadata::parse(record) else {
        return Some("the AIGC record is damaged".to_owned());
    };
    let id = payload?.hex();
    let ours = ["PropagateID", "ProduceID"].iter().any(|n| fields.get(*n) == Some(&id));
    (!ours).then(|| "the AIGC record names another picture".to_owned())
}

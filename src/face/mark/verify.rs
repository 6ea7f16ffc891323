//! Reads the marks of a finished picture back and says whether they are whole.

use mien_base::recipe::Corner;
use mien_base::report::Verdict;
use mien_pixels::codec::Metadata;
use mien_pixels::glyph;
use mien_pixels::stdm;
use mien_pixels::view::View;

use super::invisible::{Altered, Payload};
use super::metadata;
use super::visible::Label;

/// Heights of labels that are looked for, as fractions of the shorter side.
const HEIGHTS: [f32; 6] = [0.05, 0.06, 0.07, 0.08, 0.1, 0.12];
const CORNERS: [Corner; 4] =
    [Corner::BottomLeft, Corner::BottomRight, Corner::TopLeft, Corner::TopRight];
/// Least correlation of a label with its redrawing.
const LIKE: f32 = 0.7;

/// Looks for all marks. `meta` is what the file carries beside its pixels, read by
/// `codec::read_metadata`.
#[must_use]
pub fn verify(rgb: View<'_, 3>, meta: &Metadata) -> Verdict {
    let size = rgb.size();
    let bits = stdm::read(rgb);
    let payload = bits.and_then(Payload::parse);
    let stated = meta.xmp.as_deref().and_then(metadata::stated_source_type);
    let kinds = [Altered::Generated, Altered::Masked];
    // What the pixels say goes before what is written beside them.
    let by_source = kinds.into_iter().find(|k| metadata::source_type(*k) == stated);
    let altered = payload.map(|p| p.altered).or(by_source.filter(|_| stated.is_some()));
    let looked: &[Altered] = altered.as_ref().map_or(&kinds, std::slice::from_ref);
    let label = looked.iter().find_map(|kind| find_label(rgb, *kind));

    let mut reasons = Vec::new();
    if payload.is_none() {
        reasons.push(match bits {
            Some(bits) => format!("the invisible mark {bits:016x} is of another maker"),
            None if !stdm::fits(size) => {
                let least = stdm::LEAST;
                format!("no invisible mark was found: it needs {least} pixels on the shorter side")
            }
            None => "no invisible mark was found".to_owned(),
        });
    }
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
        payload: payload.map(Payload::hex),
        altered: altered.map(|kind| kind != Altered::Nothing),
        generated: altered.map(|kind| kind == Altered::Generated),
        device: payload.map(|p| p.device.get()),
        counter: payload.map(|p| p.counter),
        label: label.map(|text| text.replace('\n', " ")),
        source_type: stated.map(text),
        aigc: meta.aigc.clone(),
        reasons,
    }
}

/// The words of the label that stands in a corner.
fn find_label(rgb: View<'_, 3>, kind: Altered) -> Option<String> {
    let size = rgb.size();
    HEIGHTS.iter().find_map(|share| {
        let label = Label::new(size, kind, *share, CORNERS[0])?;
        let like = |corner| glyph::likeness(rgb.crop(label.in_corner(size, corner)), &label.plate);
        CORNERS.into_iter().any(|corner| like(corner) >= LIKE).then_some(label.text)
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

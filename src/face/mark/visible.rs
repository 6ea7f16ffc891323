//! The visible label: which words, how high, in which corner.

use mien_base::recipe::Corner;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::glyph::{self, Plate};

use super::invisible::Altered;

/// Least height of a capital in a label of several words, in pixels.
const WORDS: f32 = 10.0;
/// Least height of a capital at all, in pixels.
const LEAST: f32 = 5.0;
/// Most of the picture's width and height that a label of the asked size may take.
const SHARE: (f32, f32) = (0.9, 0.45);

const GENERATED: [&[&str]; 4] =
    [&["AI GENERATED · AI生成"], &["AI GENERATED", "AI生成"], &["AI生成"], &["AI"]];
const MASKED: [&[&str]; 2] = [&["ANONYMISED"], &["ANON"]];

/// All ways of saying what was done, the fullest first.
#[must_use]
pub(super) const fn forms(altered: Altered) -> &'static [&'static [&'static str]] {
    match altered {
        Altered::Nothing => &[],
        Altered::Masked => &MASKED,
        Altered::Generated => &GENERATED,
    }
}

/// A label and where it goes.
#[derive(Debug)]
pub struct Label {
    /// Its lines, joined by a line feed.
    pub text: String,
    /// Height of a capital in pixels.
    pub height: f32,
    pub plate: Plate,
    pub roi: Roi,
}

impl Label {
    /// The label for what was done; capitals are `share` of the shorter side high, or as high as
    /// is still legible. `None` when nothing was altered or the picture has no room for a word.
    #[must_use]
    pub fn new(size: Size, altered: Altered, share: f32, corner: Corner) -> Option<Self> {
        let (lines, height) = fit(forms(altered), size, share)?;
        Self::drawn(size, lines, height, corner)
    }

    /// These lines with capitals of `height` pixels; `None` where the picture has no room for them.
    pub(super) fn drawn(size: Size, lines: &[&str], height: f32, corner: Corner) -> Option<Self> {
        let room = glyph::plate_size(lines, height);
        if room.width > size.width || room.height > size.height {
            return None;
        }
        let plate = glyph::plate(lines, height);
        let roi = place(size, plate.layer.size(), height, corner);
        Some(Self { text: lines.join("\n"), height, plate, roi })
    }

    /// Where the same label stands in another corner of a picture of the same size.
    #[must_use]
    pub fn in_corner(&self, size: Size, corner: Corner) -> Roi {
        place(size, self.plate.layer.size(), self.height, corner)
    }
}

fn place(size: Size, plate: Size, height: f32, corner: Corner) -> Roi {
    let margin = |side: u32, plate: u32| ((height * 0.5) as u32).min((side - plate) / 2);
    let (dx, dy) = (margin(size.width, plate.width), margin(size.height, plate.height));
    let (right, bottom) = (size.width - plate.width - dx, size.height - plate.height - dy);
    let (x, y) = match corner {
        Corner::TopLeft => (dx, dy),
        Corner::TopRight => (right, dy),
        Corner::BottomLeft => (dx, bottom),
        Corner::BottomRight => (right, bottom),
    };
    Roi { x, y, width: plate.width, height: plate.height }
}

/// The fullest words that fit in the asked height; else the shortest, smaller.
fn fit<'a>(forms: &[&'a [&'a str]], size: Size, share: f32) -> Option<(&'a [&'a str], f32)> {
    let short = size.short_side() as f32;
    // A whole number of pixels, so that the same label is drawn again when it is looked for.
    let asked = (share.clamp(0.05, 0.5) * short).ceil().max(WORDS);
    let fits = |lines: &[&str], height: f32, share: (f32, f32)| {
        let plate = glyph::plate_size(lines, height);
        plate.width as f32 <= size.width as f32 * share.0
            && plate.height as f32 <= size.height as f32 * share.1
    };
    if let Some(lines) = forms.iter().find(|lines| fits(lines, asked, SHARE)) {
        return Some((lines, asked));
    }
    let least = |lines: &[&str]| if lines[0].len() > 2 { WORDS } else { LEAST };
    forms.iter().find_map(|lines| {
        let mut height = asked;
        while height >= least(lines) {
            if fits(lines, height, (1.0, 1.0)) {
                return Some((*lines, height));
            }
            height -= 1.0;
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORNERS: [Corner; 4] =
        [Corner::TopLeft, Corner::TopRight, Corner::BottomLeft, Corner::BottomRight];

    #[test]
    fn capitals_are_at_least_five_percent_of_the_shorter_side() {
        for (w, h) in [(1920, 1080), (1080, 1920), (512, 512), (640, 480), (300, 200), (4000, 3000)]
        {
            for altered in [Altered::Masked, Altered::Generated] {
                let label = Label::new(Size::new(w, h), altered, 0.05, Corner::BottomLeft).unwrap();
                assert!(label.height >= 0.05 * w.min(h) as f32, "{w}x{h}");
                assert!(label.text.contains(if altered == Altered::Masked {
                    "ANON"
                } else {
                    "AI"
                }));
            }
        }
    }

    #[test]
    fn ordinary_pictures_carry_all_words() {
        for (w, h) in [(1920, 1080), (1080, 1920), (512, 512), (512, 600), (200, 200)] {
            let at = |altered| Label::new(Size::new(w, h), altered, 0.05, Corner::TopLeft).unwrap();
            let text = at(Altered::Generated).text;
            assert!(text.contains("AI GENERATED") && text.contains("AI生成"), "{w}x{h} {text}");
            assert_eq!(at(Altered::Masked).text, "ANONYMISED");
        }
    }

    #[test]
    fn label_lies_inside_its_corner_at_any_size() {
        for w in (1..90).chain([200, 1_000, 9_000]) {
            for h in [1, 5, 10, 13, 20, 40, 64, 128, 300, 2_000] {
                for share in [0.05, 0.12, 0.5, f32::NAN] {
                    for corner in CORNERS {
                        let size = Size::new(w, h);
                        let Some(label) = Label::new(size, Altered::Generated, share, corner)
                        else {
                            assert!(w < 16 || h < 14, "{w}x{h} has room");
                            continue;
                        };
                        let roi = label.roi;
                        assert_eq!(roi.size(), label.plate.layer.size());
                        assert!(roi.x + roi.width <= w && roi.y + roi.height <= h);
                        let left = roi.x <= w - roi.x - roi.width;
                        assert!(left || matches!(corner, Corner::TopRight | Corner::BottomRight));
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_altered_or_no_room_has_no_label() {
        let label = |w, h, altered| Label::new(Size::new(w, h), altered, 0.05, Corner::TopLeft);
        assert!(label(1_000, 1_000, Altered::Nothing).is_none());
        assert!(label(1, 1, Altered::Generated).is_none());
        assert!(label(10, 10, Altered::Masked).is_none());
    }
}

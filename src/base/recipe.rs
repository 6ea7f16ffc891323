//! What is asked for: which faces are found, and what is done to whom. Plain data, checked in `face::recipe`.

use serde::{Deserialize, Serialize};

use crate::id::{DeviceId, IdentityId, ModelId};

/// Everything that decides the pixels of one output, beside the input, the models and the gallery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub detect: Detect,
    pub select: Select,
    /// What is done to a selected face that no rule names.
    pub action: Action,
    /// What is done to a face that the selector or the zones leave out.
    pub others: Action,
    /// Who gets what; the first rule that names the recognised identity holds.
    pub rules: Vec<Rule>,
    pub mask: Mask,
    pub mark: Mark,
}

/// How faces are found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Detector model.
    pub model: ModelId,
    /// Longer side of the detector's input in pixels, a multiple of 32; `None` is the model's own.
    pub size: Option<u32>,
    /// Least score in 0..=1; `None`: 0.5 to swap, 0.2 where privacy depends on it.
    pub score: Option<f32>,
    /// Margin around the picture in percent of its side, 0..=100.
    pub margin: f32,
    /// Rotations that are tried: of 0, 90, 180, 270. Empty: 0, and the others when 0 finds none.
    pub angles: Vec<u16>,
}

/// Which of the found faces are meant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    pub mode: SelectMode,
    pub order: Order,
    /// With `One`: which of the ordered faces, from 0.
    pub position: u32,
    /// With `Reference`: whose face.
    pub reference: Option<IdentityId>,
    /// Where faces count: the centre of the face lies in one of these; empty is everywhere.
    pub zones: Vec<Zone>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectMode {
    Many,
    One,
    Reference,
}

/// In which order faces stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    LeftRight,
    RightLeft,
    TopBottom,
    BottomTop,
    SmallLarge,
    LargeSmall,
    BestWorst,
    WorstBest,
}

/// A polygon in fractions of the picture's width and height.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    pub points: Vec<(f32, f32)>,
}

/// Who → what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub who: IdentityId,
    pub action: Action,
}

/// What is done to one face.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Left as it is.
    Pass,
    Anonymise(Anonymise),
    Swap(Swap),
}

impl Action {
    /// True when it puts a made face in place of the one that is there.
    #[must_use]
    pub const fn makes_a_face(&self) -> bool {
        matches!(self, Self::Swap(_) | Self::Anonymise(Anonymise::Synthetic { .. }))
    }
}

/// How a face is made unrecognisable. Strengths are relative to the face's width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Anonymise {
    Solid {
        colour: [u8; 3],
    },
    /// Cells across the face, at most 6; noise is always added.
    Mosaic {
        cells: u32,
    },
    /// Gaussian deviation as a fraction of the face's width, at least 0.15.
    Blur {
        sigma: f32,
    },
    /// The picture that travels with the job is laid over the face.
    Image,
    /// A made identity, chosen by the seed.
    Synthetic {
        seed: u64,
    },
}

/// Whose face is put there, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    pub source: IdentityId,
    /// Generator model; `None` is the mesh swap.
    pub model: Option<ModelId>,
    /// 0..=1; 0.5 leaves the latent as it is.
    pub weight: f32,
    /// Side of the crop as a multiple of the generator's own: 1, 2, 3 or 4 (polyphase).
    pub boost: u32,
}

/// Which part of a face is altered; several kinds meet in their minimum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// Empty: the action's own default.
    pub kinds: Vec<MaskKind>,
    /// Grows the shape about its centre: 1.3 is 30 % wider and higher.
    pub scale: f32,
    /// Top, right, bottom, left in percent of the crop, 0..=50 (box masks).
    pub padding: [f32; 4],
    /// Softness, 0..=1 of half the crop.
    pub blur: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaskKind {
    Box,
    Ellipse,
    /// Hull of the 468 landmarks.
    Area,
    /// Segmented person.
    Person,
}

/// What is written into the output to say that it was altered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    pub device: DeviceId,
    /// Job and time counter in the watermark.
    pub counter: u32,
    /// Visible label: text height as a fraction of the shorter side, at least 0.05.
    pub label_height: f32,
    pub corner: Corner,
    /// When the label stands in a clip.
    pub stands: Stands,
    /// Name of the producer in the `AIGC` record: printable ASCII without space, quote, backslash.
    pub producer: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corner {
    TopLeft,
    TopRight,
    BottomLeft,
    BottomRight,
}

/// When the label of a clip is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stands {
    /// In every frame.
    Always,
    /// At the start, for as long as the law asks.
    Start,
}

impl Default for Recipe {
    /// Anonymise every face, solid grey: what fails closed.
    fn default() -> Self {
        let solid = Action::Anonymise(Anonymise::Solid { colour: [127; 3] });
        Self {
            detect: Detect {
                model: "centerface".parse().expect("a valid name"),
                size: None,
                score: None,
                margin: 0.0,
                angles: Vec::new(),
            },
            select: Select {
                mode: SelectMode::Many,
                order: Order::LargeSmall,
                position: 0,
                reference: None,
                zones: Vec::new(),
            },
            action: solid.clone(),
            others: solid,
            rules: Vec::new(),
            mask: Mask { kinds: Vec::new(), scale: 1.3, padding: [0.0; 4], blur: 0.3 },
            mark: Mark {
                device: DeviceId::new(0).expect("zero fits"),
                counter: 0,
                label_height: 0.05,
                corner: Corner::BottomLeft,
                stands: Stands::Always,
                producer: "mien".to_owned(),
            },
        }
    }
}

//! Options of what is done to pictures and clips: faces, masks, marks, formats.

use clap::{Args, ValueEnum};

/// Options that only clips know.
#[derive(Debug, Args)]
pub(crate) struct ClipArgs {
    /// Only this part of each clip: seconds, m:s or h:m:s; either side may be left out
    #[arg(long, value_name = "START-END", help_heading = "Clips")]
    pub range: Option<String>,
    /// Leaves the sound out
    #[arg(long, help_heading = "Clips")]
    pub no_audio: bool,
    /// Kilobits a second of pictures, instead of a quality
    #[arg(long, value_name = "KBIT", conflicts_with = "quality", help_heading = "Clips")]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=200_000))]
    pub bitrate: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    Jpeg,
    Png,
    Mp4,
    Y4m,
}

#[derive(Debug, Args)]
pub(crate) struct DetectorArgs {
    /// Detector: centerface, blazeface_back256, blazeface_short128, or one of your own
    #[arg(long, default_value = "centerface", value_name = "MODEL")]
    pub detector: String,
    /// Longer side of the detector's input in pixels, a multiple of 32
    #[arg(long, value_name = "PX")]
    pub detector_size: Option<u32>,
    /// Least score, 0 to 1 [default: 0.2 where faces are hidden, 0.5 where all are swapped]
    #[arg(long, value_name = "S")]
    pub score: Option<f32>,
    /// Margin around the picture in percent, for faces cut by its edge
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub margin: f32,
    /// Rotations to try: of 0,90,180,270 [default: 0, the others when it finds none]
    #[arg(long, value_delimiter = ',', value_name = "DEGREES")]
    pub angles: Vec<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// Which faces are selected
    #[arg(long, value_enum, default_value_t = ModeArg::Many)]
    pub mode: ModeArg,
    /// Order of faces, for --mode one
    #[arg(long, value_enum, default_value_t = OrderArg::LargeSmall)]
    pub order: OrderArg,
    /// With --mode one: which face of the order, from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub position: u32,
    /// With --mode reference: the enrolled identity that is meant
    #[arg(long, value_name = "NAME", required_if_eq("mode", "reference"))]
    pub reference: Option<String>,
    /// Where faces count, in percent of the picture: `x0,y0,x1,y1` or a polygon `x,y x,y x,y …`
    #[arg(long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    Many,
    One,
    Reference,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    LeftRight,
    RightLeft,
    TopBottom,
    BottomTop,
    SmallLarge,
    LargeSmall,
    BestWorst,
    WorstBest,
}

#[derive(Debug, Args)]
pub(crate) struct MaskArgs {
    /// Parts that are altered; several meet in their overlap [default: the action's own]
    #[arg(long = "mask", value_enum, value_delimiter = ',', value_name = "KIND")]
    pub masks: Vec<MaskArg>,
    /// Grows the mask: 1.3 is 30 % wider and higher
    #[arg(long, default_value_t = 1.3, value_name = "F")]
    pub mask_scale: f32,
    /// Keeps the crop's border as it was, in percent: `ALL`, `V,H` or `TOP,RIGHT,BOTTOM,LEFT`
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    pub mask_padding: Vec<f32>,
    /// Softness of the mask's edge, 0 to 1
    #[arg(long, default_value_t = 0.3, value_name = "B")]
    pub mask_blur: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MaskArg {
    Box,
    Ellipse,
    Area,
    Person,
}

#[derive(Debug, Args)]
pub(crate) struct MarkArgs {
    /// Height of the label's text as a fraction of the shorter side, at least 0.05
    #[arg(long, default_value_t = 0.05, value_name = "F")]
    pub label_height: f32,
    /// When the label of a clip is seen
    #[arg(long, value_enum, default_value_t = LabelArg::Always)]
    pub label: LabelArg,
    /// Corner of the label
    #[arg(long, value_enum, default_value_t = CornerArg::BottomLeft)]
    pub label_corner: CornerArg,
    /// Producer in the AIGC record
    #[arg(long, default_value = "mien", value_name = "NAME")]
    pub producer: String,
    /// Device number in the invisible mark [default: of this machine]
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelArg {
    /// In every frame
    Always,
    /// In the first two seconds
    Start,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CornerArg {
    TopLeft,
    TopRight,
    BottomLeft,
    BottomRight,
}

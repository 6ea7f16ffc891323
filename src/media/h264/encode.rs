//! Frames in, coded samples out: constant quantiser, one thread, IDR only where it is asked for.
//!
//! A constant quantiser has no memory: what a frame costs does not depend on those before it, so
//! a clip that is resumed at a segment comes out as one that never stopped. The input's own
//! quantiser says which (`Rate::like`): no detail is lost to a low rate and no bits go into
//! artefacts of the input. A bitrate can be asked for; then each segment is steered by itself.

use mien_pixels::convert::{Matrix, Range};
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use openh264::OpenH264API;
use openh264::encoder::{
    BitRate, ColorPrimaries, Complexity, EncodedBitStream, Encoder as Native, EncoderConfig,
    FrameRate, FrameType, IntraFramePeriod, MatrixCoefficients, QpRange, RateControlMode,
    TransferCharacteristics, VuiConfig,
};
use openh264::formats::YUVSource;

use super::units;
use crate::clip::{ClipInfo, ColourTags};
use crate::errors::{Error, Result, SHRINK};

/// Longest and shorter side of what openh264 encodes: level 5.2.
pub const MOST: (u32, u32) = (3840, 2160);
/// Least side of what openh264 encodes.
pub const LEAST: u32 = 16;
/// Quantisers that openh264 keeps to.
const QUANTISERS: std::ops::RangeInclusive<u8> = 12..=51;
/// Without a word from the input: no artefact is seen beside the original.
const USUAL: u8 = 22;
/// Bits a second that no level refuses and no constant quantiser is steered by.
const UNSTEERED: u32 = 20_000_000;

/// How often a frame is given to an encoder that is steered to a bitrate.
const TRIES: u32 = 600;

/// How many bits a frame gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// H.264's quantiser: 12 is near lossless, 51 is worst.
    Quantiser(u8),
    /// Bits a second.
    Bitrate(u32),
}

impl Rate {
    /// As good as the input: a little finer, since its own loss is part of what is encoded.
    #[must_use]
    pub fn like(info: &ClipInfo) -> Self {
        Self::Quantiser(info.quantiser.map_or(USUAL, |q| q.saturating_sub(2).clamp(16, 28)))
    }

    /// 1..=100, as JPEG counts it.
    #[must_use]
    pub fn quality(quality: u8) -> Self {
        let quality = u32::from(quality.clamp(1, 100));
        Self::Quantiser((44 - (quality - 1) * 30 / 99) as u8)
    }
}

/// What is encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    pub(crate) size: Size,
    pub(crate) rate: Rate,
    pub(crate) vui: Option<VuiConfig>,
    /// Frames a second, for the level only.
    pub(crate) hertz: f32,
}

impl Shape {
    pub(crate) fn of(info: &ClipInfo, rate: Rate) -> Result<Self> {
        check_size(info.size)?;
        let hertz = f64::from(info.rate.0) / f64::from(info.rate.1.max(1));
        let stated = info.tags != ColourTags::default();
        let vui = stated.then(|| vui(info));
        Ok(Self { size: info.size, rate, vui, hertz: hertz.clamp(1.0, 60.0) as f32 })
    }
}

/// Refuses what can't be encoded.
///
/// # Errors
/// For odd sides and for sizes beyond what openh264 takes.
pub fn check_size(size: Size) -> Result<()> {
    let refused = |why: &str, advice| {
        let what = format!("H.264 of {}x{} pixels, {why},", size.width, size.height);
        Err(Error::Foreign { what, done: "written", advice })
    };
    if !size.width.is_multiple_of(2) || !size.height.is_multiple_of(2) {
        return refused(
            "an odd size, which its 4:2:0 can't hold",
            "write Y4M, or cut the input first: ffmpeg -i IN -vf crop=trunc(iw/2)*2:trunc(ih/2)*2 OUT.y4m",
        );
    }
    if size.width.max(size.height) > MOST.0 || size.short_side() > MOST.1 {
        return refused("more than 3840x2160,", SHRINK);
    }
    if size.short_side() < LEAST {
        return refused("less than 16 a side,", "write Y4M, or make it larger first");
    }
    Ok(())
}

fn vui(info: &ClipInfo) -> VuiConfig {
    use {ColorPrimaries as P, MatrixCoefficients as M, TransferCharacteristics as T};
    let primaries = match info.tags.primaries {
        1 => P::Bt709,
        4 => P::Bt470M,
        5 => P::Bt470BG,
        6 => P::Smpte170M,
        7 => P::Smpte240M,
        8 => P::Film,
        9 => P::Bt2020,
        _ => P::Unspecified,
    };
    let transfer = match info.tags.transfer {
        1 => T::Bt709,
        4 => T::Bt470M,
        5 => T::Bt470Bg,
        6 => T::Smpte170M,
        7 => T::Smpte240M,
        8 => T::Linear,
        13 => T::Srgb,
        14 => T::Bt2020_10,
        15 => T::Bt2020_12,
        16 => T::Smpte2084,
        18 => T::Hlg,
        _ => T::Unspecified,
    };
    let matrix = match (info.tags.matrix, info.colour.matrix) {
        (1, _) => M::Bt709,
        (4, _) => M::Fcc,
        (5, _) => M::Bt470Bg,
        (6, _) => M::Smpte170M,
        (7, _) => M::Smpte240M,
        (9, _) => M::Bt2020Ncl,
        (10, _) => M::Bt2020Cl,
        (_, Matrix::Bt601 | Matrix::Bt709) => M::Unspecified,
    };
    VuiConfig::new()
        .color_primaries(primaries)
        .transfer_characteristics(transfer)
        .matrix_coefficients(matrix)
        .full_range(info.colour.range == Range::Full)
}

/// Parameter sets and frames of one segment.
pub(crate) struct Encoder {
    native: Native,
    size: Size,
    /// Whether a frame went in.
    begun: bool,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("size", &self.size).finish_non_exhaustive()
    }
}

/// One coded frame, behind lengths of 4 bytes, without parameter sets. Buffers are kept.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sps: Vec<u8>,
    pub(crate) pps: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        let steered = matches!(shape.rate, Rate::Bitrate(_));
        let config = EncoderConfig::new()
            .num_threads(1)
            .skip_frames(steered)
            .scene_change_detect(false)
            .adaptive_quantization(false)
            .background_detection(false)
            .long_term_reference(false)
            .complexity(Complexity::Low)
            .intra_frame_period(IntraFramePeriod::from_num_frames(0))
            .max_frame_rate(FrameRate::from_hz(shape.hertz));
        let config = match shape.vui {
            Some(vui) => config.vui(vui),
            None => config,
        };
        let config = match shape.rate {
            Rate::Quantiser(q) => {
                let q = q.clamp(*QUANTISERS.start(), *QUANTISERS.end());
                config
                    .rate_control_mode(RateControlMode::Bufferbased)
                    .qp(QpRange::new(q, q))
                    .bitrate(BitRate::from_bps(UNSTEERED))
            }
            Rate::Bitrate(bits) => config
                .rate_control_mode(RateControlMode::Bitrate)
                .qp(QpRange::new(*QUANTISERS.start(), *QUANTISERS.end()))
                .bitrate(BitRate::from_bps(bits.clamp(10_000, 200_000_000))),
        };
        let native = Native::with_api_config(OpenH264API::from_source(), config)
            .map_err(|e| Error::Encode { what: format!("no encoder ({})", e.native_code()) })?;
        Ok(Self { native, size: shape.size, begun: false })
    }

    /// Encodes one frame into `sample`.
    pub(crate) fn encode(&mut self, frame: &I420, idr: bool, sample: &mut Sample) -> Result<()> {
        if frame.size() != self.size {
            return Err(Error::Encode { what: "its size is not the clip's".into() });
        }
        let failed =
            |e: openh264::Error| Error::Encode { what: format!("code {}", e.native_code()) };
        if idr && self.begun {
            self.native.force_intra_frame();
        }
        self.begun = true;
        // What the steering would skip is given again: each try counts as time that passes.
        for _ in 0..TRIES {
            let stream = self.native.encode(&Planes(frame)).map_err(failed)?;
            let kind = stream.frame_type();
            if kind == FrameType::Skip {
                continue;
            }
            if (kind == FrameType::IDR) != idr {
                return Err(Error::Encode { what: "an IDR is not where it was asked for".into() });
            }
            return take(&stream, sample);
        }
        Err(Error::Encode { what: "the bitrate leaves no room for it; ask for more".into() })
    }
}

fn take(stream: &EncodedBitStream<'_>, sample: &mut Sample) -> Result<()> {
    sample.bytes.clear();
    let layers = (0..stream.num_layers()).filter_map(|at| stream.layer(at));
    for layer in layers {
        for at in 0..layer.nal_count() {
            let unit = layer.nal_unit(at).unwrap_or_default();
            let code = unit.iter().position(|byte| *byte == 1).map_or(0, |at| at + 1);
            let unit = unit.get(code..).unwrap_or_default();
            match units::kind(unit) {
                units::SPS => keep(&mut sample.sps, unit),
                units::PPS => keep(&mut sample.pps, unit),
                _ => {
                    sample.bytes.extend_from_slice(&(unit.len() as u32).to_be_bytes());
                    sample.bytes.extend_from_slice(unit);
                }
            }
        }
    }
    if sample.bytes.is_empty() {
        return Err(Error::Encode { what: "nothing came out".into() });
    }
    Ok(())
}

fn keep(buffer: &mut Vec<u8>, unit: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(unit);
}

/// A frame as openh264 takes it.
struct Planes<'a>(&'a I420);

impl YUVSource for Planes<'_> {
    fn dimensions(&self) -> (usize, usize) {
        let size = self.0.size();
        (size.width as usize, size.height as usize)
    }

    fn strides(&self) -> (usize, usize, usize) {
        let [y, u, v] = self.0.view().planes();
        (y.stride(), u.stride(), v.stride())
    }

    fn y(&self) -> &[u8] {
        self.0.view().planes()[0].contiguous().unwrap_or_default()
    }

    fn u(&self) -> &[u8] {
        self.0.view().planes()[1].contiguous().unwrap_or_default()
    }

    fn v(&self) -> &[u8] {
        self.0.view().planes()[2].contiguous().unwrap_or_default()
    }
}

//! What `stsd` says of pictures: H.264 with its configuration; everything else refused by name.

use mien_pixels::geometry::Size;

use super::boxes::{Boxes, Fields, Kind, name};
use super::movie::Track;
use crate::clip::{ColourTags, check_size};
use crate::errors::{CONVERT, Error, Result};
use crate::h264::sps::{self, Sps};
use crate::h264::units::Config;

/// A track of H.264.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    pub(crate) config: Config,
    pub(crate) size: Size,
    pub(crate) aspect: (u32, u32),
    pub(crate) tags: ColourTags,
    pub(crate) sps: Sps,
}

/// Sample entries by what people call them.
fn foreign(kind: Kind) -> &'static str {
    match &kind {
        b"hvc1" | b"hev1" | b"hvc2" | b"hev2" | b"dvh1" | b"dvhe" => "HEVC (H.265)",
        b"vvc1" | b"vvi1" => "VVC (H.266)",
        b"av01" | b"dav1" => "AV1",
        b"vp08" => "VP8",
        b"vp09" => "VP9",
        b"mp4v" => "MPEG-4 part 2",
        b"s263" | b"h263" => "H.263",
        b"apch" | b"apcn" | b"apcs" | b"apco" | b"ap4h" | b"ap4x" => "ProRes",
        b"jpeg" | b"mjpa" | b"mjpb" | b"mjp2" => "Motion JPEG",
        b"AVdn" | b"AVdh" => "DNxHD",
        b"encv" | b"drmi" => "Encrypted video",
        b"raw " | b"2vuy" | b"v210" | b"yuv2" => "Uncompressed QuickTime video",
        b"avc2" | b"avc4" | b"svc1" | b"svc2" | b"mvc1" | b"mvc2" => "Layered H.264",
        _ => "",
    }
}

/// Reads the description that the samples use. `first` gives the first sample, for streams whose
/// parameter sets stand there.
pub(crate) fn read(track: &Track, first: impl FnOnce() -> Result<Vec<u8>>) -> Result<Picture> {
    let entries = track.entries()?;
    let used = track.table.chunks.first().map_or(1, |chunk| chunk.description);
    if track.table.chunks.iter().any(|chunk| chunk.description != used) {
        let what = "MP4 whose pictures have several sample descriptions".to_owned();
        return Err(Error::Foreign { what, done: "read", advice: CONVERT });
    }
    let (kind, body) = *entries
        .get((used as usize).wrapping_sub(1))
        .ok_or_else(|| Error::mp4("its frames have no sample description (stsd)"))?;
    if !matches!(&kind, b"avc1" | b"avc3" | b"dva1" | b"dvav") {
        let known = foreign(kind);
        let what =
            if known.is_empty() { format!("Video of kind {}", name(kind)) } else { known.into() };
        return Err(Error::foreign(what));
    }
    let mut f = Fields::new(kind, body);
    f.skip(78)?;
    let (mut config, mut aspect, mut tags) = (None, None, None);
    for inner in Boxes::new(kind, f.rest()) {
        let (kind, body) = inner?;
        match &kind {
            b"avcC" => config = Some(Config::parse(body)?),
            b"pasp" => {
                let mut f = Fields::new(kind, body);
                aspect = Some((f.u32()?, f.u32()?)).filter(|(x, y)| *x > 0 && *y > 0);
            }
            b"colr" => tags = tags.or(colour(kind, body)?),
            _ => {}
        }
    }
    let mut config = config.ok_or_else(|| Error::mp4("H.264 has no configuration (avcC)"))?;
    config.sps.retain(|set| !set.is_empty());
    let sps = match config.sps.first() {
        Some(set) => sps::parse(set)?,
        None => in_band(&first()?, &config)?,
    };
    check_size(sps.size)?;
    let tags = match (tags, sps.tags) {
        (Some((tags, true)), _) | (Some((tags, false)), None) => tags,
        (Some((tags, false)), Some(stream)) => ColourTags { full: stream.full, ..tags },
        (None, stream) => stream.unwrap_or_default(),
    };
    let aspect = aspect.or(sps.aspect).unwrap_or((1, 1));
    Ok(Picture { config, size: sps.size, aspect, tags, sps })
}

/// `colr`: `nclx` of MP4 or `nclc` of QuickTime, and whether it states the range.
fn colour(kind: Kind, body: &[u8]) -> Result<Option<(ColourTags, bool)>> {
    let mut f = Fields::new(kind, body);
    let form = f.u32()?.to_be_bytes();
    if !matches!(&form, b"nclx" | b"nclc") {
        return Ok(None);
    }
    let code = |value: u16| u8::try_from(value).unwrap_or(2);
    let (primaries, transfer, matrix) = (code(f.u16()?), code(f.u16()?), code(f.u16()?));
    let ranged = &form == b"nclx" && matrix != 2;
    let full = ranged && f.u8()? >> 7 == 1;
    Ok(Some((ColourTags { primaries, transfer, matrix, full }, ranged)))
}

/// The first set that stands in a sample.
fn in_band(sample: &[u8], config: &Config) -> Result<Sps> {
    use crate::h264::units::{SPS, Units, kind};
    for unit in Units::new(sample, config.length) {
        let unit = unit?;
        if kind(unit) == SPS {
            return sps::parse(unit);
        }
    }
    Err(Error::h264("it has no parameter set"))
}

//! One access unit in, one picture out, in decoding order.

use mien_pixels::convert::Colour;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use openh264::OpenH264API;
use openh264::decoder::{DecodedYUV, Decoder as Native, DecoderConfig, Flush};
use openh264::formats::YUVSource;

use super::sps;
use super::units::{self, Config, Units};
use crate::errors::{CONVERT, Error, Result};

/// Room for parameter sets, in bytes.
const SETS: usize = 1024;

/// What a sample gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    Picture,
    /// The sample holds no slice, only parameters.
    Nothing,
}

/// An H.264 decoder for one track.
pub struct Decoder {
    native: Native,
    config: Config,
    size: Size,
    colour: Colour,
    stream: Vec<u8>,
    /// The parameter sets have yet to go in.
    fresh: bool,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("size", &self.size).finish_non_exhaustive()
    }
}

fn native() -> Result<Native> {
    // Pictures leave at once (see `sps`), so there is nothing to flush.
    let config = DecoderConfig::new().flush_after_decode(Flush::NoFlush);
    Native::with_api_config(OpenH264API::from_source(), config)
        .map_err(|e| Error::Decode { frame: 0, what: format!("no decoder ({})", e.native_code()) })
}

impl Decoder {
    /// Pictures of `size` are expected; a stream that changes it is refused. `most`: bytes of the
    /// largest sample.
    pub(crate) fn new(config: Config, size: Size, colour: Colour, most: usize) -> Result<Self> {
        // A start code may be longer than the length that it stands for.
        let stream = Vec::with_capacity(most + most / 8 + SETS);
        Ok(Self { native: native()?, config, size, colour, stream, fresh: true })
    }

    /// Forgets all pictures: an IDR comes next.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.native = native()?;
        self.fresh = true;
        Ok(())
    }

    /// Decodes one sample. The picture is copied when there is a frame to copy it to.
    /// `number` is what an error calls the frame.
    pub(crate) fn decode(
        &mut self,
        sample: &[u8],
        number: u64,
        into: Option<&mut I420>,
    ) -> Result<Decoded> {
        let failed = |what: String| Error::Decode { frame: number, what };
        self.stream.clear();
        if self.fresh {
            for set in &self.config.sps {
                push_sps(&mut self.stream, set, self.size)?;
            }
            self.config.pps.iter().for_each(|set| units::push(&mut self.stream, set));
        }
        let mut slices = false;
        for unit in Units::new(sample, self.config.length) {
            let unit = unit?;
            match units::kind(unit) {
                units::SLICE | units::IDR => {
                    slices = true;
                    units::push(&mut self.stream, unit);
                }
                units::SPS => push_sps(&mut self.stream, unit, self.size)?,
                units::PPS => units::push(&mut self.stream, unit),
                kind if units::PARTITION.contains(&kind) => {
                    return Err(Error::foreign("H.264 with data partitions"));
                }
                // Delimiters, messages, filler and layers on top of the picture.
                _ => {}
            }
        }
        self.fresh = false;
        if !slices {
            // Parameter sets stay for the next sample.
            if !self.stream.is_empty() {
                let code = |e: openh264::Error| failed(format!("code {}", e.native_code()));
                self.native.decode(&self.stream).map_err(code)?;
            }
            return Ok(Decoded::Nothing);
        }
        units::check_size(self.stream.len())?;
        match self.native.decode(&self.stream) {
            Ok(Some(picture)) => {
                if let Some(into) = into {
                    copy(&picture, self.size, self.colour, into)
                        .ok_or_else(|| failed("its size is not the clip's".into()))?;
                }
                Ok(Decoded::Picture)
            }
            Ok(None) => Err(failed("it gives no picture".into())),
            Err(e) => Err(failed(format!("code {}", e.native_code()))),
        }
    }
}

fn push_sps(stream: &mut Vec<u8>, unit: &[u8], size: Size) -> Result<()> {
    let sps = sps::parse(unit)?;
    if sps.size != size {
        let what = format!(
            "H.264 whose size changes from {}x{} to {}x{}",
            size.width, size.height, sps.size.width, sps.size.height
        );
        return Err(Error::Foreign { what, done: "read", advice: CONVERT });
    }
    units::push(stream, &sps::immediate(unit, &sps));
    Ok(())
}

fn copy(picture: &DecodedYUV<'_>, size: Size, colour: Colour, into: &mut I420) -> Option<()> {
    let (width, height) = (size.width as usize, size.height as usize);
    if picture.dimensions() != (width, height) {
        return None;
    }
    into.reset(size, colour);
    let strides = picture.strides();
    let from = [(picture.y(), strides.0), (picture.u(), strides.1), (picture.v(), strides.2)];
    for (mut to, (bytes, stride)) in into.planes_mut().into_iter().zip(from) {
        let row = to.size().width as usize;
        for y in 0..to.size().height {
            let start = y as usize * stride;
            to.row_mut(y).copy_from_slice(bytes.get(start..start + row)?);
        }
    }
    Some(())
}

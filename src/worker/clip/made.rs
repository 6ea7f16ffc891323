//! The made clip of the demo, and single frames of clips for sheets.

use std::io::BufWriter;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mien_base::id::JobId;
use mien_base::limits;
use mien_base::recipe::{Action, Mark, Recipe};
use mien_base::wire::clip::{ClipWritten, Container};
use mien_base::wire::{Event, Stage};
use mien_engine::backend::Backend;
use mien_face::mark::clip::Clip;
use mien_face::mark::{Altered, Payload};
use mien_face::recipe;
use mien_media::clip::{ClipInfo, FrameSink as _, Timing};
use mien_media::y4m;
use mien_pixels::convert::Colour;
use mien_pixels::geometry::Roi;
use mien_pixels::i420::I420;
use mien_pixels::made;
use mien_pixels::stdm::clip::Reader;
use mien_pixels::view::Rgb;

use super::decode::{DecodeJob, Decoded};
use super::file::FileOut;
use super::stage::{self, Stages};
use super::{Costs, Frames, HANDS, QUEUE, source, turn};
use crate::still::{Desk, Files};
use crate::{Error, Result};

/// Seed of the ground.
const SEED: u64 = 3;

impl<B: Backend> Desk<'_, B> {
    /// Lays two portraits and the frames of a clip over a ground, moving, and writes raw frames.
    ///
    /// # Errors
    /// Of inputs and output; `Protocol` when a picture is too small; `Cancelled`.
    pub fn made(
        &self,
        job: JobId,
        count: u16,
        mark: Mark,
        mut files: Files,
        stages: &Stages,
    ) -> Result<Event> {
        let portraits = [self.open(&files.take()?)?.rgb, self.open(&files.take()?)?.rgb];
        let (info, faces) = self.first(files.take()?, stages, u64::from(count))?;
        let [astronaut, hopper, third] = made::CUTS;
        let fits = |rgb: &Rgb, cut: Roi| cut.lies_in(rgb.size());
        if faces.is_empty()
            || !fits(&portraits[0], astronaut)
            || !fits(&portraits[1], hopper)
            || !third.lies_in(info.size)
        {
            return Err(Error::Protocol { what: "pictures of which no clip can be made" });
        }
        let pass = Recipe { action: Action::Pass, others: Action::Pass, mark, ..Recipe::default() };
        let colour = Colour::BT709_LIMITED;
        let recipe = recipe::check(&pass).map_err(Error::Face)?;
        let mut marks = Clip::new(&recipe, made::SIZE, Default::default(), colour);
        let info = ClipInfo {
            size: made::SIZE,
            rate: (made::RATE, 1),
            sample_aspect: (1, 1),
            rotation: Default::default(),
            colour,
            ..info
        };
        let out = FileOut::new(Arc::new(files.take()?), 0);
        let out = BufWriter::with_capacity(1 << 20, out);
        let mut sink = Box::new(y4m::Writer::new(out, &info, made::SIZE).map_err(Error::Media)?);
        let ground = made::ground(made::SIZE, SEED);
        let mut picture = ground.clone();
        let mut frame = I420::new(made::SIZE, colour);
        for (number, face) in (0..u32::from(count)).zip(faces.iter().cycle()) {
            self.pulse.boundary()?;
            self.pulse.enter(Stage::Encode)?;
            picture.bytes_all_mut().copy_from_slice(ground.bytes_all());
            let [a, b, c] = made::paths(number);
            let cut = |rgb: &'_ Rgb, cut: Roi| rgb.view().crop(cut).to_image();
            let parts =
                [cut(&portraits[0], astronaut), cut(&portraits[1], hopper), cut(face, third)];
            let laid = [(parts[0].view(), a), (parts[1].view(), b), (parts[2].view(), c)];
            made::lay(&mut picture, &laid);
            frame.fill_from(picture.view());
            let at = Duration::from_secs(1) * number / made::RATE;
            let idr = u64::from(number) % limits::CLIP_GOP == 0;
            let marked = marks.apply(frame, Altered::Nothing, at, idr).map_err(Error::Face)?;
            let timing = Timing { pts: i64::from(number), duration: 1 };
            sink.push(marked.image(), timing, idr).map_err(Error::Media)?;
            frame = marked.into_image();
        }
        let bytes = sink.finish().map_err(Error::Media)?.bytes;
        Ok(Event::Made { job, written: ClipWritten { bytes, container: Container::Y4m } })
    }

    /// The first frames of a clip, as they lie.
    fn first(&self, input: OwnedFd, stages: &Stages, most: u64) -> Result<(ClipInfo, Vec<Rgb>)> {
        let mut all = Vec::new();
        let info = self.frames(input, stages, |frame, info| {
            let mut rgb = Rgb::filled(info.size, [0; 3]);
            frame.view().to_rgb(Roi::whole(info.size), &mut rgb.view_mut());
            all.push(rgb);
            (all.len() as u64) < most
        })?;
        Ok((info, all))
    }

    /// One frame of a clip as people see it, or the last where there are fewer, and what the frames
    /// up to it say of themselves.
    ///
    /// # Errors
    /// Of the input; `Cancelled`.
    pub(crate) fn shown(
        &self,
        input: OwnedFd,
        stages: &Stages,
        shown: u64,
    ) -> Result<(Rgb, Altered)> {
        let (mut last, mut number, mut reader) = (I420::default(), 0, None);
        let info = self.frames(input, stages, |frame, info| {
            let new = || Reader::new(info.size, info.colour.range);
            reader.get_or_insert_with(new).push(frame.y());
            last.copy_from(frame.view());
            number += 1;
            number <= shown
        })?;
        if number == 0 {
            return Err(Error::NoFrame { range: false });
        }
        let says = reader.and_then(|mut reader| reader.finish());
        let says = says.and_then(|found| Payload::parse(found.payload));
        let turn = turn(&info);
        let mut upright = Rgb::filled(turn.size(info.size), [0; 3]);
        turn.upright(last.view(), &mut upright);
        Ok((upright, says.map_or(Altered::Nothing, |payload| payload.altered)))
    }

    /// Gives the frames of a clip until somebody has enough of them.
    fn frames(
        &self,
        input: OwnedFd,
        stages: &Stages,
        mut take: impl FnMut(&I420, &ClipInfo) -> bool,
    ) -> Result<ClipInfo> {
        let (input, costs) = (Arc::new(input), Costs::new(self.machine));
        let (empty, frames) = self.decode(stages, QUEUE + HANDS, |empty, frames| {
            let (input, cost) = (source(&input, Vec::new())?, costs.decode.clone());
            Ok(DecodeJob { input, range: None, after: None, ended: false, cost, empty, frames })
        })?;
        let (info, _) = frames.begin()?;
        self.pulse.pixels(info.size.pixels());
        let read = read(self, &frames, &info, &mut take, |image| {
            // Nobody decodes any more: the end or an error comes next.
            let _ = empty.send(image);
        });
        drop(empty);
        frames.end();
        read?;
        Ok(*info)
    }
}

fn read<B: Backend>(
    desk: &Desk<'_, B>,
    frames: &Frames,
    info: &ClipInfo,
    take: &mut impl FnMut(&I420, &ClipInfo) -> bool,
    back: impl Fn(I420),
) -> Result<()> {
    loop {
        match frames.0.recv() {
            Ok(Decoded::Frame(image, _)) => {
                desk.pulse.boundary()?;
                desk.pulse.enter(Stage::Decode)?;
                let more = take(&image, info);
                if !more {
                    return Ok(());
                }
                back(image);
            }
            Ok(Decoded::End) => return Ok(()),
            Ok(Decoded::Failed(error)) => return Err(error),
            Ok(Decoded::Info(..)) | Err(_) => return Err(stage::gone()),
        }
    }
}

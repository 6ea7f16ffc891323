//! A clip in a camera's place: played over and over, in its own time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock, Mono, SystemClock};
use mien_base::wire::live::Delivers;
use mien_media::clip::{ClipInfo, FrameSource as Clip, Rotation};
use mien_pixels::i420::I420;
use mien_pixels::turn;

use super::{Fault, FrameSource, Shot, now};
use crate::clip::FileIn;

/// Slowest and fastest that frames come, in thousandths a second.
const RATES: std::ops::RangeInclusive<u32> = 500..=240_000;

/// Says when frames are due, as a camera would take them: what nobody fetched in time is lost.
#[derive(Debug)]
pub(super) struct Pace {
    clock: SystemClock,
    interval: Duration,
    begin: Option<Mono>,
    /// Of the frame that is due next.
    number: u64,
}

impl Pace {
    pub(super) fn new(clock: SystemClock, millihertz: u32) -> Self {
        let millihertz = millihertz.clamp(*RATES.start(), *RATES.end());
        let interval = Duration::from_nanos(1_000_000_000_000 / u64::from(millihertz));
        Self { clock, interval, begin: None, number: 0 }
    }

    /// Waits until the next frame is due and gives its number; `None` when that is beyond `most`.
    pub(super) fn wait(&mut self, most: Duration) -> Option<u64> {
        let now = self.clock.mono();
        let begin = *self.begin.get_or_insert(now);
        let after = |number: u64| {
            let nanos = self.interval.as_nanos().saturating_mul(u128::from(number));
            Mono(begin.0 + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        let late = now.since(after(self.number));
        if late > self.interval {
            let lost = late.as_nanos() / self.interval.as_nanos().max(1);
            self.number += u64::try_from(lost).unwrap_or(0);
        }
        let left = after(self.number).since(now);
        if left > most {
            std::thread::sleep(most);
            return None;
        }
        std::thread::sleep(left);
        self.number += 1;
        Some(self.number - 1)
    }
}

/// A clip that is played.
pub struct File {
    fd: Arc<OwnedFd>,
    clip: Box<dyn Clip>,
    rotation: Rotation,
    lying: I420,
    delivers: Delivers,
    pace: Pace,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("delivers", &self.delivers).finish_non_exhaustive()
    }
}

fn start(fd: &Arc<OwnedFd>) -> Result<Box<dyn Clip>, Fault> {
    let unread = |detail: String| Fault::Clip { detail };
    let file = FileIn::new(Arc::clone(fd)).map_err(|error| unread(error.to_string()))?;
    mien_media::open::open(Box::new(file)).map_err(|error| unread(error.to_string()))
}

fn rate(info: &ClipInfo) -> u32 {
    let (n, d) = info.rate;
    u32::try_from(u64::from(n) * 1000 / u64::from(d.max(1))).unwrap_or(0)
}

impl File {
    /// Takes a clip that the root program opened; it is played at its own rate or another one.
    ///
    /// # Errors
    /// `Clip`.
    pub fn open(fd: OwnedFd, millihertz: Option<u32>, clock: SystemClock) -> Result<Self, Fault> {
        let fd = Arc::new(fd);
        let clip = start(&fd)?;
        let info = clip.info();
        let rate = millihertz.unwrap_or_else(|| rate(info));
        let (pace, rotation) = (Pace::new(clock, rate), info.rotation);
        let size = rotation.upright(info.size);
        let pixel = format!("{} file", info.format.name());
        let delivers = Delivers { size: (size.width, size.height), pixel, millihertz: rate };
        Ok(Self { fd, clip, rotation, lying: I420::default(), delivers, pace })
    }

    fn read(&mut self, into: &mut I420) -> Result<bool, Fault> {
        let damaged = |error: mien_media::errors::Error| Fault::Clip { detail: error.to_string() };
        if self.rotation == Rotation::None {
            return Ok(self.clip.next(into).map_err(damaged)?.is_some());
        }
        let some = self.clip.next(&mut self.lying).map_err(damaged)?.is_some();
        if some {
            turn::turn_frame(self.lying.view(), self.rotation.degrees(), into);
        }
        Ok(some)
    }
}

impl FrameSource for File {
    fn delivers(&self) -> &Delivers {
        &self.delivers
    }

    fn next(&mut self, into: &mut I420, most: Duration) -> Result<Shot, Fault> {
        let silent = || Fault::Silent { millis: u64::try_from(most.as_millis()).unwrap_or(0) };
        let sequence = self.pace.wait(most).ok_or_else(silent)?;
        let fetched = now();
        if !self.read(into)? {
            self.reopen()?;
            if !self.read(into)? {
                return Err(Fault::Clip { detail: "it has no frame".to_owned() });
            }
        }
        let size = into.size();
        if (size.width, size.height) != self.delivers.size {
            return Err(Fault::Clip { detail: "its frames change their size".to_owned() });
        }
        Ok(Shot { sequence, at: Some(fetched), fetched })
    }

    fn reopen(&mut self) -> Result<(), Fault> {
        self.clip = start(&self.fd)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    /// Raw frames of 16x16 whose luma is their number.
    fn clip(frames: u8) -> OwnedFd {
        let mut bytes = b"YUV4MPEG2 W16 H16 F30:1 C420jpeg\n".to_vec();
        for n in 0..frames {
            bytes.extend_from_slice(b"FRAME\n");
            bytes.extend([[n; 256].as_slice(), &[128; 128]].concat());
        }
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, &bytes).unwrap();
        fd
    }

    #[test]
    fn a_clip_is_played_over_and_over() {
        let mut file = File::open(clip(3), Some(240_000), SystemClock::start()).unwrap();
        assert_eq!(file.delivers().size, (16, 16));
        let mut frame = I420::default();
        let mut last = None;
        for n in 0..8 {
            let shot = file.next(&mut frame, Duration::from_secs(5)).unwrap();
            assert_eq!(frame.y().pixel(5, 5), [n % 3]);
            assert!(last.is_none_or(|last| shot.sequence > last));
            last = Some(shot.sequence);
        }
    }

    #[test]
    fn what_is_no_clip_says_so() {
        let fault = File::open(clip(0), None, SystemClock::start())
            .and_then(|mut file| file.next(&mut I420::default(), Duration::from_secs(1)))
            .unwrap_err();
        assert!(matches!(fault, Fault::Clip { .. }), "{fault}");
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        assert!(File::open(pipe, None, SystemClock::start()).is_err());
    }
}

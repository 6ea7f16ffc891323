//! What a camera offers: formats, sizes, rates, controls; and which of them suits best.

use mien_base::limits;
use mien_base::wire::live::{Mode, Pixel};

use super::{ControlInfo, Driver, Intervals, JPEG, Kind, MJPG, NM12, NV12, Sizes, YUYV};
use crate::camera::Fault;

/// Sizes that are looked for where a camera takes any.
const USUAL: [(u32, u32); 6] =
    [(320, 240), (640, 360), (640, 480), (1280, 720), (1920, 1080), (3840, 2160)];
/// Frames a second that are enough where nobody asks for more, in thousandths.
const ENOUGH: u32 = 10_000;
/// Largest frame that is chosen where nobody asks for a size.
const LARGEST: u64 = 1920 * 1080;
/// Entries of one list that are asked for at most.
const LISTED: u32 = limits::CAMERA_LISTED as u32;

/// One way in which a camera can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub fourcc: u32,
    pub size: (u32, u32),
    /// Fastest, in thousandths of frames a second; 0 where the driver does not say.
    pub millihertz: u32,
    /// Time between frames that gives it.
    pub interval: (u32, u32),
}

/// How a format is read; `None` when it is not.
#[must_use]
pub const fn pixel(fourcc: u32) -> Option<Pixel> {
    match fourcc {
        MJPG | JPEG => Some(Pixel::Mjpg),
        YUYV => Some(Pixel::Yuyv),
        NV12 | NM12 => Some(Pixel::Nv12),
        _ => None,
    }
}

/// Thousandths of frames a second of a time between frames.
#[must_use]
pub fn millihertz((n, d): (u32, u32)) -> u32 {
    let rate = u64::from(d) * 1000 / u64::from(n.max(1));
    u32::try_from(rate).unwrap_or(u32::MAX)
}

/// Everything that a camera says it can, also what is not read here.
///
/// # Errors
/// `Fault`.
pub fn offers(driver: &mut dyn Driver, kind: Kind, wanted: &Mode) -> Result<Vec<Offer>, Fault> {
    let mut all = Vec::new();
    for index in 0..LISTED {
        let Some(fourcc) = driver.format_at(kind, index)? else { break };
        for index in 0..LISTED {
            let Some(sizes) = driver.size_at(fourcc, index)? else { break };
            match sizes {
                Sizes::One(w, h) => add(driver, fourcc, (w, h), wanted, &mut all)?,
                Sizes::Range { least, most, step } => {
                    let inside = |(w, h): &(u32, u32)| {
                        (least.0..=most.0).contains(w)
                            && (least.1..=most.1).contains(h)
                            && (w - least.0).is_multiple_of(step.0.max(1))
                            && (h - least.1).is_multiple_of(step.1.max(1))
                    };
                    let usual = USUAL.into_iter().chain(wanted.size);
                    for size in usual.filter(inside) {
                        add(driver, fourcc, size, wanted, &mut all)?;
                    }
                    break;
                }
            }
            if all.len() >= limits::CAMERA_LISTED {
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// Adds a size with the rate that suits: the slowest that is as fast as wanted, else the fastest.
fn add(
    driver: &mut dyn Driver,
    fourcc: u32,
    size: (u32, u32),
    wanted: &Mode,
    all: &mut Vec<Offer>,
) -> Result<(), Fault> {
    if all.iter().any(|o| (o.fourcc, o.size) == (fourcc, size)) {
        return Ok(());
    }
    let mut best: Option<(u32, u32)> = None;
    let mut take = |interval: (u32, u32)| {
        let (rate, target) = (millihertz(interval), wanted.millihertz.unwrap_or(u32::MAX));
        let better = best.is_none_or(|known| {
            let known = millihertz(known);
            match (rate >= target, known >= target) {
                (true, true) => rate < known,
                (fast, was_fast) => (fast & !was_fast) || (fast == was_fast && rate > known),
            }
        });
        if better && interval.0 > 0 && interval.1 > 0 {
            best = Some(interval);
        }
    };
    for index in 0..LISTED {
        match driver.interval_at(fourcc, size, index)? {
            None => break,
            Some(Intervals::One(n, d)) => take((n, d)),
            Some(Intervals::Range { least, most }) => {
                take(least);
                take(most);
                if let Some(rate) = wanted.millihertz
                    && (millihertz(most)..=millihertz(least)).contains(&rate)
                {
                    take((1000, rate.max(1)));
                }
                break;
            }
        }
    }
    let interval = best.unwrap_or((0, 0));
    let millihertz = best.map_or(0, millihertz);
    all.push(Offer { fourcc, size, millihertz, interval });
    Ok(())
}

/// Of what a camera offers, the best that is read here and fits what is wanted; `None` when
/// nothing does.
#[must_use]
pub fn choose(offers: &[Offer], wanted: &Mode) -> Option<Offer> {
    let fits = |o: &&Offer| {
        let Some(is) = pixel(o.fourcc) else { return false };
        let (w, h) = o.size;
        let area = u64::from(w) * u64::from(h);
        wanted.pixel.is_none_or(|p| p == is)
            && wanted.size.map_or(area <= LARGEST, |size| size == o.size)
            && w.max(h) <= limits::CLIP_SIDE
            && area <= limits::CLIP_PIXELS
            && w.min(h) >= 16
    };
    let target = wanted.millihertz.unwrap_or(ENOUGH);
    // A rate that is not stated may be any.
    let is_fast = |o: &Offer| o.millihertz == 0 || o.millihertz + o.millihertz / 50 >= target;
    let raw = |o: &Offer| pixel(o.fourcc) != Some(Pixel::Mjpg);
    let area = |o: &Offer| u64::from(o.size.0) * u64::from(o.size.1);
    let rate = |o: &Offer| if is_fast(o) { u32::MAX } else { o.millihertz };
    offers.iter().filter(fits).copied().max_by_key(|o| (rate(o), area(o), raw(o)))
}

/// The controls of a camera.
///
/// # Errors
/// `Fault`.
pub fn controls(driver: &mut dyn Driver) -> Result<Vec<ControlInfo>, Fault> {
    let mut all: Vec<ControlInfo> = Vec::new();
    while let Some(control) = driver.control_after(all.last().map_or(0, |c| c.id))? {
        // A driver that goes in circles is not followed.
        if all.last().is_some_and(|last| control.id <= last.id)
            || all.len() >= limits::CAMERA_LISTED
        {
            break;
        }
        all.push(control);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::v4l2::fake::{Fake, webcam};

    fn chosen(mode: Mode) -> Option<(u32, (u32, u32), u32)> {
        let mut driver = Fake::new(webcam());
        let all = offers(&mut driver, Kind::Capture, &mode).unwrap();
        choose(&all, &mode).map(|o| (o.fourcc, o.size, o.millihertz))
    }

    #[test]
    fn raw_frames_are_taken_where_they_are_fast_enough() {
        let of = |pixel, size, fps: Option<u32>| {
            chosen(Mode { pixel, size, millihertz: fps.map(|f| f * 1000) })
        };
        assert_eq!(of(None, Some((640, 480)), Some(30)), Some((YUYV, (640, 480), 30_000)));
        assert_eq!(of(None, Some((640, 480)), Some(15)), Some((YUYV, (640, 480), 15_000)));
        // 1280x720 comes raw at 5 a second only.
        assert_eq!(of(None, Some((1280, 720)), Some(30)), Some((MJPG, (1280, 720), 30_000)));
        assert_eq!(of(Some(Pixel::Yuyv), Some((1280, 720)), None).unwrap().2, 5_000);
        assert_eq!(of(None, None, None), Some((MJPG, (1280, 720), 30_000)));
        assert_eq!(of(None, Some((800, 600)), None), None);
        assert_eq!(of(Some(Pixel::Nv12), None, None), None);
    }

    #[test]
    fn controls_are_listed_until_a_driver_repeats_itself() {
        let mut driver = Fake::new(webcam());
        let names: Vec<String> =
            controls(&mut driver).unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["Brightness", "Power Line Frequency"]);
    }
}

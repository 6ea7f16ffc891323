//! Clips for tests: the made one of three faces with its truth, the real one, and how they run.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use mien_base::recipe::Recipe;
use mien_engine::backend::Backend;
use mien_face::clip::{ClipRun, Frame, FrameReport, Shape, Tools};
use mien_face::models::Models;
use mien_face::policy::Policy;
use mien_face::recipe::check;
use mien_face::subject::Landmarks5;
use mien_pixels::convert::Colour;
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};
use mien_pixels::i420::I420;
use mien_pixels::made;
use mien_pixels::resize::resize;
use mien_pixels::view::{Image, Rgb};

use crate::asked::clock;
use crate::real;

/// Frames of a segment in tests: longer than the clips, unless a test says otherwise.
pub(crate) const LONG: u64 = 1000;

/// The real clip, decoded by ffmpeg.
pub(crate) fn carphone() -> Vec<Rgb> {
    let size = Size::new(176, 144);
    let file = PathBuf::from(std::env::var_os("MIEN_PICTURES").unwrap()).join("carphone.mp4");
    let out = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(file)
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success());
    let one = size.pixels() as usize * 3;
    let frames: Vec<Rgb> =
        out.stdout.chunks_exact(one).map(|f| Image::from_vec(size, f.to_vec()).unwrap()).collect();
    assert_eq!(frames.len(), 120);
    frames
}

/// Frames in another size.
pub(crate) fn grown(frames: &[Rgb], size: Size) -> Vec<Rgb> {
    let grow = |frame: &Rgb| {
        let mut out = Rgb::filled(size, [0; 3]);
        resize(frame.view(), &mut out.view_mut());
        out
    };
    frames.iter().map(grow).collect()
}

pub(crate) fn planes(rgb: &Rgb) -> I420 {
    let mut frame = I420::new(rgb.size(), Colour::BT601_LIMITED);
    frame.fill_from(rgb.view());
    frame
}

pub(crate) fn pixels(frame: &I420) -> Rgb {
    let mut rgb = Rgb::filled(frame.size(), [0; 3]);
    frame.view().to_rgb(Roi::whole(frame.size()), &mut rgb.view_mut());
    rgb
}

/// The made clip.
pub(crate) struct Made {
    pub(crate) frames: Vec<Rgb>,
    /// Astronaut and Hopper as they are cut out, and each frame of carphone.
    pub(crate) cuts: [Rgb; 2],
    pub(crate) third: Vec<Rgb>,
}

pub(crate) fn made(count: usize) -> Made {
    let cut = |name: &str, i: usize| real::picture(name).view().crop(made::CUTS[i]).to_image();
    let cuts = [cut("astronaut.png", 0), cut("hopper.jpg", 1)];
    let third = carphone();
    let ground = made::ground(made::SIZE, 3);
    let frames = (0..count).map(|n| {
        let [a, b, c] = made::paths(n as u32);
        let mut frame = ground.clone();
        let pictures = [(cuts[0].view(), a), (cuts[1].view(), b), (third[n].view(), c)];
        made::lay(&mut frame, &pictures);
        frame
    });
    Made { frames: frames.collect(), cuts, third }
}

/// A face where it truly is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Truth {
    pub(crate) name: &'static str,
    pub(crate) rect: Rect,
    pub(crate) points: Landmarks5,
}

pub(crate) fn placed(rect: &Rect, points: &Landmarks5, map: &Affine2) -> (Rect, Landmarks5) {
    // A turned box is larger than the face in it: its own size about its middle.
    let scale = map.mean_scale() as f32;
    let c = map.apply(rect.centre());
    let (w, h) = (rect.width() * scale / 2.0, rect.height() * scale / 2.0);
    (Rect::new(c.x - w, c.y - h, c.x + w, c.y + h), points.mapped(map).unwrap())
}

/// How much of the oval in a box a test may look at.
fn oval(rect: &Rect, size: Size, mut each: impl FnMut(u32, u32)) -> u32 {
    let Some(roi) = rect.pixels(size) else { return 0 };
    let (c, w, h) = (rect.centre(), rect.width() / 2.0, rect.height() / 2.0);
    let mut count = 0;
    for y in roi.y..roi.y + roi.height {
        for x in roi.x..roi.x + roi.width {
            if ((x as f32 - c.x) / w).powi(2) + ((y as f32 - c.y) / h).powi(2) <= 1.0 {
                count += 1;
                each(x, y);
            }
        }
    }
    count
}

/// Share of a face's oval that is not the plain grey of a cover.
pub(crate) fn uncovered(out: &Rgb, rect: &Rect) -> f32 {
    let mut shown = 0;
    let all = oval(rect, out.size(), |x, y| {
        shown += u32::from(out.view().pixel(x, y).iter().any(|v| v.abs_diff(127) > 6));
    });
    if all == 0 { 0.0 } else { shown as f32 / all as f32 }
}

/// What came out of a clip.
pub(crate) struct Ran {
    pub(crate) frames: Vec<I420>,
    pub(crate) reports: Vec<FrameReport>,
    /// After each segment.
    pub(crate) states: Vec<Vec<u8>>,
}

impl Ran {
    pub(crate) fn looks(&self) -> usize {
        self.reports.iter().filter(|r| r.detected).count()
    }
}

/// Runs frames from `first` on, with the state of the segment before.
pub(crate) fn run_from<B: Backend>(
    models: &mut Models<B>,
    policy: &Policy<B>,
    recipe: &Recipe,
    frames: &[I420],
    segment: u64,
    resume: Option<(usize, &[u8])>,
) -> Ran {
    let clock = clock();
    let mut tools = Tools { models, policy, overlay: None, clock: &clock };
    let shape = Shape { size: frames[0].size(), rotation: 0, segment };
    let mut clip = ClipRun::new(&mut tools, check(recipe).unwrap(), shape).unwrap();
    let first = resume.map_or(0, |(first, state)| {
        clip.restore(state).unwrap();
        first
    });
    let mut ran = Ran { frames: Vec::new(), reports: Vec::new(), states: Vec::new() };
    for (n, image) in frames.iter().enumerate().skip(first) {
        let at = Duration::from_micros(n as u64 * 1_000_000 / u64::from(made::RATE));
        let frame = Frame { number: n as u64, at, image: image.clone() };
        clip.push(&mut tools, frame).unwrap();
        take(&mut clip, &mut tools, &mut ran);
        if (n as u64 + 1).is_multiple_of(segment) {
            ran.states.push(clip.state().unwrap());
        }
    }
    clip.end(&mut tools).unwrap();
    take(&mut clip, &mut tools, &mut ran);
    assert_eq!(ran.frames.len(), frames.len() - first);
    ran
}

fn take<B: Backend>(clip: &mut ClipRun<B>, tools: &mut Tools<'_, B>, ran: &mut Ran) {
    while let Some(done) = clip.next(tools) {
        let (frame, report) = done.unwrap();
        assert_eq!(frame.number, report.number);
        ran.frames.push(frame.image);
        ran.reports.push(report.clone());
        clip.recycle(report);
    }
}

pub(crate) fn run<B: Backend>(
    models: &mut Models<B>,
    policy: &Policy<B>,
    recipe: &Recipe,
    frames: &[Rgb],
) -> Ran {
    let frames: Vec<I420> = frames.iter().map(planes).collect();
    run_from(models, policy, recipe, &frames, LONG, None)
}

/// A crop of `side` pixels in which the face stands still: where its points go by `template`.
pub(crate) fn stilled(frame: &Rgb, points: &Landmarks5, side: u32) -> Rgb {
    use mien_pixels::warp::{Border, affine};
    let wanted = mien_face::align::FFHQ_512.at(side);
    let map = Affine2::similarity(&wanted, points.points()).unwrap();
    let mut out = Rgb::filled(Size::new(side, side), [0; 3]);
    affine(frame.view(), &map, &mut out.view_mut(), Border::Replicate);
    // Resampling shakes single pixels, in any picture.
    mien_pixels::filter::gaussian(&mut out, 2.0);
    out
}

/// Mean absolute second difference in time, in levels, over the middle of stilled faces.
pub(crate) fn flicker(crops: &[Rgb]) -> f64 {
    let side = crops[0].size().width;
    let (mut sum, mut count) = (0.0, 0.0);
    let rect =
        Rect::new(side as f32 * 0.22, side as f32 * 0.25, side as f32 * 0.78, side as f32 * 0.88);
    for w in crops.windows(3) {
        oval(&rect, crops[0].size(), |x, y| {
            let [a, b, c] = [0, 1, 2].map(|i| w[i].view().pixel(x, y));
            for k in 0..3 {
                let second = f64::from(a[k]) - 2.0 * f64::from(b[k]) + f64::from(c[k]);
                sum += second.abs();
                count += 1.0;
            }
        });
    }
    sum / count
}

pub(crate) fn middle(rect: &Rect) -> Point {
    rect.centre()
}

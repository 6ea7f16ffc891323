//! Finds faces: fits the picture to the model, reads its outputs, keeps the best of each face.

use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise, Session};
use mien_engine::contract::{Contract, Dim, Port};
use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect, Size};

use crate::meter::Meter;
use crate::subject::{Face, Landmarks5};
use crate::{Error, Result};

mod fit;
mod nms;
pub mod blaze;
pub mod centerface;
pub mod scrfd;
pub mod yoloface;
pub mod yunet;

pub use fit::Fit;
pub use nms::suppress;

/// Largest side of a detector's input that may be asked for.
pub const SIDE_MOST: u32 = 2560;
/// The side is a multiple of it.
pub const SIDE_STEP: u32 = 32;

/// A face in pixels of the detector's canvas, before it is checked and mapped back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub rect: Rect,
    pub score: f32,
    pub points: [Point; 5],
}

impl Candidate {
    /// True when its box is one, about on the canvas, and its score a probability.
    fn is_plausible(&self, canvas: Size) -> bool {
        let r = &self.rect;
        let (width, height) = (canvas.width as f32, canvas.height as f32);
        let most = 3.0 * width.max(height);
        let centre = r.centre();
        (1.0..=most).contains(&r.width())
            && (1.0..=most).contains(&r.height())
            && (-0.25 * width..=1.25 * width).contains(&centre.x)
            && (-0.25 * height..=1.25 * height).contains(&centre.y)
            && (0.0..=1.001).contains(&self.score)
    }
}

/// How to look.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Longer side of the input; `None` is the model's own. Ignored by models of a fixed size.
    pub size: Option<u32>,
    /// Least score that counts.
    pub score: f32,
    /// Margin around the picture in percent, 100 is half a side on each side.
    pub margin: f32,
    /// Passes to make, of 0, 90, 180, 270. Empty: 0, and the others when 0 finds none.
    pub angles: Vec<u16>,
    pub fit: Fit,
    /// A second pass at twice the model's own size, for faces that are lost in the first: where no
    /// size is asked for and the picture is that large.
    pub thorough: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: None,
            score: 0.5,
            margin: 0.0,
            angles: Vec::new(),
            fit: Fit::Letterbox,
            thorough: false,
        }
    }
}

/// What a decoder needs to know beside the outputs.
#[derive(Debug, Clone, Copy)]
pub struct Canvas {
    pub size: Size,
    /// Least score.
    pub score: f32,
}

/// How a family is fed.
struct Feed {
    normalise: Normalise,
    /// Both sides of the input are this.
    fixed: Option<u32>,
    /// The canvas is a square, not the picture's shape.
    square: bool,
    /// Own size when none is asked for.
    size: u32,
    /// Boxes that overlap more are one face.
    overlap: f32,
    name: &'static str,
}

fn feed(family: Family) -> Option<Feed> {
    let like = |mean: f32, scale: f32, bgr: bool| Normalise {
        mean: [mean; 3],
        scale: [scale; 3],
        bgr,
        layout: Layout::Nchw,
    };
    let free = |normalise, square, overlap, name| Feed {
        normalise,
        fixed: None,
        square,
        size: 640,
        overlap,
        name,
    };
    let blaze = |side, name| Feed {
        normalise: like(127.5, 1.0 / 127.5, false),
        fixed: Some(side),
        square: true,
        size: side,
        overlap: 0.3,
        name,
    };
    Some(match family {
        Family::CenterFace => free(like(0.0, 1.0, false), false, 0.3, "CenterFace"),
        Family::BlazeBack => blaze(256, "BlazeFace (back)"),
        Family::BlazeShort => blaze(128, "BlazeFace (short range)"),
        Family::Scrfd => free(like(127.5, 1.0 / 128.0, false), true, 0.4, "SCRFD"),
        Family::RetinaFace => free(like(127.5, 1.0 / 128.0, false), true, 0.4, "RetinaFace"),
        Family::YoloFace => free(like(0.0, 1.0 / 255.0, false), true, 0.4, "YOLOFace"),
        Family::YuNet => free(like(0.0, 1.0, true), true, 0.4, "YuNet"),
        _ => return None,
    })
}

fn contract(family: Family, feed: &Feed) -> Contract {
    let side = feed.fixed.map_or(Dim::Any, |s| Dim::Fixed(s as usize));
    let any = |shape| Port { name: String::new(), shape };
    let outputs = match family {
        Family::CenterFace => {
            [1, 2, 2, 10].map(|c| any(vec![Dim::Any, Dim::Fixed(c), Dim::Any, Dim::Any])).to_vec()
        }
        Family::BlazeBack | Family::BlazeShort => vec![any(Vec::new()); 2],
        Family::YoloFace => vec![any(Vec::new())],
        Family::YuNet => vec![any(Vec::new()); 12],
        // 6, 9, 10 or 15: the decoder tells them apart.
        _ => Vec::new(),
    };
    Contract { inputs: vec![any(vec![Dim::Any, Dim::Fixed(3), side, side])], outputs }
}

/// Reads a family's outputs into candidates, best first.
///
/// # Errors
/// In words, when the outputs are not of the family's shape, not finite, or hold more than
/// `limits::CANDIDATES`: a face that is dropped in silence would be a face that is shown.
pub fn decode(
    family: Family,
    outputs: &[Tensor],
    canvas: Canvas,
) -> std::result::Result<Vec<Candidate>, String> {
    let mut found = match family {
        Family::CenterFace => centerface::decode(outputs, canvas),
        Family::BlazeBack => blaze::decode(outputs, canvas, &blaze::BACK),
        Family::BlazeShort => blaze::decode(outputs, canvas, &blaze::SHORT),
        Family::Scrfd | Family::RetinaFace => scrfd::decode(outputs, canvas),
        Family::YoloFace => yoloface::decode(outputs, canvas),
        Family::YuNet => yunet::decode(outputs, canvas),
        _ => Err("it is no detector".to_owned()),
    }?;
    if found.len() > limits::CANDIDATES {
        return Err(format!("it sees {} candidates", found.len()));
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(found)
}

/// Values of an output that must have `len` of them, all finite.
fn values<'t>(
    tensor: &'t Tensor,
    len: usize,
    what: &str,
) -> std::result::Result<&'t [f32], String> {
    if tensor.data.len() != len {
        return Err(format!("{what} holds {} values, not {len}", tensor.data.len()));
    }
    if tensor.data.iter().all(|v| v.is_finite()) {
        return Ok(&tensor.data);
    }
    Err(format!("{what} holds a value that is not finite"))
}

/// A detector's model.
pub struct Detector<B: Backend> {
    manifest: Manifest,
    feed: Feed,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Detector<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Detector({})", self.manifest.id)
    }
}

impl<B: Backend> Detector<B> {
    /// Loads a detector of any family.
    ///
    /// # Errors
    /// `Slot` when the family is no detector's, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        let feed = feed(manifest.family).filter(|_| manifest.role == Role::Detector);
        let Some(mut feed) = feed else {
            let detail = format!("family {:?} does not find faces", manifest.family);
            return Err(Error::Slot { model: manifest.id, detail });
        };
        let contract = contract(manifest.family, &feed);
        let session = backend.load(&manifest, &contract, bytes).map_err(Error::engine("detect"))?;
        // A user's export may be of one size only.
        let declared = session.inputs().first().map(|p| p.shape.as_slice());
        if let Some(&[_, _, Dim::Fixed(height), Dim::Fixed(width)]) = declared {
            let side = u32::try_from(width).ok().filter(|s| height == width && *s <= SIDE_MOST);
            let Some(side) = side else {
                let detail = format!("its input of {width}x{height} is no usable square");
                return Err(Error::Slot { model: manifest.id, detail });
            };
            (feed.fixed, feed.square) = (Some(side), true);
        }
        Ok(Self { manifest, feed, session })
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> &ModelId {
        &self.manifest.id
    }

    /// Faces of a picture, best first.
    ///
    /// # Errors
    /// When the model fails or its outputs can't be read: then nothing is known about the picture.
    /// `Crowd` when there are more than `limits::FACES`.
    pub fn detect(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        options: &Options,
        meter: &mut Meter<'_>,
    ) -> Result<Vec<Face>> {
        let Size { width, height } = backend.size(picture);
        let own = self.feed.fixed.or(options.size).unwrap_or(self.feed.size);
        let is_free = self.feed.fixed.is_none() && options.size.is_none();
        let again = options.thorough && is_free && width.max(height) >= 2 * own;
        let sides = if again { vec![own, 2 * own] } else { vec![own] };
        let mut passes = Vec::new();
        let mut look = |angles: &[u16], passes: &mut Vec<Vec<Face>>| -> Result<()> {
            for &angle in angles {
                for &side in &sides {
                    passes.push(self.pass(backend, picture, options, (side, angle), meter)?);
                }
            }
            Ok(())
        };
        if options.angles.is_empty() {
            look(&[0], &mut passes)?;
            if passes.iter().all(Vec::is_empty) {
                look(&[90, 180, 270], &mut passes)?;
            }
        } else {
            look(&options.angles, &mut passes)?;
        }
        let faces = nms::pool(passes);
        if faces.len() > limits::FACES {
            return Err(Error::Crowd { most: limits::FACES });
        }
        Ok(faces)
    }

    fn pass(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        options: &Options,
        (side, angle): (u32, u16),
        meter: &mut Meter<'_>,
    ) -> Result<Vec<Face>> {
        let size = backend.size(picture);
        let plan = fit::plan(size, side, self.feed.square, options, angle);
        let normalise = &self.feed.normalise;
        let input = match plan.letterbox {
            Some(inner) => backend.letterbox(picture, plan.canvas, inner, normalise),
            None => backend.crop_batch(picture, &[plan.sampling()], plan.canvas, normalise),
        }
        .map_err(Error::engine("detect"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "detect")?;
        let canvas = Canvas { size: plan.canvas, score: options.score };
        let found = decode(self.manifest.family, &outputs, canvas).map_err(|detail| {
            Error::Output { model: self.manifest.id.clone(), family: self.feed.name, detail }
        })?;
        let found = nms::suppress(found, self.feed.overlap);
        found.iter().map(|c| self.check(c, &plan, size)).filter_map(Result::transpose).collect()
    }

    /// A candidate in the picture; `None` when it lies in the border of the canvas. One that can't
    /// be is an error: a detector that speaks nonsense is not believed about the rest.
    fn check(&self, found: &Candidate, plan: &fit::Plan, size: Size) -> Result<Option<Face>> {
        let nonsense = || Error::Output {
            model: self.manifest.id.clone(),
            family: self.feed.name,
            detail: "a face is where none can be".to_owned(),
        };
        if !found.is_plausible(plan.canvas) {
            return Err(nonsense());
        }
        let r = found.rect;
        let corners = [Point::new(r.x0, r.y0), Point::new(r.x1, r.y1)].map(|p| plan.back(p));
        let rect = Rect::around(&corners).ok_or_else(nonsense)?;
        let landmarks = Landmarks5::new(found.points.map(|p| plan.back(p))).ok_or_else(nonsense)?;
        let inside = rect.x1 > 0.0
            && rect.y1 > 0.0
            && rect.x0 < size.width as f32
            && rect.y0 < size.height as f32;
        Ok(inside.then_some(Face { rect, score: found.score.min(1.0), landmarks }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_can_not_be_is_not_plausible() {
        let fine = Candidate {
            rect: Rect::new(10.0, 10.0, 40.0, 50.0),
            score: 0.7,
            points: [Point::default(); 5],
        };
        let canvas = Size::new(64, 64);
        assert!(fine.is_plausible(canvas));
        for rect in [
            Rect::new(10.0, 10.0, 10.2, 50.0),
            Rect::new(40.0, 10.0, 10.0, 50.0),
            Rect::new(10.0, 10.0, f32::INFINITY, 50.0),
            Rect::new(f32::NAN, 10.0, 40.0, 50.0),
            Rect::new(1010.0, 10.0, 1040.0, 50.0),
            Rect::new(-200.0, -200.0, 264.0, 264.0),
        ] {
            assert!(!Candidate { rect, ..fine }.is_plausible(canvas), "{rect:?}");
        }
        for score in [-0.1, 1.1, f32::NAN] {
            assert!(!Candidate { score, ..fine }.is_plausible(canvas), "{score}");
        }
    }
}

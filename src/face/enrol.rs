//! Takes a source's face from a picture, or says why not.

use mien_base::clock::Wall;
use mien_base::consent::{Quality, SourceRecord};
use mien_base::id::IdentityId;
use mien_base::model::Role;
use mien_base::recipe::Detect;
use mien_engine::backend::Backend;
use mien_pixels::convert::{self, Matrix};
use mien_pixels::filter;
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

use crate::align;
use crate::meter::Meter;
use crate::models::Models;
use crate::recipe;
use crate::subject::{Face, Mesh};
use crate::{Error, Result};

/// Least width or height of the face in pixels.
pub const FACE_LEAST: f32 = 80.0;
/// Least variance of the Laplacian over the aligned face.
pub const SHARPNESS_LEAST: f32 = 40.0;
/// Most degrees away from frontal.
pub const YAW_MOST: f32 = 35.0;
pub const PITCH_MOST: f32 = 30.0;
/// Least detector score.
pub const SCORE_LEAST: f32 = 0.5;

/// The portrait's side as a multiple of the mesh's.
const PORTRAIT: f32 = 2.2;
/// Longest side of a portrait; larger ones are shrunk.
const PORTRAIT_MOST: u32 = 1024;
/// A second face this much smaller is somebody in the background.
const BACKGROUND: f32 = 0.25;
const SIDE: u32 = 112;

/// Finds the one face of a picture, measures it, and cuts its portrait out.
///
/// # Errors
/// `Enrol` with what is wrong with the picture; `Refused` by the content gate; `NoModel`; whatever
/// a model gives.
pub fn enrol<B: Backend>(
    models: &mut Models<B>,
    identity: IdentityId,
    detect: &Detect,
    picture: Rgb,
    enrolled: Wall,
    meter: &mut Meter<'_>,
) -> Result<(SourceRecord, Rgb)> {
    recipe::check_detect(detect)?;
    let backend = models.backend().clone();
    let picture = backend.adopt(picture).map_err(Error::engine("enrol"))?;
    let gate = models.gate.as_mut().ok_or(Error::NoModel { role: Role::Gate })?;
    let passed = meter.stage("gate", |m| gate.inspect(&backend, picture, m))?;
    let picture = passed.get();
    let size = backend.size(picture);

    let options = recipe::options(detect, SCORE_LEAST);
    let detector = models.detector(&detect.model)?;
    let faces = meter.stage("detect", |m| detector.detect(&backend, picture, &options, m))?;
    let face = one(&faces)?;
    let landmarks = models.landmarks.as_mut().ok_or(Error::NoModel { role: Role::Landmarks })?;
    let mesh = meter.stage("landmarks", |m| landmarks.find(&backend, picture, &face, m))?;
    let five = mesh.five();

    let aligned = align::from_crop(&five, &align::ARCFACE_112_V2, SIDE, size)?;
    let crop = backend
        .crop(picture, &aligned, Size::new(SIDE, SIDE))
        .and_then(|p| backend.release(p))
        .map_err(Error::engine("enrol"))?;
    let mut luma = Grey::filled(crop.size(), [0]);
    convert::luma(crop.view(), Matrix::Bt601, &mut luma.view_mut());
    let (yaw, pitch) = mesh.pose();
    let quality = Quality {
        face_px: face.side(),
        sharpness: filter::laplacian_variance(luma.view()) as f32,
        yaw,
        pitch,
        score: face.score,
    };
    judge(&quality)?;

    let (embedder, embedding) = match models.embedder.as_mut() {
        Some(embedder) => {
            let found = meter.stage("embed", |m| embedder.embed(&backend, picture, &five, m))?;
            (Some(embedder.space()), found.values().to_vec())
        }
        None => (None, Vec::new()),
    };

    let cut = cut(&mesh, size)?;
    let portrait = backend
        .crop(picture, &cut.map, cut.size)
        .and_then(|p| backend.release(p))
        .map_err(Error::engine("enrol"))?;
    let place = |p: Point| cut.back.apply(p);
    let depth = cut.back.mean_scale() as f32;
    let moved = |p: &[f32; 3]| {
        let q = place(Point::new(p[0], p[1]));
        [q.x, q.y, p[2] * depth]
    };
    let record = SourceRecord {
        identity,
        embedder,
        embedding,
        mesh: mesh.points().iter().map(moved).collect(),
        landmarks: five.points().map(|p| [place(p).x, place(p).y]),
        quality,
        enrolled,
    };
    Ok((record, portrait))
}

/// The one face; small ones in the background do not count.
fn one(faces: &[Face]) -> Result<Face> {
    let no = |reason: String| Err(Error::Enrol { reason });
    let Some(largest) = faces.iter().copied().max_by(|a, b| a.side().total_cmp(&b.side())) else {
        return no("it shows no face".to_owned());
    };
    let near = faces.iter().filter(|f| f.side() > BACKGROUND * largest.side()).count();
    if near > 1 {
        return no(format!("it shows {near} faces; cut it down to the one that is meant"));
    }
    Ok(largest)
}

/// Everything that is wrong, at once.
fn judge(quality: &Quality) -> Result<()> {
    let mut faults = Vec::new();
    let mut unless = |holds: bool, fault: String| {
        if !holds {
            faults.push(fault);
        }
    };
    let q = quality;
    unless(
        q.face_px >= FACE_LEAST,
        format!("the face is {:.0} pixels, and {FACE_LEAST} are needed", q.face_px),
    );
    unless(
        q.sharpness >= SHARPNESS_LEAST,
        format!("it is blurred (sharpness {:.0}, least {SHARPNESS_LEAST})", q.sharpness),
    );
    unless(
        q.yaw.abs() <= YAW_MOST,
        format!("the face is turned aside by {:.0} degrees, most is {YAW_MOST}", q.yaw.abs()),
    );
    unless(
        q.pitch.abs() <= PITCH_MOST,
        format!("the face is tilted by {:.0} degrees, most is {PITCH_MOST}", q.pitch.abs()),
    );
    if faults.is_empty() { Ok(()) } else { Err(Error::Enrol { reason: faults.join("; ") }) }
}

/// Where the portrait is cut.
struct Cut {
    /// Portrait pixels to picture pixels.
    map: Affine2,
    back: Affine2,
    size: Size,
}

fn cut(mesh: &Mesh, picture: Size) -> Result<Cut> {
    let around = mesh.rect();
    let (c, half) = (around.centre(), PORTRAIT / 2.0 * around.width().max(around.height()));
    let square = Rect::new(c.x - half, c.y - half, c.x + half, c.y + half);
    let outside = || Error::Enrol { reason: "the face lies outside the picture".to_owned() };
    let Roi { x, y, width, height } = square.pixels(picture).ok_or_else(outside)?;
    let shrink = (f64::from(PORTRAIT_MOST) / f64::from(width.max(height))).min(1.0);
    let scaled = |v: u32| ((f64::from(v) * shrink).round() as u32).max(1);
    let size = Size::new(scaled(width), scaled(height));
    let scale = |a: u32, b: u32| f64::from(a) / f64::from(b);
    let map = if shrink < 1.0 {
        Affine2::translate(0.5, 0.5)
            .then(&Affine2::scale(scale(width, size.width), scale(height, size.height)))
            .then(&Affine2::translate(f64::from(x) - 0.5, f64::from(y) - 0.5))
    } else {
        Affine2::translate(f64::from(x), f64::from(y))
    };
    let back = map.inverse().ok_or_else(outside)?;
    Ok(Cut { map, back, size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Landmarks5, MESH};

    fn face(side: f32) -> Face {
        let landmarks = Landmarks5::new([Point::default(); 5]).unwrap();
        Face { rect: Rect::new(0.0, 0.0, side * 0.8, side), score: 0.9, landmarks }
    }

    #[test]
    fn one_face_is_meant_when_the_others_stand_far_behind() {
        assert_eq!(one(&[face(20.0), face(100.0)]).unwrap().side(), 100.0);
        for (faces, word) in [(vec![], "no face"), (vec![face(100.0), face(30.0)], "2 faces")] {
            let Err(Error::Enrol { reason }) = one(&faces) else { panic!("{word}") };
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn a_poor_picture_is_refused_with_all_that_is_wrong() {
        let fine = Quality { face_px: 80.0, sharpness: 90.0, yaw: -10.0, pitch: 8.0, score: 0.9 };
        assert!(judge(&fine).is_ok());
        for (poor, words) in [
            (Quality { face_px: 40.0, ..fine }, vec!["40 pixels"]),
            (Quality { sharpness: 5.0, ..fine }, vec!["blurred"]),
            (Quality { yaw: -60.0, pitch: 50.0, ..fine }, vec!["aside by 60", "tilted by 50"]),
            (Quality { yaw: f32::NAN, ..fine }, vec!["aside"]),
        ] {
            let Err(Error::Enrol { reason }) = judge(&poor) else { panic!("{words:?}") };
            assert!(words.iter().all(|w| reason.contains(w)), "{reason}");
        }
    }

    #[test]
    fn a_portrait_is_cut_inside_the_picture_and_points_follow() {
        let mut points = vec![[500.0, 400.0, 0.0]; MESH];
        points[0] = [400.0, 300.0, 0.0];
        points[1] = [600.0, 500.0, 0.0];
        let mesh = Mesh::new(points).unwrap();
        let cut = cut(&mesh, Size::new(4000, 3000)).unwrap();
        assert!((440..=443).contains(&cut.size.width) && (440..=443).contains(&cut.size.height));
        let p = cut.back.apply(Point::new(500.0, 400.0));
        assert!((p.x - 220.0).abs() < 2.0 && (p.y - 220.0).abs() < 2.0);
        // At the border it is cut off; a large one is shrunk.
        let corner = super::cut(&mesh, Size::new(560, 460)).unwrap();
        assert_eq!((corner.size.width, corner.size.height), (560 - 280, 460 - 180));
        let large = Mesh::new(mesh.points().iter().map(|p| p.map(|v| v * 8.0)).collect()).unwrap();
        let large = super::cut(&large, Size::new(8000, 6000)).unwrap();
        assert_eq!(large.size.width.max(large.size.height), PORTRAIT_MOST);
    }
}

//! How far a model is from another one of its role, on the same pictures: what an INT8 model must
//! hold before it serves.

use mien_base::model::{Distance, Manifest, Role};
use mien_base::recipe::Detect;
use mien_engine::backend::Backend;
use mien_pixels::view::Rgb;

use crate::detect::Detector;
use crate::embed::Embedder;
use crate::landmarks::Landmarker;
use crate::meter::Meter;
use crate::models::Models;
use crate::subject::Face;
use crate::{Error, Result, recipe};

/// Least score of a face that counts.
const SCORE: f32 = 0.5;
/// Boxes that overlap less are of different faces.
const SAME_FACE: f32 = 0.3;

/// A model as it came: what it says of itself, and its file.
pub type Given<'a> = (Manifest, &'a [u8]);

/// Sums on the way to a distance.
#[derive(Debug, Default)]
struct Sums {
    faces: u32,
    missed: u32,
    overlap: f64,
    drift: f64,
    drifts: u32,
    cosine: Option<f32>,
}

impl Sums {
    fn drift(&mut self, drift: f32) {
        self.drift += f64::from(drift);
        self.drifts += 1;
    }
}

/// Compares two models of one role on pictures; `models` finds the faces for what is not a
/// detector itself.
///
/// # Errors
/// `Slot` for roles that differ or have no measure, and when one of them can't be loaded;
/// `Face` when no face is to be seen; of the stages.
pub fn distance<B: Backend>(
    models: &mut Models<B>,
    (reference, candidate): (Given<'_>, Given<'_>),
    detect: &Detect,
    pictures: Vec<Rgb>,
    meter: &mut Meter<'_>,
) -> Result<Distance> {
    recipe::check_detect(detect)?;
    let role = reference.0.role;
    if candidate.0.role != role {
        let detail = format!("it is no {role:?}, as the one that it is compared with");
        return Err(Error::Slot { model: candidate.0.id, detail });
    }
    let held = models.backend().clone();
    let backend = &*held;
    let mut sums = Sums::default();
    let adopt = |picture| backend.adopt(picture).map_err(Error::engine("measure"));
    let options = recipe::options(detect, SCORE);
    match role {
        Role::Detector => {
            let mut a = Detector::load(backend, reference.0, reference.1)?;
            let mut b = Detector::load(backend, candidate.0, candidate.1)?;
            for picture in pictures {
                let picture = adopt(picture)?;
                let wanted = a.detect(backend, &picture, &options, meter)?;
                let found = b.detect(backend, &picture, &options, meter)?;
                detections(&wanted, found, &mut sums);
            }
        }
        Role::Landmarks => {
            let mut a = Landmarker::load(backend, reference.0, reference.1)?;
            let mut b = Landmarker::load(backend, candidate.0, candidate.1)?;
            for picture in pictures {
                let picture = adopt(picture)?;
                let detector = models.detector(&detect.model)?;
                for face in detector.detect(backend, &picture, &options, meter)? {
                    let wanted = a.find(backend, &picture, &face, meter);
                    let found = b.find(backend, &picture, &face, meter);
                    match (wanted, found) {
                        (Ok(wanted), Ok(found)) => {
                            let pairs = wanted.flat().into_iter().zip(found.flat());
                            let sum: f32 = pairs.map(|(p, q)| p.distance(q)).sum();
                            sums.drift(sum / wanted.points().len() as f32 / face.rect.width());
                            sums.faces += 1;
                        }
                        (Err(Error::Face { .. }), Err(Error::Face { .. })) => {}
                        (Ok(_), Err(Error::Face { .. })) | (Err(Error::Face { .. }), Ok(_)) => {
                            sums.drift(1.0);
                            sums.faces += 1;
                            sums.missed += 1;
                        }
                        (Err(error), _) | (_, Err(error)) => return Err(error),
                    }
                }
            }
        }
        Role::Embedder => {
            let mut a = Embedder::load(backend, reference.0, reference.1)?;
            let mut b = Embedder::load(backend, candidate.0, candidate.1)?;
            for picture in pictures {
                let picture = adopt(picture)?;
                let detector = models.detector(&detect.model)?;
                for face in detector.detect(backend, &picture, &options, meter)? {
                    let wanted = a.embed(backend, &picture, &face.landmarks, meter)?;
                    let found = b.embed(backend, &picture, &face.landmarks, meter)?;
                    let cosine = wanted.cosine(&found).unwrap_or(-1.0);
                    sums.cosine = Some(sums.cosine.map_or(cosine, |least| least.min(cosine)));
                    sums.faces += 1;
                }
            }
        }
        _ => {
            let detail = format!("there is no measure for {role:?} models");
            return Err(Error::Slot { model: candidate.0.id, detail });
        }
    }
    if sums.faces == 0 {
        let detail = "no face is to be seen on the pictures to measure by".to_owned();
        return Err(Error::Face { detail });
    }
    let mean = |sum: f64, count: u32| (count > 0).then(|| (sum / f64::from(count)) as f32);
    Ok(Distance {
        faces: sums.faces,
        missed: sums.missed,
        box_iou: (role == Role::Detector).then(|| mean(sums.overlap, sums.faces)).flatten(),
        landmark_drift: mean(sums.drift, sums.drifts),
        cosine: sums.cosine,
    })
}

/// Pairs what two detectors see in one picture, best overlap first for each wanted face.
fn detections(wanted: &[Face], mut found: Vec<Face>, sums: &mut Sums) {
    for face in wanted {
        sums.faces += 1;
        let overlaps = found.iter().map(|other| face.rect.iou(&other.rect));
        let best = overlaps.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, overlap)) = best.filter(|(_, overlap)| *overlap >= SAME_FACE) else {
            sums.missed += 1;
            sums.drift(1.0);
            continue;
        };
        let other = found.swap_remove(at);
        sums.overlap += f64::from(overlap);
        let pairs = face.landmarks.points().iter().zip(other.landmarks.points());
        let distance: f32 = pairs.map(|(p, q)| p.distance(*q)).sum();
        sums.drift(distance / 5.0 / face.rect.width());
    }
    // What the candidate alone sees counts as missed, too.
    let more = u32::try_from(found.len()).unwrap_or(u32::MAX);
    sums.faces += more;
    sums.missed += more;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_pixels::geometry::{Point, Rect};

    fn face(x: f32, side: f32) -> Face {
        let at = |u: f32, v: f32| Point::new(x + u * side, v * side);
        let five = [at(0.3, 0.3), at(0.7, 0.3), at(0.5, 0.5), at(0.35, 0.7), at(0.65, 0.7)];
        Face {
            rect: Rect::new(x, 0.0, x + side, side),
            landmarks: Landmarks5::new(five).unwrap(),
            score: 0.9,
        }
    }

    #[test]
    fn faces_are_paired_by_overlap_and_what_one_alone_sees_counts_as_missed() {
        let mut sums = Sums::default();
        detections(
            &[face(0.0, 100.0), face(500.0, 100.0)],
            vec![face(505.0, 100.0), face(900.0, 50.0)],
            &mut sums,
        );
        assert_eq!((sums.faces, sums.missed), (3, 2));
        assert!((sums.overlap - 95.0 / 105.0).abs() < 1e-5, "{}", sums.overlap);
        assert!((sums.drift - 1.05).abs() < 1e-5, "{}", sums.drift);
    }
}

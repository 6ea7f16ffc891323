//! BlazeFace: 896 anchors of size 1, boxes and six points in pixels of the input.

use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect};

use super::{Candidate, Canvas, values};

/// Stride and anchors per cell of each level.
pub type Levels = [(usize, usize); 2];
/// Back camera, 256.
pub const BACK: Levels = [(16, 2), (32, 6)];
/// Short range, 128.
pub const SHORT: Levels = [(8, 2), (16, 6)];

/// Half the mouth's width as a share of the distance between the eyes: the model has one point
/// for the mouth, and its corners stand along the eye line.
const HALF_MOUTH: f32 = 0.4;

/// Reads regressors `[1, 896, 16]` and classificators `[1, 896, 1]`, in any order.
///
/// # Errors
/// In words, when a shape does not fit the canvas or a value is not finite.
pub fn decode(
    outputs: &[Tensor],
    canvas: Canvas,
    levels: &Levels,
) -> Result<Vec<Candidate>, String> {
    let [first, second] = outputs else {
        return Err(format!("it has {} outputs, not 2", outputs.len()));
    };
    let turned = first.data.len() < second.data.len();
    let (boxes, logits) = if turned { (second, first) } else { (first, second) };
    let side = canvas.size.width as usize;
    let count: usize = levels.iter().map(|(stride, n)| (side / stride).pow(2) * n).sum();
    let boxes = values(boxes, 16 * count, "regressors")?;
    let logits = values(logits, count, "classificators")?;
    let mut found = Vec::new();
    for (index, &logit) in logits.iter().enumerate() {
        let score = 1.0 / (1.0 + (-logit.clamp(-100.0, 100.0)).exp());
        if score > canvas.score {
            found.push(candidate(&boxes[16 * index..], anchor(index, side, levels), score));
        }
    }
    Ok(found)
}

/// Centre of an anchor in pixels.
fn anchor(mut index: usize, side: usize, levels: &Levels) -> Point {
    let mut centre = Point::default();
    for &(stride, n) in levels {
        let cells = side / stride;
        let cell = index / n;
        let at = |v: usize| (v as f32 + 0.5) * stride as f32;
        centre = Point::new(at(cell % cells), at(cell / cells));
        if cell < cells * cells {
            break;
        }
        index -= cells * cells * n;
    }
    centre
}

fn candidate(row: &[f32], anchor: Point, score: f32) -> Candidate {
    let at = |i: usize| Point::new(row[i] + anchor.x, row[i + 1] + anchor.y);
    let (centre, wide, high) = (at(0), row[2], row[3]);
    // The subject's right eye stands on the image's left.
    let (left_eye, right_eye, nose, mouth) = (at(4), at(6), at(8), at(10));
    let along = |share: f32| {
        Point::new(
            mouth.x + share * (right_eye.x - left_eye.x),
            mouth.y + share * (right_eye.y - left_eye.y),
        )
    };
    Candidate {
        rect: Rect::new(
            centre.x - wide / 2.0,
            centre.y - high / 2.0,
            centre.x + wide / 2.0,
            centre.y + high / 2.0,
        ),
        score,
        points: [left_eye, right_eye, nose, along(-HALF_MOUTH), along(HALF_MOUTH)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;

    fn tensors(index: usize, row: [f32; 16]) -> Vec<Tensor> {
        let mut boxes = Tensor { shape: vec![1, 896, 16], data: vec![0.0; 896 * 16] };
        boxes.data[16 * index..16 * (index + 1)].copy_from_slice(&row);
        let mut logits = Tensor { shape: vec![1, 896, 1], data: vec![-100.0; 896] };
        logits.data[index] = 0.0;
        vec![boxes, logits]
    }

    const ROW: [f32; 16] = [4., -4., 20., 10., -5., 0., 5., 0., 0., 5., 0., 8., 0., 0., 0., 0.];

    #[test]
    fn both_levels_of_anchors_stand_in_the_middle_of_their_cells() {
        // Short range: 16 x 16 cells of 8 pixels, 2 each; then 8 x 8 of 16 pixels, 6 each.
        for (index, centre) in [
            (0, (4.0, 4.0)),
            (1, (4.0, 4.0)),
            (2, (12.0, 4.0)),
            (33, (4.0, 12.0)),
            (512, (8.0, 8.0)),
            (895, (120.0, 120.0)),
        ] {
            let p = anchor(index, 128, &SHORT);
            assert_eq!((p.x, p.y), centre, "{index}");
        }
        let p = anchor(895, 256, &BACK);
        assert_eq!((p.x, p.y), (240.0, 240.0));
    }

    #[test]
    fn a_row_becomes_a_box_and_five_points() {
        let canvas = Canvas { size: Size::new(128, 128), score: 0.4 };
        for turned in [false, true] {
            let mut outputs = tensors(2, ROW);
            if turned {
                outputs.reverse();
            }
            let found = decode(&outputs, canvas, &SHORT).unwrap();
            assert_eq!(found.len(), 1);
            // Anchor (12, 4): centre (16, 0), 20 wide, 10 high. A logit of 0 is a score of 1/2.
            assert_eq!(found[0].rect, Rect::new(6.0, -5.0, 26.0, 5.0));
            assert_eq!(found[0].score, 0.5);
            let p = found[0].points.map(|p| (p.x, p.y));
            assert_eq!(p, [(7.0, 4.0), (17.0, 4.0), (12.0, 9.0), (8.0, 12.0), (16.0, 12.0)]);
        }
    }

    #[test]
    fn broken_outputs_are_refused() {
        let canvas = Canvas { size: Size::new(128, 128), score: 0.4 };
        let mut outputs = tensors(2, ROW);
        outputs[0].data[700] = f32::INFINITY;
        assert!(decode(&outputs, canvas, &SHORT).is_err());
        assert!(decode(&tensors(2, ROW)[..1], canvas, &SHORT).is_err());
        let wide = Canvas { size: Size::new(256, 256), score: 0.4 };
        assert!(decode(&tensors(2, ROW), wide, &SHORT).is_err());
    }
}

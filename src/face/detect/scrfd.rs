//! SCRFD and RetinaFace (insightface's export): distances from anchors on three or five strides.

use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect};

use super::{Candidate, Canvas, values};

/// Reads scores, boxes (l, t, r, b in strides) and points (x, y in strides): 9 or 15 outputs, or 6
/// or 10 without points. Outputs are told apart by their last axis (1, 4, 10) and stand from the
/// finest stride to the coarsest. Two anchors a cell with three strides (8, 16, 32), one with five
/// (8 to 128). An anchor is the cell's corner: there is no half cell. Scores count from the
/// threshold on.
///
/// Without points they are set where an upright face has them.
///
/// # Errors
/// In words, when a shape does not fit the canvas or a value is not finite.
pub fn decode(outputs: &[Tensor], canvas: Canvas) -> Result<Vec<Candidate>, String> {
    let (levels, anchors, with_points) = match outputs.len() {
        6 => (3, 2, false),
        9 => (3, 2, true),
        10 => (5, 1, false),
        15 => (5, 1, true),
        n => return Err(format!("it has {n} outputs, not 6, 9, 10 or 15")),
    };
    let of = |last: usize| -> Vec<&Tensor> {
        outputs.iter().filter(|t| t.shape.last() == Some(&last)).collect()
    };
    let (scores, boxes, points) = (of(1), of(4), of(10));
    let points_wanted = if with_points { levels } else { 0 };
    if (scores.len(), boxes.len(), points.len()) != (levels, levels, points_wanted) {
        return Err("its outputs are not scores, boxes and points per stride".to_owned());
    }
    let mut found = Vec::new();
    for level in 0..levels {
        let stride = 8_usize << level;
        let cells = |side: u32| (side as usize).div_ceil(stride);
        let columns = cells(canvas.size.width);
        let rows = columns * cells(canvas.size.height) * anchors;
        let scores = values(scores[level], rows, "scores")?;
        let boxes = values(boxes[level], 4 * rows, "boxes")?;
        let points = match points.get(level) {
            Some(tensor) => Some(values(tensor, 10 * rows, "points")?),
            None => None,
        };
        for (row, &score) in scores.iter().enumerate().filter(|(_, s)| **s >= canvas.score) {
            let (cell, stride) = (row / anchors, stride as f32);
            let centre =
                Point::new((cell % columns) as f32 * stride, (cell / columns) as f32 * stride);
            let b = &boxes[4 * row..4 * row + 4];
            let rect = Rect::new(
                centre.x - b[0] * stride,
                centre.y - b[1] * stride,
                centre.x + b[2] * stride,
                centre.y + b[3] * stride,
            );
            let points = match points {
                Some(p) => [0, 1, 2, 3, 4].map(|j| {
                    let at = 10 * row + 2 * j;
                    Point::new(centre.x + p[at] * stride, centre.y + p[at + 1] * stride)
                }),
                None => upright(&rect),
            };
            found.push(Candidate { rect, score, points });
        }
    }
    Ok(found)
}

/// Where the five points stand in the box of an upright face.
fn upright(rect: &Rect) -> [Point; 5] {
    [(0.3, 0.4), (0.7, 0.4), (0.5, 0.6), (0.35, 0.78), (0.65, 0.78)]
        .map(|(x, y)| Point::new(rect.x0 + x * rect.width(), rect.y0 + y * rect.height()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;

    const CANVAS: Canvas = Canvas { size: Size::new(64, 32), score: 0.5 };

    /// Empty outputs of a 64 x 32 canvas, as `kinds` (last axes) each over all strides.
    fn empty(levels: usize, anchors: usize, kinds: &[usize]) -> Vec<Tensor> {
        let mut outputs = Vec::new();
        for &last in kinds {
            for level in 0..levels {
                let stride = 8 << level;
                let rows = 64_usize.div_ceil(stride) * 32_usize.div_ceil(stride) * anchors;
                outputs.push(Tensor { shape: vec![rows, last], data: vec![0.0; rows * last] });
            }
        }
        outputs
    }

    #[test]
    fn nine_outputs_give_boxes_and_points() {
        let mut outputs = empty(3, 2, &[1, 4, 10]);
        // Stride 16: 4 x 2 cells of 2 anchors. Row 11 is cell 5: column 1, row 1, so (16, 16).
        outputs[1].data[11] = 0.5;
        outputs[4].data[44..48].copy_from_slice(&[0.5, 1.0, 1.5, 0.25]);
        outputs[7].data[110..120].copy_from_slice(&[-0.25, 0.5, 0., 0., 0., 0., 0., 0., 1., -1.]);
        let found = decode(&outputs, CANVAS).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rect, Rect::new(8.0, 0.0, 40.0, 20.0));
        assert_eq!(found[0].score, 0.5);
        assert_eq!(found[0].points[0], Point::new(12.0, 24.0));
        assert_eq!(found[0].points[4], Point::new(32.0, 0.0));
    }

    #[test]
    fn five_strides_have_one_anchor_a_cell() {
        let mut outputs = empty(5, 1, &[1, 4, 10]);
        // Stride 64 is one cell of 64 x 32; stride 8 has 8 x 4.
        outputs[0].data[9] = 0.9;
        outputs[5].data[36..40].copy_from_slice(&[1.0; 4]);
        let found = decode(&outputs, CANVAS).unwrap();
        assert_eq!(found[0].rect, Rect::new(0.0, 0.0, 16.0, 16.0));
    }

    #[test]
    fn without_points_they_stand_inside_the_box() {
        for (levels, anchors) in [(3, 2), (5, 1)] {
            let mut outputs = empty(levels, anchors, &[1, 4]);
            outputs[0].data[0] = 0.8;
            outputs[levels].data[..4].copy_from_slice(&[0.0, 0.0, 10.0, 10.0]);
            let found = decode(&outputs, CANVAS).unwrap();
            assert_eq!(found[0].points[0], Point::new(24.0, 32.0));
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        assert!(decode(&empty(3, 2, &[1, 4, 4]), CANVAS).is_err());
        assert!(decode(&empty(3, 2, &[1]), CANVAS).is_err());
        assert!(decode(&empty(3, 1, &[1, 4, 10]), CANVAS).is_err());
        let mut broken = empty(3, 2, &[1, 4, 10]);
        broken[8].data[3] = f32::NAN;
        assert!(decode(&broken, CANVAS).is_err());
    }
}

//! YuNet (2023mar): class, objectness, box and points on three strides, one anchor a cell.

use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect};

use super::{Candidate, Canvas, values};

/// Reads 12 outputs: class, objectness, box and points, each on strides 8, 16 and 32. The score
/// is class times objectness.
///
/// # Errors
/// In words, when a shape does not fit the canvas or a value is not finite.
pub fn decode(outputs: &[Tensor], canvas: Canvas) -> Result<Vec<Candidate>, String> {
    if outputs.len() != 12 {
        return Err(format!("it has {} outputs, not 12", outputs.len()));
    }
    let mut found = Vec::new();
    for level in 0..3 {
        let stride = 8_u32 << level;
        let columns = (canvas.size.width / stride) as usize;
        let cells = columns * (canvas.size.height / stride) as usize;
        let class = values(&outputs[level], cells, "class")?;
        let object = values(&outputs[3 + level], cells, "objectness")?;
        let boxes = values(&outputs[6 + level], 4 * cells, "boxes")?;
        let points = values(&outputs[9 + level], 10 * cells, "points")?;
        let stride = stride as f32;
        for cell in 0..cells {
            let score = class[cell] * object[cell];
            if score < canvas.score {
                continue;
            }
            let corner =
                Point::new((cell % columns) as f32 * stride, (cell / columns) as f32 * stride);
            let at = |v: &[f32]| Point::new(v[0] * stride + corner.x, v[1] * stride + corner.y);
            let b = &boxes[4 * cell..];
            let (centre, half_w, half_h) =
                (at(b), b[2].exp() * stride / 2.0, b[3].exp() * stride / 2.0);
            found.push(Candidate {
                rect: Rect::new(
                    centre.x - half_w,
                    centre.y - half_h,
                    centre.x + half_w,
                    centre.y + half_h,
                ),
                score,
                points: [0, 1, 2, 3, 4].map(|j| at(&points[10 * cell + 2 * j..])),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;

    const CANVAS: Canvas = Canvas { size: Size::new(64, 32), score: 0.5 };

    fn empty() -> Vec<Tensor> {
        let mut outputs = Vec::new();
        for last in [1, 1, 4, 10] {
            for cells in [32, 8, 2] {
                outputs.push(Tensor { shape: vec![1, cells, last], data: vec![0.0; cells * last] });
            }
        }
        outputs
    }

    #[test]
    fn a_cell_is_a_face_with_its_score_as_a_product() {
        let mut outputs = empty();
        // Stride 16, cell 6 of 4 x 2: column 2, row 1, corner (32, 16).
        outputs[1].data[6] = 0.75;
        outputs[4].data[6] = 0.8;
        outputs[7].data[24..28].copy_from_slice(&[0.5, -0.5, 0.0, 2.0_f32.ln()]);
        outputs[10].data[60..62].copy_from_slice(&[-1.0, 0.25]);
        let found = decode(&outputs, CANVAS).unwrap();
        assert_eq!(found.len(), 1);
        let near = |a: f32, b: f32| assert!((a - b).abs() < 1e-4, "{a} {b}");
        // Centre (40, 8), 16 wide, 32 high.
        let r = found[0].rect;
        [(r.x0, 32.0), (r.y0, -8.0), (r.x1, 48.0), (r.y1, 24.0), (found[0].score, 0.6)]
            .into_iter()
            .for_each(|(a, b)| near(a, b));
        assert_eq!(found[0].points[0], Point::new(16.0, 20.0));
        assert_eq!(found[0].points[1], Point::new(32.0, 16.0));
    }

    #[test]
    fn other_shapes_are_refused() {
        assert!(decode(&empty()[..11], CANVAS).is_err());
        let mut broken = empty();
        broken[6].data[0] = f32::NAN;
        assert!(decode(&broken, CANVAS).is_err());
        assert!(decode(&empty(), Canvas { size: Size::new(32, 32), score: 0.5 }).is_err());
    }
}

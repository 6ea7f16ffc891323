//! YOLOFace: one tensor of 20 values for each of the cells of three strides.

use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect};

use super::{Candidate, Canvas, values};

const VALUES: usize = 20;

/// Reads `[1, 20, n]`: centre, size, score, then five times x, y and visibility, in pixels.
///
/// # Errors
/// In words, when the shape does not fit the canvas or a value is not finite.
pub fn decode(outputs: &[Tensor], canvas: Canvas) -> Result<Vec<Candidate>, String> {
    let [output] = outputs else {
        return Err(format!("it has {} outputs, not 1", outputs.len()));
    };
    let cells = |stride: u32| (canvas.size.width / stride * (canvas.size.height / stride)) as usize;
    let n = cells(8) + cells(16) + cells(32);
    let all = values(output, VALUES * n, "output")?;
    let mut found = Vec::new();
    for i in 0..n {
        let at = |value: usize| all[value * n + i];
        let score = at(4);
        if score <= canvas.score {
            continue;
        }
        let (x, y, half_w, half_h) = (at(0), at(1), at(2) / 2.0, at(3) / 2.0);
        found.push(Candidate {
            rect: Rect::new(x - half_w, y - half_h, x + half_w, y + half_h),
            score,
            points: [0, 1, 2, 3, 4].map(|j| Point::new(at(5 + 3 * j), at(6 + 3 * j))),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;

    #[test]
    fn a_column_is_a_face() {
        // 64 x 64: 64 + 16 + 4 = 84 columns.
        let canvas = Canvas { size: Size::new(64, 64), score: 0.5 };
        let mut t = Tensor { shape: vec![1, 20, 84], data: vec![0.0; 20 * 84] };
        let column = [30., 20., 10., 8., 0.7, 27., 18., 0.9, 33., 18., 0.9, 30., 20.]
            .into_iter()
            .chain([0.9, 28., 23., 0.9, 32., 23., 0.9]);
        column.enumerate().for_each(|(value, v)| t.data[value * 84 + 80] = v);
        // On the threshold is below it.
        t.data[4 * 84 + 3] = 0.5;
        let found = decode(&[t.clone()], canvas).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rect, Rect::new(25.0, 16.0, 35.0, 24.0));
        assert_eq!(found[0].score, 0.7);
        let p = found[0].points.map(|p| (p.x, p.y));
        assert_eq!(p, [(27., 18.), (33., 18.), (30., 20.), (28., 23.), (32., 23.)]);
        t.data[0] = f32::NAN;
        assert!(decode(&[t], canvas).is_err());
    }

    #[test]
    fn another_number_of_columns_is_refused() {
        let canvas = Canvas { size: Size::new(64, 64), score: 0.5 };
        let t = Tensor { shape: vec![1, 20, 83], data: vec![0.0; 20 * 83] };
        assert!(decode(&[t], canvas).is_err());
        assert!(decode(&[], canvas).is_err());
    }
}

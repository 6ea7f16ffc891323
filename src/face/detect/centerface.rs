//! CenterFace: a heat map at stride 4, sizes as logarithms, landmarks in units of the box.

use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Point, Rect};

use super::{Candidate, Canvas, values};

const STRIDE: f32 = 4.0;

/// Reads heat `[1, 1, h, w]`, scale `[1, 2, ..]` (h, w), offset `[1, 2, ..]` (y, x) and landmarks
/// `[1, 10, ..]` (y, x pairs).
///
/// # Errors
/// In words, when a shape does not fit the canvas or a value is not finite.
pub fn decode(outputs: &[Tensor], canvas: Canvas) -> Result<Vec<Candidate>, String> {
    let [heat, scale, offset, landmarks] = outputs else {
        return Err(format!("it has {} outputs, not 4", outputs.len()));
    };
    let (width, height) = (canvas.size.width as usize / 4, canvas.size.height as usize / 4);
    let cells = width * height;
    let heat = values(heat, cells, "heat")?;
    let scale = values(scale, 2 * cells, "scale")?;
    let offset = values(offset, 2 * cells, "offset")?;
    let landmarks = values(landmarks, 10 * cells, "landmarks")?;
    let mut found = Vec::new();
    for (cell, &score) in heat.iter().enumerate().filter(|(_, s)| **s > canvas.score) {
        let plane = |values: &[f32], n: usize| values[n * cells + cell];
        let (high, wide) = (plane(scale, 0).exp() * STRIDE, plane(scale, 1).exp() * STRIDE);
        let (column, row) = ((cell % width) as f32, (cell / width) as f32);
        let x0 = (column + plane(offset, 1) + 0.5) * STRIDE - wide / 2.0;
        let y0 = (row + plane(offset, 0) + 0.5) * STRIDE - high / 2.0;
        let point = |j: usize| {
            let (y, x) = (plane(landmarks, 2 * j), plane(landmarks, 2 * j + 1));
            Point::new(x * wide + x0, y * high + y0)
        };
        found.push(Candidate {
            rect: Rect::new(x0, y0, x0 + wide, y0 + high),
            score,
            points: [point(0), point(1), point(2), point(3), point(4)],
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;

    fn outputs() -> Vec<Tensor> {
        // A canvas of 32 x 32: 8 x 8 cells. One face in column 3, row 2.
        let plane = |n: usize, set: &[(usize, f32)]| {
            let mut t = Tensor { shape: vec![1, n, 8, 8], data: vec![0.0; n * 64] };
            set.iter().for_each(|&(channel, v)| t.data[channel * 64 + 2 * 8 + 3] = v);
            t
        };
        let two = 2.0_f32.ln();
        vec![
            plane(1, &[(0, 0.75)]),
            plane(2, &[(0, two * 2.0), (1, two)]),
            plane(2, &[(0, 0.25), (1, -0.25)]),
            plane(10, &[(0, 0.5), (1, 0.25), (8, 1.0), (9, 0.75)]),
        ]
    }

    #[test]
    fn a_cell_becomes_the_box_and_points_that_it_spells() {
        let canvas = Canvas { size: Size::new(32, 32), score: 0.5 };
        let found = decode(&outputs(), canvas).unwrap();
        assert_eq!(found.len(), 1);
        // Width 2·4 = 8, height 4·4 = 16; centre x (3 - .25 + .5)·4 = 13, y (2 + .25 + .5)·4 = 11.
        let near = |a: f32, b: f32| assert!((a - b).abs() < 1e-4, "{a} {b}");
        let r = found[0].rect;
        [(r.x0, 9.0), (r.y0, 3.0), (r.x1, 17.0), (r.y1, 19.0), (found[0].score, 0.75)]
            .into_iter()
            .for_each(|(a, b)| near(a, b));
        // First point: x .25·8 + 9 = 11, y .5·16 + 3 = 11; last: x .75·8 + 9 = 15, y 16 + 3 = 19.
        let p = found[0].points;
        [(p[0].x, 11.0), (p[0].y, 11.0), (p[4].x, 15.0), (p[4].y, 19.0)]
            .into_iter()
            .for_each(|(a, b)| near(a, b));
    }

    #[test]
    fn a_score_on_the_threshold_is_below_it() {
        let canvas = Canvas { size: Size::new(32, 32), score: 0.75 };
        assert!(decode(&outputs(), canvas).unwrap().is_empty());
    }

    #[test]
    fn outputs_of_another_size_or_not_finite_are_refused() {
        let canvas = Canvas { size: Size::new(64, 32), score: 0.5 };
        assert!(decode(&outputs(), canvas).is_err());
        let canvas = Canvas { size: Size::new(32, 32), score: 0.5 };
        assert!(decode(&outputs()[..3], canvas).is_err());
        for output in 0..4 {
            let mut broken = outputs();
            broken[output].data[5] = f32::NAN;
            assert!(decode(&broken, canvas).is_err());
        }
    }
}

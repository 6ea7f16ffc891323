//! The mesh in space: how one fits another, where it faces the camera, how it deforms.

use std::sync::LazyLock;

use mien_pixels::geometry::Point;

use super::topology as t;

/// Points of a mesh: x right, y down, z away from the camera.
pub(crate) type Points = [[f32; 3]];

/// Each point's neighbours in the skin.
static NEIGHBOURS: LazyLock<Vec<Vec<u16>>> = LazyLock::new(|| {
    let mut out = vec![Vec::new(); t::LAYOUT.len()];
    for [a, b, c] in t::SKIN {
        for (v, w) in [(a, b), (b, c), (c, a), (b, a), (c, b), (a, c)] {
            let list: &mut Vec<u16> = &mut out[usize::from(v)];
            if !list.contains(&w) {
                list.push(w);
            }
        }
    }
    out
});

/// The mean face, its outer eye corners one unit apart.
#[must_use]
pub fn mean() -> Vec<[f32; 3]> {
    t::MEAN.iter().map(|p| p.map(|v| f32::from(v) / 1000.0)).collect()
}

/// `points` turned, scaled and moved in space so that they fit `onto` best (least squares).
/// `None` when either is flat, a point, or not finite.
pub(crate) fn fitted(points: &Points, onto: &Points) -> Option<Vec<[f32; 3]>> {
    let n = points.len().min(onto.len()) as f64;
    let mean = |p: &Points| {
        let sum = p.iter().fold([0.0f64; 3], |s, v| add(s, v.map(f64::from)));
        sum.map(|v| v / n)
    };
    let (mp, mo) = (mean(points), mean(onto));
    let mut cross = [[0.0f64; 3]; 3];
    let mut norm = 0.0;
    for (p, o) in points.iter().zip(onto) {
        let (p, o) = (sub(p.map(f64::from), mp), sub(o.map(f64::from), mo));
        norm += dot(p, p);
        for i in 0..3 {
            for j in 0..3 {
                cross[i][j] += o[i] * p[j];
            }
        }
    }
    let turn = rotation(cross)?;
    let scale = (0..3).map(|i| dot(turn[i], cross[i])).sum::<f64>() / norm;
    if !(scale.is_finite() && scale > 1e-6) {
        return None;
    }
    let place = |p: &[f32; 3]| {
        let q = sub(p.map(f64::from), mp);
        std::array::from_fn(|i| (scale * dot(turn[i], q) + mo[i]) as f32)
    };
    Some(points.iter().map(place).collect())
}

fn add(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| a[i] + b[i])
}

fn sub(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| a[i] - b[i])
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn outer(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The rotation in a matrix, by Newton's iteration for its polar part; `None` when it has none.
fn rotation(matrix: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let size = matrix.iter().flatten().map(|v| v * v).sum::<f64>().sqrt();
    if !(size.is_finite() && size > 1e-12) {
        return None;
    }
    let mut m = matrix.map(|row| row.map(|v| v / size));
    for _ in 0..60 {
        let cofactor = [outer(m[1], m[2]), outer(m[2], m[0]), outer(m[0], m[1])];
        let det = dot(m[0], cofactor[0]);
        if det.is_nan() || det <= 1e-15 {
            return None;
        }
        let next: [[f64; 3]; 3] = std::array::from_fn(|i| {
            std::array::from_fn(|j| 0.5 * (m[i][j] + cofactor[i][j] / det))
        });
        let moved: f64 = (0..9).map(|i| (next[i / 3][i % 3] - m[i / 3][i % 3]).abs()).sum();
        m = next;
        if moved < 1e-10 {
            return Some(m);
        }
    }
    None
}

/// How much each point faces the camera: 1 frontal, 0 edge-on, negative turned away.
pub(crate) fn facing(points: &Points) -> Vec<f32> {
    let mut normals = vec![[0.0f64; 3]; points.len()];
    for triangle in t::SKIN {
        let [a, b, c] = triangle.map(|i| points[usize::from(i)].map(f64::from));
        let normal = outer(sub(b, a), sub(c, a));
        for i in triangle {
            let sum = &mut normals[usize::from(i)];
            *sum = add(*sum, normal);
        }
    }
    normals.iter().map(|n| (n[2] / dot(*n, *n).sqrt().max(1e-9)) as f32).collect()
}

/// Where each point of a face goes when it takes `share` of the shape of `source` (fitted onto
/// it). With `follow` its lids and the gap of its lips stay as they are: the target's.
pub(crate) fn destination(
    target: &Points,
    source: &Points,
    share: f32,
    follow: bool,
) -> Vec<Point> {
    let mut moves: Vec<[f32; 2]> = target
        .iter()
        .zip(source)
        .map(|(t, s)| [share * (s[0] - t[0]), share * (s[1] - t[1])])
        .collect();
    if follow {
        let mut correction = vec![None; target.len()];
        for ring in [&t::EYE_LEFT, &t::EYE_RIGHT] {
            rigid(&moves, ring, &mut correction);
        }
        lips(&moves, &mut correction);
        spread(&mut moves, &correction);
    }
    target.iter().zip(&moves).map(|(p, m)| Point::new(p[0] + m[0], p[1] + m[1])).collect()
}

/// A ring that moves as a whole: what is missing from each point's own move.
fn rigid(moves: &[[f32; 2]], ring: &[u16], correction: &mut [Option<[f32; 2]>]) {
    let n = ring.len() as f32;
    let sum = ring.iter().fold([0.0f32; 2], |s, i| {
        let m = moves[usize::from(*i)];
        [s[0] + m[0], s[1] + m[1]]
    });
    for i in ring.iter().map(|i| usize::from(*i)) {
        correction[i] = Some([sum[0] / n - moves[i][0], sum[1] / n - moves[i][1]]);
    }
}

/// The inner edges of the lips move together, column by column, so that the gap stays.
fn lips(moves: &[[f32; 2]], correction: &mut [Option<[f32; 2]>]) {
    let ring = t::MOUTH_INNER;
    for k in 1..10 {
        let (up, low) = (usize::from(ring[k]), usize::from(ring[20 - k]));
        let middle: [f32; 2] = std::array::from_fn(|c| (moves[up][c] + moves[low][c]) / 2.0);
        for i in [up, low] {
            correction[i] = Some(std::array::from_fn(|c| middle[c] - moves[i][c]));
        }
    }
    for i in [ring[0], ring[10]] {
        correction[usize::from(i)] = Some([0.0; 2]);
    }
}

/// Values that fall more gently to where they are low; nothing rises.
pub(crate) fn softened(values: &[f32]) -> Vec<f32> {
    let soften = |(list, v): (&Vec<u16>, &f32)| {
        let mean = list.iter().map(|i| values[usize::from(*i)]).sum::<f32>() / list.len() as f32;
        if list.is_empty() { *v } else { v.min(0.5 * (v + mean)) }
    };
    NEIGHBOURS.iter().zip(values).map(soften).collect()
}

/// Lets corrections fade out into the skin around them.
fn spread(moves: &mut [[f32; 2]], fixed: &[Option<[f32; 2]>]) {
    let mut field: Vec<[f32; 2]> = fixed.iter().map(|f| f.unwrap_or_default()).collect();
    for _ in 0..12 {
        let before = field.clone();
        for (v, list) in NEIGHBOURS.iter().enumerate() {
            if fixed[v].is_some() || list.is_empty() {
                continue;
            }
            let n = list.len() as f32 / 0.85;
            field[v] = list.iter().fold([0.0; 2], |s, i| {
                let f = before[usize::from(*i)];
                [s[0] + f[0] / n, s[1] + f[1] / n]
            });
        }
    }
    for (m, f) in moves.iter_mut().zip(&field) {
        *m = [m[0] + f[0], m[1] + f[1]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(points: &Points, yaw: f32, scale: f32) -> Vec<[f32; 3]> {
        let (sin, cos) = yaw.sin_cos();
        points
            .iter()
            .map(|[x, y, z]| {
                [
                    scale * (x * cos + z * sin) + 100.0,
                    scale * y + 80.0,
                    scale * (z * cos - x * sin) + 7.0,
                ]
            })
            .collect()
    }

    #[test]
    fn a_face_that_is_turned_and_scaled_is_fitted_exactly() {
        let face = mean();
        for yaw in [0.0, 0.4, -1.0] {
            let there = turned(&face, yaw, 90.0);
            let fit = fitted(&face, &there).unwrap();
            for (a, b) in fit.iter().zip(&there) {
                assert!((0..3).all(|c| (a[c] - b[c]).abs() < 1e-2), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_has_no_extent_fits_nothing() {
        let face = mean();
        assert!(fitted(&vec![[1.0; 3]; 468], &face).is_none());
        assert!(fitted(&face, &vec![[1.0; 3]; 468]).is_none());
        assert!(fitted(&face, &vec![[f32::NAN; 3]; 468]).is_none());
    }

    #[test]
    fn a_frontal_face_faces_and_its_far_cheek_turns_away() {
        let face = mean();
        let front = facing(&face);
        assert!(front[50] > 0.4 && front[280] > 0.4 && front[151] > 0.7);
        let side = facing(&turned(&face, 0.9, 50.0));
        assert!((side[227] > 0.5) != (side[447] > 0.5), "{} {}", side[227], side[447]);
    }

    #[test]
    fn the_mirror_is_its_own_inverse_and_the_layout_symmetric() {
        for (i, m) in t::MIRROR.iter().enumerate() {
            let m = usize::from(*m);
            assert_eq!(usize::from(t::MIRROR[m]), i);
            assert!((t::LAYOUT[i][0] + t::LAYOUT[m][0]).abs_diff(10_000) <= 2);
            assert!(t::LAYOUT[i][1].abs_diff(t::LAYOUT[m][1]) <= 2);
        }
    }

    #[test]
    fn no_triangle_folds_in_the_layout() {
        let at = |i: u16| t::LAYOUT[usize::from(i)].map(f64::from);
        for [a, b, c] in t::SKIN.iter().chain(&t::EYES).chain(&t::MOUTH) {
            let (a, b, c) = (at(*a), at(*b), at(*c));
            let cross = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
            assert!(cross > 0.0);
        }
    }

    #[test]
    fn lids_and_the_gap_of_the_lips_stay_the_targets() {
        let target = turned(&mean(), 0.1, 100.0);
        let mut source = target.clone();
        // Eyes wide open, mouth open, chin lower.
        for i in [159, 386] {
            source[i][1] -= 9.0;
        }
        for i in [14, 17, 152] {
            source[i][1] += 20.0;
        }
        let there = destination(&target, &source, 0.5, true);
        let gap = |a: usize, b: usize| (there[a].y - there[b].y) - (target[a][1] - target[b][1]);
        assert!(gap(145, 159).abs() < 0.01 && gap(374, 386).abs() < 0.01);
        assert!(gap(14, 13).abs() < 0.01, "{}", gap(14, 13));
        assert!((there[152].y - target[152][1]) > 5.0);
    }
}

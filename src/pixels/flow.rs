//! How a patch moved from one frame to the next, to a fraction of a pixel.

/// A movement about the patch's middle: pixels, logarithm of the growth, radians clockwise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shift {
    pub x: f32,
    pub y: f32,
    pub grown: f32,
    pub turned: f32,
}

/// Rounds of Gauss-Newton.
const ROUNDS: usize = 10;
/// Movement in pixels below which a round is the last.
const SETTLED: f32 = 0.003;
/// Radius of what is compared, as a share of the side; the rest is room to move.
const RADIUS: f32 = 0.34;
/// Least correlation of what is compared.
const ALIKE: f32 = 0.85;

/// How `before` moved to become `now`; both are `side` squared values. `guess` is where the search
/// begins. `None` where the two are not alike, or have no structure to hold on to.
///
/// # Panics
/// When there are not as many values.
#[must_use]
pub fn shift(before: &[f32], now: &[f32], side: usize, guess: Shift) -> Option<Shift> {
    assert!(before.len() == side * side && now.len() == side * side, "side squared values");
    let (middle, radius) = ((side as f32 - 1.0) / 2.0, RADIUS * side as f32);
    let inner = |v: usize| (v as f32 - middle).abs() < radius && v > 0 && v + 1 < side;
    let points = || {
        (0..side)
            .filter(move |y| inner(*y))
            .flat_map(move |y| (0..side).filter(move |x| inner(*x)).map(move |x| (x, y)))
    };
    // What each of the four numbers changes at each point, and how they go together.
    let slopes = |x: usize, y: usize| {
        let at = y * side + x;
        let gx = (before[at + 1] - before[at - 1]) / 2.0;
        let gy = (before[at + side] - before[at - side]) / 2.0;
        let (u, v) = (x as f32 - middle, y as f32 - middle);
        [gx, gy, gx * u + gy * v, gy * u - gx * v].map(f64::from)
    };
    let count = points().count() as f64;
    let mean = points().map(|(x, y)| f64::from(before[y * side + x])).sum::<f64>() / count;
    let mut normal = [[0.0f64; 4]; 4];
    for (x, y) in points() {
        let s = slopes(x, y);
        for i in 0..4 {
            for j in 0..4 {
                normal[i][j] += s[i] * s[j];
            }
        }
    }
    let mut p = [guess.x, guess.y, guess.grown, guess.turned].map(f64::from);
    let mut alike = 0.0;
    for _ in 0..ROUNDS {
        let (sin, cos) = p[3].sin_cos();
        let scale = p[2].exp();
        let moved = |x: usize, y: usize| {
            let (u, v) = (x as f64 - f64::from(middle), y as f64 - f64::from(middle));
            let (u, v) = (scale * (cos * u - sin * v) + p[0], scale * (sin * u + cos * v) + p[1]);
            sample(now, side, u + f64::from(middle), v + f64::from(middle))
        };
        let there = points().map(|(x, y)| moved(x, y)).sum::<f64>() / count;
        let (mut right, mut ab, mut aa, mut bb) = ([0.0f64; 4], 0.0, 0.0, 0.0);
        for (x, y) in points() {
            let (a, b) = (f64::from(before[y * side + x]) - mean, moved(x, y) - there);
            let s = slopes(x, y);
            (0..4).for_each(|i| right[i] += s[i] * (b - a));
            (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
        }
        alike = ab / (aa * bb).sqrt();
        let step = solve(normal, right)?;
        // The step is one of `before`; undone, it is one of `now`.
        let (dx, dy) =
            (scale * (cos * step[0] - sin * step[1]), scale * (sin * step[0] + cos * step[1]));
        p = [p[0] - dx, p[1] - dy, p[2] - step[2], p[3] - step[3]];
        let reach = f64::from(radius);
        let size = dx.abs().max(dy.abs()).max(step[2].abs() * reach).max(step[3].abs() * reach);
        if !size.is_finite() || size > reach {
            return None;
        }
        if size < f64::from(SETTLED) {
            break;
        }
    }
    let fine = alike > f64::from(ALIKE) && p.iter().all(|v| v.is_finite());
    let [x, y, grown, turned] = p.map(|v| v as f32);
    fine.then_some(Shift { x, y, grown, turned })
}

/// Bilinear, border repeated.
fn sample(values: &[f32], side: usize, x: f64, y: f64) -> f64 {
    let most = (side - 1) as f64;
    let (x, y) = (x.clamp(0.0, most), y.clamp(0.0, most));
    let (x0, y0) = (x as usize, y as usize);
    let (x1, y1) = ((x0 + 1).min(side - 1), (y0 + 1).min(side - 1));
    let (fx, fy) = (x - x0 as f64, y - y0 as f64);
    let at = |x: usize, y: usize| f64::from(values[y * side + x]);
    (at(x0, y0) * (1.0 - fx) + at(x1, y0) * fx) * (1.0 - fy)
        + (at(x0, y1) * (1.0 - fx) + at(x1, y1) * fx) * fy
}

/// Four equations by elimination; `None` when they say too little.
fn solve(mut a: [[f64; 4]; 4], mut b: [f64; 4]) -> Option<[f64; 4]> {
    for i in 0..4 {
        let pivot = (i..4).max_by(|&r, &s| a[r][i].abs().total_cmp(&a[s][i].abs()))?;
        a.swap(i, pivot);
        b.swap(i, pivot);
        if a[i][i].is_nan() || a[i][i].abs() < 1e-6 {
            return None;
        }
        for r in i + 1..4 {
            let f = a[r][i] / a[i][i];
            let upper = a[i];
            a[r].iter_mut().zip(upper).for_each(|(v, u)| *v -= f * u);
            b[r] -= f * b[i];
        }
    }
    for i in (0..4).rev() {
        for c in i + 1..4 {
            b[i] -= a[i][c] * b[c];
        }
        b[i] /= a[i][i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 64;

    /// A patch of soft structure, seen where it has moved.
    fn patch(moved: Shift) -> Vec<f32> {
        let (sin, cos) = moved.turned.sin_cos();
        let scale = moved.grown.exp();
        let middle = (SIDE as f32 - 1.0) / 2.0;
        (0..SIDE * SIDE)
            .map(|i| {
                let (u, v) =
                    ((i % SIDE) as f32 - middle - moved.x, (i / SIDE) as f32 - middle - moved.y);
                let (x, y) = ((cos * u + sin * v) / scale, (cos * v - sin * u) / scale);
                120.0
                    + 40.0 * (x * 0.31).sin() * (y * 0.23).cos()
                    + 30.0 * (x * 0.11 + y * 0.17).sin()
                    + 20.0 * (0.4 * y - 0.2 * x).cos()
            })
            .collect()
    }

    #[test]
    fn a_movement_is_found_to_a_twentieth_of_a_pixel() {
        for (x, y, grown, turned) in [
            (0.0, 0.0, 0.0, 0.0),
            (0.4, -0.7, 0.0, 0.0),
            (2.5, 1.5, 0.01, -0.02),
            (-1.0, 2.0, -0.03, 0.03),
        ] {
            let truth = Shift { x, y, grown, turned };
            let found = shift(&patch(Shift::default()), &patch(truth), SIDE, Shift::default());
            let found = found.unwrap();
            assert!(
                (found.x - x).abs() < 0.05 && (found.y - y).abs() < 0.05,
                "{found:?} {truth:?}"
            );
            let small = (found.grown - grown).abs().max((found.turned - turned).abs());
            assert!(small < 0.003, "{found:?} {truth:?}");
        }
    }

    #[test]
    fn a_guess_leads_to_what_is_further_away() {
        let truth = Shift { x: 7.0, y: -6.0, ..Shift::default() };
        let guess = Shift { x: 5.0, y: -5.0, ..Shift::default() };
        let found = shift(&patch(Shift::default()), &patch(truth), SIDE, guess).unwrap();
        assert!((found.x - 7.0).abs() < 0.05 && (found.y + 6.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn light_that_changes_is_no_movement() {
        let darker: Vec<f32> =
            patch(Shift { x: 1.0, ..Shift::default() }).iter().map(|v| v - 30.0).collect();
        let found = shift(&patch(Shift::default()), &darker, SIDE, Shift::default()).unwrap();
        assert!((found.x - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn what_has_no_structure_or_is_another_did_not_move() {
        let plain = vec![90.0; SIDE * SIDE];
        assert_eq!(shift(&plain, &plain, SIDE, Shift::default()), None);
        let other: Vec<f32> = (0..SIDE * SIDE).map(|i| ((i * 7919) % 251) as f32).collect();
        assert_eq!(shift(&patch(Shift::default()), &other, SIDE, Shift::default()), None);
        let bad = vec![f32::NAN; SIDE * SIDE];
        assert_eq!(shift(&bad, &bad, SIDE, Shift::default()), None);
    }
}

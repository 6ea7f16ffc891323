//! Values of a mask along a row, before they are bytes.

/// An ellipse that became the unit circle: u = a·x + b·y + c, v = d·x + e·y + f.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Oval {
    pub(crate) across: [f32; 3],
    pub(crate) down: [f32; 3],
    pub(crate) feather: f32,
}

/// 0 at 0, 1 at 1, flat at both.
#[inline(always)]
pub(crate) fn smooth(t: f32) -> f32 {
    let t = t.clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

each_level! {
    /// Levels from pixel `first` of line `y` on: 255 inside, 0 on the outline and outside.
    pub(crate) fn oval(oval: Oval, first: u32, y: f32, out: &mut [f32]) {
        let ([a, b, c], [d, e, f]) = (oval.across, oval.down);
        for (i, value) in out.iter_mut().enumerate() {
            let x = (first as i32 + i as i32) as f32;
            let (u, v) = (a * x + b * y + c, d * x + e * y + f);
            let radius = (u * u + v * v).sqrt();
            // Distance to the outline: what is left of the radius over the gradient's length.
            let (gx, gy) = (u * a + v * d, u * b + v * e);
            let gradient = (gx * gx + gy * gy).sqrt() / radius.max(1e-6);
            let inside = smooth((1.0 - radius) / (gradient * oval.feather).max(1e-9));
            *value = if radius < 1.0 { inside * 255.0 } else { 0.0 };
        }
    }
}

/// A box mask in the coordinates of its crop: u = a·x + b·y + c, v = d·x + e·y + f.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Framed {
    pub(crate) across: [f32; 3],
    pub(crate) down: [f32; 3],
    pub(crate) side: f32,
    /// What is cut off at the top, right, bottom and left.
    pub(crate) cut: [f32; 4],
    pub(crate) slope: Slope,
}

/// How a box mask rises from its edge inwards: a Gaussian's integral, led to 0 at the edge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slope {
    /// Depth of half its height.
    pub(crate) edge: f32,
    /// Its deviation times the root of two.
    pub(crate) wide: f32,
    /// What the integral leaves at `BEGIN`.
    pub(crate) rest: f32,
}

/// Depth at which a slope begins.
const BEGIN: f32 = 0.5;

impl Slope {
    /// With an edge at this depth, so wide.
    pub(crate) fn new(edge: f32, wide: f32) -> Self {
        Self { edge, wide, rest: 0.5 * (1.0 + erf((BEGIN - edge) / wide)) }
    }

    /// 0..=1; `depth` counts from the edge.
    #[inline(always)]
    fn at(&self, depth: f32) -> f32 {
        let blurred = 0.5 * (1.0 + erf((depth - self.edge) / self.wide));
        // What a Gaussian leaves at the edge is taken away, fading inwards.
        let left = self.rest * (1.0 - smooth((depth - BEGIN) / (2.0 * self.edge)));
        if depth > BEGIN { (blurred - left).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Error function, within 5e-4 (Abramowitz and Stegun 7.1.27).
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = x.abs();
    let p = 1.0 + t * (0.278_393 + t * (0.230_389 + t * (0.000_972 + t * 0.078_108)));
    let square = p * p;
    let y = 1.0 - 1.0 / (square * square);
    if x < 0.0 { -y } else { y }
}

each_level! {
    /// Levels from pixel `first` of line `y` on.
    pub(crate) fn framed(framed: Framed, first: u32, y: f32, out: &mut [f32]) {
        let ([a, b, c], [d, e, f], slope) = (framed.across, framed.down, framed.slope);
        let [top, right, bottom, left] = framed.cut;
        for (i, value) in out.iter_mut().enumerate() {
            let x = (first as i32 + i as i32) as f32;
            let (u, v) = (a * x + b * y + c + 0.5, d * x + e * y + f + 0.5);
            let across = slope.at(u - left) * slope.at(framed.side - u - right);
            let down = slope.at(v - top) * slope.at(framed.side - v - bottom);
            *value = across * down * 255.0;
        }
    }
}

each_level! {
    /// Reads between the cells of a line, four values each: pixel x of `out` takes the shares
    /// `columns[x].2` of the second cell and the rest of the first. Three values a pixel, and room
    /// for one more behind the last.
    pub(crate) fn between(line: &[[f32; 4]], columns: &[(u32, u32, f32)], out: &mut [f32]) {
        for (x, (first, second, share)) in columns.iter().enumerate() {
            let (a, b) = (&line[*first as usize], &line[*second as usize]);
            let to: &mut [f32; 4] = (&mut out[3 * x..3 * x + 4]).try_into().expect("4 values");
            for c in 0..4 {
                to[c] = a[c] * (1.0 - share) + b[c] * share;
            }
        }
    }
}

each_level! {
    /// Adds a row of bytes to the column sums.
    pub(crate) fn gather(row: &[u8], sums: &mut [u32]) {
        for (sum, v) in sums.iter_mut().zip(row) {
            *sum += u32::from(*v);
        }
    }
}

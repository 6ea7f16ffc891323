//! Shapes of tensors, and what each step makes of them.

use mien_base::limits::TENSOR_VALUES;

use crate::graph::{change_axes, resolve};
use crate::ops::{Op, Sizes, Source};
use crate::simd::dense::{Border, Dense, Window};

pub(crate) type Shape = Vec<usize>;
type Attempt<T> = std::result::Result<T, String>;

/// Batch, channels, rows and columns: of a tensor of four axes, or of two.
pub(crate) fn four(shape: &[usize]) -> Option<[usize; 4]> {
    match *shape {
        [n, c, h, w] => Some([n, c, h, w]),
        [n, c] => Some([n, c, 1, 1]),
        _ => None,
    }
}

/// The same, or why not.
pub(crate) fn image(shape: &[usize]) -> Attempt<[usize; 4]> {
    four(shape).ok_or_else(|| format!("the shape {shape:?} where rows and columns are needed"))
}

/// The number of values, which is bounded.
pub(crate) fn values(shape: &[usize]) -> Attempt<usize> {
    let product = shape.iter().try_fold(1_usize, |p, &d| p.checked_mul(d));
    product
        .filter(|&n| n <= TENSOR_VALUES && n > 0)
        .ok_or_else(|| format!("a tensor of the shape {shape:?}"))
}

fn windowed(window: &Window, size: (usize, usize)) -> Attempt<(usize, usize)> {
    window.output(size).ok_or_else(|| "a window that is larger than its input".into())
}

fn dense(dense: &Dense, from: Source, shape: &[usize]) -> Attempt<Shape> {
    let [n, c, h, w] = match from {
        Source::Interleaved => {
            let [n, h, w, c] = image(shape)?;
            [n, c, h, w]
        }
        _ => image(shape)?,
    };
    let taps = dense.window.kernel.0 * dense.window.kernel.1;
    if dense.filter.weights.len() != dense.filter.bias.len() * c * taps {
        return Err(format!("{c} channels where another number is needed"));
    }
    let fits = |pad: usize, size: usize| dense.border != Border::Reflect || pad < size;
    let [top, left, bottom, right] = dense.window.pads;
    if ![(top, h), (bottom, h), (left, w), (right, w)].iter().all(|&(p, s)| fits(p, s)) {
        return Err("a reflection that is wider than its input".into());
    }
    let (h, w) = windowed(&dense.window, (h, w))?;
    Ok(if shape.len() == 2 && (h, w) == (1, 1) {
        vec![n, dense.filter.outputs]
    } else {
        vec![n, dense.filter.outputs, h, w]
    })
}

/// A place on an axis, counted from the end where it is negative.
pub(crate) fn axis(axis: i64, rank: usize) -> Attempt<usize> {
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    let place = usize::try_from(from_start).ok().filter(|a| *a < rank);
    place.ok_or_else(|| format!("axis {axis} of {rank}"))
}

/// Where a slice begins, and how long it is.
pub(crate) fn slice(start: i64, end: i64, size: usize) -> (usize, usize) {
    let place = |v: i64| {
        let size = size as i64;
        (if v < 0 { v.saturating_add(size) } else { v }).clamp(0, size) as usize
    };
    (place(start), place(end).saturating_sub(place(start)))
}

/// How much larger the output of a `Resize` is.
pub(crate) fn scales(sizes: &Sizes, (h, w): (usize, usize)) -> (f32, f32) {
    match *sizes {
        Sizes::Scales(y, x) => (y, x),
        Sizes::Given(oh, ow) => (oh as f32 / h as f32, ow as f32 / w as f32),
    }
}

/// The shape that a step makes of its first inputs.
pub(crate) fn output(op: &Op, inputs: &[&[usize]]) -> Attempt<Shape> {
    let x = *inputs.first().ok_or("no input")?;
    let made = match op {
        Op::Dense(of, from) => dense(of, *from, x)?,
        Op::Chain(chain, from) => {
            let wide = match &chain.widen {
                Some(widen) => dense(widen, *from, x)?,
                None => x.to_vec(),
            };
            let [n, c, h, w] = image(&wide)?;
            if c != chain.channels {
                return Err(format!("{c} channels where {} are needed", chain.channels));
            }
            let (h, w) = windowed(&chain.depthwise.window, (h, w))?;
            vec![n, chain.narrow.filter.outputs, h, w]
        }
        Op::Depthwise(depthwise) => {
            let [n, c, h, w] = image(x)?;
            if c != depthwise.filter.outputs {
                return Err(format!("{c} channels where another number is needed"));
            }
            let (h, w) = windowed(&depthwise.window, (h, w))?;
            vec![n, c, h, w]
        }
        Op::Spread(places, window) => {
            let [n, c, h, w] = image(x)?;
            let filter = &places.first().ok_or("no window")?.filter;
            if filter.weights.len() != filter.bias.len() * c {
                return Err(format!("{c} channels where another number is needed"));
            }
            vec![n, filter.outputs, h * window.kernel.0, w * window.kernel.1]
        }
        Op::Pool(_, window) => {
            let [n, c, h, w] = image(x)?;
            let [top, left, bottom, right] = window.pads;
            let (kh, kw) = window.kernel;
            if window.dilation != (1, 1) || top.max(bottom) >= kh || left.max(right) >= kw {
                return Err("a window that may lie outside".into());
            }
            let (h, w) = windowed(window, (h, w))?;
            vec![n, c, h, w]
        }
        Op::Mean => {
            let [n, c, ..] = image(x)?;
            vec![n, c, 1, 1]
        }
        Op::Map(_) | Op::Normalise(_) | Op::Softmax(_) => x.to_vec(),
        Op::Scale(by, plus) => {
            let longest = by.len().max(plus.len());
            if longest > 1
                && [by, plus].iter().any(|v| v.len() > 1 && v.len() != image(x).map_or(0, |s| s[1]))
            {
                return Err("a factor of another number than channels".into());
            }
            x.to_vec()
        }
        Op::Pair(_) => {
            let y = *inputs.get(1).ok_or("one input")?;
            let channel = |a: &[usize], b: &[usize]| {
                a.len() == 4 && b.len() == 4 && a[..2] == b[..2] && b[2..] == [1, 1]
            };
            if x == y || channel(x, y) {
                x.to_vec()
            } else if channel(y, x) {
                y.to_vec()
            } else {
                return Err(format!("the shapes {x:?} and {y:?}"));
            }
        }
        Op::Resize(sizes, _) => {
            let [n, c, h, w] = image(x)?;
            let (h, w) = match *sizes {
                Sizes::Scales(y, x) => ((h as f32 * y) as usize, (w as f32 * x) as usize),
                Sizes::Given(h, w) => (h, w),
            };
            vec![n, c, h, w]
        }
        Op::Pad(pads, more, border) => {
            let [n, c, h, w] = image(x)?;
            let [top, left, bottom, right] = *pads;
            if *border == Border::Reflect && (top.max(bottom) >= h || left.max(right) >= w) {
                return Err("a reflection that is wider than its input".into());
            }
            vec![n, c + more, h + top + bottom, w + left + right]
        }
        Op::Concat(along) => {
            let along = axis(*along, x.len())?;
            let mut shape = x.to_vec();
            for other in &inputs[1..] {
                let same = other.len() == x.len()
                    && other.iter().zip(x).enumerate().all(|(i, (a, b))| i == along || a == b);
                if !same {
                    return Err(format!("the shapes {x:?} and {other:?}"));
                }
                shape[along] += other[along];
            }
            shape
        }
        Op::Slice { axis: along, start, end } => {
            let along = axis(*along, x.len())?;
            let mut shape = x.to_vec();
            shape[along] = slice(*start, *end, x[along]).1;
            shape
        }
        Op::Reshape(wanted) => resolve(wanted, x).ok_or("a shape of another size")?,
        Op::Flatten(at) => {
            let at = if *at == x.len() as i64 { x.len() } else { axis(*at, x.len())? };
            vec![x[..at].iter().product(), x[at..].iter().product()]
        }
        Op::Axes(name, axes) => change_axes(name, x, Some(axes)).ok_or("axes that do not fit")?,
        Op::Transpose(perm) => {
            let mut seen = perm.clone();
            seen.sort_unstable();
            if perm.len() != x.len() || x.len() > 4 || !seen.iter().copied().eq(0..x.len()) {
                return Err("an order of other axes".into());
            }
            perm.iter().map(|&p| x[p]).collect()
        }
        Op::Loose(_) => return Err("weights that are not packed".into()),
    };
    values(&made)?;
    Ok(made)
}

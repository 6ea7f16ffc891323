//! Convolutions, products with matrices, and what joins them: factors, sums, normalisation.

use super::{Attempt, Lowering, per_channel, window};
use crate::graph::{Node, Value};
use crate::ops::{Loose, LooseAct, Op, Pair, Step};
use crate::simd::dense::{Border, Window};
use crate::simd::depthwise::KERNEL;

impl Lowering<'_, '_> {
    pub(super) fn convolution(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let transposed = node.operator == "ConvTranspose";
        let mut x = self.value(node, 0)?;
        let weights = self.constant(node, 1).ok_or("weights that are not constant")?;
        let [first, second, rows, columns] = weights.shape[..] else {
            return Err("it is not over rows and columns".into());
        };
        let groups = usize::try_from(node.integer("group", 1)).map_err(|e| e.to_string())?;
        let mut window = window(node, [rows, columns])?;
        if node.integers("kernel_shape").is_some_and(|k| k != [rows as i64, columns as i64]) {
            return Err("weights of another shape than the window".into());
        }
        let (inputs, outputs) = if transposed { (first, second) } else { (second, first) };
        if transposed {
            let plain = groups == 1 && window.stride == window.kernel && window.dilation == (1, 1);
            let given =
                ["output_padding", "output_shape"].iter().any(|n| node.integers(n).is_some());
            if !plain || given || window.pads != [0; 4] {
                return Err("windows that meet".into());
            }
        } else if groups != 1 && (inputs != 1 || outputs != groups) {
            return Err(format!("{groups} groups"));
        } else if groups > 1 && window.kernel.0.max(window.kernel.1) > KERNEL {
            return Err("a window that is too large".into());
        }
        let mut weights = weights.as_floats().ok_or("weights of another type")?;
        let mut bias = match node.input(2) {
            Some(_) => self.floats(node, 2)?,
            None => vec![0.0; outputs],
        };
        if bias.len() != outputs || weights.is_empty() {
            return Err("weights without values".into());
        }
        let mut border = Border::Zero;
        if let Some(Step { op: Op::Pad(pads, 0, around), inputs, .. }) = self.maker(x) {
            let (zero, bare) = (*around == Border::Zero, window.pads == [0; 4]);
            if !transposed && (zero || bare && groups == 1) {
                window.pads.iter_mut().zip(pads).for_each(|(p, more)| *p += more);
                border = *around;
                x = inputs[0];
            }
        }
        let taps = rows * columns;
        if let Some(Step { op: Op::Scale(scale, shift), inputs: from, .. }) = self.maker(x)
            && window.pads == [0; 4]
            && groups == 1
            && !transposed
        {
            let of = |values: &[f32], i: usize| values[if values.len() == 1 { 0 } else { i }];
            for (at, weight) in weights.iter_mut().enumerate() {
                let (output, input) = (at / (inputs * taps), at / taps % inputs);
                bias[output] += *weight * of(shift, input);
                *weight *= of(scale, input);
            }
            x = from[0];
        }
        let act = LooseAct::None;
        let after = false;
        let flat = false;
        let loose =
            Loose { weights, bias, inputs, groups, window, border, act, after, transposed, flat };
        self.push(Op::Loose(Box::new(loose)), vec![x], out);
        Ok(())
    }

    pub(super) fn batch_norm(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let x = self.value(node, 0)?;
        let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|i| self.floats(node, i));
        let (mut scale, mut shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let epsilon = node.float("epsilon", 1e-5);
        if [&shift, &mean, &variance].iter().any(|v| v.len() != scale.len()) {
            return Err("parameters of different lengths".into());
        }
        for (i, scale) in scale.iter_mut().enumerate() {
            *scale /= (variance[i] + epsilon).sqrt();
            shift[i] -= mean[i] * *scale;
        }
        self.scale(x, out, scale, shift)
    }

    /// x * scale + shift, into the convolution before where there is one.
    pub(super) fn scale(
        &mut self,
        x: Value,
        out: Value,
        scale: Vec<f32>,
        shift: Vec<f32>,
    ) -> Attempt<()> {
        if let Some(loose) = self.own_convolution(x)
            && loose.act == LooseAct::None
            && !loose.after
        {
            let outputs = loose.outputs();
            if [&scale, &shift].iter().any(|v| v.len() != 1 && v.len() != outputs) {
                return Err("parameters of another number than channels".into());
            }
            let of = |values: &[f32], i: usize| values[if values.len() == 1 { 0 } else { i }];
            let taps = loose.window.kernel.0 * loose.window.kernel.1;
            let each = loose.inputs * taps;
            let part = if loose.transposed { taps } else { each };
            for (i, part) in loose.weights.chunks_mut(part.max(1)).enumerate() {
                let by = of(&scale, i % outputs);
                part.iter_mut().for_each(|weight| *weight *= by);
            }
            for (i, bias) in loose.bias.iter_mut().enumerate() {
                *bias = *bias * of(&scale, i) + of(&shift, i);
            }
            self.rename(x, out);
            return Ok(());
        }
        self.push(Op::Scale(scale, shift), vec![x], out);
        Ok(())
    }

    /// A product with a constant matrix is a convolution of one pixel.
    pub(super) fn matrix(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let x = self.value(node, 0)?;
        let matrix = self.constant(node, 1).ok_or("a matrix that is not constant")?;
        let [rows, columns] = matrix.shape[..] else { return Err("a matrix of more axes".into()) };
        let values = matrix.as_floats().ok_or("a matrix of another type")?;
        let plain = node.float("alpha", 1.0) == 1.0
            && node.float("beta", 1.0) == 1.0
            && node.integer("transA", 0) == 0;
        if !plain || values.is_empty() {
            return Err("factors or a transposed input".into());
        }
        let (inputs, outputs, weights) = if node.integer("transB", 0) != 0 {
            (columns, rows, values)
        } else {
            let at = |i: usize| values[i % rows * columns + i / rows];
            (rows, columns, (0..values.len()).map(at).collect())
        };
        let bias = match node.input(2) {
            Some(_) => self.floats(node, 2)?,
            None => vec![0.0],
        };
        let bias = match bias.len() {
            1 => vec![bias[0]; outputs],
            n if n == outputs => bias,
            _ => return Err("a sum of another shape".into()),
        };
        let loose = Loose {
            weights,
            bias,
            inputs,
            groups: 1,
            window: Window::POINT,
            border: Border::Zero,
            act: LooseAct::None,
            after: false,
            transposed: false,
            flat: true,
        };
        self.push(Op::Loose(Box::new(loose)), vec![x], out);
        Ok(())
    }

    /// True for the product with a matrix.
    fn is_flat(&self, value: Value) -> bool {
        let maker = self.maker(value);
        matches!(maker, Some(Step { op: Op::Loose(loose), .. }) if loose.flat)
    }

    pub(super) fn pair(&mut self, node: &Node<'_>, out: Value, pair: Pair) -> Attempt<()> {
        match (self.constant(node, 0), self.constant(node, 1)) {
            (None, None) => {}
            (None, Some(constant)) => {
                let x = self.value(node, 0)?;
                let by = per_channel(constant, self.is_flat(x))?;
                let (scale, shift) = match pair {
                    Pair::Add => (vec![1.0], by),
                    Pair::Subtract => (vec![1.0], by.iter().map(|v| -v).collect()),
                    Pair::Multiply => (by, vec![0.0]),
                    Pair::Divide => (by.iter().map(|v| 1.0 / v).collect(), vec![0.0]),
                };
                return self.scale(x, out, scale, shift);
            }
            (Some(constant), None) => {
                let x = self.value(node, 1)?;
                let by = per_channel(constant, self.is_flat(x))?;
                let (scale, shift) = match pair {
                    Pair::Add => (vec![1.0], by),
                    Pair::Subtract => (vec![-1.0], by),
                    Pair::Multiply => (by, vec![0.0]),
                    Pair::Divide => return Err("a quotient of a constant".into()),
                };
                return self.scale(x, out, scale, shift);
            }
            (Some(_), Some(_)) => return Err("two constants".into()),
        }
        let (a, b) = (self.value(node, 0)?, self.value(node, 1)?);
        if pair == Pair::Add && a != b && self.join(a, b, out) {
            return Ok(());
        }
        self.push(Op::Pair(pair), vec![a, b], out);
        Ok(())
    }

    /// Adds one value to the convolution that makes the other, which then runs here.
    fn join(&mut self, a: Value, b: Value, out: Value) -> bool {
        let place = |l: &Self, v: Value| l.makers.get(&v).copied().unwrap_or(0);
        let (later, earlier) = if place(self, b) > place(self, a) { (b, a) } else { (a, b) };
        for (to, from) in [(later, earlier), (earlier, later)] {
            let Some(at) = self.makers.get(&to).copied() else { continue };
            if self.steps[at].as_ref().is_none_or(|s| s.inputs.len() != 1) {
                continue;
            }
            let Some(loose) = self.own_convolution(to) else { continue };
            loose.after = loose.act != LooseAct::None;
            let from = match self.maker(from) {
                Some(Step { op: Op::Pad([0, 0, 0, 0], _, Border::Zero), inputs, .. }) => inputs[0],
                _ => from,
            };
            if let Some(mut step) = self.steps[at].take() {
                step.inputs.push(from);
                self.makers.remove(&to);
                self.push(step.op, step.inputs, out);
                return true;
            }
        }
        false
    }
}

//! Patterns of operators that are one operator here.

use crate::constant::{Constant, Data};
use crate::graph::{Attribute, Graph, Node, Value};

impl<'a> Graph<'a> {
    /// Gives known patterns their names.
    pub(crate) fn name_patterns(&mut self) {
        self.name_prelu();
        self.name_normalise();
        self.drop_unused();
    }

    /// relu(x) + k (x - |x|) is PReLU with the slope 2 k.
    fn name_prelu(&mut self) {
        let makers = self.makers();
        let uses = self.uses();
        let made_by = |value: Option<Value>, operator: &str| {
            let node = &self.nodes[*makers.get(&value?)?];
            (node.operator == operator).then_some(node)
        };
        let once = |node: &Node<'_>| uses[node.outputs[0]] == 1;
        let either =
            |node: &Node<'a>| [(0, 1), (1, 0)].map(|(a, b)| (node.input(a), node.input(b)));
        let mut found = Vec::new();
        for (at, add) in self.nodes.iter().enumerate().filter(|(_, n)| n.operator == "Add") {
            let pattern = either(add).into_iter().find_map(|(relu, scaled)| {
                let relu = made_by(relu, "Relu").filter(|n| once(n))?;
                let scaled = made_by(scaled, "Mul").filter(|n| once(n))?;
                let x = relu.input(0)?;
                let (k, _) = either(scaled).into_iter().find(|&(k, difference)| {
                    let is = || {
                        self.constants.get(&k?)?;
                        let difference = made_by(difference, "Sub").filter(|n| once(n))?;
                        let size = made_by(difference.input(1), "Abs").filter(|n| once(n))?;
                        (difference.input(0)? == x && size.input(0)? == x).then_some(())
                    };
                    is().is_some()
                })?;
                let k = self.constants.get(&k?)?;
                let slope = k.floats()?.iter().map(|k| 2.0 * k).collect();
                Some((x, Constant { shape: k.shape.clone(), data: Data::Floats(slope) }))
            });
            found.extend(pattern.map(|(x, slope)| (at, x, slope)));
        }
        for (at, x, slope) in found {
            let value = self.fresh();
            self.constants.insert(value, slope);
            self.nodes[at].operator = "PRelu";
            self.nodes[at].inputs = vec![Some(x), Some(value)];
            self.nodes[at].attributes.clear();
        }
    }

    /// (x - mean(x)) / sqrt(mean((x - mean(x))^2) + e) over rows and columns is one operator,
    /// which is called `Normalise` here.
    fn name_normalise(&mut self) {
        let makers = self.makers();
        let made_by = |value: Option<Value>, operator: &str| {
            let node = &self.nodes[*makers.get(&value?)?];
            (node.operator == operator).then_some(node)
        };
        let over_plane = |node: &Node<'_>| {
            let given = node.input(1).and_then(|v| self.constants.get(&v)?.integers());
            let axes = node.integers("axes").map(<[i64]>::to_vec).or(given);
            let plane = axes.is_some_and(|a| a == [2, 3] || a == [-2, -1]);
            (plane && node.integer("keepdims", 1) == 1).then_some(())
        };
        let mut found = Vec::new();
        for (at, div) in self.nodes.iter().enumerate().filter(|(_, n)| n.operator == "Div") {
            let pattern = || {
                let difference = made_by(div.input(0), "Sub")?;
                let x = difference.input(0)?;
                let mean = made_by(difference.input(1), "ReduceMean")?;
                over_plane(mean).filter(|()| mean.input(0) == Some(x))?;
                let sum = made_by(made_by(div.input(1), "Sqrt")?.input(0), "Add")?;
                let (variance, epsilon) = [(0, 1), (1, 0)].iter().find_map(|&(a, b)| {
                    let epsilon = self.constants.get(&sum.input(b)?)?.scalar()?;
                    Some((made_by(sum.input(a), "ReduceMean")?, epsilon))
                })?;
                over_plane(variance)?;
                let square = made_by(variance.input(0), "Mul")?;
                let both = Some(difference.outputs[0]);
                (square.input(0) == both && square.input(1) == both).then_some((x, epsilon))
            };
            found.extend(pattern().map(|(x, epsilon)| (at, x, epsilon)));
        }
        for (at, x, epsilon) in found {
            let node = &mut self.nodes[at];
            node.operator = "Normalise";
            node.inputs = vec![Some(x)];
            node.attributes = vec![("epsilon", Attribute::Float(epsilon))];
        }
    }
}

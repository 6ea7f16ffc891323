//! What a model slot demands of a model: inputs and outputs by name, shape and range.

/// One dimension: fixed, or any number that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    Fixed(usize),
    Any,
}

impl Dim {
    /// True unless both are fixed and differ.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Fixed(a), Self::Fixed(b)) => a == b,
            _ => true,
        }
    }
}

/// One input or output. Names may differ between exports: an empty name matches by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    /// Empty: not checked at load (only the values are).
    pub shape: Vec<Dim>,
}

impl Port {
    /// A port with a name; a shape dimension of 0 is `Any`.
    #[must_use]
    pub fn named(name: &str, shape: &[usize]) -> Self {
        let dim = |&d: &usize| if d == 0 { Dim::Any } else { Dim::Fixed(d) };
        Self { name: name.to_owned(), shape: shape.iter().map(dim).collect() }
    }

    /// A port that matches by its position; a shape dimension of 0 is `Any`.
    #[must_use]
    pub fn at_position(shape: &[usize]) -> Self {
        Self::named("", shape)
    }

    /// True when a declared shape can meet this one.
    #[must_use]
    pub fn meets(&self, declared: &[Dim]) -> bool {
        self.shape.is_empty()
            || (self.shape.len() == declared.len()
                && self.shape.iter().zip(declared).all(|(a, b)| a.meets(*b)))
    }

    /// True when a tensor of this shape fits.
    #[must_use]
    pub fn admits(&self, shape: &[usize]) -> bool {
        self.shape.is_empty()
            || (self.shape.len() == shape.len()
                && self.shape.iter().zip(shape).all(|(a, &b)| a.meets(Dim::Fixed(b))))
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}"),
            Self::Any => f.write_str("?"),
        }
    }
}

/// Checked when a model is loaded, and for each output when it is run (finite, shape).
/// Inputs must be exactly these; outputs may be fewer than the model has, and only those are
/// computed. A contract without ports takes a model as it is: all its inputs and outputs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contract {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

//! What a model slot demands of a model: inputs and outputs by name, shape and range.

/// One dimension: fixed, or any number that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    Fixed(usize),
    Any,
}

/// One input or output. Names may differ between exports: an empty name matches by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    /// Empty: not checked at load (only the values are).
    pub shape: Vec<Dim>,
}

/// Checked when a model is loaded, and for each output when it is run (finite, shape).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contract {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

//! Which instructions the kernels may use, decided once at run time. The only unsafe code of `pixels`.

#[allow(unsafe_code)]
pub(crate) mod stdm;

/// The instructions a kernel may use. Every level gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(Inner);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Scalar,
}

impl Level {
    /// The plain loops: what every other level is compared with.
    pub const SCALAR: Self = Self(Inner::Scalar);

    /// The best that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::SCALAR
    }

    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Inner::Scalar => "scalar",
        }
    }
}

//! H.264 through openh264: units, parameter sets, decoder, encoder.

pub(crate) mod units;
pub(crate) mod sps;
pub mod decode;
pub mod encode;

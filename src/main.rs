//! mien.
fn main() {}

//! Runs neural networks on the CPU: a graph is compiled once into a flat plan with packed weights
//! and planned buffers, and runs without allocating.
//!
//! Read downwards: each module uses only those above it.

//! An independent embedder that judges results; never part of the pipeline.

//! Runs the stages over one picture; any doubt covers or withholds.

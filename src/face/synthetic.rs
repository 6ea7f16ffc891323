//! A made identity, chosen by a seed.

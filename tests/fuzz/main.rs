//! The corpus of `fuzz/`, replayed, and then some of it changed at random: what `make fuzz` has found stays found.
#![allow(missing_docs, clippy::unwrap_used)]

mod replay;
mod targets;

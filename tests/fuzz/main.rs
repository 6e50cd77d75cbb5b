//! Regression test of the fuzz targets: replays the corpus of `fuzz/` and random mutations of it.
#![allow(missing_docs, clippy::unwrap_used)]

mod lock;
mod replay;
mod targets;

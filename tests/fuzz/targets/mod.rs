//! Fuzz targets: one `run(&[u8])` function each, which panics if a property does not hold.
//!
//! Two crates include these files: the replay test in this folder and the fuzz programs in `fuzz/`.

pub(crate) mod caches;
pub(crate) mod clusters;
pub(crate) mod config;
pub(crate) mod filter;
mod input;
pub(crate) mod journal;
mod json;
pub(crate) mod list_pages;
mod objects;
pub(crate) mod protobuf;
pub(crate) mod protobuf_json;
pub(crate) mod records;
pub(crate) mod template;
pub(crate) mod texts;
pub(crate) mod watch_lines;
pub(crate) mod webhook;

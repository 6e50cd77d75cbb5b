//! What is fed with noise: one function a target, which panics where something does not hold.
//!
//! Two crates have these files: the test beside them, which replays the corpus, and `fuzz`, which looks for more. They use
//! what everybody may use of the hub.

pub(crate) mod caches;
pub(crate) mod clusters;
pub(crate) mod config;
pub(crate) mod filter;
mod input;
pub(crate) mod journal;
mod json;
pub(crate) mod list_pages;
mod objects;
pub(crate) mod records;
pub(crate) mod template;
pub(crate) mod texts;
pub(crate) mod watch_lines;
pub(crate) mod webhook;

//! Tests of the documents: README.md, docs/ and others. Links, configurations, commands and messages must be valid.
#![allow(missing_docs, clippy::unwrap_used)]

mod blocks;
mod commands;
mod links;
mod literals;
mod messages;
mod pages;
mod programs;

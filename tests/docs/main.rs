//! What README.md, docs/ and the documents beside them say can be followed: links, configurations, commands, messages.
#![allow(missing_docs, clippy::unwrap_used)]

mod blocks;
mod commands;
mod links;
mod literals;
mod messages;
mod pages;
mod receivers;

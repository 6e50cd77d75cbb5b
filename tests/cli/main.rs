//! Tests of the commands around the configuration, with the built binary, files and simulated clusters.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod check;
mod command;
mod config;
mod fleet;
mod import;
mod rbac;

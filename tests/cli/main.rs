//! Commands around the configuration as somebody types them: the built binary, files, simulated clusters.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod check;
mod command;
mod config;
mod import;
mod rbac;

//! Sinks and durable subscribers: actors that deliver from a journal and resume after a restart.

pub mod durable;
pub mod sink;

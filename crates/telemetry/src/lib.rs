//! Logs, metrics and traces.

#[cfg(feature = "log")]
mod lines;
#[cfg(feature = "log")]
mod log;
pub mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
pub mod spans;
#[cfg(feature = "otlp")]
mod traces;

#[cfg(feature = "log")]
pub use lines::LogFormat;
#[cfg(feature = "log")]
pub use log::init;
#[cfg(feature = "otlp")]
pub use log::init_with_traces;
#[cfg(feature = "otlp")]
pub use traces::Traces;

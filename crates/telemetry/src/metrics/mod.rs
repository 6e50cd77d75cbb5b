//! Metrics: what each is, how they are put together, and how they leave the process.
//!
//! # Layout
//! - [`catalogue`](Id): one definition of each metric: name, kind, help, labels. Everything else comes from it.
//! - [`Snapshot`]: the values of all of them at one moment. Whoever knows the hub makes it; nothing here does.
//! - [`Format`]: a snapshot as a scraper reads it, in Prometheus' text format or OpenMetrics.
//! - [`Scraper`]: answers scrapes, so that however many come at once one collection answers all of them.
//! - [`Export`]: the same snapshots over OTLP/HTTP, where the environment asks for it.
//!
//! # Why a catalogue of our own
//! The values are there: counters that actors keep for the status. An SDK's instruments would have each of them copied,
//! with its attributes, into a map per instrument at every collection, keep those maps for good, and fold everything
//! beyond 2,000 sets of labels into one; a hub over a thousand clusters has ten thousand informers. Reading them when
//! somebody asks costs nobody else anything, and keeps nothing.

mod catalogue;
#[cfg(feature = "otlp")]
mod export;
mod process;
mod scrape;
mod snapshot;
mod text;
#[cfg(feature = "otlp")]
mod wire;

pub use catalogue::{CATALOGUE, Id, Kind, Metric};
#[cfg(feature = "otlp")]
pub use export::Export;
pub use process::put_process;
pub use scrape::{Scraped, Scraper};
pub use snapshot::{LabelSet, Snapshot};
pub use text::Format;

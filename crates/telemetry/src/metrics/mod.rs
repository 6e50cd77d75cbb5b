//! Metrics: definitions, collection and export.
//!
//! # Layout
//! - [`catalogue`](Id): the one definition of each metric: name, kind, help, labels. Everything else derives from it.
//! - [`Snapshot`]: the values of all metrics at one moment. The caller fills it; nothing here knows the hub.
//! - [`Format`]: a snapshot as text for scrapers, in Prometheus' text format or OpenMetrics.
//! - [`Scraper`]: answers scrapes. Concurrent scrapes share one collection of the values.
//! - [`Export`]: sends the same snapshots over OTLP/HTTP, if the environment enables it.
//!
//! # Why a custom catalogue
//! The values exist already, as counters that actors keep for the status. An SDK's instruments would copy each value
//! with its attributes into a map per instrument at every collection, and keep those maps forever. They would also
//! merge all label sets beyond 2,000 into one, while a hub over a thousand clusters has ten thousand informers. Reading
//! the counters on request costs nothing between requests and keeps no copies.

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
pub use scrape::{ScrapeResult, Scraper};
pub use snapshot::{LabelSet, Snapshot};
pub use text::Format;

//! Logging to standard error, as text for people or JSON for machines.

use std::io::IsTerminal;

use opentelemetry_sdk::trace::SdkTracer;
#[cfg(feature = "otlp")]
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;

use crate::lines::{self, LogFormat};
#[cfg(feature = "otlp")]
use crate::traces::{self, Traces};
use informer_hub_types::SPAN_TARGET;

/// Crates whose logs are off by default. For example, they log each failed attempt of a request, without the cluster's
/// name. The hub logs a failure once, with the name.
const QUIET: [&str; 10] =
    ["async_nats", "kube", "kube_client", "tower", "hyper", "hyper_util", "h2", "reqwest", "rustls", "opentelemetry"];

/// Starts logging to standard error. `default` is the lowest level to log, from the hub and most dependencies. The
/// environment variable `RUST_LOG`, in `tracing`'s filter syntax, replaces the whole filter.
///
/// Later calls have no effect.
pub fn init(format: LogFormat, default: &str) {
    start(format, default, None);
}

/// Starts logging like [`init`], and exports [`spans`](crate::spans) over OTLP/HTTP.
///
/// The export needs `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; without one of them nothing
/// is traced. Its requests run on `io`.
///
/// If the export cannot be set up, logs a warning and drops the spans.
#[cfg(feature = "otlp")]
#[must_use = "the last spans are lost without a flush"]
pub fn init_with_traces(format: LogFormat, default: &str, io: &Handle) -> Traces {
    let (traces, error) = match traces::start(io) {
        Ok(traces) => (traces, None),
        Err(error) => (Traces::default(), Some(error)),
    };
    start(format, default, traces.tracer());
    if let Some(error) = error {
        tracing::warn!(error, "cannot set up the export of traces; no traces are exported");
    }
    traces
}

fn start(format: LogFormat, default: &str, tracer: Option<SdkTracer>) {
    let (filter, error) = filter(default);
    // Ignore the error: logging was already set up, and stays as it is.
    let _ = subscriber(format, filter, tracer).try_init();
    if let Some(error) = error {
        tracing::warn!(error, "cannot parse RUST_LOG; ignoring it");
    }
}

fn subscriber(format: LogFormat, filter: EnvFilter, tracer: Option<SdkTracer>) -> impl Subscriber + Send + Sync {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    subscriber_to(std::io::stderr, colours, format, filter, tracer)
}

/// Creates a subscriber that writes log lines to the writer returned by `out`.
fn subscriber_to<W: std::io::Write + 'static>(
    out: impl Fn() -> W + Send + Sync + 'static,
    colours: bool,
    format: LogFormat,
    filter: EnvFilter,
    tracer: Option<SdkTracer>,
) -> impl Subscriber + Send + Sync {
    let events = filter_fn(|data| !data.is_span()).with_max_level_hint(LevelFilter::TRACE);
    let writer = move || lines::Printable { out: out(), format, colours };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(colours).boxed(),
        LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).map_event_format(lines::WithTrace).boxed(),
    };
    // Spans are for traces only. On log lines they would repeat the fields; JSON lines include their IDs.
    let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![lines.with_filter(filter.and(events)).boxed()];
    if let Some(tracer) = tracer {
        let ours = filter_fn(|data| data.is_span() && data.target() == SPAN_TARGET);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        layers.push(layer.with_filter(ours.with_max_level_hint(LevelFilter::INFO)).boxed());
    }
    tracing_subscriber::registry().with(layers)
}

/// Returns the log filter. If `RUST_LOG` is invalid, also returns an error text.
fn filter(default: &str) -> (EnvFilter, Option<String>) {
    let quiet = || {
        let directives = QUIET.iter().map(|name| format!(",{name}=off"));
        EnvFilter::new(directives.fold(default.to_owned(), |all, one| all + &one))
    };
    let set = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.trim().is_empty());
    match set.map(EnvFilter::try_new) {
        None => (quiet(), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (quiet(), Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::spans;
    use informer_hub_types::printable::hostile;

    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lock that tests hold while they install a subscriber. `tracing` caches per process which log calls are enabled.
    /// The cache is briefly wrong while another thread adds a subscriber.
    static SUBSCRIBERS: Mutex<()> = Mutex::new(());

    #[test]
    fn log_events_with_hostile_text_are_one_harmless_line() {
        let _alone = SUBSCRIBERS.lock();
        for format in [LogFormat::Text, LogFormat::Json] {
            let kept = Arc::default();
            let out = Arc::clone(&kept);
            let subscriber =
                subscriber_to(move || Kept(Arc::clone(&out)), false, format, EnvFilter::new("trace"), None);
            tracing::subscriber::with_default(subscriber, || {
                let cause: &dyn std::error::Error = &io::Error::other(hostile::TEXT);
                let text = hostile::TEXT;
                tracing::warn!(cluster = %text, text, error = cause, debug = ?text, "{text}");
            });
            let line = String::from_utf8(kept.lock().clone()).unwrap();
            hostile::assert_harmless("a log line", &line, 1);
            assert!(line.ends_with('\n') && line.matches("forged").count() == 5, "{line:?}");
        }
    }

    #[test]
    fn spans_are_disabled_without_an_exporter_at_any_log_level() {
        let _alone = SUBSCRIBERS.lock();
        let subscriber = subscriber(LogFormat::Json, EnvFilter::new("trace"), None);
        tracing::subscriber::with_default(subscriber, || {
            assert!(spans::list(&"c", &"pods", &"*").is_disabled());
            assert!(spans::watch(&"c", &"pods", &"*").is_disabled());
            assert!(spans::delivery("s", 1, std::iter::empty).is_disabled());
        });
    }

    #[test]
    fn spans_are_enabled_with_an_exporter_at_any_log_level() {
        use opentelemetry::trace::TracerProvider;
        let _alone = SUBSCRIBERS.lock();
        let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
        let subscriber = subscriber(LogFormat::Text, EnvFilter::new("off"), Some(provider.tracer("test")));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!spans::delivery("s", 1, std::iter::empty).is_disabled());
            assert!(tracing::info_span!("span_of_a_dependency").is_disabled());
        });
    }
}

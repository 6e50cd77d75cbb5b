//! Metrics over OTLP/HTTP: set up from OpenTelemetry's own environment variables, off without them.
//!
//! `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` turns it on, `OTEL_METRIC_EXPORT_INTERVAL` says
//! how often; `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT` mean what
//! OpenTelemetry says. Sums are cumulative, so nothing has to be sent twice: an export that failed, or did not end in
//! time, is dropped, and the next one says all that it would have said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::process;
use super::snapshot::Snapshot;
use super::wire::Sender;
use crate::otlp::{EXPORT, FLUSH, Failing, client, given, headers, is_disabled, resource, shown};
use informer_hub_types::clock;

/// Where the environment names none, as OpenTelemetry has it.
const INTERVAL: Duration = Duration::from_secs(60);

/// Closer together they would only be work.
const SHORTEST: Duration = Duration::from_millis(100);

type Collect = Arc<dyn Fn() -> Snapshot + Send + Sync>;

/// The export of metrics; does nothing where none was asked for. Ends when it is dropped.
#[derive(Debug, Default)]
pub struct Export(Option<Running>);

#[derive(Debug)]
struct Running {
    last: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What sends snapshots.
struct Exporter {
    client: reqwest::Client,
    endpoint: String,
    headers: HeaderMap,
    timeout: Duration,
    sender: Sender,
    collect: Collect,
    failing: Failing,
}

/// What came between a snapshot and its receiver.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum ExportError {
    #[error("no answer in time")]
    Late,
    #[error("the receiver cannot be reached")]
    Unreachable,
    #[error("the receiver refused it")]
    Refused,
    #[error("the metrics could not be collected")]
    Uncollected,
}

impl Export {
    /// Exports what `collect` gives, on `io`, where the environment asks for it; `collect` may neither wait nor ask
    /// anybody. What cannot be set up costs a warning, and the export.
    #[must_use = "the last metrics are lost without a flush"]
    pub fn start(io: &Handle, collect: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        match Exporter::of_environment(Arc::new(collect)) {
            Ok(exporter) => Self(exporter.map(|(exporter, every)| {
                let (last, ending) = oneshot::channel();
                Running { last, task: io.spawn(exporter.run(every, ending)) }
            })),
            Err(error) => {
                tracing::warn!(error, "no metrics are exported");
                Self::default()
            }
        }
    }

    /// Sends the last state, for up to three seconds, and ends the export.
    pub async fn flush(self) {
        let Some(mut running) = self.0 else { return };
        let (last, _) = oneshot::channel();
        // An error means that the task has ended already.
        let _ = std::mem::replace(&mut running.last, last).send(());
        if tokio::time::timeout(FLUSH, &mut running.task).await.is_err() {
            tracing::debug!("the last metrics were not exported in time");
        }
    }
}

impl Exporter {
    fn of_environment(collect: Collect) -> Result<Option<(Self, Duration)>, String> {
        let own = given("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        let general =
            || given("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}/v1/metrics", base.trim_end_matches('/')));
        let Some(endpoint) = own.or_else(general) else { return Ok(None) };
        let exporters = given("OTEL_METRICS_EXPORTER").unwrap_or_else(|| "otlp".to_owned());
        if is_disabled() || !exporters.split(',').any(|one| one.trim() == "otlp") {
            return Ok(None);
        }
        let shown = shown(&endpoint)?;
        let client = client(&endpoint).map_err(|error| format!("no HTTP client for {shown}: {error}"))?;
        let millis = |name: &str| given(name)?.trim().parse().ok().map(Duration::from_millis);
        let every = millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(INTERVAL).max(SHORTEST);
        let timeout = millis("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT").or_else(|| millis("OTEL_EXPORTER_OTLP_TIMEOUT"));
        let names = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        if given("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE")
            .is_some_and(|text| !text.trim().eq_ignore_ascii_case("cumulative"))
        {
            tracing::warn!(
                "metrics are exported as cumulative, whatever OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE says"
            );
        }
        let exporter = Self {
            client,
            headers: names.into_iter().find_map(given).map(|text| headers(&text)).unwrap_or_default(),
            endpoint,
            timeout: timeout.unwrap_or(EXPORT).min(EXPORT),
            sender: Sender::new(&resource(), since()),
            collect,
            failing: Failing::new("metrics", shown),
        };
        Ok(Some((exporter, every)))
    }

    async fn run(self, every: Duration, mut ending: oneshot::Receiver<()>) {
        let exporter = Arc::new(self);
        let mut ticks = tokio::time::interval_at(clock::now() + every, every);
        // One that takes longer than that is followed by one, not by all that it held up.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut ending => true,
            };
            let exporting = exporter.export();
            tokio::pin!(exporting);
            let (result, ends) = tokio::select! {
                result = &mut exporting => (result, is_last),
                // The end does not wait for one under way; but what it would say is to be said.
                _ = &mut ending, if !is_last => (exporter.export().await, true),
            };
            exporter.failing.note(result.err().map(|error| error.to_string()).as_deref());
            if ends {
                return;
            }
        }
    }

    /// Sends what there is now, within the timeout.
    async fn export(self: &Arc<Self>) -> Result<(), ExportError> {
        tokio::time::timeout(self.timeout, self.send()).await.unwrap_or(Err(ExportError::Late))
    }

    async fn send(self: &Arc<Self>) -> Result<(), ExportError> {
        let collector = Arc::clone(self);
        // All at once: the snapshot is let go before anybody is waited for.
        let collecting = tokio::task::spawn_blocking(move || {
            let snapshot = (collector.collect)();
            collector.sender.requests(&snapshot).map(|request| request.encode_to_vec()).collect::<Vec<_>>()
        });
        let bodies = collecting.await.map_err(|_| ExportError::Uncollected)?;
        for body in bodies {
            let request = self.client.post(&self.endpoint).headers(self.headers.clone());
            let answer = request.header(CONTENT_TYPE, "application/x-protobuf").body(body).send().await;
            let answer = answer
                .map_err(|error| if error.is_timeout() { ExportError::Late } else { ExportError::Unreachable })?;
            if !answer.status().is_success() {
                return Err(ExportError::Refused);
            }
        }
        Ok(())
    }
}

/// Since when counters have counted, in nanoseconds since the epoch: the process's start.
fn since() -> u64 {
    let known = process::start_time().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let nanos = known.map(|since| since.as_nanos());
    nanos.and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(0)
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("failing", &self.failing).finish_non_exhaustive()
    }
}

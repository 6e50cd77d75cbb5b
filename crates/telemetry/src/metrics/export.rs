//! Export of metrics over OTLP/HTTP, configured by OpenTelemetry's environment variables and off without them.
//!
//! `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` enables it. `OTEL_METRIC_EXPORT_INTERVAL`,
//! `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT` have OpenTelemetry's
//! meaning; the timeout is at most 10 s, and the interval at least 100 ms. Sums are cumulative, so a failed or late
//! export is dropped, and the next one includes its values.

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
use crate::otlp::{EXPORT, FLUSH, FailureLog, client, headers, is_disabled, resource, shown, variable};
use informer_hub_types::clock;

/// Default export interval, as in OpenTelemetry.
const INTERVAL: Duration = Duration::from_secs(60);

/// Minimum export interval.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

type Collect = Arc<dyn Fn() -> Snapshot + Send + Sync>;

/// Handle of the metrics export; does nothing if the export is off. Dropping it ends the export.
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

/// Sender of snapshots to the OTLP receiver.
struct Exporter {
    client: reqwest::Client,
    endpoint: String,
    headers: HeaderMap,
    timeout: Duration,
    sender: Sender,
    collect: Collect,
    failing: FailureLog,
}

/// Reason of a failed export.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum ExportError {
    #[error("the OTLP receiver did not answer in time")]
    Timeout,
    #[error("cannot reach the OTLP receiver")]
    Unreachable,
    #[error("the OTLP receiver rejected the metrics")]
    Refused,
    #[error("the hub failed to gather its metrics")]
    CollectFailed,
}

impl Export {
    /// Exports the snapshots of `collect` on `io`, if the environment enables it. `collect` must not wait.
    ///
    /// If the export cannot be set up, logs a warning and exports nothing.
    #[must_use = "the last metrics are lost without a flush"]
    pub fn start(io: &Handle, collect: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        match Exporter::of_environment(Arc::new(collect)) {
            Ok(exporter) => Self(exporter.map(|(exporter, every)| {
                let (last, ending) = oneshot::channel();
                Running { last, task: io.spawn(exporter.run(every, ending)) }
            })),
            Err(error) => {
                tracing::warn!(error, "cannot set up the export of metrics; no metrics are exported");
                Self::default()
            }
        }
    }

    /// Sends the last values, for at most three seconds, and ends the export.
    pub async fn flush(self) {
        let Some(mut running) = self.0 else { return };
        let (last, _) = oneshot::channel();
        // Ignore the error: the task has already ended.
        let _ = std::mem::replace(&mut running.last, last).send(());
        if tokio::time::timeout(FLUSH, &mut running.task).await.is_err() {
            tracing::debug!("cannot export the last metrics before the process ends; they are lost");
        }
    }
}

impl Exporter {
    fn of_environment(collect: Collect) -> Result<Option<(Self, Duration)>, String> {
        let own = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        let general =
            || variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}/v1/metrics", base.trim_end_matches('/')));
        let Some(endpoint) = own.or_else(general) else { return Ok(None) };
        let exporters = variable("OTEL_METRICS_EXPORTER").unwrap_or_else(|| "otlp".to_owned());
        if is_disabled() || !exporters.split(',').any(|one| one.trim() == "otlp") {
            return Ok(None);
        }
        let shown = shown(&endpoint)?;
        let client = client(&endpoint).map_err(|error| format!("cannot create an HTTP client for {shown}: {error}"))?;
        let millis = |name: &str| variable(name)?.trim().parse().ok().map(Duration::from_millis);
        let every = millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(INTERVAL).max(MIN_INTERVAL);
        let timeout = millis("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT").or_else(|| millis("OTEL_EXPORTER_OTLP_TIMEOUT"));
        let names = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        if variable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE")
            .is_some_and(|text| !text.trim().eq_ignore_ascii_case("cumulative"))
        {
            tracing::warn!(
                "ignoring OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE; metrics are exported as cumulative"
            );
        }
        let exporter = Self {
            client,
            headers: names.into_iter().find_map(variable).map(|text| headers(&text)).unwrap_or_default(),
            endpoint,
            timeout: timeout.unwrap_or(EXPORT).min(EXPORT),
            sender: Sender::new(&resource(), since()),
            collect,
            failing: FailureLog::new("metrics", shown),
        };
        Ok(Some((exporter, every)))
    }

    async fn run(self, every: Duration, mut ending: oneshot::Receiver<()>) {
        let exporter = Arc::new(self);
        let mut ticks = tokio::time::interval_at(clock::now() + every, every);
        // After an export that takes longer than the interval, one tick follows, not all missed ones.
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
                // At shutdown, abort a running export and send the last values instead.
                _ = &mut ending, if !is_last => (exporter.export().await, true),
            };
            exporter.failing.note(result.err().map(|error| error.to_string()).as_deref());
            if ends {
                return;
            }
        }
    }

    /// Sends the current values, within the timeout.
    async fn export(self: &Arc<Self>) -> Result<(), ExportError> {
        tokio::time::timeout(self.timeout, self.send()).await.unwrap_or(Err(ExportError::Timeout))
    }

    async fn send(self: &Arc<Self>) -> Result<(), ExportError> {
        let collector = Arc::clone(self);
        // Encode all requests first, so that the snapshot is freed before they are sent.
        let collecting = tokio::task::spawn_blocking(move || {
            let snapshot = (collector.collect)();
            collector.sender.requests(&snapshot).map(|request| request.encode_to_vec()).collect::<Vec<_>>()
        });
        let bodies = collecting.await.map_err(|_| ExportError::CollectFailed)?;
        for body in bodies {
            let request = self.client.post(&self.endpoint).headers(self.headers.clone());
            let answer = request.header(CONTENT_TYPE, "application/x-protobuf").body(body).send().await;
            let answer = answer
                .map_err(|error| if error.is_timeout() { ExportError::Timeout } else { ExportError::Unreachable })?;
            if !answer.status().is_success() {
                return Err(ExportError::Refused);
            }
        }
        Ok(())
    }
}

/// Returns the start time of the process in Unix nanoseconds. The values of counters count from then.
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

//! Export of traces over OTLP/HTTP, configured by OpenTelemetry's environment variables and off without them.
//!
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` enables it. `OTEL_SERVICE_NAME`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…` and others have OpenTelemetry's meaning. Finished spans wait in a queue
//! of 2,048 for a thread of the SDK. When the queue is full, further spans are dropped, so a slow receiver never blocks
//! the hub and costs no further memory.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;

use super::otlp::{EXPORT, FLUSH, FailureLog, NAME, client, is_disabled, resource, shown, variable};

/// Handle of the trace export; does nothing if the export is off.
#[derive(Debug, Default)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Sends the remaining spans, for at most three seconds, and ends the export.
    pub async fn flush(self) {
        let Some(provider) = self.0 else { return };
        // The SDK blocks its thread during the shutdown; the export needs the runtime's other threads.
        let ending = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH));
        if !matches!(tokio::time::timeout(FLUSH, ending).await, Ok(Ok(Ok(())))) {
            tracing::debug!("cannot export the last traces before the process ends; they are lost");
        }
    }

    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.0.as_ref().map(|provider| provider.tracer(NAME))
    }
}

/// Starts the export if the environment enables it. Its requests run on `io`.
///
/// # Errors
/// A message if the export cannot be set up: the endpoint is invalid, or the HTTP client cannot be created.
pub(super) fn start(io: &Handle) -> Result<Traces, String> {
    let own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let Some(endpoint) = own.or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT")) else { return Ok(Traces::default()) };
    if is_disabled() {
        return Ok(Traces::default());
    }
    let shown = shown(&endpoint)?;
    let client = client(&endpoint).map_err(|error| format!("cannot create an HTTP client for {shown}: {error}"))?;
    let built = OtlpExporter::builder().with_http().with_http_client(client).build();
    // Leave out the builder's error: it quotes the endpoint, which may contain credentials.
    let inner = built.map_err(|_| format!("cannot set up the exporter for {shown}; check the OTEL_… variables"))?;
    let failing = FailureLog::new("traces", shown);
    let exporter = OnRuntime { inner: Arc::new(inner), io: io.clone(), failing };
    let provider = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build();
    Ok(Traces(Some(provider)))
}

/// Exporter that runs exports on the tokio runtime, since the SDK's own thread has no runtime.
#[derive(Debug)]
struct OnRuntime {
    inner: Arc<OtlpExporter>,
    io: Handle,
    failing: FailureLog,
}

impl OnRuntime {
    fn show(&self, result: &OTelSdkResult) {
        self.failing.note(result.as_ref().err().map(|error| match error {
            OTelSdkError::Timeout(_) => "timed out",
            _ => "the collector did not accept the spans, or was not reached",
        }));
    }
}

impl SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let inner = Arc::clone(&self.inner);
        let task = self.io.spawn(async move { tokio::time::timeout(EXPORT, inner.export(batch)).await });
        let result = match task.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(OTelSdkError::Timeout(EXPORT)),
            Err(_) => Err(OTelSdkError::AlreadyShutdown),
        };
        self.show(&result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        // The SDK calls this before the first export, while the exporter is not shared yet.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.set_resource(resource);
        }
    }
}

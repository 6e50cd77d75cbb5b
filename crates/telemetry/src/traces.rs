//! Traces over OTLP/HTTP: set up from OpenTelemetry's own environment variables, off without them.
//!
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` turns it on; `OTEL_SERVICE_NAME`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…` and their like mean what OpenTelemetry says. Finished spans wait in a
//! bounded queue (2,048) for a thread of the SDK; while it is full, further ones are dropped. What the receiver does
//! can therefore cost spans, never time or memory.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;

use super::otlp::{EXPORT, FLUSH, Failing, NAME, client, given, is_disabled, resource, shown};

/// The export of traces; does nothing where none was asked for.
#[derive(Debug, Default)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Sends what waits, for up to three seconds, and ends the export.
    pub async fn flush(self) {
        let Some(provider) = self.0 else { return };
        // The SDK blocks; what is exported goes over the runtime's other threads.
        let ending = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH));
        if !matches!(tokio::time::timeout(FLUSH, ending).await, Ok(Ok(Ok(())))) {
            tracing::debug!("the last traces were not exported in time");
        }
    }

    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.0.as_ref().map(|provider| provider.tracer(NAME))
    }
}

/// Starts the export where the environment asks for it; its requests run on `io`.
///
/// # Errors
/// In words, when it cannot be set up: the address is none, or there is no HTTP client for it.
pub(super) fn start(io: &Handle) -> Result<Traces, String> {
    let own = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let Some(endpoint) = own.or_else(|| given("OTEL_EXPORTER_OTLP_ENDPOINT")) else { return Ok(Traces::default()) };
    if is_disabled() {
        return Ok(Traces::default());
    }
    let shown = shown(&endpoint)?;
    let client = client(&endpoint).map_err(|error| format!("no HTTP client for {shown}: {error}"))?;
    let built = OtlpExporter::builder().with_http().with_http_client(client).build();
    // Not the builder's own words: they quote the address, which may hold credentials.
    let inner = built.map_err(|_| format!("the exporter for {shown} cannot be set up; check the OTEL_… variables"))?;
    let failing = Failing::new("traces", shown);
    let exporter = OnRuntime { inner: Arc::new(inner), io: io.clone(), failing };
    let provider = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build();
    Ok(Traces(Some(provider)))
}

/// Runs exports on a runtime: the SDK's thread has none.
#[derive(Debug)]
struct OnRuntime {
    inner: Arc<OtlpExporter>,
    io: Handle,
    failing: Failing,
}

impl OnRuntime {
    fn show(&self, result: &OTelSdkResult) {
        self.failing.note(result.as_ref().err().map(|error| match error {
            OTelSdkError::Timeout(_) => "no answer in time",
            _ => "the export failed",
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
        // It comes before the first export, so nobody shares the exporter yet.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.set_resource(resource);
        }
    }
}

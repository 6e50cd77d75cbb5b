//! Traces over OTLP/HTTP: set up from OpenTelemetry's own environment variables, off without them.
//!
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` turns it on; `OTEL_SERVICE_NAME`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…` and their like mean what OpenTelemetry says. Finished spans wait in a
//! bounded queue (2,048) for a thread of the SDK; while it is full, further ones are dropped. What the receiver does
//! can therefore cost spans, never time or memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, Value};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;

/// How long one export may take, its repetitions included.
const EXPORT: Duration = Duration::from_secs(10);

/// How long the last spans are waited for at the end.
const FLUSH: Duration = Duration::from_secs(3);

const NAME: &str = "informer-hub";

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
    let given = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let own = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let Some(endpoint) = own.or_else(|| given("OTEL_EXPORTER_OTLP_ENDPOINT")) else { return Ok(Traces::default()) };
    if given("OTEL_SDK_DISABLED").is_some_and(|text| text.trim().eq_ignore_ascii_case("true")) {
        return Ok(Traces::default());
    }
    let shown = shown(&endpoint)?;
    let client = client(&endpoint).map_err(|error| format!("no HTTP client for {shown}: {error}"))?;
    let built = OtlpExporter::builder().with_http().with_http_client(client).build();
    // Not the builder's own words: they quote the address, which may hold credentials.
    let inner = built.map_err(|_| format!("the exporter for {shown} cannot be set up; check the OTEL_… variables"))?;
    let exporter = OnRuntime { inner: Arc::new(inner), io: io.clone(), shown, failing: AtomicBool::new(false) };
    let provider = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build();
    Ok(Traces(Some(provider)))
}

/// Scheme, host and port of an address: the rest may hold credentials.
fn shown(endpoint: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("OTEL_EXPORTER_OTLP_…ENDPOINT is not an address; write e.g. http://127.0.0.1:4318")?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default()))
}

fn client(endpoint: &str) -> Result<reqwest::Client, reqwest::Error> {
    // Whoever comes first decides on the process's TLS provider; that it was somebody else is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(EXPORT);
    // A plain receiver needs no roots, and a machine without any must not stop it.
    if endpoint.starts_with("https") { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// As the environment has it; `informer-hub` where it names no service.
fn resource() -> Resource {
    let named = |resource: &Resource| match resource.get(&Key::from_static_str("service.name")) {
        Some(Value::String(name)) => !name.as_str().starts_with("unknown_service"),
        _ => false,
    };
    if named(&Resource::builder().build()) {
        return Resource::builder().build();
    }
    Resource::builder().with_service_name(NAME).build()
}

/// Runs exports on a runtime: the SDK's thread has none. Logs when exports begin to fail, and when they work again.
#[derive(Debug)]
struct OnRuntime {
    inner: Arc<OtlpExporter>,
    io: Handle,
    shown: String,
    failing: AtomicBool,
}

impl OnRuntime {
    fn show(&self, result: &OTelSdkResult) {
        let failed = result.is_err();
        if self.failing.swap(failed, Relaxed) == failed {
            return;
        }
        match result {
            Ok(()) => tracing::info!(endpoint = self.shown, "traces are exported again"),
            Err(error) => {
                let timed_out = matches!(error, OTelSdkError::Timeout(_));
                let why = if timed_out { "no answer in time" } else { "the export failed" };
                tracing::warn!(
                    endpoint = self.shown,
                    why,
                    "traces cannot be exported, they are dropped until they can"
                );
            }
        }
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

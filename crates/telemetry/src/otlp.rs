//! What exports over OTLP/HTTP have in common: where to, through which client, in whose name, and how failure is told.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::Resource;

/// How long one export may take, its repetitions included.
pub(super) const EXPORT: Duration = Duration::from_secs(10);

/// How long the last export is waited for at the end.
pub(super) const FLUSH: Duration = Duration::from_secs(3);

/// The name of the service, and of what instruments it.
pub(super) const NAME: &str = "informer-hub";

/// A variable of the environment that says something.
pub(super) fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// Whether OpenTelemetry is switched off as a whole.
pub(super) fn is_disabled() -> bool {
    given("OTEL_SDK_DISABLED").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
}

/// Scheme, host and port of an address: the rest may hold credentials.
pub(super) fn shown(endpoint: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("OTEL_EXPORTER_OTLP_…ENDPOINT is not an address; write e.g. http://127.0.0.1:4318")?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default()))
}

pub(super) fn client(endpoint: &str) -> Result<reqwest::Client, reqwest::Error> {
    // Whoever comes first decides on the process's TLS provider; that it was somebody else is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(EXPORT);
    // A plain receiver needs no roots, and a machine without any must not stop it.
    if endpoint.starts_with("https") { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// As the environment has it; `informer-hub` where it names no service.
pub(super) fn resource() -> Resource {
    let named = |resource: &Resource| match resource.get(&Key::from_static_str("service.name")) {
        Some(Value::String(name)) => !name.as_str().starts_with("unknown_service"),
        _ => false,
    };
    if named(&Resource::builder().build()) {
        return Resource::builder().build();
    }
    Resource::builder().with_service_name(NAME).build()
}

/// Headers as `OTEL_EXPORTER_OTLP_HEADERS` writes them: `name=value,…`, percent-encoded. What is none is left out. They
/// mostly are credentials, so they are marked as such.
pub(super) fn headers(text: &str) -> HeaderMap {
    let pairs = text.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        let mut value = HeaderValue::from_bytes(&decoded(value.trim())).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    pairs.collect()
}

/// Without percent-encoding; a percent sign that begins none stands for itself.
fn decoded(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            decoded.push(byte);
            rest = &after[2..];
        } else {
            decoded.push(first);
            rest = after;
        }
    }
    decoded
}

/// Logs when exports begin to fail, and when they work again: not each time.
#[derive(Debug)]
pub(super) struct Failing {
    what: &'static str,
    shown: String,
    is_on: AtomicBool,
}

impl Failing {
    /// Nothing has failed yet.
    pub(super) fn new(what: &'static str, shown: String) -> Self {
        Self { what, shown, is_on: AtomicBool::new(false) }
    }

    /// An export has ended.
    pub(super) fn note(&self, error: Option<&str>) {
        let (what, endpoint) = (self.what, &self.shown);
        if self.is_on.swap(error.is_some(), Relaxed) == error.is_some() {
            return;
        }
        match error {
            None => tracing::info!(endpoint, "{what} are exported again"),
            Some(error) => {
                tracing::warn!(endpoint, error, "{what} cannot be exported, they are dropped until they can");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        assert_eq!(shown("https://u:p@collector:4318/v1?key=x").unwrap(), "https://collector:4318");
        assert!(shown("collector:4318").unwrap_err().contains("is not an address"));
    }

    #[test]
    fn headers_are_decoded_and_what_is_none_is_left_out() {
        let headers = headers("authorization=Bearer%20a%3Db, x-tenant = 100% , broken, b@d=1, empty=");
        assert_eq!(headers["authorization"], "Bearer a=b");
        assert_eq!(headers["x-tenant"], "100%");
        assert_eq!((headers.len(), &headers["empty"]), (3, &HeaderValue::from_static("")));
        assert!(!format!("{headers:?}").contains("Bearer"), "{headers:?}");
    }
}

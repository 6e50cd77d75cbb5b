//! Shared parts of OTLP/HTTP exports: endpoint, HTTP client, resource, headers and failure logging.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::Resource;

use informer_hub_tls::{Roots, http_config};

/// Time limit of one export: a request to the OTLP receiver, and its retries.
pub(super) const EXPORT: Duration = Duration::from_secs(10);

/// Time limit of the last export at shutdown.
pub(super) const FLUSH: Duration = Duration::from_secs(3);

/// Default of the service name, and name of the instrumentation scope.
pub(super) const NAME: &str = "informer-hub";

/// Returns an environment variable; `None` if it is unset or blank.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

pub(super) fn is_disabled() -> bool {
    variable("OTEL_SDK_DISABLED").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
}

/// Returns scheme, host and port of an endpoint, to name it in messages. Its other parts may contain credentials.
pub(super) fn shown(endpoint: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("OTEL_EXPORTER_OTLP_…ENDPOINT is not an HTTP address; use e.g. http://127.0.0.1:4318")?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default()))
}

pub(super) fn client(endpoint: &str) -> Result<reqwest::Client, Box<dyn Error>> {
    // Plain HTTP must work on a machine without root certificates, so it loads none.
    let roots = if endpoint.starts_with("https") { Roots::SystemAnd(Vec::new()) } else { Roots::Only(Vec::new()) };
    let builder = reqwest::Client::builder().tls_backend_preconfigured(http_config(roots, None)?);
    Ok(builder.redirect(reqwest::redirect::Policy::none()).timeout(EXPORT).build()?)
}

/// Returns the OpenTelemetry resource from the environment. The default service name is `informer-hub`.
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

/// Parses headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,…`, percent-encoded. Skips invalid
/// headers. Marks the values as sensitive, since most are credentials.
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

/// Decodes percent-encoding. A percent sign without two hexadecimal digits is kept.
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

/// Logs when exports start to fail and when they work again, rather than each failure.
#[derive(Debug)]
pub(super) struct FailureLog {
    what: &'static str,
    shown: String,
    is_failing: AtomicBool,
}

impl FailureLog {
    /// Creates a log. `what` is the kind of telemetry, `shown` the endpoint without credentials.
    pub(super) fn new(what: &'static str, shown: String) -> Self {
        Self { what, shown, is_failing: AtomicBool::new(false) }
    }

    /// Records the result of an export; `None` is a success.
    pub(super) fn note(&self, error: Option<&str>) {
        let (what, endpoint) = (self.what, &self.shown);
        if self.is_failing.swap(error.is_some(), Relaxed) == error.is_some() {
            return;
        }
        match error {
            None => tracing::info!(endpoint, "exporting {what} again"),
            Some(error) => {
                tracing::warn!(endpoint, error, "cannot export {what}; dropping them until exports succeed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_endpoint_omits_secrets() {
        assert_eq!(shown("https://u:p@collector:4318/v1?key=x").unwrap(), "https://collector:4318");
        assert!(shown("collector:4318").unwrap_err().contains("is not an HTTP address"));
    }

    #[test]
    fn headers_are_decoded_and_invalid_ones_skipped() {
        let headers = headers("authorization=Bearer%20a%3Db, x-tenant = 100% , broken, b@d=1, empty=");
        assert_eq!(headers["authorization"], "Bearer a=b");
        assert_eq!(headers["x-tenant"], "100%");
        assert_eq!((headers.len(), &headers["empty"]), (3, &HeaderValue::from_static("")));
        assert!(!format!("{headers:?}").contains("Bearer"), "{headers:?}");
    }
}

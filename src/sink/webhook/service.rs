//! The HTTP side of a webhook: the client, one exchange, and what its answer means.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Certificate, Client, Response, Url, redirect};
use tracing::Span;

use super::{WebhookError, WebhookParams, request};
use crate::sink::{Event, Outcome};
use crate::types::clock;

/// How much of an answer's body is read.
const MAX_ANSWER: usize = 4096;
/// How much of it goes into an error message.
const MAX_QUOTE: usize = 200;
/// How long a connection is kept for the next batch.
const IDLE: Duration = Duration::from_secs(60);

/// A client and whom it talks to.
#[derive(Debug)]
pub(super) struct Service {
    client: Client,
    params: WebhookParams,
}

impl Service {
    pub(super) fn new(params: WebhookParams) -> Result<Self, WebhookError> {
        // Whoever comes first decides on the process's TLS provider; that it was somebody else is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .pool_idle_timeout(IDLE)
            .connect_timeout(params.timeout);
        let roots = params.ca_file.as_deref().map(read_roots).transpose()?.unwrap_or_default();
        // A plain receiver needs no roots, and a machine without any must not stop it.
        builder = if params.url.is_https() { builder.tls_certs_merge(roots) } else { builder.tls_certs_only(roots) };
        let client = builder.build().map_err(WebhookError::Client)?;
        Ok(Self { client, params })
    }

    /// One attempt, over within the timeout.
    pub(super) async fn exchange(&self, batch: &[Event]) -> Outcome {
        let params = &self.params;
        let body = request::body(batch, params.batched);
        let id = request::batch_id(batch);
        let timestamp = clock::wall().as_second();
        let keys = params.signing_keys.as_ref();
        let headers = request::headers(&id, timestamp, body.as_bytes(), params.batched, keys);
        let request = self.client.post(params.url.0.clone()).headers(headers).body(body);
        let exchange = async {
            match request.send().await {
                Ok(response) => judge(response, &params.url.0).await,
                Err(error) => retry(describe(error)),
            }
        };
        let outcome = match tokio::time::timeout(params.timeout, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => retry(format!("no answer within {:?}", params.timeout)),
        };
        if let Outcome::Retry { error, .. } | Outcome::Disable { error } = &outcome {
            Span::current().record("otel.status_code", "ERROR").record("otel.status_description", error);
        }
        outcome
    }
}

/// Turns an answer into an outcome.
async fn judge(mut response: Response, own: &Url) -> Outcome {
    let status = response.status();
    // The span of the attempt, where somebody traces.
    Span::current().record("http.response.status_code", status.as_u16());
    if status.is_success() {
        // Acknowledged, whatever becomes of the rest; reading it lets the connection be used again.
        read_some(&mut response).await;
        return Outcome::Accepted;
    }
    if status.is_redirection() {
        return retry(redirected(&response, own));
    }
    let after = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(response.headers()),
        _ => None,
    };
    let quote = quote(&read_some(&mut response).await, own);
    let error = format!("receiver answered {status}{quote}");
    match status {
        StatusCode::GONE => Outcome::Disable { error },
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            Outcome::Retry { after, content: true, error }
        }
        _ => Outcome::Retry { after, content: false, error },
    }
}

fn retry(error: String) -> Outcome {
    Outcome::Retry { after: None, content: false, error }
}

/// Names the host alone: the rest of an address may hold credentials.
fn redirected(response: &Response, own: &Url) -> String {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| own.join(location).ok());
    let host = target.as_ref().and_then(Url::host_str).unwrap_or("an unknown host");
    let status = response.status();
    format!("receiver answered {status} and points to {host}; redirects are not followed, set url to the final address")
}

/// Up to [`MAX_ANSWER`] bytes of the body; less where it breaks off.
async fn read_some(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_ANSWER - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() >= MAX_ANSWER {
            break;
        }
    }
    body
}

/// The beginning of a body, as one line of printable text. Error pages like to repeat the address, of which path and
/// query may be the credentials.
fn quote(body: &[u8], own: &Url) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for part in [own.query(), Some(own.path().trim_matches('/'))].into_iter().flatten().filter(|part| part.len() > 3) {
        text = text.replace(part, "…");
    }
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_QUOTE).collect();
    let line = line.trim();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// `Retry-After` as a delay: seconds, or a date that is compared with the wall clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()?;
    Some(Duration::try_from(date.duration_since(clock::wall())).unwrap_or_default())
}

/// The whole chain of causes, without the address.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        // Writing into a String cannot fail.
        let _ = write!(text, ": {source}");
        cause = source.source();
    }
    text
}

/// Tries a PEM file of roots as a client would use it. Reads the file; connects to nothing.
///
/// # Errors
/// [`WebhookError`] says what is wrong with the file.
pub fn check_roots(path: &Path) -> Result<(), WebhookError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let roots = read_roots(path)?;
    let made = Client::builder().tls_certs_only(roots).build();
    made.map(drop).map_err(|_| WebhookError::NoCertificate { path: path.to_owned() })
}

fn read_roots(path: &Path) -> Result<Vec<Certificate>, WebhookError> {
    let pem = std::fs::read(path).map_err(|source| WebhookError::CaFile { path: path.to_owned(), source })?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(roots) if !roots.is_empty() => Ok(roots),
        _ => Err(WebhookError::NoCertificate { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Option<Duration> {
        retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]))
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        let soon: std::time::SystemTime = (clock::wall() + Duration::from_secs(600)).into();
        let wait = after(&httpdate::fmt_http_date(soon)).unwrap();
        assert!((590..=600).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        for nonsense in ["", "soon", "-1", "99999999999999999999999"] {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_quote_is_one_short_line() {
        let own = Url::parse("http://host/hooks/T0K3N?key=K3Y").unwrap();
        assert_eq!(quote(b"", &own), "");
        assert_eq!(quote(b" no\nsuch\x1b[31m ", &own), ": no such [31m");
        assert!(quote(&[0xff; 4096], &own).chars().count() <= MAX_QUOTE + 2);
        assert_eq!(quote(b"Cannot POST /hooks/T0K3N?key=K3Y", &own), ": Cannot POST /…?…");
    }
}

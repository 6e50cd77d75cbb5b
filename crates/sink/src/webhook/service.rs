//! HTTP exchange of a webhook: reload of certificate files, one attempt, and its outcome.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use parking_lot::Mutex;
use reqwest::{Response, Url};
use tracing::Span;

use super::caller::{Caller, route};
use super::request::HeaderParams;
use super::secrets::Secrets;
use super::{WebhookError, WebhookParams, request};
use crate::retry::MAX_RETRY_AFTER;
use crate::{Event, Outcome};
use informer_hub_disk::FileStates;
use informer_hub_types::{TraceParent, clock, printable, with_causes};

/// Maximum bytes read from an answer's body.
const MAX_ANSWER: usize = 4096;
/// Time limit for reading an answer's body, after its head. The head alone decides the outcome.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum characters of an answer's body in an error message.
const MAX_QUOTE: usize = 200;

#[derive(Debug)]
pub(super) struct Service {
    client: Mutex<CachedCaller>,
    params: WebhookParams,
    content_type: HeaderValue,
    /// Receiver's scheme, host, port and proxy, for error texts.
    route: String,
    secrets: Secrets,
}

/// HTTP client, and the state of the files that it was built from.
#[derive(Debug)]
struct CachedCaller {
    client: Caller,
    files: FileStates,
    /// State of the changed certificate files that could not be used last. As long as the files stay in this state, the
    /// error is not logged again.
    broken: FileStates,
}

impl Service {
    pub(super) fn new(params: WebhookParams) -> Result<Self, WebhookError> {
        let files = file_states(&params);
        let cached = CachedCaller { client: Caller::new(&params)?, files, broken: FileStates::default() };
        let content_type = params.shape.content_type(params.batched);
        let content_type = HeaderValue::from_str(content_type).unwrap_or(HeaderValue::from_static("text/plain"));
        let (route, secrets) = (route(&params), Secrets::of(&params));
        Ok(Self { client: Mutex::new(cached), params, content_type, route, secrets })
    }

    /// Returns the client, rebuilt if its files have changed. If the new files are not usable, for example because only
    /// some of them have been replaced yet, the old client stays in use.
    fn client(&self) -> Caller {
        let mut cached = self.client.lock();
        let files = file_states(&self.params);
        if files != cached.files {
            match Caller::new(&self.params) {
                Ok(client) => *cached = CachedCaller { client, files, broken: FileStates::default() },
                Err(error) if files != cached.broken => {
                    let error = with_causes(&error);
                    tracing::warn!(
                        url = %self.params.url, error,
                        "cannot use the changed certificate files; the previous ones stay in use"
                    );
                    cached.broken = files;
                }
                Err(_) => {}
            }
        }
        cached.client.clone()
    }

    /// Makes one attempt to deliver a batch, and returns its outcome. The attempt's time limit applies until the head
    /// of the answer is received.
    pub(super) async fn exchange(&self, batch: &[Event]) -> Outcome {
        let params = &self.params;
        let body = match params.shape.batch(batch, params.batched) {
            Ok(body) => body,
            Err(error) => return Outcome::Unsendable { error },
        };
        let id = request::batch_id(batch);
        let timestamp = clock::wall().as_second();
        let header_params = HeaderParams {
            content_type: &self.content_type,
            compression: params.compression,
            extra: params.headers.values(),
            keys: params.signing_keys.as_ref(),
            trace: TraceParent::of(&Span::current()),
        };
        let headers = request::headers(&id, timestamp, body.as_bytes(), &header_params);
        let body = match request::encode(body, params.compression) {
            Ok(body) => body,
            Err(error) => return retry(format!("cannot compress the body: {error}")),
        };
        let client = self.client();
        let answer = client.post(&params.url.0, &self.route, headers, body);
        let outcome = match tokio::time::timeout(params.timeout, answer).await {
            Ok(Ok(response)) => {
                let limit = BODY_TIMEOUT.min(params.timeout);
                outcome_of(response, &params.url.0, &self.secrets, Some(limit)).await
            }
            Ok(Err(error)) => retry(error),
            Err(_) => retry(format!("no answer from {} within {:?}", self.route, params.timeout)),
        };
        if let Outcome::Retry { error, .. } | Outcome::Unsendable { error } | Outcome::Disable { error } = &outcome {
            Span::current().record("otel.status_code", "ERROR").record("otel.status_description", error);
        }
        outcome
    }
}

/// Maps the head of a response to an outcome. The body is read for an error's text, and to reuse the connection. If it
/// does not end within `body_limit`, the connection is closed.
pub(super) async fn outcome_of(
    mut response: Response,
    own: &Url,
    secrets: &Secrets,
    body_limit: Option<Duration>,
) -> Outcome {
    let status = response.status();
    // Recorded in the span of the attempt, if it is traced.
    Span::current().record("http.response.status_code", status.as_u16());
    if status.is_success() {
        read_some(&mut response, body_limit).await;
        return Outcome::Accepted;
    }
    if status.is_redirection() {
        return retry(redirected(&response, own, secrets));
    }
    let after = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(response.headers()),
        _ => None,
    };
    let quote = quote(&read_some(&mut response, body_limit).await, secrets);
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

/// Describes a redirect. Only the target host is named: the rest may contain credentials.
fn redirected(response: &Response, own: &Url, secrets: &Secrets) -> String {
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        return format!("receiver answered {status}, which does not acknowledge a webhook; answer 2xx");
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| own.join(location).ok());
    match target.as_ref().and_then(Url::host_str).map(|host| secrets.hide(host)) {
        Some(host) => format!(
            "receiver answered {status} and points to {host}; redirects are not followed, set url to the final address"
        ),
        None => format!(
            "receiver answered {status} without a usable Location, which a webhook cannot follow; answer 2xx, or set url \
             to the final address"
        ),
    }
}

/// Reads up to [`MAX_ANSWER`] bytes of the body; fewer if the connection fails or the limit has passed.
async fn read_some(response: &mut Response, limit: Option<Duration>) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = read_into(&mut body, response);
    match limit {
        Some(limit) => drop(tokio::time::timeout(limit, reading).await),
        None => reading.await,
    }
    body
}

async fn read_into(body: &mut Vec<u8>, response: &mut Response) {
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_ANSWER - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() >= MAX_ANSWER {
            break;
        }
    }
}

/// Returns the start of an answer's body as one line of printable text, without secrets: error pages often repeat the
/// request.
fn quote(body: &[u8], secrets: &Secrets) -> String {
    let text = secrets.hide(&printable(&String::from_utf8_lossy(body)));
    let line: String = text.chars().take(MAX_QUOTE).collect();
    let line = line.trim();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// Parses `Retry-After`: seconds, or a date; `None` if absent or invalid. A date is compared with the receiver's own
/// `Date` if present, since its clock may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows exceeds the maximum too.
        return Some(text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs));
    }
    let date = |text: &str| jiff::Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok();
    let said = headers.get(DATE).and_then(|now| date(now.to_str().ok()?.trim()));
    Some(Duration::try_from(date(text)?.duration_since(said.unwrap_or_else(clock::wall))).unwrap_or_default())
}

/// Returns the state of the certificate files from which a client is built.
fn file_states(params: &WebhookParams) -> FileStates {
    let cert = params.client_cert.iter().flat_map(|cert| [&cert.cert_file, &cert.key_file]);
    FileStates::of(params.ca_file.iter().chain(cert))
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::printable::hostile;

    fn after(text: &str) -> Option<Duration> {
        retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]))
    }

    #[test]
    fn retry_after_parses_seconds_and_dates() {
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        let soon: std::time::SystemTime = (clock::wall() + Duration::from_secs(600)).into();
        let wait = after(&httpdate::fmt_http_date(soon)).unwrap();
        assert!((590..=600).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(after("99999999999999999999999"), Some(MAX_RETRY_AFTER));
        for nonsense in ["", "soon", "-1", "-99999999999999999999999", "99999999999999999999999s"] {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn retry_after_date_is_relative_to_the_receivers_clock() {
        let both = |date: &str, after: &str| {
            let headers = [(DATE, date.parse().unwrap()), (RETRY_AFTER, after.parse().unwrap())];
            retry_after(&HeaderMap::from_iter(headers))
        };
        let (now, soon) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT");
        assert_eq!(both(now, soon), Some(Duration::from_secs(60)), "the delay is relative to the receiver's clock");
        assert_eq!(both(soon, now), Some(Duration::ZERO));
        let (ours, later) = (clock::wall(), clock::wall() + Duration::from_secs(60));
        let [ours, later] = [ours, later].map(|it| httpdate::fmt_http_date(it.into()));
        assert_eq!(both(&ours, &later), Some(Duration::from_secs(60)));
        assert!(both("nonsense", &later).is_some_and(|wait| wait <= Duration::from_secs(60)));
    }

    #[test]
    fn quote_is_one_short_line() {
        let own = Secrets::of_url(&Url::parse("http://host/hooks/T0K3N?key=K3Y").unwrap());
        assert_eq!(quote(b"", &own), "");
        assert_eq!(quote(b" no\nsuch\x1b[31m ", &own), ": no such");
        hostile::assert_harmless("a receiver's answer", &quote(hostile::TEXT.as_bytes(), &own), 0);
        assert!(quote(&[0xff; 4096], &own).chars().count() <= MAX_QUOTE + 2);
        assert_eq!(quote(b"Cannot POST /hooks/T0K3N?key=K3Y", &own), ": Cannot POST /…?…");
    }
}

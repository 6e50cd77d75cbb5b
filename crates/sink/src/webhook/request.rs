//! Body and headers of one webhook request. No I/O.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use sha2::{Digest, Sha256};

use super::{Compression, SigningKeys};
use crate::Event;
use informer_hub_types::TraceParent;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Compression level that is fast and compresses JSON well.
const ZSTD_LEVEL: i32 = 3;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("informer-hub/", env!("CARGO_PKG_VERSION")));

/// Encodes a body with the configured compression.
///
/// # Errors
/// An I/O error if memory is exhausted or the library fails.
pub(super) fn encode(body: String, compression: Option<Compression>) -> std::io::Result<Vec<u8>> {
    match compression {
        None => Ok(body.into_bytes()),
        Some(Compression::Gzip) => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(body.as_bytes())?;
            encoder.finish()
        }
        Some(Compression::Zstd) => zstd::bulk::compress(body.as_bytes(), ZSTD_LEVEL),
    }
}

/// Returns `webhook-id`, by which a receiver de-duplicates requests. Retries of the same events have the same id. The
/// id of a single event is the event's own.
pub(super) fn batch_id(batch: &[Event]) -> String {
    if let [event] = batch {
        return event.id().to_owned();
    }
    let mut hash = Sha256::new();
    for event in batch {
        hash.update(event.id());
        hash.update(b"\n");
    }
    URL_SAFE_NO_PAD.encode(&hash.finalize()[..16])
}

/// Inputs of [`headers`] besides id, timestamp and body.
#[derive(Debug)]
pub(super) struct HeaderParams<'p> {
    pub(super) content_type: &'p HeaderValue,
    pub(super) compression: Option<Compression>,
    pub(super) extra: &'p HeaderMap,
    pub(super) keys: Option<&'p SigningKeys>,
    /// Span of the attempt, if traced.
    pub(super) trace: Option<TraceParent>,
}

/// Builds the headers of an attempt at `timestamp` (seconds since the epoch). The signature covers `body` before
/// compression: intermediaries often decompress it, and the libraries of Standard Webhooks verify text.
pub(super) fn headers(id: &str, timestamp: i64, body: &[u8], params: &HeaderParams<'_>) -> HeaderMap {
    let mut headers = params.extra.clone();
    headers.insert(CONTENT_TYPE, params.content_type.clone());
    headers.insert(USER_AGENT, AGENT);
    headers.insert(WEBHOOK_TIMESTAMP, timestamp.into());
    headers.insert(WEBHOOK_ID, ascii(id));
    if let Some(keys) = params.keys {
        headers.insert(WEBHOOK_SIGNATURE, ascii(&keys.sign(id, timestamp, body)));
    }
    if let Some(trace) = params.trace {
        headers.insert(TRACE_PARENT, ascii(&trace.to_string()));
    }
    if let Some(compression) = params.compression {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(compression.as_str()));
    }
    headers
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids, digits and base64 are valid in headers")
}

#[cfg(test)]
mod tests {
    use super::super::super::event::tests::event;
    use super::*;

    #[test]
    fn body_is_compressed_as_configured() {
        let body = "[1]".repeat(1000);
        assert_eq!(encode(body.clone(), None).unwrap(), body.as_bytes());
        for compression in [Compression::Gzip, Compression::Zstd] {
            let encoded = encode(body.clone(), Some(compression)).unwrap();
            assert!(encoded.len() < body.len() / 10);
            let decoded = match compression {
                Compression::Gzip => std::io::read_to_string(flate2::read::GzDecoder::new(&encoded[..])).unwrap(),
                Compression::Zstd => String::from_utf8(zstd::bulk::decompress(&encoded, 10_000).unwrap()).unwrap(),
            };
            assert_eq!(decoded, body);
        }
    }

    #[test]
    fn batch_id_depends_only_on_events_and_order() {
        let (a, b) = (event("a", 1, 0), event("b", 1, 0));
        assert_eq!(batch_id(&[a.clone(), b.clone()]), batch_id(&[a.clone(), b.clone()]));
        assert_ne!(batch_id(&[a.clone(), b.clone()]), batch_id(&[b, a.clone()]));
        assert_eq!(batch_id(std::slice::from_ref(&a)), a.id());
    }

    #[test]
    fn extra_headers_do_not_override_own_headers() {
        let extra = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("text/html")),
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("k")),
        ]);
        let content_type = HeaderValue::from_static("application/json");
        let params = HeaderParams {
            content_type: &content_type,
            compression: Some(Compression::Gzip),
            extra: &extra,
            keys: None,
            trace: Some(TraceParent { trace: 10, span: 11 }),
        };
        let headers = headers("id", 12, b"[]", &params);
        assert_eq!(headers[TRACE_PARENT], "00-0000000000000000000000000000000a-000000000000000b-01");
        assert_eq!(headers.get_all(CONTENT_TYPE).iter().collect::<Vec<_>>(), ["application/json"]);
        assert_eq!(
            (&headers[WEBHOOK_TIMESTAMP], &headers["x-api-key"]),
            (&"12".parse().unwrap(), &"k".parse().unwrap())
        );
        assert_eq!(headers[CONTENT_ENCODING], "gzip");
        assert!(headers[USER_AGENT].to_str().unwrap().starts_with("informer-hub/"));
        assert!(!headers.contains_key(WEBHOOK_SIGNATURE));
    }
}

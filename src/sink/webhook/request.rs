//! What goes out in one attempt: the body and its headers. Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use sha2::{Digest, Sha256};

use super::SigningKeys;
use crate::sink::Event;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

const ONE: HeaderValue = HeaderValue::from_static("application/cloudevents+json");
const BATCH: HeaderValue = HeaderValue::from_static("application/cloudevents-batch+json");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("informer-hub/", env!("CARGO_PKG_VERSION")));

/// The body of a batch: a JSON array, or the event itself where the sink sends single events.
pub(super) fn body(batch: &[Event], batched: bool) -> String {
    if let ([event], false) = (batch, batched) {
        return event.json().to_owned();
    }
    let length: usize = batch.iter().map(|event| event.json().len() + 1).sum();
    let mut body = String::with_capacity(length + 1);
    for event in batch {
        body.push(if body.is_empty() { '[' } else { ',' });
        body.push_str(event.json());
    }
    body.push(']');
    body
}

/// `webhook-id`: what a receiver de-duplicates requests by. The same for the same events, however often they are
/// tried; for a single event it is the event's own id.
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

/// The headers of one attempt made at `timestamp` (seconds since the epoch).
pub(super) fn headers(id: &str, timestamp: i64, body: &[u8], batched: bool, keys: Option<&SigningKeys>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, if batched { BATCH } else { ONE });
    headers.insert(USER_AGENT, AGENT);
    headers.insert(WEBHOOK_TIMESTAMP, timestamp.into());
    headers.insert(WEBHOOK_ID, ascii(id));
    if let Some(keys) = keys {
        headers.insert(WEBHOOK_SIGNATURE, ascii(&keys.sign(id, timestamp, body)));
    }
    headers
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids, digits and base64 are legal in headers")
}

#[cfg(test)]
mod tests {
    use super::super::super::event::tests::event;
    use super::*;

    #[test]
    fn a_batch_is_an_array_even_with_one_event() {
        let events = [event("a", 1, 0), event("b", 1, 0)];
        let parse = |body: String| serde_json::from_str::<serde_json::Value>(&body).unwrap();
        assert_eq!(parse(body(&events, true)).as_array().map(Vec::len), Some(2));
        assert_eq!(parse(body(&events[..1], true)).as_array().map(Vec::len), Some(1));
        assert_eq!(parse(body(&events[..1], false))["id"], events[0].id());
    }

    #[test]
    fn the_batch_id_depends_on_the_events_and_their_order_alone() {
        let (a, b) = (event("a", 1, 0), event("b", 1, 0));
        assert_eq!(batch_id(&[a.clone(), b.clone()]), batch_id(&[a.clone(), b.clone()]));
        assert_ne!(batch_id(&[a.clone(), b.clone()]), batch_id(&[b, a.clone()]));
        assert_eq!(batch_id(std::slice::from_ref(&a)), a.id());
    }

    #[test]
    fn headers_name_the_shape_and_the_sender() {
        let headers = headers("id", 12, b"[]", true, None);
        assert_eq!(headers[CONTENT_TYPE], "application/cloudevents-batch+json");
        assert_eq!(headers[WEBHOOK_TIMESTAMP], "12");
        assert!(headers[USER_AGENT].to_str().unwrap().starts_with("informer-hub/"));
        assert!(!headers.contains_key(WEBHOOK_SIGNATURE));
    }
}

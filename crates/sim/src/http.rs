//! HTTP helpers: JSON answers, `metav1.Status`, and query string parsing.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::media::Media;
use super::protobuf;

/// Body of an answer. If it yields an error, the connection is cut.
pub(super) type SimBody = UnsyncBoxBody<Bytes, io::Error>;

pub(super) type SimResponse = Response<SimBody>;

pub(super) fn full(bytes: impl Into<Bytes>) -> SimBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn json_response(code: StatusCode, value: &Value) -> SimResponse {
    typed_response(code, "application/json", full(value.to_string()))
}

pub(super) fn typed_response(code: StatusCode, content_type: &'static str, body: SimBody) -> SimResponse {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `metav1.Status` of a failure.
#[derive(Clone, Debug)]
pub(super) struct Status {
    code: u16,
    reason: &'static str,
    message: String,
    cause: Option<&'static str>,
    retry_after: Option<u32>,
}

impl Status {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), cause: None, retry_after: None }
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Creates the status for list options that contradict each other or that the server does not support.
    pub(super) fn invalid_options(field: &str, why: &str) -> Self {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: Forbidden: {why}");
        Self { cause: Some("FieldValueForbidden"), ..Self::new(422, "Invalid", message) }
    }

    /// Creates the status for a requested version that is newer than the current one.
    pub(super) fn too_large(requested: u64, now: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {now}");
        Self { cause: Some("ResourceVersionTooLarge"), retry_after: Some(1), ..Self::new(504, "Timeout", message) }
    }

    pub(super) fn throttled(seconds: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self { retry_after: Some(seconds), ..Self::new(429, "TooManyRequests", message) }
    }

    pub(super) fn to_value(&self) -> Value {
        let mut details = json!({});
        if let Some(cause) = self.cause {
            details["causes"] = json!([{ "reason": cause, "message": self.message }]);
        }
        if let Some(seconds) = self.retry_after {
            details["retryAfterSeconds"] = json!(seconds);
        }
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "details": details, "code": self.code,
        })
    }

    pub(super) fn response(&self, media: Media) -> SimResponse {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let value = self.to_value();
        let encoded = protobuf::status(value.to_string().as_bytes()).ok().filter(|_| media == Media::Protobuf);
        let mut response = match encoded {
            Some(encoded) => typed_response(code, media.content_type(false), full(encoded)),
            None => json_response(code, &value),
        };
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Decoded parameters of a query string. If a parameter is repeated, its last value is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    /// Returns the value of a parameter; empty if the parameter is absent, as in Kubernetes' list options.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    /// Returns the value of a parameter as a number; `None` if the parameter is absent. Fails with 400 for other texts.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Status::bad_request(format!("invalid value for {name}: {text:?} is not a number"))),
        }
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        let rest = bytes.as_slice();
        let escaped = (byte == b'%').then(|| rest.get(..2)).flatten();
        let escaped = escaped.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        match escaped {
            Some(value) => {
                out.push(value);
                bytes.nth(1);
            }
            None => out.push(if byte == b'+' { b' ' } else { byte }),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch=true&limit=5&broken=%4&x");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && !query.flag("x"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.number("none").unwrap(), None);
        assert_eq!(query.get("broken"), "%4");
        assert!(query.number("watch").is_err());
    }
}

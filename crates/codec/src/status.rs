//! Classification of failures (410 is expired, 429 throttled, …) by `metav1.Status`, in an answer or an ERROR event.

use std::time::Duration;

use serde::Deserialize;

use super::error::{ErrorClass, SourceError};
use informer_hub_protobuf::{Converter, Envelope, MAGIC, Omit, Schema, TypeMeta};
use informer_hub_types::printable_start;

/// Longest server message that is shown, in characters.
const MAX_MESSAGE: usize = 512;
/// Maximum length of the JSON to which a `Status` in protobuf is converted, in bytes.
const MAX_STATUS: usize = 256 * 1024;

/// The fields of `metav1.Status` that are used. Each may be missing, because proxies send incomplete statuses.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kind: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

impl Status {
    fn has_reason(&self, reason: &str) -> bool {
        self.reason.as_deref() == Some(reason)
    }

    fn causes(&self) -> &[Cause] {
        self.details.as_ref().and_then(|details| details.causes.as_deref()).unwrap_or_default()
    }

    /// Returns whether the apiserver has not reached the requested `resourceVersion`. Apiservers report this in three
    /// ways, by release; compare client-go's `isTooLargeResourceVersionError`.
    fn is_too_large(&self) -> bool {
        const OLD: &str = "Too large resource version";
        let cause = |test: &dyn Fn(&Cause) -> bool| self.causes().iter().any(test);
        cause(&|c| c.reason.as_deref() == Some("ResourceVersionTooLarge"))
            || self.has_reason("Timeout") && (cause(&|c| c.message.as_deref() == Some(OLD)) || self.mentions(OLD))
    }

    fn mentions(&self, words: &str) -> bool {
        self.message.as_deref().is_some_and(|message| message.contains(words))
            || self.causes().iter().any(|c| c.message.as_deref().is_some_and(|message| message.contains(words)))
    }

    fn class(&self, code: u16, retry_after: Option<Duration>) -> ErrorClass {
        let streaming = || self.mentions("sendInitialEvents") || self.mentions("resourceVersionMatch");
        match code {
            _ if self.has_reason("Expired") || self.has_reason("Gone") => ErrorClass::Expired,
            _ if self.is_too_large() => ErrorClass::TooLarge,
            // The apiserver cannot read one of its stored objects, so the watch cannot continue. A new list shows the
            // remaining objects.
            _ if self.has_reason("StoreReadError") => ErrorClass::Malformed,
            410 => ErrorClass::Expired,
            429 => ErrorClass::Throttled(retry_after),
            400 | 403 | 422 if streaming() => ErrorClass::StreamingUnsupported,
            401 => ErrorClass::Unauthorized,
            403 => ErrorClass::Forbidden,
            404 => ErrorClass::NotFound,
            500.. if retry_after.is_some() => ErrorClass::Throttled(retry_after),
            _ => ErrorClass::Transient,
        }
    }
}

/// Returns the error for a failed HTTP answer, or for the object of an ERROR event, with its class.
///
/// A code of at least 400 in the body overrides `http_status`. `retry_after` is from the header, and overrides the
/// body's `retryAfterSeconds`. The error's message is bounded and has no control characters. It never quotes a body
/// that is not a `Status`.
#[must_use]
pub fn classify_status(http_status: u16, body: &[u8], retry_after: Option<Duration>) -> SourceError {
    let converted = body.starts_with(MAGIC).then(|| status_json(body).unwrap_or_default());
    let body = converted.as_deref().unwrap_or(body);
    let parsed = serde_json::from_slice::<Status>(body).ok().filter(|s| s.kind.as_deref() == Some("Status"));
    let Some(status) = parsed else {
        let class = Status::default().class(http_status, retry_after);
        return SourceError {
            class,
            message: format!("answered {http_status}, but the body is not a Kubernetes Status"),
        };
    };
    let code = status.code.filter(|code| *code >= 400).unwrap_or(http_status);
    let asked = status.details.as_ref().and_then(|details| details.retry_after_seconds).filter(|s| *s > 0);
    let class = status.class(code, retry_after.or(asked.map(Duration::from_secs)));
    let reason = bounded(status.reason.as_deref().unwrap_or("no reason"));
    let message = bounded(status.message.as_deref().unwrap_or("no message"));
    SourceError { class, message: format!("answered {code} {reason}: {message}") }
}

/// Converts a `Status` in protobuf to JSON; `None` if it is not one.
fn status_json(body: &[u8]) -> Option<Vec<u8>> {
    let Envelope { api_version, kind, raw } = Envelope::read(body).ok()?;
    let message = Schema::builtin().kind("v1", "Status")?;
    let (mut json, type_meta) = (Vec::new(), Some(TypeMeta { api_version, kind }));
    Converter::default().object(message, type_meta, raw, &Omit::default(), MAX_STATUS, &mut json).ok()?;
    Some(json)
}

/// Truncates a text to `MAX_MESSAGE` printable characters on one line.
#[must_use]
pub fn bounded(text: &str) -> String {
    printable_start(text, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(http: u16, body: &str) -> ErrorClass {
        classify_status(http, body.as_bytes(), None).class
    }

    #[test]
    fn status_is_classified_by_code_and_reason() {
        let of =
            |code: u16, reason: &str| class(200, &format!(r#"{{"kind":"Status","code":{code},"reason":"{reason}"}}"#));
        assert_eq!(of(410, "Expired"), ErrorClass::Expired);
        assert_eq!(of(410, "Gone"), ErrorClass::Expired);
        assert_eq!(of(410, "Whatever"), ErrorClass::Expired);
        assert_eq!((of(500, "Expired"), of(400, "Gone")), (ErrorClass::Expired, ErrorClass::Expired), "for any code");
        assert_eq!(of(401, "Unauthorized"), ErrorClass::Unauthorized);
        assert_eq!(of(403, "Forbidden"), ErrorClass::Forbidden);
        assert_eq!(of(404, "NotFound"), ErrorClass::NotFound);
        assert_eq!(of(429, "TooManyRequests"), ErrorClass::Throttled(None));
        assert_eq!(of(500, "InternalError"), ErrorClass::Transient);
        assert_eq!(of(500, "StoreReadError"), ErrorClass::Malformed);
        assert_eq!(class(502, "<html>bad gateway</html>"), ErrorClass::Transient);
        assert_eq!(class(410, ""), ErrorClass::Expired);
    }

    // client-go: TestReflectorFullListIfTooLarge.
    #[test]
    fn too_large_version_is_recognized_in_all_three_forms() {
        let now = r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        let v1_17 = r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"message":"Too large resource version"}]}}"#;
        let older = r#"{"kind":"Status","code":504,"reason":"Timeout","message":"Timeout: Too large resource version: 9, current: 5"}"#;
        for body in [now, v1_17, older] {
            assert_eq!(class(504, body), ErrorClass::TooLarge, "{body}");
        }
        assert_eq!(class(504, r#"{"kind":"Status","code":504,"reason":"Timeout"}"#), ErrorClass::Transient);
        let other = r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"message":"slow etcd","reason":"x"}]}}"#;
        assert_eq!(class(504, other), ErrorClass::Transient);
        let no_timeout =
            r#"{"kind":"Status","code":500,"reason":"InternalError","message":"Too large resource version"}"#;
        assert_eq!(class(500, no_timeout), ErrorClass::Transient);
    }

    #[test]
    fn retry_after_header_overrides_body() {
        let body = br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":7}}"#;
        let after = |header| classify_status(429, body, header).class;
        assert_eq!(after(None), ErrorClass::Throttled(Some(Duration::from_secs(7))));
        assert_eq!(after(Some(Duration::from_secs(2))), ErrorClass::Throttled(Some(Duration::from_secs(2))));
        let header = Some(Duration::from_secs(1));
        assert_eq!(classify_status(503, b"", header).class, ErrorClass::Throttled(header));
    }

    #[test]
    fn refused_streaming_list_differs_from_forbidden() {
        let plain = |code: u16| class(code, &format!(r#"{{"kind":"Status","code":{code},"message":"no"}}"#));
        assert_eq!(
            (plain(400), plain(403), plain(422)),
            (ErrorClass::Transient, ErrorClass::Forbidden, ErrorClass::Transient)
        );
        let other = r#"{"kind":"Status","code":500,"message":"sendInitialEvents"}"#;
        assert_eq!(class(500, other), ErrorClass::Transient, "a mention with another code is not a refusal");
        let body = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch"}"#;
        assert_eq!(class(403, body), ErrorClass::StreamingUnsupported);
        let body = r#"{"kind":"Status","code":422,"reason":"Invalid","details":{"causes":[{"message":"resourceVersionMatch is forbidden for watch"}]}}"#;
        assert_eq!(class(422, body), ErrorClass::StreamingUnsupported);
    }

    #[test]
    fn unknown_status_is_transient() {
        for body in [
            r#"{"kind":"Status","code":418,"reason":"Teapot","message":"short and stout"}"#,
            r#"{"kind":"Status","code":299,"reason":"Sparkle"}"#,
            r#"{"kind":"Status","code":0}"#,
            r#"{"kind":"Status","code":70000,"reason":"Huge"}"#,
            r#"{"kind":"Status","code":"410"}"#,
            r#"{"kind":"Status","details":{"causes":null,"retryAfterSeconds":0}}"#,
            r#"{"kind":"Status","details":{"retryAfterSeconds":-1}}"#,
            r#"{"kind":"Statu","code":410,"reason":"Expired"}"#,
            r#"{"kind":"Status"}"#,
            "{}",
            "null",
            "\u{0}",
        ] {
            assert_eq!(class(500, body), ErrorClass::Transient, "{body}");
        }
        let error = classify_status(500, br#"{"kind":"Status","code":299,"reason":"Sparkle"}"#, None);
        assert_eq!(error.message, "answered 500 Sparkle: no message", "a code below 400 is ignored");
    }

    #[test]
    fn body_code_from_400_overrides_http_status() {
        let code = |code: u16| class(500, &format!(r#"{{"kind":"Status","code":{code}}}"#));
        assert_eq!(
            (code(399), code(400), code(404)),
            (ErrorClass::Transient, ErrorClass::Transient, ErrorClass::NotFound)
        );
        let message = |code: u16| {
            let body = format!(r#"{{"kind":"Status","code":{code},"reason":"R","message":"m"}}"#);
            classify_status(503, body.as_bytes(), None).message
        };
        assert_eq!((message(399).as_str(), message(400).as_str()), ("answered 503 R: m", "answered 400 R: m"));
    }

    #[test]
    fn retry_after_counts_for_5xx_only() {
        let after = Some(Duration::from_secs(1));
        assert_eq!(classify_status(499, b"", after).class, ErrorClass::Transient);
        assert_eq!(classify_status(500, b"", after).class, ErrorClass::Throttled(after));
        assert_eq!(classify_status(500, b"", None).class, ErrorClass::Transient);
        let body = br#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":1}}"#;
        assert_eq!(classify_status(504, body, None).class, ErrorClass::Throttled(after));
    }

    #[test]
    fn message_is_bounded_and_quotes_no_other_body() {
        let body = format!(r#"{{"kind":"Status","code":500,"message":"a\nb{}"}}"#, "x".repeat(10_000));
        let error = classify_status(500, body.as_bytes(), None);
        let expected = format!("answered 500 no reason: a b{}…", "x".repeat(MAX_MESSAGE - 3));
        assert_eq!(error.message, expected);
        assert_eq!(bounded(&"é".repeat(MAX_MESSAGE)), "é".repeat(MAX_MESSAGE), "not truncated");
        let error = classify_status(500, br#"{"kind":"Secret","data":{"password":"hunter2"}}"#, None);
        assert!(!error.message.contains("hunter2"));
    }
}

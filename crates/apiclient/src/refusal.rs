//! Errors of a hub: a Kubernetes `Status` for paths below `/clusters` and `/unique`, otherwise `{"error": "…"}`.

use serde_json::Value;

/// An error answer of a hub.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// Text for the user.
    pub message: String,
    /// For an error in a query: its message, the affected line of the query, and a mark below the position. `None` for
    /// other errors.
    pub excerpt: Option<String>,
    /// Seconds after which the request may be repeated; `None` if the hub sends none.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// Reads the body of a failed answer; `None` if it is not from a hub.
    #[must_use]
    pub fn parse(code: u16, retry_after: Option<&str>, body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        Self::of(code, retry_after, &body)
    }

    /// Reads an error from the `Status` in an `ERROR` event of a watch. Returns `None` if the text is not a `Status`
    /// with code and message.
    #[must_use]
    pub fn of_event(status: &str) -> Option<Self> {
        let status: Value = serde_json::from_str(status).ok()?;
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok())?;
        Self::of(code, None, &status)
    }

    fn of(code: u16, retry_after: Option<&str>, body: &Value) -> Option<Self> {
        let is_status = body["kind"] == "Status";
        let text = if is_status { &body["message"] } else { &body["error"] };
        let in_body = body["details"]["retryAfterSeconds"].as_u64();
        Some(Self {
            code,
            message: text.as_str().filter(|text| !text.is_empty())?.to_owned(),
            excerpt: body["excerpt"].as_str().map(str::to_owned),
            retry_after: retry_after.and_then(|text| text.trim().parse().ok()).or(in_body),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_errors_are_read() {
        let status =
            br#"{"kind":"Status","message":"pods \"x\" not found","code":404,"details":{"retryAfterSeconds":2}}"#;
        let refusal = Refusal::parse(404, None, status).unwrap();
        assert_eq!((refusal.message.as_str(), refusal.retry_after), ("pods \"x\" not found", Some(2)));
        let refusal = Refusal::parse(400, Some("1"), br#"{"error":"bad","excerpt":"bad\n x\n ^"}"#).unwrap();
        assert_eq!((refusal.excerpt.as_deref(), refusal.retry_after), (Some("bad\n x\n ^"), Some(1)));
        let text = String::from_utf8_lossy(status).into_owned();
        assert_eq!(Refusal::of_event(&text).unwrap().code, 404);
        for other in [&b"<html>"[..], b"{}", b"[]", br#"{"kind":"Status"}"#] {
            assert_eq!(Refusal::parse(502, None, other), None);
        }
    }
}

//! Additional headers of webhook requests, such as a receiver's API key.

use std::fmt;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that the hub or the HTTP client sets itself.
const RESERVED: [&str; 16] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Additional headers of each request. `Debug` shows their names but no values.
#[derive(Clone, Default)]
pub struct ExtraHeaders(HeaderMap);

/// Error for a header that cannot be sent. Its value is not shown, since it may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// The header's name is not valid.
    #[error("{0:?} is not a valid header name; use letters, digits and -")]
    Name(String),
    /// The hub sets this header itself.
    #[error("{0} is set by the hub; remove it")]
    Reserved(String),
    /// The value of this header is not valid.
    #[error("the value of {0} is not valid in a header: it has a line break or another control character")]
    Value(String),
}

/// Checks the name of a header.
///
/// # Errors
/// [`InvalidHeader`] if the name is not valid, or the hub sets this header itself.
pub fn check_header_name(name: &str) -> Result<(), InvalidHeader> {
    parse_name(name).map(drop)
}

fn parse_name(name: &str) -> Result<HeaderName, InvalidHeader> {
    let parsed = HeaderName::try_from(name).map_err(|_| InvalidHeader::Name(name.to_owned()))?;
    if RESERVED.contains(&parsed.as_str()) { Err(InvalidHeader::Reserved(name.to_owned())) } else { Ok(parsed) }
}

impl ExtraHeaders {
    /// Builds the headers from names and values.
    ///
    /// # Errors
    /// [`InvalidHeader`] for the first invalid header.
    pub fn new<'h>(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Result<Self, InvalidHeader> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let parsed = parse_name(name)?;
            let mut value = HeaderValue::from_str(value).map_err(|_| InvalidHeader::Value(name.to_owned()))?;
            value.set_sensitive(true);
            map.insert(parsed, value);
        }
        Ok(Self(map))
    }

    pub(super) fn values(&self) -> &HeaderMap {
        &self.0
    }
}

impl fmt::Debug for ExtraHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(HeaderName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_headers_are_rejected_without_their_values() {
        let new = |name, value| ExtraHeaders::new([(name, value)]).unwrap_err();
        assert_eq!(new("x api", "hunter2"), InvalidHeader::Name("x api".to_owned()));
        assert_eq!(new("", "hunter2"), InvalidHeader::Name(String::new()));
        assert_eq!(new("Content-Length", "1"), InvalidHeader::Reserved("Content-Length".to_owned()));
        assert_eq!(new("webhook-signature", "1"), InvalidHeader::Reserved("webhook-signature".to_owned()));
        let error = new("x-api-key", "hunter2\r\nx-other: 1");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn header_values_are_never_shown() {
        let headers = ExtraHeaders::new([("X-Api-Key", "hunter2")]).unwrap();
        assert_eq!(format!("{headers:?}"), "{\"x-api-key\"}");
        assert_eq!(headers.values()["x-api-key"], "hunter2");
        assert!(!format!("{:?}", headers.values()).contains("hunter2"));
    }
}

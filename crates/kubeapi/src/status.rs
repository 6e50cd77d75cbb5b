//! `Status`: errors as client-go understands them.

use std::fmt;

use smol_str::SmolStr;

/// Machine-readable reason of a failure, apimachinery's `StatusReason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Conflict,
    Gone,
    Expired,
    Invalid,
    UnsupportedMediaType,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
}

/// One of the causes of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Machine-readable kind, such as `ResourceVersionTooLarge`.
    pub reason: &'static str,
    /// Text.
    pub message: String,
    /// Field of the request.
    pub field: String,
}

/// A failure of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// HTTP code.
    pub code: u16,
    /// Reason.
    pub reason: Reason,
    /// Text for people.
    pub message: String,
    /// Group and plural name of the resource, and name of the object, if they are known.
    pub about: Option<(SmolStr, SmolStr, SmolStr)>,
    /// Causes.
    pub causes: Vec<Cause>,
    /// Seconds after which a client may try again.
    pub retry_after: Option<u32>,
}

impl Status {
    /// Returns a failure with a code, a reason and a text.
    #[must_use]
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None, causes: Vec::new(), retry_after: None }
    }

    /// Returns its JSON.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

//! Stub for filters in a build without CEL: every expression is rejected.

use std::convert::Infallible;

use informer_hub_types::Notification;

use crate::invalid_filter::InvalidFilter;
use crate::redact::Redaction;

/// Compiled expression, which cannot exist without the feature `filters`.
#[derive(Debug)]
pub struct Filter(Infallible);

impl Filter {
    /// Rejects the expression.
    ///
    /// # Errors
    /// Always: the program is built without the feature `filters`.
    pub fn compile(_text: &str) -> Result<Self, InvalidFilter> {
        let problem = "this program is built without CEL: enable the feature \"filters\" of informer-hub".to_owned();
        Err(InvalidFilter { problem, line: 1, column: 1 })
    }

    /// Unreachable, since no filter exists.
    ///
    /// # Errors
    /// None.
    pub fn passes<K>(&self, _notification: &Notification<K>, _redaction: &Redaction) -> Result<bool, String> {
        match self.0 {}
    }
}

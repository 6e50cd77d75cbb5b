//! Stand-in for filters in a build without CEL: no expression compiles.

use std::convert::Infallible;

use informer_hub_types::Notification;

use crate::invalid_filter::InvalidFilter;
use crate::redact::Redaction;

/// A compiled expression; there is none without the feature `filters`.
#[derive(Debug)]
pub struct Filter(Infallible);

impl Filter {
    /// Refuses the expression.
    ///
    /// # Errors
    /// Always: the program is built without the feature `filters`.
    pub fn compile(_text: &str) -> Result<Self, InvalidFilter> {
        let problem = "this program is built without CEL: enable the feature \"filters\" of informer-hub".to_owned();
        Err(InvalidFilter { problem, line: 1, column: 1 })
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn passes<K>(&self, _notification: &Notification<K>, _redaction: &Redaction) -> Result<bool, String> {
        match self.0 {}
    }
}

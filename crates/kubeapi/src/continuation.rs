//! The `continue` token of a list in pages.

use informer_hub_types::{ClusterName, ObjectKey};

use crate::Status;

/// Position of the next page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// Version of the list: the snapshot that all its pages are read from.
    pub version: u64,
    /// Fingerprint of root, resource, namespace and selectors, so that a token of another list is refused.
    pub list: u64,
    /// Cluster of the last object of the page before.
    pub cluster: ClusterName,
    /// Key of the last object of the page before.
    pub key: ObjectKey,
}

impl Continuation {
    /// Writes the token.
    #[must_use]
    pub fn token(&self) -> String {
        String::new()
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`Status`] of code 400 for a text that is no token.
    pub fn parse(token: &str) -> Result<Self, Status> {
        Err(Status::new(400, crate::Reason::BadRequest, token))
    }
}

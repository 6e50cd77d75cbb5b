//! JSON encoding of documents that are no objects of clusters: discovery, failures, lists.

use serde::Serialize;

/// Returns the JSON of a document: a struct of texts, numbers and lists.
pub(crate) fn json(document: &impl Serialize) -> Vec<u8> {
    // Fails only for maps whose keys are not texts, and for types whose own code fails.
    serde_json::to_vec(document).expect("structs of texts, numbers and lists are always JSON")
}

//! JSON encoding of documents that the hub itself creates: discovery, failures, continue tokens.

use serde::Serialize;

/// Returns the JSON of a document: a struct of texts, numbers and lists.
pub(crate) fn json(document: &impl Serialize) -> Vec<u8> {
    // Serialization fails only for maps with keys that are not strings, and for types whose own `Serialize` fails.
    serde_json::to_vec(document).expect("structs of texts, numbers and lists are always JSON")
}

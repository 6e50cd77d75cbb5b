//! Encodings that a client may request.

/// Encodings of objects that a client may request from an apiserver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encodings {
    /// Kubernetes protobuf where it works, else JSON.
    #[default]
    Auto,
    /// JSON only.
    Json,
}

//! Error of reading a stored object.

use super::{CodecError, ObjectKey};

/// Reason why a stored object cannot be read as the requested type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object does not fit the Rust type. The author of the type can fix it.
    #[error("cannot decode object {key} as the requested type")]
    Mismatch {
        /// Namespace and name of the object that does not fit.
        key: ObjectKey,
        /// Cause, with line and column in the JSON.
        #[source]
        source: serde_json::Error,
    },
    /// The body (the object's JSON or protobuf) is not cached, because the memory limit leaves room for heads only
    /// ([`MemoryStep::Heads`]). The operator can raise the limit.
    ///
    /// [`MemoryStep::Heads`]: super::MemoryStep::Heads
    #[error(
        "only name, version, labels and index values of {key} are cached: the hub's memory limit leaves no room for the rest"
    )]
    NotKept {
        /// Namespace and name of the object without a body.
        key: ObjectKey,
    },
    /// The stored bytes are damaged: a bug in this program or faulty hardware.
    #[error("the hub's copy of an object is damaged, by a bug or by faulty memory or disk")]
    Damaged(#[source] CodecError),
}

impl From<CodecError> for DecodeError {
    fn from(source: CodecError) -> Self {
        Self::Damaged(source)
    }
}

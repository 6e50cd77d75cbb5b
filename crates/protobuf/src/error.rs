//! Reasons why bytes cannot be converted, or JSON not encoded.

/// Reason why an object cannot be converted. No message quotes object data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// Not the protobuf of this message. The object cannot be read.
    #[error("invalid protobuf: {0}")]
    Malformed(&'static str),
    /// A field that the schema lacks, from a Kubernetes version newer or older than the schema's. It would be lost.
    #[error("field {number} of {message} is not in the schema")]
    UnknownField {
        /// The message, as in the schema.
        message: &'static str,
        /// The field's number.
        number: u32,
    },
    /// Nested deeper than the converter follows.
    #[error("nested too deeply")]
    TooDeep,
    /// The JSON exceeds the limit.
    #[error("larger than the limit as JSON")]
    TooLarge,
}

impl ConvertError {
    /// Returns whether the server's JSON of the same object can be read although its protobuf cannot.
    #[must_use]
    pub fn needs_json(&self) -> bool {
        matches!(self, Self::UnknownField { .. } | Self::TooDeep)
    }
}

/// Reason why an object cannot be encoded. No message quotes object data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Not the JSON of this kind.
    #[error("invalid object: {0}")]
    Malformed(&'static str),
    /// A member that the schema lacks, from a Kubernetes version newer or older than the schema's. It would be lost.
    #[error("a member of {message} is not in the schema")]
    UnknownMember {
        /// The message, as in the schema.
        message: &'static str,
    },
    /// Nested deeper than the encoder follows.
    #[error("nested too deeply")]
    TooDeep,
    /// The protobuf exceeds the limit.
    #[error("larger than the limit as protobuf")]
    TooLarge,
}

//! Reasons why protobuf cannot be converted, or JSON cannot be encoded.

/// Reason why an object cannot be converted to JSON. Its text never quotes object data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The bytes are not a valid message of the expected type.
    #[error("invalid protobuf: {0}")]
    Malformed(&'static str),
    /// The schema lacks a field, because the object is from another Kubernetes version. Conversion would lose the
    /// field.
    #[error("field {number} of {message} is not in the hub's schema")]
    UnknownField {
        /// Name of the message in the schema.
        message: &'static str,
        /// The field's number.
        number: u32,
    },
    /// The object is nested deeper than the converter follows.
    #[error("the object is nested too deeply")]
    TooDeep,
    /// The JSON exceeds the limit.
    #[error("the object exceeds the limit on JSON objects")]
    TooLarge,
}

impl ConvertError {
    /// Returns whether to request the object as JSON: its protobuf is valid, but the converter does not support it.
    #[must_use]
    pub fn needs_json(&self) -> bool {
        matches!(self, Self::UnknownField { .. } | Self::TooDeep)
    }
}

/// Reason why an object cannot be encoded in protobuf. Its text never quotes object data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The JSON is not a valid object of this kind.
    #[error("invalid object: {0}")]
    Malformed(&'static str),
    /// The schema lacks a member, because the object is from another Kubernetes version. Encoding would lose the
    /// member.
    #[error("a member of {message} is not in the hub's schema")]
    UnknownMember {
        /// Name of the message in the schema.
        message: &'static str,
    },
    /// The object is nested deeper than the encoder follows.
    #[error("the object is nested too deeply")]
    TooDeep,
    /// The protobuf exceeds the limit.
    #[error("the object exceeds the limit on protobuf objects")]
    TooLarge,
}

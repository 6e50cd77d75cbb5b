//! Kubernetes protobuf: from the bytes of an apiserver to the JSON that it would have sent, and back.
//!
//! [`Schema`] has the messages of all built-in types. It is generated from the Go types of one Kubernetes version
//! (`make protobuf-schema`). [`Converter`] turns an object into the JSON that Go's encoder would write, byte by byte:
//! in the order of the Go struct, with its rules for empty members. [`Envelope`] and [`WatchEvent`] read the messages
//! around an object. [`Encoder`] is the inverse: from an apiserver's JSON to protobuf. [`ObjectWriter`] writes the
//! encoded messages as single objects, as list items or as watch events.
//!
//! The crate is synchronous. No input makes it panic, and its memory is bounded by the limit on the JSON.
//!
//! # Differences from the server's JSON
//! Kubernetes versions differ in the empty members that they omit or write as `null`. This crate does as the version of
//! its schema does. `creationTimestamp: null` of a pod template, for example, is omitted since 1.34.

mod check;
mod convert;
mod encode;
mod envelope;
mod error;
mod excerpt;
mod form;
mod json_in;
mod omit;
mod picked;
mod schema;
mod selection;
mod strip;
mod text;
mod text_in;
mod wire;
mod wire_out;
mod writer;

pub use convert::{Converter, Extent, TypeMeta};
pub use encode::Encoder;
pub use envelope::{Envelope, MAGIC, WatchEvent};
pub use error::{ConvertError, EncodeError};
pub use excerpt::Excerpt;
pub use omit::Omit;
pub use picked::Picked;
pub use schema::{MessageId, Schema};
pub use selection::{Found, Step};
pub use wire::{Field, Reader, Value, varint};
pub use wire_out::{END_OF_ENVELOPE, begin_envelope, write_frame, write_item};
pub use writer::{ObjectWriter, begin_list, write_envelope};

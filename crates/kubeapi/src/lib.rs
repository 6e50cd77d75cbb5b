//! The Kubernetes API as a reader sees it: paths, options, versions, encodings, tables and errors. This crate does no
//! I/O.
//!
//! The behaviour is that of kube-apiserver 1.37, unless a module says otherwise.

mod accept;
mod continuation;
mod discovery;
mod encode;
mod failures;
mod field_selector;
mod number;
mod object;
mod options;
mod path;
mod percent;
mod quote;
mod status;
mod table;
mod versions;

pub use accept::{Accepted, Form, Media, Protobuf, negotiate};
pub use continuation::Continuation;
pub use discovery::{Served, ServedVersion, discovery_document, version_document};
pub use failures::{Access, FieldError};
pub use field_selector::{FieldSelector, FieldTerm};
pub use object::{
    CLUSTER_KEY, Edit, Identity, Indenter, ListHead, partial_metadata, pretty, rewrite, set_version, to_yaml,
    without_type, write_yaml_element,
};
pub use options::{IncludeObject, Options, VersionMatch};
pub use path::{Document, ResourcePath, Root, Target, parse_path};
pub use status::{Cause, Reason, Status, Subject};
pub use table::{Column, Printer, Row};
pub use versions::{ListAt, WatchFrom, list_at, watch_from};

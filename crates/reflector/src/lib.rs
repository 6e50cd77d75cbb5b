//! The list and watch engine: decides which request to send next, and interprets the answers.
//!
//! [`Reflector`] is a pure state machine. [`ListerWatcher`] is the interface through which a reflector reaches a
//! cluster; `informer_hub_source` implements it. Bytes are decoded in `informer_hub_codec`.

pub mod backoff;
mod connect;
mod lister_watcher;
pub mod machine;
mod plan;
mod progress;

pub use backoff::Backoff;
pub use backoff::EarlyRetry;
pub use connect::{
    Connection, Connector, Discovered, InformerOptions, ObjectAnswer, ObjectRequest, ResolveError, Server,
};
pub use informer_hub_codec::{ErrorClass, Skipped, SourceError, WatchItem};
pub use lister_watcher::{
    ListChunk, ListRequest, ListStream, ListerWatcher, VersionMatch, WatchBatch, WatchRequest, WatchStream,
    listed_version,
};
pub use machine::Reflector;
pub use plan::{ItemVerdict, ListBounds, PageVerdict, ReflectorOptions, StallPolicy, Step, WaitReason};
pub use progress::Progress;

//! The list+watch engine: what to ask an apiserver next, and what its answers mean.
//!
//! [`Reflector`] is a pure state machine; [`decode`] turns bytes into stored objects in one pass;
//! [`split`] finds objects in a list body and lines in a watch as bytes arrive. [`ListerWatcher`] is the port through
//! which a reflector reaches a cluster; its adapters live in `informer_hub_source`.

pub mod backoff;
mod connect;
pub mod decode;
mod list;
pub mod machine;
mod plan;
mod progress;
mod skim;
pub mod split;
mod status;
mod transform;
mod trie;
mod walk;

pub use backoff::Backoff;
pub use backoff::Haste;
pub use connect::{Connection, Connector, Discovered, InformerOptions, ResolveError, Server};
pub use decode::Decoder;
pub use machine::Reflector;
pub use plan::{ItemVerdict, ListBounds, PageVerdict, ReflectorOptions, StallPolicy, Step, WaitReason};
pub use progress::Progress;
pub use split::MAX_OBJECT_BYTES;
pub use status::bounded;
pub use status::classify_status;
pub use transform::Transform;
pub use trie::Projection;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use informer_hub_types::clock;
use informer_hub_types::{Followed, ListReason, ObjectKey, ResourceVersion, StoredObject};

/// Which version of the resource a list or watch asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionMatch {
    /// `resourceVersion=""`: the most recent, by quorum.
    MostRecent,
    /// `resourceVersion="0"`: any, from the apiserver's cache.
    Any,
    /// Not older than this.
    NotOlderThan(ResourceVersion),
}

/// One page of a LIST.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListRequest {
    /// Which version; ignored by the apiserver when `continue_token` is set, so it is not sent then.
    pub version: VersionMatch,
    /// Page size; `None` asks for everything at once.
    pub limit: Option<u32>,
    /// Where the last page ended.
    pub continue_token: Option<String>,
}

/// A WATCH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchRequest {
    /// Where to start.
    pub version: VersionMatch,
    /// How long the apiserver keeps it open (`timeoutSeconds`).
    pub timeout: Duration,
    /// Whether this is a streaming list: initial state as ADDED events, then a marked bookmark, then the watch.
    pub initial_events: bool,
}

/// A piece of a LIST answer.
#[derive(Debug)]
pub enum ListChunk {
    /// Objects, in the list's order.
    Items(Vec<Arc<StoredObject>>),
    /// An item that cannot be taken in.
    Skipped(Skipped),
    /// The page is complete. Always the last chunk of a page.
    End {
        /// `metadata.resourceVersion` of the list.
        version: ResourceVersion,
        /// `metadata.continue`: set when there are more pages.
        continue_token: Option<String>,
        /// `metadata.remainingItemCount`, where the server gives it.
        remaining: Option<u64>,
    },
}

impl ListChunk {
    /// Items of the list that it stands for.
    #[must_use]
    pub fn items(&self) -> usize {
        match self {
            Self::Items(objects) => objects.len(),
            Self::Skipped(_) => 1,
            Self::End { .. } => 0,
        }
    }
}

/// One event of a WATCH.
#[derive(Debug)]
pub enum WatchItem {
    /// ADDED.
    Added(Arc<StoredObject>),
    /// MODIFIED.
    Modified(Arc<StoredObject>),
    /// DELETED, with the last state; with the head alone, where that cannot be taken in.
    Deleted(Arc<StoredObject>),
    /// BOOKMARK.
    Bookmark {
        /// How far the watch has come.
        version: ResourceVersion,
        /// Whether it carries `k8s.io/initial-events-end: "true"`.
        initial_events_end: bool,
    },
    /// An event that cannot be taken in.
    Skipped(Skipped),
}

impl WatchItem {
    /// The object that it tells of.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark { .. } | Self::Skipped(_) => None,
        }
    }
}

/// An object that was seen but could not be taken in. Counted and shown; never fatal by itself.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// Its key, as far as it could be read.
    pub key: Option<ObjectKey>,
    /// Its version, as far as it could be read.
    pub version: Option<ResourceVersion>,
    /// Why, in words that name the limit or the mistake.
    pub reason: String,
}

/// Why a list or watch failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// What to do about it.
    pub class: ErrorClass,
    /// What happened, naming the request and the answer; no secret, no object data.
    pub message: String,
}

/// What a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// 429, or 503 with Retry-After: same request again, not before this long.
    Throttled(Option<Duration>),
    /// The apiserver does not accept connections (ECONNREFUSED): same request again, after a backoff.
    Refused,
    /// 410 Gone, or reason Expired: the version or the continue token is too old.
    Expired,
    /// The apiserver has not come as far as the version asked for.
    TooLarge,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404: no such resource (any more).
    NotFound,
    /// The server does not do streaming lists (400, 403, 422 that speak of `sendInitialEvents` or
    /// `resourceVersionMatch`), or did not keep their protocol.
    StreamingUnsupported,
    /// Bytes that are not the protocol: wrong content type, broken JSON, an endless line.
    Malformed,
    /// Nothing came for too long.
    Stalled,
    /// Anything else: 5xx, resets, time-outs.
    Transient,
}

impl ErrorClass {
    /// Whether the server has answered that it is not for who asked: somebody has to mend that.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::NotFound)
    }

    /// Whether the server has not answered, as far as can be told: down, cut off, or broken behind a proxy.
    #[must_use]
    pub fn is_silence(self) -> bool {
        matches!(self, Self::Refused | Self::Stalled | Self::Transient)
    }

    /// Whether the server works, and only the version or the kind of list asked for cannot be had.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge | Self::StreamingUnsupported)
    }

    /// Why a list begins that follows such a failure.
    #[must_use]
    pub fn list_reason(self) -> ListReason {
        match self {
            Self::Expired => ListReason::Expired,
            Self::TooLarge => ListReason::TooLarge,
            Self::Malformed => ListReason::Malformed,
            Self::StreamingUnsupported => ListReason::Unsupported,
            Self::Unauthorized | Self::Forbidden | Self::NotFound => ListReason::Refused,
            Self::Transient | Self::Stalled | Self::Refused | Self::Throttled(_) => ListReason::Failed,
        }
    }
}

/// Objects of one LIST page, as they arrive. Ends after [`ListChunk::End`] or an error.
pub type ListStream = BoxStream<'static, Result<ListChunk, SourceError>>;

/// What one read of the socket brought of a WATCH.
#[derive(Debug)]
pub struct WatchBatch {
    /// In the server's order; never empty.
    pub items: Vec<WatchItem>,
    /// When it was read, and the trace of one of its changes, if there is one.
    pub followed: Followed,
}

impl From<Vec<WatchItem>> for WatchBatch {
    /// Read just now.
    fn from(items: Vec<WatchItem>) -> Self {
        Self { items, followed: clock::now().into() }
    }
}

/// Events of one WATCH, as they arrive: everything that one read of the socket brought is one item.
/// Ends without an error when the server ends the watch in good order.
pub type WatchStream = BoxStream<'static, Result<WatchBatch, SourceError>>;

/// The port through which a reflector reaches one resource of one cluster.
///
/// # Contract
/// - The socket is read by the adapter's own task; at most a bounded number of decoded items wait for the caller.
/// - Dropping a future or a stream ends the request.
/// - Nothing that a server sends makes an adapter panic, and what it holds of an answer is bounded.
pub trait ListerWatcher: Debug + Send + Sync + 'static {
    /// Asks for one page. The future ends when the answer's head is there.
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>>;

    /// Opens a watch. The future ends when the answer's head is there.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>>;

    /// Gives back what it keeps for objects that are gone: memory is short, and nobody lists or watches.
    fn trim(&self) {}
}

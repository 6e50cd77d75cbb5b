//! The list+watch engine: what to ask an apiserver next, and what its answers mean.
//!
//! [`Reflector`] is a pure state machine. [`ListerWatcher`] is the port through which a reflector reaches a cluster; its
//! adapters live in `informer_hub_source`. Bytes are decoded in `informer_hub_codec`.

pub mod backoff;
mod connect;
pub mod machine;
mod plan;
mod progress;

pub use backoff::Backoff;
pub use backoff::Haste;
pub use connect::{Connection, Connector, Discovered, InformerOptions, ResolveError, Server};
pub use informer_hub_codec::{ErrorClass, Skipped, SourceError, WatchItem};
pub use machine::Reflector;
pub use plan::{ItemVerdict, ListBounds, PageVerdict, ReflectorOptions, StallPolicy, Step, WaitReason};
pub use progress::Progress;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use informer_hub_types::clock;
use informer_hub_types::{Followed, ResourceVersion, StoredObject};

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

//! Interface to one resource of one cluster: its requests, its answers, and [`ListerWatcher`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use informer_hub_codec::{Skipped, SourceError, WatchItem};
use informer_hub_types::clock;
use informer_hub_types::{EncodingInUse, ResourceVersion, SampledChange, StoredObject};

/// The resource version that a list or watch requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionMatch {
    /// `resourceVersion=""`: the most recent state, by quorum read.
    MostRecent,
    /// `resourceVersion="0"`: any state, from the apiserver's cache.
    Any,
    /// A state that is not older than this version.
    NotOlderThan(ResourceVersion),
}

/// Request for one page of a LIST.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListRequest {
    /// The requested resource version. Not sent with a continue token, since apiservers ignore it then.
    pub version: VersionMatch,
    /// Page size; `None` requests everything in one page.
    pub limit: Option<u32>,
    /// Continue token of the previous page.
    pub continue_token: Option<String>,
}

/// Request for a WATCH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchRequest {
    /// The resource version to start from.
    pub version: VersionMatch,
    /// How long the apiserver keeps the watch open (`timeoutSeconds`).
    pub timeout: Duration,
    /// Whether to begin with a streaming list: the state as ADDED events, then an annotated bookmark, then changes.
    pub initial_events: bool,
}

/// A decoded part of one LIST page. A page consists of several chunks.
#[derive(Debug)]
pub enum ListChunk {
    /// Objects, in list order.
    Items(Vec<Arc<StoredObject>>),
    /// An item that cannot be decoded.
    Skipped(Skipped),
    /// The page is complete. Always the last chunk of a page.
    End {
        /// `metadata.resourceVersion` of the list.
        version: ResourceVersion,
        /// `metadata.continue`: set when there are more pages.
        continue_token: Option<String>,
        /// `metadata.remainingItemCount`, if the server sends it.
        remaining: Option<u64>,
    },
}

impl ListChunk {
    /// Returns the number of list items in this chunk.
    #[must_use]
    pub fn items(&self) -> usize {
        match self {
            Self::Items(objects) => objects.len(),
            Self::Skipped(_) => 1,
            Self::End { .. } => 0,
        }
    }
}

/// Chunks of one LIST page as they arrive. Ends after [`ListChunk::End`] or an error.
pub type ListStream = BoxStream<'static, Result<ListChunk, SourceError>>;

/// Watch events that are handed over together: the events of one read of the socket, or of several reads if the
/// consumer was busy.
#[derive(Debug)]
pub struct WatchBatch {
    /// The events in server order; never empty.
    pub items: Vec<WatchItem>,
    /// When the first event was read from the socket. If an event of the batch is traced, also the trace of that event.
    pub followed: SampledChange,
}

impl From<Vec<WatchItem>> for WatchBatch {
    /// Creates a batch that was read at the current time.
    fn from(items: Vec<WatchItem>) -> Self {
        Self { items, followed: clock::now().into() }
    }
}

/// Batches of one WATCH as they arrive. Ends without an error if the server ends the watch regularly.
pub type WatchStream = BoxStream<'static, Result<WatchBatch, SourceError>>;

/// Maximum number of chunks that [`listed_version`] reads, in case the server ignores the limit of one object.
const MAX_CHUNKS: usize = 64;

/// Lists one object and returns the version of the list; `None` if the server ignores the limit and sends many chunks.
pub fn listed_version(
    source: &(impl ListerWatcher + ?Sized),
) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
    let request = ListRequest { version: VersionMatch::MostRecent, limit: Some(1), continue_token: None };
    let listing = source.list(request);
    Box::pin(async move {
        let mut chunks = listing.await?.take(MAX_CHUNKS);
        while let Some(chunk) = chunks.next().await {
            if let ListChunk::End { version, .. } = chunk? {
                return Ok(Some(version));
            }
        }
        Ok(None)
    })
}

/// List and watch of one resource of one cluster.
///
/// # Contract
/// - The implementation reads the socket in its own task, and queues a bounded number of decoded items.
/// - Dropping a future or a stream ends the request.
/// - No answer makes the implementation panic, and the memory for an answer is bounded.
pub trait ListerWatcher: Debug + Send + Sync + 'static {
    /// Requests one page. The future resolves when the response headers have arrived.
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>>;

    /// Opens a watch. The future resolves when the response headers have arrived.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>>;

    /// Returns the current version of the resource; by default, the result of [`listed_version`].
    ///
    /// A version below an earlier one means that the server's etcd was restored from a backup. An implementation whose
    /// versions can decrease for other reasons returns `None`.
    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        listed_version(self)
    }

    /// Returns the encoding of the last response, or of the next request if that is known to have another encoding.
    /// `None` before the first response, and for sources without encodings.
    fn encoding(&self) -> Option<EncodingInUse> {
        None
    }

    /// Frees memory that the decoder keeps for objects that no longer exist. Called if memory is short while no list or
    /// watch is open.
    fn trim(&self) {}
}

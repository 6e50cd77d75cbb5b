//! Interface of the reflector's state machine: its options, the steps it asks for, and the verdicts it gives.

use std::time::Duration;

use super::backoff::Backoff;
use super::lister_watcher::{ListRequest, WatchRequest};
use informer_hub_codec::{ErrorClass, SourceError};
use informer_hub_types::ResourceVersion;
use informer_hub_types::clock::Instant;

/// Deadlines for a server that sends nothing.
///
/// A watch without events is not a failure by itself. A quiet resource has no events. Most apiservers send a bookmark
/// about once a minute, but aggregated apiservers may send none. However, a server ends each watch at its timeout, so a
/// watch that stays open longer has a dead connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallPolicy {
    /// Maximum wait for the response headers of a watch. Default 30 s.
    pub watch_head: Duration,
    /// Maximum wait for the response headers of a list. Default 60 s, an apiserver's own request timeout: older
    /// apiservers encode the whole list before they send the first byte.
    pub list_head: Duration,
    /// Maximum time between two chunks of a list. Default 30 s.
    pub list_chunk: Duration,
    /// Time that a watch may stay open and silent beyond its timeout. Default 10 s.
    pub watch_slack: Duration,
    /// Maximum time between two initial events of a streaming list. Default 30 s.
    pub initial_events: Duration,
}

impl Default for StallPolicy {
    fn default() -> Self {
        Self {
            watch_head: Duration::from_secs(30),
            list_head: Duration::from_secs(60),
            list_chunk: Duration::from_secs(30),
            watch_slack: Duration::from_secs(10),
            initial_events: Duration::from_secs(30),
        }
    }
}

/// Bounds of one list. A list beyond a bound ends with an error, and a new list begins after a backoff.
///
/// The defaults allow 50 million objects in pages of 500. A list also ends with an error if a continue token repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListBounds {
    /// Maximum number of pages. Default 100,000.
    pub pages: u64,
    /// Maximum number of items, including skipped ones. Default 50 million.
    pub items: u64,
    /// Maximum total time that a list may wait for the server. Waits of the hub for free memory do not count. Default 1
    /// h.
    pub time: Duration,
    /// Number of empty pages in a row at which the list ends with an error. Default 16. After each empty page, the
    /// reflector pauses: 100 ms at first, doubling up to 2 s.
    pub empty_pages: u32,
}

impl Default for ListBounds {
    fn default() -> Self {
        Self { pages: 100_000, items: 50_000_000, time: Duration::from_secs(3600), empty_pages: 16 }
    }
}

/// Options of a reflector.
#[derive(Debug, Clone)]
pub struct ReflectorOptions {
    /// Whether to try streaming lists first. Default true; unsupported servers are detected.
    pub streaming_list: bool,
    /// Page size of every list. Unset: 500 if the apiserver reads from etcd, else everything in one page.
    pub page_size: Option<u32>,
    /// Minimum watch timeout `t`; each timeout is drawn at random from `[t, 2t)`. Default 5 min.
    pub min_watch_timeout: Duration,
    /// Limit of the delay after a 401, 403 or 404, which usually need an operator. For each failure, the limit is drawn
    /// at random from `[t, 2t)`, where `t` is this value. Default 30 s.
    pub slow_retry: Duration,
    /// Minimum wait before a watch is reopened after it had worked and its connection broke. Each wait is drawn at
    /// random from `[t, 2t)`, where `t` is this value, and does not grow. Default 100 ms.
    pub reopen: Duration,
    /// Backoff after failures. Default: 800 ms, doubling up to 30 s, each drawn from `[d, 2d)`; resets after 2 min
    /// without a failure.
    pub backoff: Backoff,
    /// Deadlines for a server that sends nothing.
    pub stall: StallPolicy,
    /// Bounds of one list.
    pub list: ListBounds,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            streaming_list: true,
            page_size: None,
            min_watch_timeout: Duration::from_secs(300),
            slow_retry: Duration::from_secs(30),
            reopen: Duration::from_millis(100),
            backoff: Backoff::default(),
            stall: StallPolicy::default(),
            list: ListBounds::default(),
        }
    }
}

/// The next action of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Request a page of a list.
    List {
        /// Request for the page.
        request: ListRequest,
        /// Whether this is the first page of a new list. If so, the driver discards an incomplete list before it.
        fresh: bool,
    },
    /// Read the server's current resource version, before a watch is reopened.
    Check,
    /// Open a watch. If `request.initial_events` is set, the watch first sends all objects (a streaming list).
    Watch {
        /// Request that opens the watch.
        request: WatchRequest,
    },
    /// Do nothing until a time.
    Wait {
        /// The end of the wait.
        until: Instant,
        /// Why the driver waits.
        reason: WaitReason,
    },
}

/// The reason of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A failure of this class.
    Failure(ErrorClass),
    /// The server ends watches right after it opened them.
    ShortWatch,
    /// The last page was empty or had less than a tenth of the requested items, and another page follows.
    ThinPage,
}

/// Next action of the driver after the end of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageVerdict {
    /// More pages follow.
    NextPage,
    /// The list is complete at this version.
    ListComplete(ResourceVersion),
    /// The list makes no progress, or is beyond its bounds. The driver reports the error to
    /// [`Reflector::on_list_error`](super::Reflector::on_list_error).
    GivenUp(SourceError),
}

/// How the driver handles a watch item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemVerdict {
    /// An event before the end of the initial events of a streaming list. The driver adds the event's object to the
    /// initial state; if the event is DELETED, it removes the object.
    Initial,
    /// The initial state is complete at this version. The stream continues as a watch.
    InitialEventsEnd(ResourceVersion),
    /// A change of an object. The driver passes it on.
    Apply,
    /// The event changes nothing: do not pass it on.
    Nothing,
}

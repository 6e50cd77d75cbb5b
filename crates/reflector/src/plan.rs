//! What a reflector is told and what it answers: its options, its steps and its verdicts.

use std::time::Duration;

use super::{Backoff, ErrorClass, ListRequest, SourceError, WatchRequest};
use informer_hub_types::ResourceVersion;
use informer_hub_types::clock::Instant;

/// How long a source may be silent before it counts as broken.
///
/// Silence of a watch is no fault by itself: apiservers send a bookmark about once a minute, but aggregated ones may
/// send none, and a quiet resource has no events. What is certain is that the server ends the watch after the time
/// that was asked for; later than that, plus a little, the connection is dead. HTTP heads and lists have no such
/// excuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallPolicy {
    /// Until the head of a watch's answer. Default 30 s.
    pub watch_head: Duration,
    /// Until the head of a list's answer. Default 60 s, an apiserver's own limit on a request: older ones encode the
    /// whole list before they send the first byte.
    pub list_head: Duration,
    /// Between two pieces of a list. Default 30 s.
    pub list_chunk: Duration,
    /// Added to a watch's own timeout. Default 10 s.
    pub watch_slack: Duration,
    /// Without any progress of a streaming list's initial events. Default 30 s.
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

/// Bounds of one list. A list that reaches one ends with an error, and another list begins after a backoff.
///
/// The defaults leave room for fifty times a million objects in pages of 500. Beside them a list ends when the server
/// repeats a continue token, after whatever number of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListBounds {
    /// Pages. Default 100,000.
    pub pages: u64,
    /// Items, skipped ones included. Default 50 million.
    pub items: u64,
    /// Time that the reflector waits for the server. Waits for room in memory do not count. Default 1 h.
    pub time: Duration,
    /// Pages in a row without an item. Default 16.
    ///
    /// An empty page that has a continue token is followed by a pause of 100 ms, doubling up to 2 s.
    pub empty_pages: u32,
}

impl Default for ListBounds {
    fn default() -> Self {
        Self { pages: 100_000, items: 50_000_000, time: Duration::from_secs(3600), empty_pages: 16 }
    }
}

/// What can be set of a reflector.
#[derive(Debug, Clone)]
pub struct ReflectorOptions {
    /// Whether streaming lists are tried first. Default true; servers that do not do them are found out.
    pub streaming_list: bool,
    /// Page size of every list; unset: 500 where the apiserver would go to etcd anyway, else everything at once.
    pub page_size: Option<u32>,
    /// Lower end of a watch's timeout, which is drawn from `[t, 2t)`. Default 5 min.
    pub min_watch_timeout: Duration,
    /// Lower end of the longest wait after a 401, 403 or 404, which mostly somebody has to mend; drawn from `[t, 2t)`. The
    /// first waits are those of the ordinary backoff. Default 30 s.
    pub slow_retry: Duration,
    /// Lower end of the wait before a watch that ran and was cut off is opened again; drawn from `[t, 2t)`. It is the
    /// same however often that happens. Default 100 ms.
    pub reopen: Duration,
    /// Waits after failures. Default 800 ms, doubling up to 30 s, each drawn from `[d, 2d)`; starts over after 2 min
    /// without a failure.
    pub backoff: Backoff,
    /// How long silence is borne.
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

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask for a page of a list.
    List {
        /// The request.
        request: ListRequest,
        /// Whether a list begins with it, and whatever was listed before and not completed is void.
        fresh: bool,
    },
    /// Open a watch. With `initial_events`, a list begins with it.
    Watch {
        /// The request.
        request: WatchRequest,
    },
    /// Do nothing for now.
    Wait {
        /// Until then.
        until: Instant,
        /// What for.
        reason: WaitReason,
    },
}

/// Why a reflector waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// After a failure of this class.
    Failure(ErrorClass),
    /// The server ends watches as soon as they are open.
    ShortWatch,
    /// The last page of a list brought nothing, or next to nothing.
    ThinPage,
}

/// What the end of a page means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageVerdict {
    /// There are more pages.
    NextPage,
    /// The list is complete at this version.
    ListComplete(ResourceVersion),
    /// The list makes no progress, or is beyond its bounds. The driver reports the error to
    /// [`Reflector::on_list_error`](super::Reflector::on_list_error).
    GivenUp(SourceError),
}

/// What to make of a watch item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemVerdict {
    /// Part of the initial state of a streaming list: an object of the list (or, DELETED, one that it had).
    Initial,
    /// The initial state is complete at this version; the same stream goes on as the watch.
    InitialEventsEnd(ResourceVersion),
    /// Something happened to an object.
    Apply,
    /// Nothing to hand on.
    Nothing,
}

//! Lanes: each lane opens and keeps the HTTP/2 connections for one kind of request, either watches or lists.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use informer_hub_types::HttpVersions;
use informer_hub_types::clock::{self, Instant};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::connection::{Http2, Vacancy};
use super::dialer::{BoxError, CONNECT_TIMEOUT, Dialer, Offer};
use super::error::{SendError, Unusable};
use super::gauges::{Gauges, OpenReason};
use super::http1::Spare;
use super::link::Link;

/// How long a server that chose HTTP/1.1 is not offered HTTP/2 again.
const HTTP1_FOR: Duration = Duration::from_secs(600);
/// Interval of the idle check. A connection without requests is closed after one to two intervals.
const IDLE: Duration = Duration::from_secs(5);

/// Kind of a request. Requests of one lane share connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lane {
    /// Many long answers with little data: watches. The default.
    #[default]
    Watch,
    /// Long answers with much data, which would delay watches: lists.
    Bulk,
}

impl Lane {
    /// Returns the maximum number of streams of a connection. The streams share the connection's flow-control window.
    /// So this number also decides the largest window of a stream: 512 KiB for watches, 2 MiB for lists.
    fn streams(self) -> u32 {
        match self {
            Self::Watch => 256,
            Self::Bulk => 64,
        }
    }
}

/// Connection on which a request is sent.
pub(crate) enum Route {
    /// A stream of an HTTP/2 connection.
    Http2(Vacancy),
    /// An HTTP/1.1 connection: the configuration demands it, or the server chose it.
    Http1,
}

type Dialing = Shared<BoxFuture<'static, Result<(), Arc<dyn Error + Send + Sync>>>>;

/// Opener of connections, for HTTP/2 and HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) versions: HttpVersions,
    pub(crate) dialer: Dialer,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) spare: Spare,
    /// Time until which HTTP/2 is not offered to the server, because it chose HTTP/1.1; `None` if it never did.
    http1_until: Mutex<Option<Instant>>,
}

impl Opener {
    pub(crate) fn new(versions: HttpVersions, dialer: Dialer, gauges: Arc<Gauges>) -> Self {
        Self { versions, dialer, gauges, spare: Spare::default(), http1_until: Mutex::new(None) }
    }

    /// Returns whether requests use HTTP/1.1 because it is configured or the server chose it recently.
    pub(crate) fn uses_http1(&self) -> bool {
        let is_remembered = || self.http1_until.lock().is_some_and(|until| clock::now() < until);
        self.versions == HttpVersions::Http1 || self.versions == HttpVersions::Auto && is_remembered()
    }

    /// Remembers that the server speaks HTTP/1.1. Returns `false` if the configuration requires HTTP/2.
    pub(crate) fn remember_http1(&self) -> bool {
        if self.versions == HttpVersions::Http2 {
            return false;
        }
        *self.http1_until.lock() = Some(clock::now() + HTTP1_FOR);
        true
    }

    /// Opens a connection; `None` if the server chose HTTP/1.1.
    async fn open(&self, lane: Lane, reason: OpenReason) -> Result<Option<Http2>, BoxError> {
        let offer = if self.versions == HttpVersions::Http2 { Offer::Http2 } else { Offer::Both };
        let opened = self.dialer.open(offer).await?;
        let link = Link::new(opened.stream, &self.gauges);
        if !opened.is_http2 {
            if !self.remember_http1() {
                return Err(Unusable::NoHttp2.into());
            }
            self.spare.put(link.of_http1());
            return Ok(None);
        }
        let connection = Http2::start(link, lane.streams(), &self.gauges).await?;
        self.gauges.opened(reason);
        Ok(Some(connection))
    }
}

pub(crate) struct Connections {
    lane: Lane,
    opener: Arc<Opener>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Open connections, oldest first. Requests use the oldest one that has room for a stream, so that the others
    /// become idle.
    connections: Vec<Http2>,
    /// Present attempt to open a connection; `None` if there is none.
    dialing: Option<Dialing>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("lane", &self.lane).finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(lane: Lane, opener: Arc<Opener>) -> Arc<Self> {
        Arc::new(Self { lane, opener, open: Mutex::default() })
    }

    /// Returns the connection for a request. Opens one if all are full; concurrent calls share the attempt.
    pub(crate) async fn route(self: &Arc<Self>) -> Result<Route, SendError> {
        loop {
            if self.opener.uses_http1() {
                return Ok(Route::Http1);
            }
            let dialing = {
                let mut open = self.open.lock();
                open.connections.retain(|connection| !connection.is_retired());
                if let Some(vacancy) = open.connections.iter().find_map(Http2::occupy) {
                    return Ok(Route::Http2(vacancy));
                }
                open.dialing.take_if(|dialing| dialing.peek().is_some());
                let reason = if open.connections.is_empty() { OpenReason::First } else { OpenReason::StreamLimit };
                open.dialing.get_or_insert_with(|| dial(self, reason)).clone()
            };
            dialing.await.map_err(SendError::Connect)?;
        }
    }
}

/// Opens a connection in a task of its own, so that a cancelled caller does not abort it for the other callers.
fn dial(connections: &Arc<Connections>, reason: OpenReason) -> Dialing {
    let (lane, opener, weak) = (connections.lane, Arc::clone(&connections.opener), Arc::downgrade(connections));
    let task = tokio::spawn(async move {
        let result = timeout(CONNECT_TIMEOUT, opener.open(lane, reason)).await.map_err(|_| Unusable::TimedOut)?;
        let Some(connection) = result? else { return Ok(()) };
        let Some(connections) = weak.upgrade() else { return Ok(()) };
        if connection.room() == 0 {
            return Err(Unusable::NoStreams.into());
        }
        tokio::spawn(close_when_idle(Weak::clone(&weak), connection.id()));
        connections.open.lock().connections.push(connection);
        Ok::<_, BoxError>(())
    });
    let result = async move { task.await.unwrap_or_else(|_| Err(Unusable::Interrupted.into())).map_err(Arc::from) };
    result.boxed().shared()
}

/// Checks a connection at intervals of [`IDLE`], and closes it once a whole interval has passed without a request.
async fn close_when_idle(connections: Weak<Connections>, id: usize) {
    loop {
        sleep(IDLE).await;
        let Some(connections) = connections.upgrade() else { return };
        let mut open = connections.open.lock();
        let Some(at) = open.connections.iter().position(|connection| connection.id() == id) else { return };
        if open.connections[at].is_idle() {
            open.connections.remove(at);
            return;
        }
    }
}

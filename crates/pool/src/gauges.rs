//! Counts of connections and running requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use informer_hub_types::{CloseCounts, ClusterTraffic, OpenCounts};

/// Gauges of all connections to one server. Several pools may share them.
#[derive(Debug, Default)]
pub struct Gauges {
    connections: AtomicUsize,
    requests: AtomicUsize,
    is_http2: AtomicBool,
    opened: [AtomicU64; 3],
    closed: [AtomicU64; 6],
}

/// Why a connection was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpenReason {
    First,
    StreamLimit,
    Http1,
}

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseReason {
    Idle,
    Goaway,
    PingTimeout,
    StreamLimit,
    Failed,
    Http1,
}

impl Gauges {
    /// Returns the present values.
    #[must_use]
    pub fn read(&self) -> ClusterTraffic {
        let [first, stream_limit, http1] = self.opened.each_ref().map(|count| count.load(Relaxed));
        let opened = OpenCounts { first, stream_limit, http1 };
        let protocol = if self.is_http2.load(Relaxed) { "HTTP/2" } else { "HTTP/1.1" };
        let [idle, goaway, ping_timeout, stream_limit, failed, http1] =
            self.closed.each_ref().map(|count| count.load(Relaxed));
        ClusterTraffic {
            protocol: (opened != OpenCounts::default()).then_some(protocol),
            connections: self.connections.load(Relaxed),
            requests: self.requests.load(Relaxed),
            opened,
            closed: CloseCounts { idle, goaway, ping_timeout, stream_limit, failed, http1 },
        }
    }

    pub(crate) fn opened(&self, reason: OpenReason) {
        self.is_http2.store(!matches!(reason, OpenReason::Http1), Relaxed);
        self.opened[reason as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self, reason: CloseReason) {
        self.closed[reason as usize].fetch_add(1, Relaxed);
    }
}

/// Guard that counts a connection as open until the guard is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    gauges: Arc<Gauges>,
    /// Close reason to count on drop; `None` for HTTP/2, where the `Http2` connection counts it.
    end: Option<CloseReason>,
}

impl CountedConnection {
    pub(crate) fn new(gauges: &Arc<Gauges>) -> Self {
        gauges.connections.fetch_add(1, Relaxed);
        Self { gauges: Arc::clone(gauges), end: None }
    }

    /// Marks the connection as HTTP/1.1: counts it as opened now, and as closed when this guard is dropped.
    pub(crate) fn is_http1(&mut self) {
        self.gauges.opened(OpenReason::Http1);
        self.end = Some(CloseReason::Http1);
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.gauges.connections.fetch_sub(1, Relaxed);
        self.end.into_iter().for_each(|end| self.gauges.closed(end));
    }
}

/// Guard that counts a request as running until the guard is dropped.
#[derive(Debug)]
pub(crate) struct CountedRequest(Arc<Gauges>);

impl CountedRequest {
    pub(crate) fn new(gauges: &Arc<Gauges>) -> Self {
        gauges.requests.fetch_add(1, Relaxed);
        Self(Arc::clone(gauges))
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

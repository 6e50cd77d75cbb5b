//! Counts of open connections and running requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Gauges of all connections to one server. Several pools may share them.
#[derive(Debug, Default)]
pub struct Gauges {
    connections: AtomicUsize,
    requests: AtomicUsize,
    is_http2: AtomicBool,
}

/// Values of [`Gauges`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Open connections.
    pub connections: usize,
    /// Running requests, including watches.
    pub requests: usize,
    /// Whether the last connection was of HTTP/2.
    pub is_http2: bool,
}

impl Gauges {
    /// Returns the present values.
    #[must_use]
    pub fn read(&self) -> Traffic {
        Traffic {
            connections: self.connections.load(Relaxed),
            requests: self.requests.load(Relaxed),
            is_http2: self.is_http2.load(Relaxed),
        }
    }

    pub(crate) fn connected(&self, is_http2: bool) {
        self.is_http2.store(is_http2, Relaxed);
    }
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection(Arc<Gauges>);

impl CountedConnection {
    pub(crate) fn new(gauges: &Arc<Gauges>) -> Self {
        gauges.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(gauges))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Counts a request until it is dropped.
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

//! Connections to a cluster, as the status and metrics show them.

use serde::Serialize;

/// Open connections to a cluster, and their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTraffic {
    /// Protocol of the last connection, such as `HTTP/2`; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// Open connections.
    pub connections: usize,
    /// Running requests, including watches. Over HTTP/2 each is a stream of a connection.
    pub requests: usize,
    /// Connections opened, by reason.
    pub opened: OpenCounts,
    /// Connections closed, by reason.
    pub closed: CloseCounts,
}

/// Connections opened, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenCounts {
    /// There was no connection for requests of this kind.
    pub first: u64,
    /// The other connections had as many streams as their limits allow.
    pub stream_limit: u64,
    /// The protocol is HTTP/1.1, with a connection per request.
    pub http1: u64,
}

/// Connections closed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloseCounts {
    /// There was no request for some seconds.
    pub idle: u64,
    /// The server ended the connection with a GOAWAY.
    pub goaway: u64,
    /// The server did not answer a PING.
    pub ping_timeout: u64,
    /// The server refused a stream below its own limit.
    pub stream_limit: u64,
    /// The connection broke, or a side violated the protocol.
    pub failed: u64,
    /// The protocol was HTTP/1.1.
    pub http1: u64,
}

impl OpenCounts {
    /// Returns the counts with the words of metrics.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [("first", self.first), ("stream_limit", self.stream_limit), ("http1", self.http1)]
    }
}

impl CloseCounts {
    /// Returns the counts with the words of metrics.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 6] {
        [
            ("idle", self.idle),
            ("goaway", self.goaway),
            ("ping_timeout", self.ping_timeout),
            ("stream_limit", self.stream_limit),
            ("failed", self.failed),
            ("http1", self.http1),
        ]
    }
}

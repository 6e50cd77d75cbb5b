//! Connections to a cluster, as the status and metrics show them.

use serde::Serialize;

/// Open connections to a cluster, and their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTraffic {
    /// Protocol of the last connection, such as `HTTP/2`; absent before the first connection.
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
    /// Opened because no usable connection for this kind of request (watches or lists) existed.
    pub first: u64,
    /// Opened because the other connections had as many streams as their limits allow.
    pub stream_limit: u64,
    /// Opened for HTTP/1.1, where a connection carries one request at a time.
    pub http1: u64,
}

/// Connections closed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloseCounts {
    /// Closed by the hub, usually after some seconds without a request.
    pub idle: u64,
    /// Closed because the server sent a GOAWAY.
    pub goaway: u64,
    /// Closed because the server did not answer a PING.
    pub ping_timeout: u64,
    /// Closed because the server refused a stream although no other stream was open.
    pub stream_limit: u64,
    /// Closed because the connection broke, or a side violated the protocol.
    pub failed: u64,
    /// Closed connections of HTTP/1.1, for any reason.
    pub http1: u64,
}

impl OpenCounts {
    /// Returns each count with its reason as metrics name it.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [("first", self.first), ("stream_limit", self.stream_limit), ("http1", self.http1)]
    }
}

impl CloseCounts {
    /// Returns each count with its reason as metrics name it.
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

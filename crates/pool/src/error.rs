//! Failures of connections and requests, with texts for operators.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::Error as Http1Error;

/// Reason why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Opening a connection failed. All requests that waited for the connection share the cause.
    #[error("{0}")]
    Connect(Arc<dyn Error + Send + Sync>),
    /// The HTTP/1.1 connection failed.
    #[error(transparent)]
    Http1(#[from] Http1Error),
    /// The HTTP/2 stream failed. For HTTP/1.1: the byte stream failed before the request was sent.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// Reason why a new connection is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// Opening the connection took longer than its deadline.
    #[error("connecting took too long")]
    TimedOut,
    /// The server chose HTTP/1.1, but the configuration requires HTTP/2.
    #[error("the server does not offer HTTP/2; set http = \"1.1\" or \"auto\"")]
    NoHttp2,
    /// The server announced a limit of zero streams.
    #[error("the server accepts no request on a new HTTP/2 connection")]
    NoStreams,
    /// The task that opens the connection was cancelled.
    #[error("the attempt to connect was cancelled")]
    Interrupted,
}

/// Reason why an HTTP/2 stream ended before its answer did.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StreamError {
    /// The server did not answer a PING.
    #[error("no answer to a PING within {} s", .0.as_secs())]
    Silent(Duration),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server ended the stream with `RST_STREAM`.
    #[error("the server reset the stream: {0}")]
    Reset(h2::Reason),
    /// The server ended the connection with `GOAWAY`. If the reason is `NO_ERROR`, it did not process this request;
    /// otherwise it may have.
    #[error("the server is closing the connection: {0}")]
    GoingAway(h2::Reason),
    /// The connection failed. All its requests share the error of the byte stream, which names a TLS alert.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// One side violated the HTTP/2 protocol.
    #[error("{0}")]
    Protocol(String),
}

impl StreamError {
    /// Returns whether the server has not processed the request, so that it can be sent again.
    pub(crate) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::Reset(h2::Reason::REFUSED_STREAM) | Self::GoingAway(h2::Reason::NO_ERROR))
    }

    /// Returns whether the connection broke, so that it is unknown whether the server processed the request.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_) | Self::Silent(_))
    }

    /// Returns whether the server demands HTTP/1.1 for the request.
    pub(crate) fn demands_http1(&self) -> bool {
        matches!(self, Self::Reset(h2::Reason::HTTP_1_1_REQUIRED) | Self::GoingAway(h2::Reason::HTTP_1_1_REQUIRED))
    }
}

impl From<&h2::Error> for StreamError {
    fn from(error: &h2::Error) -> Self {
        if let Some(io) = error.get_io() {
            // h2 reports the end of the connection as a broken pipe.
            return match io.kind() {
                io::ErrorKind::BrokenPipe => Self::Closed,
                kind => Self::Io(Arc::new(io::Error::new(kind, io.to_string()))),
            };
        }
        match error.reason() {
            Some(reason) if error.is_remote() && error.is_reset() => Self::Reset(reason),
            Some(reason) if error.is_remote() && error.is_go_away() => Self::GoingAway(reason),
            _ => Self::Protocol(error.to_string()),
        }
    }
}

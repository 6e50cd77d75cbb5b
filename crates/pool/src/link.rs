//! Byte stream that is counted as a connection, notes when bytes arrive, and keeps the error that ends it.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use informer_hub_dial::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::gauges::{CountedConnection, Gauges};

/// State of a byte stream that its connection and the health check share.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Set when bytes arrive; cleared by the health check.
    has_arrived: AtomicBool,
    /// The error of the first failed read, for error messages. Errors of HTTP/2 contain only the kind and text of this
    /// error. Errors of HTTP/1.1 do not mention it if the request was not sent yet.
    failure: OnceLock<Arc<io::Error>>,
}

/// Error that a reader of the stream gets for a failed read. [`Activity`] keeps the same error, for error messages.
#[derive(Debug)]
struct SharedError(Arc<io::Error>);

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.get_ref().map(|inner| inner as _)
    }
}

impl Activity {
    /// Returns whether bytes have arrived since the last call.
    pub(crate) fn take(&self) -> bool {
        self.has_arrived.swap(false, Relaxed)
    }

    /// Returns the error of the first failed read; `None` if none has failed.
    pub(crate) fn failure(&self) -> Option<Arc<io::Error>> {
        self.failure.get().cloned()
    }

    /// Keeps the error of a failed read for [`Self::failure`]. Returns an error of the same kind and text for the
    /// reader.
    fn keep(&self, error: io::Error) -> io::Error {
        let (kind, error) = (error.kind(), Arc::new(error));
        // Ignore the error: the first failure is kept.
        let _ = self.failure.set(Arc::clone(&error));
        io::Error::new(kind, SharedError(error))
    }
}

pub(crate) struct Link {
    stream: Box<dyn Stream>,
    activity: Arc<Activity>,
    counted: CountedConnection,
}

impl Link {
    pub(crate) fn new(stream: Box<dyn Stream>, gauges: &Arc<Gauges>) -> Self {
        Self { stream, activity: Arc::default(), counted: CountedConnection::new(gauges) }
    }

    /// Returns the stream, counted as a connection of HTTP/1.1.
    pub(crate) fn of_http1(mut self) -> Self {
        self.counted.is_http1();
        self
    }

    /// Returns the state that the link shares with the connection on it.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.has_arrived.store(true, Relaxed);
        }
        match read {
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.activity.keep(error))),
            read => read,
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! Byte stream that is counted as a connection and notes when bytes arrive.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use informer_hub_dial::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::gauges::{CountedConnection, Gauges};

/// Flag that the connection sets when bytes arrive and the health check clears.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicBool);

impl Activity {
    /// Returns whether bytes have arrived since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
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
            self.activity.0.store(true, Relaxed);
        }
        read
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

//! A connection of the simulated server: counted, and able to end in a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use super::shared::Shared;

/// What an answer can do to its connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    reset: AtomicBool,
}

impl Link {
    /// Makes the connection end in a TCP reset once it is dropped; the error makes hyper drop it.
    pub(super) fn reset(&self) -> io::Error {
        self.reset.store(true, Relaxed);
        io::Error::new(io::ErrorKind::ConnectionReset, "reset by the fault script")
    }
}

/// What connections are made of.
pub(super) trait Transit: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Has small writes go at once.
    fn hurry(&self) {}

    /// Makes it end in a reset when it is dropped.
    fn reset(&self) {}
}

// Where something of this fails the peer sees an ordinary close, which cuts its answer as well, or waits a little longer.
impl Transit for TcpStream {
    fn hurry(&self) {
        let _ = self.set_nodelay(true);
    }

    fn reset(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Transit for DuplexStream {}

#[derive(Debug)]
pub(super) struct Connection<S: Transit> {
    stream: S,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

impl<S: Transit> Connection<S> {
    pub(super) fn new(stream: S, link: Arc<Link>, shared: Arc<Shared>) -> Self {
        shared.counters.connections.fetch_add(1, Relaxed);
        shared.counters.open_connections.fetch_add(1, Relaxed);
        stream.hurry();
        Self { stream, link, shared }
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.shared.counters.bytes_sent.fetch_add(*bytes as u64, Relaxed);
        }
    }
}

impl<S: Transit> Drop for Connection<S> {
    fn drop(&mut self) {
        self.shared.counters.open_connections.fetch_sub(1, Relaxed);
        if self.link.reset.load(Relaxed) {
            self.stream.reset();
        }
    }
}

impl<S: Transit> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Transit> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(&written);
        written
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

//! Server connection that counts bytes and can end in a TCP reset.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::shared::Shared;

/// Handle by which an HTTP answer acts on its connection, e.g. resets it.
#[derive(Debug, Default)]
pub(super) struct Link {
    reset: AtomicBool,
    orders: Mutex<VecDeque<Order>>,
    ordered: Notify,
}

/// Action on a connection, requested by a faulty HTTP answer.
#[derive(Debug)]
pub(super) enum Order {
    /// Drop the connection.
    Drop,
    /// Send a GOAWAY: the connection takes no further requests.
    GoAway,
    /// Neither read nor send on the connection for this long.
    Freeze(Duration),
}

impl Link {
    /// Makes the connection end in a TCP reset. Returns an error for hyper, which then drops the connection or resets
    /// the HTTP/2 stream.
    pub(super) fn reset(&self) -> io::Error {
        self.reset.store(true, Relaxed);
        self.order(Order::Drop);
        io::Error::new(io::ErrorKind::ConnectionReset, "reset by the fault script")
    }

    pub(super) fn order(&self, order: Order) {
        self.orders.lock().push_back(order);
        self.ordered.notify_one();
    }

    pub(super) async fn next_order(&self) -> Order {
        loop {
            let order = self.orders.lock().pop_front();
            match order {
                Some(order) => return order,
                None => self.ordered.notified().await,
            }
        }
    }
}

pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Disables the delay of small writes (Nagle's algorithm).
    fn set_no_delay(&self) {}

    /// Makes dropping the stream send a reset.
    fn reset_on_drop(&self) {}
}

// Errors are ignored. The peer then sees small delays, or an ordinary close, which also truncates the answer.
impl Transport for TcpStream {
    fn set_no_delay(&self) {
        let _ = self.set_nodelay(true);
    }

    fn reset_on_drop(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Transport for DuplexStream {}

#[derive(Debug)]
pub(super) struct Connection<S: Transport> {
    stream: S,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

impl<S: Transport> Connection<S> {
    pub(super) fn new(stream: S, link: Arc<Link>, shared: Arc<Shared>) -> Self {
        shared.counters.connections.fetch_add(1, Relaxed);
        shared.counters.open_connections.fetch_add(1, Relaxed);
        stream.set_no_delay();
        Self { stream, link, shared }
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.shared.counters.bytes_sent.fetch_add(*bytes as u64, Relaxed);
        }
    }
}

impl<S: Transport> Drop for Connection<S> {
    fn drop(&mut self) {
        self.shared.counters.open_connections.fetch_sub(1, Relaxed);
        if self.link.reset.load(Relaxed) {
            self.stream.reset_on_drop();
        }
    }
}

impl<S: Transport> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Transport> AsyncWrite for Connection<S> {
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

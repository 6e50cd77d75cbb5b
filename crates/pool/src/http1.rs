//! HTTP/1.1 with one connection per running request.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as Http1Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use informer_hub_types::clock::{self, Instant};
use parking_lot::Mutex;
use tower::Service;

use super::dialer::{BoxError, CONNECT_TIMEOUT, Dialer, Offer};
use super::error::{SendError, StreamError, Unusable};
use super::gauges::Gauges;
use super::link::{Activity, Link};

/// How long an idle connection is kept. In this time the next page of a list, or the watch after the list, can use it.
/// A connection takes at least 30 KB, in the apiserver too.
const IDLE: Duration = Duration::from_secs(2);

/// Read buffer limit of a connection, in bytes. With hyper's default of 400 KiB, a buffer that a long list has enlarged
/// would stay that large for a watch on the connection. A list is read as fast with this limit.
const READ: usize = 32 * 1024;

/// Connection that was opened for HTTP/2, but on which the server chose HTTP/1.1. It is kept for the next HTTP/1.1
/// request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(Arc<Mutex<Option<(Link, Instant)>>>);

impl Spare {
    pub(crate) fn put(&self, link: Link) {
        *self.0.lock() = Some((link, clock::now()));
    }

    /// Takes the connection. Returns `None` if there is none, or if it is older than [`IDLE`], since the server may
    /// have closed it.
    fn take(&self) -> Option<Link> {
        let (link, opened) = self.0.lock().take()?;
        (clock::now() < opened + IDLE).then_some(link)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Http1 {
    client: Client<Connector, Full<Bytes>>,
    newest: Newest,
}

/// State of the connection that was opened last, including the I/O error that ended it. `None` before the first
/// connection.
type Newest = Arc<Mutex<Option<Arc<Activity>>>>;

impl Http1 {
    pub(crate) fn new(dialer: Dialer, spare: Spare, gauges: Arc<Gauges>) -> Self {
        let newest = Newest::default();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(READ)
            .build(Connector { dialer, spare, gauges, newest: Arc::clone(&newest) });
        Self { client, newest }
    }

    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, SendError> {
        self.client.request(request.map(Full::new)).await.map_err(|error| match self.failure() {
            Some(failure) if is_unsent(&error) => StreamError::Io(failure).into(),
            _ => error.into(),
        })
    }

    /// Returns the I/O error of the connection that was opened last; `None` if it has none.
    ///
    /// If a request was not sent, this error names the cause, such as a client certificate that the server refused.
    /// hyper's error does not.
    fn failure(&self) -> Option<Arc<io::Error>> {
        self.newest.lock().as_ref()?.failure()
    }
}

/// Returns whether the connection ended before the request was sent.
fn is_unsent(error: &Http1Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(hyper::Error::is_canceled)
}

#[derive(Clone, Debug)]
struct Connector {
    dialer: Dialer,
    spare: Spare,
    gauges: Arc<Gauges>,
    newest: Newest,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<Link>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { dialer, spare, gauges, newest } = self.clone();
        async move {
            let used = |link: Link| {
                *newest.lock() = Some(link.activity());
                Ok(TokioIo::new(link))
            };
            if let Some(link) = spare.take() {
                return used(link);
            }
            let opened = tokio::time::timeout(CONNECT_TIMEOUT, dialer.open(Offer::Http1)).await;
            let opened = opened.map_err(|_| Unusable::TimedOut)??;
            if opened.is_http2 {
                return Err(io::Error::other("the server chose HTTP/2 although it was not offered").into());
            }
            used(Link::new(opened.stream, &gauges).of_http1())
        }
        .boxed()
    }
}

//! Opening of byte streams to the server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer_hub_dial::Stream;

/// Deadline for opening a connection, including TLS and the start of HTTP/2.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

type Opening = BoxFuture<'static, Result<Opened, BoxError>>;

/// Protocols to offer to the server by ALPN, if the stream has TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// HTTP/1.1 only, without ALPN.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// HTTP/2 and HTTP/1.1, with HTTP/2 preferred.
    Both,
}

/// An open byte stream.
pub struct Opened {
    /// The stream.
    pub stream: Box<dyn Stream>,
    /// Whether the server has chosen HTTP/2.
    pub is_http2: bool,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("is_http2", &self.is_http2).finish_non_exhaustive()
    }
}

/// Function that opens a byte stream to the server, with a TLS handshake if the stream has TLS.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(Offer) -> Opening + Send + Sync>);

impl Dialer {
    /// Creates a dialer that opens each stream with `open`. The pool sets the deadline.
    #[must_use]
    pub fn new<F>(open: impl Fn(Offer) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Opened, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |offer| open(offer).boxed()))
    }

    pub(crate) async fn open(&self, offer: Offer) -> Result<Opened, BoxError> {
        (self.0)(offer).await
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

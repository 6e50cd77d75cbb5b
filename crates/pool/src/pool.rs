//! HTTP client: chooses protocol, lane (watches or lists) and connection of each request, and repeats requests that the
//! server did not process.

use std::sync::Arc;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Method, Request, Response};
use informer_hub_types::HttpVersions;

use super::answer::Answer;
use super::dialer::Dialer;
use super::error::{SendError, StreamError};
use super::gauges::{CountedRequest, Gauges};
use super::http1::Http1;
use super::lane::{Connections, Lane, Opener, Route};

/// Maximum number of attempts for a request.
const ATTEMPTS: usize = 4;

/// HTTP client for one server. Clones share the connections.
///
/// A connection runs on the runtime of the request that opened it. Dropping all clones closes the connections once
/// their requests have ended.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    opener: Arc<Opener>,
    http1: Http1,
    watches: Arc<Connections>,
    bulk: Arc<Connections>,
}

impl Pool {
    /// Creates a client without connections.
    #[must_use]
    pub fn new(versions: HttpVersions, dialer: Dialer, gauges: Arc<Gauges>) -> Self {
        let opener = Arc::new(Opener::new(versions, dialer, gauges));
        Self(Arc::new(Inner {
            http1: Http1::new(opener.dialer.clone(), opener.spare.clone(), Arc::clone(&opener.gauges)),
            watches: Connections::new(Lane::Watch, Arc::clone(&opener)),
            bulk: Connections::new(Lane::Bulk, Arc::clone(&opener)),
            opener,
        }))
    }

    /// Sends a request with an absolute address and waits for the status and headers of the answer. The request's
    /// extensions have its kind, the [`Lane`]. Only opening a connection has a deadline.
    ///
    /// A request that the server has not processed is sent again immediately, up to three times. A GET or HEAD request
    /// is also sent again if its connection breaks and had been used before.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Answer>, SendError> {
        let lane = request.extensions().get::<Lane>().copied().unwrap_or_default();
        let connections = match lane {
            Lane::Watch => &self.0.watches,
            Lane::Bulk => &self.0.bulk,
        };
        let counted = CountedRequest::new(&self.0.opener.gauges);
        if request.headers().contains_key(UPGRADE) {
            return self.send_http1(request, counted).await;
        }
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut attempt = 1;
        loop {
            let Route::Http2(vacancy) = connections.route().await? else {
                return self.send_http1(request, counted).await;
            };
            let may_be_stale = is_safe && !vacancy.is_first;
            match vacancy.send(request.clone()).await {
                Ok(response) => return Ok(response.map(|body| Answer::http2(body, counted))),
                Err(error) if error.demands_http1() && self.0.opener.remember_http1() => {
                    return self.send_http1(request, counted).await;
                }
                Err(error) if attempt < ATTEMPTS && is_repeatable(&error, may_be_stale) => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn send_http1(
        &self,
        request: Request<Bytes>,
        counted: CountedRequest,
    ) -> Result<Response<Answer>, SendError> {
        let response = self.0.http1.send(request).await?;
        Ok(response.map(|body| Answer::http1(body, counted)))
    }
}

fn is_repeatable(error: &StreamError, may_be_stale: bool) -> bool {
    error.is_unprocessed() || may_be_stale && error.is_broken()
}

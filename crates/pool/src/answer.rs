//! Body of an HTTP response, over HTTP/1.1 or HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::connection::Http2Body;
use super::error::StreamError;
use super::gauges::CountedRequest;

/// Body of an answer. Dropping it cancels the request.
#[derive(Debug)]
pub struct Answer {
    body: Source,
    _counted: CountedRequest,
}

#[derive(Debug)]
enum Source {
    Http1(Incoming),
    Http2(Http2Body),
}

/// Error of a connection that ended before the answer did.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Failure of an HTTP/1.1 connection.
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    /// Failure of an HTTP/2 stream or its connection.
    #[error(transparent)]
    Http2(#[from] StreamError),
}

impl Answer {
    pub(crate) fn http1(body: Incoming, counted: CountedRequest) -> Self {
        Self { body: Source::Http1(body), _counted: counted }
    }

    pub(crate) fn http2(body: Http2Body, counted: CountedRequest) -> Self {
        Self { body: Source::Http2(body), _counted: counted }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match &mut self.body {
            Source::Http1(body) => Pin::new(body).poll_frame(cx).map_err(AnswerError::Http1),
            // Trailers are ignored.
            Source::Http2(body) => {
                let data = ready!(body.poll_data(cx));
                Poll::Ready(data.map(|data| data.map(Frame::data).map_err(AnswerError::Http2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Http1(body) => body.size_hint(),
            Source::Http2(_) => SizeHint::default(),
        }
    }
}

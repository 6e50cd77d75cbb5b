//! Response body that writes the last audit event of its request when the body ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::record::Record;

/// Adds the request's audit ID to the response as a header. The audit event is written at the end of the body.
pub(in crate::api) fn audited(response: Response<Body>, mut record: Record) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    record.answered(&mut head);
    // The connection polls neither the body of an answer to HEAD nor an empty body, so the answer is complete now.
    if record.is_head() || body.is_end_stream() {
        record.completed();
        return Response::from_parts(head, body);
    }
    Response::from_parts(head, Body::new(AuditedBody::new(body, record)))
}

/// Body that writes the audit event after its last part, or when it is dropped because the client has disconnected.
struct AuditedBody {
    inner: Body,
    record: Option<Record>,
    /// Bytes of the body that are still to be sent; `None` if the length is unknown. The audit event is written with
    /// the last byte, since the connection then does not poll the body again.
    left: Option<u64>,
}

impl AuditedBody {
    fn new(inner: Body, record: Record) -> Self {
        let left = inner.size_hint().exact();
        Self { inner, record: Some(record), left }
    }

    /// Writes the audit event of an answer that was sent completely.
    fn complete(&mut self) {
        if let Some(mut record) = self.record.take() {
            record.completed();
        }
    }
}

impl HttpBody for AuditedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.left = self.left.map(|left| left.saturating_sub(length as u64));
                self.record.iter_mut().for_each(|record| record.sent(length));
                if self.left == Some(0) || self.inner.is_end_stream() {
                    self.complete();
                }
            }
            Poll::Ready(None) => self.complete(),
            // The answer has broken off, so the event is written as incomplete.
            Poll::Ready(Some(Err(_))) => drop(self.record.take()),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

//! HTTP response of a [`RawAnswer`]: headers, and a body that is generated chunk by chunk.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::answer::RawAnswer;
use super::http::SimResponse;
use super::shared::Shared;

/// Maximum time for which an answer stays open after its last byte.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

pub(super) fn response(answer: &RawAnswer, shared: &Arc<Shared>) -> SimResponse {
    let body = Sending { answer: answer.clone(), sent: None, shared: Arc::clone(shared) };
    let frames = stream::unfold(body, |mut body| async move {
        let bytes = body.next().await?;
        Some((Ok::<_, io::Error>(Frame::data(bytes)), body))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

struct Sending {
    answer: RawAnswer,
    /// Number of bytes sent of the repeated filler text; `None` before the head is sent.
    sent: Option<usize>,
    shared: Arc<Shared>,
}

impl Sending {
    async fn next(&mut self) -> Option<Bytes> {
        let Some(sent) = self.sent else {
            self.sent = Some(0);
            if !self.answer.head.is_empty() {
                return Some(self.answer.head.clone());
            }
            return Box::pin(self.next()).await;
        };
        if sent < self.answer.length {
            self.sent = Some(sent.saturating_add(self.answer.filler.len()));
            return Some(self.answer.filler.clone());
        }
        if self.answer.silent {
            self.shared.stall(SILENCE).await;
        }
        None
    }
}

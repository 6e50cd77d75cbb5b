//! Answers that no apiserver should give, byte by byte as a test wants them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::http::SimResponse;
use super::shared::Shared;

/// How long an answer that falls silent stays so, unless it is healed.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// A whole answer, as it stands on the wire. Its body is chunked, so that nothing tells its length beforehand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    head: Bytes,
    filler: Bytes,
    length: usize,
    silent: bool,
}

impl RawAnswer {
    /// An answer with this code and body, as `application/json` unless a header says otherwise.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), head: body.into(), filler: Bytes::new(), length: 0, silent: false }
    }

    /// Adds a header. One that HTTP does not allow is left out.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// After the body this text over and over, until at least `bytes` of it are sent. They are never in memory at once.
    #[must_use]
    pub fn filled(mut self, text: &str, bytes: usize) -> Self {
        const PIECE: usize = 64 * 1024;
        self.filler = text.repeat(PIECE.div_ceil(text.len().max(1))).into();
        self.length = if self.filler.is_empty() { 0 } else { bytes };
        self
    }

    /// Does not end after its last byte: the connection stays open and silent until the script is healed.
    #[must_use]
    pub fn then_silence(mut self) -> Self {
        self.silent = true;
        self
    }

    pub(super) fn response(&self, shared: &Arc<Shared>) -> SimResponse {
        let answer = Sending { answer: self.clone(), sent: None, shared: Arc::clone(shared) };
        let frames = stream::unfold(answer, |mut answer| async move {
            let bytes = answer.next().await?;
            Some((Ok::<_, io::Error>(Frame::data(bytes)), answer))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

struct Sending {
    answer: RawAnswer,
    /// Bytes of the filler that have gone; `None` before the body itself has.
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

//! Responses: statuses, bodies in the accepted media type, and streams.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::encode::to_media;
use super::queue::Admission;
use crate::api::extensions::{Finite, Streaming};
use informer_hub_kubeapi::{Media, Status};

/// Number of bytes of a complete answer that are handed to the connection in one part.
const PART: usize = 16 << 10;

/// Returns a Kubernetes `Status` as an HTTP response.
pub(super) fn failure_response(status: &Status, media: Media, is_pretty: bool) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let in_text = || {
        let mut json = status.json();
        json.push(b'\n');
        to_media(json, media, is_pretty)
    };
    let (content_type, body) = match media {
        Media::Json => ("application/json", in_text()),
        Media::Yaml => ("application/yaml", in_text()),
        Media::Protobuf => ("application/vnd.kubernetes.protobuf", super::protobuf::status(status)),
    };
    let mut response = response(code, content_type, Body::from(body));
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns JSON as the response.
pub(super) fn json_response(code: StatusCode, json: impl Into<Bytes>) -> Response {
    response(code, "application/json", Body::from(json.into()))
}

/// Returns a response with the headers that kube-apiserver sends.
pub(super) fn response(code: StatusCode, content_type: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    response
}

/// Returns an answer that is complete in memory. If it is long, the admission of its request is kept until the client
/// has taken it.
pub(in crate::api) fn whole_response(content_type: &str, body: Bytes, admission: Admission) -> Response {
    if body.len() <= PART {
        return response(StatusCode::OK, content_type, Body::from(body));
    }
    stream_response(content_type, Body::new(Whole { rest: body, admission }))
}

/// Returns a response whose body is a stream with an end, such as a list.
pub(super) fn stream_response(content_type: &str, body: Body) -> Response {
    let mut response = response(StatusCode::OK, content_type, body);
    response.extensions_mut().insert(Streaming);
    response.extensions_mut().insert(Finite);
    response
}

/// Body that is handed out in parts of [`PART`] bytes. Otherwise the connection would buffer all of it at once.
struct Whole {
    rest: Bytes,
    #[expect(dead_code, reason = "ends with the body")]
    admission: Admission,
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Marks a response as compressed.
pub(super) fn mark_gzip(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compressor of a stream, with the level that kube-apiserver uses.
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses a chunk and returns what is ready to be sent.
    pub(super) fn write(&mut self, chunk: &[u8], is_last: bool) -> Bytes {
        // Writing to memory cannot fail.
        let _ = self.0.write_all(chunk);
        if is_last {
            let _ = self.0.try_finish();
        }
        std::mem::take(self.0.get_mut()).into()
    }
}

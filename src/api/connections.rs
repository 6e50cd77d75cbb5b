//! Connection handling: accepts connections, limits their number and time, and serves HTTP/1.1 and HTTP/2 with hyper.
//!
//! Before its first byte, a connection costs a socket and a task; TLS state and buffers are allocated later.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures::FutureExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::audit::{Record, audited};
use super::connection_slots::{Busy, ConnectionSlots, Slot, StreamSlot};
use super::error_answer::{denial, is_kubernetes, to_json_error, too_many_requests};
use super::extensions::{Finite, PeerAddress, Streaming};
use super::guard::{Guard, Limits};
use super::usage::{Bandwidth, Delayed, Limit, paced};
use informer_hub_access::ClientCertificate;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::pauses::give_way_if_due;

/// Delay after a connection could not be accepted, usually because of the file descriptor limit.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of requests in progress on one HTTP/2 connection. For further requests, client-go opens another
/// connection.
const MAX_STREAMS: u32 = 250;

/// Pause before the first bytes of a connection are peeked at again, to recognize HTTP/2.
const PEEK_PAUSE: Duration = Duration::from_millis(5);

/// Interval between pings on an HTTP/2 connection. Without an answer within the same time, the connection closes.
const PING: Duration = Duration::from_secs(30);

/// Minimum rate, in bytes per second, at which a client must read an answer. It is checked once an answer has taken
/// longer than [`Limits::taking`]. A client that reads too slowly would keep the snapshot of its list in memory.
const LEAST_RATE: usize = 64 << 10;

/// State shared by all connections.
#[derive(Clone)]
struct ServerState {
    routes: Router,
    guard: Arc<Guard>,
    closing: CancellationToken,
}

/// Serves HTTP on connections to `listener` until `stop` completes, then finishes requests in progress and closes idle
/// connections.
///
/// # Cancel safety
/// Dropping the future drops every connection.
pub(super) async fn serve(listener: TcpListener, routes: Router, guard: Guard, stop: impl Future<Output = ()> + Send) {
    let (guard, slots) = (Arc::new(guard), Arc::new(ConnectionSlots::default()));
    let limits = guard.limits;
    let routes = routes.layer(DefaultBodyLimit::max(limits.body_bytes));
    let server = ServerState { routes, guard: Arc::clone(&guard), closing: CancellationToken::new() };
    let mut tasks = JoinSet::new();
    let guarding = Arc::clone(&guard).run();
    let accepting = async {
        loop {
            let (stream, peer) = next(&listener, &mut tasks, &slots).await;
            make_room(&mut tasks, &slots, limits.connections).await;
            tasks.spawn(connection(stream, PeerAddress(peer), server.clone(), slots.take()).boxed());
        }
    };
    tokio::select! {
        () = stop => {}
        () = accepting => {}
        () = guarding => {}
    }
    drop(listener);
    server.closing.cancel();
    while tasks.join_next().await.is_some() {}
}

async fn next(listener: &TcpListener, tasks: &mut JoinSet<()>, slots: &ConnectionSlots) -> (TcpStream, IpAddr) {
    let mut is_logged = false;
    loop {
        let error = tokio::select! {
            Some(_) = tasks.join_next() => continue,
            taken = listener.accept() => match taken {
                Ok((stream, peer)) => return (stream, peer.ip()),
                Err(error) => error,
            },
        };
        if !std::mem::replace(&mut is_logged, true) {
            tracing::warn!(%error, "cannot accept a connection; closing the one that has been idle longest");
        }
        slots.evict();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until there are fewer than `most` connections. Evicts idle connections for this; if none is idle, waits until
/// one becomes idle or ends.
async fn make_room(tasks: &mut JoinSet<()>, slots: &ConnectionSlots, most: usize) {
    while tasks.len() >= most {
        let evicted = slots.evict();
        tokio::select! {
            _ = tasks.join_next() => {}
            () = slots.connection_idle(), if !evicted => {}
        }
    }
}

async fn connection(stream: TcpStream, peer: PeerAddress, server: ServerState, slot: Slot) {
    let slot = Arc::new(slot);
    let idle_timeout = server.guard.limits.taking;
    tokio::select! {
        () = handle_connection(stream, peer, server, Arc::clone(&slot)) => {}
        () = slot.closed(idle_timeout) => {}
    }
}

/// Serves one connection from its first byte to its last. Errors end the connection and are not reported.
async fn handle_connection(stream: TcpStream, peer: PeerAddress, server: ServerState, slot: Arc<Slot>) {
    let head = server.guard.limits.head;
    let first_byte = tokio::select! {
        first_byte = timeout(head, stream.readable()) => first_byte,
        () = server.closing.cancelled() => return,
    };
    if !matches!(first_byte, Ok(Ok(()))) || stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(config) = server.guard.tls() else {
        let is_http2 = tokio::select! {
            is_http2 = timeout(head, begins_http2(&stream)) => is_http2,
            () = server.closing.cancelled() => return,
        };
        let Ok(Ok(is_http2)) = is_http2 else { return };
        return serve_http(Either::Left(stream), server, slot, Client { peer, certificate: None, is_http2 }).await;
    };
    let handshake = tokio::select! {
        handshake = timeout(head, TlsAcceptor::from(config).accept(stream)) => handshake,
        () = server.closing.cancelled() => return,
    };
    if let Ok(Ok(stream)) = handshake {
        let session = stream.get_ref().1;
        let own = session.peer_certificates().and_then(<[_]>::first);
        let certificate = own.map(|der| Arc::new(ClientCertificate::from_der(der)));
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        serve_http(Either::Right(stream), server, slot, Client { peer, certificate, is_http2 }).await;
    }
}

/// Returns whether an unencrypted connection begins with the preface of HTTP/2.
async fn begins_http2(stream: &TcpStream) -> std::io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut first = [0; PREFACE.len()];
    loop {
        let read = stream.peek(&mut first).await?;
        if read == 0 || first[..read] != PREFACE[..read] || read == PREFACE.len() {
            return Ok(first[..read] == *PREFACE);
        }
        // Only a part of the preface has arrived. The socket does not signal the rest while the first bytes are unread.
        tokio::time::sleep(PEEK_PAUSE).await;
    }
}

/// Plain or encrypted connection; one type, so that the HTTP server is compiled once.
type PortStream = Either<TcpStream, TlsStream<TcpStream>>;

#[derive(Clone)]
struct Client {
    peer: PeerAddress,
    /// Verified certificate of the client, if it has sent one.
    certificate: Option<Arc<ClientCertificate>>,
    /// Whether the connection uses HTTP/2.
    is_http2: bool,
}

async fn serve_http(stream: PortStream, server: ServerState, slot: Arc<Slot>, client: Client) {
    let Limits { head, head_bytes, .. } = server.guard.limits;
    let (closing, is_http2) = (server.closing.clone(), client.is_http2);
    let service = service_fn(move |request| {
        let (server, slot, client) = (server.clone(), Arc::clone(&slot), client.clone());
        async move {
            let answer = answer(&server, &slot, &client, request).await;
            give_way_if_due();
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let mut conversation = pin!(builder.serve_connection(stream, service));
        tokio::select! {
            _ = conversation.as_mut() => return,
            () = closing.cancelled() => conversation.as_mut().graceful_shutdown(),
        }
        let _ = conversation.await;
        return;
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(2 * head_bytes).max_header_size(head_bytes);
    let mut conversation = pin!(builder.serve_connection(stream, service));
    tokio::select! {
        _ = conversation.as_mut() => return,
        () = closing.cancelled() => conversation.as_mut().graceful_shutdown(),
    }
    let _ = conversation.await;
}

async fn answer(server: &ServerState, slot: &Arc<Slot>, client: &Client, request: Request<Incoming>) -> Response<Body> {
    // If the client abandons the request, hyper drops this future, and `busy` and `record` with it.
    let busy = slot.busy();
    let audit = server.guard.audit.as_ref();
    let mut record = audit.map(|audit| audit.begin(&request, client.peer, &server.guard.access));
    let mut response = decide(server, client, request, record.as_mut()).await;
    let is_stream = response.extensions().get::<Streaming>().is_some();
    let mut delayed = Delayed::default();
    if let Some(bandwidth) = response.extensions_mut().remove::<Bandwidth>() {
        response = response.map(|body| {
            let (body, by_hub) = paced(body, bandwidth, is_stream);
            delayed = by_hub;
            body
        });
    }
    if is_stream {
        let is_finite = response.extensions().get::<Finite>().is_some();
        let grace = server.guard.limits.taking;
        let pace = is_finite.then(|| Pace { start: clock::now(), grace, delayed, taken: 0 });
        response = response.map(|body| StreamBody::wrap(body, busy, pace));
    }
    match record {
        Some(record) => audited(response, record),
        None => response,
    }
}

/// Authenticates a request. If it is allowed, returns the response of its handler, otherwise an error response.
async fn decide(
    server: &ServerState,
    client: &Client,
    request: Request<Incoming>,
    mut record: Option<&mut Record>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let access = &server.guard.access;
    let reader = access.identify(request.headers(), client.certificate.as_deref()).await;
    if let (Some(record), Ok(reader)) = (&mut record, &reader) {
        record.identified(reader);
    }
    match access.authorize(&request, reader) {
        Err(denied) => {
            if let Some(record) = record {
                record.denied(denied);
            }
            denied.response(&path)
        }
        Ok(_) if request.body().size_hint().lower() > server.guard.limits.body_bytes as u64 => {
            let most = server.guard.limits.body_bytes;
            denial(&path, StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is too large: {most} bytes at most"))
        }
        Ok((may_read, reader)) => {
            let is_read = is_kubernetes(&path) || path.starts_with("/v1/");
            let bandwidth = access.usage().bandwidth(&reader).filter(|_| is_read);
            if let Some(Err(seconds)) = bandwidth.as_ref().map(Bandwidth::admit) {
                access.usage().refused(&reader, Limit::BytesPerSecond);
                return too_many_requests(&path, seconds, "too many bytes per second, please try again later");
            }
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(may_read);
            request.extensions_mut().insert(reader);
            request.extensions_mut().insert(client.peer);
            if let Some(record) = record {
                request.extensions_mut().insert(record.notes());
            }
            let limit = server.guard.limits.request;
            let mut response = match timeout(limit, server.routes.clone().oneshot(request)).await {
                Ok(Ok(response)) if is_kubernetes(&path) => response,
                Ok(Ok(response)) => to_json_error(&path, response).await,
                Err(_) => {
                    let problem = format!("the request was not completed within {limit:?}");
                    let mut response = denial(&path, StatusCode::REQUEST_TIMEOUT, &problem);
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
            };
            if let Some(bandwidth) = bandwidth {
                response.extensions_mut().insert(bandwidth);
            }
            response
        }
    }
}

/// Wraps a body as the only stream of a new connection, with the time limits for slow clients. For tests that read too
/// slowly, and expect that the stream is broken off.
#[cfg(test)]
pub(super) fn with_pace(body: Body, grace: Duration) -> Body {
    let slot = Arc::new(Arc::new(ConnectionSlots::default()).take());
    StreamBody::wrap(
        body,
        slot.busy(),
        Some(Pace { start: clock::now(), grace, delayed: Delayed::default(), taken: 0 }),
    )
}

/// Measures how fast a client reads an answer, to break off answers that are read too slowly.
struct Pace {
    start: Instant,
    grace: Duration,
    /// Time for which the hub itself has delayed the answer; it does not count as slow reading.
    delayed: Delayed,
    taken: usize,
}

impl Pace {
    /// Returns whether the client has taken longer than `grace` plus the time that [`LEAST_RATE`] allows for the bytes
    /// read so far.
    fn is_too_slow(&self) -> bool {
        let granted = Duration::from_secs((self.taken / LEAST_RATE) as u64);
        clock::now() > self.start + self.grace + granted + self.delayed.time()
    }
}

/// Body of a response that is sent in parts. Reports to the connection's slot when a part waits for the client, and
/// when the client has read it.
struct StreamBody {
    /// The body; `None` once the connection's slot has dropped it because the client does not read.
    inner: Arc<Mutex<Option<Body>>>,
    stream: StreamSlot,
    /// Whether a part of the body waits for the client to read it. Also true at first, until the connection requests
    /// the first part.
    waits: bool,
    /// Measures how fast the client reads; `None` for a stream without an end, such as a watch.
    pace: Option<Pace>,
}

impl StreamBody {
    fn wrap(body: Body, busy: Busy, pace: Option<Pace>) -> Body {
        let inner = Arc::new(Mutex::new(Some(body)));
        let held = Arc::clone(&inner);
        let stream = busy.into_stream(move || drop(held.lock().take()));
        Body::new(Self { inner, stream, waits: true, pace })
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The connection requests the next part when it has room for it, so the previous part counts as read.
        if std::mem::take(&mut self.waits) {
            self.stream.part_taken();
        }
        let polled = match &mut *self.inner.lock() {
            Some(body) if !self.pace.as_ref().is_some_and(Pace::is_too_slow) => Pin::new(body).poll_frame(context),
            _ => Poll::Ready(Some(Err(axum::Error::new("the client did not read in time")))),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.pace.iter_mut().for_each(|pace| pace.taken += length);
            self.waits = true;
            self.stream.part_waits();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.lock().as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.lock().as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

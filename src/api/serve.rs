//! Connection handling: accepts connections, limits their number and time, and serves HTTP/1.1 with hyper.
//!
//! HTTP/1.1 only, so that one connection costs at most one request at a time. Before its first byte, a connection costs
//! a socket and a task; TLS state and buffers are allocated later.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::answer::{error_response, to_json_error};
use super::connection_slots::{ConnectionSlots, Slot};
use super::guard::{Guard, Limits};

/// Delay after a connection could not be accepted, usually because of the file descriptor limit.
const PAUSE: Duration = Duration::from_millis(50);

/// State shared by all connections.
#[derive(Clone)]
struct ServerState {
    routes: Router,
    guard: Arc<Guard>,
    closing: CancellationToken,
}

/// Serves until `stop` completes, then finishes requests in progress and closes idle connections.
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
            let stream = next(&listener, &mut tasks, &slots).await;
            make_room(&mut tasks, &slots, limits.connections).await;
            tasks.spawn(connection(stream, server.clone(), slots.take()));
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

/// Accepts the next connection.
async fn next(listener: &TcpListener, tasks: &mut JoinSet<()>, slots: &ConnectionSlots) -> TcpStream {
    let mut is_logged = false;
    loop {
        let error = tokio::select! {
            Some(_) = tasks.join_next() => continue,
            taken = listener.accept() => match taken {
                Ok((stream, _)) => return stream,
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

/// Waits until there are fewer than `most` connections.
async fn make_room(tasks: &mut JoinSet<()>, slots: &ConnectionSlots, most: usize) {
    while tasks.len() >= most {
        let evicted = slots.evict();
        tokio::select! {
            _ = tasks.join_next() => {}
            () = slots.connection_idle(), if !evicted => {}
        }
    }
}

async fn connection(stream: TcpStream, server: ServerState, slot: Slot) {
    let slot = Arc::new(slot);
    let idle_timeout = server.guard.limits.taking;
    tokio::select! {
        () = handle_connection(stream, server, Arc::clone(&slot)) => {}
        () = slot.closed(idle_timeout) => {}
    }
}

/// Serves one connection from its first byte to its last. Errors end the connection and are not reported.
async fn handle_connection(stream: TcpStream, server: ServerState, slot: Arc<Slot>) {
    let head = server.guard.limits.head;
    let first_byte = tokio::select! {
        first_byte = timeout(head, stream.readable()) => first_byte,
        () = server.closing.cancelled() => return,
    };
    if !matches!(first_byte, Ok(Ok(()))) || stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(config) = server.guard.tls() else { return serve_http(stream, server, slot, false).await };
    let handshake = tokio::select! {
        handshake = timeout(head, TlsAcceptor::from(config).accept(stream)) => handshake,
        () = server.closing.cancelled() => return,
    };
    if let Ok(Ok(stream)) = handshake {
        let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
        serve_http(stream, server, slot, certified).await;
    }
}

async fn serve_http<S>(stream: S, server: ServerState, slot: Arc<Slot>, certified: bool)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    TokioIo<S>: Read + Write,
{
    let Limits { head, head_bytes, .. } = server.guard.limits;
    let closing = server.closing.clone();
    let service = service_fn(|request| answer(&server, &slot, certified, request));
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(2 * head_bytes)
        .max_header_size(head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let mut conversation = pin!(conversation);
    tokio::select! {
        _ = conversation.as_mut() => {}
        () = closing.cancelled() => {
            conversation.as_mut().graceful_shutdown();
            let _ = conversation.await;
        }
    }
}

async fn answer(
    server: &ServerState,
    slot: &Slot,
    certified: bool,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    slot.mark_busy();
    let response = match server.guard.access.authorize(&request, certified) {
        Err(denied) => denied.response(),
        Ok(_) if request.body().size_hint().lower() > server.guard.limits.body_bytes as u64 => {
            let most = server.guard.limits.body_bytes;
            error_response(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large: {most} bytes at most"))
        }
        Ok(known) => {
            let path = request.uri().path().to_owned();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(known);
            let limit = server.guard.limits.request;
            match timeout(limit, server.routes.clone().oneshot(request)).await {
                Ok(Ok(response)) => to_json_error(&path, response).await,
                Err(_) => {
                    let problem = format!("the request was not completed within {limit:?}");
                    let mut response = error_response(StatusCode::REQUEST_TIMEOUT, problem);
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
            }
        }
    };
    slot.mark_idle();
    Ok(response)
}

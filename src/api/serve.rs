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

use super::answer::{uniform, wrong};
use super::guard::{Guard, Limits};
use super::seats::{Seat, Seats};

/// Delay after a connection could not be accepted, usually because of the file descriptor limit.
const PAUSE: Duration = Duration::from_millis(50);

/// State shared by all connections.
#[derive(Clone)]
struct House {
    routes: Router,
    guard: Arc<Guard>,
    closing: CancellationToken,
}

/// Serves until `stop` completes, then finishes requests in progress and closes idle connections.
///
/// # Cancel safety
/// Dropping the future drops every connection.
pub(super) async fn serve(listener: TcpListener, routes: Router, guard: Guard, stop: impl Future<Output = ()> + Send) {
    let (guard, seats) = (Arc::new(guard), Arc::new(Seats::default()));
    let limits = guard.limits;
    let routes = routes.layer(DefaultBodyLimit::max(limits.body_bytes));
    let house = House { routes, guard: Arc::clone(&guard), closing: CancellationToken::new() };
    let mut tasks = JoinSet::new();
    let keeping = Arc::clone(&guard).keep();
    let taking = async {
        loop {
            let stream = next(&listener, &mut tasks, &seats).await;
            make_room(&mut tasks, &seats, limits.connections).await;
            tasks.spawn(connection(stream, house.clone(), seats.take()));
        }
    };
    tokio::select! {
        () = stop => {}
        () = taking => {}
        () = keeping => {}
    }
    drop(listener);
    house.closing.cancel();
    while tasks.join_next().await.is_some() {}
}

/// Accepts the next connection.
async fn next(listener: &TcpListener, tasks: &mut JoinSet<()>, seats: &Seats) -> TcpStream {
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
        seats.evict();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until there are fewer than `most` connections.
async fn make_room(tasks: &mut JoinSet<()>, seats: &Seats, most: usize) {
    while tasks.len() >= most {
        let is_leaving = seats.evict();
        tokio::select! {
            _ = tasks.join_next() => {}
            () = seats.somebody_waits(), if !is_leaving => {}
        }
    }
}

async fn connection(stream: TcpStream, house: House, seat: Seat) {
    let seat = Arc::new(seat);
    let taking = house.guard.limits.taking;
    tokio::select! {
        () = converse(stream, house, Arc::clone(&seat)) => {}
        () = seat.time_to_leave(taking) => {}
    }
}

/// Serves one connection from its first byte to its last. Errors end the connection and are not reported.
async fn converse(stream: TcpStream, house: House, seat: Arc<Seat>) {
    let head = house.guard.limits.head;
    let begun = tokio::select! {
        begun = timeout(head, stream.readable()) => begun,
        () = house.closing.cancelled() => return,
    };
    if !matches!(begun, Ok(Ok(()))) || stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(config) = house.guard.tls() else { return talk(stream, house, seat, false).await };
    let shaken = tokio::select! {
        shaken = timeout(head, TlsAcceptor::from(config).accept(stream)) => shaken,
        () = house.closing.cancelled() => return,
    };
    if let Ok(Ok(stream)) = shaken {
        let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
        talk(stream, house, seat, certified).await;
    }
}

async fn talk<S>(stream: S, house: House, seat: Arc<Seat>, certified: bool)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    TokioIo<S>: Read + Write,
{
    let Limits { head, head_bytes, .. } = house.guard.limits;
    let closing = house.closing.clone();
    let service = service_fn(|request| answer(&house, &seat, certified, request));
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
    house: &House,
    seat: &Seat,
    certified: bool,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    seat.begin();
    let response = match house.guard.access.judge(&request, certified) {
        Err(denied) => denied.response(),
        Ok(_) if request.body().size_hint().lower() > house.guard.limits.body_bytes as u64 => {
            let most = house.guard.limits.body_bytes;
            wrong(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large: {most} bytes at most"))
        }
        Ok(known) => {
            let path = request.uri().path().to_owned();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(known);
            let limit = house.guard.limits.request;
            match timeout(limit, house.routes.clone().oneshot(request)).await {
                Ok(Ok(response)) => uniform(&path, response).await,
                Err(_) => {
                    let problem = format!("the request was not completed within {limit:?}");
                    let mut response = wrong(StatusCode::REQUEST_TIMEOUT, problem);
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
            }
        }
    };
    seat.wait();
    Ok(response)
}

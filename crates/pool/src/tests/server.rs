//! Test server on in-memory pipes, controlled by the test.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

use crate::{Dialer, Gauges, Offer, Opened, Pool};
use informer_hub_types::ClusterTraffic;
use informer_hub_types::HttpVersions;

/// Behaviour of the server.
#[derive(Clone, Debug)]
pub(super) struct ServerConfig {
    pub(super) kind: Kind,
    pub(super) max_streams: u32,
    /// Number of streams after which a connection refuses all further ones, although its settings allow them.
    pub(super) refuses_above: Option<usize>,
}

/// Protocol of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Http2,
    Http1,
    /// Refuses connections.
    Refusing,
    /// Accepts connections and sends nothing.
    Silent,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { kind: Kind::Http2, max_streams: 250, refuses_above: None }
    }
}

enum Command {
    GoAway,
    FallSilent,
    Cut,
}

#[derive(Default)]
struct Connection {
    commands: Option<mpsc::UnboundedSender<Command>>,
    watches: Vec<SendStream<Bytes>>,
}

struct State {
    config: ServerConfig,
    connections: Mutex<Vec<Connection>>,
    accepted: Mutex<usize>,
    /// Pipes that stay open without a reader.
    held: Mutex<Vec<DuplexStream>>,
}

pub(super) struct Server {
    state: Arc<State>,
    gauges: Arc<Gauges>,
}

impl Server {
    pub(super) fn start(config: ServerConfig) -> Self {
        let (connections, accepted, held) = <_>::default();
        Self { state: Arc::new(State { config, connections, accepted, held }), gauges: Arc::default() }
    }

    pub(super) fn pool(&self, versions: HttpVersions) -> Pool {
        let state = Arc::clone(&self.state);
        let dialer = Dialer::new(move |offer| {
            let state = Arc::clone(&state);
            async move { state.accept(offer).map_err(Into::into) }
        });
        Pool::new(versions, dialer, Arc::clone(&self.gauges))
    }

    /// Number of connections so far.
    pub(super) fn connections(&self) -> usize {
        self.state.connections.lock().len()
    }

    pub(super) fn traffic(&self) -> ClusterTraffic {
        self.gauges.read()
    }

    /// Open watches of each connection.
    pub(super) fn open_streams(&self) -> Vec<usize> {
        self.state.connections.lock().iter().map(|one| one.watches.len()).collect()
    }

    /// Bytes of floods for which the client has opened windows.
    pub(super) fn bytes_accepted(&self) -> usize {
        *self.state.accepted.lock()
    }

    pub(super) fn send_to_watches(&self, text: impl Into<Bytes>) {
        let text = text.into();
        for connection in &mut *self.state.connections.lock() {
            // Sending fails on a stream that the client has ended.
            connection.watches.retain_mut(|watch| watch.send_data(text.clone(), false).is_ok());
        }
    }

    pub(super) fn go_away(&self, connection: usize) {
        self.command(connection, Command::GoAway);
    }

    /// Stops reading and writing, without closing the connection.
    pub(super) fn fall_silent(&self, connection: usize) {
        self.command(connection, Command::FallSilent);
    }

    pub(super) fn cut(&self, connection: usize) {
        self.command(connection, Command::Cut);
    }

    fn command(&self, connection: usize, command: Command) {
        let connections = self.state.connections.lock();
        connections[connection].commands.as_ref().unwrap().send(command).ok().unwrap();
    }
}

impl State {
    fn accept(self: Arc<Self>, offer: Offer) -> io::Result<Opened> {
        let (ours, theirs) = duplex(64 * 1024);
        let at = self.connections.lock().len();
        self.connections.lock().push(Connection::default());
        let kind = self.config.kind;
        match kind {
            Kind::Refusing => return Err(io::ErrorKind::ConnectionRefused.into()),
            Kind::Silent => self.held.lock().push(ours),
            Kind::Http2 if offer != Offer::Http1 => drop(tokio::spawn(self.serve_http2(at, ours))),
            Kind::Http1 | Kind::Http2 => drop(tokio::spawn(serve_http1(ours))),
        }
        Ok(Opened {
            stream: Box::new(theirs),
            is_http2: matches!(kind, Kind::Http2 | Kind::Silent) && offer != Offer::Http1,
        })
    }

    async fn serve_http2(self: Arc<Self>, at: usize, pipe: DuplexStream) {
        let (commands, mut commanded) = mpsc::unbounded_channel();
        self.connections.lock()[at].commands = Some(commands);
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(self.config.max_streams);
        let Ok(mut connection) = builder.handshake::<_, Bytes>(pipe).await else { return };
        let mut accepted = 0;
        loop {
            tokio::select! {
                biased;
                Some(command) = commanded.recv() => match command {
                    Command::GoAway => connection.graceful_shutdown(),
                    Command::FallSilent => std::future::pending().await,
                    Command::Cut => return,
                },
                request = connection.accept() => {
                    let Some(Ok((request, respond))) = request else { return };
                    accepted += 1;
                    self.answer(at, accepted, request, respond);
                }
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        at: usize,
        accepted: usize,
        request: Request<h2::RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) {
        if self.config.refuses_above.is_some_and(|limit| accepted > limit) {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/watch" => self.connections.lock()[at].watches.push(stream),
            "/flood" => drop(tokio::spawn(flood(Arc::clone(self), stream))),
            "/reset" => drop(tokio::spawn(async move {
                // Waits until the head of the answer has been sent.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                stream.send_reset(Reason::INTERNAL_ERROR);
            })),
            "/body" => drop(tokio::spawn(async move {
                let (head, mut body) = request.into_parts();
                let length = head.headers["content-length"].to_str().unwrap().to_owned();
                let text = body.data().await.unwrap().unwrap();
                let text = format!("{} {length} {}", head.method, String::from_utf8_lossy(&text));
                stream.send_data(text.into(), true).unwrap();
            })),
            path => {
                let text = path.trim_start_matches("/echo/").to_owned();
                stream.send_data(text.into(), true).unwrap();
            }
        }
    }
}

/// Sends as much as the client's window allows.
async fn flood(state: Arc<State>, mut stream: SendStream<Bytes>) {
    const PIECE: usize = 8 * 1024;
    loop {
        stream.reserve_capacity(PIECE);
        let Some(Ok(_)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let piece = stream.capacity().min(PIECE);
        if piece > 0 {
            *state.accepted.lock() += piece;
            stream.send_data(vec![b'x'; piece].into(), false).unwrap();
        }
    }
}

async fn serve_http1(pipe: DuplexStream) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let body: Box<dyn hyper::body::Body<Data = Bytes, Error = io::Error> + Send + Unpin> = match path.as_str() {
            "/watch" => Box::new(http_body_util::StreamBody::new(futures::stream::pending())),
            path => {
                let text = Bytes::from(path.trim_start_matches("/echo/").to_owned());
                Box::new(http_body_util::BodyExt::map_err(http_body_util::Full::new(text), |never| match never {}))
            }
        };
        Ok::<_, io::Error>(Response::new(body))
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(pipe), service).await;
}

//! Webhook receiver on a bare socket, which can fail at any byte.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use informer_hub_sim::oracle::{Oracle, ReceivedEvent, Replica};
use informer_hub_sim::{GroundTruth, SimCluster};
use informer_hub_types::Gvr;
use parking_lot::Mutex;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait::until;

/// Key with which sinks sign and receivers verify.
pub(crate) const SECRET: &str = "whsec_cnVuLXRlc3RzLWtleS1mb3Itc2lnbmF0dXJlcw==";

/// Response of the receiver to requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Accepts the batch and answers 204.
    Healthy,
    /// Rejects the batch with 500.
    Error,
    /// Rejects the batch with 422.
    Unprocessable,
    /// Rejects the batch with a redirect.
    Redirect,
    /// Accepts the batch, then closes the connection in the middle of the status line.
    Close,
    /// Accepts the batch after this delay.
    Slow(Duration),
    /// Reads the request and never answers.
    Silent,
}

/// Everything a receiver has received.
#[derive(Default)]
pub(crate) struct Received {
    /// Objects built from the events.
    pub replica: Option<Replica>,
    /// Requests by mode.
    pub requests: BTreeMap<&'static str, u64>,
    /// Accepted events, repeats included.
    pub events: u64,
    /// `traceparent` header of each request, and the `traceparent` extensions of its events.
    pub traces: Vec<(Option<String>, Vec<String>)>,
    /// Invalid requests.
    pub problems: Vec<String>,
}

/// Webhook receiver. It reserves its port at creation and listens after `open`.
pub(crate) struct Receiver {
    address: SocketAddr,
    reservation: TcpSocket,
    mode: watch::Sender<Mode>,
    received: Arc<Mutex<Received>>,
    server: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn closed() -> Self {
        let reservation = socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let address = reservation.local_addr().unwrap();
        let received = Received { replica: Some(Replica::at_least_once()), ..Received::default() };
        let received = Arc::new(Mutex::new(received));
        Self { address, reservation, mode: watch::Sender::new(Mode::Healthy), received, server: None }
    }

    pub(crate) fn start(mode: Mode) -> Self {
        let mut receiver = Self::closed();
        receiver.set(mode);
        receiver.open();
        receiver
    }

    pub(crate) fn open(&mut self) {
        assert!(self.reservation.local_addr().is_ok());
        let listener = socket(self.address).listen(64).unwrap();
        self.server = Some(tokio::spawn(serve(listener, self.mode.subscribe(), Arc::clone(&self.received))));
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Returns `[sinks.<name>]` of a signed webhook to this receiver, with short delays.
    pub(crate) fn sink(&self, name: &str) -> String {
        format!(
            "[sinks.{name}]\ntype = \"webhook\"\nurl = \"http://{}/events\"\ninitial = \"replay\"\ntimeout = \"2s\"\n\
             signing_secret = {{ env = \"HOOK_SECRET\" }}\nbatch = {{ max_events = 20, max_wait = \"20ms\" }}\n\
             retry = {{ first = \"10ms\", max = \"200ms\", refused_for = \"1s\" }}\n",
            self.address
        )
    }

    pub(crate) fn received<T>(&self, read: impl FnOnce(&Received) -> T) -> T {
        read(&self.received.lock())
    }

    /// Waits until a mode has handled this many requests.
    pub(crate) async fn met(&self, mode: Mode, count: u64) {
        let met = || self.received(|received| received.requests.get(mode.name()).copied().unwrap_or_default());
        until(mode.name(), async || (met() >= count).then_some(())).await;
    }

    /// Returns the received objects of a resource.
    pub(crate) fn seen(&self, cluster: &str, gvr: &Gvr) -> GroundTruth {
        let origin = format!("{cluster}/{}", gvr.long());
        self.received(|received| received.replica.as_ref().map(|replica| replica.seen_of(&origin)).unwrap_or_default())
    }

    /// Waits until the received objects equal the cluster's, and asserts that there are no invalid events.
    pub(crate) async fn converged(&self, name: &str, cluster: &SimCluster, gvr: &Gvr) {
        until("the receiver has the cluster's objects", async || {
            Oracle::diff(&cluster.truth(gvr), &self.seen(name, gvr)).is_empty().then_some(())
        })
        .await;
        self.assert_clean();
    }

    pub(crate) fn assert_clean(&self) {
        self.received(|received| {
            assert!(received.problems.is_empty(), "{:#?}", received.problems);
            let violations = received.replica.as_ref().map(|replica| replica.violations().to_vec()).unwrap_or_default();
            assert!(violations.is_empty(), "{violations:#?}");
        });
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Error => "error",
            Self::Unprocessable => "unprocessable",
            Self::Redirect => "redirect",
            Self::Close => "close",
            Self::Slow(_) => "slow",
            Self::Silent => "silent",
        }
    }
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

async fn serve(listener: TcpListener, mode: watch::Receiver<Mode>, received: Arc<Mutex<Received>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve_connection(stream, mode.clone(), Arc::clone(&received)));
    }
}

/// Handles one request on a connection.
async fn serve_connection(
    mut stream: TcpStream,
    mode: watch::Receiver<Mode>,
    received: Arc<Mutex<Received>>,
) -> Option<()> {
    let (_, headers, body) = read_request(&mut stream).await?;
    let mode = *mode.borrow();
    *received.lock().requests.entry(mode.name()).or_default() += 1;
    let answer = match mode {
        Mode::Healthy => "204 No Content",
        Mode::Slow(pause) => {
            tokio::time::sleep(pause).await;
            "204 No Content"
        }
        Mode::Error => "500 Internal Server Error",
        Mode::Unprocessable => "422 Unprocessable Content",
        Mode::Redirect => "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/elsewhere",
        Mode::Close => {
            record(&received, &headers, &body);
            return stream.write_all(b"HTTP/1.1 20").await.ok();
        }
        Mode::Silent => std::future::pending().await,
    };
    if matches!(mode, Mode::Healthy | Mode::Slow(_)) {
        record(&received, &headers, &body);
    }
    stream
        .write_all(format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .await
        .ok()
}

/// Reads an HTTP/1.1 request with a `Content-Length`. Returns path, headers and body.
pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<(String, http::HeaderMap, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    let mut headers = http::HeaderMap::new();
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        let name: http::HeaderName = name.trim().parse().ok()?;
        headers.insert(name, value.trim().parse().ok()?);
    }
    let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((path, headers, body))
}

/// Verifies the signature with an independent implementation and records the events.
fn record(received: &Mutex<Received>, headers: &http::HeaderMap, body: &[u8]) {
    let mut received = received.lock();
    if let Err(error) = Webhook::new(SECRET).unwrap().verify(body, headers) {
        received.problems.push(format!("signature: {error}"));
    }
    let Ok(events) = serde_json::from_slice::<Vec<Value>>(body) else {
        received.problems.push("not a batch of events".to_owned());
        return;
    };
    let trace = headers.get("traceparent").map(|header| header.to_str().unwrap().to_owned());
    let extensions = events.iter().filter_map(|event| Some(event.get("traceparent")?.as_str()?.to_owned()));
    received.traces.push((trace, extensions.collect()));
    for event in events {
        received.events += 1;
        match (ReceivedEvent::from_event(&event), &mut received.replica) {
            (Ok(event), Some(replica)) => replica.record(&event),
            (Ok(_), None) => {}
            (Err(error), _) => received.problems.push(error.to_string()),
        }
    }
}

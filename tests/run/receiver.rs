//! A webhook's receiver on a bare socket, so that it can misbehave at any byte.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use informer_hub_sim::oracle::{Oracle, Replica, Told};
use informer_hub_sim::{SimCluster, Truth};
use informer_hub_types::Gvr;
use parking_lot::Mutex;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::waiting::until;

/// The key that sinks sign with, and receivers verify.
pub(crate) const SECRET: &str = "whsec_cnVuLXRlc3RzLWtleS1mb3Itc2lnbmF0dXJlcw==";

/// What a receiver does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Takes it, answers 204.
    Well,
    /// Answers 500 and takes nothing.
    Error,
    /// Answers 422 and takes nothing.
    Unprocessable,
    /// Points elsewhere and takes nothing.
    Redirect,
    /// Takes it, then closes in the middle of the status line: the hub cannot know.
    Close,
    /// Takes it after this long.
    Slow(Duration),
    /// Reads it and never answers.
    Silent,
}

/// What has come in.
#[derive(Default)]
pub(crate) struct Received {
    /// What was built from it.
    pub replica: Option<Replica>,
    /// Requests by mode.
    pub requests: BTreeMap<&'static str, u64>,
    /// Events that were taken, repeats included.
    pub events: u64,
    /// Of requests in a trace: the header, and the extension of each event that has one.
    pub traces: Vec<(Option<String>, Vec<String>)>,
    /// What was wrong with requests.
    pub problems: Vec<String>,
}

/// The receiver. Its port is its own from the start; it listens once it is opened.
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
        Self { address, reservation, mode: watch::Sender::new(Mode::Well), received, server: None }
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

    /// `[sinks.<name>]` that sends everything here, signed, with delays that suit a test.
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

    /// Waits until a mode has met this many requests.
    pub(crate) async fn met(&self, mode: Mode, count: u64) {
        let met = || self.received(|received| received.requests.get(mode.name()).copied().unwrap_or_default());
        until(mode.name(), async || (met() >= count).then_some(())).await;
    }

    /// Objects of a resource that it has.
    pub(crate) fn seen(&self, cluster: &str, gvr: &Gvr) -> Truth {
        let origin = format!("{cluster}/{}", gvr.long());
        self.received(|received| received.replica.as_ref().map(|replica| replica.seen_of(&origin)).unwrap_or_default())
    }

    /// Waits until it has what the cluster has, and checks that nothing was told that cannot have been.
    pub(crate) async fn converged(&self, name: &str, cluster: &SimCluster, gvr: &Gvr) {
        until("the receiver has the truth", async || {
            Oracle::diff(&cluster.truth(gvr), &self.seen(name, gvr)).is_empty().then_some(())
        })
        .await;
        self.is_clean();
    }

    pub(crate) fn is_clean(&self) {
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
            Self::Well => "well",
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
        connections.spawn(converse(stream, mode.clone(), Arc::clone(&received)));
    }
}

/// One request on a connection.
async fn converse(mut stream: TcpStream, mode: watch::Receiver<Mode>, received: Arc<Mutex<Received>>) -> Option<()> {
    let (_, headers, body) = read_request(&mut stream).await?;
    let mode = *mode.borrow();
    *received.lock().requests.entry(mode.name()).or_default() += 1;
    let answer = match mode {
        Mode::Well => "204 No Content",
        Mode::Slow(pause) => {
            tokio::time::sleep(pause).await;
            "204 No Content"
        }
        Mode::Error => "500 Internal Server Error",
        Mode::Unprocessable => "422 Unprocessable Content",
        Mode::Redirect => "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/elsewhere",
        Mode::Close => {
            take(&received, &headers, &body);
            return stream.write_all(b"HTTP/1.1 20").await.ok();
        }
        Mode::Silent => std::future::pending().await,
    };
    if matches!(mode, Mode::Well | Mode::Slow(_)) {
        take(&received, &headers, &body);
    }
    stream
        .write_all(format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .await
        .ok()
}

/// Reads a request as HTTP/1.1 has it: a head, and a body of the length that the head says. Gives its path, too.
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

/// Verifies a request with an implementation that is not ours, and takes its events in.
fn take(received: &Mutex<Received>, headers: &http::HeaderMap, body: &[u8]) {
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
        match (Told::from_event(&event), &mut received.replica) {
            (Ok(told), Some(replica)) => replica.tell(&told),
            (Ok(_), None) => {}
            (Err(error), _) => received.problems.push(error.to_string()),
        }
    }
}

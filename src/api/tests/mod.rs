//! Tests of the port with real clients on loopback: regular, slow, numerous and unauthorised ones.

mod audit;
mod bandwidth;
mod hostile;
mod limits;
mod protection;
mod reads;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::*;
use informer_hub_telemetry::metrics::Snapshot;

/// Timeout of each wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a status; more than the buffers of both ends of a connection hold.
const LARGE: usize = 48 << 20;

const TOKEN: &str = "change-0123456789abcdef";
const READ_TOKEN: &str = "look-0123456789abcdef";

fn token(text: &'static str) -> TokenFrom {
    TokenFrom::new(None, Arc::new(move || Ok(text.to_owned())))
}

/// HTTP port in front of a fake hub that answers on demand.
struct Port {
    address: SocketAddr,
    /// Permits to answer `/v1/status` and `/readyz`; unlimited until a test removes them.
    may_answer: Arc<Semaphore>,
    /// Gets a permit for each request of `/v1/status` or `/readyz`.
    asked: Arc<Semaphore>,
    access: Arc<Access>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Port {
    async fn open(protection: Protection) -> Self {
        Self::open_with(protection, None).await
    }

    /// Opens a port that also serves `read`, if it is set.
    async fn open_with(protection: Protection, read: Option<Arc<ReadApi>>) -> Self {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let may_answer = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let asked = Arc::new(Semaphore::new(0));
        let (may, tell) = (Arc::clone(&may_answer), Arc::clone(&asked));
        let show: StateSource = Arc::new(move || {
            let may = Arc::clone(&may);
            tell.add_permits(1);
            Box::pin(async move {
                let _answering = may.acquire().await.ok()?;
                let status = serde_json::json!({ "ready": true, "padding": "x".repeat(LARGE) });
                Some(ReportedState { ready: true, waiting: vec!["c0/nodes is forbidden".to_owned()], status })
            })
        });
        let letters: AskLetters = Arc::new(|_, _| Box::pin(async { None }));
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let reload: AskReload = Arc::new(|| Box::pin(std::future::ready(None)));
        let scraper = Scraper::new(|| Snapshot::new(jiff::Timestamp::UNIX_EPOCH));
        let services = Services { show, letters, reload, scraper, read };
        let guard = Guard::new(protection).unwrap();
        let access = guard.access();
        let serving = tokio::spawn(serve(listener, guard, services, stopped));
        Self { address, may_answer, asked, access, stop, serving }
    }

    /// Blocks the answers of `/v1/status` and `/readyz` until permits are added to `may_answer`.
    fn hold(&self) {
        self.may_answer.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Waits for `times` requests of `/v1/status` or `/readyz`.
    async fn asked(&self, times: u32) {
        let asked = tokio::time::timeout(PATIENCE, self.asked.acquire_many(times)).await;
        asked.expect("requests arrive").unwrap().forget();
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends `text` on a new connection; returns everything received until it is closed.
    async fn exchange(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        read_rest(&mut stream).await
    }

    /// Like [`Self::exchange`], but takes ownership of the text, for futures that outlive the caller's text.
    async fn exchange_text(&self, text: String) -> String {
        self.exchange(&text).await
    }

    async fn get(&self, path: &str) -> String {
        self.exchange(&head("GET", path, &["Connection: close"])).await
    }

    /// Stops the service and waits for its end.
    async fn end(self) {
        drop(self.stop);
        tokio::time::timeout(PATIENCE, self.serving).await.expect("the service stops").unwrap();
    }
}

/// Returns a request without a body.
fn head(method: &str, path: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: hub\r\n{headers}\r\n")
}

/// Reads until the connection is closed or reset.
async fn read_rest(stream: &mut TcpStream) -> String {
    let mut found = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut found)).await;
    let _ = read.unwrap_or_else(|_| panic!("not closed after {:?}", String::from_utf8_lossy(&found)));
    String::from_utf8_lossy(&found).into_owned()
}

/// Reads from a connection that stays open until the bytes received so far end with `end`.
async fn read_one(stream: &mut TcpStream, end: &str) -> String {
    let mut found = Vec::new();
    let read = async {
        while !found.ends_with(end.as_bytes()) {
            assert!(stream.read_buf(&mut found).await.unwrap() > 0, "closed: {:?}", String::from_utf8_lossy(&found));
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("an answer");
    String::from_utf8_lossy(&found).into_owned()
}

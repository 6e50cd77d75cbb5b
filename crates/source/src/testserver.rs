//! A loopback server that answers each request with scripted bytes, valid or invalid.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::reloading_client::ReloadingClient;
use super::transport::Wiring;
use super::{Access, connect};

/// An action of the server.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes this number of times.
    Repeat(Vec<u8>, usize),
    /// Keeps the connection open until the client closes it.
    Hold,
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub(super) struct TestServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    closed: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

/// Timeout of operations that are expected to succeed.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

impl TestServer {
    /// Starts a server that answers a request with the actions of `script`, then closes the connection.
    pub(super) async fn start(script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, closed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (log, notify, script) = (Arc::clone(&requests), Arc::clone(&closed), Arc::new(script));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, notify, script) = (Arc::clone(&log), Arc::clone(&notify), Arc::clone(&script));
                tokio::spawn(async move {
                    let mut stream = stream;
                    let Some(head) = read_head(&mut stream).await else { return };
                    log.lock().push(head.clone());
                    if !perform(stream, script(&head)).await {
                        notify.notify_one();
                    }
                });
            }
        });
        Self { address, requests, closed, task }
    }

    /// Starts a server that answers every request with the same actions.
    pub(super) async fn always(acts: Vec<Act>) -> Self {
        Self::start(move |_| acts.clone()).await
    }

    /// Returns the server's URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Builds a client for this server.
    pub(super) async fn client(&self) -> kube::Client {
        let access = Access::Server { server: self.url(), ca_file: None, token: None };
        connect(access.into(), None, &informer_hub_types::Threads::current()).await.unwrap()
    }

    /// Builds a reloading client for this server, as informers use it.
    pub(super) async fn reloading_client(&self) -> std::sync::Arc<ReloadingClient> {
        let access = Access::Server { server: self.url(), ca_file: None, token: None };
        ReloadingClient::connect(None, access.into(), Wiring::default(), &informer_hub_types::Threads::current())
            .await
            .unwrap()
    }

    /// Returns the heads of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// Waits until a client closes a connection that the server holds open or writes to.
    pub(super) async fn closed(&self) {
        tokio::time::timeout(TEST_TIMEOUT, self.closed.notified()).await.expect("the connection stays open");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Returns the action that sends the head of a response. The response's body ends when the connection closes.
pub(super) fn head(status: &str, headers: &str) -> Act {
    Act::Send(format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n").into_bytes())
}

/// Returns the actions that send a complete JSON response.
pub(super) fn json(body: &str) -> Vec<Act> {
    vec![head("200 OK", "Content-Type: application/json\r\n"), Act::Send(body.into())]
}

/// Returns the actions that send an error response, whose body is a Kubernetes `Status`.
pub(super) fn failure(code: u16, reason: &str, headers: &str) -> Vec<Act> {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"m"}}"#
    );
    vec![head(&format!("{code} X"), &format!("Content-Type: application/json\r\n{headers}")), Act::Send(body.into())]
}

async fn perform(mut stream: TcpStream, acts: Vec<Act>) -> bool {
    for act in acts {
        let (bytes, times) = match act {
            Act::Send(bytes) => (bytes, 1),
            Act::Repeat(bytes, times) => (bytes, times),
            Act::Hold => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                return false;
            }
        };
        for _ in 0..times {
            if stream.write_all(&bytes).await.is_err() {
                return false;
            }
        }
    }
    let _ = stream.shutdown().await;
    true
}

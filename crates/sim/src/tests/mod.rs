//! Tests of the simulated server over its port, with a raw client that reads every byte and with kube's client.

mod chaos;
mod faults;
mod leases;
mod lifecycle;
mod protobuf;
mod protocol;
mod replay;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{FaultScript, SimCluster, SimConfig, World};

/// Awaits a future for at most 20 s.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("a deadline of 20 s")
}

/// Polls until `condition` holds, for states without a notification.
pub(super) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "timeout: {what}");
}

pub(super) fn start(config: SimConfig) -> SimCluster {
    SimCluster::start(config, &Handle::current()).unwrap()
}

pub(super) fn cluster() -> SimCluster {
    start(SimConfig::default())
}

pub(super) fn faulty_cluster(script: FaultScript) -> SimCluster {
    let cluster = cluster();
    cluster.set_faults(script);
    cluster
}

/// HTTP answer whose body is read on demand.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
    connection: JoinHandle<()>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends one GET on a new connection.
pub(super) async fn try_get(
    address: SocketAddr,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<Answer, Failure> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::get(path).header("host", "sim");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let (head, body) = response.into_parts();
    Ok(Answer { status: head.status, headers: head.headers, body, buffer: Vec::new(), connection })
}

pub(super) async fn get(cluster: &SimCluster, path: &str) -> Answer {
    within(try_get(cluster.address(), path, &[])).await.unwrap()
}

/// Returns the status and the whole answer as JSON.
pub(super) async fn json(cluster: &SimCluster, path: &str) -> (u16, Value) {
    let answer = get(cluster, path).await;
    let status = answer.status.as_u16();
    (status, serde_json::from_slice(&answer.whole().await.unwrap()).unwrap())
}

impl Answer {
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, Failure> {
        while within(self.more()).await? {}
        Ok(std::mem::take(&mut self.buffer))
    }

    async fn more(&mut self) -> Result<bool, Failure> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        if let Ok(data) = frame?.into_data() {
            self.buffer.extend_from_slice(&data);
        }
        Ok(true)
    }

    /// Returns the next line; `None` at the end. The rest of the body counts as a line.
    pub(super) async fn raw_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                return Ok(Some(self.buffer.drain(..=end).collect()));
            }
            if !self.more().await? {
                let rest = std::mem::take(&mut self.buffer);
                return Ok((!rest.is_empty()).then_some(rest));
            }
        }
    }

    pub(super) async fn line(&mut self) -> Result<Option<Value>, Failure> {
        match within(self.raw_line()).await? {
            Some(line) => Ok(Some(serde_json::from_slice(&line)?)),
            None => Ok(None),
        }
    }

    /// Returns type, key and version of the next event that is not a bookmark.
    pub(super) async fn event(&mut self) -> (String, String, u64) {
        loop {
            let event = self.line().await.unwrap().expect("an event");
            if event["type"] != "BOOKMARK" {
                return summary(&event);
            }
        }
    }
}

/// Returns type, key and version of an event.
pub(super) fn summary(event: &Value) -> (String, String, u64) {
    let metadata = &event["object"]["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&metadata["resourceVersion"]).parse().unwrap_or(0);
    (text(&event["type"]), format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"])), version)
}

/// Changes the first pod and returns its key and new version.
pub(super) fn touch(cluster: &SimCluster) -> (String, u64) {
    cluster.with_world(|world| {
        let pods = World::pods();
        let key = world.objects(&pods).next().unwrap().key().clone();
        let version = world.patch(&pods, &key, &serde_json::json!({ "status": { "reason": "touched" } })).unwrap();
        (key.to_string(), version)
    })
}

pub(super) fn version(cluster: &SimCluster) -> u64 {
    cluster.with_world(|world| world.version())
}

/// Opens a watch on pods from the current version on.
pub(super) async fn watch_now(cluster: &SimCluster) -> Answer {
    let version = version(cluster);
    get(cluster, &format!("/api/v1/pods?watch=true&resourceVersion={version}&allowWatchBookmarks=true")).await
}

//! The sink to NATS JetStream, and a real `nats-server`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use informer_hub_sink::nats::{NatsAuth, NatsParams, NatsTransport};
use informer_hub_sink::{Event, EventOptions, Outcome, Transport};
use informer_hub_types::{
    ApiResource, Gvr, Labels, Notification, Object, ObjectKey, Origin, ResourceVersion, Scope, StoredObject,
    StoredObjectParts, Uid,
};
use tokio::net::TcpStream;

use crate::bed::built;

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A server with a store of its own. Dropping it kills it.
struct Server {
    folder: tempfile::TempDir,
    addr: SocketAddr,
    token: Option<&'static str>,
    child: Child,
}

impl Server {
    async fn start(token: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A port that was free a moment ago; it stays the same over restarts.
        let addr = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let child = run(folder.path(), addr, token);
        let server = Self { folder, addr, token, child };
        server.answers().await;
        server
    }

    /// Kills it, as a machine would that loses power, and starts it on what is left.
    async fn kill_and_start(&mut self) {
        self.stop();
        self.child = run(self.folder.path(), self.addr, self.token);
        self.answers().await;
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn answers(&self) {
        let until = async {
            while TcpStream::connect(self.addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, until).await.expect("the server answers");
    }

    async fn client(&self) -> Context {
        let options = async_nats::ConnectOptions::new();
        let options = self.token.map_or(options.clone(), |token| options.token(token.to_owned()));
        jetstream::new(options.connect(format!("nats://{}", self.addr)).await.unwrap())
    }

    fn transport(&self, auth: Option<NatsAuth>, stream: Option<&str>) -> NatsTransport {
        NatsTransport::new(NatsParams {
            name: "informer-hub".to_owned(),
            urls: vec![format!("nats://{}", self.addr)],
            subject: "k8s.{cluster}.{resource}.{namespace}.{name}".parse().unwrap(),
            stream: stream.map(str::to_owned),
            auth,
            ca_file: None,
            client_cert: None,
            timeout: Duration::from_secs(5),
            shape: Arc::default(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(folder: &Path, addr: SocketAddr, token: Option<&str>) -> Child {
    let mut command = Command::new(binary());
    command.args(["--addr", &addr.ip().to_string(), "--port", &addr.port().to_string(), "--jetstream"]);
    command.arg("--store_dir").arg(folder).args(token.into_iter().flat_map(|token| ["--auth", token]));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The server's binary, built when it is out of date.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/nats/build.sh"))
}

fn event(name: &str, version: u64) -> Event {
    let origin = Arc::new(Origin {
        cluster: "prod-eu".parse().unwrap(),
        cluster_labels: [].into(),
        resource: ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true },
        scope: Scope::all(),
    });
    let stored = StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("shop", name),
        uid: Uid::new(&format!("uid-of-{name}")),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: serde_json::json!({"metadata": {"name": name}}).to_string().into_bytes(),
    });
    let added = Notification::Added { object: Object::<()>::new(origin, Arc::new(stored)), initial: false };
    Event::new(&added, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap()
}

fn batch(events: &[(&str, u64)]) -> Arc<[Event]> {
    events.iter().map(|(name, version)| event(name, *version)).collect()
}

async fn make_stream(client: &Context, name: &str, subject: &str) {
    let config = Config { name: name.to_owned(), subjects: vec![subject.to_owned()], ..Config::default() };
    client.create_stream(config).await.unwrap();
}

/// Subjects and payloads of what a stream holds, in order.
async fn stored(client: &Context, stream: &str) -> Vec<(String, String)> {
    let mut stream = client.get_stream(stream).await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut found = Vec::new();
    for sequence in 1..=last {
        let message = stream.get_raw_message(sequence).await.unwrap();
        found.push((message.subject.to_string(), String::from_utf8(message.payload.to_vec()).unwrap()));
    }
    found
}

fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Retry { content: false, error, .. } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_stored_once_and_survives_the_server() {
    let mut server = Server::start(None).await;
    make_stream(&server.client().await, "K8S", "k8s.>").await;
    let transport = server.transport(None, Some("K8S"));
    let first = batch(&[("a", 1), ("b.c", 1), ("a", 2), ("a", 3)]);
    assert_eq!(transport.attempt(Arc::clone(&first)).await, Outcome::Accepted);
    // The same again, as after an acknowledgement that was lost.
    assert_eq!(transport.attempt(Arc::clone(&first)).await, Outcome::Accepted);
    let found = stored(&server.client().await, "K8S").await;
    let wanted: Vec<_> = first.iter().map(|event| event.json().to_owned()).collect();
    assert_eq!(found.iter().map(|(_, payload)| payload.clone()).collect::<Vec<_>>(), wanted);
    assert_eq!(found[1].0, "k8s.prod-eu.pods.shop.b%2Ec");
    server.kill_and_start().await;
    // The connection is gone; an attempt or two may say so.
    let second = batch(&[("a", 4)]);
    let until = async { while transport.attempt(Arc::clone(&second)).await != Outcome::Accepted {} };
    tokio::time::timeout(LONG, until).await.expect("the transport comes back");
    let found = stored(&server.client().await, "K8S").await;
    assert_eq!(found.len(), 5, "what was acknowledged before is still there, and nothing twice: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_stream_nothing_is_acknowledged_and_the_error_says_what_is_missing() {
    let server = Server::start(None).await;
    let events = batch(&[("a", 1)]);
    let transport = server.transport(None, None);
    let missing = error(transport.attempt(Arc::clone(&events)).await);
    assert!(missing.contains("no stream listens to k8s.prod-eu.pods.shop.a; create one"), "{missing}");
    // One that is not the one that was asked for.
    make_stream(&server.client().await, "OTHER", "k8s.>").await;
    let wrong = error(server.transport(None, Some("K8S")).attempt(Arc::clone(&events)).await);
    assert!(wrong.contains("expected stream does not match"), "{wrong}");
    assert_eq!(transport.attempt(events).await, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_to_know_who_comes_is_told() {
    let server = Server::start(Some("hunter2")).await;
    make_stream(&server.client().await, "K8S", "k8s.>").await;
    let events = batch(&[("a", 1)]);
    for wrong in [None, Some(NatsAuth::Token("hunter3".to_owned()))] {
        let refused = error(server.transport(wrong, None).attempt(Arc::clone(&events)).await);
        assert!(refused.contains("authorization violation") && !refused.contains("hunter"), "{refused}");
    }
    let right = Some(NatsAuth::Token("hunter2".to_owned()));
    assert_eq!(server.transport(right, None).attempt(events).await, Outcome::Accepted);
}

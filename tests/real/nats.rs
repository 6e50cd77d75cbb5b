//! Tests of the NATS JetStream sink with a real `nats-server`.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use informer_hub_sink::nats::{NatsAuth, NatsParams, NatsTransport};
use informer_hub_sink::{Event, EventOptions, Outcome, Transport};
use informer_hub_types::{
    ApiResource, Gvr, Labels, Notification, Object, ObjectKey, Origin, ResourceVersion, Scope, StoredObject,
    StoredObjectParts, Uid,
};

use crate::nats_server::Server;

/// Deadline of any wait, with room for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

impl Server {
    async fn client(&self) -> Context {
        jetstream::new(self.connect().await)
    }

    fn transport(&self, auth: Option<NatsAuth>, stream: Option<&str>) -> NatsTransport {
        NatsTransport::new(NatsParams {
            name: "informer-hub".to_owned(),
            urls: vec![self.url()],
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

/// Returns the subjects and payloads of a stream's messages, in order.
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
async fn acknowledged_events_are_stored_once_and_survive_a_server_crash() {
    let mut server = Server::start(&["--jetstream"]).await;
    make_stream(&server.client().await, "K8S", "k8s.>").await;
    let transport = server.transport(None, Some("K8S"));
    let first = batch(&[("a", 1), ("b.c", 1), ("a", 2), ("a", 3)]);
    assert_eq!(transport.attempt(Arc::clone(&first)).await, Outcome::Accepted);
    // Repeated, as after a lost acknowledgement.
    assert_eq!(transport.attempt(Arc::clone(&first)).await, Outcome::Accepted);
    let found = stored(&server.client().await, "K8S").await;
    let expected: Vec<_> = first.iter().map(|event| event.json().to_owned()).collect();
    assert_eq!(found.iter().map(|(_, payload)| payload.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(found[1].0, "k8s.prod-eu.pods.shop.b%2Ec");
    server.kill_and_restart().await;
    // The first attempts may fail on the broken connection.
    let second = batch(&[("a", 4)]);
    let until = async { while transport.attempt(Arc::clone(&second)).await != Outcome::Accepted {} };
    tokio::time::timeout(DEADLINE, until).await.expect("the transport reconnects");
    let found = stored(&server.client().await, "K8S").await;
    assert_eq!(found.len(), 5, "acknowledged messages are kept, without duplicates: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_stream_fails_delivery_and_the_error_names_the_remedy() {
    let server = Server::start(&["--jetstream"]).await;
    let events = batch(&[("a", 1)]);
    let transport = server.transport(None, None);
    let missing = error(transport.attempt(Arc::clone(&events)).await);
    assert!(missing.contains("no stream listens to k8s.prod-eu.pods.shop.a; create one"), "{missing}");
    // A stream other than the configured one.
    make_stream(&server.client().await, "OTHER", "k8s.>").await;
    let wrong = error(server.transport(None, Some("K8S")).attempt(Arc::clone(&events)).await);
    assert!(wrong.contains("expected stream does not match"), "{wrong}");
    assert_eq!(transport.attempt(events).await, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_sent_and_wrong_ones_fail_delivery() {
    let server = Server::start_with_token("hunter2").await;
    make_stream(&server.client().await, "K8S", "k8s.>").await;
    let events = batch(&[("a", 1)]);
    for wrong in [None, Some(NatsAuth::Token("hunter3".to_owned()))] {
        let refused = error(server.transport(wrong, None).attempt(Arc::clone(&events)).await);
        assert!(refused.contains("authorization violation") && !refused.contains("hunter"), "{refused}");
    }
    let right = Some(NatsAuth::Token("hunter2".to_owned()));
    assert_eq!(server.transport(right, None).attempt(events).await, Outcome::Accepted);
}

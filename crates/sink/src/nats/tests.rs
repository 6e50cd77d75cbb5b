//! Tests of the NATS transport against a fake server on loopback; `tests/real` uses a real server.

use std::time::Duration;

use informer_hub_testing::tls::{self, Ca};

use super::fake::{Behavior, FakeNats};
use super::*;
use crate::contract::{Fault, TestBed, assert_sink_contract};
use crate::test_objects::{added, event, pod};
use crate::{Action, BatchParams, Bounds, EventOptions, Machine, MachineParams, RetryParams, SinkHealth};
use informer_hub_types::clock::{self, Instant};
use rand::SeedableRng;
use rand::rngs::StdRng;

pub(super) fn params(url: String) -> NatsParams {
    NatsParams {
        name: "informer-hub".to_owned(),
        urls: vec![url],
        subject: "k8s.{cluster}.{resource}.{namespace}.{name}".parse().unwrap(),
        stream: None,
        auth: None,
        ca_file: None,
        client_cert: None,
        timeout: Duration::from_secs(5),
        shape: Arc::default(),
    }
}

fn error(outcome: Outcome) -> (bool, String) {
    match outcome {
        Outcome::Retry { after: None, content, error } => (content, error),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn events_are_stored_once_and_in_order() {
    let server = FakeNats::start().await;
    let transport = NatsTransport::new(params(server.url()));
    let batch: Arc<[Event]> =
        [("a", 1), ("b", 1), ("a", 2), ("a", 3)].map(|(name, version)| event(name, version, 10)).into();
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    let store = server.store.lock();
    assert_eq!((store.stored.len(), store.duplicates), (4, 4));
    for ((subject, id, payload), event) in store.stored.iter().zip(&*batch) {
        assert_eq!((id.as_str(), payload.as_str()), (event.id(), event.json()));
        assert!(subject.starts_with("k8s.prod-eu.pods.shop."), "{subject}");
    }
}

#[test]
fn wave_has_each_object_once() {
    let message = |object: &str| Message {
        object: object.to_owned(),
        subject: String::new(),
        id: String::new(),
        payload: Bytes::new(),
    };
    let lengths = |objects: &[&str]| {
        let messages: Vec<_> = objects.iter().map(|object| message(object)).collect();
        split_at_repeats(&messages).map(<[Message]>::len).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[]), [0; 0]);
    assert_eq!(lengths(&["a", "b", "c"]), [3]);
    assert_eq!(lengths(&["a", "b", "a", "a", "c"]), [2, 1, 2]);
    let many: Vec<_> = (0..=IN_FLIGHT * 2).map(|i| i.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(lengths(&many), [IN_FLIGHT, IN_FLIGHT, 1]);
}

#[tokio::test]
async fn failed_publish_is_retried_with_its_error() {
    let server = FakeNats::start().await;
    let batch: Arc<[Event]> = Arc::new([event("web", 1, 10)]);
    let transport = NatsTransport::new(params(server.url()));
    for (behavior, words) in [
        (Behavior::NoStream, "no stream listens to k8s.prod-eu.pods.shop.web; create one"),
        (Behavior::RefuseOnce, "maximum messages exceeded"),
    ] {
        server.store.lock().behavior = behavior;
        let (content, error) = error(transport.attempt(Arc::clone(&batch)).await);
        assert!(!content && error.contains(words), "{error}");
    }
    server.store.lock().behavior = Behavior::Store;
    assert_eq!(transport.attempt(batch).await, Outcome::Accepted);
}

#[tokio::test]
async fn attempt_at_a_missing_or_hanging_server_ends() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let batch: Arc<[Event]> = Arc::new([event("web", 1, 10)]);
    let (_, missing) = error(NatsTransport::new(params(format!("nats://{free}"))).attempt(Arc::clone(&batch)).await);
    assert!(missing.starts_with(&format!("cannot connect to nats://{free}: ")), "{missing}");
    // A server that accepts connections and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let brief = |url| NatsParams { timeout: Duration::from_millis(200), ..params(url) };
    let hanging = NatsTransport::new(brief(format!("nats://{addr}")));
    let (content, hung) = error(hanging.attempt(Arc::clone(&batch)).await);
    assert!(!content && (hung.contains("within 200ms") || hung.contains("timed out")), "{hung}");
    let server = FakeNats::start().await;
    server.store.lock().behavior = Behavior::Silent;
    let (content, silent) = error(NatsTransport::new(brief(server.url())).attempt(batch).await);
    assert!(!content && (silent.contains("within 200ms") || silent.contains("timed out")), "{silent}");
}

/// Starts a server that requires TLS. Returns its address, and a thread whose result says whether a client sent
/// something over TLS.
fn tls_server(ca: &Ca) -> (String, std::thread::JoinHandle<bool>) {
    let config = ca.server_config(&[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let info = r#"{"server_id":"","server_name":"","host":"","port":0,"version":"2.14.0","proto":1,"max_payload":1024,
            "headers":true,"go":"","client_id":1,"tls_required":true}"#;
        std::io::Write::write_all(&mut socket, format!("INFO {}\r\n", info.replace('\n', "")).as_bytes()).unwrap();
        tls::answer(socket, config, b"PONG\r\n")
    });
    (url, serving)
}

#[tokio::test]
async fn server_is_verified_against_ca_file() {
    let (ca, other, file) = (Ca::new(), Ca::new(), tempfile::NamedTempFile::new().unwrap());
    for (trusted, expected) in [(&ca, true), (&other, false)] {
        std::fs::write(file.path(), trusted.pem()).unwrap();
        let (url, serving) = tls_server(&ca);
        let timeout = Duration::from_secs(2);
        let transport =
            NatsTransport::new(NatsParams { ca_file: Some(file.path().to_owned()), timeout, ..params(url) });
        error(transport.attempt(Arc::new([event("web", 1, 0)])).await);
        assert_eq!(serving.join().unwrap(), expected);
    }
    // The embedding program, not this crate, chooses the crypto provider of the process.
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}

#[tokio::test]
async fn unusable_certificate_file_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let (_, missing) = error(
        NatsTransport::new(NatsParams {
            ca_file: Some("/nonexistent/ca.pem".into()),
            ..params("nats://127.0.0.1:1".into())
        })
        .attempt(Arc::new([event("web", 1, 0)]))
        .await,
    );
    assert!(missing.contains("cannot read ca_file /nonexistent/ca.pem"), "{missing}");
    let client_cert = Some((path.clone(), path));
    let (_, empty) = error(
        NatsTransport::new(NatsParams { client_cert, ..params("nats://127.0.0.1:1".into()) })
            .attempt(Arc::new([event("web", 1, 0)]))
            .await,
    );
    assert!(empty.contains("cannot use client_cert_file"), "{empty}");
}

#[tokio::test]
async fn message_that_is_too_large_counts_as_refused_content() {
    let server = FakeNats::start().await;
    let transport = NatsTransport::new(params(server.url()));
    let (content, error_text) = error(transport.attempt(Arc::new([event("web", 1, 2 << 20)])).await);
    assert!(content && error_text.contains("more than the server accepts"), "{error_text}");
    server.store.lock().behavior = Behavior::Poison("web".to_owned());
    let (content, error_text) = error(transport.attempt(Arc::new([event("web", 1, 1)])).await);
    assert!(content && error_text.contains("more than the stream accepts"), "{error_text}");
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    for (auth, told) in [
        (NatsAuth::Token("hunter2".into()), r#""auth_token":"hunter2""#),
        (NatsAuth::Password { user: "u".into(), password: "hunter2".into() }, r#""pass":"hunter2""#),
    ] {
        let server = FakeNats::start().await;
        let params = NatsParams { auth: Some(auth), ..params(server.url()) };
        assert!(!format!("{params:?}").contains("hunter2"));
        let transport = NatsTransport::new(params);
        assert!(!format!("{transport:?}").contains("hunter2"));
        assert_eq!(transport.attempt(Arc::new([event("web", 1, 1)])).await, Outcome::Accepted);
        assert!(server.store.lock().connects[0].contains(told));
    }
    let server = FakeNats::start().await;
    let missing = NatsParams { auth: Some(NatsAuth::CredsFile("nowhere.creds".into())), ..params(server.url()) };
    let (_, error) = error(NatsTransport::new(missing).attempt(Arc::new([event("web", 1, 1)])).await);
    assert!(error.contains("cannot use creds_file nowhere.creds"), "{error}");
}

/// Runs the machine until its virtual clock reaches `end`, with real delivery attempts.
async fn run_until(machine: &mut Machine<()>, transport: &NatsTransport, now: &mut Instant, end: Instant) {
    loop {
        while let Some(action) = machine.next(*now) {
            if let Action::Attempt { lane, batch } = action {
                machine.attempted(lane, Ok(transport.attempt(batch).await), *now);
            }
        }
        match machine.wake_at(*now) {
            Some(wake) if wake <= end => *now = wake.max(*now),
            _ => break,
        }
    }
    *now = end;
}

#[tokio::test]
async fn subject_without_a_stream_does_not_stop_others() {
    let server = FakeNats::start().await;
    server.store.lock().behavior = Behavior::NoStreamFor(".bad");
    let transport = NatsTransport::new(params(server.url()));
    let machine_params = MachineParams {
        name: "test".into(),
        selection: Arc::default(),
        options: EventOptions::default(),
        batch: BatchParams::default(),
        retry: RetryParams::default(),
        bounds: Bounds::default(),
        concurrency: std::num::NonZeroUsize::new(64).unwrap(),
        rate_limit: None,
        health: SinkHealth::new(),
    };
    let mut machine = Machine::new(machine_params, None, StdRng::seed_from_u64(7));
    let (mut now, minute) = (clock::now(), Duration::from_secs(60));
    for names in [&["bad"][..], &["a", "b", "c"], &["d", "e"]] {
        let notifications: Vec<_> = names.iter().map(|name| added(pod(name, "1", "x"), false)).collect();
        machine.ingest(notifications, jiff::Timestamp::UNIX_EPOCH, (), now);
        let end = now + minute;
        run_until(&mut machine, &transport, &mut now, end).await;
    }
    assert_eq!((server.store.lock().stored.len(), machine.undelivered()), (5, 1));
}

impl TestBed for FakeNats {
    fn transport(&self, timeout: Duration) -> Arc<dyn Transport> {
        Arc::new(NatsTransport::new(NatsParams { timeout, ..params(self.url()) }))
    }

    fn set(&self, fault: Fault) {
        self.store.lock().behavior = match fault {
            Fault::None => Behavior::Store,
            Fault::FailOnce => Behavior::RefuseOnce,
            Fault::Hang => Behavior::Silent,
            Fault::Poison(text) => Behavior::Poison(text.to_owned()),
        };
    }

    fn accepted(&self) -> Vec<String> {
        self.store.lock().stored.iter().map(|(_, _, payload)| payload.clone()).collect()
    }
}

#[tokio::test]
async fn nats_passes_the_sink_contract() {
    assert_sink_contract(FakeNats::start).await;
}

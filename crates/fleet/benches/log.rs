//! Throughput of the log beside bare JetStream publish and consume: 1 KB events, one stream, one replica, in one run.
//!
//! `make bench-log` builds the server, whose path is in `BENCH_NATS`. Server, writer and reader share the machine. Bare
//! JetStream stores one message per event, with acknowledgements in flight; the log stores batches, one in flight per
//! partition.

#![expect(clippy::cast_precision_loss, reason = "rates are printed without decimals")]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use futures::StreamExt;
use informer_hub_fleet::jetstream::{FixedLimits, JetStreamLog, LogParams};
use informer_hub_fleet::writer::OfferError;
use informer_hub_fleet::{
    Partition, ReadOutcome, Reader, Record, ResetReason, Subjects, Writer, WriterEvent, WriterParams,
};
use informer_hub_types::{ClusterName, Gvr, ObjectKey, ResourceVersion, Uid, clock};

const EVENTS: usize = 100_000;
const SIZE: usize = 1024;
const ROUNDS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(30);

struct Server {
    child: Child,
    url: String,
    _store: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(binary: &str) -> Server {
    let port =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a free port").port();
    let store = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(Path::new(binary));
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]).arg(store.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts");
    Server { child, url: format!("nats://127.0.0.1:{port}"), _store: store }
}

async fn connect(url: &str) -> async_nats::Client {
    loop {
        match async_nats::connect(url).await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Returns an object of [`SIZE`] bytes: JSON with a part that differs per event.
fn body(event: usize) -> Bytes {
    let mut text =
        format!(r#"{{"metadata":{{"name":"web-{event}","namespace":"shop","resourceVersion":"{event}"}},"spec":{{"#);
    let mut state = event as u64 + 1;
    while text.len() + 40 < SIZE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(text, r#""field{}":"{:x}","#, state % 20, state >> 33);
    }
    text.push_str(r#""end":""#);
    text.extend(std::iter::repeat_n('x', SIZE - text.len() - 3));
    text.push_str(r#""}}"#);
    text.into()
}

/// Publishes and consumes one message per event. Returns events per second.
async fn bare(url: &str, round: usize, bodies: &[Bytes]) -> f64 {
    let (name, subject) = (format!("bare-{round}"), format!("bare.{round}"));
    let publisher = ContextBuilder::new().timeout(TIMEOUT).ack_timeout(TIMEOUT).max_ack_inflight(1024);
    let publisher = publisher.backpressure_on_inflight(true).build(connect(url).await);
    let config = Config { name: name.clone(), subjects: vec![subject.clone()], ..Config::default() };
    let stream = publisher.create_stream(config).await.expect("a stream");
    let consumer = stream.create_consumer(pull::OrderedConfig::default()).await.expect("a consumer");
    let mut messages = consumer.messages().await.expect("messages");
    let begun = clock::now();
    let publishing = async {
        let mut waiting = futures::stream::FuturesUnordered::new();
        for body in bodies {
            if waiting.len() >= 1024 {
                let stored: Option<Result<_, _>> = waiting.next().await;
                stored.expect("one waits").expect("the message is stored");
            }
            let message = PublishMessage::build().payload(body.clone());
            let sent = publisher.send_publish(subject.clone(), message).await.expect("the message is sent");
            waiting.push(std::future::IntoFuture::into_future(sent));
        }
        while let Some(stored) = waiting.next().await {
            stored.expect("the message is stored");
        }
    };
    let consuming = async {
        for _ in bodies {
            messages.next().await.expect("a message").expect("a message");
        }
    };
    tokio::join!(publishing, consuming);
    let rate = bodies.len() as f64 / begun.elapsed().as_secs_f64();
    publisher.delete_stream(&name).await.expect("the stream is deleted");
    rate
}

/// Passes the events through writer, log and reader. Returns events per second.
async fn log(url: &str, round: usize, bodies: &[Bytes], compress: bool) -> f64 {
    let subjects = Subjects::new(&format!("fleet{round}-{compress}")).expect("a name");
    let params = LogParams {
        subjects: subjects.clone(),
        replicas: 1,
        max_age: Duration::from_secs(3600),
        max_bytes: 1 << 30,
        fixed: FixedLimits::default(),
        timeout: TIMEOUT,
    };
    let client = connect(url).await;
    let mut log = JetStreamLog::open(client.clone(), params).await.expect("the log opens");
    let cluster = ClusterName::new("c").expect("a name");
    let partition = Partition { cluster, resource: Gvr::new("", "v1", "pods"), selection: 0 };
    let mut writer = Writer::new(WriterParams { compress, answer_timeout: TIMEOUT, ..WriterParams::default() });
    writer.open(partition.clone(), 1);
    let start = clock::now();
    let mut claimed = false;
    while !claimed {
        writer.exchange(&mut log, clock::now() - start);
        claimed = writer.take_events().iter().any(|event| matches!(event, WriterEvent::Claimed { .. }));
        if !claimed {
            log.answered().await;
        }
    }
    writer.offer(&partition, &Record::Reset { reason: ResetReason::Restart }).expect("there is room");
    let mut tail = log.tail(0, subjects.all()).await.expect("the tail opens");
    let records: Vec<_> = bodies
        .iter()
        .enumerate()
        .map(|(at, body)| Record::Put {
            key: ObjectKey::new("shop", &format!("web-{}", at % 5000)),
            uid: Uid::new("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
            version: ResourceVersion::new(&(at + 1).to_string()),
            body: body.clone(),
        })
        .collect();
    let begun = clock::now();
    let writing = tokio::spawn(async move {
        let mut rest = records.iter().peekable();
        while rest.peek().is_some() || writer.queued_bytes() > 0 {
            while let Some(record) = rest.peek() {
                match writer.offer(&partition, record) {
                    Ok(()) => drop(rest.next()),
                    Err(OfferError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            writer.exchange(&mut log, clock::now() - start);
            if writer.queued_bytes() > 0 {
                log.answered().await;
            }
        }
    });
    let (mut reader, mut read) = (Reader::new(), 0);
    while read < bodies.len() {
        let entry = tail.next().await.expect("the log can be read").expect("an entry");
        if let ReadOutcome::Records(records) = reader.read(&entry).expect("the entry can be decoded") {
            read += records.iter().filter(|record| matches!(record, Record::Put { .. })).count();
        }
    }
    let rate = bodies.len() as f64 / begun.elapsed().as_secs_f64();
    writing.await.expect("the writer ends");
    let context = async_nats::jetstream::new(client);
    context.delete_stream(format!("{}-log", subjects.fleet())).await.expect("the stream is deleted");
    rate
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Ok(binary) = std::env::var("BENCH_NATS") else {
        println!("BENCH_NATS is not set; use `make bench-log`");
        return;
    };
    let bodies: Vec<_> = (0..EVENTS).map(body).collect();
    let server = start(&binary);
    let (mut alone, mut packed, mut plain) = ([0.0; ROUNDS], [0.0; ROUNDS], [0.0; ROUNDS]);
    for round in 0..ROUNDS {
        alone[round] = bare(&server.url, round, &bodies).await;
        packed[round] = log(&server.url, round, &bodies, true).await;
        plain[round] = log(&server.url, round, &bodies, false).await;
        println!(
            "round {round}: bare {:.0}, log {:.0}, log without compression {:.0} events/s",
            alone[round], packed[round], plain[round]
        );
    }
    let (alone, packed, plain) = (median(&mut alone), median(&mut packed), median(&mut plain));
    println!("{EVENTS} events of {SIZE} bytes, median of {ROUNDS} rounds, events/s");
    println!("bare JetStream           {alone:>9.0}");
    println!("log                      {packed:>9.0}  {:.2} x", packed / alone);
    println!("log without compression  {plain:>9.0}  {:.2} x", plain / alone);
}

//! Fuzz target: a webhook receiver's response, as bytes on a connection, and the sink's reaction.
//!
//! The first byte selects the piece sizes. The rest is the response.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use informer_hub_sink::webhook::{WebhookUrl, outcome_of};
use informer_hub_sink::{
    Action, BatchParams, Bounds, EventOptions, Machine, MachineParams, Outcome, RetryParams, Selection, SinkHealth,
};
use informer_hub_types::clock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::input::{Input, pieces};
use super::objects::notifications;

/// Receiver URL. Its path and query are secrets and must not appear in errors.
const URL: &str = "http://receiver.example.com/hooks/T0K3N?key=K3Y";

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let seed = input.byte();
    let Some(outcome) = RUNTIME.with(|runtime| runtime.block_on(outcome(input.0, seed))) else { return };
    if let Outcome::Retry { error, .. } | Outcome::Disable { error } = &outcome {
        assert!(!error.contains("hooks/T0K3N") && !error.contains("key=K3Y"), "{error}");
        assert!(error.chars().count() < 600 && !error.contains(char::is_control), "{error:?}");
    }
    deliver(&outcome);
}

/// Returns the outcome of a response, or `None` if the bytes are not an HTTP response.
async fn outcome(bytes: &[u8], seed: u8) -> Option<Outcome> {
    let (ours, mut theirs) = tokio::io::duplex(64 << 10);
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(ours)).await.ok()?;
    let receiver = async {
        let mut request = [0; 1024];
        let _ = theirs.read(&mut request).await;
        for piece in pieces(bytes, seed) {
            if theirs.write_all(piece).await.is_err() {
                break;
            }
        }
        drop(theirs);
        std::future::pending::<Infallible>().await
    };
    let exchange = async {
        let request = http::Request::post("/").header("host", "receiver").body(Empty::new()).ok()?;
        let answer = sender.send_request(request).await.ok()?;
        let url = WebhookUrl::parse(URL).expect("a valid URL");
        Some(outcome_of(answer.map(reqwest::Body::wrap), &url).await)
    };
    let run = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        outcome = exchange => outcome,
        _ = receiver => None,
        _ = run => None,
    }
}

/// Runs a sink that always gets this outcome, and verifies that each event is delivered, dead-lettered or pending.
fn deliver(outcome: &Outcome) {
    let mut now = clock::now();
    let mut machine = Machine::new(params(), None, StdRng::seed_from_u64(1));
    let notifications: Vec<_> = notifications().into_iter().take(3).collect();
    let count = notifications.len() as u64;
    machine.ingest(notifications, jiff::Timestamp::UNIX_EPOCH, (), now);
    let (mut delivered, mut letters) = (0, 0);
    for _ in 0..40 {
        match machine.next(now) {
            Some(Action::Attempt { lane, batch }) => {
                if *outcome == Outcome::Accepted {
                    delivered += batch.len() as u64;
                }
                machine.attempted(lane, Ok(outcome.clone()), now);
            }
            Some(Action::Answer(())) => {}
            Some(Action::Work(_)) => panic!("no background work was started"),
            None => match machine.wake_at(now) {
                Some(at) => {
                    assert!(at > now && at <= now + Duration::from_secs(24 * 3600 + 1), "when to wake");
                    now = at;
                }
                None => break,
            },
        }
        letters += machine.take_letters().len() as u64;
        assert_eq!(delivered + letters + machine.undelivered(), count, "delivered, dead-lettered or pending");
    }
    assert!(*outcome != Outcome::Accepted || delivered == count);
}

fn params() -> MachineParams {
    MachineParams {
        name: "fuzz".into(),
        selection: Arc::new(Selection::default()),
        options: EventOptions::default(),
        batch: BatchParams::default(),
        retry: RetryParams::default(),
        bounds: Bounds::default(),
        concurrency: NonZeroUsize::MIN,
        rate_limit: None,
        health: SinkHealth::new(),
    }
}

//! Contract suite for sinks: checks that every transport must pass in its tests.
//!
//! A [`TestBed`] has a transport and a test receiver that can be made to fail. Most checks use only the transport. Like
//! a sink, they retry a failed batch, and halve a batch whose content is refused. The checks in `whole_sink` run a
//! complete sink, with its state machine and journal, on the transport.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

mod process;
mod whole_sink;

use super::test_objects::{added, event, object, origin};
use super::{Event, EventOptions, Outcome, Redaction, Transport};

/// Fault that a test injects into the test receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// The receiver accepts everything.
    #[default]
    None,
    /// The receiver fails the next attempt to deliver a batch.
    FailOnce,
    /// The receiver never answers.
    Hang,
    /// The receiver refuses batches that contain this text.
    Poison(&'static str),
}

/// A transport under test and its receiver.
pub trait TestBed: Send + Sync {
    /// Returns a new transport to the receiver. Its delivery attempts time out after `deadline`.
    fn transport(&self, deadline: Duration) -> Arc<dyn Transport>;
    /// Sets how the receiver misbehaves from now on.
    fn set(&self, fault: Fault);
    /// Returns the events that the receiver has accepted, as JSON, in order.
    fn accepted(&self) -> Vec<String>;
    /// Simulates the death of a process that used all transports created so far. Drops the pending I/O of these
    /// transports.
    fn killed(&self) {}
    /// Returns whether the receiver can refuse a batch because of its content.
    fn refuses(&self) -> bool {
        true
    }
}

/// Time limit for actions that must succeed, long enough for a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Time limit of attempts in checks that wait for an attempt to time out.
const SHORT: Duration = Duration::from_millis(300);

fn batch(names: &[(&str, u64)]) -> Arc<[Event]> {
    names.iter().map(|(name, version)| event(name, *version, 20)).collect()
}

/// Returns the object name and the resourceVersion of each event that the receiver accepted, in order.
fn states(bed: &dyn TestBed) -> Vec<(String, u64)> {
    let state = |text: &String| {
        let event: serde_json::Value = serde_json::from_str(text).ok()?;
        let version = event["data"]["resourceVersion"].as_str()?.parse().ok()?;
        Some((event["data"]["name"].as_str()?.to_owned(), version))
    };
    bed.accepted().iter().filter_map(state).collect()
}

fn expected(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

/// Delivers a batch with the retries of a sink. Returns the subjects of the events that were given up.
async fn deliver(transport: &dyn Transport, batch: Arc<[Event]>) -> Vec<String> {
    let (mut rest, mut lost) = (vec![batch], Vec::new());
    for _ in 0..100 {
        let Some(batch) = rest.pop() else { return lost };
        match transport.attempt(Arc::clone(&batch)).await {
            Outcome::Accepted => {}
            Outcome::Retry { content: true, .. } | Outcome::Unsendable { .. } if batch.len() == 1 => {
                lost.push(batch[0].subject().to_owned());
            }
            Outcome::Retry { content: true, .. } | Outcome::Unsendable { .. } => {
                let (first, second) = batch.split_at(batch.len() / 2);
                rest.extend([second.into(), first.into()]);
            }
            Outcome::Retry { .. } => rest.push(batch),
            Outcome::Disable { error } => panic!("disabled: {error}"),
        }
    }
    panic!("a hundred attempts were not enough");
}

async fn acknowledged_batch_is_accepted_whole_and_in_order(bed: &dyn TestBed) {
    let transport = bed.transport(LONG);
    let names = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("b", 2)];
    assert_eq!(transport.attempt(batch(&names[..4])).await, Outcome::Accepted);
    assert_eq!(transport.attempt(batch(&names[4..])).await, Outcome::Accepted);
    assert_eq!(states(bed), expected(&names));
}

async fn failed_attempt_loses_no_event(bed: &dyn TestBed) {
    let transport = bed.transport(LONG);
    for round in 1..=3 {
        bed.set(Fault::FailOnce);
        let names = [("a", round * 10), ("b", round * 10), ("a", round * 10 + 1)];
        let failed = transport.attempt(batch(&names)).await;
        assert!(matches!(failed, Outcome::Retry { content: false, .. }), "{failed:?}");
        assert_eq!(deliver(&*transport, batch(&names)).await, Vec::<String>::new());
    }
    let states = states(bed);
    for name in ["a", "b"] {
        let mut versions: Vec<_> =
            states.iter().filter(|(other, _)| other == name).map(|(_, version)| *version).collect();
        // Repetitions are allowed. The first occurrences are in order, and the newest state is last.
        assert_eq!(versions.last(), versions.iter().max());
        let mut seen = std::collections::HashSet::new();
        versions.retain(|version| seen.insert(*version));
        assert!(versions.is_sorted(), "{versions:?}");
        assert_eq!(versions.len(), if name == "a" { 6 } else { 3 });
    }
}

async fn attempt_at_a_hanging_receiver_ends_at_its_deadline(bed: &dyn TestBed) {
    bed.set(Fault::Hang);
    let hanging = bed.transport(SHORT);
    let ended = tokio::time::timeout(LONG, hanging.attempt(batch(&[("a", 1)])))
        .await
        .expect("the attempt outlasts its deadline");
    let Outcome::Retry { content: false, error, .. } = ended else { panic!("{ended:?}") };
    assert!(error.contains("within") || error.contains("timed out"), "{error}");
    bed.set(Fault::None);
    assert_eq!(deliver(&*bed.transport(LONG), batch(&[("a", 1)])).await, Vec::<String>::new());
    assert!(states(bed).contains(&("a".to_owned(), 1)));
}

async fn poisoned_event_does_not_affect_others(bed: &dyn TestBed) {
    if !bed.refuses() {
        return;
    }
    bed.set(Fault::Poison("bad"));
    let names = [("a", 1), ("b", 1), ("bad", 1), ("a", 2), ("c", 1), ("d", 1), ("b", 2)];
    let lost = deliver(&*bed.transport(LONG), batch(&names)).await;
    assert_eq!(lost, ["/v1/pods/shop/bad"]);
    let accepted = states(bed);
    for state in expected(&names).into_iter().filter(|(name, _)| name != "bad") {
        assert!(accepted.contains(&state), "{state:?} of {accepted:?}");
    }
}

async fn redacted_values_are_not_delivered(bed: &dyn TestBed) {
    let json = serde_json::json!({"metadata": {"name": "web"}, "spec": {"token": "hunter2"}, "data": {"k": "hunter3"}});
    let redaction = Redaction::new(vec!["spec.token".parse().expect("a path")]);
    let options = EventOptions { redaction, ..EventOptions::default() };
    let make = |resource, kind| {
        let object = object(origin("", resource, kind), "shop", "web", "1", &json);
        Event::new(&added(object, false), jiff::Timestamp::UNIX_EPOCH, &options).expect("an event")
    };
    let events: Arc<[Event]> = Arc::new([make("pods", "Pod"), make("secrets", "Secret")]);
    assert_eq!(bed.transport(LONG).attempt(events).await, Outcome::Accepted);
    let accepted = bed.accepted();
    assert_eq!(accepted.len(), 2);
    assert!(accepted.iter().all(|text| !text.contains("hunter2") && text.contains("<redacted>")), "{accepted:?}");
    assert!(!accepted[1].contains("hunter3"), "{accepted:?}");
}

async fn dropped_attempt_can_be_repeated(bed: &dyn TestBed) {
    bed.set(Fault::Hang);
    let transport = bed.transport(LONG);
    let dropped = tokio::time::timeout(SHORT, transport.attempt(batch(&[("a", 1), ("a", 2)]))).await;
    assert!(dropped.is_err(), "{dropped:?}");
    bed.set(Fault::None);
    for transport in [transport, bed.transport(LONG)] {
        assert_eq!(deliver(&*transport, batch(&[("a", 1), ("a", 2)])).await, Vec::<String>::new());
    }
    let accepted = states(bed);
    assert!(accepted.contains(&("a".to_owned(), 1)) && accepted.last() == Some(&("a".to_owned(), 2)), "{accepted:?}");
}

/// A check of the suite, which panics if it fails.
pub type Check = for<'b> fn(&'b dyn TestBed) -> BoxFuture<'b, ()>;

/// All checks, by name.
pub const CHECKS: [(&str, Check); 10] = [
    ("acknowledgement", |bed| Box::pin(acknowledged_batch_is_accepted_whole_and_in_order(bed))),
    ("failure", |bed| Box::pin(failed_attempt_loses_no_event(bed))),
    ("hang", |bed| Box::pin(attempt_at_a_hanging_receiver_ends_at_its_deadline(bed))),
    ("poison", |bed| Box::pin(poisoned_event_does_not_affect_others(bed))),
    ("redaction", |bed| Box::pin(redacted_values_are_not_delivered(bed))),
    ("drop", |bed| Box::pin(dropped_attempt_can_be_repeated(bed))),
    ("restart", |bed| Box::pin(whole_sink::restart_delivers_the_rest_and_repeats_only_events_in_flight(bed))),
    ("back-pressure", |bed| Box::pin(whole_sink::unresponsive_receiver_holds_back_the_senders(bed))),
    ("full journal", |bed| Box::pin(whole_sink::full_journal_holds_back_the_senders(bed))),
    ("shutdown", |bed| Box::pin(whole_sink::shutdown_delivers_pending_events_and_keeps_the_rest(bed))),
];

/// Runs all checks, each with a new [`TestBed`] from `make`.
pub async fn assert_sink_contract<B: TestBed, F: Future<Output = B>>(make: impl Fn() -> F) {
    for (name, check) in CHECKS {
        println!("contract: {name}");
        check(&make().await).await;
    }
}

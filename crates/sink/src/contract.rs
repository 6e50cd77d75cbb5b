//! What every sink must do, whatever it talks to: one suite, run against each of them.
//!
//! A [`Bed`] is a transport with a receiver that can be told to misbehave. Most checks are of the transport alone: batches
//! are delivered as a sink would, again after a failure, in halves where the content was refused, given up where a single
//! event is. Those of [`whole`] have a sink's machine and journal before it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

mod life;
mod whole;

use super::test_objects::{added, event, object, origin};
use super::{Event, EventOptions, Outcome, Redaction, Transport};

/// How the receiver behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// As it should.
    #[default]
    None,
    /// It fails the next attempt.
    FailOnce,
    /// It says nothing.
    Hang,
    /// It refuses what holds this text.
    Poison(&'static str),
}

/// A transport and its receiver.
pub trait Bed: Send + Sync {
    /// A transport whose attempts take no longer than this.
    fn transport(&self, deadline: Duration) -> Arc<dyn Transport>;
    /// Tells the receiver how to behave.
    fn set(&self, fault: Fault);
    /// What the receiver has taken, as text, event by event, in order.
    fn taken(&self) -> Vec<String>;
    /// The process of all transports so far is gone; what it was about to do it does not.
    fn killed(&self) {}
    /// Whether the receiver can refuse a content at all.
    fn refuses(&self) -> bool {
        true
    }
}

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);

fn batch(names: &[(&str, u64)]) -> Arc<[Event]> {
    names.iter().map(|(name, version)| event(name, *version, 20)).collect()
}

/// Names and versions of what was taken.
fn states(bed: &dyn Bed) -> Vec<(String, u64)> {
    let state = |text: &String| {
        let event: serde_json::Value = serde_json::from_str(text).ok()?;
        let version = event["data"]["resourceVersion"].as_str()?.parse().ok()?;
        Some((event["data"]["name"].as_str()?.to_owned(), version))
    };
    bed.taken().iter().filter_map(state).collect()
}

fn told(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

/// Delivers a batch as a sink does. Gives back the subjects of what had to be given up.
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

async fn an_acknowledgement_means_that_all_of_the_batch_was_taken_in_order(bed: &dyn Bed) {
    let transport = bed.transport(LONG);
    let names = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("b", 2)];
    assert_eq!(transport.attempt(batch(&names[..4])).await, Outcome::Accepted);
    assert_eq!(transport.attempt(batch(&names[4..])).await, Outcome::Accepted);
    assert_eq!(states(bed), told(&names));
}

async fn a_failure_is_no_acknowledgement_and_nothing_is_lost_by_it(bed: &dyn Bed) {
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
        // Repeated it may be, out of order it is not: the first time of each state comes in order, the newest is last.
        assert_eq!(versions.last(), versions.iter().max());
        let mut seen = std::collections::HashSet::new();
        versions.retain(|version| seen.insert(*version));
        assert!(versions.is_sorted(), "{versions:?}");
        assert_eq!(versions.len(), if name == "a" { 6 } else { 3 });
    }
}

async fn a_receiver_that_hangs_ends_the_attempt_by_its_deadline(bed: &dyn Bed) {
    bed.set(Fault::Hang);
    let hanging = bed.transport(SHORT);
    let ended =
        tokio::time::timeout(LONG, hanging.attempt(batch(&[("a", 1)]))).await.expect("an attempt has a deadline");
    let Outcome::Retry { content: false, error, .. } = ended else { panic!("{ended:?}") };
    assert!(error.contains("within") || error.contains("timed out"), "{error}");
    bed.set(Fault::None);
    assert_eq!(deliver(&*bed.transport(LONG), batch(&[("a", 1)])).await, Vec::<String>::new());
    assert!(states(bed).contains(&("a".to_owned(), 1)));
}

async fn one_event_that_is_always_refused_takes_no_other_along(bed: &dyn Bed) {
    if !bed.refuses() {
        return;
    }
    bed.set(Fault::Poison("bad"));
    let names = [("a", 1), ("b", 1), ("bad", 1), ("a", 2), ("c", 1), ("d", 1), ("b", 2)];
    let lost = deliver(&*bed.transport(LONG), batch(&names)).await;
    assert_eq!(lost, ["/v1/pods/shop/bad"]);
    let taken = states(bed);
    for state in told(&names).into_iter().filter(|(name, _)| name != "bad") {
        assert!(taken.contains(&state), "{state:?} of {taken:?}");
    }
}

async fn what_is_redacted_does_not_arrive(bed: &dyn Bed) {
    let json = serde_json::json!({"metadata": {"name": "web"}, "spec": {"token": "hunter2"}, "data": {"k": "hunter3"}});
    let redaction = Redaction::new(vec!["spec.token".parse().expect("a path")]);
    let options = EventOptions { redaction, ..EventOptions::default() };
    let make = |resource, kind| {
        let object = object(origin("", resource, kind), "shop", "web", "1", &json);
        Event::new(&added(object, false), jiff::Timestamp::UNIX_EPOCH, &options).expect("an event")
    };
    let events: Arc<[Event]> = Arc::new([make("pods", "Pod"), make("secrets", "Secret")]);
    assert_eq!(bed.transport(LONG).attempt(events).await, Outcome::Accepted);
    let taken = bed.taken();
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(|text| !text.contains("hunter2") && text.contains("<redacted>")), "{taken:?}");
    assert!(!taken[1].contains("hunter3"), "{taken:?}");
}

async fn an_attempt_that_is_dropped_can_be_made_again(bed: &dyn Bed) {
    bed.set(Fault::Hang);
    let transport = bed.transport(LONG);
    let dropped = tokio::time::timeout(SHORT, transport.attempt(batch(&[("a", 1), ("a", 2)]))).await;
    assert!(dropped.is_err(), "{dropped:?}");
    bed.set(Fault::None);
    for transport in [transport, bed.transport(LONG)] {
        assert_eq!(deliver(&*transport, batch(&[("a", 1), ("a", 2)])).await, Vec::<String>::new());
    }
    let taken = states(bed);
    assert!(taken.contains(&("a".to_owned(), 1)) && taken.last() == Some(&("a".to_owned(), 2)), "{taken:?}");
}

/// One check of the suite.
pub type Check = for<'b> fn(&'b dyn Bed) -> BoxFuture<'b, ()>;

/// The suite.
pub const CHECKS: [(&str, Check); 10] = [
    ("acknowledgement", |bed| Box::pin(an_acknowledgement_means_that_all_of_the_batch_was_taken_in_order(bed))),
    ("failure", |bed| Box::pin(a_failure_is_no_acknowledgement_and_nothing_is_lost_by_it(bed))),
    ("hang", |bed| Box::pin(a_receiver_that_hangs_ends_the_attempt_by_its_deadline(bed))),
    ("poison", |bed| Box::pin(one_event_that_is_always_refused_takes_no_other_along(bed))),
    ("redaction", |bed| Box::pin(what_is_redacted_does_not_arrive(bed))),
    ("drop", |bed| Box::pin(an_attempt_that_is_dropped_can_be_made_again(bed))),
    ("restart", |bed| Box::pin(whole::a_restart_delivers_the_rest_and_repeats_at_most_what_was_under_way(bed))),
    ("back-pressure", |bed| Box::pin(whole::a_receiver_that_does_not_answer_holds_back_the_senders(bed))),
    ("full journal", |bed| Box::pin(whole::a_full_journal_holds_back_the_senders(bed))),
    ("shutdown", |bed| Box::pin(whole::a_shutdown_delivers_what_it_can_and_keeps_the_rest(bed))),
];

/// Runs the whole suite, each check with a bed of its own.
pub async fn keeps_the_contract<B: Bed, F: Future<Output = B>>(make: impl Fn() -> F) {
    for (name, check) in CHECKS {
        println!("contract: {name}");
        check(&make().await).await;
    }
}

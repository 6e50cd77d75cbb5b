//! Tests of receivers that refuse content: temporarily, permanently for some events, and at the queue's bounds.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn refusal() -> Outcome {
    Outcome::Retry { after: None, content: true, error: "receiver answered 400 Bad Request".to_owned() }
}

/// Returns a receiver that refuses batches with an event of a matching subject, and its counter of attempts.
fn refusing(is_refused: impl Fn(&str) -> bool + 'static) -> (Script, Rc<Cell<u32>>) {
    let attempts = Rc::new(Cell::new(0));
    let counter = Rc::clone(&attempts);
    let script = move |batch: &[Event]| {
        counter.set(counter.get() + 1);
        if batch.iter().any(|event| is_refused(event.subject())) { refusal() } else { Outcome::Accepted }
    };
    (Box::new(script), attempts)
}

fn rigs() -> [Rig; 2] {
    [Rig::new(), Rig::in_memory()]
}

fn letters(rig: &mut Rig) -> Vec<String> {
    let letters = rig.store.list_letters(&LetterFilter::default(), 0, 10_000).unwrap();
    letters.into_iter().map(|letter| letter.subject).collect()
}

/// Asserts that each object's versions arrived in order and once.
fn assert_all(rig: &Rig, objects: usize, versions: u64) {
    let seen = rig.versions();
    assert_eq!(seen.len(), objects);
    for (subject, seen) in seen {
        assert!(seen.iter().copied().eq(1..=versions), "{subject}: {seen:?}");
    }
}

#[test]
fn thirty_seconds_of_refusals_cause_no_dead_letter() {
    for (mut rig, kind) in rigs().into_iter().zip(["journal", "memory"]) {
        let (script, attempts) = refusing(|_| true);
        rig.receiver = script;
        for chunk in history(20, 5).chunks(20) {
            rig.send(chunk.to_vec());
            rig.run(6 * SECOND);
        }
        assert!(attempts.get() < 200, "{} attempts at a receiver that refuses everything", attempts.get());
        assert!(rig.accepted.is_empty() && rig.health.status().dead_lettered == 0);
        rig.receiver(|_| Outcome::Accepted);
        let mut recovered = 0;
        while rig.machine.undelivered() > 0 {
            rig.run(SECOND);
            recovered += 1;
            assert!(recovered <= 60, "{} undelivered", rig.machine.undelivered());
        }
        println!("{kind}: {} attempts in 30 s, all delivered {recovered} s after the recovery", attempts.get());
        assert_all(&rig, 20, 5);
        assert_eq!((letters(&mut rig).len(), rig.health.status().refused_events), (0, 0));
        assert_eq!(rig.health.status().refusal, None);
    }
}

#[test]
fn refused_event_blocks_only_its_object() {
    for mut rig in rigs() {
        let (script, _) = refusing(|subject| subject.ends_with("/web-3"));
        rig.receiver = script;
        rig.send(history(10, 2));
        rig.run(2 * SECOND);
        assert_eq!(rig.accepted.len(), 18, "all but web-3");
        let status = rig.health.status();
        assert_eq!((status.refused_events, status.dead_lettered), (2, 0));
        assert!(status.refusal.is_some_and(|why| why.contains("400")), "deliveries of other events keep it");
        // Later states of the refused object wait; those of other objects are delivered immediately, minute after
        // minute.
        for version in 3..=10 {
            rig.send((0..10).map(|at| update(&format!("web-{at}"), version)).collect());
            rig.run(SECOND);
            assert_eq!(rig.accepted.len(), 9 * usize::try_from(version).unwrap());
            rig.run(50 * SECOND);
        }
        assert_eq!(rig.health.status().refused_events, 10);
        rig.receiver(|_| Outcome::Accepted);
        rig.run(MINUTE + SECOND);
        assert_all(&rig, 10, 10);
        assert_eq!(letters(&mut rig).len(), 0);
    }
}

#[test]
fn event_refused_for_ten_minutes_becomes_a_dead_letter() {
    for mut rig in rigs() {
        let (script, attempts) = refusing(|subject| subject.ends_with("/web-3"));
        rig.receiver = script;
        rig.send(history(4, 1));
        rig.run(Duration::from_secs(599));
        assert_eq!(letters(&mut rig).len(), 0);
        assert!((15..60).contains(&attempts.get()), "{} attempts in ten minutes", attempts.get());
        rig.send(vec![update("web-3", 2)]);
        rig.run(2 * SECOND);
        assert_eq!(letters(&mut rig), ["/v1/pods/shop/web-3"]);
        assert_eq!(rig.machine.undelivered(), 1, "the next state is retried for ten minutes of its own");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(MINUTE);
        assert_eq!((rig.versions()["/v1/pods/shop/web-3"].as_slice(), rig.machine.undelivered()), (&[2][..], 0));
    }
}

#[test]
fn event_refused_first_is_given_up_at_the_bound() {
    for mut rig in rigs() {
        // A quarter of the bound of 200 is available for events set aside.
        let (script, _) = refusing(|subject| subject.contains("/bad-"));
        rig.receiver = script;
        for at in 0..80 {
            let bad = added(pod(&format!("bad-{at:02}"), "1", "x"), false);
            let good = added(pod(&format!("web-{at}"), "1", "x"), false);
            rig.send(vec![bad, good]);
            rig.run(SECOND);
            assert!(rig.health.status().refused_events <= 50);
        }
        rig.run(SECOND);
        assert_eq!(rig.accepted.len(), 80, "other objects are delivered");
        let first: Vec<_> = (0..30).map(|at| format!("/v1/pods/shop/bad-{at:02}")).collect();
        assert_eq!(letters(&mut rig), first);
        assert_eq!((rig.machine.undelivered(), rig.health.status().refused_events), (50, 50));
    }
}

#[test]
fn restart_keeps_order_of_refused_events_and_resets_their_time() {
    for power in [false, true] {
        let mut rig = Rig::new();
        let (script, _) = refusing(|subject| subject.ends_with("/web-3"));
        rig.receiver = script;
        rig.send(history(10, 4));
        rig.run(9 * MINUTE);
        assert_eq!(rig.accepted.len(), 36);
        rig.restart(power);
        rig.run(9 * MINUTE);
        assert_eq!((letters(&mut rig).len(), rig.machine.undelivered()), (0, 4));
        assert_eq!(rig.health.status().refused_events, 4);
        rig.receiver(|_| Outcome::Accepted);
        rig.run(MINUTE + SECOND);
        assert_all(&rig, 10, 4);
    }
}

#[test]
fn unsendable_event_becomes_a_dead_letter_at_once() {
    for mut rig in rigs() {
        rig.receiver(|batch| {
            let is_bad = batch.iter().any(|event| event.subject().ends_with("/web-3"));
            let error = "template: undefined value".to_owned();
            if is_bad { Outcome::Unsendable { error } } else { Outcome::Accepted }
        });
        rig.send(history(10, 2));
        rig.run(SECOND);
        assert_eq!((rig.accepted.len(), letters(&mut rig).len(), rig.machine.undelivered()), (18, 2, 0));
    }
}

#[test]
fn shutdown_without_a_journal_retries_refused_events_briefly() {
    let mut rig = Rig::in_memory();
    let (script, attempts) = refusing(|subject| subject.ends_with("/web-3"));
    rig.receiver = script;
    rig.send(history(10, 2));
    rig.run(SECOND);
    let before = attempts.get();
    rig.flush();
    rig.run(20 * SECOND);
    assert_eq!((letters(&mut rig).len(), rig.machine.undelivered()), (2, 0), "no later start can retry them");
    assert!(attempts.get() - before < 15, "{}", attempts.get() - before);
    // A journal keeps the refused events, and the shutdown does not wait for them.
    let mut rig = Rig::new();
    rig.receiver = refusing(|subject| subject.ends_with("/web-3")).0;
    rig.send(history(10, 2));
    rig.run(SECOND);
    rig.flush();
    rig.run(20 * SECOND);
    assert_eq!((letters(&mut rig).len(), rig.machine.undelivered(), rig.machine.at_risk()), (0, 2, 0));
    assert!(rig.machine.is_waiting_after_refusals());
}

#[test]
fn recovered_receiver_gets_refused_events_at_once() {
    for mut rig in rigs() {
        rig.receiver = refusing(|_| true).0;
        rig.send(history(100, 1));
        rig.run(5 * MINUTE);
        let waiting = rig.health.status().refused_events;
        assert!((2..=50).contains(&waiting), "{waiting} set aside in five minutes");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(6 * SECOND);
        assert_eq!((rig.accepted.len(), rig.machine.undelivered()), (100, 0), "within the longest pause");
    }
}

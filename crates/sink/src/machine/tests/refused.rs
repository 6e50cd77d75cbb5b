//! Receivers that refuse contents: for a while, some events for ever, and at the bounds.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn refusal() -> Outcome {
    Outcome::Retry { after: None, content: true, error: "receiver answered 400 Bad Request".to_owned() }
}

/// Refuses whatever has an event of such an object, and counts attempts.
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

/// Each object's versions, in order and each once.
fn assert_all(rig: &Rig, objects: usize, versions: u64) {
    let seen = rig.versions();
    assert_eq!(seen.len(), objects);
    for (subject, seen) in seen {
        assert!(seen.iter().copied().eq(1..=versions), "{subject}: {seen:?}");
    }
}

#[test]
fn a_receiver_that_refuses_everything_for_half_a_minute_costs_no_dead_letter() {
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
        while rig.machine.left() > 0 {
            rig.run(SECOND);
            recovered += 1;
            assert!(recovered <= 60, "{} left", rig.machine.left());
        }
        println!("{kind}: {} attempts in 30 s, all delivered {recovered} s after the recovery", attempts.get());
        assert_all(&rig, 20, 5);
        assert_eq!((letters(&mut rig).len(), rig.health.status().refused_events), (0, 0));
        assert_eq!(rig.health.status().refusal, None);
    }
}

#[test]
fn a_refused_event_holds_back_its_object_and_no_other() {
    for mut rig in rigs() {
        let (script, _) = refusing(|subject| subject.ends_with("/web-3"));
        rig.receiver = script;
        rig.send(history(10, 2));
        rig.run(2 * SECOND);
        assert_eq!(rig.accepted.len(), 18, "all but web-3");
        let status = rig.health.status();
        assert_eq!((status.refused_events, status.dead_lettered), (2, 0));
        assert!(status.refusal.is_some_and(|why| why.contains("400")), "deliveries of others do not hide it");
        // Later states of the same object wait behind it, others are delivered at once, minute after minute.
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
fn an_event_that_is_refused_for_ten_minutes_is_a_dead_letter_and_the_next_of_its_object_goes_on() {
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
        assert_eq!(rig.machine.left(), 1, "the next state has its own ten minutes");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(MINUTE);
        assert_eq!((rig.versions()["/v1/pods/shop/web-3"].as_slice(), rig.machine.left()), (&[2][..], 0));
    }
}

#[test]
fn at_the_bound_the_event_that_was_refused_first_is_given_up_early_and_others_go_on() {
    for mut rig in rigs() {
        // Of the bound of 200, a quarter is for events set aside.
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
        assert_eq!(rig.accepted.len(), 80, "others are not held up");
        let first: Vec<_> = (0..30).map(|at| format!("/v1/pods/shop/bad-{at:02}")).collect();
        assert_eq!(letters(&mut rig), first);
        assert_eq!((rig.machine.left(), rig.health.status().refused_events), (50, 50));
    }
}

#[test]
fn refused_events_keep_their_order_over_a_restart_and_have_their_time_anew() {
    for power in [false, true] {
        let mut rig = Rig::new();
        let (script, _) = refusing(|subject| subject.ends_with("/web-3"));
        rig.receiver = script;
        rig.send(history(10, 4));
        rig.run(9 * MINUTE);
        assert_eq!(rig.accepted.len(), 36);
        rig.restart(power);
        rig.run(9 * MINUTE);
        assert_eq!((letters(&mut rig).len(), rig.machine.left()), (0, 4));
        assert_eq!(rig.health.status().refused_events, 4);
        rig.receiver(|_| Outcome::Accepted);
        rig.run(MINUTE + SECOND);
        assert_all(&rig, 10, 4);
    }
}

#[test]
fn what_cannot_be_written_is_a_dead_letter_at_once() {
    for mut rig in rigs() {
        rig.receiver(|batch| {
            let is_bad = batch.iter().any(|event| event.subject().ends_with("/web-3"));
            let error = "template: undefined value".to_owned();
            if is_bad { Outcome::Unsendable { error } } else { Outcome::Accepted }
        });
        rig.send(history(10, 2));
        rig.run(SECOND);
        assert_eq!((rig.accepted.len(), letters(&mut rig).len(), rig.machine.left()), (18, 2, 0));
    }
}

#[test]
fn a_shutdown_without_a_journal_gives_refused_events_a_few_more_tries() {
    let mut rig = Rig::in_memory();
    let (script, attempts) = refusing(|subject| subject.ends_with("/web-3"));
    rig.receiver = script;
    rig.send(history(10, 2));
    rig.run(SECOND);
    let before = attempts.get();
    rig.machine.flush(rig.now);
    rig.run(20 * SECOND);
    assert_eq!((letters(&mut rig).len(), rig.machine.left()), (2, 0), "they cannot wait for the next start");
    assert!(attempts.get() - before < 15, "{}", attempts.get() - before);
    // With one they are kept, and nobody waits for them.
    let mut rig = Rig::new();
    rig.receiver = refusing(|subject| subject.ends_with("/web-3")).0;
    rig.send(history(10, 2));
    rig.run(SECOND);
    rig.machine.flush(rig.now);
    rig.run(20 * SECOND);
    assert_eq!((letters(&mut rig).len(), rig.machine.left(), rig.machine.at_risk()), (0, 2, 0));
    assert!(rig.machine.is_waiting_after_refusals());
}

#[test]
fn a_receiver_that_accepts_what_it_refused_gets_the_rest_at_once() {
    for mut rig in rigs() {
        rig.receiver = refusing(|_| true).0;
        rig.send(history(100, 1));
        rig.run(5 * MINUTE);
        let waiting = rig.health.status().refused_events;
        assert!((2..=50).contains(&waiting), "{waiting} set aside in five minutes");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(6 * SECOND);
        assert_eq!((rig.accepted.len(), rig.machine.left()), (100, 0), "within the longest pause");
    }
}

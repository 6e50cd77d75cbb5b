//! Tests of dead letters that cannot be written, because the disk is full or fails.

use super::*;
use crate::Commit;

fn refused(_: &[Event]) -> Outcome {
    Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() }
}

/// A receiver that refuses the first state of `web-0`, and accepts all others.
fn refusing_one(batch: &[Event]) -> Outcome {
    let is_refused = |event: &Event| event.subject().ends_with("/web-0") && event.version().as_number() == Some(1);
    if batch.iter().any(is_refused) { refused(batch) } else { Outcome::Accepted }
}

fn letters(rig: &mut Rig) -> usize {
    rig.store.list_letters(&LetterFilter::default(), 0, usize::MAX).unwrap().len()
}

/// Returns a rig that gives up a refused event at once.
fn impatient() -> Rig {
    let mut rig = Rig::new();
    let retry = RetryParams { refused_for: Duration::ZERO, ..RetryParams::default() };
    rig.machine.reconfigure(MachineParams { retry, ..params(Arc::clone(&rig.health)) }, rig.now);
    rig
}

#[test]
fn dead_letter_does_not_keep_a_disk_full() {
    let mut rig = Rig::with(StoreLimits { journal: 256 << 10, ..StoreLimits::default() }, Fsync::default());
    rig.receiver(refusing_one);
    rig.send(history(10, 1));
    rig.run(SECOND);
    rig.disk.set_capacity(Some(150_000));
    // The refused event waits in the oldest segment, and the disk is full before it is given up.
    for version in 2..=300 {
        rig.send((1..10).map(|at| update(&format!("web-{at}"), version)).collect());
        rig.run(SECOND);
    }
    rig.run(Duration::from_secs(3600));
    assert_eq!((rig.answered.len(), rig.machine.undelivered(), letters(&mut rig)), (300, 0, 1));
    assert!((1..10).all(|at| rig.versions()[&format!("/v1/pods/shop/web-{at}")].iter().copied().eq(1..=300)));
}

#[test]
fn acknowledged_events_are_freed_before_a_dead_letter_is_written() {
    let disk = SimDisk::new(7);
    let limits = StoreLimits { journal: 128 << 10, letters: 64 << 10 };
    let mut store = open(&disk, limits, Fsync::default()).0;
    let events: Vec<_> = (0..80).map(|at| crate::test_objects::event(&format!("web-{at}"), 1, 600)).collect();
    for event in &events {
        let commit = Commit { events: vec![event.clone()], sync: true, ..Commit::default() };
        assert!(matches!(store.run(Work::Commit(commit)), Done::Committed { left: None, .. }));
    }
    disk.set_capacity(Some(disk.bytes()));
    let before = disk.bytes();
    let (event, error) = (events[79].clone(), "receiver answered 422".to_owned());
    let letter = DeadLetter { event, attempts: 1, error, at: jiff::Timestamp::UNIX_EPOCH };
    let commit =
        Commit { acked: (0..79).collect(), letters: vec![letter], acked_with_letters: vec![79], ..Commit::default() };
    let done = store.run(Work::Commit(commit));
    assert!(matches!(done, Done::Committed { left: None, .. }), "{done:?}");
    assert_eq!((store.state().pending, store.state().letters), (0, 1));
    assert!(disk.bytes() < before / 2, "{} of {before} bytes are left", disk.bytes());
}

#[test]
fn later_events_are_not_acknowledged_before_the_dead_letter_of_their_object() {
    for power in [false, true] {
        let mut rig = impatient();
        rig.receiver(refusing_one);
        let mut events = history(1, 3);
        events.extend((1..5).map(|at| added(pod(&format!("web-{at}"), "1", "x"), false)));
        rig.send(events);
        // Up to the commit of the letter, which fails.
        while rig.store.state().pending == 0 || rig.accepted.len() < 6 {
            rig.run(Duration::from_millis(1));
        }
        rig.disk.fail(DiskCall::Append, 1);
        rig.run(Duration::from_millis(101));
        assert_eq!((letters(&mut rig), rig.accepted.len()), (0, 6));
        rig.restart(power);
        rig.receiver(|_| Outcome::Accepted);
        rig.accepted.clear();
        rig.run(SECOND);
        let mut versions = rig.versions();
        assert_eq!(versions.remove("/v1/pods/shop/web-0"), Some(vec![1, 2, 3]), "power loss: {power}");
        assert!(versions.is_empty(), "other objects are acknowledged: {versions:?}");
    }
}

#[test]
fn dead_letter_with_a_failed_sync_is_written_once() {
    let mut rig = impatient();
    rig.receiver(refusing_one);
    rig.send(history(1, 1));
    while rig.health.status().dead_lettered == 0 {
        rig.run(Duration::from_millis(1));
    }
    // The sync, and its fallback.
    rig.disk.fail(DiskCall::Sync, 2);
    rig.run(Duration::from_millis(101));
    assert_eq!(rig.machine.undelivered(), 0);
    assert!(rig.machine.is_unwritten());
    rig.run(60 * SECOND);
    assert_eq!((letters(&mut rig), rig.store.state().pending, rig.machine.is_unwritten()), (1, 0, false));
}

#[test]
fn dead_letters_that_cannot_be_written_are_bounded_in_memory() {
    const EVENTS: usize = 6000;
    let mut rig = Rig::new();
    rig.receiver(down);
    for chunk in history(EVENTS, 1).chunks(250) {
        rig.send(chunk.to_vec());
        rig.run(Duration::from_millis(20));
    }
    assert_eq!(rig.health.status().pending_events, EVENTS as u64);
    rig.disk.fail(DiskCall::Append, u32::MAX);
    rig.receiver(|_| Outcome::Unsendable { error: "the template fails".to_owned() });
    rig.run(Duration::from_secs(3600));
    let kept = rig.machine.letters.len();
    assert!((4096..=4096 + 200).contains(&kept), "{kept}");
    rig.disk.fail(DiskCall::Append, 0);
    rig.run(60 * SECOND);
    assert_eq!((letters(&mut rig), rig.machine.undelivered()), (EVENTS, 0));
}

#[test]
fn sender_of_a_too_large_event_waits_until_its_dead_letter_is_durable() {
    let mut rig = Rig::with(StoreLimits { journal: 64 << 10, ..StoreLimits::default() }, Fsync::default());
    rig.disk.fail(DiskCall::Append, u32::MAX);
    let large = "x".repeat(200 << 10);
    rig.send(vec![added(pod("large", "1", &large), false)]);
    rig.run(SECOND);
    assert_eq!((rig.answered.len(), rig.machine.at_risk()), (0, 1));
    rig.disk.fail(DiskCall::Append, 0);
    rig.run(60 * SECOND);
    assert_eq!((rig.answered.len(), rig.machine.at_risk(), letters(&mut rig)), (1, 0, 1));
    assert_eq!(rig.health.status().dead_lettered, 1);
}

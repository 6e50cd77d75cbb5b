//! Contract checks of a whole sink: restarts, bounds and shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::process::{Process, ROOM};
use super::{Fault, LONG, SHORT, TestBed};
use crate::StoreLimits;
use crate::test_objects::{added, pod, updated};
use informer_hub_disk::Disk;
use informer_hub_sim::disk::SimDisk;
use informer_hub_types::Notification;

/// Virtual time by which checks let a sink run: long enough for all its actions except retries.
const WHILE: Duration = Duration::from_secs(1);

/// Returns the notifications of `objects` objects named `prefix-0`, `prefix-1` and so on. Version 1 of an object is an
/// addition, versions 2 to `versions` are updates. All objects reach a version before any object gets the next one.
fn history(prefix: &str, objects: usize, versions: u64) -> Vec<Notification> {
    let one = |version: u64, at: usize| {
        let state = |version: u64| pod(&format!("{prefix}-{at}"), &version.to_string(), "x");
        if version == 1 { added(state(1), false) } else { updated(state(version - 1), state(version)) }
    };
    (1..=versions).flat_map(|version| (0..objects).map(move |at| one(version, at))).collect()
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(7);
    disk.create_dir_all(std::path::Path::new("state")).expect("a disk");
    disk.sync_dir(std::path::Path::new("")).expect("a disk");
    disk
}

/// Object name and resourceVersion of an accepted event.
type State = (String, u64);

/// Returns for each event that the receiver accepted, in order: the object's name and version, and a text of the
/// event's id and sequence number. Skips incomplete lines, which a killed process may leave.
fn accepted(bed: &dyn TestBed) -> Vec<(State, String)> {
    let read = |text: &String| {
        let event: serde_json::Value = serde_json::from_str(text).ok()?;
        let version = event["data"]["resourceVersion"].as_str()?.parse().ok()?;
        let identity = format!("{} {}", event["id"], event["sequence"]);
        Some(((event["data"]["name"].as_str()?.to_owned(), version), identity))
    };
    bed.accepted().iter().filter_map(read).collect()
}

/// Asserts that the receiver accepted versions 1 to `versions` of each object in ascending order. A version may be
/// repeated later, with the same id and sequence number. Returns how often each version of each object was accepted.
fn all_in_order(bed: &dyn TestBed, prefix: &str, objects: usize, versions: u64) -> BTreeMap<State, usize> {
    let (mut times, mut newest) = (BTreeMap::<_, usize>::new(), BTreeMap::<String, u64>::new());
    let mut identities = BTreeMap::new();
    for (state, identity) in accepted(bed).into_iter().filter(|((name, _), _)| name.starts_with(prefix)) {
        let known = identities.entry(state.clone()).or_insert_with(|| identity.clone());
        assert_eq!(*known, identity, "{state:?} has two identities");
        let (name, version) = state.clone();
        if *times.entry(state).and_modify(|count| *count += 1).or_insert(1) == 1 {
            let before = newest.insert(name.clone(), version).unwrap_or_default();
            assert_eq!(before + 1, version, "{name} out of order");
        }
    }
    let expected = (0..objects).map(|at| (format!("{prefix}-{at}"), versions));
    assert_eq!(newest, expected.collect(), "states are missing");
    times
}

/// Kills the process while some events are acknowledged, some are in flight and some were never attempted. The next
/// process delivers all unacknowledged events in order, under the same ids. The receiver gets at most the events in
/// flight a second time.
pub(super) async fn restart_delivers_the_rest_and_repeats_only_events_in_flight(bed: &dyn TestBed) {
    let (disk, limits) = (disk(), StoreLimits::default());
    let mut first = Process::start(bed.transport(LONG), Some((&disk, limits)));
    first.send(history("restart", 6, 5));
    first.until(|process| process.accepted.len() >= 9).await;
    bed.set(Fault::Hang);
    // Long enough for attempts to reach the receiver, which may still acknowledge earlier ones.
    let hung = tokio::time::timeout(SHORT, first.until(|process| process.undelivered() == (0, 0))).await;
    assert!(hung.is_err(), "the receiver hangs");
    first.advance(WHILE);
    let accepted = first.accepted.len();
    let in_flight: BTreeSet<_> = first.in_flight().map(|event| event.id().to_owned()).collect();
    assert!(first.answered == [1] && first.undelivered() == (30 - accepted as u64, 0) && !in_flight.is_empty());
    assert!(accepted + in_flight.len() < 30, "no event is left untried");
    drop(first);
    disk.kill();
    bed.killed();

    bed.set(Fault::None);
    let mut second = Process::start(bed.transport(LONG), Some((&disk, limits)));
    assert_eq!(second.undelivered(), (30 - accepted as u64, 0));
    second.until(|process| process.undelivered() == (0, 0)).await;
    let times = all_in_order(bed, "restart", 6, 5);
    let repeated = times.values().filter(|times| **times > 1).count();
    assert!(repeated <= in_flight.len(), "{repeated} were repeated, {} were in flight", in_flight.len());
    assert_eq!(second.accepted.len(), 30 - accepted, "acknowledged events are not delivered again");
    second.advance(WHILE);
    disk.kill();
    let third = Process::start(bed.transport(LONG), Some((&disk, limits)));
    assert_eq!(third.undelivered(), (0, 0));
}

/// While the receiver does not answer, a sink accepts events up to its bounds, and the senders of further events wait.
/// Once the receiver answers, the sink answers all senders in order, and no event is lost.
pub(super) async fn unresponsive_receiver_holds_back_the_senders(bed: &dyn TestBed) {
    bed.set(Fault::Hang);
    let mut process = Process::start(bed.transport(SHORT), None);
    for part in history("room", 10, 6).chunks(25) {
        process.send(part.to_vec());
    }
    process.advance(WHILE);
    assert_eq!(process.answered, [0; 0], "the first message is larger than the room");
    let pending = process.health.pending_events.load(Relaxed);
    assert!(pending <= ROOM as u64, "{pending} events were accepted");
    assert_eq!(process.undelivered(), (60, 60));
    // Failed attempts free no room in the queue.
    process.until(|process| process.health.failed_attempts.load(Relaxed) >= 2).await;
    assert!(process.answered.is_empty() && process.health.pending_events.load(Relaxed) <= ROOM as u64);
    bed.set(Fault::None);
    process.until(|process| process.undelivered() == (0, 0)).await;
    assert_eq!(process.answered, [1, 2, 3]);
    all_in_order(bed, "room", 10, 6);
}

/// While the receiver does not answer, a sink accepts events up to the size limit of its journal. The senders of
/// further events wait until the receiver answers, and no event is lost.
pub(super) async fn full_journal_holds_back_the_senders(bed: &dyn TestBed) {
    bed.set(Fault::Hang);
    let (disk, limits) = (disk(), StoreLimits { journal: 32 << 10, ..StoreLimits::default() });
    let mut process = Process::start(bed.transport(SHORT), Some((&disk, limits)));
    // Different objects, so that merging frees no room.
    let parts: Vec<_> = history("journal", 120, 1).chunks(10).map(<[_]>::to_vec).collect();
    let messages = parts.len();
    for part in parts {
        process.send(part);
        process.advance(WHILE);
    }
    let answered = process.answered.len();
    assert!((1..messages / 2).contains(&answered), "{answered} of {messages} messages were accepted");
    let status = process.health.status().journal.expect("there is a journal");
    assert!(status.bytes <= limits.journal && status.trouble.is_some(), "{status:?}");
    assert_eq!(process.undelivered().0, 120, "events were lost");
    bed.set(Fault::None);
    process.until(|process| process.undelivered() == (0, 0)).await;
    assert!(process.answered.iter().copied().eq(1..=12), "{:?}", process.answered);
    all_in_order(bed, "journal", 120, 1);
}

/// A shutdown sends pending events without waiting for full batches. If the receiver does not answer, the next start
/// delivers the journaled events.
pub(super) async fn shutdown_delivers_pending_events_and_keeps_the_rest(bed: &dyn TestBed) {
    let (disk, limits) = (disk(), StoreLimits::default());
    let mut process = Process::start(bed.transport(LONG), Some((&disk, limits)));
    process.send(history("last", 2, 1));
    process.flush();
    let began = process.now();
    process.until(|process| process.undelivered() == (0, 0)).await;
    assert_eq!(process.now(), began, "the shutdown waited");
    bed.set(Fault::Hang);
    process.send(history("kept", 4, 2));
    process.advance(Duration::ZERO);
    assert_eq!(process.undelivered(), (8, 0));
    drop(process);
    disk.kill();
    bed.killed();
    bed.set(Fault::None);
    let mut next = Process::start(bed.transport(LONG), Some((&disk, limits)));
    next.until(|process| process.undelivered() == (0, 0)).await;
    all_in_order(bed, "last", 2, 1);
    all_in_order(bed, "kept", 4, 2);
}

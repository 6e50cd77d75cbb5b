//! What every sink must do as a whole: over restarts, at its bounds, at a shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::life::{Life, ROOM};
use super::{Bed, Fault, LONG, SHORT};
use crate::StoreLimits;
use crate::test_objects::{added, pod, updated};
use informer_hub_disk::Disk;
use informer_hub_sim::disk::SimDisk;
use informer_hub_types::Notification;

/// Long enough for whatever a machine does without its receiver, but for retries.
const WHILE: Duration = Duration::from_secs(1);

/// Versions 1 to `versions` of each of `objects`, interleaved.
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

/// A state of an object that was taken: its name, its version.
type State = (String, u64);

/// What was taken, in order, each with what identifies the event. A line that is none is passed over: a process may have
/// died in it.
fn taken(bed: &dyn Bed) -> Vec<(State, String)> {
    let read = |text: &String| {
        let event: serde_json::Value = serde_json::from_str(text).ok()?;
        let version = event["data"]["resourceVersion"].as_str()?.parse().ok()?;
        let identity = format!("{} {}", event["id"], event["sequence"]);
        Some(((event["data"]["name"].as_str()?.to_owned(), version), identity))
    };
    bed.taken().iter().filter_map(read).collect()
}

/// Fails unless the receiver has taken versions 1 to `versions` of each of these objects, and each for the first time in
/// order. Gives back how often each was taken.
fn all_in_order(bed: &dyn Bed, prefix: &str, objects: usize, versions: u64) -> BTreeMap<State, usize> {
    let (mut times, mut newest) = (BTreeMap::<_, usize>::new(), BTreeMap::<String, u64>::new());
    let mut identities = BTreeMap::new();
    for (state, identity) in taken(bed).into_iter().filter(|((name, _), _)| name.starts_with(prefix)) {
        let known = identities.entry(state.clone()).or_insert_with(|| identity.clone());
        assert_eq!(*known, identity, "{state:?} came under two identities");
        let (name, version) = state.clone();
        if *times.entry(state).and_modify(|count| *count += 1).or_insert(1) == 1 {
            let before = newest.insert(name.clone(), version).unwrap_or_default();
            assert_eq!(before + 1, version, "{name} out of order");
        }
    }
    let wanted = (0..objects).map(|at| (format!("{prefix}-{at}"), versions));
    assert_eq!(newest, wanted.collect(), "something is missing");
    times
}

/// Some events are acknowledged, others under way, others not yet tried, when the process is gone. The next one delivers
/// the rest in order and under the same ids, and repeats at most what was under way.
pub(super) async fn a_restart_delivers_the_rest_and_repeats_at_most_what_was_under_way(bed: &dyn Bed) {
    let (disk, limits) = (disk(), StoreLimits::default());
    let mut first = Life::begin(bed.transport(LONG), Some((&disk, limits)));
    first.send(history("restart", 6, 5));
    first.until(|life| life.accepted.len() >= 9).await;
    bed.set(Fault::Hang);
    // So long that attempts reach the receiver; what was already there may still be acknowledged.
    let hung = tokio::time::timeout(SHORT, first.until(|life| life.left() == (0, 0))).await;
    assert!(hung.is_err(), "the receiver hangs");
    first.pass(WHILE);
    let accepted = first.accepted.len();
    let under_way: BTreeSet<_> = first.in_flight().map(|event| event.id().to_owned()).collect();
    assert!(first.answered == [1] && first.left() == (30 - accepted as u64, 0) && !under_way.is_empty());
    assert!(accepted + under_way.len() < 30, "something is left that was not tried");
    drop(first);
    disk.kill();
    bed.killed();

    bed.set(Fault::None);
    let mut second = Life::begin(bed.transport(LONG), Some((&disk, limits)));
    assert_eq!(second.left(), (30 - accepted as u64, 0));
    second.until(|life| life.left() == (0, 0)).await;
    let times = all_in_order(bed, "restart", 6, 5);
    let repeated = times.values().filter(|times| **times > 1).count();
    assert!(repeated <= under_way.len(), "{repeated} were repeated, {} were under way", under_way.len());
    assert_eq!(second.accepted.len(), 30 - accepted, "what was acknowledged is not delivered again");
    second.pass(WHILE);
    disk.kill();
    let third = Life::begin(bed.transport(LONG), Some((&disk, limits)));
    assert_eq!(third.left(), (0, 0));
}

/// While the receiver does not answer, a sink takes in what its bounds allow, and whoever has more waits. Once it answers
/// again, everybody is answered in turn, and nothing is missing.
pub(super) async fn a_receiver_that_does_not_answer_holds_back_the_senders(bed: &dyn Bed) {
    bed.set(Fault::Hang);
    let mut life = Life::begin(bed.transport(SHORT), None);
    for part in history("room", 10, 6).chunks(25) {
        life.send(part.to_vec());
    }
    life.pass(WHILE);
    assert_eq!(life.answered, [0; 0], "the first message is larger than the room");
    let pending = life.health.pending_events.load(Relaxed);
    assert!(pending <= ROOM as u64, "{pending} events were taken in");
    assert_eq!(life.left(), (60, 60));
    // It goes on trying, and takes nothing more in for that.
    life.until(|life| life.health.failed_attempts.load(Relaxed) >= 2).await;
    assert!(life.answered.is_empty() && life.health.pending_events.load(Relaxed) <= ROOM as u64);
    bed.set(Fault::None);
    life.until(|life| life.left() == (0, 0)).await;
    assert_eq!(life.answered, [1, 2, 3]);
    all_in_order(bed, "room", 10, 6);
}

/// As above, where what waits is in a journal: the bound is the journal's.
pub(super) async fn a_full_journal_holds_back_the_senders(bed: &dyn Bed) {
    bed.set(Fault::Hang);
    let (disk, limits) = (disk(), StoreLimits { journal: 32 << 10, ..StoreLimits::default() });
    let mut life = Life::begin(bed.transport(SHORT), Some((&disk, limits)));
    // Nothing that could be merged.
    let parts: Vec<_> = history("journal", 120, 1).chunks(10).map(<[_]>::to_vec).collect();
    let messages = parts.len();
    for part in parts {
        life.send(part);
        life.pass(WHILE);
    }
    let answered = life.answered.len();
    assert!((1..messages / 2).contains(&answered), "{answered} of {messages} messages were taken in");
    let status = life.health.status().journal.expect("there is a journal");
    assert!(status.bytes <= limits.journal && status.trouble.is_some(), "{status:?}");
    assert_eq!(life.left().0, 120, "nothing is forgotten");
    bed.set(Fault::None);
    life.until(|life| life.left() == (0, 0)).await;
    assert!(life.answered.iter().copied().eq(1..=12), "{:?}", life.answered);
    all_in_order(bed, "journal", 120, 1);
}

/// A shutdown waits for no company: what is pending goes at once. Where the receiver is dead, what is in the journal is
/// what the next start delivers.
pub(super) async fn a_shutdown_delivers_what_it_can_and_keeps_the_rest(bed: &dyn Bed) {
    let (disk, limits) = (disk(), StoreLimits::default());
    let mut life = Life::begin(bed.transport(LONG), Some((&disk, limits)));
    life.send(history("last", 2, 1));
    life.flush();
    let began = life.now();
    life.until(|life| life.left() == (0, 0)).await;
    assert_eq!(life.now(), began, "it waited");
    bed.set(Fault::Hang);
    life.send(history("kept", 4, 2));
    life.pass(Duration::ZERO);
    assert_eq!(life.left(), (8, 0));
    drop(life);
    disk.kill();
    bed.killed();
    bed.set(Fault::None);
    let mut next = Life::begin(bed.transport(LONG), Some((&disk, limits)));
    next.until(|life| life.left() == (0, 0)).await;
    all_in_order(bed, "last", 2, 1);
    all_in_order(bed, "kept", 4, 2);
}

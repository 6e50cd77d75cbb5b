//! Tests of a machine with a journal, driven without threads over a virtual clock.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;

use super::*;
use crate::test_objects::{added, pod, updated};
use crate::{EventType, LetterFilter, Outcome, Store, StoreLimits};
use informer_hub_disk::Disk;
use informer_hub_sim::disk::{DiskCall, SimDisk};
use informer_hub_types::{Fsync, ObjectKey, ResourceVersion, SinkPartition, clock};

mod failing;
mod refused;
mod standby;
mod successors;
mod unwritten_letters;

type Script = Box<dyn FnMut(&[Event]) -> Outcome>;

/// A sink that can be killed and started again, with its journal on a simulated disk.
struct Rig {
    disk: SimDisk,
    limits: StoreLimits,
    fsync: Fsync,
    store: Store,
    machine: Machine<u32>,
    health: Arc<SinkHealth>,
    now: Instant,
    receiver: Script,
    answered: Vec<u32>,
    /// Events that the receiver has acknowledged.
    accepted: Vec<Event>,
    sent: u32,
}

impl Rig {
    fn new() -> Self {
        Self::with(StoreLimits::default(), Fsync::default())
    }

    fn with(limits: StoreLimits, fsync: Fsync) -> Self {
        let disk = SimDisk::new(7);
        let (store, machine, health) = open(&disk, limits, fsync);
        let receiver: Script = Box::new(|_| Outcome::Accepted);
        let (answered, accepted, now) = (Vec::new(), Vec::new(), clock::now());
        Self { disk, limits, fsync, store, machine, health, now, receiver, answered, accepted, sent: 0 }
    }

    /// Creates a sink without a journal, which cannot be restarted.
    fn in_memory() -> Self {
        let health = SinkHealth::new();
        let machine = Machine::new(params(Arc::clone(&health)), None, StdRng::seed_from_u64(7));
        Self { store: Store::in_memory(), machine, health, ..Self::new() }
    }

    fn receiver(&mut self, receiver: impl FnMut(&[Event]) -> Outcome + 'static) {
        self.receiver = Box::new(receiver);
    }

    fn send(&mut self, notifications: Vec<Notification>) -> u32 {
        self.sent += 1;
        self.machine.ingest(notifications, jiff::Timestamp::UNIX_EPOCH, self.sent, self.now);
        self.sent
    }

    /// Performs all actions that are due within `time`.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some(action) = self.machine.next(self.now) {
                match action {
                    Action::Answer(number) => self.answered.push(number),
                    Action::Attempt { lane, batch } => {
                        let outcome = (self.receiver)(&batch);
                        if outcome == Outcome::Accepted {
                            self.accepted.extend(batch.iter().cloned());
                        }
                        self.machine.attempted(lane, Ok(outcome), self.now);
                    }
                    Action::Work(work) => {
                        let done = self.store.run(work);
                        self.machine.work_done(done, self.now);
                    }
                }
            }
            let letters = self.machine.take_letters();
            self.store.push_letters(&letters).unwrap();
            self.machine.show();
            match self.machine.wake_at(self.now) {
                Some(wake) if wake <= end => self.now = wake.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    /// Begins a shutdown with a deadline in 30 seconds.
    fn flush(&mut self) {
        self.machine.flush(self.now + 30 * SECOND, self.now);
    }

    /// Restarts the sink after a power failure if `power` is true, otherwise after a kill of the process.
    fn restart(&mut self, power: bool) {
        if power {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        (self.store, self.machine, self.health) = open(&self.disk, self.limits, self.fsync);
    }

    /// Returns the resourceVersions of the acknowledged events, by subject.
    fn versions(&self) -> HashMap<String, Vec<u64>> {
        let mut all = HashMap::<_, Vec<_>>::new();
        for event in &self.accepted {
            all.entry(event.subject().to_owned()).or_default().push(event.version().as_number().unwrap());
        }
        all
    }
}

fn open(disk: &SimDisk, limits: StoreLimits, fsync: Fsync) -> (Store, Machine<u32>, Arc<SinkHealth>) {
    let port: Arc<dyn Disk> = Arc::new(disk.clone());
    port.create_dir_all(Path::new("state")).unwrap();
    port.sync_dir(Path::new("")).unwrap();
    let (store, found) = Store::open(&port, Path::new("state/sinks/test"), limits, fsync, &|_| true).unwrap();
    let health = SinkHealth::new();
    let params = params(Arc::clone(&health));
    (store, Machine::new(params, Some(found.durability), StdRng::seed_from_u64(7)), health)
}

fn params(health: Arc<SinkHealth>) -> MachineParams {
    MachineParams {
        name: "test".into(),
        selection: Arc::default(),
        options: EventOptions::default(),
        batch: BatchParams { max_events: 10, ..BatchParams::default() },
        retry: RetryParams::default(),
        bounds: Bounds { events: 200, ..Bounds::default() },
        concurrency: NonZeroUsize::new(4).unwrap(),
        rate_limit: None,
        health,
    }
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn down(_: &[Event]) -> Outcome {
    Outcome::Retry { after: None, content: false, error: "down".to_owned() }
}

fn update(name: &str, version: u64) -> Notification {
    let (from, to) = ((version - 1).to_string(), version.to_string());
    updated(pod(name, &from, "x"), pod(name, &to, "x"))
}

/// Returns the notifications of `objects` objects, each with versions 1 to `versions`. All objects reach a version
/// before any object gets the next one.
fn history(objects: usize, versions: u64) -> Vec<Notification> {
    let one = |version, name: &str| match version {
        1 => added(pod(name, "1", "x"), false),
        _ => update(name, version),
    };
    (1..=versions).flat_map(|version| (0..objects).map(move |at| one(version, &format!("web-{at}")))).collect()
}

#[test]
fn message_is_answered_once_it_is_on_disk() {
    let mut rig = Rig::new();
    rig.receiver(down);
    let lone = rig.send(vec![added(pod("lone", "1", "x"), false)]);
    rig.run(Duration::ZERO);
    assert_eq!(rig.answered, [lone], "a lone event is written at once");
    let number = rig.send(history(3, 1));
    rig.run(Duration::from_millis(9));
    assert_eq!(rig.answered, [lone]);
    assert_eq!(rig.machine.at_risk(), 3);
    rig.run(Duration::from_millis(2));
    assert_eq!(rig.answered, [lone, number]);
    assert_eq!((rig.machine.at_risk(), rig.machine.undelivered()), (0, 4));
    rig.restart(true);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 4);
}

#[test]
fn partitions_deliver_each_object_once_and_count_only_their_own() {
    let (mut accepted, mut received) = (Vec::new(), 0);
    for partition in SinkPartition::all(NonZeroU16::new(3).unwrap()) {
        let mut rig = Rig::new();
        let selection = Arc::new(Selection { partition: Some(partition), ..Selection::default() });
        rig.machine.reconfigure(MachineParams { selection, ..params(Arc::clone(&rig.health)) }, rig.now);
        let whole = rig.send(history(30, 4));
        let foreign = history(30, 1).into_iter().filter(|notification| !partition.contains(notification));
        let none = rig.send(foreign.collect());
        rig.run(SECOND);
        assert_eq!(rig.answered, [whole, none], "a message of other partitions is answered too");
        let versions = rig.versions();
        assert!(versions.len() > 3 && versions.len() < 20, "{partition}: {}", versions.len());
        assert!(versions.values().all(|versions| *versions == [1, 2, 3, 4]), "{versions:?}");
        accepted.extend(versions.into_keys());
        received += rig.health.received.load(Relaxed);
    }
    accepted.sort_unstable();
    accepted.dedup();
    assert_eq!((accepted.len(), received), (30, 120));
}

#[test]
fn traced_event_keeps_its_trace_over_a_restart() {
    let mut rig = Rig::new();
    rig.receiver(|_| Outcome::Retry { after: None, content: false, error: "down".to_owned() });
    let parent = TraceParent { trace: 5, span: 6 };
    let (key, version) = (ObjectKey::new("shop", "a"), ResourceVersion::new("2"));
    let traced = Some((Traced { span: tracing::Span::none(), key, version }, parent));
    let notifications = vec![update("a", 1), update("b", 2), update("a", 2)];
    rig.machine.ingest(IncomingBatch { notifications, traced }, jiff::Timestamp::UNIX_EPOCH, 1, rig.now);
    rig.run(Duration::from_secs(1));
    rig.restart(true);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(Duration::from_secs(60));
    let mut parents: Vec<_> =
        rig.accepted.iter().map(|event| (event.subject(), event.version().as_number(), event.trace_parent())).collect();
    parents.sort_unstable_by_key(|(subject, version, _)| (*subject, *version));
    let subjects = ["/v1/pods/shop/a", "/v1/pods/shop/b"];
    let expected = [(subjects[0], Some(1), None), (subjects[0], Some(2), Some(parent)), (subjects[1], Some(2), None)];
    assert_eq!(parents, expected);
}

#[test]
fn unacknowledged_events_are_redelivered_in_order_with_the_same_ids() {
    for power in [false, true] {
        let mut rig = Rig::new();
        let mut seen = Vec::new();
        let log = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let attempts = std::rc::Rc::clone(&log);
        rig.receiver(move |batch| {
            attempts.borrow_mut().extend(batch.iter().map(|event| (event.id().to_owned(), event.json().to_owned())));
            down(batch)
        });
        rig.send(history(5, 4));
        rig.run(10 * SECOND);
        seen.append(&mut log.borrow_mut());
        rig.restart(power);
        rig.receiver(|_| Outcome::Accepted);
        rig.run(10 * SECOND);
        assert_eq!(rig.accepted.len(), 20);
        assert!(rig.versions().values().all(|versions| versions == &[1, 2, 3, 4]));
        let tried = |event: &Event| seen.iter().any(|(id, json)| id == event.id() && json == event.json());
        assert!(rig.accepted.iter().any(tried));
        let numbers: Vec<_> = rig.accepted.iter().map(|event| event.sequence().unwrap()).collect();
        assert_eq!(numbers.iter().max(), Some(&19));
    }
}

#[test]
fn acknowledged_events_are_not_delivered_again_after_a_restart() {
    let mut rig = Rig::new();
    rig.send(history(5, 4));
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 20);
    rig.restart(false);
    // The caches are at an older checkpoint: the same events arrive again, and then a new one.
    rig.send(history(5, 4));
    rig.send(vec![update("web-0", 5)]);
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 21);
    assert_eq!(rig.health.status().repeated, 20);
    assert_eq!(rig.versions()["/v1/pods/shop/web-0"], [1, 2, 3, 4, 5]);
    // Once the caches have caught up with the journal, it need not retain delivered states.
    rig.store.release(rig.store.state().end);
    rig.send(vec![update("web-0", 6)]);
    rig.run(SECOND);
    rig.restart(false);
    rig.send(vec![update("web-0", 6)]);
    rig.run(SECOND);
    assert_eq!(rig.health.status().repeated, 1, "events after the release are remembered");
}

#[test]
fn acknowledgements_survive_a_kill_without_syncs_too() {
    let mut rig = Rig::with(StoreLimits::default(), Fsync::Never);
    rig.send(history(3, 5));
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 15);
    rig.restart(false);
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 15);
}

#[test]
fn backlog_beyond_the_memory_bound_waits_on_disk_in_order() {
    let mut rig = Rig::new();
    rig.receiver(down);
    for chunk in history(50, 40).chunks(100) {
        rig.send(chunk.to_vec());
        rig.run(Duration::from_millis(20));
    }
    assert_eq!(rig.answered.len(), 20, "senders do not wait for a dead receiver");
    assert_eq!((rig.health.status().pending_events, rig.machine.undelivered()), (2000, 2000));
    let on_disk = rig.store.state().bytes;
    assert!((1..on_disk / 2).contains(&rig.health.status().pending_bytes), "most events are only on disk");
    rig.receiver(|_| Outcome::Accepted);
    rig.run(Duration::from_secs(3600));
    assert_eq!((rig.accepted.len(), rig.health.status().pending_bytes), (2000, 0));
    assert!(rig.versions().values().all(|versions| versions.iter().copied().eq(1..=40)));
    assert_eq!(rig.machine.undelivered(), 0);
}

#[test]
fn backlog_beyond_the_memory_bound_in_bytes_is_delivered_completely_and_in_order() {
    let mut rig = Rig::new();
    // A record on disk has fewer bytes than its event in memory, so a read returns more events than fit.
    let bounds = Bounds { events: 10_000, bytes: 50_000 };
    rig.machine.reconfigure(MachineParams { bounds, ..params(Arc::clone(&rig.health)) }, rig.now);
    rig.receiver(down);
    rig.send(history(100, 10));
    rig.run(SECOND);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(DAY);
    let all: Vec<u64> = (1..=10).collect();
    let versions = rig.versions();
    assert_eq!(versions.len(), 100);
    for (object, versions) in versions {
        assert_eq!(versions, all, "{object}");
    }
    assert_eq!(rig.machine.undelivered(), 0);
}

#[test]
fn full_journal_merges_then_refuses_and_recovers() {
    let limits = StoreLimits { journal: 512 * 1024, ..StoreLimits::default() };
    let mut rig = Rig::with(limits, Fsync::default());
    rig.receiver(down);
    // Merging makes room for any number of states of a few objects.
    for version in 1..=500 {
        let one =
            |at: usize| if version == 1 { history(20, 1)[at].clone() } else { update(&format!("web-{at}"), version) };
        rig.send((0..20).map(one).collect());
        rig.run(Duration::from_millis(200));
    }
    rig.run(20 * SECOND);
    assert_eq!(rig.answered.len(), 500);
    assert!(rig.health.status().merged > 1000, "{:?}", rig.health.status());
    let refused: Vec<_> = (0..5000).map(|at| added(pod(&format!("other-{at}"), "1", "x"), false)).collect();
    for chunk in refused.chunks(500) {
        rig.send(chunk.to_vec());
        rig.run(SECOND);
    }
    let trouble = rig.health.status().journal.and_then(|journal| journal.trouble);
    assert!(trouble.is_some_and(|trouble| trouble.contains("full")));
    assert!(rig.answered.len() < 510 && rig.health.status().journal.unwrap().bytes <= 2 * limits.journal);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(Duration::from_secs(7200));
    assert_eq!((rig.machine.undelivered(), rig.answered.len()), (0, 510));
    assert_eq!(rig.health.status().journal.unwrap().trouble, None);
    let versions = rig.versions();
    assert_eq!(versions.len(), 5020);
    for at in 0..20 {
        let versions = &versions[&format!("/v1/pods/shop/web-{at}")];
        assert_eq!(versions.last(), Some(&500));
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    }
}

#[test]
fn full_disk_keeps_senders_waiting_until_there_is_room() {
    let mut rig = Rig::new();
    rig.disk.set_capacity(Some(0));
    rig.send(history(5, 2));
    rig.run(30 * SECOND);
    assert!(rig.answered.is_empty() && rig.accepted.is_empty());
    let trouble = rig.health.status().journal.and_then(|journal| journal.trouble);
    assert!(trouble.is_some_and(|trouble| trouble.contains(&io::Error::from(io::ErrorKind::StorageFull).to_string())));
    rig.disk.set_capacity(None);
    rig.run(30 * SECOND);
    assert_eq!((rig.answered.len(), rig.accepted.len()), (1, 10));
    assert!(rig.versions().values().all(|versions| versions == &[1, 2]));
}

/// On a full disk, a checkpoint may fail. Then it does not allow the journal to remove acknowledged events, so the
/// journal must remove them by itself.
#[test]
fn acknowledged_events_do_not_keep_a_disk_full() {
    let mut rig = Rig::new();
    rig.disk.set_capacity(Some(100_000));
    for version in 1..=100 {
        let one =
            |at: usize| if version == 1 { history(10, 1)[at].clone() } else { update(&format!("web-{at}"), version) };
        rig.send((0..10).map(one).collect());
        rig.run(SECOND);
    }
    rig.run(60 * SECOND);
    assert_eq!((rig.answered.len(), rig.machine.undelivered()), (100, 0));
    assert!(rig.versions().values().all(|versions| versions.iter().copied().eq(1..=100)));
}

#[test]
fn waiting_events_are_written_as_far_as_the_disk_has_room() {
    for capacity in (50_000..51_000).step_by(97) {
        let mut rig = Rig::new();
        rig.disk.set_capacity(Some(capacity));
        rig.send(history(200, 1));
        rig.run(Duration::from_secs(600));
        assert_eq!((rig.answered.len(), rig.accepted.len(), rig.machine.undelivered()), (1, 200, 0), "{capacity}");
    }
}

#[test]
fn poisoned_event_becomes_a_durable_replayable_dead_letter() {
    let mut rig = Rig::new();
    let poison = |event: &Event| event.subject().ends_with("/web-3");
    rig.receiver(move |batch| {
        if batch.iter().any(poison) {
            Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() }
        } else {
            Outcome::Accepted
        }
    });
    rig.send(history(10, 2));
    rig.run(DAY);
    assert_eq!(rig.accepted.len(), 18);
    let all = LetterFilter::default();
    let letters = rig.store.list_letters(&all, 0, 10).unwrap();
    assert_eq!((letters.len(), rig.health.status().dead_lettered), (2, 2));
    rig.restart(true);
    assert_eq!(rig.store.list_letters(&all, 0, 10).unwrap(), letters);
    rig.receiver(|_| Outcome::Accepted);
    let replayed = rig.store.replay_letters(&all);
    assert_eq!((replayed.count, replayed.error.is_none()), (2, true));
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.run(SECOND);
    assert_eq!(rig.versions()["/v1/pods/shop/web-3"], [1, 2]);
    let ids: Vec<_> = rig.accepted[18..].iter().map(Event::id).collect();
    assert!(letters.iter().all(|letter| ids.contains(&letter.id.as_str())));
    assert!(rig.store.list_letters(&all, 0, 10).unwrap().is_empty());
}

#[test]
fn unsynced_events_are_neither_delivered_nor_answered() {
    let mut rig = Rig::new();
    rig.disk.fail(DiskCall::Sync, u32::MAX);
    rig.send(history(3, 1));
    rig.run(SECOND);
    assert_eq!((rig.accepted.len(), rig.answered.len()), (0, 0));
    rig.disk.fail(DiskCall::Sync, 0);
    rig.run(60 * SECOND);
    assert_eq!((rig.accepted.len(), rig.answered.len(), rig.machine.undelivered()), (3, 1, 0));
}

#[test]
fn failed_reads_of_the_journal_are_retried_with_pauses() {
    let mut rig = Rig::new();
    rig.receiver(down);
    // More than fit into the lanes, so the rest has to be read from the journal.
    rig.send(history(300, 1));
    rig.run(SECOND);
    rig.receiver(|_| Outcome::Accepted);
    rig.disk.fail(DiskCall::Read, u32::MAX);
    let before = rig.disk.calls(DiskCall::Read);
    rig.run(60 * SECOND);
    let reads = rig.disk.calls(DiskCall::Read) - before;
    assert!((2..20).contains(&reads), "{reads} reads in a minute");
    assert!(rig.accepted.len() < 300 && rig.health.error().unwrap().starts_with("cannot read the journal"));
    // Writes go on.
    let sent = rig.send(vec![added(pod("lone", "1", "x"), false)]);
    rig.run(SECOND);
    assert_eq!(rig.answered.last(), Some(&sent));
    rig.disk.fail(DiskCall::Read, 0);
    rig.run(60 * SECOND);
    assert_eq!((rig.accepted.len(), rig.machine.undelivered()), (301, 0));
}

#[test]
fn recovered_events_are_answered_once_they_are_durable() {
    let mut rig = Rig::new();
    rig.disk.fail(DiskCall::Sync, u32::MAX);
    rig.send(history(3, 1));
    rig.run(SECOND);
    rig.disk.kill();
    rig.disk.fail(DiskCall::Sync, 4);
    (rig.store, rig.machine, rig.health) = open(&rig.disk, rig.limits, rig.fsync);
    let sent = rig.send(history(3, 1));
    rig.run(Duration::ZERO);
    assert_eq!((rig.accepted.len(), rig.answered.len()), (0, 0), "the journal has all of these events");
    rig.run(60 * SECOND);
    assert_eq!((rig.accepted.len(), &rig.answered[..], rig.machine.undelivered()), (3, &[sent][..], 0));
}

/// Returns a sink with two dead letters of the object `web-0`. Its receiver refused them and now accepts everything.
fn rig_with_letters() -> Rig {
    let mut rig = Rig::new();
    rig.receiver(|_| Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() });
    rig.send(history(1, 2));
    rig.run(DAY);
    rig.receiver(|_| Outcome::Accepted);
    rig
}

#[test]
fn failed_replay_answers_no_sender_early() {
    let mut rig = rig_with_letters();
    // Two failures: the sync, and its fallback.
    rig.disk.fail(DiskCall::Sync, 2);
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    assert_eq!((replayed.count, replayed.error.is_some()), (0, true));
    rig.disk.fail(DiskCall::Append, 1);
    let (sent, answered) = (rig.send(history(3, 1)), rig.answered.len());
    rig.run(Duration::ZERO);
    assert_eq!(rig.answered.len(), answered);
    rig.run(SECOND);
    assert_eq!(rig.answered.last(), Some(&sent));
    assert_eq!(rig.versions()["/v1/pods/shop/web-2"], [1]);
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    assert_eq!((replayed.count, replayed.error.is_none()), (2, true));
}

#[test]
fn replay_after_a_failed_sync_keeps_pending_events() {
    let mut rig = rig_with_letters();
    rig.disk.fail(DiskCall::Sync, 2);
    let sent = rig.send(history(3, 1));
    rig.run(Duration::ZERO);
    assert_ne!(rig.answered.last(), Some(&sent));
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.run(SECOND);
    assert_eq!((rig.answered.last(), rig.machine.undelivered()), (Some(&sent), 0));
}

#[test]
fn letters_replayed_between_a_failed_sync_and_the_next_are_delivered() {
    let mut rig = rig_with_letters();
    rig.receiver(down);
    // So many that no read is due.
    rig.send(history(150, 1));
    rig.run(SECOND);
    let before = rig.machine.undelivered();
    rig.disk.fail(DiskCall::Sync, 2);
    rig.send(vec![update("web-0", 2)]);
    rig.run(Duration::ZERO);
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    assert_eq!(replayed.count, 2);
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.send(vec![update("web-0", 3)]);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(DAY);
    assert_eq!((rig.accepted.len() as u64, rig.machine.undelivered()), (before + 4, 0));
}

#[test]
fn letters_replayed_during_a_write_are_delivered() {
    let mut rig = rig_with_letters();
    let before = rig.accepted.len();
    rig.send(history(3, 1));
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    // The sent events are written after the replayed ones, but the machine is notified of the sent events first.
    rig.run(Duration::ZERO);
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.run(SECOND);
    assert_eq!((rig.accepted.len() - before, rig.machine.undelivered()), (5, 0));
}

#[test]
fn letters_beyond_the_limit_are_dropped_oldest_first() {
    let mut rig = Rig::with(StoreLimits { letters: 64 << 10, ..StoreLimits::default() }, Fsync::default());
    rig.receiver(|_| Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() });
    rig.send(history(300, 1));
    rig.run(DAY);
    let letters = rig.store.list_letters(&LetterFilter::default(), 0, 1000).unwrap();
    let status = rig.health.status();
    assert_eq!((status.dead_lettered, rig.machine.undelivered()), (300, 0));
    assert!(!letters.is_empty() && status.dead_letters_forgotten > 0, "{status:?}");
    assert_eq!(letters.len() as u64 + status.dead_letters_forgotten, 300);
    assert_eq!(letters.last().map(|letter| letter.number), Some(299));
}

#[test]
fn disabled_sink_keeps_pending_events_for_the_next_start() {
    let mut rig = Rig::new();
    rig.receiver(|_| Outcome::Disable { error: "receiver answered 410 Gone".to_owned() });
    rig.send(history(10, 1));
    rig.run(SECOND);
    rig.send(history(10, 2));
    rig.run(DAY);
    assert_eq!(rig.answered, [1, 2]);
    let status = rig.health.status();
    assert_eq!((status.disabled, status.discarded, status.dead_lettered), (true, 20, 0));
    rig.restart(false);
    rig.receiver(|_| Outcome::Accepted);
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 10);
}

#[test]
fn fsync_setting_decides_when_a_message_is_answered() {
    for (fsync, millis) in
        [(Fsync::Within(Duration::from_millis(50)), 50), (Fsync::Within(Duration::ZERO), 0), (Fsync::Never, 0)]
    {
        let mut rig = Rig::with(StoreLimits::default(), fsync);
        rig.send(history(1, 1));
        rig.run(Duration::from_millis(millis));
        assert_eq!(rig.answered.len(), 1, "{fsync:?}");
    }
}

#[test]
fn full_message_is_written_at_once() {
    let mut rig = Rig::new();
    rig.send(history(1, 1));
    rig.run(Duration::ZERO);
    rig.send(history(255, 1));
    rig.run(Duration::from_millis(9));
    assert_eq!(rig.answered, [1]);
    rig.run(SECOND);
    rig.send(history(1, 2));
    rig.run(Duration::ZERO);
    rig.send(history(128, 4).split_off(256));
    rig.run(Duration::ZERO);
    assert_eq!(rig.answered, [1, 2, 3, 4]);
}

#[test]
fn deletion_during_downtime_is_delivered_once() {
    let mut rig = Rig::new();
    rig.send(history(2, 3));
    rig.run(SECOND);
    rig.restart(false);
    let gone = Notification::Deleted { object: pod("web-0", "2", "x"), tombstone: true };
    rig.send(vec![gone.clone()]);
    rig.run(SECOND);
    rig.restart(false);
    rig.send(vec![gone]);
    rig.run(SECOND);
    let deletions = rig.accepted.iter().filter(|event| event.event_type() == EventType::Deleted).count();
    assert_eq!(deletions, 1);
}

//! Simulated process of a sink: the sink's state machine, its store on a simulated disk, and a transport to a test
//! receiver.
//!
//! The state machine has a virtual clock, which jumps to the time of the next action. Delivery attempts run in real
//! time.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use crate::{
    Action, BatchParams, Bounds, Event, EventOptions, LaneId, Machine, MachineParams, Outcome, RetryParams, SinkHealth,
    Store, StoreLimits, Transport,
};
use informer_hub_disk::Disk;
use informer_hub_sim::disk::SimDisk;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Fsync, Notification};

/// Maximum number of events in the sink's lanes (parallel queues).
pub(super) const ROOM: usize = 20;
const FLUSH: Duration = Duration::from_secs(30);

/// Simulated process that runs one sink, from the start of the process to its end.
pub(super) struct Process {
    machine: Machine<u32>,
    store: Store,
    transport: Arc<dyn Transport>,
    now: Instant,
    attempts: JoinSet<(LaneId, Outcome)>,
    in_flight: Vec<(LaneId, Arc<[Event]>)>,
    sent: u32,
    /// Numbers of the messages that the sink has answered, in order. Messages are numbered from 1.
    pub(super) answered: Vec<u32>,
    pub(super) accepted: Vec<Event>,
    pub(super) health: Arc<SinkHealth>,
}

impl Process {
    /// Starts a sink with the journal on `disk`; if that is `None`, a sink without a journal.
    pub(super) fn start(transport: Arc<dyn Transport>, disk: Option<(&SimDisk, StoreLimits)>) -> Self {
        let (store, durability) = match disk {
            None => (Store::in_memory(), None),
            Some((disk, limits)) => {
                let port: Arc<dyn Disk> = Arc::new(disk.clone());
                let dir = Path::new("state/sinks/test");
                let (store, found) = Store::open(&port, dir, limits, Fsync::default(), &|_| true).expect("a disk");
                (store, Some(found.durability))
            }
        };
        let health = SinkHealth::new();
        let params = MachineParams {
            name: "test".into(),
            selection: Arc::default(),
            options: EventOptions::default(),
            batch: BatchParams { max_events: 3, ..BatchParams::default() },
            retry: RetryParams::default(),
            bounds: Bounds { events: ROOM, ..Bounds::default() },
            concurrency: NonZeroUsize::new(2).expect("two"),
            rate_limit: None,
            health: Arc::clone(&health),
        };
        Self {
            machine: Machine::new(params, durability, StdRng::seed_from_u64(7)),
            store,
            transport,
            now: clock::now(),
            attempts: JoinSet::new(),
            in_flight: Vec::new(),
            sent: 0,
            answered: Vec::new(),
            accepted: Vec::new(),
            health,
        }
    }

    pub(super) fn send(&mut self, notifications: Vec<Notification>) {
        self.sent += 1;
        self.machine.ingest(notifications, jiff::Timestamp::UNIX_EPOCH, self.sent, self.now);
    }

    pub(super) fn flush(&mut self) {
        self.machine.flush(self.now + FLUSH, self.now);
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of undelivered events, and the number of events that would be lost if the process ended now.
    pub(super) fn undelivered(&self) -> (u64, u64) {
        (self.machine.undelivered(), self.machine.at_risk())
    }

    /// Returns the events in batches whose delivery attempt has not ended yet.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Event> {
        self.in_flight.iter().flat_map(|(_, batch)| batch.iter())
    }

    /// Advances the clock by `time` and performs all actions that become due, without waiting for attempts.
    pub(super) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.pump();
            match self.machine.wake_at(self.now) {
                Some(wake) if wake <= end => self.now = wake.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    /// Runs the sink until `holds` returns true: performs its actions and waits for delivery attempts.
    pub(super) async fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        loop {
            self.pump();
            if holds(self) {
                return;
            }
            let Some(ended) = self.attempts.join_next().await else {
                let wake = self.machine.wake_at(self.now).expect("the condition does not hold, and no action is left");
                self.now = wake.max(self.now);
                continue;
            };
            let (lane, outcome) = ended.expect("no transport panics");
            let at = self.in_flight.iter().position(|(other, _)| *other == lane).expect("it was in flight");
            let (_, batch) = self.in_flight.swap_remove(at);
            if outcome == Outcome::Accepted {
                self.accepted.extend(batch.iter().cloned());
            }
            self.machine.attempted(lane, Ok(outcome), self.now);
        }
    }

    fn pump(&mut self) {
        while let Some(action) = self.machine.next(self.now) {
            match action {
                Action::Answer(number) => self.answered.push(number),
                Action::Attempt { lane, batch } => {
                    self.in_flight.push((lane, Arc::clone(&batch)));
                    let attempt = self.transport.attempt(batch);
                    self.attempts.spawn(async move { (lane, attempt.await) });
                }
                Action::Work(work) => {
                    let done = self.store.run(work);
                    self.machine.work_done(done, self.now);
                }
            }
        }
        self.machine.show();
    }
}

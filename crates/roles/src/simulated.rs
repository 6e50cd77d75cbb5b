//! Backend in memory, with faults that a seed decides.
//!
//! The log is a [`SimulatedLog`], which has JetStream's contract. Requests to the other services have the delays,
//! failures and lost answers of [`Faults`] too.

mod cluster_buckets;
pub(crate) mod later;
mod roster;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use informer_hub_fleet::kept::{self, Kept, Retained};
use informer_hub_fleet::roster::{MoveInProgress, RosterItem};
use informer_hub_fleet::simulated_log::{Faults, SimulatedClient, SimulatedLog};
use informer_hub_fleet::{Answer, ClusterDocument, EntryPage, Log, Ownership, Partition, Request, RequestId, Sequence};
use informer_hub_lease as lease;
use informer_hub_lease::memory::MemoryStore;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Shard, rng};
use parking_lot::Mutex;

use super::backend::{Answered, Backend, BackendError, TailStream};
use later::Later;
use roster::Roster;

/// Interval at which a request polls the log for its answer.
const LOOK: Duration = Duration::from_millis(1);
/// Interval at which a tail polls for entries, and the maximum number per poll.
const TAIL: (Duration, usize) = (Duration::from_millis(5), 64);
/// Amount by which the revision of a bucket increases when the bucket is deleted and created again.
const RECREATED: u64 = 1 << 20;
/// Time after which a request without an answer fails.
const DEADLINE: Duration = Duration::from_secs(5);

/// Simulated log, buckets and checkpoints of a fleet, shared by all clones. The data survive the end of simulated
/// processes and runtimes.
#[derive(Clone)]
pub struct SimulatedFleet(Arc<FleetState>);

/// Bucket of owners or documents: entries by shard, and the last revision.
type Bucket<T> = (HashMap<Shard, T>, u64);

struct FleetState {
    log: SimulatedLog,
    faults: Mutex<Faults>,
    owners: Mutex<Bucket<Ownership>>,
    documents: Mutex<Bucket<(u64, Bytes)>>,
    checkpoints: Mutex<HashMap<Partition, Checkpoints>>,
    /// Number of times that the test deleted the checkpoints.
    deleted: Mutex<u64>,
    leases: Mutex<HashMap<String, MemoryStore>>,
    roster: Mutex<Roster>,
    down: Mutex<bool>,
    /// Whether requests get no answer and fail at their deadline. Requests to the log are not affected.
    losing: Mutex<bool>,
    /// Number of calls of [`SimulatedFleet::silence_watches`]. A watch or tail that was opened before the last call
    /// delivers nothing.
    silenced: Mutex<usize>,
    /// Time of the log, which continues when a test starts another runtime.
    time: Mutex<Duration>,
}

struct Checkpoints {
    newest: Kept<Bytes>,
    older: Vec<Kept<Bytes>>,
}

/// Connection of one process to a [`SimulatedFleet`].
pub struct SimulatedBackend {
    fleet: SimulatedFleet,
    client: Arc<Mutex<Client>>,
    cut_off: Arc<Mutex<bool>>,
    /// Number of requests, except appends to the log.
    requests: Arc<AtomicUsize>,
    /// Bytes of the largest page of entries.
    largest_page: Arc<AtomicUsize>,
    later: Later,
}

struct Client {
    connection: SimulatedClient,
    answers: HashMap<RequestId, Answer>,
    last_id: RequestId,
    begun: Instant,
    offset: Duration,
}

/// Deletes a bucket and creates it again, with a higher revision as in NATS.
fn recreate<T>((entries, revision): &mut Bucket<T>) {
    entries.clear();
    *revision += RECREATED;
}

impl SimulatedFleet {
    /// Creates a fleet without entries. The log draws from the thread's random number generator.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self(Arc::new(FleetState {
            log: SimulatedLog::new(faults),
            faults: Mutex::new(faults),
            owners: Mutex::default(),
            documents: Mutex::default(),
            checkpoints: Mutex::default(),
            deleted: Mutex::default(),
            leases: Mutex::default(),
            roster: Mutex::default(),
            down: Mutex::default(),
            losing: Mutex::default(),
            silenced: Mutex::default(),
            time: Mutex::default(),
        }))
    }

    /// Connects a process that runs on the current runtime.
    #[must_use]
    pub fn connect(&self) -> SimulatedBackend {
        self.connect_as(Later::default())
    }

    /// Connects a process that runs a later version of the program, which `later` specifies.
    pub(crate) fn connect_as(&self, later: Later) -> SimulatedBackend {
        let client = Client {
            connection: self.0.log.connect(),
            answers: HashMap::new(),
            last_id: 0,
            begun: clock::now(),
            offset: *self.0.time.lock(),
        };
        let (client, cut_off, requests) = (Arc::new(Mutex::new(client)), Arc::default(), Arc::default());
        SimulatedBackend { fleet: self.clone(), client, cut_off, requests, largest_page: Arc::default(), later }
    }

    /// Returns the log.
    #[must_use]
    pub fn log(&self) -> &SimulatedLog {
        &self.0.log
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: Faults) {
        *self.0.faults.lock() = faults;
        self.0.log.set_faults(faults);
    }

    /// Makes all requests fail, or succeed again.
    pub fn set_down(&self, down: bool) {
        *self.0.down.lock() = down;
        self.0.log.set_down(down);
    }

    /// If `losing`, makes all requests except those to the log fail at their deadline without an answer. Otherwise,
    /// they are answered again.
    #[cfg(test)]
    pub(crate) fn lose_requests(&self, losing: bool) {
        *self.0.losing.lock() = losing;
    }

    /// Deletes the owners of all clusters.
    pub fn delete_owners(&self) {
        recreate(&mut self.0.owners.lock());
    }

    /// Deletes the documents about all clusters.
    pub fn delete_documents(&self) {
        recreate(&mut self.0.documents.lock());
    }

    /// Deletes all checkpoints.
    pub fn delete_checkpoints(&self) {
        self.0.checkpoints.lock().clear();
        *self.0.deleted.lock() += 1;
    }

    /// Returns which collector owns a shard; `None` if it never had an owner.
    #[must_use]
    pub fn owner(&self, shard: &Shard) -> Option<Ownership> {
        self.0.owners.lock().0.get(shard).cloned()
    }

    /// Writes an item of the roster.
    pub fn set_roster(&self, item: RosterItem) {
        self.0.roster.lock().write(item);
    }

    /// Removes the drains and pins that the operator has set.
    pub fn clear_roster(&self) {
        self.0.roster.lock().clear();
    }

    /// Returns the shard that collectors are moving; `None` if none.
    #[must_use]
    pub fn moving(&self) -> Option<MoveInProgress> {
        self.0.roster.lock().moving()
    }

    /// Returns the text that the holder of a lease publishes; empty if there is no lease.
    #[must_use]
    pub fn lease_note(&self, name: &str) -> String {
        let leases = self.0.leases.lock();
        let record = leases.get(name).and_then(MemoryStore::record);
        record.map(|record| record.note.to_string()).unwrap_or_default()
    }

    /// Returns the sequence of each partition's newest checkpoint.
    #[must_use]
    pub fn checkpoints(&self) -> HashMap<Partition, Sequence> {
        self.0.checkpoints.lock().iter().map(|(partition, kept)| (partition.clone(), kept.newest.sequence)).collect()
    }
}

impl SimulatedBackend {
    /// Cuts the process off from the backend, so that its requests fail, or connects it again.
    pub fn set_cut_off(&self, cut_off: bool) {
        *self.cut_off.lock() = cut_off;
        self.client.lock().connection.set_cut_off(cut_off);
    }

    /// Returns the number of requests so far, without appends to the log.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Returns the bytes of the largest page of entries that was read.
    #[must_use]
    pub fn largest_page(&self) -> usize {
        self.largest_page.load(Relaxed)
    }

    /// Performs a request to any service but the log, with the delays and failures of [`Faults`].
    fn perform<T: Send + 'static>(&self, work: impl FnOnce(&FleetState) -> T + Send + 'static) -> Answered<T> {
        let (fleet, cut_off) = (self.fleet.clone(), Arc::clone(&self.cut_off));
        self.requests.fetch_add(1, Relaxed);
        Box::pin(async move {
            let faults = *fleet.0.faults.lock();
            tokio::time::sleep(faults.delay.mul_f64(rng::unit())).await;
            let failed = || BackendError("the simulated services do not answer".to_owned());
            if *fleet.0.losing.lock() {
                tokio::time::sleep(DEADLINE).await;
                return Err(failed());
            }
            if *fleet.0.down.lock() || *cut_off.lock() || rng::unit() < faults.failed {
                return Err(failed());
            }
            let done = work(&fleet.0);
            if rng::unit() < faults.lost_answer { Err(failed()) } else { Ok(done) }
        })
    }
}

impl Client {
    /// Advances the log to the current time. Returns the answer to request `id` if it has arrived.
    fn receive(&mut self, fleet: &FleetState, id: RequestId) -> Option<Answer> {
        let now = {
            let mut time = fleet.time.lock();
            *time = (*time).max(self.offset + (clock::now() - self.begun));
            *time
        };
        fleet.log.advance(now);
        while let Some((id, answer)) = self.connection.receive() {
            self.answers.insert(id, answer);
        }
        self.answers.remove(&id)
    }
}

impl Backend for SimulatedBackend {
    fn execute(&self, request: Request) -> BoxFuture<'static, Answer> {
        let (fleet, client, later) = (self.fleet.clone(), Arc::clone(&self.client), self.later);
        let id = {
            let mut client = client.lock();
            client.last_id += 1;
            let id = client.last_id;
            client.connection.send(id, later.request(request));
            id
        };
        Box::pin(async move {
            let deadline = clock::now() + DEADLINE;
            loop {
                if let Some(answer) = client.lock().receive(&fleet.0, id) {
                    return later.answer(answer);
                }
                if clock::now() >= deadline {
                    return Answer::Failed("no answer in time".to_owned());
                }
                tokio::time::sleep(LOOK).await;
            }
        })
    }

    fn entries(&self, partition: &Partition, after: Sequence, page_bytes: usize) -> Answered<Option<EntryPage>> {
        let (client, partition, later) = (Arc::clone(&self.client), partition.clone(), self.later);
        let read = self.perform(move |fleet| {
            let entries = client.lock().connection.read(after, Some(&partition), usize::MAX);
            entries.map(|entries| fleet.log.last(&partition).map(|last| (entries, last)))
        });
        let largest = Arc::clone(&self.largest_page);
        Box::pin(async move {
            let read = read.await?.ok_or_else(|| BackendError("the simulated log is unreachable".to_owned()))?;
            Ok(read.map(|(entries, last)| {
                let (mut page, mut bytes) = (EntryPage::new(last), 0);
                for entry in entries.into_iter().map(|entry| later.entry(entry)) {
                    // Repeated entries do not count, so that each page has a new one.
                    let size = if entry.sequence > after { entry.payload.len() } else { 0 };
                    page.entries.push(entry);
                    bytes += size;
                    if bytes >= page_bytes {
                        break;
                    }
                }
                largest.fetch_max(bytes, Relaxed);
                page
            }))
        })
    }

    fn tail(&self, after: Option<Sequence>) -> Answered<(Sequence, TailStream)> {
        let (client, fleet, later) = (Arc::clone(&self.client), self.fleet.clone(), self.later);
        let begin = self.perform(move |fleet| (after.unwrap_or_else(|| fleet.log.end()), *fleet.silenced.lock()));
        Box::pin(async move {
            let (begin, silenced) = begin.await?;
            let batches = stream::try_unfold((client, fleet, begin), move |(client, fleet, position)| async move {
                tokio::time::sleep(TAIL.0).await;
                let failed = fleet.0.faults.lock().failed / 100.0;
                if rng::unit() < failed {
                    return Err(BackendError("the simulated tail fails".to_owned()));
                }
                // While the log is unreachable, a tail is silent.
                let is_silent = *fleet.0.silenced.lock() != silenced;
                let read = client.lock().connection.read(position, None, TAIL.1).filter(|_| !is_silent);
                let read = read.unwrap_or_default();
                let position = read.last().map_or(position, |last| last.sequence.max(position));
                let read = read.into_iter().map(move |entry| Ok(later.entry(entry)));
                Ok(Some((stream::iter(read), (client, fleet, position))))
            });
            Ok((begin, batches.try_flatten().boxed()))
        })
    }

    fn retained(&self) -> Answered<Retained> {
        self.perform(|fleet| fleet.log.retained())
    }

    fn owner(&self, shard: &Shard) -> Answered<Option<Ownership>> {
        let shard = shard.clone();
        self.perform(move |fleet| fleet.owners.lock().0.get(&shard).cloned())
    }

    fn claim(
        &self,
        shard: &Shard,
        collector: &str,
        seen: Option<&Ownership>,
        newest: u64,
    ) -> Answered<Option<Ownership>> {
        let epoch = seen.map_or(0, |seen| seen.epoch).max(newest) + 1;
        let (weight, revision) = (seen.map_or(0, |seen| seen.weight), seen.map(|seen| seen.revision));
        let (shard, collector, next) = (shard.clone(), collector.to_owned(), String::new());
        self.write(Ownership { shard, collector, next, epoch, revision: 0, weight }, revision)
    }

    fn renew(&self, own: &Ownership) -> Answered<Option<Ownership>> {
        self.write(own.clone(), Some(own.revision))
    }

    fn restore_owner(&self, own: &Ownership) -> Answered<Option<Ownership>> {
        self.write(own.clone(), None)
    }

    fn release(&self, own: &Ownership) -> Answered<bool> {
        let released = self.write(Ownership { collector: String::new(), ..own.clone() }, Some(own.revision));
        Box::pin(async move { released.await.map(|released| released.is_some()) })
    }

    fn document(&self, shard: &Shard) -> Answered<Option<(u64, ClusterDocument)>> {
        let (shard, later) = (shard.clone(), self.later);
        let read = self.perform(move |fleet| fleet.documents.lock().0.get(&shard).cloned());
        Box::pin(async move {
            let decode =
                |(revision, bytes)| ClusterDocument::decode(&later.read(bytes)).map(|document| (revision, document));
            read.await?.map(decode).transpose().map_err(|error| BackendError(error.to_string()))
        })
    }

    fn save_document(&self, shard: &Shard, document: ClusterDocument, seen: Option<u64>) -> Answered<Option<u64>> {
        let shard = shard.clone();
        let encoded = document.encode().map(|encoded| self.later.write(encoded));
        let written = self.perform(move |fleet| {
            let (documents, last) = &mut *fleet.documents.lock();
            if documents.get(&shard).map(|(revision, _)| *revision) != seen {
                return Ok(None);
            }
            let encoded = encoded?;
            *last += 1;
            documents.insert(shard, (*last, encoded));
            Ok(Some(*last))
        });
        Box::pin(async move {
            written.await?.map_err(|error: informer_hub_fleet::DecodeError| BackendError(error.to_string()))
        })
    }

    fn checkpoint(&self, partition: &Partition, before: Option<Sequence>) -> Answered<Option<Bytes>> {
        let (partition, later) = (partition.clone(), self.later);
        self.perform(move |fleet| {
            let checkpoints = fleet.checkpoints.lock();
            let Checkpoints { newest, older } = checkpoints.get(&partition)?;
            let is_newest = before.is_none_or(|before| newest.sequence < before);
            let found = if is_newest { Some(newest) } else { kept::newest_before(older, before?) };
            found.map(|found| later.read_checkpoint(found.at.clone()))
        })
    }

    fn save_checkpoint(
        &self,
        partition: &Partition,
        sequence: Sequence,
        _collector: &str,
        checkpoint: Bytes,
    ) -> Answered<()> {
        let (partition, checkpoint) = (partition.clone(), self.later.write_checkpoint(checkpoint));
        self.perform(move |fleet| {
            let (log, now) = (fleet.log.retained(), fleet.time.lock().as_secs());
            let newest = Kept { sequence, saved: now.cast_signed(), at: checkpoint };
            match fleet.checkpoints.lock().entry(partition) {
                Slot::Vacant(vacant) => _ = vacant.insert(Checkpoints { newest, older: Vec::new() }),
                Slot::Occupied(mut found) if found.get().newest.sequence < sequence => {
                    let Checkpoints { newest: before, older } = found.get_mut();
                    let replaced = std::mem::replace(before, newest);
                    drop(kept::keep(older, replaced, log));
                }
                Slot::Occupied(_) => {}
            }
        })
    }

    fn checkpoints_created(&self) -> Answered<u64> {
        self.perform(|fleet| *fleet.deleted.lock())
    }

    fn lease(&self, name: &str, request: lease::Request) -> Answered<lease::Answer> {
        let name = name.to_owned();
        self.perform(move |fleet| fleet.leases.lock().entry(name).or_default().apply(&request))
    }
}

impl SimulatedBackend {
    /// Replaces the entry of an ownership if its revision is `expected`; `None` expects no entry. Returns the new
    /// ownership, or `None` if the entry has another revision.
    fn write(&self, own: Ownership, expected: Option<u64>) -> Answered<Option<Ownership>> {
        self.perform(move |fleet| {
            let (owners, last) = &mut *fleet.owners.lock();
            if owners.get(&own.shard).map(|found| found.revision) != expected {
                return None;
            }
            *last += 1;
            let own = Ownership { revision: *last, ..own };
            owners.insert(own.shard.clone(), own.clone());
            Some(own)
        })
    }
}

impl fmt::Debug for SimulatedFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedFleet").finish_non_exhaustive()
    }
}

impl fmt::Debug for SimulatedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedBackend").finish_non_exhaustive()
    }
}

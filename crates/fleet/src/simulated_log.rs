//! Log in memory with faults, all decided by a seed, in virtual time.
//!
//! Requests and answers are delayed, reordered, lost and repeated. A client can be cut off. A request that left its
//! client before the cut still arrives. The log can be down, remove old entries by size or age, and be deleted.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_hub_types::rng;
use rand::Rng;
use rand::rngs::StdRng;

use super::entry::{Entry, Sequence};
use super::kept::Retained;
use super::log::{Answer, Log, Request, RequestId};
use super::partition::Partition;

/// Probabilities of faults per message, from 0 to 1, and the delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a request is lost.
    pub lost_request: f64,
    /// Probability that a request is executed, but its answer is lost.
    pub lost_answer: f64,
    /// Probability that a request is executed twice, or that a read repeats earlier entries.
    pub doubled: f64,
    /// Probability that a request fails.
    pub failed: f64,
    /// Probability that a read of a partition's last entry returns the entry before it.
    pub outdated: f64,
    /// Longest delay of a request or an answer.
    pub delay: Duration,
}

impl Faults {
    /// No faults and no delay.
    pub const NONE: Self =
        Self { lost_request: 0.0, lost_answer: 0.0, doubled: 0.0, failed: 0.0, outdated: 0.0, delay: Duration::ZERO };
}

/// Request or answer that has not arrived yet.
enum Message {
    Request { client: usize, id: RequestId, request: Request },
    Answer { client: usize, id: RequestId, answer: Answer },
}

struct Stored {
    entry: Entry,
    at: Duration,
}

struct State {
    rng: StdRng,
    faults: Faults,
    now: Duration,
    /// Messages by arrival time. The second number only makes the keys unique.
    messages: BTreeMap<(Duration, u64), Message>,
    sent: u64,
    inboxes: Vec<VecDeque<(RequestId, Answer)>>,
    cut_off: HashSet<usize>,
    down: bool,
    last_sequence: Sequence,
    entries: BTreeMap<Sequence, Stored>,
    /// Sequences of the retained entries, by partition.
    by_partition: HashMap<Partition, VecDeque<Sequence>>,
    bytes: usize,
    max_bytes: usize,
    max_age: Duration,
    history: Vec<Entry>,
}

/// Log in memory with faults; see the [module documentation](self). Clones share the log.
#[derive(Clone)]
pub struct SimulatedLog(Arc<Mutex<State>>);

impl std::fmt::Debug for SimulatedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedLog").finish_non_exhaustive()
    }
}

/// Connection of a process to a [`SimulatedLog`].
#[derive(Debug)]
pub struct SimulatedClient {
    log: SimulatedLog,
    client: usize,
}

impl SimulatedLog {
    /// Creates an empty log, which draws from the thread's random number generator; see [`rng::SeededRng`].
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: rng::rng(),
            faults,
            now: Duration::ZERO,
            messages: BTreeMap::new(),
            sent: 0,
            inboxes: Vec::new(),
            cut_off: HashSet::new(),
            down: false,
            last_sequence: 0,
            entries: BTreeMap::new(),
            by_partition: HashMap::new(),
            bytes: 0,
            max_bytes: usize::MAX,
            max_age: Duration::MAX,
            history: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a process.
    #[must_use]
    pub fn connect(&self) -> SimulatedClient {
        let mut state = self.state();
        state.inboxes.push(VecDeque::new());
        SimulatedClient { log: self.clone(), client: state.inboxes.len() - 1 }
    }

    /// Advances the clock to `now`, and delivers the messages that are due by then.
    pub fn advance(&self, now: Duration) {
        let mut state = self.state();
        while let Some(first) = state.messages.first_entry()
            && first.key().0 <= now
        {
            let ((at, _), message) = first.remove_entry();
            state.now = state.now.max(at);
            state.deliver(message);
        }
        state.now = now;
        state.retain();
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// If `down`, makes the log fail all requests; otherwise makes it answer them again.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Limits the log. The oldest entries over a limit are removed.
    pub fn set_retention(&self, max_bytes: usize, max_age: Duration) {
        let mut state = self.state();
        (state.max_bytes, state.max_age) = (max_bytes, max_age);
        state.retain();
    }

    /// Deletes all entries, as if the stream was deleted and created again. Sequences continue above the old ones.
    pub fn recreate(&self) {
        let mut state = self.state();
        state.last_sequence += 1000;
        state.bytes = 0;
        state.entries.clear();
        state.by_partition.clear();
    }

    /// Removes the entries after `sequence`, as if an older backup of the stream was restored. New entries get the
    /// numbers of the removed ones.
    pub fn roll_back(&self, sequence: Sequence) {
        let mut state = self.state();
        state.last_sequence = sequence;
        state.history.retain(|entry| entry.sequence <= sequence);
        for Stored { entry, .. } in state.entries.split_off(&(sequence + 1)).into_values() {
            state.bytes -= entry.payload.len();
            if let Some(sequences) = state.by_partition.get_mut(&entry.partition) {
                sequences.pop_back();
            }
        }
    }

    /// Returns the sequence of the last entry, retained or not.
    #[must_use]
    pub fn end(&self) -> Sequence {
        self.state().last_sequence
    }

    /// Returns the sequence of the last retained entry of a partition; `None` if the log retains none.
    #[must_use]
    pub fn last(&self, partition: &Partition) -> Option<Sequence> {
        self.state().last(partition)
    }

    /// Returns the first and last sequence of the log, and for how long it retains entries.
    #[must_use]
    pub fn retained(&self) -> Retained {
        let state = self.state();
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let last = (state.last_sequence, seconds(state.now));
        let first = state.entries.first_key_value();
        let first = first.map_or((last.0 + 1, last.1), |(sequence, stored)| (*sequence, seconds(stored.at)));
        Retained::new(first, last, (state.bytes as u64, state.max_bytes as u64), state.max_age)
    }

    /// Returns all entries ever stored, retained or not, in order.
    #[must_use]
    pub fn history(&self) -> Vec<Entry> {
        self.state().history.clone()
    }
}

impl SimulatedClient {
    /// Cuts the client off from the log, or connects it again. Messages on their way still arrive.
    pub fn set_cut_off(&self, cut_off: bool) {
        let mut state = self.log.state();
        if cut_off {
            state.cut_off.insert(self.client)
        } else {
            state.cut_off.remove(&self.client)
        };
    }

    /// Returns up to `most` retained entries behind sequence `after`, in order. `only` restricts them to one partition.
    /// `None` if the log is down or the client is cut off.
    ///
    /// By a fault, the result may start with a few entries that the client has read before, up to sequence `after`.
    #[must_use]
    pub fn read(&self, after: Sequence, only: Option<&Partition>, most: usize) -> Option<Vec<Entry>> {
        let mut state = self.log.state();
        if state.down || state.cut_off.contains(&self.client) {
            return None;
        }
        let doubled = state.faults.doubled;
        let repeated = if state.rng.random_bool(doubled) { state.rng.random_range(0..5) } else { 0 };
        let from = after.saturating_sub(repeated).saturating_add(1);
        let entries = state.entries.range(from..).map(|(_, stored)| &stored.entry);
        let entries = entries.filter(|entry| only.is_none_or(|only| entry.partition == *only));
        Some(entries.take(most).cloned().collect())
    }
}

impl Log for SimulatedClient {
    fn send(&mut self, id: RequestId, request: Request) {
        let client = self.client;
        let mut state = self.log.state();
        let Faults { lost_request, doubled, .. } = state.faults;
        if state.cut_off.contains(&client) || state.rng.random_bool(lost_request) {
            return;
        }
        if state.rng.random_bool(doubled) {
            state.post(Message::Request { client, id, request: request.clone() });
        }
        state.post(Message::Request { client, id, request });
    }

    fn receive(&mut self) -> Option<(RequestId, Answer)> {
        self.log.state().inboxes[self.client].pop_front()
    }
}

impl State {
    fn post(&mut self, message: Message) {
        let delay = self.faults.delay.mul_f64(self.rng.random::<f64>().powi(3));
        self.sent += 1;
        self.messages.insert((self.now + delay, self.sent), message);
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Request { client, id, request } => {
                let answer = self.execute(request);
                if !self.rng.random_bool(self.faults.lost_answer) {
                    self.post(Message::Answer { client, id, answer });
                }
            }
            Message::Answer { client, id, answer } => {
                if !self.cut_off.contains(&client) {
                    self.inboxes[client].push_back((id, answer));
                }
            }
        }
    }

    fn execute(&mut self, request: Request) -> Answer {
        if self.down || self.rng.random_bool(self.faults.failed) {
            return Answer::Failed("the simulated log is down".to_owned());
        }
        match request {
            Request::Append { partition, expected, payload } => {
                if self.last(&partition).unwrap_or(0) != expected {
                    return Answer::Refused;
                }
                self.last_sequence += 1;
                let sequence = self.last_sequence;
                self.bytes += payload.len();
                self.by_partition.entry(partition.clone()).or_default().push_back(sequence);
                let entry = Entry { partition, sequence, payload };
                self.history.push(entry.clone());
                self.entries.insert(sequence, Stored { entry, at: self.now });
                self.retain();
                Answer::Stored(sequence)
            }
            Request::ReadLast { partition } => {
                let outdated = usize::from(self.rng.random_bool(self.faults.outdated));
                let sequences = self.by_partition.get(&partition);
                let sequence = sequences.and_then(|all| all.iter().nth_back(outdated.min(all.len().saturating_sub(1))));
                let stored = sequence.and_then(|sequence| self.entries.get(sequence));
                Answer::Last(stored.map(|stored| stored.entry.clone()))
            }
        }
    }

    fn last(&self, partition: &Partition) -> Option<Sequence> {
        self.by_partition.get(partition)?.back().copied()
    }

    fn retain(&mut self) {
        while let Some(first) = self.entries.first_entry()
            && (self.bytes > self.max_bytes || self.now.saturating_sub(first.get().at) > self.max_age)
        {
            let Stored { entry, .. } = first.remove();
            self.bytes -= entry.payload.len();
            if let Some(sequences) = self.by_partition.get_mut(&entry.partition) {
                sequences.pop_front();
            }
        }
    }
}

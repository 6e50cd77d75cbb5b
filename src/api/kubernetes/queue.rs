//! Fair queue of readers: limits the requests in progress, and hands out turns of work round-robin over the readers.
//!
//! The model is API Priority and Fairness. A request is admitted, or refused immediately with 429. An admitted request
//! does its work in turns of some hundred microseconds, so that one reader with many large lists does not delay
//! another. No turn is taken while the client reads the answer, so slow clients delay no other request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::oneshot;

use crate::api::usage::Limit;
use informer_hub_access::ReaderLimits;

/// Identity under which the requests of a reader share turns and limits.
pub(in crate::api) type ReaderId = SmolStr;

#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Maximum number of requests in progress. One reader may have at most half of them.
    pub(super) requests: usize,
    pub(super) watches: usize,
    pub(super) turns: usize,
}

/// Fair queue of the requests to one HTTP port.
#[derive(Debug)]
pub(in crate::api) struct FairQueue {
    limits: QueueLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: usize,
    watches: usize,
    /// Numbers of requests, watches and scans in progress by reader (API user).
    readers: BTreeMap<(Kind, ReaderId), usize>,
    turns: usize,
    /// Waiting requests by reader. `order` has the readers in the order in which they get the next turns.
    waiting: BTreeMap<ReaderId, VecDeque<oneshot::Sender<()>>>,
    order: VecDeque<ReaderId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// A list, a query or a request for one object.
    Request,
    Watch,
    /// A query that scans objects. It is also counted as a request.
    Scan,
}

/// Numbers of one reader's requests in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReaderInUse {
    /// Number of lists, queries and requests for single objects.
    pub requests: usize,
    /// Number of watches and event streams.
    pub watches: usize,
    /// Number of queries that scan objects.
    pub scans: usize,
}

/// Admission of a request, a watch or a scan, which counts as in progress until this value is dropped.
#[derive(Debug)]
pub(in crate::api) struct Admission {
    queue: Arc<FairQueue>,
    key: (Kind, ReaderId),
}

/// A turn in the fair queue, which lets a request work. Dropping it passes the turn to the next request.
#[derive(Debug)]
pub(in crate::api) struct Turn<'q>(&'q FairQueue);

impl FairQueue {
    pub(super) fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Admits a request, unless too many of this reader or of all readers are in progress. The limit of a reader is
    /// half of the limit of all readers, or its own limit if that is lower.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn admit(self: &Arc<Self>, reader: &ReaderId, limits: ReaderLimits) -> Result<Admission, Limit> {
        let half = self.limits.requests.div_ceil(2);
        let own = limits.requests.map_or(half, |own| own.min(half));
        self.admit_kind(Kind::Request, reader, own)
    }

    /// Admits a watch, unless this reader or all readers together have too many watches.
    pub(super) fn admit_watch(self: &Arc<Self>, reader: &ReaderId, limits: ReaderLimits) -> Result<Admission, Limit> {
        self.admit_kind(Kind::Watch, reader, limits.watches.unwrap_or(usize::MAX))
    }

    /// Admits a query that scans objects, unless this reader has too many such queries in progress.
    pub(super) fn admit_scan(self: &Arc<Self>, reader: &ReaderId, limits: ReaderLimits) -> Result<Admission, Limit> {
        self.admit_kind(Kind::Scan, reader, limits.scans.unwrap_or(usize::MAX))
    }

    fn admit_kind(self: &Arc<Self>, kind: Kind, reader: &ReaderId, most: usize) -> Result<Admission, Limit> {
        let mut state = self.state.lock();
        let key = (kind, reader.clone());
        let own = state.readers.get(&key).copied().unwrap_or_default();
        let (requests, watches) = (state.requests, state.watches);
        match kind {
            Kind::Request if requests >= self.limits.requests => return Err(Limit::AllRequests),
            Kind::Watch if watches >= self.limits.watches => return Err(Limit::AllWatches),
            Kind::Request if own >= most => return Err(Limit::Requests),
            Kind::Watch if own >= most => return Err(Limit::Watches),
            Kind::Scan if own >= most => return Err(Limit::Scans),
            Kind::Request | Kind::Watch | Kind::Scan => {}
        }
        match kind {
            Kind::Request => state.requests += 1,
            Kind::Watch => state.watches += 1,
            Kind::Scan => {}
        }
        state.readers.insert(key.clone(), own + 1);
        Ok(Admission { queue: Arc::clone(self), key })
    }

    pub(super) fn in_progress(&self) -> usize {
        self.state.lock().requests
    }

    /// Returns the requests, watches and scans in progress, by reader.
    pub(super) fn in_use(&self) -> BTreeMap<ReaderId, ReaderInUse> {
        let mut all = BTreeMap::<_, ReaderInUse>::new();
        for ((kind, reader), count) in &self.state.lock().readers {
            let own = all.entry(reader.clone()).or_default();
            match kind {
                Kind::Request => own.requests = *count,
                Kind::Watch => own.watches = *count,
                Kind::Scan => own.scans = *count,
            }
        }
        all
    }

    /// Waits for a turn. Readers get turns round-robin. The requests of one reader get them in the order in which they
    /// began to wait.
    ///
    /// # Cancel safety
    /// Cancel safe: a turn granted to a dropped future passes to the next.
    pub(super) async fn turn(&self, reader: &ReaderId) -> Turn<'_> {
        let granted = {
            let mut state = self.state.lock();
            if state.turns < self.limits.turns {
                state.turns += 1;
                return Turn(self);
            }
            let (grant, granted) = oneshot::channel();
            let state = &mut *state;
            let line = state.waiting.entry(reader.clone()).or_default();
            if line.is_empty() {
                state.order.push_back(reader.clone());
            }
            line.push_back(grant);
            granted
        };
        let mut waiting = Waiting { queue: self, granted: Some(granted) };
        if let Some(granted) = waiting.granted.as_mut() {
            // The sender is dropped only after sending.
            let _ = granted.await;
        }
        waiting.granted = None;
        Turn(self)
    }

    /// Ends a turn: grants it to the next waiting request, or lowers the number of turns in use if none waits.
    fn pass_on(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        while let Some(reader) = state.order.pop_front() {
            let Some(line) = state.waiting.get_mut(&reader) else { continue };
            let next = line.pop_front();
            if line.is_empty() {
                state.waiting.remove(&reader);
            } else {
                state.order.push_back(reader);
            }
            if next.is_some_and(|next| next.send(()).is_ok()) {
                return;
            }
        }
        state.turns -= 1;
    }
}

/// A wait for a turn in the fair queue. If the wait is dropped after it was granted the turn, the turn passes to the
/// next request.
struct Waiting<'q> {
    queue: &'q FairQueue,
    granted: Option<oneshot::Receiver<()>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(mut granted) = self.granted.take() {
            granted.close();
            if granted.try_recv().is_ok() {
                self.queue.pass_on();
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        match self.key.0 {
            Kind::Request => state.requests -= 1,
            Kind::Watch => state.watches -= 1,
            Kind::Scan => {}
        }
        if let Some(own) = state.readers.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                state.readers.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const NONE: ReaderLimits = ReaderLimits { requests: None, scans: None, watches: None, bytes_per_second: None };

    fn queue(requests: usize, watches: usize) -> Arc<FairQueue> {
        FairQueue::new(QueueLimits { requests, watches, turns: 1 })
    }

    #[test]
    fn reader_gets_half_of_the_requests_and_all_readers_the_whole() {
        let queue = queue(4, 1);
        let (a, b, c) = ("a".into(), "b".into(), "c".into());
        let of_a: Vec<_> = (0..3).filter_map(|_| queue.admit(&a, NONE).ok()).collect();
        assert_eq!(of_a.len(), 2);
        let of_b: Vec<_> = (0..3).filter_map(|_| queue.admit(&b, NONE).ok()).collect();
        assert_eq!(of_b.len(), 2);
        assert_eq!(queue.admit(&c, NONE).err(), Some(Limit::AllRequests));
        drop(of_a);
        assert!(queue.admit(&c, NONE).is_ok());
        let watch = queue.admit_watch(&a, NONE);
        assert!(watch.is_ok() && queue.admit_watch(&a, NONE).err() == Some(Limit::AllWatches));
        drop((watch, of_b));
        assert_eq!(queue.in_progress(), 0);
        assert!(queue.admit_watch(&a, NONE).is_ok());
    }

    #[test]
    fn reader_has_limits_of_its_own() {
        let queue = queue(100, 100);
        let (a, b) = ("a".into(), "b".into());
        let limits = ReaderLimits { requests: Some(2), scans: Some(1), watches: Some(3), ..NONE };
        let requests: Vec<_> = (0..5).filter_map(|_| queue.admit(&a, limits).ok()).collect();
        let watches: Vec<_> = (0..5).filter_map(|_| queue.admit_watch(&a, limits).ok()).collect();
        let scans: Vec<_> = (0..5).filter_map(|_| queue.admit_scan(&a, limits).ok()).collect();
        assert_eq!((requests.len(), watches.len(), scans.len()), (2, 3, 1));
        let of_a = ReaderInUse { requests: 2, scans: 1, watches: 3 };
        assert_eq!(queue.in_use(), BTreeMap::from([(a.clone(), of_a)]));
        assert_eq!(queue.admit(&a, limits).err(), Some(Limit::Requests));
        assert_eq!(queue.admit_scan(&a, limits).err(), Some(Limit::Scans));
        assert!(queue.admit(&b, NONE).is_ok() && queue.admit_scan(&b, limits).is_ok());
        drop((requests, scans));
        assert!(queue.admit(&a, limits).is_ok() && queue.admit_scan(&a, limits).is_ok());
        assert_eq!(queue.admit_watch(&a, limits).err(), Some(Limit::Watches));
        drop(watches);
        assert!(queue.state.lock().readers.is_empty());
    }

    #[tokio::test]
    async fn readers_take_turns_whatever_one_of_them_queues() {
        let queue = queue(100, 0);
        let first = queue.turn(&"z".into()).await;
        let order = Mutex::new(Vec::new());
        let wait = |reader: &'static str| {
            let (queue, order) = (&queue, &order);
            async move {
                let _turn = queue.turn(&reader.into()).await;
                order.lock().push(reader);
            }
        };
        let all = futures::future::join_all(["a", "a", "a", "b", "c", "b"].map(wait));
        let mut all = std::pin::pin!(all);
        assert!(all.as_mut().now_or_never().is_none());
        drop(first);
        all.await;
        assert_eq!(*order.lock(), ["a", "b", "c", "a", "b", "a"]);
        assert_eq!(queue.state.lock().turns, 0);
    }

    #[tokio::test]
    async fn abandoned_wait_passes_its_turn_on() {
        let queue = queue(100, 0);
        let first = queue.turn(&"z".into()).await;
        let (reader, other) = ("a".into(), "b".into());
        let mut abandoned = Box::pin(queue.turn(&reader));
        let mut kept = Box::pin(queue.turn(&other));
        assert!(abandoned.as_mut().now_or_never().is_none() && kept.as_mut().now_or_never().is_none());
        drop(first);
        drop(abandoned);
        drop(kept.await);
        let state = queue.state.lock();
        assert_eq!((state.turns, state.waiting.len(), state.order.len()), (0, 0, 0));
    }
}

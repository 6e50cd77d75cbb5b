//! Notification queue of one subscriber of one informer: merges notifications of one object if the subscriber is slow.
//!
//! Merging bounds the queue. Up to a threshold, every notification is kept. Above it, notifications of one object
//! merge. At most three per object then wait, however long the subscriber stalls: the initial addition, the deletion,
//! and the addition of a successor. A successor is another object of the same name. Merging never changes the final
//! state that a subscriber sees.
//!
//! An initial addition (of an object that existed before the subscription) merges with nothing. The receiver of a sink
//! may know the object from an earlier process, and drop the addition as a repetition. It must still get the update or
//! the deletion that follows.
//!
//! Initial objects for a late subscriber are not queued. The subscriber reads them, one by one, from the snapshot at
//! which its subscription began.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::applied::Applied;
use super::filter::ObjectFilter;
use super::snapshot::Partition;
use informer_hub_types::{Notification, Object, ObjectKey, Origin, StoredObject};

/// Handling of objects that existed before the subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InitialObjects {
    /// Deliver each as `Added` with `initial` set, then `Synced`.
    #[default]
    Replay,
    /// Deliver only `Synced`; later changes of these objects arrive as `Updated` and `Deleted`.
    Skip,
}

/// Settings of one subscription.
#[derive(Clone, Debug, Default)]
pub struct ListenerOptions {
    /// Filter of the objects to deliver.
    pub filter: ObjectFilter,
    /// Handling of objects that existed before the subscription.
    pub initial: InitialObjects,
}

/// Queue of one subscriber of one informer. Pure; single-threaded.
#[derive(Debug)]
pub struct ListenerQueue {
    origin: Arc<Origin>,
    options: ListenerOptions,
    replay: Option<Replay>,
    slots: VecDeque<Option<Notification>>,
    /// Sequence number of the first slot (queued notification), counting all slots since the queue was created.
    first: u64,
    live: usize,
    /// Sequence numbers of the waiting notifications per object key, oldest first; kept only while notifications are
    /// merged.
    by_key: Option<HashMap<ObjectKey, SmallVec<[u64; 2]>>>,
    merge_above: usize,
    merged: u64,
    last_batch: u64,
    synced: bool,
    continues: bool,
    /// Whether initial objects may have been delivered without their bodies, which were not in memory. If so, a body
    /// that is restored later is delivered as an update.
    delivered_bare: bool,
}

#[derive(Debug)]
struct Replay {
    partition: Partition,
    after: Option<ObjectKey>,
}

impl ListenerQueue {
    /// Number of waiting notifications above which merging starts.
    pub const DEFAULT_MERGE_ABOVE: usize = 1024;

    /// The queue is not compacted while it has at most this many empty slots, which cancelled notifications leave. An
    /// empty queue keeps up to this many spare slots. Reclaiming so few would cost more than it saves.
    const MIN_GAPS: usize = 64;

    /// Creates a queue for a subscriber that joins at the state `partition`.
    #[must_use]
    pub fn new(options: ListenerOptions, partition: &Partition, merge_above: usize) -> Self {
        let replayed = options.initial == InitialObjects::Replay && !partition.is_empty();
        let mut queue = Self::empty(options, partition, merge_above);
        queue.replay = replayed.then(|| Replay { partition: partition.clone(), after: None });
        queue.delivered_bare = replayed && partition.is_bare();
        if partition.has_synced() {
            queue.offer_synced();
        }
        queue
    }

    fn empty(options: ListenerOptions, partition: &Partition, merge_above: usize) -> Self {
        Self {
            origin: Arc::clone(partition.origin()),
            replay: None,
            options,
            slots: VecDeque::new(),
            first: 0,
            live: 0,
            by_key: None,
            merge_above,
            merged: 0,
            last_batch: partition.number(),
            synced: false,
            continues: false,
            delivered_bare: partition.is_bare(),
        }
    }

    /// Creates a queue for a subscriber that may have been connected before a restart of the hub. `reader` is the name
    /// of a sink or durable subscription. If this reader has received or acknowledged states of the restored partition,
    /// the queue gets only the changes since then. Otherwise the queue is the same as from [`Self::new`].
    #[must_use]
    pub fn for_reader(
        reader: Option<&str>,
        options: ListenerOptions,
        partition: &Partition,
        merge_above: usize,
    ) -> Self {
        let since =
            reader.zip(partition.restored()).and_then(|(name, restored)| restored.reconnect(name, &partition.objects));
        let Some((synced, since)) = since else { return Self::new(options, partition, merge_above) };
        let mut queue = Self::empty(options, partition, merge_above);
        queue.synced = synced;
        queue.continues = synced;
        for applied in &since {
            queue.offer_one(applied, false);
        }
        if partition.has_synced() {
            queue.offer_synced();
        }
        queue
    }

    /// Returns whether the subscriber received `Synced` already, in an earlier process lifetime.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// Sets the origin of further notifications, after the informer moved to another API version of the resource.
    pub fn go_on_as(&mut self, origin: Arc<Origin>) {
        self.origin = origin;
    }

    /// Queues notifications for the effects of a batch. Ignores a batch that was offered before. Effects that only
    /// repeat an unchanged object are ignored unless `resync` is set.
    pub fn offer(&mut self, number: u64, applied: &[Applied], resync: bool) {
        if number <= self.last_batch {
            return;
        }
        self.last_batch = number;
        for applied in applied {
            self.offer_one(applied, resync);
        }
    }

    fn offer_one(&mut self, applied: &Applied, resync: bool) {
        let initial = !self.synced;
        let filter = &self.options.filter;
        let notification = match applied {
            Applied::Synced => return self.offer_synced(),
            Applied::Added(new) if filter.matches(new) => {
                if initial && self.options.initial == InitialObjects::Skip {
                    return;
                }
                Notification::Added { object: self.object(new), initial }
            }
            // If a change makes the object start or stop matching the filter, the subscriber sees an addition or a
            // deletion.
            Applied::Updated { old, new } => match (filter.matches(old), filter.matches(new)) {
                (true, true) => Notification::Updated { old: self.object(old), new: self.object(new), resync: false },
                (false, true) => Notification::Added { object: self.object(new), initial: false },
                (true, false) => Notification::Deleted { object: self.object(old), tombstone: false },
                (false, false) => return,
            },
            Applied::Deleted { stored, last, tombstone } if filter.matches(stored) => {
                Notification::Deleted { object: self.object(last), tombstone: *tombstone }
            }
            Applied::Repeated(stored) if resync && filter.matches(stored) => {
                Notification::Updated { old: self.object(stored), new: self.object(stored), resync: true }
            }
            Applied::Restored { bare, whole } if self.delivered_bare && filter.matches(whole) => {
                Notification::Updated { old: self.object(bare), new: self.object(whole), resync: false }
            }
            Applied::Added(_) | Applied::Deleted { .. } | Applied::Repeated(_) | Applied::Restored { .. } => return,
        };
        self.push(notification);
    }

    fn object(&self, stored: &Arc<StoredObject>) -> Object {
        Object::new(Arc::clone(&self.origin), Arc::clone(stored))
    }

    fn offer_synced(&mut self) {
        if !self.synced {
            self.synced = true;
            self.append(Notification::Synced(Arc::clone(&self.origin)));
        }
    }

    fn push(&mut self, notification: Notification) {
        if self.by_key.is_none() && self.live >= self.merge_above {
            self.start_merging();
        }
        let Some(by_key) = &mut self.by_key else { return self.append(notification) };
        let key = notification.object().map(|object| object.key().clone());
        let last = key.as_ref().and_then(|key| by_key.get(key)?.last().copied());
        let (Some(key), Some(last)) = (key, last) else { return self.append(notification) };
        if self.is_first(&key) && matches!(self.slot(last), Some(Some(Notification::Added { initial: true, .. }))) {
            return self.append(notification);
        }
        let Some(waiting) = self.slot(last).and_then(Option::take) else { return self.append(notification) };
        match merge(waiting, notification) {
            // The object was added after a waiting deletion, and the addition was not delivered. Drop its deletion too.
            Merged::One(Notification::Deleted { .. }) if self.follows_a_deletion(&key) => self.cancel(&key, last),
            Merged::One(one) => {
                self.slot(last).map(|slot| slot.replace(one));
                self.merged += 1;
            }
            Merged::Cancelled => self.cancel(&key, last),
            Merged::Two(waiting, next) => {
                self.slot(last).map(|slot| slot.replace(waiting));
                self.append(next);
            }
        }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<Notification>> {
        usize::try_from(number.checked_sub(self.first)?).ok().and_then(|at| self.slots.get_mut(at))
    }

    /// Returns whether exactly one notification of the key waits.
    ///
    /// An initial addition that waits alone is about the present object of the key. An initial addition that waits
    /// behind other notifications is about a successor (a later object with the same key).
    fn is_first(&self, key: &ObjectKey) -> bool {
        self.by_key.as_ref().and_then(|by_key| by_key.get(key)).is_some_and(|numbers| numbers.len() == 1)
    }

    /// Returns whether the second-last waiting notification of the key is a deletion.
    fn follows_a_deletion(&mut self, key: &ObjectKey) -> bool {
        let numbers = self.by_key.as_ref().and_then(|by_key| by_key.get(key));
        let Some(&[.., before, _]) = numbers.map(SmallVec::as_slice) else { return false };
        matches!(self.slot(before), Some(Some(Notification::Deleted { .. })))
    }

    /// Records that a waiting notification and a newer one cancelled each other. The caller has emptied the slot of the
    /// waiting notification (`number`), and does not queue the newer one.
    fn cancel(&mut self, key: &ObjectKey, number: u64) {
        self.live -= 1;
        self.merged += 2;
        self.forget(key, number);
        self.close_gaps();
    }

    fn append(&mut self, notification: Notification) {
        if let (Some(by_key), Some(object)) = (&mut self.by_key, notification.object()) {
            let number = self.first + self.slots.len() as u64;
            by_key.entry(object.key().clone()).or_default().push(number);
        }
        self.slots.push_back(Some(notification));
        self.live += 1;
    }

    fn start_merging(&mut self) {
        let mut by_key: HashMap<ObjectKey, SmallVec<[u64; 2]>> = HashMap::new();
        for (number, slot) in (self.first..).zip(&self.slots) {
            if let Some(object) = slot.as_ref().and_then(Notification::object) {
                by_key.entry(object.key().clone()).or_default().push(number);
            }
        }
        self.by_key = Some(by_key);
    }

    /// Removes the empty slots that cancelled notifications leave, so that they do not accumulate during a stall. Costs
    /// amortised constant time per cancellation.
    fn close_gaps(&mut self) {
        if self.slots.len() > 2 * self.live + Self::MIN_GAPS {
            self.slots.retain(Option::is_some);
            self.start_merging();
        }
    }

    fn forget(&mut self, key: &ObjectKey, number: u64) {
        let Some(by_key) = &mut self.by_key else { return };
        if let Some(numbers) = by_key.get_mut(key) {
            numbers.retain(|at| *at != number);
            if numbers.is_empty() {
                by_key.remove(key);
            }
        }
    }

    /// Takes up to `max` notifications, oldest first; empty if none waits.
    pub fn take(&mut self, max: usize) -> Vec<Notification> {
        let mut batch = Vec::new();
        self.take_replay(max, &mut batch);
        while self.replay.is_none()
            && batch.len() < max
            && let Some(slot) = self.slots.pop_front()
        {
            let number = self.first;
            self.first += 1;
            let Some(notification) = slot else { continue };
            self.live -= 1;
            if let Some(key) = notification.object().map(|object| object.key().clone()) {
                self.forget(&key, number);
            }
            batch.push(notification);
        }
        if self.slots.is_empty() {
            self.by_key = None;
            self.slots.shrink_to(Self::MIN_GAPS);
        }
        batch
    }

    fn take_replay(&mut self, max: usize, batch: &mut Vec<Notification>) {
        let Some(Replay { partition, after }) = &mut self.replay else { return };
        let mut exhausted = true;
        for stored in partition.iter_after(after.clone().as_ref()) {
            if batch.len() == max {
                exhausted = false;
                break;
            }
            *after = Some(stored.key().clone());
            if self.options.filter.matches(stored) {
                let object = Object::new(Arc::clone(&self.origin), Arc::clone(stored));
                batch.push(Notification::Added { object, initial: true });
            }
        }
        if exhausted {
            self.replay = None;
        }
    }

    /// Returns the positions of the first slot and of the end of the queue. Positions count from the creation of the
    /// queue. They may change when empty slots are removed after merging.
    #[must_use]
    pub fn places(&self) -> (u64, u64) {
        (self.first, self.first + self.slots.len() as u64)
    }

    /// Returns whether initial objects are still being delivered.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// Returns the number of the last offered batch.
    #[must_use]
    pub fn last_batch(&self) -> u64 {
        self.last_batch
    }

    /// Returns whether no notification or initial object is left to deliver.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replay.is_none() && self.live == 0
    }

    /// Returns the number of waiting notifications, without initial objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Returns the number of notifications that were merged or cancelled since the start.
    #[must_use]
    pub fn merged(&self) -> u64 {
        self.merged
    }
}

enum Merged {
    One(Notification),
    Two(Notification, Notification),
    Cancelled,
}

/// Merges a waiting notification with the next one of the same key, keeping the first `old` and the last `new`. `Added`
/// and a later `Deleted` cancel each other. A deletion never merges with the addition of a later object of the same
/// name.
fn merge(waiting: Notification, next: Notification) -> Merged {
    use Notification::{Added, Deleted, Updated};
    match (waiting, next) {
        (Added { initial, .. }, Updated { new, .. }) => Merged::One(Added { object: new, initial }),
        (Added { .. }, Deleted { .. }) => Merged::Cancelled,
        (Updated { old, resync, .. }, Updated { new, resync: again, .. }) => {
            Merged::One(Updated { old, new, resync: resync && again })
        }
        // The object was added between two deletions, and the addition was not delivered. Drop the second deletion.
        (Updated { .. }, deleted @ Deleted { .. }) | (deleted @ Deleted { .. }, Deleted { .. }) => Merged::One(deleted),
        (waiting, next) => Merged::Two(waiting, next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Informer, notification_lines};

    #[test]
    fn listener_queue_of_a_stalled_subscriber_stays_bounded() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let mut queue = ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 0);
        let mut offer = |script: String| {
            let outbox = informer.apply(&script);
            queue.offer(outbox.number, &outbox.applied, false);
            assert!(queue.slots.len() <= 2 * queue.live + ListenerQueue::MIN_GAPS + 1, "{} slots", queue.slots.len());
        };
        // One of the two objects always exists, so that neither end of the queue becomes free.
        offer("+a@1 +z@1".to_owned());
        for version in (2..4000).step_by(4) {
            offer(format!("+b@{version} -a@{}", version + 1));
            offer(format!("+a@{} -b@{}", version + 2, version + 3));
        }
        offer("~a@5000 ~z@5001".to_owned());
        assert_eq!(notification_lines(&queue.take(9)), ["synced", "+z@5001", "+a@5000"]);
    }

    #[test]
    fn listener_queue_that_skips_initial_objects_stays_bounded() {
        let mut informer = Informer::new();
        let options = ListenerOptions { initial: InitialObjects::Skip, ..ListenerOptions::default() };
        let mut queue = ListenerQueue::new(options, &informer.partition(), 0);
        for version in (1..400).step_by(2) {
            let outbox = informer.apply(&format!("+a:u{version}@{version} -a:u{version}@{}", version + 1));
            queue.offer(outbox.number, &outbox.applied, false);
            assert_eq!(queue.len(), 1);
        }
        for version in (401..800).step_by(4) {
            let outbox = informer.apply(&format!("+a:u{version}@{version} ~a:u{version}@{}", version + 1));
            queue.offer(outbox.number, &outbox.applied, false);
            let outbox = informer.apply(&format!("-a:u{version}@{}", version + 2));
            queue.offer(outbox.number, &outbox.applied, false);
            assert_eq!(queue.len(), 1);
        }
        assert_eq!((notification_lines(&queue.take(9)), queue.merged()), (vec!["-a@2".to_owned()], 199 + 200));
    }

    #[test]
    fn listener_queue_releases_memory_after_a_backlog() {
        let mut informer = Informer::new();
        let mut queue = ListenerQueue::new(ListenerOptions::default(), &informer.partition(), usize::MAX);
        let script: Vec<_> = (1..5000).map(|i| format!("+a{i}@1")).collect();
        let outbox = informer.apply(&script.join(" "));
        queue.offer(outbox.number, &outbox.applied, false);
        assert_eq!(queue.take(usize::MAX).len(), 4999);
        assert!(queue.slots.capacity() <= 2 * ListenerQueue::MIN_GAPS, "{}", queue.slots.capacity());
    }
}

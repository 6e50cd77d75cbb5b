//! Checkpoint barrier: a partition may be written once its durable readers (sinks and subscribers) have acknowledged
//! every event of its snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actors::checkpoint::store::CheckpointStore;
use crate::actors::subscribe::inbox::{Inbox, Mark};
use crate::actors::subscribe::subscription::Subscription;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::Commit;

/// Barrier of one partition: which readers (sinks and durable subscribers) must still acknowledge events of its
/// snapshot before it is written.
pub(in crate::actors) struct Barrier {
    pub(in crate::actors) id: PartitionId,
    /// Names of the sinks and durable subscribers that have acknowledged every event, or that had none to acknowledge.
    acknowledged: BTreeSet<String>,
    /// Sinks and durable subscribers with unacknowledged events: name, inbox, and the batch up to which they must
    /// acknowledge.
    waiting: Vec<(String, Arc<Inbox>, Mark)>,
    /// Sinks and durable subscribers that received events of the partition before the restart and have not subscribed
    /// again.
    absent: BTreeSet<String>,
    /// Whether there is nothing to write: the partition is empty and not on disk, and its first list is not complete.
    has_nothing_to_write: bool,
}

impl Barrier {
    pub(in crate::actors) fn new(
        store: &CheckpointStore,
        (id, partition): (PartitionId, &Partition),
        readers: &[Arc<Subscription>],
    ) -> Self {
        let inbox = |reader: &Arc<Subscription>| {
            let inbox = reader.known_inbox_at(partition.origin()).filter(|inbox| inbox.has_joined(id))?;
            Some((reader.name.clone(), inbox, Mark::new(id, partition.number())))
        };
        // Listeners deliver no events to durable readers before the partition has been on disk once. The first events
        // are the objects that the partition then has. So until then, the barrier waits for no reader.
        let begun = partition.health().is_on_disk();
        let waiting = readers.iter().filter(|_| begun).filter_map(inbox).collect();
        let has_nothing_to_write = !begun && partition.is_empty() && !partition.has_synced();
        let mut barrier =
            Self { id, acknowledged: BTreeSet::new(), waiting, absent: BTreeSet::new(), has_nothing_to_write };
        if let Some(restored) = partition.restored() {
            let (readers, awaited) = (restored.readers(), restored.awaited());
            if restored.is_unchanged(partition) && readers == awaited {
                // The state on disk equals the state these readers have.
                barrier.acknowledged.extend(readers);
            } else if store.waits() {
                barrier.absent = awaited;
            } else {
                restored.give_up();
            }
        }
        barrier
    }

    /// Checks for new acknowledgements. Returns whether all sinks and durable subscribers have acknowledged their
    /// events.
    pub(in crate::actors) fn poll(&mut self) -> bool {
        let acknowledged = &mut self.acknowledged;
        self.waiting.retain_mut(|(name, inbox, mark)| {
            let has_acknowledged = inbox.has_acknowledged(mark);
            if has_acknowledged {
                acknowledged.insert(name.clone());
            }
            !has_acknowledged
        });
        self.is_open()
    }

    pub(in crate::actors) fn is_open(&self) -> bool {
        self.waiting.is_empty() && self.absent.is_empty()
    }

    /// Returns whether the partition cannot be written in this checkpoint pass, because a sink or durable subscriber
    /// has not subscribed again.
    pub(in crate::actors) fn is_blocked(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Returns the names of the sinks and durable subscribers that have not acknowledged their events.
    pub(in crate::actors) fn held_by(&self) -> Vec<String> {
        let waiting = self.waiting.iter().map(|(name, ..)| name.clone());
        let all: BTreeSet<_> = waiting.chain(self.absent.iter().cloned()).collect();
        all.into_iter().collect()
    }

    /// Returns the ID of the partition to write to disk, and its readers (sinks and durable subscribers). `None` if a
    /// reader has not acknowledged its events, or there is nothing to write.
    pub(in crate::actors) fn commit(&self) -> Option<Commit> {
        (self.is_open() && !self.has_nothing_to_write)
            .then(|| Commit { id: self.id, readers: self.acknowledged.clone() })
    }
}

//! What a partition waits for before it may be written: that its durable readers have answered for all that its snapshot
//! gave rise to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actors::checkpoint::keeper::Keeping;
use crate::actors::subscribe::inbox::{Inbox, Mark};
use crate::actors::subscribe::subscription::Subscription;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::Commit;

/// One partition of a snapshot.
pub(in crate::actors) struct Barrier {
    pub(in crate::actors) id: PartitionId,
    /// Who has answered, or never was told: it knows all that is in the partition.
    passed: BTreeSet<String>,
    /// Who has not answered yet.
    waiting: Vec<(String, Arc<Inbox>, Mark)>,
    /// Who was told of the partition before the restart, and has not come yet.
    absent: BTreeSet<String>,
    /// Nothing of it is on disk, nor is there anything to write yet: its first list has not come.
    is_nothing: bool,
}

impl Barrier {
    pub(in crate::actors) fn new(
        keeping: &Keeping,
        (id, partition): (PartitionId, &Partition),
        readers: &[Arc<Subscription>],
    ) -> Self {
        let inbox = |reader: &Arc<Subscription>| {
            let inbox = reader.known_inbox_at(partition.origin()).filter(|inbox| inbox.has_joined(id))?;
            Some((reader.name.clone(), inbox, Mark::new(id, partition.number())))
        };
        // Readers are told nothing before the partition has been on disk once (see the listener), and of what was there
        // then when they begin.
        let begun = partition.health().is_on_disk();
        let waiting = readers.iter().filter(|_| begun).filter_map(inbox).collect();
        let is_nothing = !begun && partition.is_empty() && !partition.has_synced();
        let mut barrier = Self { id, passed: BTreeSet::new(), waiting, absent: BTreeSet::new(), is_nothing };
        if let Some(restored) = partition.restored() {
            let (readers, awaited) = (restored.readers(), restored.awaited());
            if restored.is_unchanged(partition) && readers == awaited {
                // They know all that is in it.
                barrier.passed.extend(readers);
            } else if keeping.waits() {
                barrier.absent = awaited;
            } else {
                restored.give_up();
            }
        }
        barrier
    }

    /// Looks who has answered since; whether all have.
    pub(in crate::actors) fn look(&mut self) -> bool {
        let passed = &mut self.passed;
        self.waiting.retain_mut(|(name, inbox, mark)| {
            let has_passed = inbox.has_passed(mark);
            if has_passed {
                passed.insert(name.clone());
            }
            !has_passed
        });
        self.is_open()
    }

    pub(in crate::actors) fn is_open(&self) -> bool {
        self.waiting.is_empty() && self.absent.is_empty()
    }

    /// Whether waiting could help within a pass.
    pub(in crate::actors) fn is_hopeless(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Who has not answered.
    pub(in crate::actors) fn held_by(&self) -> Vec<String> {
        let waiting = self.waiting.iter().map(|(name, ..)| name.clone());
        let all: BTreeSet<_> = waiting.chain(self.absent.iter().cloned()).collect();
        all.into_iter().collect()
    }

    /// What may be written; `None` while somebody has not answered, and where there is nothing to write.
    pub(in crate::actors) fn commit(&self) -> Option<Commit> {
        (self.is_open() && !self.is_nothing).then(|| Commit { id: self.id, readers: self.passed.clone() })
    }
}

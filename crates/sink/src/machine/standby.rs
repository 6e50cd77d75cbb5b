//! Standby mode: a machine that holds its events while another process delivers them.
//!
//! The delivering process publishes a resourceVersion per cluster and resource. The receiver has acknowledged every
//! change up to this version. The machine in standby drops its events up to this version and keeps the others. When it
//! starts to send, it delivers the events that it still holds. Some of them repeat events of the other process, with
//! the same ids.
//!
//! # Deletions
//! If a list found a deletion, the resourceVersion of the deletion is unknown, and its event has that of an earlier
//! state. So the machine does not compare the event's version. It waits for a version that was read from the cluster
//! *after* the machine began to hold the deletion. Once the published version has reached that version, the machine
//! drops the deletion. The version is the second new value of [`Coverage::accepted`]: the first new value may have been
//! read before the deletion arrived.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use super::Machine;
use crate::event::subject_parts;
use crate::{Event, EventType};
use informer_hub_types::clock::Instant;

/// Values of resourceVersion by cluster name, then by resource as `plural.group` ([`resource_key`]).
pub type SourceVersions = BTreeMap<String, BTreeMap<String, u64>>;

/// Progress of deliveries, for a sink in standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Versions up to which the other process has delivered every change, with an acknowledgement of the receiver.
    pub acknowledged: SourceVersions,
    /// Versions up to which this sink has accepted every change. Each version is reported in a `Coverage` before the
    /// next one is read from the cluster.
    pub accepted: SourceVersions,
}

/// Deletion events that a machine in standby holds, by event id.
#[derive(Debug, Default)]
pub(super) struct HeldDeletions(HashMap<Box<str>, HeldDeletion>);

#[derive(Debug)]
struct HeldDeletion {
    /// Last reported value of [`Coverage::accepted`] for the deletion's resource. Stays the same after `changes` has
    /// reached 2.
    accepted: Option<u64>,
    /// How often `accepted` has changed since the machine began to hold the deletion, at most 2. After the second
    /// change, `accepted` was read from the cluster later than the deletion arrived, so it is at least as new as the
    /// deletion.
    changes: u8,
}

/// Returns the key of a resource in [`SourceVersions`], `plural.group`.
#[must_use]
pub fn resource_key(group: &str, plural: &str) -> String {
    format!("{plural}.{group}")
}

fn version_for(event: &Event, versions: &SourceVersions) -> Option<u64> {
    let [group, _, plural, ..] = subject_parts(event.subject())?;
    versions.get(event.cluster())?.get(&resource_key(group, plural)).copied()
}

impl HeldDeletions {
    fn is_covered(&mut self, event: &Event, coverage: &Coverage) -> bool {
        if event.is_replayed() {
            // The receiver may have accepted newer events, but it has not accepted this one.
            return false;
        }
        let acknowledged = version_for(event, &coverage.acknowledged);
        match event.event_type() {
            EventType::Synced => acknowledged.is_some(),
            EventType::Deleted => {
                let accepted = version_for(event, &coverage.accepted);
                let Some(held) = self.0.get_mut(event.id()) else {
                    self.0.insert(event.id().into(), HeldDeletion { accepted, changes: 0 });
                    return false;
                };
                if held.changes < 2 && held.accepted != accepted {
                    *held = HeldDeletion { accepted, changes: held.changes + 1 };
                }
                let bound = held.accepted.filter(|_| held.changes == 2);
                bound.zip(acknowledged).is_some_and(|(bound, acknowledged)| bound <= acknowledged)
            }
            _ => event.version().as_number().zip(acknowledged).is_some_and(|(own, acknowledged)| own <= acknowledged),
        }
    }
}

impl<T> Machine<T> {
    /// Starts or stops sending. Attempts in flight continue. Default: sends.
    pub fn set_sending(&mut self, is_sending: bool) {
        self.is_sending = is_sending;
        if is_sending {
            self.held_deletions = HeldDeletions::default();
        }
    }

    /// Returns whether the machine sends batches, rather than being in standby.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// Drops held events that another process has delivered. Does nothing while the machine sends.
    pub fn drop_covered(&mut self, coverage: &Coverage, now: Instant) {
        if self.is_sending {
            return;
        }
        let held = self.lanes.clear();
        let (mut kept, mut dropped) = (Vec::with_capacity(held.len()), Vec::new());
        let mut deletions = HeldDeletions::default();
        for event in held {
            if self.held_deletions.is_covered(&event, coverage) {
                dropped.push(event);
                continue;
            }
            if let Some((id, held)) = self.held_deletions.0.remove_entry(event.id()) {
                deletions.0.insert(id, held);
            }
            kept.push(event);
        }
        self.held_deletions = deletions;
        self.lanes.requeue(kept, now);
        if let Some(durable) = &mut self.durable {
            durable.acknowledge(&dropped);
        }
        self.params.health.delivered_elsewhere.fetch_add(dropped.len() as u64, Relaxed);
        self.admit_waiting(now);
    }

    /// Returns the lowest resourceVersion of the undelivered events, by cluster and resource; zero if a version is not
    /// a number. Returns `None` if some events are only in the journal on disk, since their versions are then unknown.
    #[must_use]
    pub fn lowest_pending(&self) -> Option<SourceVersions> {
        if self.durable.as_ref().is_some_and(|durable| !durable.is_read()) {
            return None;
        }
        let mut lowest = SourceVersions::new();
        for event in self.lanes.iter().filter(|event| event.event_type() != EventType::Synced) {
            let Some([group, _, plural, ..]) = subject_parts(event.subject()) else { continue };
            let version = event.version().as_number().unwrap_or(0);
            let of_cluster = lowest.entry(event.cluster().to_owned()).or_default();
            let least = of_cluster.entry(resource_key(group, plural)).or_insert(version);
            *least = version.min(*least);
        }
        Some(lowest)
    }
}

//! Standby mode: a machine that holds its events while another process delivers them.
//!
//! The delivering process publishes, per cluster and resource, the version up to which its receiver has acknowledged
//! every change. The machine in standby drops the events that this covers and keeps the others. When it starts to send,
//! it delivers what it still holds. Some of these events are repetitions, with the same ids.
//!
//! # Deletions
//! A deletion that a list found carries an older version than that of the deletion. So a deletion is covered only once
//! the published version has reached a version that this process read *after* it held the deletion. An accepted version
//! may have been read before it was reported. The second one that differs was read after the first was reported.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use super::Machine;
use crate::event::subject_parts;
use crate::{Event, EventType};
use informer_hub_types::clock::Instant;

/// Versions by cluster and by resource, the latter as `plural.group`.
pub type SourceVersions = BTreeMap<String, BTreeMap<String, u64>>;

/// Progress of deliveries, for a sink in standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Versions up to which the receiver has acknowledged every change to the delivering process.
    pub acknowledged: SourceVersions,
    /// Versions up to which this sink has accepted every change. Each was read after the one before was reported.
    pub accepted: SourceVersions,
}

/// Deletions in standby, by event id.
#[derive(Debug, Default)]
pub(super) struct HeldDeletions(HashMap<Box<str>, HeldDeletion>);

#[derive(Debug)]
struct HeldDeletion {
    /// The last reported version that may count.
    accepted: Option<u64>,
    /// Number of changes of the version since the deletion is held. After two, it is not older than the deletion.
    changes: u8,
}

/// Returns the name of a resource in [`SourceVersions`].
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

    /// Returns whether batches are sent.
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
        let (mut kept, mut numbers, mut dropped) = (Vec::with_capacity(held.len()), Vec::new(), 0);
        let mut deletions = HeldDeletions::default();
        for event in held {
            if self.held_deletions.is_covered(&event, coverage) {
                dropped += 1;
                numbers.extend(event.sequence());
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
            durable.acknowledge(numbers.into_iter());
        }
        self.params.health.delivered_elsewhere.fetch_add(dropped, Relaxed);
        self.admit_waiting(now);
    }

    /// Returns the lowest version among undelivered events, by source: zero if it is not a number. `None` if some events
    /// are only in the journal, and their versions are not known.
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

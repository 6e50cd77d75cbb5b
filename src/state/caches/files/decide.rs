//! Plans a checkpoint: which partitions it saves, and whether it rewrites all files. It may save only partitions whose
//! readers have acknowledged every event; `actors/checkpoint/barrier` finds these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::codec::{PartitionKey, SavedFleet};
use super::super::plan_writer::{Plan, Step, hash_labels, header_of, is_unchanged, key_of};
use super::{ASSUMED_OBJECT, CacheFiles, Commit, MIN_REWRITE};
use crate::cache::{Partition, Snapshot};

impl CacheFiles {
    pub(super) fn plan(&self, snapshot: &Snapshot, commits: &[Commit], now: i64, exactly: bool) -> Plan {
        let (mut plan, mut next_number) = (Plan::default(), self.next_number);
        for commit in commits {
            let Some(partition) = snapshot.partition(commit.id) else { continue };
            let key = key_of(partition);
            let header = header_of(partition, &commit.readers, now);
            let (mut put, mut gone) = (Vec::new(), Vec::new());
            let number = if let Some(kept) = self.kept.get(&key) {
                partition.changes_since(
                    &kept.partition,
                    |object| put.push(Arc::clone(object)),
                    |key| gone.push(key.clone()),
                );
                if put.is_empty() && gone.is_empty() && is_unchanged(&kept.header, &header, exactly) {
                    continue;
                }
                kept.number
            } else {
                if partition.is_empty() && !partition.has_synced() {
                    continue;
                }
                put.extend(partition.iter().cloned());
                next_number += 1;
                next_number - 1
            };
            plan.steps.push(Step { key, number, header, partition: partition.clone(), put, gone });
        }
        let open: BTreeSet<_> = snapshot.partitions().map(|(_, partition)| key_of(partition)).collect();
        let closed = self.kept.iter().filter(|(key, _)| !open.contains(key) && !self.moved.contains(key));
        plan.dropped.extend(closed.map(|(key, kept)| (key.clone(), kept.number)));
        // A partition that was opened again replaces the copy that was kept while it had no informer.
        let again = plan.steps.iter().filter_map(|step| Some((step.key.clone(), self.unwanted.get(&step.key)?.0)));
        let again: Vec<_> = again.collect();
        plan.dropped.extend(again);
        plan.fleet = self.fleet_of(snapshot, &plan);
        plan
    }

    /// Returns the fleet version (version over all clusters) of `snapshot`, to be saved with it. `None` if the store
    /// counts no changes, or if the files will not have all visible objects of the snapshot after the planned
    /// checkpoint.
    fn fleet_of(&self, snapshot: &Snapshot, plan: &Plan) -> Option<SavedFleet> {
        snapshot.history()?;
        let steps: BTreeMap<_, _> = plan.steps.iter().map(|step| (&step.key, step.number)).collect();
        let number = |partition: &Partition| {
            let key = key_of(partition);
            let step = steps.get(&key).copied();
            let unchanged = || self.kept.get(&key).filter(|kept| kept.partition.has_objects_of(partition));
            step.or_else(|| unchanged().map(|kept| kept.number))
        };
        let joined = snapshot.partitions().filter(|(_, partition)| partition.has_synced());
        let saved =
            |partition: &Partition| Some((number(partition)?, snapshot.cluster_versions(&partition.origin().cluster)));
        let partitions = joined.map(|(_, partition)| saved(partition)).collect::<Option<_>>()?;
        Some(SavedFleet { version: snapshot.version(), labels: hash_labels(snapshot), partitions })
    }

    /// Returns whether the changes exceed half of the snapshot, or all files are much larger than their live data.
    pub(super) fn is_outgrown(&self, plan: &Plan) -> bool {
        let sizes = &self.sizes;
        let mean = sizes.object_bytes.checked_div(sizes.objects).unwrap_or(ASSUMED_OBJECT);
        let put: u64 = plan.steps.iter().map(|step| step.put.len() as u64).sum();
        let deltas = sizes.deltas_bytes + put * mean;
        let replaced: u64 = plan.steps.iter().map(|step| step.partition.len() as u64).sum();
        let is_replaced = |key: &PartitionKey| plan.steps.iter().any(|step| step.key == *key);
        let others = self.kept.iter().filter(|(key, _)| !is_replaced(key));
        let live = (replaced + others.map(|(_, kept)| kept.partition.len() as u64).sum::<u64>()) * mean;
        deltas > MIN_REWRITE.max(sizes.snapshot_bytes / 2)
            || sizes.snapshot_bytes + deltas > 2 * (live + sizes.unwanted_bytes) + MIN_REWRITE
    }

    /// Extends a plan to all objects of open partitions, for a rewrite. A partition without changes is added in its
    /// last saved state.
    pub(super) fn add_unchanged(&self, plan: &mut Plan) {
        for step in &mut plan.steps {
            step.put = step.partition.iter().cloned().collect();
            step.gone.clear();
        }
        for (key, kept) in &self.kept {
            let is_dropped = plan.dropped.iter().any(|(dropped, _)| dropped == key);
            if !is_dropped && !plan.steps.iter().any(|step| step.key == *key) {
                let (partition, header) = (kept.partition.clone(), kept.header.clone());
                let put = partition.iter().cloned().collect();
                plan.steps.push(Step {
                    key: key.clone(),
                    number: kept.number,
                    header,
                    partition,
                    put,
                    gone: Vec::new(),
                });
            }
        }
    }
}

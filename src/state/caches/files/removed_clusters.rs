//! Saved partitions of removed clusters, kept on disk until the clusters are re-added.

use std::io;
use std::sync::Arc;

use super::super::claim::{Claim, saved};
use super::super::codec::PartitionHeader;
use super::super::load::{self, Read};
use super::super::plan_writer::key_of;
use super::{ASSUMED_OBJECT, CacheFiles, SavedOpenPartition};
use crate::cache::{Partition, SavedPartition};
use informer_hub_types::{ApiResource, ClusterName, PackedTotals, Scope, StoredObject};

/// Partitions of clusters that were removed and re-added, as read from disk.
#[derive(Debug, Default)]
pub struct ReaddedPartitions {
    /// The partitions, each with the argument for [`CacheFiles::mark_reopened`].
    pub partitions: Vec<(PartitionLocation, SavedPartition)>,
    /// Objects whose bodies are uncompressed in the files, and therefore also in memory.
    pub plain: Vec<Arc<StoredObject>>,
    /// Descriptions of damage.
    pub damage: Vec<String>,
}

/// Number that identifies a saved partition in the files, and its header.
#[derive(Debug)]
pub struct PartitionLocation {
    number: u64,
    header: PartitionHeader,
}

impl CacheFiles {
    /// Prepares the closing of a partition: keeps its saved copy on disk if that copy is up to date. Returns whether it
    /// was kept.
    pub fn keep_closed_partition(&mut self, partition: &Partition) -> bool {
        let key = key_of(partition);
        let kept = self.has(partition).then(|| self.kept.remove(&key)).flatten();
        let Some(kept) = kept else { return false };
        self.sizes.unwanted_bytes += self.estimated_bytes(partition);
        self.unwanted.insert(key, (kept.number, kept.header));
        true
    }

    /// Returns whether the cluster has a partition on disk that has no informer.
    #[must_use]
    pub fn has_closed(&self, cluster: &ClusterName) -> bool {
        self.closed_clusters().any(|name| name == cluster)
    }

    /// Returns the cluster of each saved partition that has no informer.
    pub fn closed_clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.unwanted.keys().map(|(cluster, _)| cluster)
    }

    /// Returns whether `claim` returns a claim (parameters to restore it) for any saved partition that has no informer.
    #[must_use]
    pub fn is_claimed(&self, claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>) -> bool {
        self.unwanted.values().any(|(_, header)| claim(&self.resource, header).is_some())
    }

    /// Reads the saved partitions without an informer for which `claim` returns a claim (parameters to restore them).
    /// They count as closed until [`Self::mark_reopened`].
    ///
    /// Reads all files of the resource, but keeps only the claimed partitions in memory.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn read_closed(
        &mut self,
        totals: &Arc<PackedTotals>,
        claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
    ) -> io::Result<ReaddedPartitions> {
        if !self.is_claimed(claim) || !self.are_in_place() {
            return Ok(ReaddedPartitions::default());
        }
        let wants = |resource: &ApiResource, header: &PartitionHeader| {
            self.unwanted.contains_key(&header.key()) && claim(resource, header).is_some()
        };
        let read = load::read_beside(&*self.disk, &self.dir, (totals, &self.dictionaries), &wants, false)?;
        let Some(Read { partitions, plain, damage, .. }) = read else { return Ok(ReaddedPartitions::default()) };
        let is_whole = damage.is_empty();
        let mut back = Vec::new();
        for (key, partition) in partitions {
            let (number, mut header) = (partition.number, partition.header);
            let is_it = self.unwanted.get(&key).is_some_and(|(known, _)| *known == number);
            let Some(claim) = claim(&self.resource, &header).filter(|_| is_it) else { continue };
            // Damage may have lost objects, so the partition must not be saved as complete again.
            if !is_whole {
                header.set_incomplete();
            }
            let saved = saved(&self.resource, claim, header.clone(), partition.objects);
            back.push((PartitionLocation { number, header }, saved));
        }
        if !is_whole {
            self.rewrite_next();
        }
        Ok(ReaddedPartitions { partitions: back, plain, damage })
    }

    /// Marks a partition as open after [`Self::read_closed`]. From now on its changes are written.
    pub fn mark_reopened(&mut self, stored: PartitionLocation, partition: &Partition) {
        let key = key_of(partition);
        if self.unwanted.remove(&key).is_some() {
            self.sizes.unwanted_bytes = self.sizes.unwanted_bytes.saturating_sub(self.estimated_bytes(partition));
            let PartitionLocation { number, header } = stored;
            self.kept.insert(key, SavedOpenPartition { number, header, partition: partition.clone() });
        }
    }

    /// Keeps these closed partitions on disk although the cache no longer has them.
    pub fn keep_closed(&mut self, partitions: impl IntoIterator<Item = (ClusterName, Scope)>) {
        self.moved.extend(partitions);
    }

    /// Estimates the size of a partition on disk in bytes, from the mean size of saved objects.
    fn estimated_bytes(&self, partition: &Partition) -> u64 {
        let mean = self.sizes.object_bytes.checked_div(self.sizes.objects).unwrap_or(ASSUMED_OBJECT);
        partition.len() as u64 * mean
    }
}

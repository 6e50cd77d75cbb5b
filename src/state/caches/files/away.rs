//! Partitions of clusters that are taken out while the hub runs: kept on disk for when they come back.

use std::io;
use std::sync::Arc;

use super::super::codec::PartitionHeader;
use super::super::load::{self, Read};
use super::super::restore::{Claim, saved};
use super::super::steps::key_of;
use super::{CacheFiles, Kept, OBJECT};
use crate::cache::{Partition, SavedPartition};
use informer_hub_types::{ApiResource, ClusterName, PackedTotals, Scope, StoredObject};

/// What is on disk of partitions that are wanted again.
#[derive(Debug, Default)]
pub struct Returning {
    /// They, each with what [`CacheFiles::came_back`] asks for.
    pub partitions: Vec<(Stored, SavedPartition)>,
    /// Objects of them that lie plain.
    pub plain: Vec<Arc<StoredObject>>,
    /// What is known of damage, for people.
    pub damage: Vec<String>,
}

/// Where a partition is in the files.
#[derive(Debug)]
pub struct Stored {
    number: u64,
    header: PartitionHeader,
}

impl CacheFiles {
    /// Keeps a partition that is on disk as it is for who wants it later, though its cache closes it; whether it was there.
    pub fn put_away(&mut self, partition: &Partition) -> bool {
        let key = key_of(partition);
        let kept = self.has(partition).then(|| self.kept.remove(&key)).flatten();
        let Some(kept) = kept else { return false };
        self.sizes.unwanted_bytes += self.bytes_of(partition);
        self.unwanted.insert(key, (kept.number, kept.header));
        true
    }

    /// Whether something of a cluster is on disk that its cache does not have.
    #[must_use]
    pub fn has_away(&self, cluster: &ClusterName) -> bool {
        self.away().any(|name| name == cluster)
    }

    /// Clusters of which something is on disk that its cache does not have.
    pub fn away(&self) -> impl Iterator<Item = &ClusterName> {
        self.unwanted.keys().map(|(cluster, _)| cluster)
    }

    /// Whether something that its cache does not have is claimed.
    #[must_use]
    pub fn is_claimed(&self, claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>) -> bool {
        self.unwanted.values().any(|(_, header)| claim(&self.resource, header).is_some())
    }

    /// Reads back what is claimed of what nobody wanted. It stays so until [`Self::came_back`].
    ///
    /// Costs reading all files of the resource, and memory for what is claimed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn bring_back(
        &mut self,
        totals: &Arc<PackedTotals>,
        claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
    ) -> io::Result<Returning> {
        if !self.is_claimed(claim) || !self.are_in_place() {
            return Ok(Returning::default());
        }
        let wants = |resource: &ApiResource, header: &PartitionHeader| {
            self.unwanted.contains_key(&header.key()) && claim(resource, header).is_some()
        };
        let read = load::read_beside(&*self.disk, &self.dir, (totals, &self.dictionaries), &wants, false)?;
        let Some(Read { partitions, plain, damage, .. }) = read else { return Ok(Returning::default()) };
        let is_whole = damage.is_empty();
        let mut back = Vec::new();
        for (key, partition) in partitions {
            let (number, mut header) = (partition.number, partition.header);
            let is_it = self.unwanted.get(&key).is_some_and(|(known, _)| *known == number);
            let Some(claim) = claim(&self.resource, &header).filter(|_| is_it) else { continue };
            // Where something may be missing it must not be written again as complete.
            header.version = header.version.filter(|_| is_whole);
            let saved = saved(&self.resource, claim, header.clone(), partition.objects);
            back.push((Stored { number, header }, saved));
        }
        if !is_whole {
            self.distrust();
        }
        Ok(Returning { partitions: back, plain, damage })
    }

    /// A partition that was read back is in its cache: from now on what changes in it is written.
    pub fn came_back(&mut self, stored: Stored, partition: &Partition) {
        let key = key_of(partition);
        if self.unwanted.remove(&key).is_some() {
            self.sizes.unwanted_bytes = self.sizes.unwanted_bytes.saturating_sub(self.bytes_of(partition));
            let Stored { number, header } = stored;
            self.kept.insert(key, Kept { number, header, partition: partition.clone() });
        }
    }

    /// Has partitions stay on disk as they are though their cache has closed them: their readers have not answered for all.
    pub fn keep_closed(&mut self, partitions: impl IntoIterator<Item = (ClusterName, Scope)>) {
        self.moved.extend(partitions);
    }

    /// What a partition takes on disk, about.
    fn bytes_of(&self, partition: &Partition) -> u64 {
        let mean = self.sizes.object_bytes.checked_div(self.sizes.objects).unwrap_or(OBJECT);
        partition.len() as u64 * mean
    }
}

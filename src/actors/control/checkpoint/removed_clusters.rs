//! Saving and restoring clusters that are removed from a running hub and re-added.
//!
//! The partitions of a removed cluster stay on disk, in the state that their durable readers (sinks and subscribers)
//! have acknowledged. They are restored if the cluster is re-added, in this process or a later one.
//!
//! If a reader has not acknowledged everything, or the disk fails, the partition's previous state stays on disk. The
//! partition also stays in memory with its pending events, until the cluster is re-added or [`SAVE_TIMEOUT`] has
//! passed. During this time no checkpoint pass counts as complete, so journals keep the events. After the timeout the
//! partition is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::OwnedMutexGuard;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::barrier::Barrier;
use crate::actors::checkpoint::restore_plan::RestorePlan;
use crate::actors::checkpoint::store::{CheckpointStore, UnsavedPartition};
use crate::actors::control::checkpoint::pass::{Part, write_one};
use crate::actors::env::Env;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::{Commit, PartitionHeader, ReaddedPartitions};
use informer_hub_types::clock::{self};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, Gvr, Origin, Scope, View};

/// How long an unsaved partition of a removed cluster stays in memory. Also the longest wait for a disk that does not
/// respond.
pub(in crate::actors) const SAVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Partition of a removed cluster that was still in memory and was opened again when the cluster was re-added. `from`
/// is its origin before the removal, and `to` its new origin. They differ at most in the cluster's labels.
#[derive(Debug)]
pub(in crate::actors) struct Reopened {
    pub(in crate::actors) from: Arc<Origin>,
    pub(in crate::actors) to: Arc<Origin>,
    pub(in crate::actors) id: PartitionId,
}

/// Guard that counts a caller as waiting for the checkpoint files, until the guard is dropped.
struct WaitingCaller<'w>(&'w AtomicUsize);

impl<'w> WaitingCaller<'w> {
    fn begin(count: &'w AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl CheckpointStore {
    /// Returns whether a caller waits for the checkpoint files while a pass holds them.
    pub(in crate::actors) fn has_waiters(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Waits for exclusive access to the checkpoint files; a running pass then stops waiting for readers. Returns
    /// `None` after `most`, if the disk hangs.
    async fn acquire(&self, most: Duration) -> Option<OwnedMutexGuard<()>> {
        let _waiting = WaitingCaller::begin(&self.waiting);
        tokio::time::timeout(most, Arc::clone(&self.lock).lock_owned()).await.ok()
    }

    /// Returns the partitions of a cache that are closed but not saved yet, by cluster and scope. Their previous states
    /// must stay on disk.
    pub(in crate::actors) fn unsaved_of(&self, cache: &(Gvr, View)) -> Vec<(ClusterName, Scope)> {
        let unsaved = self.unsaved.lock();
        let of_cache =
            unsaved.iter().filter(|unsaved| unsaved.cache == *cache).map(|unsaved| unsaved.partition.origin());
        of_cache.map(|origin| (origin.cluster.clone(), origin.scope.clone())).collect()
    }

    /// Returns whether a cluster may have partitions that no informer fills, on disk or in memory.
    pub(in crate::actors) fn has_removed(&self, cluster: &ClusterName) -> bool {
        self.removed.lock().contains(cluster)
            || self.unsaved.lock().iter().any(|unsaved| unsaved.partition.origin().cluster == *cluster)
    }

    /// Returns the caches that have, on disk, a partition of `cluster` that no informer fills.
    fn removed_of(&self, cluster: &ClusterName) -> Vec<(Gvr, View)> {
        let files = self.files.lock();
        files.iter().filter(|(_, files)| files.has_closed(cluster)).map(|(cache, _)| cache.clone()).collect()
    }

    /// Drops the unsaved partitions whose timeout has passed and returns the informers (origins) that filled them.
    pub(in crate::actors) fn drop_expired(&self) -> Vec<Arc<Origin>> {
        let now = clock::now();
        let mut unsaved = self.unsaved.lock();
        let (expired, kept) = std::mem::take(&mut *unsaved).into_iter().partition(|unsaved| unsaved.until <= now);
        *unsaved = kept;
        let expired: Vec<UnsavedPartition> = expired;
        for it in &expired {
            let origin = it.partition.origin();
            tracing::warn!(
                cluster = %origin.cluster, resource = %origin.resource.gvr,
                "dropping unsaved objects of a removed cluster: the disk failed, or sinks or subscribers did not \
                 acknowledge them; re-adding the cluster lists them again"
            );
            self.remove_number(&it.cache, it.id);
        }
        expired.into_iter().map(|unsaved| Arc::clone(unsaved.partition.origin())).collect()
    }
}

/// Saves and closes the partitions of a removed cluster. Its informers must have stopped without closing them. Returns
/// the origins (informers) of the partitions that could not be saved and stay in memory.
pub(in crate::actors) async fn save_removed(
    env: &Env,
    store: &Arc<CheckpointStore>,
    cluster: &ClusterName,
) -> Vec<Arc<Origin>> {
    let lock = store.acquire(SAVE_TIMEOUT).await;
    if env.checkpoints.is_closing() {
        // The last checkpoint saves them.
        return Vec::new();
    }
    let readers = env.checkpoints.readers();
    let snapshots = env.caches.snapshots_of_all().into_iter();
    let parts = snapshots.filter(|((_, view), _)| !matches!(view, View::Private(_))).map(|(key, snapshot)| {
        let of_cluster = snapshot.partitions().filter(|(_, partition)| partition.origin().cluster == *cluster);
        let mut barriers: Vec<_> = of_cluster.map(|one| Barrier::new(store, one, &readers)).collect();
        for barrier in &mut barriers {
            barrier.poll();
        }
        Part { key, snapshot, barriers }
    });
    let parts: Vec<_> = parts.filter(|part| !part.barriers.is_empty()).collect();
    // The partitions are registered before they are closed, so that their files stay until the outcome is known.
    store.unsaved.lock().extend(parts.iter().flat_map(unsaved_of));
    let lock = match lock {
        None => None,
        Some(lock) => {
            let (writing, removed) = (Arc::clone(store), cluster.clone());
            let writing = env.io.spawn_blocking(move || {
                for part in &parts {
                    write(&writing, &removed, part);
                }
                lock
            });
            // If the disk hangs, the write keeps the lock until it ends.
            tokio::time::timeout(SAVE_TIMEOUT, writing).await.ok().and_then(Result::ok)
        }
    };
    join_all(env.caches.abandon(cluster)).await;
    // The lock is held until here, because a pass that saw the partitions open would recreate them on disk.
    drop(lock);
    let unsaved = store.unsaved.lock();
    unsaved
        .iter()
        .map(|unsaved| unsaved.partition.origin())
        .filter(|it| it.cluster == *cluster)
        .map(Arc::clone)
        .collect()
}

fn unsaved_of(part: &Part) -> impl Iterator<Item = UnsavedPartition> {
    let until = clock::now() + SAVE_TIMEOUT;
    part.barriers.iter().filter_map(move |barrier| {
        let (cache, partition) = (part.key.clone(), part.snapshot.partition(barrier.id)?.clone());
        Some(UnsavedPartition { cache, id: barrier.id, partition, until })
    })
}

/// Writes the partitions whose readers (sinks and durable subscribers) have acknowledged every event; the others stay
/// on disk as they are.
fn write(store: &CheckpointStore, cluster: &ClusterName, part: &Part) {
    let commits: Vec<Commit> = part.barriers.iter().filter_map(Barrier::commit).collect();
    if let Err(error) = write_one(store, part, &commits, true) {
        tracing::error!(%cluster, resource = %part.key.0, %error, "cannot save the cache of a removed cluster");
        return;
    }
    let mut unsaved = store.unsaved.lock();
    // Until a partition has caught up, journals must keep the events that its readers received before the start.
    let has_caught_up = |barrier: &&Barrier| {
        let partition = part.snapshot.partition(barrier.id);
        partition.is_some_and(|partition| store.has_caught_up(&part.key, barrier.id, partition))
    };
    for barrier in part.barriers.iter().filter(|barrier| barrier.is_open()).filter(has_caught_up) {
        let is_same = |unsaved: &UnsavedPartition| unsaved.cache == part.key && unsaved.id == barrier.id;
        // The partition is no longer listed if the cluster was re-added or the timeout has passed.
        let Some(at) = unsaved.iter().position(is_same) else { continue };
        if barrier.commit().is_none() || save_one(store, &part.key, &unsaved[at].partition) {
            store.removed.lock().insert(unsaved.swap_remove(at).partition.origin().cluster.clone());
            store.remove_number(&part.key, barrier.id);
        }
    }
}

fn save_one(store: &CheckpointStore, cache: &(Gvr, View), partition: &Partition) -> bool {
    store.moves.lock().written(partition.origin());
    let mut files = store.files.lock();
    let Some(files) = files.get_mut(cache) else { return false };
    // An empty partition that has not synced has no file.
    files.keep_closed_partition(partition) || partition.is_empty() && !partition.has_synced()
}

/// Restores the requested partitions of a re-added cluster before its informers open them. Returns the partitions that
/// were still in memory.
pub(in crate::actors) async fn restore_removed(
    env: &Env,
    store: &Arc<CheckpointStore>,
    (cluster, labels): (ClusterName, ClusterLabels),
    plan: RestorePlan,
) -> Vec<Reopened> {
    let Some(lock) = store.acquire(SAVE_TIMEOUT).await else {
        tracing::error!(
            %cluster,
            "cannot restore a re-added cluster: the disk does not respond; its objects are listed again"
        );
        return Vec::new();
    };
    let (caches, store, began) = (env.caches.clone(), Arc::clone(store), clock::now());
    let work = move || {
        let reopened = reopen(&caches, &store, (&cluster, &labels), &plan);
        let keys = store.removed_of(&cluster);
        let objects: usize = keys.iter().map(|key| read_back(&caches, &store, (&cluster, key), &plan)).sum();
        if store.removed_of(&cluster).is_empty() {
            store.removed.lock().remove(&cluster);
        }
        let (partitions, took) = (reopened.len(), clock::now().duration_since(began));
        tracing::info!(%cluster, objects, partitions, ?took, "restored the cache of a re-added cluster");
        drop(lock);
        reopened
    };
    // If the disk hangs, the informers start without the saved partitions.
    let brought = tokio::time::timeout(SAVE_TIMEOUT, env.io.spawn_blocking(work)).await;
    brought.ok().and_then(Result::ok).unwrap_or_default()
}

/// Reopens those partitions of a re-added cluster that are still in memory and still requested, and returns them. Drops
/// the cluster's other unsaved partitions.
fn reopen(
    caches: &CacheDirectory,
    store: &CheckpointStore,
    (cluster, labels): (&ClusterName, &ClusterLabels),
    plan: &RestorePlan,
) -> Vec<Reopened> {
    let mut unsaved = store.unsaved.lock();
    let is_of_cluster = |unsaved: &UnsavedPartition| unsaved.partition.origin().cluster == *cluster;
    let (of_cluster, others) = std::mem::take(&mut *unsaved).into_iter().partition::<Vec<_>, _>(is_of_cluster);
    *unsaved = others;
    drop(unsaved);
    let mut reopened = Vec::new();
    for UnsavedPartition { cache, id: before, partition, .. } in of_cluster {
        let from = Arc::clone(partition.origin());
        if !plan.is_wanted(&from.resource, cluster, &from.scope) {
            store.remove_number(&cache, before);
            continue;
        }
        let to = Arc::new(Origin { cluster_labels: labels.clone(), ..Origin::clone(&from) });
        let id = caches.reopen(&partition, &to);
        store.note_number(&cache, Some(before), id);
        reopened.push(Reopened { from, to, id });
    }
    reopened
}

/// Restores the requested partitions of one cache from disk and returns the number of objects. Unreadable partitions
/// are dropped and listed again.
fn read_back(
    caches: &CacheDirectory,
    store: &CheckpointStore,
    (cluster, cache): (&ClusterName, &(Gvr, View)),
    plan: &RestorePlan,
) -> usize {
    // The files are not in the map during the read, so that they are recreated after a panic.
    let Some(mut files) = store.files.lock().remove(cache) else { return 0 };
    let claim = |resource: &ApiResource, header: &PartitionHeader| plan.claim(resource, header);
    let mut objects = 0;
    if files.is_claimed(&claim) {
        let totals = caches.totals(files.of().0, &cache.1);
        let ReaddedPartitions { partitions, plain, damage } =
            files.read_closed(&totals, &claim).unwrap_or_else(|error| {
                tracing::error!(
                    %cluster, resource = %cache.0, %error,
                    "cannot read the saved objects of a re-added cluster; they are listed again"
                );
                ReaddedPartitions::default()
            });
        if !damage.is_empty() {
            let error = damage.join("; ");
            tracing::error!(
                resource = %cache.0, error,
                "a cache on disk is damaged: readable objects are restored, and its informers list again"
            );
        }
        for (stored, saved) in partitions {
            let Some((id, partition)) = caches.restore_partition(&cache.1, saved, &plain) else { continue };
            objects += partition.len();
            store.note_number(cache, None, id);
            files.mark_reopened(stored, &partition);
        }
    }
    store.files.lock().insert(cache.clone(), files);
    objects
}

#[cfg(test)]
#[path = "removed_clusters_tests.rs"]
mod tests;

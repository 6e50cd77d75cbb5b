//! Clusters that are taken out of a running hub, and come back.
//!
//! What is on disk of one that goes is what its durable readers have answered for, and stays there for when it comes back, in
//! this life of the process or a later one. Where they have not answered for all yet, or the disk fails, it stays on disk as it
//! was, and in memory as it is, with what waits for them: until the cluster comes back, for [`PATIENCE`] at most. As long as
//! it does, no pass is complete, so that journals keep what may be needed. After that nothing is kept of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::OwnedMutexGuard;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::barrier::Barrier;
use crate::actors::checkpoint::keeper::{Keeping, Left};
use crate::actors::checkpoint::restore_plan::RestorePlan;
use crate::actors::control::checkpoint::pass::{Part, write_one};
use crate::actors::env::Env;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::{Commit, PartitionHeader, Returning};
use informer_hub_types::clock::{self};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, Gvr, Origin, Scope, View};

/// For how long what could not be put away is kept in memory, and how long a disk may take.
pub(in crate::actors) const PATIENCE: Duration = Duration::from_secs(60);

/// A partition that was kept in memory and is open again: as what it was closed, and as what it is now.
#[derive(Debug)]
pub(in crate::actors) struct Reopened {
    pub(in crate::actors) from: Arc<Origin>,
    pub(in crate::actors) to: Arc<Origin>,
    pub(in crate::actors) id: PartitionId,
}

/// Counts as long as it is.
struct Waiting<'w>(&'w AtomicUsize);

impl<'w> Waiting<'w> {
    fn begin(count: &'w AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Keeping {
    /// Whether somebody wants to write whom a pass holds up.
    pub(in crate::actors) fn is_waited_for(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Waits for one's turn, which passes give up soon then; `None` where the disk holds one up for longer than that.
    async fn take_turn(&self, most: Duration) -> Option<OwnedMutexGuard<()>> {
        let _waiting = Waiting::begin(&self.waiting);
        tokio::time::timeout(most, Arc::clone(&self.turn).lock_owned()).await.ok()
    }

    /// What has to stay on disk of a cache though it is closed there.
    pub(in crate::actors) fn left_of(&self, cache: &(Gvr, View)) -> Vec<(ClusterName, Scope)> {
        let left = self.left.lock();
        let of_it = left.iter().filter(|left| left.cache == *cache).map(|left| left.partition.origin());
        of_it.map(|origin| (origin.cluster.clone(), origin.scope.clone())).collect()
    }

    /// Whether anything of a cluster may be kept, on disk or in memory, that no cache has.
    pub(in crate::actors) fn has_away(&self, cluster: &ClusterName) -> bool {
        self.away.lock().contains(cluster)
            || self.left.lock().iter().any(|left| left.partition.origin().cluster == *cluster)
    }

    /// The caches that do not have what their files have of a cluster.
    fn away_of(&self, cluster: &ClusterName) -> Vec<(Gvr, View)> {
        let files = self.files.lock();
        files.iter().filter(|(_, files)| files.has_closed(cluster)).map(|(cache, _)| cache.clone()).collect()
    }

    /// Gives up what has been kept in memory for long enough; what it was.
    pub(in crate::actors) fn give_up(&self) -> Vec<Arc<Origin>> {
        let now = clock::now();
        let mut left = self.left.lock();
        let (gone, kept) = std::mem::take(&mut *left).into_iter().partition(|left| left.until <= now);
        *left = kept;
        let gone: Vec<Left> = gone;
        for it in &gone {
            let origin = it.partition.origin();
            tracing::warn!(
                cluster = %origin.cluster, resource = %origin.resource.gvr,
                "of a cluster that was taken out not all is kept, since readers have not answered or the disk has failed: \
                 if it comes back, it begins anew"
            );
            self.forget_number(&it.cache, it.id);
        }
        gone.into_iter().map(|left| Arc::clone(left.partition.origin())).collect()
    }
}

/// Puts what there is of a cluster, whose informers have stopped and left their partitions open, away on disk and closes it.
/// What cannot be put away now is kept in memory: whose that is.
pub(in crate::actors) async fn put_away(env: &Env, keeping: &Arc<Keeping>, cluster: &ClusterName) -> Vec<Arc<Origin>> {
    let turn = keeping.take_turn(PATIENCE).await;
    if env.checkpoints.is_closing() {
        // All of it is in the last checkpoint.
        return Vec::new();
    }
    let readers = env.checkpoints.readers();
    let snapshots = env.caches.snapshots_of_all().into_iter();
    let parts = snapshots.filter(|((_, view), _)| !matches!(view, View::Private(_))).map(|(key, snapshot)| {
        let theirs = snapshot.partitions().filter(|(_, partition)| partition.origin().cluster == *cluster);
        let mut barriers: Vec<_> = theirs.map(|one| Barrier::new(keeping, one, &readers)).collect();
        for barrier in &mut barriers {
            barrier.look();
        }
        Part { key, snapshot, barriers }
    });
    let parts: Vec<_> = parts.filter(|part| !part.barriers.is_empty()).collect();
    // Before they are closed: what is on disk of them stays there until it is known what becomes of it.
    keeping.left.lock().extend(parts.iter().flat_map(left_of));
    let turn = match turn {
        None => None,
        Some(turn) => {
            let writing = Arc::clone(keeping);
            let writing = env.io.spawn_blocking(move || {
                for part in &parts {
                    write(&writing, part);
                }
                turn
            });
            // A disk that hangs has the turn until it has written.
            tokio::time::timeout(PATIENCE, writing).await.ok().and_then(Result::ok)
        }
    };
    join_all(env.caches.abandon(cluster)).await;
    // A pass that found them open would begin them anew on disk.
    drop(turn);
    let left = keeping.left.lock();
    left.iter().map(|left| left.partition.origin()).filter(|it| it.cluster == *cluster).map(Arc::clone).collect()
}

fn left_of(part: &Part) -> impl Iterator<Item = Left> {
    let until = clock::now() + PATIENCE;
    part.barriers.iter().filter_map(move |barrier| {
        let (cache, partition) = (part.key.clone(), part.snapshot.partition(barrier.id)?.clone());
        Some(Left { cache, id: barrier.id, partition, until })
    })
}

/// Writes what may be written of a cluster's partitions in a cache, and leaves to the disk what is there as it is.
fn write(keeping: &Keeping, part: &Part) {
    let commits: Vec<Commit> = part.barriers.iter().filter_map(Barrier::commit).collect();
    if let Err(error) = write_one(keeping, part, &commits, true) {
        tracing::error!(resource = %part.key.0, %error, "what there is of a cluster that is taken out cannot be put away");
        return;
    }
    let mut left = keeping.left.lock();
    // Of what its readers were told before this life the journals' words are needed until it has been seen again.
    let has_caught_up = |barrier: &&Barrier| {
        let partition = part.snapshot.partition(barrier.id);
        partition.is_some_and(|partition| keeping.has_caught_up(&part.key, barrier.id, partition))
    };
    for barrier in part.barriers.iter().filter(|barrier| barrier.is_open()).filter(has_caught_up) {
        let is_it = |left: &Left| left.cache == part.key && left.id == barrier.id;
        // Unless the cluster is back by now, or it is given up.
        let Some(at) = left.iter().position(is_it) else { continue };
        if barrier.commit().is_none() || put_one_away(keeping, &part.key, &left[at].partition) {
            keeping.away.lock().insert(left.swap_remove(at).partition.origin().cluster.clone());
            keeping.forget_number(&part.key, barrier.id);
        }
    }
}

fn put_one_away(keeping: &Keeping, cache: &(Gvr, View), partition: &Partition) -> bool {
    keeping.moves.lock().written(partition.origin());
    let mut files = keeping.files.lock();
    let Some(files) = files.get_mut(cache) else { return false };
    // Of one that is empty and not complete there is nothing on disk.
    files.keep_closed_partition(partition) || partition.is_empty() && !partition.has_synced()
}

/// Has the caches have again what is kept of a cluster and wanted of it, before its informers open it. What of it was in
/// memory.
pub(in crate::actors) async fn bring_back(
    env: &Env,
    keeping: &Arc<Keeping>,
    (cluster, labels): (ClusterName, ClusterLabels),
    plan: RestorePlan,
) -> Vec<Reopened> {
    let Some(turn) = keeping.take_turn(PATIENCE).await else {
        tracing::error!(%cluster, "the disk hangs: a cluster that is back begins anew");
        return Vec::new();
    };
    let (caches, keeping, began) = (env.caches.clone(), Arc::clone(keeping), clock::now());
    let work = move || {
        let reopened = reopen(&caches, &keeping, (&cluster, &labels), &plan);
        let keys = keeping.away_of(&cluster);
        let objects: usize = keys.iter().map(|key| read_back(&caches, &keeping, key, &plan)).sum();
        if keeping.away_of(&cluster).is_empty() {
            keeping.away.lock().remove(&cluster);
        }
        let (partitions, took) = (reopened.len(), clock::now().duration_since(began));
        tracing::info!(%cluster, objects, partitions, ?took, "a cluster is back: objects from disk, partitions from memory");
        drop(turn);
        reopened
    };
    // What a disk that hangs brings later, an informer that has begun anew does without.
    let brought = tokio::time::timeout(PATIENCE, env.io.spawn_blocking(work)).await;
    brought.ok().and_then(Result::ok).unwrap_or_default()
}

/// Opens again what of a cluster is in memory.
fn reopen(
    caches: &CacheDirectory,
    keeping: &Keeping,
    (cluster, labels): (&ClusterName, &ClusterLabels),
    plan: &RestorePlan,
) -> Vec<Reopened> {
    let mut left = keeping.left.lock();
    let is_theirs = |left: &Left| left.partition.origin().cluster == *cluster;
    let (theirs, others) = std::mem::take(&mut *left).into_iter().partition::<Vec<_>, _>(is_theirs);
    *left = others;
    drop(left);
    let mut reopened = Vec::new();
    for Left { cache, id: before, partition, .. } in theirs {
        let from = Arc::clone(partition.origin());
        if !plan.is_wanted(&from.resource, cluster, &from.scope) {
            keeping.forget_number(&cache, before);
            continue;
        }
        let to = Arc::new(Origin { cluster_labels: labels.clone(), ..Origin::clone(&from) });
        let id = caches.reopen(&partition, &to);
        keeping.note_number(&cache, Some(before), id);
        reopened.push(Reopened { from, to, id });
    }
    reopened
}

/// Has a cache have again what of it is on disk and wanted; how many objects that is. What cannot be read begins anew.
fn read_back(caches: &CacheDirectory, keeping: &Keeping, cache: &(Gvr, View), plan: &RestorePlan) -> usize {
    // Out of the map while it is read: what a panic leaves behind is begun anew.
    let Some(mut files) = keeping.files.lock().remove(cache) else { return 0 };
    let claim = |resource: &ApiResource, header: &PartitionHeader| plan.claim(resource, header);
    let mut objects = 0;
    if files.is_claimed(&claim) {
        let totals = caches.totals(files.of().0, &cache.1);
        let Returning { partitions, plain, damage } = files.read_closed(&totals, &claim).unwrap_or_else(|error| {
            tracing::error!(resource = %cache.0, %error, "what is on disk of a cluster that is back cannot be read: it begins anew");
            Returning::default()
        });
        if !damage.is_empty() {
            let error = damage.join("; ");
            tracing::error!(resource = %cache.0, error, "a cache on disk is damaged: what can be read is there, and its informers list");
        }
        for (stored, saved) in partitions {
            let Some((id, partition)) = caches.bring_back(&cache.1, saved, &plain) else { continue };
            objects += partition.len();
            keeping.note_number(cache, None, id);
            files.mark_reopened(stored, &partition);
        }
    }
    keeping.files.lock().insert(cache.clone(), files);
    objects
}

#[cfg(test)]
#[path = "leaving_tests.rs"]
mod tests;

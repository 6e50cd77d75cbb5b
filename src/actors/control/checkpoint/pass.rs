//! One checkpoint pass over all caches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::actors::checkpoint::barrier::Barrier;
use crate::actors::checkpoint::store::CheckpointStore;
use crate::actors::env::Env;
use crate::cache::Snapshot;
use crate::state::caches::{CacheFiles, CheckpointResult, Commit};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{CheckpointState, Gvr, Origin, View};

/// How often a checkpoint pass checks whether sinks and durable subscribers have acknowledged their events.
const POLL: Duration = Duration::from_millis(5);

/// One cache and its snapshot in a checkpoint pass.
pub(in crate::actors) struct Part {
    pub(in crate::actors) key: (Gvr, View),
    pub(in crate::actors) snapshot: Arc<Snapshot>,
    pub(in crate::actors) barriers: Vec<Barrier>,
}

impl Part {
    /// Returns whether every partition has reached the resourceVersion up to which sinks and durable subscribers had
    /// received events before the restart of the hub.
    fn has_caught_up(&self, store: &CheckpointStore) -> bool {
        self.snapshot.partitions().all(|(id, partition)| store.has_caught_up(&self.key, id, partition))
    }
}

/// Runs a checkpoint pass in which sinks and durable subscribers have until `until` to acknowledge their events.
/// Returns whether all writes succeeded.
pub(in crate::actors) async fn run(env: Env, until: Instant, is_last: bool) -> bool {
    let Some(store) = env.checkpoints.store().cloned() else { return true };
    let _lock = store.lock.lock().await;
    let listeners = env.checkpoints.listeners();
    for listener in &listeners {
        listener.pass_begins();
    }
    let readers = env.checkpoints.readers();
    let moved = store.moves.lock().clone();
    let caches = env.caches.snapshots_of_all().into_iter().filter(|((_, view), _)| !matches!(view, View::Private(_)));
    let mut parts: Vec<_> = caches
        .map(|(key, snapshot)| {
            let barriers = snapshot.partitions().map(|one| Barrier::new(&store, one, &readers)).collect();
            Part { key, snapshot, barriers }
        })
        .collect();
    store.moves.lock().forget_closed(&moved, |gvr, key| {
        let is_same = |origin: &Origin| (&origin.cluster, &origin.scope) == (&key.0, &key.1);
        if store.unsaved.lock().iter().any(|unsaved| unsaved.cache.0 == *gvr && is_same(unsaved.partition.origin())) {
            return true;
        }
        let of_cache = parts.iter().filter(|part| part.key.0 == *gvr);
        of_cache.flat_map(|part| part.snapshot.partitions()).any(|(_, partition)| is_same(partition.origin()))
    });
    // Until every partition has caught up, journals must keep the events that readers received before the start.
    let all_caught_up = parts.iter().all(|part| part.has_caught_up(&store));
    let caught_up_before = store.note_caught_up(all_caught_up);
    wait(&store, &mut parts, until).await;
    let held: u64 = parts.iter().map(|part| part.barriers.iter().filter(|it| !it.is_open()).count() as u64).sum();
    // Journals must also keep the events of unsaved partitions.
    let held = held + store.unsaved.lock().len() as u64;
    let writing = Arc::clone(&store);
    let written = env.io.spawn_blocking(move || write(&writing, &parts, is_last)).await;
    let (wrote, error) = match written {
        Ok(PassResult { wrote, error, bytes }) => {
            store.update_status(|status| status.cache_bytes = bytes);
            (wrote, error)
        }
        Err(_) => (CheckpointResult::default(), Some("the checkpoint panicked".to_owned())),
    };
    update_status(&store, wrote, held, error.as_deref());
    if error.is_none() && held == 0 && all_caught_up && caught_up_before {
        for listener in &listeners {
            listener.pass_completed();
        }
    }
    error.is_none()
}

/// Waits until each partition has been acknowledged by all its readers (sinks and durable subscribers). Does not wait
/// for a partition with a reader that has not subscribed again. Ends early when `until` has passed or another caller
/// waits for the checkpoint files.
async fn wait(store: &CheckpointStore, parts: &mut [Part], until: Instant) {
    loop {
        let mut all = true;
        for barrier in parts.iter_mut().flat_map(|part| &mut part.barriers) {
            all &= barrier.poll() || barrier.is_blocked();
        }
        if all || clock::now() >= until || store.has_waiters() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

struct PassResult {
    wrote: CheckpointResult,
    error: Option<String>,
    bytes: u64,
}

/// Writes the partitions whose readers (sinks and durable subscribers) have acknowledged every event. A failing cache
/// does not stop the others.
fn write(store: &CheckpointStore, parts: &[Part], is_last: bool) -> PassResult {
    let (mut wrote, mut error) = (CheckpointResult::default(), None);
    let mut note = |part: &Part, done: io::Result<CheckpointResult>| match done {
        Ok(one) => {
            wrote.bytes += one.bytes;
            wrote.objects += one.objects;
            wrote.replaced |= one.replaced;
            true
        }
        Err(problem) => {
            error = Some(format!("{}: {problem}", part.key.0));
            false
        }
    };
    let holds = |part: &&Part| store.moves.lock().has_kept_files(&part.key.0, &part.key.1);
    let holding: Vec<_> = parts.iter().filter(holds).collect();
    for part in parts {
        let commits: Vec<_> = part.barriers.iter().filter_map(Barrier::commit).collect();
        let is_written = note(part, write_one(store, part, &commits, is_last));
        let written = commits.iter().filter_map(|commit| part.snapshot.partition(commit.id)).filter(|_| is_written);
        written.for_each(|partition| store.moves.lock().written(partition.origin()));
        report_to_informers(part, &commits, is_written);
    }
    // Moved partitions are on disk at their new place, so their old files may be deleted.
    for part in holding.into_iter().filter(|part| !holds(part)) {
        note(part, write_one(store, part, &[], is_last));
    }
    if let Err(problem) = store.write_names() {
        error.get_or_insert_with(|| format!("short names of resources: {problem}"));
    }
    let bytes = store.files.lock().values().map(CacheFiles::bytes).sum();
    PassResult { wrote, error, bytes }
}

pub(in crate::actors) fn write_one(
    store: &CheckpointStore,
    part: &Part,
    commits: &[Commit],
    is_last: bool,
) -> io::Result<CheckpointResult> {
    // The files are not in the map during the write, so that they are recreated after a panic.
    let known = store.files.lock().remove(&part.key);
    let mut files = match known {
        Some(files) => files,
        None if part.snapshot.partitions().next().is_none() => return Ok(CheckpointResult::default()),
        None => {
            let (disk, resource) = (Arc::clone(&store.disk), part.snapshot.resource().clone());
            let begun = CacheFiles::begin(disk, &store.root, resource, part.key.1.clone())?;
            let Some(files) = begun else { return Ok(CheckpointResult::default()) };
            files
        }
    };
    files.keep_moved(&store.moves.lock());
    files.keep_closed(store.unsaved_of(&part.key));
    let done = files.checkpoint(&part.snapshot, commits, store.now(), is_last);
    store.files.lock().insert(part.key.clone(), files);
    done
}

/// Updates the checkpoint state in each informer's health: when and up to which resourceVersion the partition was
/// saved, and which sinks and durable subscribers keep it from being saved.
fn report_to_informers(part: &Part, commits: &[Commit], is_written: bool) {
    for barrier in &part.barriers {
        let Some(partition) = part.snapshot.partition(barrier.id) else { continue };
        let before = partition.health().checkpoint();
        let is_committed = is_written && commits.iter().any(|commit| commit.id == barrier.id);
        let mut state = before.map(|state| CheckpointState::clone(&state)).unwrap_or_default();
        if is_committed {
            state.at = Some(clock::wall());
            state.version = partition.resume_version().map(ToString::to_string);
        }
        state.held_by = barrier.held_by();
        partition.health().set_checkpoint(state);
    }
}

fn update_status(store: &CheckpointStore, wrote: CheckpointResult, held: u64, error: Option<&str>) {
    store.update_status(|status| {
        match (&status.last_error, error) {
            (None, Some(error)) => {
                tracing::error!(
                    error,
                    "cannot write caches to disk; retrying, and a restart meanwhile restores the last saved caches"
                );
            }
            (Some(_), None) => tracing::info!("writing caches to disk works again"),
            _ => {}
        }
        status.last_error = error.map(ToOwned::to_owned);
        status.held = held;
        status.replaced += u64::from(wrote.replaced);
        if error.is_none() {
            status.last_checkpoint = Some(clock::wall());
            if wrote.bytes > 0 {
                (status.last_objects, status.last_bytes) = (wrote.objects, wrote.bytes);
            }
        }
    });
}

#[cfg(test)]
#[path = "pass_tests.rs"]
pub(in crate::actors) mod tests;

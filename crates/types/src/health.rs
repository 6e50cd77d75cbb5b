//! Health of one informer: counters and states, written by its actors and readable from any thread at any time.

use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::Serialize;

use super::{
    ClusterTimings, EncodingInUse, JsonReason, ListReason, MemoryState, ResourceVersion, WatchCell, Watcher, clock,
};

mod fallbacks;

/// Current activity of an informer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Phase {
    /// Not started, or discovery is looking up its resource.
    Pending,
    /// The cluster does not serve the resource. The informer waits for it to appear.
    Absent,
    /// The first list is in progress, or waits for a retry.
    Listing,
    /// Synced, and the watch is open.
    Watching,
    /// Synced once, but the watch is currently not open.
    Stale,
    /// The apiserver answers 401 or 403. The informer retries at longer intervals.
    Forbidden,
    /// The informer's actors failed more often than the limit on restarts allows. They are restarted only after a
    /// minute or more.
    Degraded,
    /// Stopped on purpose.
    Stopped,
    /// Not watching, because the memory limit leaves no room for its objects.
    Paused,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Absent,
        Self::Listing,
        Self::Watching,
        Self::Stale,
        Self::Forbidden,
        Self::Degraded,
        Self::Stopped,
        Self::Paused,
    ];

    /// Returns the word used in the status and in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Absent => "absent",
            Self::Listing => "listing",
            Self::Watching => "watching",
            Self::Stale => "stale",
            Self::Forbidden => "forbidden",
            Self::Degraded => "degraded",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        }
    }
}

/// How current an informer's part of a query result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Freshness {
    /// The watch is open: as current as the apiserver's watch.
    Synced,
    /// Complete up to a point in time. Later changes are not known yet.
    StaleSince {
        /// When the informer was last known to be up to date, usually when its watch broke.
        since: jiff::Timestamp,
    },
    /// The first list has not completed: objects may be missing.
    Missing,
}

/// Checkpoint of an informer: the state of its objects that is on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CheckpointState {
    /// When the objects on disk were last updated or confirmed to be up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<jiff::Timestamp>,
    /// resourceVersion from which a watch would resume after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Names of the sinks and durable subscribers whose missing acknowledgements keep the checkpoint from advancing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

/// Counters and states of one informer.
///
/// They are updated independently of each other. Only the synced flag is ordered: a thread that sees it set also sees
/// all earlier writes (release and acquire).
#[derive(Debug, Default)]
pub struct InformerHealth {
    phase: AtomicU8,
    synced: AtomicU8,
    answers: AtomicU8,
    stale_since: AtomicI64,
    last_event: AtomicI64,
    last_heard: AtomicI64,
    version: ArcSwapOption<ResourceVersion>,
    stored: WatchCell<Option<ResourceVersion>>,
    /// One more than the `metadata.generation` of the resource's CRD. 1 if a CRD exists but its generation is unknown;
    /// 0 if no CRD is known.
    definition: AtomicU64,
    /// Newest resourceVersion of a list that has started but is not complete. Later lists must not be older.
    floor: ArcSwapOption<ResourceVersion>,
    last_error: ArcSwapOption<String>,
    /// Text on what the informer leaves out of its objects, such as `metadata only`. Unset if the objects are complete,
    /// or if this is not known yet.
    omitted: ArcSwapOption<String>,
    checkpoint: ArcSwapOption<CheckpointState>,
    encoding: ArcSwapOption<EncodingInUse>,
    /// Number of fallbacks from protobuf to JSON, by reason. If the reason changes during a fallback, the new reason is
    /// counted too.
    fallbacks: [AtomicU64; JsonReason::FALLBACKS.len()],
    timings: OnceLock<Arc<ClusterTimings>>,
    /// Objects in the store.
    pub objects: AtomicU64,
    /// Estimated memory of the objects in bytes ([`object_memory`](super::object_memory)). Updated regularly only while
    /// the hub has a memory limit; zero before the first update.
    pub bytes: AtomicU64,
    /// Watch events and list items received.
    pub events: AtomicU64,
    /// Lists started.
    pub lists: AtomicU64,
    list_reasons: [AtomicU64; ListReason::ALL.len()],
    /// Items received by the list in progress.
    pub list_items: AtomicU64,
    /// Expected number of items of the list in progress; zero if unknown.
    pub list_expected: AtomicU64,
    /// Watches opened.
    pub watches: AtomicU64,
    /// Objects, and last states of deleted objects, that were skipped because they were malformed, without a name or
    /// too large.
    pub skipped: AtomicU64,
    /// Restarts of the informer's actors after a failure.
    pub restarts: AtomicU64,
    /// Bytes of the changes in the FIFO, which have been read but are not in the store yet.
    pub fifo_bytes: AtomicU64,
    /// Number of changes in the FIFO, which are not in the store yet.
    pub fifo_changes: AtomicU64,
    /// How much of the informer's objects is kept under a memory limit.
    pub memory: MemoryState,
}

impl InformerHealth {
    /// Creates the health of a pending informer.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes over the counters and states of the previous informer of the same objects.
    ///
    /// These include the last resourceVersion that the previous informer read. Its objects are still in the store, so
    /// the new informer must not list or watch from an older resourceVersion.
    pub fn continue_from(&self, before: &Self) {
        if let Some(version) = before.version() {
            self.set_version(version.as_ref().clone());
        }
        self.floor.store(before.floor.load_full());
        self.definition.store(before.definition.load(Relaxed), Relaxed);
        self.set_stored(before.stored());
        if before.has_synced() {
            self.set_synced();
        }
        let stale_since = match before.stale_since.load(Relaxed) {
            0 => clock::wall_millis(),
            since => since,
        };
        self.stale_since.store(stale_since, Relaxed);
        self.last_event.store(before.last_event.load(Relaxed), Relaxed);
        self.last_heard.store(before.last_heard.load(Relaxed), Relaxed);
        self.objects.store(before.objects.load(Relaxed), Relaxed);
        self.bytes.store(before.bytes.load(Relaxed), Relaxed);
        self.memory.copy_from(&before.memory);
        self.checkpoint.store(before.checkpoint());
        for (counter, before) in [
            (&self.events, &before.events),
            (&self.lists, &before.lists),
            (&self.watches, &before.watches),
            (&self.skipped, &before.skipped),
            (&self.restarts, &before.restarts),
        ] {
            counter.fetch_add(before.load(Relaxed), Relaxed);
        }
        let reasons = self.list_reasons.iter().zip(&before.list_reasons);
        for (counter, before) in reasons.chain(self.fallbacks.iter().zip(&before.fallbacks)) {
            counter.fetch_add(before.load(Relaxed), Relaxed);
        }
    }

    /// Sets the state restored from disk. `objects` is the number of restored objects, and `version` their
    /// resourceVersion, if known. `alive` is when they were last up to date, in milliseconds since the epoch. `synced`
    /// is whether the informer had synced.
    pub fn restore(&self, version: Option<ResourceVersion>, synced: bool, alive: i64, objects: u64) {
        self.set_checkpoint(CheckpointState {
            at: jiff::Timestamp::from_millisecond(alive).ok(),
            version: version.as_ref().map(ToString::to_string),
            ..CheckpointState::default()
        });
        self.set_stored(version.clone());
        self.version.store(version.map(Arc::new));
        // If the wall clock was fast when the state was saved, the real time is unknown, but it is not in the future.
        let alive = alive.min(clock::wall_millis());
        self.stale_since.store(alive.max(1), Relaxed);
        self.last_event.store(alive, Relaxed);
        self.objects.store(objects, Relaxed);
        if synced {
            self.set_synced();
            self.phase.store(Phase::Stale as u8, Relaxed);
        }
    }

    /// Returns when the informer was last known to be up to date, in milliseconds since the epoch: the current time
    /// while its watch is open. Before the first watch, returns when the first list began, or when the resource was
    /// found to be absent. Returns `None` before that time.
    #[must_use]
    pub fn fresh_until(&self) -> Option<i64> {
        if self.phase() == Phase::Watching {
            return Some(clock::wall_millis());
        }
        match self.stale_since.load(Relaxed) {
            0 => None,
            since => Some(since),
        }
    }

    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase.load(Relaxed))).copied().unwrap_or(Phase::Pending)
    }

    /// Sets the phase. [`Phase::Watching`] clears the time since which the objects are stale. Any other phase sets this
    /// time to now if it is not set.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        if phase == Phase::Watching {
            self.stale_since.store(0, Relaxed);
        } else {
            // Also before the first sync: the first list may reach the store after the first watch broke. Keeps the
            // earliest time.
            let _ = self.stale_since.compare_exchange(0, clock::wall_millis(), Relaxed, Relaxed);
        }
    }

    /// Records whether the apiserver responded at all to the last request.
    pub fn set_answers(&self, answers: bool) {
        self.answers.store(1 + u8::from(answers), Relaxed);
    }

    /// Returns whether the apiserver responded at all to the last request; `None` before the first request has ended.
    #[must_use]
    pub fn answers(&self) -> Option<bool> {
        match self.answers.load(Relaxed) {
            0 => None,
            code => Some(code == 2),
        }
    }

    /// Records that the first list is in the store.
    pub fn set_synced(&self) {
        self.synced.store(1, Release);
    }

    /// Records that the objects were dropped, so that the informer lists again.
    pub fn set_unsynced(&self) {
        self.synced.store(0, Release);
        self.set_stored(None);
    }

    /// Returns whether the first list is in the store: client-go's `HasSynced`.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.load(Acquire) == 1
    }

    /// Returns how current this informer's objects are.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        if !self.has_synced() {
            return Freshness::Missing;
        }
        match self.stale_since.load(Relaxed) {
            0 => Freshness::Synced,
            millis => Freshness::StaleSince {
                since: jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
            },
        }
    }

    /// Returns for how long the watch has not been open; `None` while it is open, and before the first list has begun.
    /// Unlike [`Self::freshness`], the result is also known before the first list is complete.
    #[must_use]
    pub fn stale_for(&self) -> Option<Duration> {
        match self.stale_since.load(Relaxed) {
            0 => None,
            millis => Some(clock::since_wall_millis(millis)),
        }
    }

    /// Counts a started list and its reason.
    pub fn note_list(&self, reason: ListReason) {
        self.lists.fetch_add(1, Relaxed);
        self.list_reasons[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns how many lists were started for a reason.
    #[must_use]
    pub fn lists_for(&self, reason: ListReason) -> u64 {
        self.list_reasons[reason as usize].load(Relaxed)
    }

    /// Records that data arrived from the apiserver.
    pub fn note_heard(&self) {
        self.last_heard.store(clock::wall_millis(), Relaxed);
    }

    /// Returns when data last arrived from the apiserver, in milliseconds since the epoch; zero if never.
    #[must_use]
    pub fn last_heard(&self) -> i64 {
        self.last_heard.load(Relaxed)
    }

    /// Counts `count` received events or items.
    pub fn note_events(&self, count: u64) {
        self.events.fetch_add(count, Relaxed);
        self.last_event.store(clock::wall_millis(), Relaxed);
    }

    /// Returns the age of the last event; `None` before the first.
    #[must_use]
    pub fn last_event_age(&self) -> Option<Duration> {
        match self.last_event.load(Relaxed) {
            0 => None,
            millis => Some(clock::since_wall_millis(millis)),
        }
    }

    /// Sets the newest resourceVersion of a list that has started but is not complete, for [`Self::newest`].
    pub fn set_floor(&self, version: ResourceVersion) {
        self.floor.store(Some(Arc::new(version)));
    }

    /// Returns the minimum resourceVersion for lists of a new informer of the same objects. This is the newer of two:
    /// the last version read, and the newest one seen in an incomplete list.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<ResourceVersion>> {
        match (self.version(), self.floor.load_full()) {
            (Some(version), Some(floor)) if floor.newer_than(&version) => Some(floor),
            (version, floor) => version.or(floor),
        }
    }

    /// Clears the resourceVersions that [`Self::newest`] compares, because the cluster went back to older ones (etcd
    /// was restored from a backup).
    pub fn forget_newest(&self) {
        self.version.store(None);
        self.floor.store(None);
    }

    /// Sets the resourceVersion up to which the reflector has read.
    pub fn set_version(&self, version: ResourceVersion) {
        self.version.store(Some(Arc::new(version)));
    }

    /// Returns the resourceVersion up to which the reflector has read: client-go's `LastSyncResourceVersion`.
    #[must_use]
    pub fn version(&self) -> Option<Arc<ResourceVersion>> {
        self.version.load_full()
    }

    /// Sets the resourceVersion up to which the store is complete. Call it after the store has published that state.
    pub fn set_stored(&self, version: Option<ResourceVersion>) {
        self.stored.modify(|stored| {
            let is_other = *stored != version;
            *stored = version;
            is_other
        });
    }

    /// Returns the resourceVersion up to which the store is complete: client-go's `LastStoreSyncResourceVersion`.
    #[must_use]
    pub fn stored(&self) -> Option<ResourceVersion> {
        self.stored.get()
    }

    /// Returns a receiver for changes of [`Self::stored`].
    #[must_use]
    pub fn watch_stored(&self) -> Watcher<Option<ResourceVersion>> {
        self.stored.subscribe()
    }

    /// Records that the cluster has a CRD of the informer's resource.
    pub fn set_defined(&self) {
        self.definition.fetch_max(1, Relaxed);
    }

    /// Returns whether the cluster has, or had, a CRD of the informer's resource. `false` if not yet known.
    #[must_use]
    pub fn is_defined(&self) -> bool {
        self.definition.load(Relaxed) > 0
    }

    /// Records the `metadata.generation` of the resource's CRD.
    pub fn set_definition_generation(&self, generation: u64) {
        self.definition.store(generation.saturating_add(1), Relaxed);
    }

    /// Returns the `metadata.generation` of the resource's CRD; zero if it is not known.
    #[must_use]
    pub fn definition_generation(&self) -> u64 {
        self.definition.load(Relaxed).saturating_sub(1)
    }

    /// Sets the text for operators on what the informer leaves out of its objects: `metadata only`, `without data`.
    pub fn set_omitted(&self, omitted: Option<String>) {
        self.omitted.store(omitted.map(Arc::new));
    }

    /// Returns what the informer leaves out of its objects; `None` if the objects are complete, or if this is not known
    /// yet.
    #[must_use]
    pub fn omitted(&self) -> Option<Arc<String>> {
        self.omitted.load_full()
    }

    /// Sets the histograms of the informer's cluster, which record durations. Only the first call has an effect.
    pub fn set_timings(&self, timings: &Arc<ClusterTimings>) {
        let _ = self.timings.set(Arc::clone(timings));
    }

    /// Returns the histograms of the informer's cluster; `None` if durations are not recorded.
    #[must_use]
    pub fn timings(&self) -> Option<&Arc<ClusterTimings>> {
        self.timings.get()
    }

    /// Sets the checkpoint of the informer's objects.
    pub fn set_checkpoint(&self, state: CheckpointState) {
        self.checkpoint.store(Some(Arc::new(state)));
    }

    /// Returns whether any of the informer's objects are on disk.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.checkpoint.load().as_ref().is_some_and(|state| state.at.is_some())
    }

    /// Returns the checkpoint of the informer's objects; `None` if they are not saved.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Arc<CheckpointState>> {
        self.checkpoint.load_full()
    }

    /// Sets the last error. `None` clears it.
    pub fn set_error(&self, error: Option<String>) {
        self.last_error.store(error.map(Arc::new));
    }

    /// Returns the last error; `None` if it was resolved or there was none.
    #[must_use]
    pub fn error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_follows_the_watch() {
        let health = InformerHealth::default();
        health.set_phase(Phase::Listing);
        assert_eq!(health.freshness(), Freshness::Missing);
        health.set_synced();
        health.set_phase(Phase::Watching);
        assert_eq!(health.freshness(), Freshness::Synced);
        health.set_phase(Phase::Stale);
        let first = health.freshness();
        assert!(matches!(first, Freshness::StaleSince { .. }));
        health.set_phase(Phase::Degraded);
        assert_eq!(health.freshness(), first);
        health.set_phase(Phase::Watching);
        assert_eq!(health.freshness(), Freshness::Synced);
    }

    #[test]
    fn each_change_from_protobuf_to_json_is_counted_once() {
        let health = InformerHealth::default();
        let json = EncodingInUse::json;
        assert!(!health.set_encoding(json(JsonReason::Configured)) && !health.set_encoding(EncodingInUse::protobuf()));
        assert!(health.set_encoding(json(JsonReason::Faulty)));
        let later = EncodingInUse { message: Some("another one".to_owned()), ..json(JsonReason::Faulty) };
        assert!(!health.set_encoding(later.clone()), "it was JSON before");
        assert_eq!(health.encoding().as_deref(), Some(&later));
        assert!(!health.set_encoding(EncodingInUse::protobuf()) && health.set_encoding(later));
        assert!(health.set_encoding(json(JsonReason::Refused)));
        assert_eq!(health.fallbacks(), [1, 0, 2]);
        let next = InformerHealth::default();
        next.continue_from(&health);
        assert_eq!(next.fallbacks(), [1, 0, 2]);
    }

    #[test]
    fn watch_that_breaks_before_the_first_list_is_stored_makes_the_informer_stale() {
        let health = InformerHealth::default();
        health.set_phase(Phase::Listing);
        health.set_phase(Phase::Watching);
        health.set_phase(Phase::Stale);
        health.set_synced();
        assert!(matches!(health.freshness(), Freshness::StaleSince { .. }));
    }

    #[test]
    fn successor_keeps_sync_and_version_and_is_stale_until_it_watches() {
        let before = InformerHealth::default();
        before.set_phase(Phase::Watching);
        before.set_synced();
        before.set_version(ResourceVersion::new("7"));
        before.restarts.store(2, Relaxed);
        before.note_list(ListReason::Expired);
        let health = InformerHealth::default();
        health.continue_from(&before);
        assert_eq!(health.version().as_deref(), Some(&ResourceVersion::new("7")));
        assert_eq!(health.restarts.load(Relaxed), 2);
        assert_eq!((health.lists.load(Relaxed), health.lists_for(ListReason::Expired)), (1, 1));
        assert_eq!(health.lists_for(ListReason::First), 0);
        assert!(matches!(health.freshness(), Freshness::StaleSince { .. }));
        health.set_phase(Phase::Watching);
        assert_eq!(health.freshness(), Freshness::Synced);
    }

    #[test]
    fn every_phase_round_trips() {
        let health = InformerHealth::default();
        for phase in Phase::ALL {
            health.set_phase(phase);
            assert_eq!(health.phase(), phase);
        }
    }
}

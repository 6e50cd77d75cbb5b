//! What an informer shows of itself: written by its actors as they go, read by anyone at any time.

use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::Serialize;

use super::{ClusterTimings, MemoryState, ResourceVersion, WatchCell, Watcher, clock};

/// What an informer is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Phase {
    /// Not started, or its resource is being looked up.
    Pending,
    /// Its cluster has no such resource; it waits for it to appear.
    Absent,
    /// Making its first list.
    Listing,
    /// Synced, and its watch is open.
    Watching,
    /// Synced once; its watch is broken at the moment.
    Stale,
    /// Its cluster answers 401 or 403; retried slowly.
    Forbidden,
    /// It died more often than its restart intensity allows; retried slowly.
    Degraded,
    /// Stopped on purpose.
    Stopped,
    /// It does not watch, since what it would take in has no room in the memory limit.
    Paused,
}

impl Phase {
    /// All of them.
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

    /// The word in the status and in tables.
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

/// Why a list was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListReason {
    /// It is the informer's first.
    First,
    /// An actor of the informer was restarted.
    Restart,
    /// The version to go on from is too old (410).
    Expired,
    /// The apiserver has not come as far as the version asked for.
    TooLarge,
    /// The watch or list before it failed: connection, silence, overload, a server's fault.
    Failed,
    /// The watch before it ended, and left no version to go on from.
    Ended,
    /// Something came that is no answer, or that the server itself cannot read.
    Malformed,
    /// 401, 403 or 404.
    Refused,
    /// The server does no streaming lists.
    Unsupported,
}

impl ListReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::First,
        Self::Restart,
        Self::Expired,
        Self::TooLarge,
        Self::Failed,
        Self::Ended,
        Self::Malformed,
        Self::Refused,
        Self::Unsupported,
    ];

    /// The word in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Restart => "restart",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
        }
    }
}

/// How far an informer's part of an answer can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Freshness {
    /// The watch is open: as fresh as the apiserver's watch is.
    Synced,
    /// Complete as of then; what happened since is not known yet.
    StaleSince {
        /// When the watch broke.
        since: jiff::Timestamp,
    },
    /// Never listed to the end: objects may be missing.
    Missing,
}

/// How far an informer's objects are on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointState {
    /// When they were last found to be, or brought, up to date there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<jiff::Timestamp>,
    /// Where a watch would go on after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Readers that have not answered for what they were told, so that what is there stays as it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

/// Counters and states of one informer. All methods are lock-free; none orders anything else.
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
    /// What a list that is not complete has brought.
    floor: ArcSwapOption<ResourceVersion>,
    last_error: ArcSwapOption<String>,
    checkpoint: ArcSwapOption<CheckpointState>,
    timings: OnceLock<Arc<ClusterTimings>>,
    /// Objects in the store.
    pub objects: AtomicU64,
    /// Their [`object_memory`](super::object_memory), by samples; zero in a hub that has had no memory limit.
    pub bytes: AtomicU64,
    /// Watch events and list items taken in.
    pub events: AtomicU64,
    /// Lists begun.
    pub lists: AtomicU64,
    /// Of these, by reason.
    list_reasons: [AtomicU64; ListReason::ALL.len()],
    /// Items of the list in progress, and what it is expected to have; zero when unknown.
    pub list_items: AtomicU64,
    /// See [`Self::list_items`].
    pub list_expected: AtomicU64,
    /// Watches opened.
    pub watches: AtomicU64,
    /// Objects or lines that could not be taken in: malformed, without a name, too large.
    pub skipped: AtomicU64,
    /// Times that one of its actors died and was restarted.
    pub restarts: AtomicU64,
    /// Bytes waiting in the fifo.
    pub fifo_bytes: AtomicU64,
    /// Keys waiting in the fifo.
    pub fifo_keys: AtomicU64,
    /// What is kept of its objects where memory is limited.
    pub memory: MemoryState,
}

impl InformerHealth {
    /// A fresh one, pending.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Goes on from what a predecessor showed of the same objects, which are still there: an informer that was set up
    /// anew has not unlearned them, and must not go back behind the version that it had read.
    pub fn go_on_from(&self, before: &Self) {
        if let Some(version) = before.version() {
            self.set_version(version.as_ref().clone());
        }
        self.floor.store(before.floor.load_full());
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
        self.memory.go_on_from(&before.memory);
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
        for (counter, before) in self.list_reasons.iter().zip(&before.list_reasons) {
            counter.fetch_add(before.load(Relaxed), Relaxed);
        }
    }

    /// Shows what was kept of an earlier life of the process: objects as of `alive` (in milliseconds since the epoch), up
    /// to a version, where that is known.
    pub fn restore(&self, version: Option<ResourceVersion>, synced: bool, alive: i64, objects: u64) {
        self.set_checkpoint(CheckpointState {
            at: jiff::Timestamp::from_millisecond(alive).ok(),
            version: version.as_ref().map(ToString::to_string),
            ..CheckpointState::default()
        });
        self.set_stored(version.clone());
        self.version.store(version.map(Arc::new));
        // Where the clock was ahead then, it cannot be told when that was, but not later than now.
        let alive = alive.min(clock::wall_millis());
        self.stale_since.store(alive.max(1), Relaxed);
        self.last_event.store(alive, Relaxed);
        self.objects.store(objects, Relaxed);
        if synced {
            self.set_synced();
            self.phase.store(Phase::Stale as u8, Relaxed);
        }
    }

    /// When it was last known to be up to date, in milliseconds since the epoch: now, while its watch is open. `None` before
    /// it ever was.
    #[must_use]
    pub fn alive(&self) -> Option<i64> {
        if self.phase() == Phase::Watching {
            return Some(clock::wall_millis());
        }
        match self.stale_since.load(Relaxed) {
            0 => None,
            since => Some(since),
        }
    }

    /// What the informer is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase.load(Relaxed))).copied().unwrap_or(Phase::Pending)
    }

    /// Notes a new phase. Leaving [`Phase::Watching`] starts the staleness clock; coming back stops it.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        if phase == Phase::Watching {
            self.stale_since.store(0, Relaxed);
        } else {
            // Whether or not it has synced: its first list may reach the store after its first watch broke. Only the first moment counts.
            let _ = self.stale_since.compare_exchange(0, clock::wall_millis(), Relaxed, Relaxed);
        }
    }

    /// Notes whether the apiserver answered the last request at all.
    pub fn set_answers(&self, answers: bool) {
        self.answers.store(1 + u8::from(answers), Relaxed);
    }

    /// Whether the apiserver answered the last request at all; `None` before the first has ended.
    #[must_use]
    pub fn answers(&self) -> Option<bool> {
        match self.answers.load(Relaxed) {
            0 => None,
            code => Some(code == 2),
        }
    }

    /// Notes that the first list is in the store.
    pub fn set_synced(&self) {
        self.synced.store(1, Release);
    }

    /// Notes that its objects were let go: it begins anew.
    pub fn set_unsynced(&self) {
        self.synced.store(0, Release);
        self.set_stored(None);
    }

    /// Whether the first list is in the store. client-go's `HasSynced`.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.load(Acquire) == 1
    }

    /// How far this informer's objects can be trusted now.
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

    /// For how long its watch has not been open; `None` while it is, and before it has tried. Unlike [`Self::freshness`] this
    /// does not ask whether it has synced.
    #[must_use]
    pub fn stale_for(&self) -> Option<Duration> {
        match self.stale_since.load(Relaxed) {
            0 => None,
            millis => Some(clock::since_wall_millis(millis)),
        }
    }

    /// Notes that a list begins.
    pub fn note_list(&self, reason: ListReason) {
        self.lists.fetch_add(1, Relaxed);
        self.list_reasons[reason as usize].fetch_add(1, Relaxed);
    }

    /// Lists begun for a reason.
    #[must_use]
    pub fn lists_for(&self, reason: ListReason) -> u64 {
        self.list_reasons[reason as usize].load(Relaxed)
    }

    /// Notes that anything at all came from the apiserver.
    pub fn note_heard(&self) {
        self.last_heard.store(clock::wall_millis(), Relaxed);
    }

    /// When anything last came from the apiserver, in milliseconds since the epoch; zero before.
    #[must_use]
    pub fn last_heard(&self) -> i64 {
        self.last_heard.load(Relaxed)
    }

    /// Notes that `count` events or items came in.
    pub fn note_events(&self, count: u64) {
        self.events.fetch_add(count, Relaxed);
        self.last_event.store(clock::wall_millis(), Relaxed);
    }

    /// How long ago the last event came in; `None` before the first.
    #[must_use]
    pub fn last_event_age(&self) -> Option<Duration> {
        match self.last_event.load(Relaxed) {
            0 => None,
            millis => Some(clock::since_wall_millis(millis)),
        }
    }

    /// Notes what a list that is not complete has brought, where that is newer than all before.
    pub fn set_floor(&self, version: ResourceVersion) {
        self.floor.store(Some(Arc::new(version)));
    }

    /// What nobody may list older than who goes on with this: the version, or what has come of a list since.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<ResourceVersion>> {
        match (self.version(), self.floor.load_full()) {
            (Some(version), Some(floor)) if floor.newer_than(&version) => Some(floor),
            (version, floor) => version.or(floor),
        }
    }

    /// Notes how far the reflector has read.
    pub fn set_version(&self, version: ResourceVersion) {
        self.version.store(Some(Arc::new(version)));
    }

    /// How far the reflector has read: client-go's `LastSyncResourceVersion`.
    #[must_use]
    pub fn version(&self) -> Option<Arc<ResourceVersion>> {
        self.version.load_full()
    }

    /// Notes up to which version the store is complete, after the store has published that state.
    pub fn set_stored(&self, version: Option<ResourceVersion>) {
        self.stored.modify(|stored| {
            let is_other = *stored != version;
            *stored = version;
            is_other
        });
    }

    /// Up to which version the store is complete: client-go's `LastStoreSyncResourceVersion`.
    #[must_use]
    pub fn stored(&self) -> Option<ResourceVersion> {
        self.stored.get()
    }

    /// Waits for changes of [`Self::stored`].
    #[must_use]
    pub fn watch_stored(&self) -> Watcher<Option<ResourceVersion>> {
        self.stored.subscribe()
    }

    /// Has durations recorded with those of its cluster. Only the first call counts.
    pub fn set_timings(&self, timings: &Arc<ClusterTimings>) {
        let _ = self.timings.set(Arc::clone(timings));
    }

    /// Durations of its cluster's informers, where they are recorded.
    #[must_use]
    pub fn timings(&self) -> Option<&Arc<ClusterTimings>> {
        self.timings.get()
    }

    /// Notes how far its objects are on disk.
    pub fn set_checkpoint(&self, state: CheckpointState) {
        self.checkpoint.store(Some(Arc::new(state)));
    }

    /// Whether anything of it is on disk.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.checkpoint.load().as_ref().is_some_and(|state| state.at.is_some())
    }

    /// How far its objects are on disk; `None` where none are kept there.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Arc<CheckpointState>> {
        self.checkpoint.load_full()
    }

    /// Notes what went wrong last. `None` clears it.
    pub fn set_error(&self, error: Option<String>) {
        self.last_error.store(error.map(Arc::new));
    }

    /// What went wrong last and has not been mended since.
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
    fn an_informer_whose_watch_broke_before_its_first_list_was_stored_is_stale() {
        let health = InformerHealth::default();
        health.set_phase(Phase::Listing);
        health.set_phase(Phase::Watching);
        health.set_phase(Phase::Stale);
        health.set_synced();
        assert!(matches!(health.freshness(), Freshness::StaleSince { .. }));
    }

    #[test]
    fn a_successor_is_as_synced_and_as_far_as_its_predecessor_and_stale_until_it_watches() {
        let before = InformerHealth::default();
        before.set_phase(Phase::Watching);
        before.set_synced();
        before.set_version(ResourceVersion::new("7"));
        before.restarts.store(2, Relaxed);
        before.note_list(ListReason::Expired);
        let health = InformerHealth::default();
        health.go_on_from(&before);
        assert_eq!(health.version().as_deref(), Some(&ResourceVersion::new("7")));
        assert_eq!(health.restarts.load(Relaxed), 2);
        assert_eq!((health.lists.load(Relaxed), health.lists_for(ListReason::Expired)), (1, 1));
        assert_eq!(health.lists_for(ListReason::First), 0);
        assert!(matches!(health.freshness(), Freshness::StaleSince { .. }));
        health.set_phase(Phase::Watching);
        assert_eq!(health.freshness(), Freshness::Synced);
    }

    #[test]
    fn every_phase_survives_the_round_trip() {
        let health = InformerHealth::default();
        for phase in Phase::ALL {
            health.set_phase(phase);
            assert_eq!(health.phase(), phase);
        }
    }
}

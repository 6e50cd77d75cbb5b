//! Decides whether this collector owns one shard of a cluster: contends for it, holds it, gives it up.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::Ownership;
use informer_hub_fleet::roster::RosterItem;
use informer_hub_reflector::Connector;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Shard, rng};
use tokio_util::sync::CancellationToken;

use super::answer_clock::AnswerClock;
use super::connector::CollectingConnector;
use super::directory::Known;
use super::session::Session;
use super::{Host, Shared};

/// Delay of a claim per shard that the collector owns already, so that collectors with few shards claim first.
const DELAY_PER_SHARD: Duration = Duration::from_millis(50);
/// Maximum of the delay that [`DELAY_PER_SHARD`] causes. A random delay of up to [`JITTER`] is added to it.
const LONGEST_DELAY: Duration = Duration::from_millis(800);
const JITTER: Duration = Duration::from_millis(200);

/// Maximum number of attempts to release a shard.
const RELEASES: usize = 3;

/// Contender for one shard, which runs in its own task.
pub(super) struct Contender {
    shared: Arc<Shared>,
    host: Arc<dyn Host>,
    shard: Shard,
    end: CancellationToken,
    /// Newest known epoch (term number) of the shard. A claim uses a higher one.
    newest: u64,
    /// Epoch (term number) of this collector's last ownership of the shard, which it must not use again.
    used: u64,
    /// When this collector found that a later version of the program wrote the shard's log; `None` if it can read the
    /// log.
    unreadable: Option<Instant>,
}

/// How this collector's ownership of a shard (its session) ended.
#[derive(PartialEq, Eq)]
enum Held {
    /// The collector no longer owns the shard.
    Lost,
    /// The cluster was removed, or the process shuts down.
    Ended,
    /// The shard is handed over to the collector with this name.
    Moved(String),
    /// A later version of the program has written the shard's log.
    Unreadable,
}

/// Entry of the shard's owner as it was read last, and since when it has not changed.
struct Seen {
    own: Ownership,
    /// Value of `Known::current` (time up to which all changes are known) when this collector first saw the entry as it
    /// is now.
    before: Instant,
    /// Time on the [`AnswerClock`] from which the entry counts as unchanged. Set when `Known::current` first exceeds
    /// `before`; `None` until then.
    at: Option<Instant>,
}

impl Seen {
    /// Returns how long the owner's entry is known to be unchanged. `current` is the time up to which all changes are
    /// known. `now` is what the [`AnswerClock`] shows at that time.
    fn age(&mut self, current: Instant, now: Instant) -> Duration {
        if current <= self.before {
            return Duration::ZERO;
        }
        now.duration_since(*self.at.get_or_insert(now))
    }
}

impl Contender {
    pub(super) fn new(shared: Arc<Shared>, host: Arc<dyn Host>, of: Shard, end: CancellationToken) -> Self {
        Self { shared, host, shard: of, end, newest: 0, used: 0, unreadable: None }
    }

    pub(super) async fn run(mut self) {
        let end = self.end.clone();
        loop {
            let own = tokio::select! {
                biased;
                () = end.cancelled() => return,
                own = self.acquire() => own,
            };
            self.used = own.epoch;
            self.shared.ownerships.note_acquired(&own);
            let session = self.begin_session(own.epoch);
            let (own, held) = self.hold(own, &session).await;
            self.shared.sessions.lock().remove(&self.shard);
            self.newest = session.newer_epoch().unwrap_or(self.newest).max(self.newest);
            self.host.stop(&self.shard).await;
            match held {
                Held::Ended => {
                    session.end().await;
                    self.release(&own).await;
                    return;
                }
                Held::Moved(next) => self.hand_over(own, next, &session).await,
                Held::Lost => {
                    self.shared.ownerships.note_lost(&self.shard);
                    session.abandon().await;
                }
                Held::Unreadable => self.leave_to_later(&own, &session).await,
            }
        }
    }

    fn begin_session(&self, epoch: u64) -> Arc<Session> {
        let session = Arc::new(Session::new(Arc::clone(&self.shared), self.shard.clone(), epoch));
        let mut sessions = self.shared.sessions.lock();
        // If another shard of the cluster is open already, its discovery is not repeated.
        if let Some((_, other)) = sessions.iter().find(|(shard, _)| shard.cluster == self.shard.cluster) {
            session.knowledge.adopt(&other.knowledge);
        }
        sessions.insert(self.shard.clone(), Arc::clone(&session));
        session
    }

    /// Releases the shard for the collector `next`. First waits until the log has stored all changes, at most for the
    /// duration of a lease. Changes that are not stored by then are dropped; the watch of the next owner reads them
    /// again.
    async fn hand_over(&self, own: Ownership, next: String, session: &Session) {
        if tokio::time::timeout(self.shared.params.lease, session.end()).await.is_err() {
            session.abandon().await;
        }
        tracing::info!(cluster = %self.shard, to = next, "handing the cluster over to another collector");
        self.release(&Ownership { next, ..own }).await;
        self.shared.ownerships.note_moved(&self.shard);
    }

    /// Releases the shard for collectors of the later version that wrote its log. Drains this collector, so that its
    /// other shards move too.
    async fn leave_to_later(&mut self, own: &Ownership, session: &Session) {
        tracing::error!(
            cluster = %self.shard,
            "a newer version of informer-hub wrote the log of the cluster; leaving all clusters to other collectors: \
             upgrade this process"
        );
        self.unreadable = Some(clock::now());
        self.shared.ownerships.note_lost(&self.shard);
        session.abandon().await;
        self.release(own).await;
        let drain = RosterItem::Drain(self.shared.params.name.clone());
        if let Err(error) = self.shared.backend.put_roster(&drain).await {
            tracing::debug!(
                %error,
                "cannot mark this collector as drained in the roster; trying again with the next cluster whose log a \
                 newer version wrote"
            );
        }
    }

    /// Releases the shard. If that fails three times, the ownership expires after the lease.
    async fn release(&self, own: &Ownership) {
        for attempt in 1..=RELEASES {
            // `Ok(false)` is no error: the previous attempt succeeded, but its answer was lost.
            let Err(error) = self.shared.backend.release(own).await else { return };
            if attempt == RELEASES {
                tracing::warn!(
                    cluster = %self.shard, %error,
                    "cannot release the cluster; other collectors wait until its lease expires"
                );
            }
        }
    }

    /// Waits until the shard is free, and claims it.
    async fn acquire(&mut self) -> Ownership {
        let mut seen: Option<Seen> = None;
        let mut clock = AnswerClock::new(self.shared.params.renewal * 2);
        loop {
            match self.shared.directory.owner(&self.shard) {
                Ok(Some(Known { entry: found, current })) => {
                    self.note_answer();
                    self.shared.ownerships.note_owner(&self.shard, found.as_ref());
                    if let Some(own) = found.clone().filter(|found| self.is_own(found) && found.epoch > self.used) {
                        // An earlier claim succeeded, but its answer was lost.
                        return own;
                    }
                    let now = clock.answered(current);
                    if let Some(found) = &found
                        && seen.as_ref().is_none_or(|seen| seen.own != *found)
                    {
                        self.newest = self.newest.max(found.epoch);
                        seen = Some(Seen { own: found.clone(), before: current, at: None });
                    }
                    let expired = seen.as_mut().is_some_and(|seen| seen.age(current, now) >= self.shared.params.lease);
                    // A missing entry was deleted. Its collector, if alive, writes it again, so the last known entry
                    // counts until the lease is over.
                    let last = found.as_ref().or(seen.as_ref().map(|seen| &seen.own));
                    let free = last.is_none_or(|last| self.is_free(last));
                    // Collectors that can read the log claim first.
                    let rests = self.unreadable.is_some_and(|at| at.elapsed() < self.shared.params.lease);
                    if (free || expired)
                        && !rests
                        && let Some(own) = self.claim(found.as_ref()).await
                    {
                        return own;
                    }
                }
                Ok(None) => {}
                Err(error) => self.note_failure(&error),
            }
            tokio::time::sleep(self.shared.params.renewal).await;
        }
    }

    async fn claim(&mut self, seen: Option<&Ownership>) -> Option<Ownership> {
        let is_addressed = seen.is_some_and(|seen| seen.collector.is_empty() && self.is_next(seen));
        if !is_addressed {
            tokio::time::sleep(self.delay()).await;
        }
        let newest = self.newest.max(self.used);
        match self.shared.backend.claim(&self.shard, &self.shared.params.name, seen, newest).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.note_failure(&error);
                None
            }
        }
    }

    /// Returns the delay of a claim. The collector to which the assignment gives the shard claims first; without an
    /// assignment, collectors with few shards do.
    fn delay(&self) -> Duration {
        let jitter = JITTER.mul_f64(rng::unit());
        let owned = u32::try_from(self.shared.sessions.lock().len()).unwrap_or(u32::MAX);
        let by_count = DELAY_PER_SHARD.saturating_mul(owned).min(LONGEST_DELAY) + jitter;
        match self.shared.orphans.lock().get(&self.shard) {
            Some(collector) if *collector == self.shared.params.name => jitter,
            Some(_) => self.shared.params.renewal * 2 + by_count,
            None => by_count,
        }
    }

    /// Watches the shard and renews the ownership. When the session ends, returns the ownership and the reason.
    async fn hold(&mut self, mut own: Ownership, session: &Arc<Session>) -> (Ownership, Held) {
        let mut watching = self.start(own.epoch).await;
        if let Err(error) = &watching {
            tracing::error!(
                cluster = %self.shard, error,
                "cannot start to watch a cluster that this collector owns; trying again"
            );
        }
        loop {
            tokio::select! {
                biased;
                () = self.end.cancelled() => return (own, Held::Ended),
                next = session.handed_over() => return (own, Held::Moved(next)),
                () = tokio::time::sleep(self.shared.params.renewal) => {}
            }
            if watching.is_err() {
                watching = self.start(own.epoch).await;
            }
            if let Some(epoch) = session.newer_epoch() {
                tracing::warn!(
                    cluster = %self.shard, epoch,
                    "the fleet's log has entries of a newer owner of the cluster; this collector stops watching it"
                );
                return (own, Held::Lost);
            }
            if session.is_unreadable() {
                return (own, Held::Unreadable);
            }
            own.weight = session.load.lock().measure(own.weight, clock::now());
            self.shared.ownerships.note_weight(&own);
            match self.renew(&own).await {
                Ok(Some(renewed)) => {
                    self.note_answer();
                    own = renewed;
                }
                Ok(None) => {
                    tracing::warn!(
                        cluster = %self.shard,
                        "another collector has taken the cluster over; this one stops watching it"
                    );
                    return (own, Held::Lost);
                }
                // Without an answer, the collector keeps watching the shard until the log refuses an entry.
                Err(error) => self.note_failure(&error),
            }
        }
    }

    /// Makes the hub watch the shard with informers that write to the log.
    async fn start(&self, epoch: u64) -> Result<(), String> {
        let (shared, cluster) = (Arc::clone(&self.shared), self.shard.cluster.clone());
        let wrap = move |inner| Arc::new(CollectingConnector { inner, shared, cluster }) as Arc<dyn Connector>;
        self.host.start(&self.shard, Box::new(wrap)).await?;
        tracing::info!(cluster = %self.shard, epoch, "this collector watches the cluster now");
        Ok(())
    }

    async fn renew(&self, own: &Ownership) -> Result<Option<Ownership>, crate::BackendError> {
        if let Some(renewed) = self.shared.backend.renew(own).await? {
            return Ok(Some(renewed));
        }
        match self.shared.backend.owner(&self.shard).await? {
            // The answer to an earlier renewal was lost.
            Some(found) => Ok(Some(found).filter(|found| self.is_own(found) && found.epoch == own.epoch)),
            // The entry was deleted. If another collector has used a newer epoch, the log refuses `own.epoch`.
            None => self.shared.backend.restore_owner(own).await,
        }
    }

    /// Returns whether this collector may claim the shard immediately. If the shard was released for another collector,
    /// this one may claim it only after the lease.
    fn is_free(&self, found: &Ownership) -> bool {
        let is_released = found.collector.is_empty() && (found.next.is_empty() || self.is_next(found));
        is_released || self.is_own(found)
    }

    fn is_next(&self, released: &Ownership) -> bool {
        released.next == self.shared.params.name
    }

    fn is_own(&self, found: &Ownership) -> bool {
        found.collector == self.shared.params.name
    }

    fn note_failure(&self, error: &crate::BackendError) {
        self.shared.ownerships.note_failure(&self.shard, error);
    }

    fn note_answer(&self) {
        self.shared.ownerships.note_answer(&self.shard);
    }
}

//! Bounded cache of the clusters' answers to access reviews (`SubjectAccessReview`). Concurrent callers with the same
//! review share one request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::flights::{Flight, Flights};
use crate::meter::ReviewMeter;
use crate::review::{Review, ReviewError, Reviews, User};
use crate::visibility::Reviewed;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterName, Gvr, rng};

/// Settings of a [`ReviewCache`].
#[derive(Clone, Copy, Debug)]
pub struct ReviewCacheOptions {
    /// Longest time for which a cached answer is used; [`ReviewCache::keep_for`] changes it later. An answer expires up
    /// to a fifth earlier, at random, so that answers do not expire together. Default 1 min.
    pub kept: Duration,
    /// How long a failure is cached, before the cluster is asked again. Default 5 s.
    pub failure_kept: Duration,
    /// Longest wait for an answer, including the wait in the queue. Default 5 s.
    pub deadline: Duration,
    /// Maximum number of cached answers. If there are more, the answers that expire first are dropped. Default 100 000.
    pub answers: usize,
    /// Maximum number of reviews in flight to all clusters. Default 128.
    pub at_once: usize,
    /// Maximum number of reviews in flight to one cluster, so that a hanging cluster does not delay the others. Default 16.
    pub at_once_per_cluster: usize,
    /// Maximum rate of reviews to one cluster, per second, after a burst of `burst` reviews. Default 100.
    ///
    /// Reviews above the rate wait. A review fails immediately if it would have to wait longer than `deadline`.
    pub per_second: u32,
    /// Number of reviews that one cluster may receive in one burst before `per_second` applies. Default 2000.
    pub burst: u32,
    /// Maximum number of reviews of all clusters that are queued or in flight. Further reviews fail. Default 20 000.
    pub waiting: usize,
}

impl Default for ReviewCacheOptions {
    fn default() -> Self {
        Self {
            kept: Duration::from_secs(60),
            failure_kept: Duration::from_secs(5),
            deadline: Duration::from_secs(5),
            answers: 100_000,
            at_once: 128,
            at_once_per_cluster: 16,
            per_second: 100,
            burst: 2_000,
            waiting: 20_000,
        }
    }
}

/// Number of per-cluster queues at which the cache removes idle queues before it adds another.
const MAX_IDLE_QUEUES: usize = 4_096;

type Answer = Result<bool, ReviewError>;

/// Decides whether clusters allow an access, by cached answers or by access reviews.
pub struct ReviewCache {
    reviews: Arc<dyn Reviews>,
    options: ReviewCacheOptions,
    slots: Arc<Semaphore>,
    state: Mutex<State>,
    meter: Arc<ReviewMeter>,
    began: Instant,
}

struct State {
    /// Longest time that an answer is used: the option `kept`, unless [`ReviewCache::keep_for`] has changed it.
    kept: Duration,
    clusters: HashMap<ClusterName, ClusterQueue>,
    answers: HashMap<Arc<Review>, KeptAnswer>,
    /// Cached reviews, ordered by the time at which their answers expire.
    expiries: BTreeSet<(Instant, Arc<Review>)>,
    flights: Flights<Arc<Review>, Answer>,
}

/// Limits on the reviews that one cluster receives.
struct ClusterQueue {
    slots: Arc<Semaphore>,
    /// State of the rate limiter. Each review moves this time forward by `1 / per_second`, starting at the present if
    /// it is in the past. If it is then more than `burst / per_second` ahead of the present, the review waits.
    paid_until: Instant,
}

struct KeptAnswer {
    answer: Answer,
    since: Instant,
    until: Instant,
}

impl ReviewCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(reviews: Arc<dyn Reviews>, options: ReviewCacheOptions) -> Self {
        Self {
            reviews,
            options,
            slots: Arc::new(Semaphore::new(options.at_once)),
            state: Mutex::new(State::new(options.kept)),
            meter: Arc::default(),
            began: clock::now(),
        }
    }

    /// Returns whether a cluster allows an access. Asks the cluster, unless its answer is cached or in flight.
    ///
    /// # Errors
    /// [`ReviewError`] if the cluster has not answered. The caller must then deny the access.
    ///
    /// # Cancel safety
    /// Cancel safe: other callers of the same review continue.
    pub async fn decide(&self, review: Review) -> Result<bool, ReviewError> {
        let review = Arc::new(review);
        let (number, flight) = {
            let mut state = self.state.lock();
            let now = clock::now();
            if let Some(kept) = state.answers.get(&review).filter(|kept| now < kept.until) {
                self.meter.cached();
                return kept.answer.clone();
            }
            match state.flights.get(&review) {
                Some(flight) => {
                    self.meter.cached();
                    flight
                }
                None => self.begin(&mut state, &review)?,
            }
        };
        let answer = flight.await;
        let mut state = self.state.lock();
        if state.flights.end(&review, number) {
            let kept = match answer {
                Ok(_) => state.kept.mul_f64(1.0 - rng::unit() / 5.0),
                Err(_) => self.options.failure_kept,
            };
            let since = clock::now();
            let kept = KeptAnswer { answer: answer.clone(), since, until: since + kept };
            state.insert(review, kept, self.options.answers);
        }
        answer
    }

    /// Changes the longest time that an answer is used. A shorter time also applies to cached answers, a longer one only
    /// to new answers.
    pub fn keep_for(&self, kept: Duration) {
        self.state.lock().keep_for(kept);
    }

    /// Returns the time since the cache was created. Watches divide this time into equal periods. In each period, all
    /// watches repeat the same part of the reviews, so that they share the answers.
    #[must_use]
    pub fn age(&self) -> Duration {
        clock::now().duration_since(self.began)
    }

    /// Returns the counters of reviews.
    #[must_use]
    pub fn meter(&self) -> &ReviewMeter {
        &self.meter
    }

    /// Returns the clusters and namespaces that a user may read, by resource.
    ///
    /// Considers only cached answers that allow an access and have not expired, whether for a get, list or watch.
    #[must_use]
    pub fn allowed(&self, user: &User) -> BTreeMap<Gvr, Reviewed> {
        let (now, state) = (clock::now(), self.state.lock());
        let mut found: BTreeMap<Gvr, Reviewed> = BTreeMap::new();
        let is_allowed = |kept: &KeptAnswer| kept.answer == Ok(true) && now < kept.until;
        for (review, _) in state.answers.iter().filter(|(review, kept)| *review.user == *user && is_allowed(kept)) {
            let cluster = found.entry(review.resource.clone()).or_default().entry(review.cluster.clone()).or_default();
            match review.namespace.as_str() {
                "" => cluster.everywhere = Some(true),
                _ => drop(cluster.namespaces.insert(review.namespace.clone(), true)),
            }
        }
        found
    }

    fn begin(&self, state: &mut State, review: &Arc<Review>) -> Result<Flight<Answer>, ReviewError> {
        if state.flights.is_full(self.options.waiting) {
            return Err(ReviewError::Busy);
        }
        let (of_cluster, send_at) = state.queue(&review.cluster, &self.options).ok_or(ReviewError::Busy)?;
        let (slots, reviews, asked) = (Arc::clone(&self.slots), Arc::clone(&self.reviews), Arc::clone(review));
        let asking = async move {
            tokio::time::sleep_until(send_at).await;
            let _of_cluster = of_cluster.acquire().await.map_err(|_| ReviewError::Busy)?;
            let _slot = slots.acquire().await.map_err(|_| ReviewError::Busy)?;
            reviews.review(&asked).await
        };
        let (deadline, meter, began) = (self.options.deadline, Arc::clone(&self.meter), clock::now());
        let flight = async move {
            let answer = tokio::time::timeout(deadline, asking).await.unwrap_or(Err(ReviewError::Timeout));
            meter.answered(answer.as_ref().ok().copied(), clock::now().duration_since(began));
            answer
        };
        Ok(state.flights.begin(Arc::clone(review), flight.boxed()))
    }
}

impl State {
    fn new(kept: Duration) -> Self {
        Self {
            kept,
            clusters: HashMap::new(),
            answers: HashMap::new(),
            expiries: BTreeSet::new(),
            flights: Flights::default(),
        }
    }

    fn keep_for(&mut self, kept: Duration) {
        let before = std::mem::replace(&mut self.kept, kept);
        if kept >= before {
            return;
        }
        // Lifetimes are scaled, not capped, so that the answers still expire at different times.
        let share = kept.div_duration_f64(before);
        for held in self.answers.values_mut().filter(|held| held.answer.is_ok()) {
            held.until = held.since + held.until.duration_since(held.since).mul_f64(share);
        }
        self.expiries = self.answers.iter().map(|(review, held)| (held.until, Arc::clone(review))).collect();
    }

    /// Reserves a time to send one review to a cluster, as the rate limit permits. Returns this time and the semaphore
    /// that limits the cluster's reviews in flight.
    ///
    /// Returns `None`, without a reservation, if the review would have to wait longer than the deadline.
    fn queue(&mut self, cluster: &ClusterName, options: &ReviewCacheOptions) -> Option<(Arc<Semaphore>, Instant)> {
        let now = clock::now();
        if self.clusters.len() >= MAX_IDLE_QUEUES && !self.clusters.contains_key(cluster) {
            self.clusters.retain(|_, queue| now < queue.paid_until || Arc::strong_count(&queue.slots) > 1);
        }
        let queue = self.clusters.entry(cluster.clone()).or_insert_with(|| ClusterQueue {
            slots: Arc::new(Semaphore::new(options.at_once_per_cluster)),
            paid_until: now,
        });
        let each = Duration::from_secs(1) / options.per_second.max(1);
        let paid_until = queue.paid_until.max(now) + each;
        let send_at = now.max(paid_until.checked_sub(each * options.burst.max(1)).unwrap_or(now));
        if send_at.duration_since(now) >= options.deadline {
            return None;
        }
        queue.paid_until = paid_until;
        Some((Arc::clone(&queue.slots), send_at))
    }

    fn insert(&mut self, review: Arc<Review>, kept: KeptAnswer, most: usize) {
        let until = kept.until;
        if let Some(old) = self.answers.insert(Arc::clone(&review), kept) {
            self.expiries.remove(&(old.until, Arc::clone(&review)));
        }
        self.expiries.insert((until, review));
        while self.answers.len() > most {
            let Some((_, first)) = self.expiries.pop_first() else { return };
            self.answers.remove(&first);
        }
    }
}

impl fmt::Debug for ReviewCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReviewCache").field("reviews", &self.reviews).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use futures::future::BoxFuture;

    use super::*;
    use crate::meter::ReviewCounts;
    use crate::reader::Reader;
    use crate::review::{User, Verb};
    use informer_hub_types::Gvr;

    /// Simulated cluster whose answer depends on the review's namespace. It allows `yes…` and denies `no…`. Reviews of
    /// `slow…` and of all other namespaces fail. An answer takes 1 s; for `slow…`, 1 h.
    #[derive(Debug, Default)]
    struct SlowCluster {
        asked: AtomicU64,
        at_once: AtomicU64,
        most_at_once: AtomicU64,
    }

    #[derive(Debug)]
    struct Ask(Arc<SlowCluster>);

    impl Reviews for Ask {
        fn review(&self, review: &Review) -> BoxFuture<'static, Result<bool, ReviewError>> {
            let (cluster, namespace) = (Arc::clone(&self.0), review.namespace.clone());
            Box::pin(async move {
                cluster.asked.fetch_add(1, Relaxed);
                let now = cluster.at_once.fetch_add(1, Relaxed) + 1;
                cluster.most_at_once.fetch_max(now, Relaxed);
                let time = if namespace.starts_with("slow") { 3600 } else { 1 };
                tokio::time::sleep(Duration::from_secs(time)).await;
                cluster.at_once.fetch_sub(1, Relaxed);
                match namespace.split('-').next() {
                    Some("yes") => Ok(true),
                    Some("no") => Ok(false),
                    _ => Err(ReviewError::UnknownCluster),
                }
            })
        }
    }

    fn cache(options: ReviewCacheOptions) -> (Arc<ReviewCache>, Arc<SlowCluster>) {
        let cluster = Arc::new(SlowCluster::default());
        (Arc::new(ReviewCache::new(Arc::new(Ask(Arc::clone(&cluster))), options)), cluster)
    }

    fn review(namespace: &str) -> Review {
        Review {
            cluster: ClusterName::new("a").unwrap(),
            user: Arc::new(User::from(&Reader::unknown())),
            verb: Verb::List,
            resource: Gvr::new("", "v1", "pods"),
            namespace: namespace.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_is_asked_once_for_all_callers_until_its_answer_expires() {
        let (cache, cluster) = cache(ReviewCacheOptions::default());
        let asked = || cluster.asked.load(Relaxed);
        let all = futures::future::join_all((0..50).map(|_| cache.decide(review("yes")))).await;
        assert!(all.iter().all(|answer| *answer == Ok(true)));
        assert_eq!(asked(), 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!((cache.decide(review("yes")).await, asked()), (Ok(true), 1));
        assert_eq!((cache.decide(review("no")).await, asked()), (Ok(false), 2));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((cache.decide(review("yes")).await, asked()), (Ok(true), 3));
        assert_eq!(cache.meter().counts(), ReviewCounts { cached: 50, allowed: 2, denied: 1, failed: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn shorter_time_applies_to_kept_answers_and_a_longer_one_to_later_ones() {
        let (cache, cluster) = cache(ReviewCacheOptions::default());
        let asked = || cluster.asked.load(Relaxed);
        for namespace in ["yes", "no", "gone"] {
            let _ = cache.decide(review(namespace)).await;
        }
        cache.keep_for(Duration::from_secs(10));
        let failed = Err(ReviewError::UnknownCluster);
        assert_eq!((cache.decide(review("gone")).await, asked()), (failed, 3), "a failure has its own time");
        assert_eq!((cache.decide(review("yes")).await, asked()), (Ok(true), 3));
        tokio::time::advance(Duration::from_secs(11)).await;
        cache.keep_for(Duration::from_secs(600));
        assert_eq!((cache.decide(review("no")).await, asked()), (Ok(false), 4), "an expired answer is not used again");
        tokio::time::advance(Duration::from_secs(400)).await;
        assert_eq!((cache.decide(review("no")).await, asked()), (Ok(false), 4));
        assert_eq!((cache.decide(review("yes")).await, asked()), (Ok(true), 5));
        let state = cache.state.lock();
        assert_eq!((state.answers.len(), state.expiries.len()), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn late_caller_does_not_replace_a_newer_answer() {
        let (cache, cluster) = cache(ReviewCacheOptions::default());
        let mut late = Box::pin(cache.decide(review("yes")));
        assert!(futures::poll!(late.as_mut()).is_pending());
        assert_eq!(cache.decide(review("yes")).await, Ok(true));
        // The first answer expires before `late` is polled again. Then a third caller starts a new review.
        tokio::time::advance(Duration::from_secs(61)).await;
        let mut newer = Box::pin(cache.decide(review("yes")));
        assert!(futures::poll!(newer.as_mut()).is_pending());
        assert_eq!(late.await, Ok(true));
        assert_eq!(cache.state.lock().flights.len(), 1, "the newer review goes on");
        assert_eq!((newer.await, cluster.asked.load(Relaxed)), (Ok(true), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn allowed_accesses_of_a_user_are_known_while_their_answers_are_kept() {
        let (cache, _) = cache(ReviewCacheOptions::default());
        for namespace in ["yes-shop", "no-pay", "gone"] {
            let _ = cache.decide(review(namespace)).await;
        }
        let (user, pods) = (review("yes").user, review("yes").resource);
        let known = cache.allowed(&user);
        let places: Vec<_> =
            known[&pods].iter().map(|(name, it)| (name.as_str(), it.everywhere, it.namespaces.clone())).collect();
        assert_eq!((known.len(), places), (1, vec![("a", None, [("yes-shop".into(), true)].into())]));
        let other = User { name: "other".into(), ..User::clone(&user) };
        assert!(cache.allowed(&other).is_empty());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(cache.allowed(&user).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_deny_and_are_asked_again_soon() {
        let (cache, cluster) = cache(ReviewCacheOptions::default());
        let failed = Err(ReviewError::UnknownCluster);
        assert_eq!(cache.decide(review("gone")).await, failed);
        assert_eq!(cache.decide(review("gone")).await, failed);
        assert_eq!(cluster.asked.load(Relaxed), 1);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(cache.decide(review("gone")).await, failed);
        assert_eq!(cluster.asked.load(Relaxed), 2);
        assert_eq!(cache.decide(review("slow")).await, Err(ReviewError::Timeout));
        assert_eq!(cache.meter().counts().failed, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_review_is_asked_anew_and_others_are_not_disturbed() {
        let (cache, cluster) = cache(ReviewCacheOptions::default());
        let abandoned = tokio::time::timeout(Duration::from_millis(10), cache.decide(review("yes"))).await;
        assert!(abandoned.is_err());
        let (short, long) = tokio::join!(
            tokio::time::timeout(Duration::from_millis(10), cache.decide(review("yes"))),
            cache.decide(review("yes")),
        );
        assert!(short.is_err());
        assert_eq!((long, cluster.asked.load(Relaxed)), (Ok(true), 2));
    }

    fn review_of(cluster: &str, namespace: &str) -> Review {
        Review { cluster: ClusterName::new(cluster).unwrap(), ..review(namespace) }
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_cluster_delays_no_other() {
        let (cache, _) =
            cache(ReviewCacheOptions { at_once: 8, at_once_per_cluster: 2, ..ReviewCacheOptions::default() });
        let hanging = (0..100).map(|number| cache.decide(review_of("a", &format!("slow-{number}"))));
        let mut hanging = Box::pin(futures::future::join_all(hanging));
        assert!(futures::poll!(hanging.as_mut()).is_pending());
        let began = clock::now();
        let other = cache.decide(review_of("b", "yes"));
        let other = tokio::select! { answer = other => answer, _ = hanging => panic!("they hang") };
        assert_eq!((other, clock::now() - began), (Ok(true), Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_a_cluster_have_a_rate() {
        let options = ReviewCacheOptions { per_second: 10, burst: 20, ..ReviewCacheOptions::default() };
        let (cache, cluster) = cache(options);
        let began = clock::now();
        let ask = |number: usize| cache.decide(review_of("a", &format!("yes-{number}")));
        let first = futures::future::join_all((0..20).map(ask)).await;
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(clock::now() - began, Duration::from_secs(2), "16 at once, and 4 after them");
        // Two seconds later, a burst of 20 reviews is possible again. Further reviews wait if the wait ends before the
        // deadline.
        let next = futures::future::join_all((100..200).map(ask)).await;
        let count = |answer: &Answer| next.iter().filter(|found| *found == answer).count();
        let (answered, busy) = (count(&Ok(true)), count(&Err(ReviewError::Busy)));
        assert!((55..=61).contains(&answered) && (30..=31).contains(&busy), "{answered} {busy}");
        assert!(cluster.asked.load(Relaxed) <= 20 + 70);
        let other = cache.decide(review_of("b", "yes")).await;
        assert_eq!(other, Ok(true), "another cluster has its own");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_reviews_are_bounded() {
        let options = ReviewCacheOptions { answers: 10, at_once: 3, waiting: 12, ..ReviewCacheOptions::default() };
        let (cache, cluster) = cache(options);
        let ask = |number: usize| cache.decide(review(&format!("yes-{number}")));
        let all = futures::future::join_all((0..15).map(ask)).await;
        let busy = all.iter().filter(|answer| **answer == Err(ReviewError::Busy)).count();
        assert_eq!((busy, cluster.most_at_once.load(Relaxed)), (3, 3));
        let state = cache.state.lock();
        assert_eq!((state.answers.len(), state.expiries.len(), state.flights.len()), (10, 10, 0));
    }
}

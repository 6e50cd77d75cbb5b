//! Authentication of Kubernetes service accounts: their clusters review the tokens (`TokenReview`).
//!
//! A token is sent to clusters only if its claims name a service account and the configured audience (if any), and it
//! has not expired. Answers are cached by the token's hash. A cluster that does not answer authenticates no user.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::flights::{Flight, Flights};
use crate::jwt::Jwt;
use crate::meter::ReviewMeter;
use crate::review::{ReviewError, User};
use informer_hub_types::ClusterName;
use informer_hub_types::clock::{self, Instant};

/// How long a rejection is cached: briefly, because a cluster may not know a new service account yet.
const REFUSAL_KEPT: Duration = Duration::from_secs(10);
/// Longest time that a token waits for one of the `AT_ONCE` slots. Also the longest time to wait for a cluster's
/// answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of cached acceptances, and likewise of cached rejections.
const MAX_ANSWERS: usize = 10_000;
/// Maximum number of tokens that are reviewed at the same time.
const AT_ONCE: usize = 16;
/// Maximum number of tokens in review or queued. Further tokens are refused.
const WAITING: usize = 256;
/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Interface to the clusters: sends token reviews.
pub trait ReviewTokens: fmt::Debug + Send + Sync + 'static {
    /// Returns the user of a token; `None` if the cluster does not accept the token for this audience.
    fn review_token(
        &self,
        cluster: &ClusterName,
        token: &str,
        audience: Option<&str>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>>;
}

/// Settings of a [`TokenReviewer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenReviewSettings {
    /// Clusters that are asked about a token, all at once. If several accept it, the first in this order counts.
    pub clusters: Vec<ClusterName>,
    /// Audience that tokens must have; `None` means the apiserver's own.
    pub audience: Option<String>,
    /// How long an accepted token is cached.
    pub kept: Duration,
}

/// An authenticated service account of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceAccount {
    /// Cluster that accepted the token.
    pub cluster: ClusterName,
    /// User that the cluster reported for the token.
    pub user: User,
    /// When the token expires; `None` if the token has no expiry.
    pub expires: Option<Timestamp>,
}

/// Reason why a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusedToken {
    /// No cluster accepts the token.
    #[error("no cluster accepts the token")]
    Unknown,
    /// It is unknown whether the token is valid: a cluster has not answered, or too many tokens are in review.
    #[error("a cluster does not answer token reviews; try again")]
    Unanswered,
}

type Answer = Result<ServiceAccount, RefusedToken>;
type Key = [u8; 32];

/// Authenticates service accounts by their tokens, with a cache.
pub struct TokenReviewer {
    settings: TokenReviewSettings,
    clusters: Arc<dyn ReviewTokens>,
    slots: Arc<Semaphore>,
    state: Mutex<State>,
    meter: Arc<ReviewMeter>,
}

#[derive(Default)]
struct State {
    accepted: Kept,
    refused: Kept,
    flights: Flights<Key, Answer>,
}

/// Cached answers of one kind, acceptances or rejections. If there are more than `MAX_ANSWERS`, the answers that expire
/// first are dropped.
#[derive(Default)]
struct Kept {
    answers: HashMap<Key, (Instant, Answer)>,
    expiries: BTreeSet<(Instant, Key)>,
}

impl TokenReviewer {
    /// Creates a reviewer with an empty cache. It counts reviews in `meter`.
    #[must_use]
    pub fn new(settings: TokenReviewSettings, clusters: Arc<dyn ReviewTokens>, meter: Arc<ReviewMeter>) -> Self {
        Self { settings, clusters, slots: Arc::new(Semaphore::new(AT_ONCE)), state: Mutex::default(), meter }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &TokenReviewSettings {
        &self.settings
    }

    /// Authenticates the service account of a token.
    ///
    /// # Errors
    /// [`RefusedToken`] if no cluster accepts it in time.
    ///
    /// # Cancel safety
    /// Cancel safe: other callers with the same token continue to wait.
    pub async fn authenticate(&self, token: &str) -> Answer {
        let expires = self.may_be_known(token)?;
        let key: Key = Sha256::digest(token.as_bytes()).into();
        let (number, flight) = {
            let mut state = self.state.lock();
            if let Some(answer) = state.accepted.get(&key).or_else(|| state.refused.get(&key)) {
                self.meter.cached();
                return answer;
            }
            match state.flights.get(&key) {
                Some(flight) => {
                    self.meter.cached();
                    flight
                }
                None => self.begin(&mut state, key, token, expires)?,
            }
        };
        let answer = flight.await;
        let mut state = self.state.lock();
        if state.flights.end(&key, number) {
            let now = clock::now();
            match &answer {
                Ok(_) => state.accepted.insert(key, now + self.settings.kept, answer.clone()),
                Err(RefusedToken::Unknown) => state.refused.insert(key, now + REFUSAL_KEPT, answer.clone()),
                Err(RefusedToken::Unanswered) => {}
            }
        }
        answer
    }

    /// Checks the unverified claims of a token before clusters are asked. Returns the token's expiry; `None` if it has
    /// none.
    ///
    /// # Errors
    /// [`RefusedToken::Unknown`] if the token is not of a service account, has another audience, or has expired.
    fn may_be_known(&self, token: &str) -> Result<Option<Timestamp>, RefusedToken> {
        let jwt = Jwt::parse(token).ok_or(RefusedToken::Unknown)?;
        let subject = jwt.claims.get("sub").and_then(|sub| sub.as_str());
        let has_audience = self.settings.audience.as_deref().is_none_or(|audience| jwt.has_audience(audience));
        let expires = jwt.time("exp").map_err(|_| RefusedToken::Unknown)?;
        let is_over = expires.is_some_and(|expires| expires <= clock::wall());
        let is_account = subject.is_some_and(|subject| subject.starts_with(SERVICE_ACCOUNT));
        if is_account && has_audience && !is_over { Ok(expires) } else { Err(RefusedToken::Unknown) }
    }

    fn begin(
        &self,
        state: &mut State,
        key: Key,
        token: &str,
        expires: Option<Timestamp>,
    ) -> Result<Flight<Answer>, RefusedToken> {
        if state.flights.is_full(WAITING) {
            return Err(RefusedToken::Unanswered);
        }
        let audience = self.settings.audience.as_deref();
        let asking = self.settings.clusters.iter().map(|cluster| {
            let (asking, cluster) = (self.clusters.review_token(cluster, token, audience), cluster.clone());
            async move { (cluster, tokio::time::timeout(DEADLINE, asking).await.unwrap_or(Err(ReviewError::Timeout))) }
        });
        let (asking, slots) = (join_all(asking), Arc::clone(&self.slots));
        let (meter, began) = (Arc::clone(&self.meter), clock::now());
        let answering = async move {
            let waiting = tokio::time::timeout(DEADLINE, slots.acquire()).await;
            let Ok(Ok(_slot)) = waiting else { return Err(RefusedToken::Unanswered) };
            join(asking.await, expires)
        };
        let flight = async move {
            let answer = answering.await;
            let is_accepted = match &answer {
                Ok(_) => Some(true),
                Err(RefusedToken::Unknown) => Some(false),
                Err(RefusedToken::Unanswered) => None,
            };
            meter.answered(is_accepted, clock::now().duration_since(began));
            answer
        };
        Ok(state.flights.begin(key, flight.boxed()))
    }
}

/// Combines the clusters' answers about a token. Returns the service account of the first cluster that accepts the
/// token, or the reason why it is refused.
fn join(answers: Vec<(ClusterName, Result<Option<User>, ReviewError>)>, expires: Option<Timestamp>) -> Answer {
    let is_unanswered = answers.iter().any(|(_, answer)| answer.is_err());
    let mut accepted = answers.into_iter().filter_map(|(cluster, answer)| Some((cluster, answer.ok()??)));
    match accepted.find(|(_, user)| user.name.starts_with(SERVICE_ACCOUNT)) {
        Some((cluster, user)) => Ok(ServiceAccount { cluster, user, expires }),
        None if is_unanswered => Err(RefusedToken::Unanswered),
        None => Err(RefusedToken::Unknown),
    }
}

impl Kept {
    fn get(&self, key: &Key) -> Option<Answer> {
        let (until, answer) = self.answers.get(key)?;
        // The token itself may expire before its cached answer does.
        let is_over = |account: &ServiceAccount| account.expires.is_some_and(|expires| expires <= clock::wall());
        (clock::now() < *until && !answer.as_ref().is_ok_and(is_over)).then(|| answer.clone())
    }

    fn insert(&mut self, key: Key, until: Instant, answer: Answer) {
        if let Some((old, _)) = self.answers.insert(key, (until, answer)) {
            self.expiries.remove(&(old, key));
        }
        self.expiries.insert((until, key));
        while self.answers.len() > MAX_ANSWERS {
            let Some((_, first)) = self.expiries.pop_first() else { return };
            self.answers.remove(&first);
        }
    }
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "token_review_tests.rs"]
mod tests;

//! Access reviews of a request: asks each cluster what the reader of the request may see there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use smol_str::SmolStr;

use super::Rights;
use super::stream_check::RightsCheck;
use informer_hub_access::{
    Reader, ReaderOrigin, Review, ReviewError, Reviewed, ReviewedCluster, User, Verb, Visibility,
};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, Gvr};

/// Maximum number of namespaces of a cluster that are reviewed one by one. Objects in further namespaces are not
/// visible.
pub(in crate::api) const MAX_NAMESPACES: usize = 2_000;

/// A cluster with the namespaces that a request wants to read there.
#[derive(Clone, Debug)]
pub(in crate::api) struct Place {
    pub(in crate::api) cluster: ClusterName,
    pub(in crate::api) labels: ClusterLabels,
    pub(in crate::api) extent: Extent,
}

/// Namespaces that a request wants to read.
#[derive(Clone, Debug)]
pub(in crate::api) enum Extent {
    /// One namespace.
    Namespace(SmolStr),
    /// All namespaces of the cluster. If the reader may not read all namespaces at once, each namespace in the list is
    /// reviewed.
    All(Vec<SmolStr>),
}

impl Extent {
    /// Returns the extent that contains the namespace of an object. For an object without a namespace (`None`), it is
    /// the whole cluster.
    pub(in crate::api) fn of(namespace: Option<&str>) -> Self {
        namespace.map_or_else(|| Self::All(Vec::new()), |namespace| Self::Namespace(namespace.into()))
    }
}

impl Rights {
    /// Returns which objects of a resource a reader may see at `places`. Sends access reviews if the reader's rights come
    /// from the clusters.
    pub(in crate::api) async fn reviewed(
        &self,
        reader: &Reader,
        verb: Verb,
        resource: &ApiResource,
        places: Vec<Place>,
    ) -> Visibility {
        let visibility = self.visibility(reader, resource);
        if visibility.reviewed().is_none() {
            return visibility;
        }
        let user = Arc::new(User::from(reader));
        let asked = places.into_iter().filter(|place| is_known_there(reader, &place.cluster)).map(|place| {
            let (visibility, user) = (&visibility, Arc::clone(&user));
            async move {
                let review = Review {
                    cluster: place.cluster.clone(),
                    user,
                    verb,
                    resource: resource.gvr.clone(),
                    namespace: SmolStr::default(),
                };
                let cluster = place.cluster.clone();
                (cluster, self.review_place(visibility, place, review).await)
            }
        });
        let reviewed: Reviewed = join_all(asked).await.into_iter().collect();
        visibility.with_reviewed(reviewed)
    }

    async fn review_place(&self, visibility: &Visibility, place: Place, review: Review) -> ReviewedCluster {
        let (mut answers, labels) = (ReviewedCluster::default(), &place.labels);
        let is_known = |namespace: &str| visibility.sees_by_rules(&place.cluster, labels, Some(namespace));
        let namespaces = match place.extent {
            _ if visibility.sees_all_by_rules(&place.cluster, labels) => return answers,
            Extent::Namespace(namespace) => vec![namespace],
            Extent::All(namespaces) => match self.ask(review.clone()).await {
                Ok(is_allowed) => {
                    answers.everywhere = Some(is_allowed);
                    if is_allowed { Vec::new() } else { namespaces }
                }
                Err(error) => {
                    answers.failure = Some(error.to_string().into());
                    Vec::new()
                }
            },
        };
        let mut namespaces: Vec<_> = namespaces.into_iter().filter(|namespace| !is_known(namespace)).collect();
        if namespaces.len() > MAX_NAMESPACES {
            let text = format!("only {MAX_NAMESPACES} of {} namespaces were reviewed", namespaces.len());
            answers.failure = Some(text.into());
            namespaces.truncate(MAX_NAMESPACES);
        }
        let asked = namespaces.into_iter().map(|namespace| {
            let review = Review { namespace: namespace.clone(), ..review.clone() };
            async move { (namespace, self.ask(review).await) }
        });
        for (namespace, answer) in join_all(asked).await {
            match answer {
                Ok(is_allowed) => drop(answers.namespaces.insert(namespace, is_allowed)),
                Err(error) => answers.failure = Some(error.to_string().into()),
            }
        }
        answers
    }

    /// Returns the accesses of a reader that clusters have recently allowed, by resource. Empty for readers whose
    /// rights do not come from clusters.
    pub(super) fn allowed_lately(&self, reader: &Reader) -> BTreeMap<Gvr, Reviewed> {
        match &self.reviews {
            Some(reviews) if reader.grants().reviews => reviews.allowed(&User::from(reader)),
            _ => BTreeMap::new(),
        }
    }

    /// Returns the number of the present turn, the period of [`TURN`] in which a part of the denied accesses is
    /// reviewed again. All watches have the same turn.
    fn turn(&self) -> u64 {
        self.reviews.as_ref().map_or(0, |reviews| reviews.age().as_secs() / TURN.as_secs())
    }

    async fn ask(&self, review: Review) -> Result<bool, ReviewError> {
        match &self.reviews {
            Some(reviews) => reviews.decide(review).await,
            None => Err(ReviewError::Busy),
        }
    }
}

/// Consecutive checks with an unanswered review after which a watch ends.
const MAX_FAILURES: u32 = 3;

/// Length of a turn. In each turn, a part of the denied accesses is reviewed again.
const TURN: Duration = Duration::from_secs(10);

/// Number of turns in which each denied access is reviewed again once.
const TURNS: u64 = 60;

/// Reviews of a running watch: new namespaces are reviewed when they appear, known ones repeatedly.
///
/// Each check reviews the allowed accesses, so a revoked right ends the watch. A cluster is asked only if its cached
/// answer has expired. Denied accesses may be far more, so each is reviewed only once in [`TURNS`] turns. All watches
/// review the same accesses in a turn, so they share the answers.
#[derive(Debug)]
pub(in crate::api) struct Reviewer {
    rights: Rights,
    reader: Reader,
    verb: Verb,
    resource: ApiResource,
    /// Consecutive checks in which a review of an allowed access was not answered.
    failures: u32,
    /// Next turn (period of [`TURN`]) in which denied accesses are due. The accesses that were due in earlier turns
    /// have been reviewed again.
    turn: u64,
}

impl Rights {
    /// Returns the reviewer that repeats the access reviews of a watch.
    pub(in crate::api) fn reviewer(&self, reader: &Reader, verb: Verb, resource: &ApiResource) -> Reviewer {
        let (rights, reader, resource) = (self.clone(), reader.clone(), resource.clone());
        let turn = rights.turn();
        Reviewer { rights, reader, verb, resource, failures: 0, turn }
    }
}

impl Reviewer {
    /// Returns a periodic check whether the reader still has its rights.
    pub(in crate::api) fn check(&self) -> RightsCheck {
        self.rights.check(&self.reader)
    }

    /// Reviews the namespace of an object ([`Extent::of`]) and returns `known` with the result. Without an answer, the
    /// namespace is not visible.
    pub(in crate::api) async fn with(&self, known: &Visibility, place: Place) -> Visibility {
        let (cluster, extent) = (place.cluster.clone(), place.extent.clone());
        let visibility = self.rights.reviewed(&self.reader, self.verb, &self.resource, vec![place]).await;
        let answer = visibility.reviewed().and_then(|reviewed| reviewed.get(&cluster));
        let mut reviewed = known.reviewed().cloned().unwrap_or_default();
        let all = reviewed.entry(cluster).or_default();
        match extent {
            Extent::All(_) => all.everywhere = Some(answer.and_then(|answer| answer.everywhere).unwrap_or_default()),
            Extent::Namespace(namespace) => {
                let is_allowed = answer.and_then(|answer| answer.namespaces.get(&namespace));
                let is_allowed = is_allowed.copied().unwrap_or_default();
                all.namespaces.insert(namespace, is_allowed);
            }
        }
        known.with_reviewed(reviewed)
    }

    /// Reviews due accesses again, and returns whether the reader still has the same rights as in `known`.
    ///
    /// Returns false if an answer has changed, or if a cluster answers for the first time. Also returns false if
    /// reviews of allowed accesses were unanswered in [`MAX_FAILURES`] checks in a row.
    pub(in crate::api) async fn has_same(&mut self, known: &Visibility) -> bool {
        let Some(reviewed) = known.reviewed() else { return true };
        let user = Arc::new(User::from(&self.reader));
        let turns = self.turn..=self.rights.turn();
        self.turn = turns.end() + 1;
        let mut asked = Vec::new();
        for (cluster, answers) in reviewed.iter().filter(|(cluster, _)| is_known_there(&self.reader, cluster)) {
            let is_silent = answers.failure.is_some() && answers.everywhere.is_none() && answers.namespaces.is_empty();
            let known = |(namespace, is_allowed): (&SmolStr, &bool)| (namespace.clone(), Some(*is_allowed));
            let everywhere = if is_silent { Some(None) } else { answers.everywhere.map(Some) };
            let everywhere = everywhere.map(|was_allowed| (SmolStr::default(), was_allowed));
            let each = answers.namespaces.iter().map(known);
            let is_due = |(namespace, was_allowed): &(SmolStr, Option<bool>)| {
                *was_allowed != Some(false) || has_turn(cluster, namespace, &turns)
            };
            for (namespace, was_allowed) in everywhere.into_iter().chain(each).filter(is_due) {
                let (cluster, user, resource) = (cluster.clone(), Arc::clone(&user), self.resource.gvr.clone());
                let review = Review { cluster, user, verb: self.verb, resource, namespace };
                let rights = &self.rights;
                asked.push(async move { (was_allowed, rights.ask(review).await) });
            }
        }
        let answers = join_all(asked).await;
        let has_failed = answers.iter().any(|(was_allowed, answer)| *was_allowed == Some(true) && answer.is_err());
        self.failures = if has_failed { self.failures + 1 } else { 0 };
        let is_same = |(was_allowed, answer): &(Option<bool>, Result<bool, ReviewError>)| {
            answer.as_ref().map_or(true, |is_allowed| Some(*is_allowed) == *was_allowed)
        };
        self.failures < MAX_FAILURES && answers.iter().all(is_same)
    }
}

/// Returns whether a denied namespace is to be reviewed again in one of these turns, periods of [`TURN`].
fn has_turn(cluster: &ClusterName, namespace: &str, turns: &RangeInclusive<u64>) -> bool {
    let mut hasher = DefaultHasher::new();
    (cluster.as_str(), namespace).hash(&mut hasher);
    let own = hasher.finish() % TURNS;
    turns.clone().take(usize::try_from(TURNS).unwrap_or(usize::MAX)).any(|turn| turn % TURNS == own)
}

/// Returns whether a cluster may be asked about a reader. A service account is known only to its own cluster, since other
/// clusters may have accounts of the same name.
fn is_known_there(reader: &Reader, cluster: &ClusterName) -> bool {
    match reader.origin() {
        ReaderOrigin::ServiceAccount { cluster: own } => own == cluster,
        _ => true,
    }
}

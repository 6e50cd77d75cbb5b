//! Questions to a snapshot, and their answers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::filter::ObjectFilter;
use super::indexers::IndexError;
use super::posting::{PartitionId, Posting};
use super::snapshot::{Partition, Snapshot};
use crate::types::{
    ClusterName, ClusterSelector, Freshness, LabelSelector, Notification, Object, ObjectKey, Origin, Scope,
    StoredObject,
};

/// A question about one resource: which clusters, and which objects there.
///
/// Conditions add up. The cheapest way is taken: a key is looked up, an index value or a namespace is a range; only
/// a question without any of these looks at each object (its labels, never its bytes).
#[derive(Clone, Debug, Default)]
pub struct Query {
    clusters: ClusterSelector,
    scope: Option<Scope>,
    name: Option<String>,
    index: Option<(String, String)>,
    filter: ObjectFilter,
}

impl Query {
    /// All objects.
    #[must_use]
    pub fn list() -> Self {
        Self::default()
    }

    /// The object of this namespace (empty for a cluster-scoped one) and name, in each cluster that has it.
    #[must_use]
    pub fn get(namespace: &str, name: &str) -> Self {
        let query = Self { name: Some(name.to_owned()), ..Self::default() };
        if namespace.is_empty() { query } else { query.in_namespace(namespace) }
    }

    /// Objects that carry `value` in the index `index`, declared or computed.
    #[must_use]
    pub fn by_index(index: &str, value: &str) -> Self {
        Self { index: Some((index.to_owned(), value.to_owned())), ..Self::default() }
    }

    /// Objects of one namespace.
    #[must_use]
    pub fn by_namespace(namespace: &str) -> Self {
        Self::default().in_namespace(namespace)
    }

    /// Objects whose labels match.
    #[must_use]
    pub fn by_labels(labels: LabelSelector) -> Self {
        Self::default().with_labels(labels)
    }

    /// Only in this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.filter.namespace = Some(namespace.into());
        self
    }

    /// Only objects whose labels match.
    #[must_use]
    pub fn with_labels(mut self, labels: LabelSelector) -> Self {
        self.filter.labels = Some(labels);
        self
    }

    /// Only what the informers of exactly this scope have, whatever others watch of the resource.
    #[must_use]
    pub fn of_informers(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// In all clusters, which is also the default.
    #[must_use]
    pub fn across_clusters(self) -> Self {
        self.in_clusters(ClusterSelector::All)
    }

    /// Only in the selected clusters.
    #[must_use]
    pub fn in_clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = clusters;
        self
    }

    /// Whether the answer may take a walk over every object. See [`Snapshot::is_long`] for what an index adds to that.
    #[must_use]
    pub fn is_scan(&self) -> bool {
        self.index.is_none() && self.name.is_none()
    }
}

/// A question that cannot be answered; whoever asks can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No informer of the resource declares the index, and it is not a computed one.
    #[error("no index {index:?} is declared for {resource}; declared: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownIndex {
        /// The index asked for.
        index: String,
        /// The resource asked.
        resource: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The function of the index has no values for the object that was to be compared.
    #[error("index {index:?} has no values for {key}")]
    Unindexable {
        /// The index asked for.
        index: String,
        /// The object to be compared.
        key: ObjectKey,
        /// Why.
        #[source]
        source: IndexError,
    },
    /// The cache stopped before it answered.
    #[error("the cache is shutting down")]
    Stopped,
}

/// How far one cluster's part of an answer can be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// The cluster.
    pub cluster: ClusterName,
    /// The freshness of its stalest informer that the answer draws on.
    pub freshness: Freshness,
}

/// The answer to a [`Query`], from one snapshot.
pub struct Answer<K = crate::types::Dynamic> {
    /// The objects, by cluster, then key.
    pub items: Vec<Object<K>>,
    /// Every cluster that was asked for, by name, whether or not it has objects.
    pub coverage: Vec<Coverage>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Answer<K> {
    /// Whether every cluster's part is complete and fresh.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.coverage.iter().all(|part| part.freshness == Freshness::Synced)
    }

    /// The same answer with its objects read as another kind.
    #[must_use]
    pub fn cast<L>(self) -> Answer<L> {
        Answer { items: self.items.into_iter().map(Object::cast).collect(), coverage: self.coverage, kind: PhantomData }
    }

    /// The answer's objects as the initial notifications of a listener.
    pub fn into_initial(self) -> impl Iterator<Item = Notification<K>> {
        self.items.into_iter().map(|object| Notification::Added { object, initial: true })
    }
}

impl<K> fmt::Debug for Answer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("items", &self.items.len()).field("coverage", &self.coverage).finish()
    }
}

/// How many locations of an index value are looked at where the question is asked: well under a millisecond's worth.
const SHORT: usize = 1_000;

impl Snapshot {
    /// Whether an answer takes so long that it belongs on a thread of its own: it may be a walk over every object, or
    /// the index value is one that very many have. Itself it costs two look-ups.
    #[must_use]
    pub fn is_long(&self, query: &Query) -> bool {
        let posting = query.index.as_ref().and_then(|(index, value)| self.indices.posting(index, value));
        query.is_scan() || posting.is_some_and(|posting| posting.len() > SHORT)
    }

    /// Whether there is an index of this name.
    pub(super) fn check_index(&self, index: &str) -> Result<(), QueryError> {
        if self.partitions().any(|(_, partition)| partition.declares(index)) || self.index_fn(index).is_some() {
            return Ok(());
        }
        Err(QueryError::UnknownIndex {
            index: index.to_owned(),
            resource: self.resource().gvr.to_string(),
            known: self.index_names().iter().map(ToString::to_string).collect(),
        })
    }

    /// The object at a key, in the newest state that any of the selected informers has. Costs a look at each informer of
    /// the resource, and a look-up in those that are selected.
    pub(super) fn get_of(&self, key: &ObjectKey, is_selected: impl Fn(&Origin) -> bool) -> Option<Object> {
        let theirs = self.partitions().map(|(_, partition)| partition).filter(|it| is_selected(it.origin()));
        let mut newest: Option<(&Partition, &Arc<StoredObject>)> = None;
        for partition in theirs {
            let Some(stored) = partition.get(key) else { continue };
            if newest.is_none_or(|(_, best)| stored.resource_version().newer_than(best.resource_version())) {
                newest = Some((partition, stored));
            }
        }
        newest.map(|(partition, stored)| Object::new(Arc::clone(partition.origin()), Arc::clone(stored)))
    }

    /// Answers a question from this snapshot.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`] when there is no such index.
    pub fn answer(&self, query: &Query) -> Result<Answer, QueryError> {
        if let Some((index, _)) = &query.index {
            self.check_index(index)?;
        }
        let speaks =
            |partition: &Partition| query.index.as_ref().is_none_or(|(index, _)| self.has_index(partition, index));
        let selected = |origin: &Origin| {
            query.clusters.matches(&origin.cluster, &origin.cluster_labels)
                && query.scope.as_ref().is_none_or(|scope| *scope == origin.scope)
        };
        let mut asked: Vec<_> = self.partitions().filter(|(_, partition)| selected(partition.origin())).collect();
        asked.sort_by(|(_, a), (_, b)| a.origin().cluster.cmp(&b.origin().cluster));
        let posting = query.index.as_ref().and_then(|(index, value)| self.indices.posting(index, value));
        let mut items = Vec::new();
        let mut coverage: Vec<Coverage> = Vec::new();
        for cluster in asked.chunk_by(|(_, a), (_, b)| a.origin().cluster == b.origin().cluster) {
            let name = &cluster[0].1.origin().cluster;
            let cluster: Vec<_> = cluster.iter().filter(|(_, partition)| in_reach(query, partition)).collect();
            let begin = items.len();
            for (at, (id, partition)) in cluster.iter().enumerate() {
                let found = found(query, *id, partition, posting).filter(|stored| query.filter.matches(stored));
                let newest = found.filter(|stored| !is_superseded(&cluster, at, stored, speaks));
                items.extend(newest.map(|stored| Object::new(Arc::clone(partition.origin()), Arc::clone(stored))));
            }
            if cluster.len() > 1 {
                items[begin..].sort_by(|a, b| a.key().cmp(b.key()));
            }
            // Of a cluster whose informers all look elsewhere, nothing is known.
            let freshness = cluster.iter().map(|(_, partition)| trust(partition, speaks)).max_by_key(staleness);
            let freshness = freshness.unwrap_or(Freshness::Missing);
            coverage.push(Coverage { cluster: name.clone(), freshness });
        }
        for (cluster, labels) in self.expected() {
            if query.clusters.matches(cluster, labels) && !coverage.iter().any(|part| part.cluster == *cluster) {
                coverage.push(Coverage { cluster: cluster.clone(), freshness: Freshness::Missing });
            }
        }
        coverage.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        Ok(Answer { items, coverage, kind: PhantomData })
    }
}

/// Candidates of one partition, by key, on the cheapest way; `posting` is what the index has of the value, if one is
/// asked.
fn found<'s>(
    query: &'s Query,
    id: PartitionId,
    partition: &'s Partition,
    posting: Option<&'s Posting>,
) -> Box<dyn Iterator<Item = &'s Arc<StoredObject>> + 's> {
    if query.index.is_some() {
        let keys = posting.into_iter().flat_map(move |posting| posting.keys_in(id));
        Box::new(keys.filter_map(|key| partition.get(key)).filter(|stored| named(query, stored)))
    } else if let Some(name) = &query.name {
        let key = ObjectKey::new(query.filter.namespace.as_deref().unwrap_or(""), name);
        Box::new(partition.get(&key).into_iter())
    } else if let Some(namespace) = &query.filter.namespace {
        Box::new(partition.in_namespace(namespace))
    } else {
        Box::new(partition.iter())
    }
}

/// Informers of one cluster may overlap: whether another one has the object in a newer state. Of two states that are
/// as new, the one of the informer that was opened first counts. Asked of each match, since a newer state may not
/// match any more; informers of different namespaces are not even looked at.
fn is_superseded(
    cluster: &[&(PartitionId, &Partition)],
    at: usize,
    stored: &StoredObject,
    speaks: impl Fn(&Partition) -> bool,
) -> bool {
    let version = stored.resource_version();
    cluster.iter().enumerate().any(|(other, (_, partition))| {
        let watched = partition.origin().scope.namespace.as_deref();
        let may_have = watched.is_none() || watched == stored.key().namespace();
        other != at
            && may_have
            && speaks(partition)
            && partition
                .get(stored.key())
                .map(|state| state.resource_version())
                .is_some_and(|theirs| theirs.newer_than(version) || (other < at && !version.newer_than(theirs)))
    })
}

/// An informer that does not have the index asked for has nothing to say about it.
fn trust(partition: &Partition, speaks: impl Fn(&Partition) -> bool) -> Freshness {
    if speaks(partition) { partition.freshness() } else { Freshness::Missing }
}

/// Whether an informer can know of what is asked for.
fn in_reach(query: &Query, partition: &Partition) -> bool {
    let watched = partition.origin().scope.namespace.as_deref();
    match (&query.filter.namespace, watched) {
        (Some(asked), Some(watched)) => asked == watched,
        _ => true,
    }
}

fn named(query: &Query, stored: &StoredObject) -> bool {
    query.name.as_ref().is_none_or(|name| stored.key().name() == name)
}

fn staleness(freshness: &Freshness) -> (u8, i64) {
    match freshness {
        Freshness::Synced => (0, 0),
        Freshness::StaleSince { since } => (1, -since.as_millisecond()),
        Freshness::Missing => (2, 0),
    }
}

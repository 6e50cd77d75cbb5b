//! Queries: a question with the selected clusters, informers and limits.

use std::num::NonZeroUsize;
use std::time::Duration;

use smol_str::SmolStr;

use informer_hub_access::Visibility;
use informer_hub_query::{Column, Direction, Expr, Output, Question, TextTest};
use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Origin, Scope, Uid};

/// Limits of one answer. The defaults suit interactive callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Time limit, including the wait for other scans. Default 10 s. Only a cache enforces it; a query on a snapshot
    /// has no time limit.
    pub within: Duration,
    /// Maximum number of objects, rows, groups or values. More are an error, unless the query has a limit. Default 2
    /// million.
    pub items: usize,
    /// Approximate maximum bytes of values read from objects (rows, groups, sort keys). Default 64 MiB.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { within: Duration::from_secs(10), items: 2_000_000, bytes: 64 << 20 }
    }
}

/// A query for objects of one resource: the selected clusters, the conditions, and the output.
///
/// Conditions are combined with "and". The query uses the cheapest access path: it looks up a key or an index value, or
/// reads the range of keys in a namespace or with a name prefix. Otherwise it examines every object. The head (metadata
/// and index values) is examined first, and the body only if the head does not decide. [`Self::explain`] returns the
/// plan.
///
/// # Examples
///
/// ```
/// # mod informer_hub { pub use informer_hub_cache::Query; pub mod query { pub use informer_hub_query::Expr; } }
/// use informer_hub::Query;
/// use informer_hub::query::Expr;
///
/// let query = Query::by_index("by-node", "n1").in_namespace("shop").limit(50.try_into().unwrap());
/// let all_but = Query::matching(Expr::Not(Box::new(Expr::Labels("app=web".parse().unwrap())))).count();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub(super) question: Question,
    pub(super) clusters: ClusterSelector,
    pub(super) scope: Option<Scope>,
    pub(super) bounds: Bounds,
    pub(super) explain: bool,
    /// Name of the reader that asks the query, and the objects that it may see; `None` if it may see all.
    pub(super) reader: Option<(SmolStr, Visibility)>,
    /// Number of objects per piece of a scan. Set only by tests, to have many small pieces.
    pub(super) piece: Option<NonZeroUsize>,
}

impl From<Question> for Query {
    fn from(question: Question) -> Self {
        Self { question, ..Self::default() }
    }
}

impl Query {
    /// Returns a query for all objects.
    #[must_use]
    pub fn list() -> Self {
        Self::default()
    }

    /// Returns a query for objects that match a condition.
    #[must_use]
    pub fn matching(condition: Expr) -> Self {
        Self::from(Question::new(condition))
    }

    /// Returns a query for a namespace (empty for a cluster-scoped object) and name, in each cluster.
    #[must_use]
    pub fn get(namespace: &str, name: &str) -> Self {
        let is = |text: &str| TextTest::In(vec![text.into()]);
        Self::matching(Expr::And(vec![Expr::Namespace(is(namespace)), Expr::Name(is(name))]))
    }

    /// Returns a query for objects with `value` in the index `index`, declared or computed.
    #[must_use]
    pub fn by_index(index: &str, value: &str) -> Self {
        Self::matching(Expr::Index { index: index.into(), values: vec![value.into()] })
    }

    /// Returns a query for the objects of one namespace.
    #[must_use]
    pub fn by_namespace(namespace: &str) -> Self {
        Self::default().in_namespace(namespace)
    }

    /// Returns a query for objects with matching labels.
    #[must_use]
    pub fn by_labels(labels: LabelSelector) -> Self {
        Self::default().with_labels(labels)
    }

    /// Returns a query for the objects owned by the object of this UID. Reads every body, unless there is an index
    /// [`OWNER_INDEX`](super::OWNER_INDEX). A cache builds this index on first use.
    #[must_use]
    pub fn children_of(owner: &Uid) -> Self {
        Self::matching(Expr::OwnedBy(owner.clone()))
    }

    /// Adds a condition, which objects must match too.
    #[must_use]
    pub fn and(mut self, condition: Expr) -> Self {
        self.question.condition = match self.question.condition {
            Expr::All => condition,
            Expr::And(mut all) => {
                all.push(condition);
                Expr::And(all)
            }
            other => Expr::And(vec![other, condition]),
        };
        self
    }

    /// Restricts the query to a namespace; `""` means all.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        if namespace.is_empty() {
            return self;
        }
        self.and(Expr::Namespace(TextTest::In(vec![namespace.into()])))
    }

    /// Restricts the query to matching labels.
    #[must_use]
    pub fn with_labels(self, labels: LabelSelector) -> Self {
        self.and(Expr::Labels(labels))
    }

    /// Restricts the query to informers of exactly this scope.
    #[must_use]
    pub fn of_informers(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Selects all clusters, which is the default.
    #[must_use]
    pub fn across_clusters(self) -> Self {
        self.in_clusters(ClusterSelector::All)
    }

    /// Restricts the query to the selected clusters.
    #[must_use]
    pub fn in_clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = clusters;
        self
    }

    /// Adds an ascending sort path. Reads each object's body, unless the path is in the head (metadata).
    #[must_use]
    pub fn sort_by(self, path: FieldPath) -> Self {
        self.order_by(Column::Path(path), Direction::Ascending)
    }

    /// Adds a sort column. It orders the objects that have equal values in all sort columns added before.
    #[must_use]
    pub fn order_by(mut self, column: Column, direction: Direction) -> Self {
        self.question.order.push((column, direction));
        self
    }

    /// Limits the number of results; [`Answer::next`](super::Answer::next) continues.
    #[must_use]
    pub fn limit(mut self, limit: NonZeroUsize) -> Self {
        self.question.limit = Some(limit);
        self
    }

    /// Continues an earlier answer to the same question, on the snapshot of that answer.
    #[must_use]
    pub fn continue_at(mut self, token: impl Into<SmolStr>) -> Self {
        self.question.continue_token = Some(token.into());
        self
    }

    /// Makes the query return columns instead of whole objects, in [`Answer::rows`](super::Answer::rows).
    #[must_use]
    pub fn select(self, paths: impl IntoIterator<Item = FieldPath>) -> Self {
        self.output(Output::Columns(paths.into_iter().map(Column::Path).collect()))
    }

    /// Makes the query return the number of objects, in [`Answer::count`](super::Answer::count).
    #[must_use]
    pub fn count(self) -> Self {
        self.output(Output::Count)
    }

    /// Makes the query return the number of objects per value of a column, in
    /// [`Answer::groups`](super::Answer::groups).
    #[must_use]
    pub fn count_by(self, column: Column) -> Self {
        self.output(Output::CountBy(column))
    }

    /// Makes the query return the distinct values of a column, in [`Answer::groups`](super::Answer::groups).
    #[must_use]
    pub fn distinct(self, column: Column) -> Self {
        self.output(Output::Distinct(column))
    }

    /// Sets the output.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.question.output = output;
        self
    }

    /// Sets the limits on time, results and bytes.
    #[must_use]
    pub fn within(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Makes the query return only the [`Plan`](super::Plan) and the clusters, without results.
    #[must_use]
    pub fn explain(mut self) -> Self {
        self.explain = true;
        self
    }

    /// Restricts the query to what a reader may see, as if the cache had nothing else. Continue tokens are valid for
    /// this reader only.
    #[must_use]
    #[doc(hidden)]
    pub fn visible_to(mut self, reader: &str, visibility: Visibility) -> Self {
        self.reader = Some((reader.into(), visibility));
        self
    }

    /// Returns whether the objects of an informer may be in the answer.
    #[doc(hidden)]
    #[must_use]
    pub fn selects(&self, origin: &Origin) -> bool {
        self.clusters.matches(&origin.cluster, &origin.cluster_labels)
    }

    /// Returns the part of the clusters that the reader of the query may see; `None` if it may see everything.
    pub(super) fn visibility(&self) -> Option<&Visibility> {
        self.reader.as_ref().map(|(_, visibility)| visibility).filter(|visibility| !visibility.is_everything())
    }

    /// Returns whether only the plan is wanted.
    #[must_use]
    #[doc(hidden)]
    pub fn is_explained(&self) -> bool {
        self.explain
    }

    /// Sets the number of objects per piece of a scan.
    #[cfg(test)]
    pub(crate) fn in_pieces(mut self, objects: usize) -> Self {
        self.piece = NonZeroUsize::new(objects);
        self
    }

    /// Returns the question, without clusters and limits.
    #[must_use]
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Returns the limits.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns whether the query may scan every object, because no condition selects objects by name or index value.
    /// [`Snapshot::is_long`](crate::Snapshot::is_long) also considers the snapshot.
    #[must_use]
    pub fn is_scan(&self) -> bool {
        let conditions = match &self.question.condition {
            Expr::And(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        !conditions.iter().any(|one| matches!(one, Expr::Index { .. } | Expr::Name(TextTest::In(_))))
    }
}

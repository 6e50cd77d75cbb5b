//! Questions to the objects of one resource, and their answers.
//!
//! A [`Query`] is a [`Question`] and what else the asker decides: clusters, informers, bounds. The ways to an answer:
//! `view` says which informers are asked, `plan` where to look there, `condition` what an object's head
//! says; `inquiry` has the `job` done in `pieces` by any number of `worker`s, `gather` keeps what is found, `answer` is what comes
//! out. `token` and `held` go on where an answer ended, on the same snapshot.

mod answer;
mod condition;
mod error;
mod fields;
mod gather;
mod held;
mod inquiry;
mod job;
mod lookup;
mod memo;
mod owners;
mod pieces;
mod plan;
mod token;
mod view;
mod worker;

use std::num::NonZeroUsize;
use std::time::Duration;

use smol_str::SmolStr;

use informer_hub_query::{Column, Direction, Expr, Output, Question, TextTest};
use informer_hub_types::{ClusterSelector, FieldPath, LabelSelector, Scope, Uid};

pub use answer::{Answer, Coverage, Group, Row};
pub use error::QueryError;
pub use held::Held;
pub use inquiry::Inquiry;
pub use owners::{Broken, Chain, OwnerRef, owner_chain, owner_index};
pub use plan::{Looks, Plan, Step};
pub use token::{Fingerprint, Position, TokenKey};

/// The index that [`Expr::OwnedBy`] is answered from where there is one: the UIDs of an object's owners. Its function
/// is [`owner_index`].
pub const OWNER_INDEX: &str = "owner-uid";

/// What one answer may cost. The defaults are for a person or a program that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How long to wait for it, the wait for other scans included. Default 10 s. Only an asked cache sees to it: an
    /// answer from a snapshot in one's own hand takes the time that it takes.
    pub within: Duration,
    /// Objects, rows, groups or values in it at most; more are an error, unless the question has a limit. Default
    /// 2 million.
    pub items: usize,
    /// Bytes of what is read out of objects for it (rows, groups, what is sorted by), about. Default 64 MiB.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { within: Duration::from_secs(10), items: 2_000_000, bytes: 64 << 20 }
    }
}

/// A question about one resource: which clusters, which objects there, and what of them.
///
/// Conditions add up. The cheapest way is taken: a key is looked up, an index value, a namespace or the beginning of a
/// name is a range; only a question without any of these looks at each object, at its head first, and at its bytes
/// only where the head leaves it undecided. [`Self::explain`] says which way it would be.
///
/// # Examples
///
/// ```
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
    /// Objects in one piece of a walk, where a test wants many pieces of few objects.
    pub(super) piece: Option<NonZeroUsize>,
}

impl From<Question> for Query {
    fn from(question: Question) -> Self {
        Self { question, ..Self::default() }
    }
}

impl Query {
    /// All objects.
    #[must_use]
    pub fn list() -> Self {
        Self::default()
    }

    /// Objects that a condition holds for.
    #[must_use]
    pub fn matching(condition: Expr) -> Self {
        Self::from(Question::new(condition))
    }

    /// The object of this namespace (empty for a cluster-scoped one) and name, in each cluster that has it.
    #[must_use]
    pub fn get(namespace: &str, name: &str) -> Self {
        let is = |text: &str| TextTest::In(vec![text.into()]);
        Self::matching(Expr::And(vec![Expr::Namespace(is(namespace)), Expr::Name(is(name))]))
    }

    /// Objects that carry `value` in the index `index`, declared or computed.
    #[must_use]
    pub fn by_index(index: &str, value: &str) -> Self {
        Self::matching(Expr::Index { index: index.into(), values: vec![value.into()] })
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

    /// Objects that the object of this UID owns. Costs a look at every object's bytes, unless there is an index
    /// [`OWNER_INDEX`]; a cache makes one when it is first asked.
    #[must_use]
    pub fn children_of(owner: &Uid) -> Self {
        Self::matching(Expr::OwnedBy(owner.clone()))
    }

    /// Only objects that this holds for too.
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

    /// Only in this namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.and(Expr::Namespace(TextTest::In(vec![namespace.into()])))
    }

    /// Only objects whose labels match.
    #[must_use]
    pub fn with_labels(self, labels: LabelSelector) -> Self {
        self.and(Expr::Labels(labels))
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

    /// Sorted by one more path, the least first. Costs a look at each object's bytes, unless its head says it.
    #[must_use]
    pub fn sort_by(self, path: FieldPath) -> Self {
        self.order_by(Column::Path(path), Direction::Ascending)
    }

    /// Sorted by one more column.
    #[must_use]
    pub fn order_by(mut self, column: Column, direction: Direction) -> Self {
        self.question.order.push((column, direction));
        self
    }

    /// At most this many; [`Answer::next`] is how to go on.
    #[must_use]
    pub fn limit(mut self, limit: NonZeroUsize) -> Self {
        self.question.limit = Some(limit);
        self
    }

    /// Goes on where an answer to the same question ended, on the snapshot of that answer.
    #[must_use]
    pub fn continue_at(mut self, token: impl Into<SmolStr>) -> Self {
        self.question.continue_token = Some(token.into());
        self
    }

    /// Answers with these columns instead of whole objects: [`Answer::rows`].
    #[must_use]
    pub fn select(self, paths: impl IntoIterator<Item = FieldPath>) -> Self {
        self.output(Output::Columns(paths.into_iter().map(Column::Path).collect()))
    }

    /// Answers with how many objects there are: [`Answer::count`].
    #[must_use]
    pub fn count(self) -> Self {
        self.output(Output::Count)
    }

    /// Answers with how many objects there are of each value: [`Answer::groups`].
    #[must_use]
    pub fn count_by(self, column: Column) -> Self {
        self.output(Output::CountBy(column))
    }

    /// Answers with the values that there are: [`Answer::groups`].
    #[must_use]
    pub fn distinct(self, column: Column) -> Self {
        self.output(Output::Distinct(column))
    }

    /// Answers with something else than whole objects.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.question.output = output;
        self
    }

    /// With other bounds than the usual ones.
    #[must_use]
    pub fn within(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Looks for nothing: the answer has the [`Plan`], and the clusters it would be about.
    #[must_use]
    pub fn explain(mut self) -> Self {
        self.explain = true;
        self
    }

    /// Worked off in pieces of so many objects.
    #[cfg(test)]
    pub(crate) fn in_pieces(mut self, objects: usize) -> Self {
        self.piece = NonZeroUsize::new(objects);
        self
    }

    /// The question without who asks it how.
    #[must_use]
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// What the answer may cost.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether the answer may take a walk over every object: nothing in the question leads to some of them. See
    /// [`super::Snapshot::is_long`] for what a snapshot adds to that.
    #[must_use]
    pub fn is_scan(&self) -> bool {
        let conditions = match &self.question.condition {
            Expr::And(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        !conditions.iter().any(|one| matches!(one, Expr::Index { .. } | Expr::Name(TextTest::In(_))))
    }
}

//! Analysis of a condition before a query: which indices and fields it uses, and which clusters and namespaces it
//! excludes.

use super::error::QueryError;
use crate::snapshot::Snapshot;
use informer_hub_query::{Expr, TextTest};
use informer_hub_types::{ClusterLabels, ClusterName, FieldPath, LabelNeeds};

/// Returns whether a condition tests the owners of objects anywhere.
pub(super) fn asks_owners(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().any(asks_owners),
        Expr::Not(part) => asks_owners(part),
        Expr::OwnedBy(_) => true,
        _ => false,
    }
}

/// Properties that all objects of a set have. A condition that fails for these properties excludes the whole set.
pub(super) struct Known<'k> {
    pub(super) cluster: &'k ClusterName,
    pub(super) labels: &'k ClusterLabels,
    /// Namespace of all objects of the set; `None` if the objects may be in different namespaces.
    pub(super) namespace: Option<&'k str>,
}

/// A condition with the indices and paths that it uses. The caller must first reject a condition that is nested more
/// deeply than a matcher allows.
pub(super) struct Condition<'q> {
    pub(super) expr: &'q Expr,
    indexes: Vec<&'q str>,
    /// Paths of the fields that the condition tests, each path once.
    pub(super) paths: Vec<FieldPath>,
    names_clusters: bool,
    /// Whether the condition tests owners.
    pub(super) asks_owners: bool,
    /// Requirements on the labels of matching objects.
    pub(super) needs: LabelNeeds,
}

impl<'q> Condition<'q> {
    /// Analyses a condition.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`] if the snapshot lacks an index of the condition.
    pub(super) fn new(expr: &'q Expr, snapshot: &Snapshot) -> Result<Self, QueryError> {
        let mut condition = Self {
            expr,
            indexes: Vec::new(),
            paths: Vec::new(),
            names_clusters: false,
            asks_owners: false,
            needs: needs(expr),
        };
        condition.collect(expr, snapshot)?;
        Ok(condition)
    }

    fn collect(&mut self, expr: &'q Expr, snapshot: &Snapshot) -> Result<(), QueryError> {
        match expr {
            Expr::And(all) | Expr::Or(all) => all.iter().try_for_each(|one| self.collect(one, snapshot))?,
            Expr::Not(one) => self.collect(one, snapshot)?,
            Expr::Cluster(_) => self.names_clusters = true,
            Expr::OwnedBy(_) => self.asks_owners = true,
            Expr::Index { index, .. } => {
                snapshot.check_index(index)?;
                self.indexes.push(index);
            }
            Expr::Field { path, .. } if !self.paths.contains(path) => self.paths.push(path.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Returns the names of the condition's indices.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &'q str> {
        self.indexes.iter().copied()
    }

    /// Returns whether no object with these properties can match.
    pub(super) fn rules_out(&self, known: &Known<'_>) -> bool {
        (self.names_clusters || known.namespace.is_some()) && evaluate(self.expr, known) == Some(false)
    }
}

/// Evaluates a condition on known properties of a set of objects. Returns `None` if the properties do not decide.
///
/// An empty `And` or `Or` also returns `None`. So such a condition excludes no cluster, and all clusters appear in the
/// coverage.
fn evaluate(expr: &Expr, known: &Known<'_>) -> Option<bool> {
    let parts = |parts: &[Expr], decisive: bool| {
        let mut decided = !parts.is_empty();
        for part in parts {
            match evaluate(part, known) {
                Some(holds) if holds == decisive => return Some(decisive),
                Some(_) => {}
                None => decided = false,
            }
        }
        decided.then_some(!decisive)
    };
    match expr {
        Expr::And(all) => parts(all, false),
        Expr::Or(any) => parts(any, true),
        Expr::Not(one) => evaluate(one, known).map(|holds| !holds),
        Expr::Cluster(selector) => Some(selector.matches(known.cluster, known.labels)),
        Expr::Namespace(test) => known.namespace.map(|namespace| passes(test, namespace)),
        _ => None,
    }
}

/// Returns the label requirements that every object matching a condition fulfils.
fn needs(expr: &Expr) -> LabelNeeds {
    match expr {
        Expr::And(all) => all.iter().map(needs).fold(LabelNeeds::default(), LabelNeeds::and),
        Expr::Or(any) => LabelNeeds::any(any.iter().map(needs)),
        Expr::Labels(selector) => LabelNeeds::of(selector),
        _ => LabelNeeds::default(),
    }
}

fn passes(test: &TextTest, namespace: &str) -> bool {
    match test {
        TextTest::In(list) => list.iter().any(|one| one == namespace),
        TextTest::Prefix(prefix) => namespace.starts_with(prefix.as_str()),
    }
}

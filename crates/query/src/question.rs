//! A whole question: which objects, in which order, how many, and what of them.

use std::num::NonZeroUsize;

use smol_str::SmolStr;

use super::Expr;
use informer_hub_types::FieldPath;

/// A question to the objects of one resource in all clusters.
///
/// Built in Rust, or parsed from the text that it displays as. The default asks for every object, in the order of
/// clusters, namespaces and names, which is also what decides between objects that the asked order finds equal.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Question {
    /// Which objects.
    pub condition: Expr,
    /// In which order: by the first column, where that is equal by the second, and so on.
    pub order: Vec<(Column, Direction)>,
    /// How many objects, or groups, or values at most; `None` for all that a whole answer may have.
    pub limit: Option<NonZeroUsize>,
    /// Where the previous answer ended, as it said itself: goes on from there, on the same snapshot.
    pub continue_token: Option<SmolStr>,
    /// What to answer with.
    pub output: Output,
}

/// One thing that can be said of an object, to sort, group or show it by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Column {
    /// The name of its cluster.
    Cluster,
    /// What a path leads to. Sorted by the first value, the missing before all others; grouped by each value.
    Path(FieldPath),
}

/// Which end comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// The least first.
    #[default]
    Ascending,
    /// The greatest first.
    Descending,
}

/// What an answer is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// The objects.
    #[default]
    Objects,
    /// Of each object these columns: no value, one, or several each.
    Columns(Vec<Column>),
    /// How many objects there are.
    Count,
    /// How many objects there are of each value. An object with several values counts once for each that differs, one
    /// without a value counts for `null`.
    CountBy(Column),
    /// The values that there are, each once; `null` is none.
    Distinct(Column),
}

impl Question {
    /// Asks for the objects that `condition` holds for.
    #[must_use]
    pub fn new(condition: Expr) -> Self {
        Self { condition, ..Self::default() }
    }

    /// Sorts by one more column, after those before it.
    #[must_use]
    pub fn order_by(mut self, column: impl Into<Column>, direction: Direction) -> Self {
        self.order.push((column.into(), direction));
        self
    }

    /// At most this many in one answer.
    #[must_use]
    pub fn limit(mut self, limit: NonZeroUsize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Goes on where an earlier answer to the same question ended.
    #[must_use]
    pub fn continue_at(mut self, token: impl Into<SmolStr>) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// Answers with `output` instead of whole objects.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }
}

impl From<Expr> for Question {
    fn from(condition: Expr) -> Self {
        Self::new(condition)
    }
}

impl From<FieldPath> for Column {
    fn from(path: FieldPath) -> Self {
        Self::Path(path)
    }
}

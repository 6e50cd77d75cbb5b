//! A complete query: condition, order, limit and output.

use std::num::NonZeroUsize;

use smol_str::SmolStr;

use super::Expr;
use informer_hub_types::FieldPath;

/// A query over the objects of one resource in all clusters.
///
/// It is built in Rust or parsed from a text; its `Display` form can be parsed again. The default selects every object,
/// ordered by cluster, namespace and name. Objects that are equal in a requested order are sorted in this way too.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Question {
    /// Condition that selects the objects.
    pub condition: Expr,
    /// Sort columns, most significant first.
    pub order: Vec<(Column, Direction)>,
    /// Largest number of objects, groups or values in an answer. If `None`, an answer with more than the hub's maximum
    /// is an error.
    pub limit: Option<NonZeroUsize>,
    /// Continue token of the previous answer. The new answer continues after the previous one, on the same snapshot.
    pub continue_token: Option<SmolStr>,
    /// Form of the answer, such as objects, columns or a count.
    pub output: Output,
}

/// A value of an object to sort, group or display by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Column {
    /// The name of the object's cluster.
    Cluster,
    /// The values at a path. Sorting uses the first value, and treats a missing value as the smallest. Grouping uses
    /// each value.
    Path(FieldPath),
}

/// Sort direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first.
    Descending,
}

/// The form of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// The selected objects.
    #[default]
    Objects,
    /// These columns of each object. A column may have no value, one, or several.
    Columns(Vec<Column>),
    /// Only the number of objects.
    Count,
    /// The number of objects per value of a column. An object counts once for each of its distinct values, or for
    /// `null` if it has none.
    CountBy(Column),
    /// The distinct values of a column, without `null`.
    Distinct(Column),
}

impl Question {
    /// Creates a query for the objects that match `condition`.
    #[must_use]
    pub fn new(condition: Expr) -> Self {
        Self { condition, ..Self::default() }
    }

    /// Adds a sort column. It orders only objects that are equal in the columns added before.
    #[must_use]
    pub fn order_by(mut self, column: impl Into<Column>, direction: Direction) -> Self {
        self.order.push((column.into(), direction));
        self
    }

    /// Limits the size of an answer.
    #[must_use]
    pub fn limit(mut self, limit: NonZeroUsize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the continue token that an earlier answer to the same query returned. The new answer begins where that
    /// answer ended.
    #[must_use]
    pub fn continue_at(mut self, token: impl Into<SmolStr>) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// Sets the form of the answer, such as objects, columns or a count.
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

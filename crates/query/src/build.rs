//! Constructors for expressions built in Rust.

use std::ops::Not;

use smol_str::SmolStr;

use super::{Expr, Literal, Test, TextTest};
use informer_hub_types::{ClusterName, ClusterSelector, FieldPath, LabelSelector, Uid};

impl Expr {
    /// Matches objects of this cluster.
    #[must_use]
    pub fn cluster(name: ClusterName) -> Self {
        Self::Cluster(ClusterSelector::Names(vec![name]))
    }

    /// Matches objects in this namespace; the empty text matches cluster-scoped objects.
    #[must_use]
    pub fn namespace(name: impl Into<SmolStr>) -> Self {
        Self::Namespace(TextTest::In(vec![name.into()]))
    }

    /// Matches objects with this name.
    #[must_use]
    pub fn name(name: impl Into<SmolStr>) -> Self {
        Self::Name(TextTest::In(vec![name.into()]))
    }

    /// Matches objects whose name has this prefix.
    #[must_use]
    pub fn name_prefix(start: impl Into<SmolStr>) -> Self {
        Self::Name(TextTest::Prefix(start.into()))
    }

    /// Matches objects whose labels match the selector.
    #[must_use]
    pub fn labels(selector: LabelSelector) -> Self {
        Self::Labels(selector)
    }

    /// Matches objects that have this value in the index.
    #[must_use]
    pub fn index(index: impl Into<SmolStr>, value: impl Into<SmolStr>) -> Self {
        Self::Index { index: index.into(), values: vec![value.into()] }
    }

    /// Matches objects whose field passes the test.
    #[must_use]
    pub fn field(path: FieldPath, test: Test) -> Self {
        Self::Field { path, test }
    }

    /// Matches objects with an owner of this UID.
    #[must_use]
    pub fn owned_by(owner: Uid) -> Self {
        Self::OwnedBy(owner)
    }

    /// Joins two expressions by `and`. If `self` is an `and` already, `other` becomes one of its conditions.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::All => other,
            Self::And(mut exprs) => {
                exprs.push(other);
                Self::And(exprs)
            }
            this => Self::And(vec![this, other]),
        }
    }

    /// Joins two expressions by `or`. If `self` is an `or` already, `other` becomes one of its conditions.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Or(mut exprs) => {
                exprs.push(other);
                Self::Or(exprs)
            }
            this => Self::Or(vec![this, other]),
        }
    }
}

impl Not for Expr {
    type Output = Self;

    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }
}

impl Test {
    /// Tests for equality.
    #[must_use]
    pub fn is(literal: impl Into<Literal>) -> Self {
        Self::Is(literal.into())
    }

    /// Tests for equality with any of these values.
    #[must_use]
    pub fn one_of<L: Into<Literal>>(literals: impl IntoIterator<Item = L>) -> Self {
        Self::In(literals.into_iter().map(Into::into).collect())
    }
}

impl Literal {
    /// Creates a Kubernetes quantity. [`Matcher::new`](super::Matcher::new) checks its syntax.
    #[must_use]
    pub fn quantity(text: impl Into<SmolStr>) -> Self {
        Self::Quantity(text.into())
    }
}

impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Literal {
    fn from(value: i32) -> Self {
        Self::Number(value.into())
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_expression_equals_parsed_text() {
        let path = |text: &str| text.parse::<FieldPath>().unwrap();
        let built = Expr::namespace("shop")
            .and(Expr::labels("app=web".parse().unwrap()))
            .and(Expr::field(path("spec.replicas"), Test::is(3)).or(Expr::name_prefix("web-")).or(Expr::name("x")))
            .and(!Expr::index("by-node", "n1"))
            .and(Expr::field(path("status.phase"), Test::one_of(["Failed", "Unknown"])))
            .and(Expr::field(path("a"), Test::AtLeast(Literal::quantity("500m"))))
            .and(Expr::owned_by(Uid::new("u")).and(Expr::cluster(ClusterName::new("eu").unwrap())));
        let written = "namespace = shop and labels(app=web) and (spec.replicas = 3 or name prefix web- or name = x) and \
                       not index by-node = n1 and status.phase in (\"Failed\", \"Unknown\") and a >= 500m and (owned-by u \
                       and cluster = eu)";
        assert_eq!(built.to_string(), written);
        assert_eq!(written.parse(), Ok(built.clone()));
        assert_eq!(Expr::All.and(built.clone()), built);
    }
}

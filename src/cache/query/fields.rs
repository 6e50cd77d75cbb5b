//! Conditions on fields that an index has the values of.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use smol_str::{SmolStr, ToSmolStr};

use super::view::View;
use crate::cache::snapshot::Snapshot;
use informer_hub_query::{Expr, Literal, Test};
use informer_hub_types::FieldPath;

/// The same condition, where an index of all informers asked has what a field is compared with: put to that index.
///
/// An index has texts as they are and numbers and booleans as they are written. So where a text cannot be anything else,
/// the index decides; where it may be another value written alike, what has it in the index is looked at.
pub(super) fn with_indices<'q>(expr: &'q Expr, snapshot: &Snapshot, view: &View<'_>) -> Cow<'q, Expr> {
    let all_of = |parts: &'q [Expr]| {
        let parts: Vec<_> = parts.iter().map(|part| with_indices(part, snapshot, view)).collect();
        let is_new = parts.iter().any(|part| matches!(part, Cow::Owned(_)));
        is_new.then(|| parts.into_iter().map(Cow::into_owned).collect::<Vec<_>>())
    };
    let new = match expr {
        Expr::And(parts) => all_of(parts).map(Expr::And),
        Expr::Or(parts) => all_of(parts).map(Expr::Or),
        Expr::Not(part) => match with_indices(part, snapshot, view) {
            Cow::Owned(part) => Some(Expr::Not(Box::new(part))),
            Cow::Borrowed(_) => None,
        },
        Expr::Field { path, test } => by_index(path, test, snapshot, view),
        _ => None,
    };
    new.map_or(Cow::Borrowed(expr), Cow::Owned)
}

fn by_index(path: &FieldPath, test: &Test, snapshot: &Snapshot, view: &View<'_>) -> Option<Expr> {
    let (literals, negative) = match test {
        Test::Is(literal) => (std::slice::from_ref(literal), false),
        Test::IsNot(literal) => (std::slice::from_ref(literal), true),
        Test::In(literals) => (literals.as_slice(), false),
        Test::NotIn(literals) => (literals.as_slice(), true),
        _ => return None,
    };
    let values: Vec<_> = literals.iter().map(written).collect::<Option<_>>()?;
    let index = snapshot.index_of(path, view.speakers().map(|(_, member)| member.partition))?;
    let decides = literals.iter().all(is_nothing_else);
    let index = Expr::Index { index: index.as_str().into(), values };
    match (decides, negative) {
        (true, false) => Some(index),
        (true, true) => Some(Expr::Not(Box::new(index))),
        (false, false) => Some(Expr::And(vec![index, Expr::Field { path: path.clone(), test: test.clone() }])),
        // Most objects do not have the value, and of those that do the bytes tell.
        (false, true) => {
            let field = Expr::Field { path: path.clone(), test: test.clone() };
            Some(Expr::Or(vec![Expr::Not(Box::new(index)), field]))
        }
    }
}

/// The one way in which a value is written in an index. A number has many.
fn written(literal: &Literal) -> Option<SmolStr> {
    match literal {
        Literal::Bool(value) => Some(value.to_smolstr()),
        Literal::Text(text) => Some(text.clone()),
        Literal::Number(_) | Literal::Quantity(_) => None,
    }
}

/// Whether what is written so is this text: no number, nor `true` or `false`.
fn is_nothing_else(literal: &Literal) -> bool {
    matches!(literal, Literal::Text(text) if serde_json::from_str::<IgnoredAny>(text).is_err())
}

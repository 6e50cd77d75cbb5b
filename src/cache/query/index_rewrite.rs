//! Conversion of field conditions to index conditions.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use smol_str::{SmolStr, ToSmolStr};

use super::view::View;
use crate::snapshot::Snapshot;
use informer_hub_query::{Expr, Literal, Test};
use informer_hub_types::FieldPath;

/// Replaces comparisons of a field by lookups in an index of the field's path, if all selected informers have one.
///
/// All index values are texts. A number or boolean is indexed in its JSON form, so the string `true` and the boolean
/// have the same index value. If a compared text is not valid JSON, only a string can have it, and the index lookup
/// alone decides. Otherwise each object that the lookup finds is examined too.
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
    let values: Vec<_> = literals.iter().map(index_form).collect::<Option<_>>()?;
    let index = snapshot.index_of(path, view.answering().map(|(_, member)| member.partition))?;
    let decides = literals.iter().all(is_text_only);
    let index = Expr::Index { index: index.as_str().into(), values };
    match (decides, negative) {
        (true, false) => Some(index),
        (true, true) => Some(Expr::Not(Box::new(index))),
        (false, false) => Some(Expr::And(vec![index, Expr::Field { path: path.clone(), test: test.clone() }])),
        // Objects without the index value match, and their bodies are not read. Bodies decide for the rest.
        (false, true) => {
            let field = Expr::Field { path: path.clone(), test: test.clone() };
            Some(Expr::Or(vec![Expr::Not(Box::new(index)), field]))
        }
    }
}

/// Returns the index value that equals a literal. `None` for numbers and quantities, which can be written in several
/// ways.
fn index_form(literal: &Literal) -> Option<SmolStr> {
    match literal {
        Literal::Bool(value) => Some(value.to_smolstr()),
        Literal::Text(text) => Some(text.clone()),
        Literal::Number(_) | Literal::Quantity(_) => None,
    }
}

/// Returns whether a literal is a text that only strings can have as index value: it is no JSON number or boolean.
fn is_text_only(literal: &Literal) -> bool {
    matches!(literal, Literal::Text(text) if serde_json::from_str::<IgnoredAny>(text).is_err())
}

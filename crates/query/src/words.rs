//! Keywords of the query language, and detection of misspelled keywords.

use super::error::nearest;

/// Keywords that begin a clause.
pub(super) const CLAUSES: &[&str] = &["order", "limit", "continue", "select", "count", "distinct"];
/// Keywords that begin a condition, and so are not read as paths there.
pub(super) const TERMS: &[&str] = &["all", "cluster", "index", "labels", "name", "namespace", "not", "owned-by", "uid"];
/// Keywords that follow a path.
pub(super) const OPERATORS: &[&str] = &["in", "notin", "not", "contains", "prefix", "exists"];
/// Keywords unlike any usual field name: `namespce = shop` is a typo, not a test of a field that every object lacks.
pub(super) const DISTINCTIVE: &[&str] = &["cluster", "index", "labels", "namespace", "owned-by"];

/// Returns whether a path is spelled nearly like a keyword. A path in brackets is always a field name.
pub(super) fn is_likely_typo(path: &str) -> bool {
    !path.contains(['.', '[']) && nearest(path, DISTINCTIVE).is_some()
}

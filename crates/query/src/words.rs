//! Keywords of the query language, and detection of misspelled keywords.

use super::error::nearest;

/// Keywords that begin a clause.
pub(super) const CLAUSES: &[&str] = &["order", "limit", "continue", "select", "count", "distinct"];
/// Keywords that begin a condition. Where a condition begins, these words are never field paths.
pub(super) const TERMS: &[&str] = &["all", "cluster", "index", "labels", "name", "namespace", "not", "owned-by", "uid"];
/// Keywords that follow a path.
pub(super) const OPERATORS: &[&str] = &["in", "notin", "not", "contains", "prefix", "exists"];
/// Keywords that no usual field name resembles. So `namespce` in `namespce = shop` is reported as a typo, instead of
/// being read as a field.
pub(super) const DISTINCTIVE: &[&str] = &["cluster", "index", "labels", "namespace", "owned-by"];

/// Returns whether a path is spelled nearly like a keyword. A path in brackets is always a field name.
pub(super) fn is_likely_typo(path: &str) -> bool {
    !path.contains(['.', '[']) && nearest(path, DISTINCTIVE).is_some()
}

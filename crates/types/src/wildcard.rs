//! Patterns of texts with `*`.

/// Returns whether a text matches a pattern, in which `*` stands for any number of characters, also none. Takes the
/// first match of each part between two `*`, without backtracking.
#[must_use]
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let Some((middle, last)) = rest.rsplit_once('*') else { return text.ends_with(rest) };
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

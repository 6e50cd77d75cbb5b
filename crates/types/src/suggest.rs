//! Suggestions for misspelt names ("did you mean").

/// Maximum bytes of a text for which a suggestion is searched, which bounds the cost.
const LONGEST: usize = 64;

/// Returns the name in `known` closest to `text`. Returns `None` if no name is close enough, or if `text` is longer
/// than 64 bytes.
///
/// The edit distance of a close name is at most a third of the number of characters of `text`, and at most `most`. A
/// distance of one is always close enough.
#[must_use]
pub fn nearest_name<'k>(text: &str, known: impl IntoIterator<Item = &'k str>, most: usize) -> Option<&'k str> {
    if text.len() > LONGEST {
        return None;
    }
    let text = text.to_lowercase();
    let bound = (text.chars().count() / 3).clamp(1, most.max(1));
    let distance = |candidate: &'k str| (strsim::damerau_levenshtein(&text, candidate), candidate);
    known.into_iter().map(distance).filter(|(distance, _)| *distance <= bound).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_returned_within_the_distance_bound() {
        let known = ["namespaces", "resync", "name"];
        assert_eq!(nearest_name("namespace", known, 3), Some("namespaces"));
        assert_eq!(nearest_name("RESNYC", known, 3), Some("resync"));
        assert_eq!(nearest_name("nmae", known, 3), Some("name"));
        assert_eq!(nearest_name("colour", known, 3), None);
        assert_eq!((nearest_name("nomospecas", known, 3), nearest_name("nomospecas", known, 2)), (None, None));
        assert_eq!(
            (nearest_name("namspcs", ["namespaces"], 3), nearest_name("namspacs", ["namespaces"], 2)),
            (None, Some("namespaces"))
        );
        assert_eq!(nearest_name(&"a".repeat(65), ["a"], 100), None);
    }
}

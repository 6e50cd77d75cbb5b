//! Cluster names for contexts, and patterns that select contexts.

use std::collections::BTreeSet;

/// Maximum length of the name of a cluster.
const MAX_LENGTH: usize = 63;

/// Returns a valid cluster name that is close to the name of the context: invalid characters become `-`. If the name is
/// in `taken`, a number is appended. Adds the result to `taken`.
pub(super) fn name_for(context: &str, taken: &mut BTreeSet<String>) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let text: String = context.chars().map(legal).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).trim_end_matches('-');
    let text = if text.is_empty() { "cluster" } else { text };
    let cut = |room: usize| text.chars().take(room).collect::<String>();
    let mut name = cut(MAX_LENGTH);
    let mut number = 2;
    while !taken.insert(name.clone()) {
        let suffix = format!("-{number}");
        name = cut(MAX_LENGTH - suffix.len()) + &suffix;
        number += 1;
    }
    name
}

/// Whether a text matches a pattern, in which `*` is any text and `?` any one character.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Position of the last star, for another attempt if the text after it does not match.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::ClusterName;

    #[test]
    fn every_context_gets_a_unique_valid_name() {
        let mut taken = BTreeSet::new();
        let long = "x".repeat(80);
        let contexts = ["prod", "arn:aws:eks:eu-west-1:12:cluster/prod", "prod", "/", "@@", "", "ü-1", &long, &long];
        let names: Vec<_> = contexts.iter().map(|context| name_for(context, &mut taken)).collect();
        let (cut, second) = ("x".repeat(63), "x".repeat(61) + "-2");
        let expected = [
            "prod",
            "arn-aws-eks-eu-west-1-12-cluster-prod",
            "prod-2",
            "cluster",
            "cluster-2",
            "cluster-3",
            "1",
            &cut,
            &second,
        ];
        assert_eq!(names, expected);
        assert!(names.iter().all(|name| ClusterName::new(name).is_ok()));
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text) in
            [("a", "a"), ("*", ""), ("*", "a/b"), ("a*", "abc"), ("*c", "abcc"), ("a*b*c", "aXbYbc"), ("a?c", "abc")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("", "a"), ("a*b", "abc"), ("a?", "a"), ("*a", "ab")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}

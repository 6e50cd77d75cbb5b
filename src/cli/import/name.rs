//! Names of the hub's own for contexts, and which contexts a pattern means.

use std::collections::BTreeSet;

/// Longest name of a cluster.
const LONGEST: usize = 63;

/// A legal name that is nobody else's, as near to the context's as can be: what is not allowed becomes `-`.
pub(super) fn name_for(context: &str, taken: &mut BTreeSet<String>) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let text: String = context.chars().map(legal).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).trim_end_matches('-');
    let text = if text.is_empty() { "cluster" } else { text };
    let cut = |room: usize| text.chars().take(room).collect::<String>();
    let mut name = cut(LONGEST);
    let mut number = 2;
    while !taken.insert(name.clone()) {
        let suffix = format!("-{number}");
        name = cut(LONGEST - suffix.len()) + &suffix;
        number += 1;
    }
    name
}

/// Whether a text is what a pattern means, in which `*` is any text and `?` any one character.
pub(super) fn is_meant(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last star does not fit.
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
    fn every_context_gets_a_legal_name_of_its_own() {
        let mut taken = BTreeSet::new();
        let long = "x".repeat(80);
        let contexts = ["prod", "arn:aws:eks:eu-west-1:12:cluster/prod", "prod", "/", "@@", "", "ü-1", &long, &long];
        let names: Vec<_> = contexts.iter().map(|context| name_for(context, &mut taken)).collect();
        let (cut, second) = ("x".repeat(63), "x".repeat(61) + "-2");
        let wanted = [
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
        assert_eq!(names, wanted);
        assert!(names.iter().all(|name| ClusterName::new(name).is_ok()));
    }

    #[test]
    fn a_pattern_means_what_a_shell_would_mean() {
        for (pattern, text) in
            [("a", "a"), ("*", ""), ("*", "a/b"), ("a*", "abc"), ("*c", "abcc"), ("a*b*c", "aXbYbc"), ("a?c", "abc")]
        {
            assert!(is_meant(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("", "a"), ("a*b", "abc"), ("a?", "a"), ("*a", "ab")] {
            assert!(!is_meant(pattern, text), "{pattern} {text}");
        }
    }
}

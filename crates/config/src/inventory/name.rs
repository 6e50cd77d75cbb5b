//! Derivation of valid cluster names from names of other tools.

use sha2::{Digest, Sha256};

use informer_hub_types::ClusterName;

/// Maximum length of a cluster name.
const LONGEST: usize = 63;

/// Derives a valid name from a text. Invalid characters become `-`; a text that is too long is cut and ends with a hash of
/// the whole text. Equal texts give equal names. Returns `None` for a text without letters and digits.
#[must_use]
pub fn name_for(text: &str) -> Option<ClusterName> {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        let legal = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if legal {
            name.push(c);
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).trim_end_matches('-');
    if name.len() <= LONGEST {
        return ClusterName::new(name).ok();
    }
    let hash = Sha256::digest(text);
    let hash = hash.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    ClusterName::new(format!("{}-{hash:08x}", &name[..LONGEST - 9])).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use informer_hub_testing::properties;

    fn named(text: &str) -> Option<String> {
        name_for(text).map(|name| name.as_str().to_owned())
    }

    #[test]
    fn name_stays_close_to_the_text() {
        for (text, wanted) in [
            ("prod-eu", "prod-eu"),
            ("https://1.2.3.4:6443", "https-1.2.3.4-6443"),
            ("arn:aws:eks:eu-west-1:12:cluster/prod", "arn-aws-eks-eu-west-1-12-cluster-prod"),
            ("@@a@@", "a"),
            ("..x", "x"),
        ] {
            assert_eq!(named(text).as_deref(), Some(wanted));
        }
        assert_eq!(named("/-_"), None);
        assert_eq!(named(""), None);
    }

    #[test]
    fn long_texts_with_a_common_prefix_get_different_names() {
        let (one, other) = ("x".repeat(80) + "1", "x".repeat(80) + "2");
        assert_ne!(named(&one), named(&other));
        assert_eq!(named(&one).map(|name| name.len()), Some(63));
    }

    proptest! {
        #![proptest_config(properties(64))]

        #[test]
        fn derived_name_is_valid_and_valid_names_are_unchanged(text in ".{0,90}", valid in "[a-z0-9][A-Za-z0-9._]{0,61}[a-z]") {
            let _ = name_for(&text);
            prop_assert_eq!(named(&valid), Some(valid));
        }
    }
}

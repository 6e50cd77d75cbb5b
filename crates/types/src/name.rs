//! Names of clusters, their labels, and the rule for all names that the hub defines.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Labels of a cluster, from the configuration or the source that discovered the cluster.
pub type ClusterLabels = BTreeMap<String, String>;

/// The hub's own name for a cluster: 1–63 characters of `A–Z a–z 0–9 . _ -`, the first a letter or a digit.
///
/// Cheap to clone. Ordered by text, which is the order of query results across clusters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(Arc<str>);

/// Error for an invalid name; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
#[non_exhaustive]
pub struct InvalidName {
    /// Kind of name, e.g. `cluster name`.
    pub what: &'static str,
    /// The invalid text.
    pub text: String,
    /// Rule that the text breaks.
    pub rule: &'static str,
}

/// Checks the name of a cluster, sink or durable subscriber. Names become parts of file names and paths. So a name must
/// not contain a slash, start with a dot (a hidden file, or `..`) or look like a command-line option.
///
/// # Errors
/// [`InvalidName`] with the rule.
pub fn check_name(what: &'static str, text: &str) -> Result<(), InvalidName> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && text.len() <= 63 && text.chars().all(legal) {
        return Ok(());
    }
    let rule = "1 to 63 characters out of A-Z, a-z, 0-9, '.', '_' and '-', the first a letter or a digit";
    Err(InvalidName { what, text: text.to_owned(), rule })
}

/// Returns whether a text is a DNS label of RFC 1123, the form of a namespace's name.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    text.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// Returns the first ten names, then how many more there are, to keep log lines short.
#[must_use]
pub fn first_names<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

impl ClusterName {
    /// Checks `text` and creates a name.
    ///
    /// # Errors
    /// [`InvalidName`] if `text` breaks the rule in the type's documentation.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        check_name("cluster name", text).map(|()| Self(text.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for ClusterName {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for ClusterName {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_rejected() {
        for good in ["a", "prod-eu", "kind_1", "0.example", &"x".repeat(63)] {
            assert_eq!(ClusterName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".", "..", ".hidden", "a b", "a/b", "ü", &"x".repeat(64)] {
            assert!(ClusterName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dns_label_has_at_most_63_characters_and_no_dot() {
        assert!(is_dns_label("kube-system") && is_dns_label("1"));
        for bad in ["", "-a", "a-", "A", "a.b", &"x".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }

    #[test]
    fn first_names_shows_ten_names_and_counts_the_others() {
        let names: Vec<_> = (0..12).map(|number| format!("n{number}")).collect();
        assert_eq!(first_names(&names[..2]), "n0, n1");
        assert_eq!(first_names(&names[..10]), names[..10].join(", "));
        assert!(first_names(&names).ends_with("n8, n9 and 2 more"));
        assert_eq!(first_names::<&str>(&[]), "");
    }
}

//! Mistakes in a configuration, with position, problem and suggestion, as text and as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use informer_hub_types::nearest_name;

/// All mistakes in a configuration; never empty. The author of the configuration can fix them.
///
/// Displays one mistake per line, then their count: first the mistakes in the file by line, then those in environment
/// variables. Never contains the value of a secret. Serializes as the list of [`Mistake`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
#[non_exhaustive]
pub struct ConfigErrors {
    mistakes: Vec<Mistake>,
}

/// Mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The configuration file; `None` for a configuration given as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Line in the file, from 1; `None` if no line is wrong: a key is missing, or the value is from the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column in characters, from 1; `None` without a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Environment variable that set the wrong value; `None` if the value is from the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The key in TOML notation, e.g. `resources.pods.namespaces[1]`; empty if the text is not TOML.
    pub key: String,
    /// Description of the problem and its correction.
    pub problem: String,
}

impl ConfigErrors {
    /// Sorts the mistakes. Returns `None` if there are none.
    pub(super) fn new(mut mistakes: Vec<Mistake>) -> Option<Self> {
        let place = |m: &Mistake| (m.variable.clone(), m.line.unwrap_or(usize::MAX), m.column);
        mistakes.sort_by_key(place);
        mistakes.dedup();
        (!mistakes.is_empty()).then_some(Self { mistakes })
    }

    /// Creates the error of a single mistake.
    pub(super) fn of(mistake: Mistake) -> Self {
        Self { mistakes: vec![mistake] }
    }

    /// Returns the mistakes in display order.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            writeln!(f, "{mistake}")?;
        }
        let count = self.mistakes.len();
        write!(f, "{count} {} in the configuration", if count == 1 { "mistake" } else { "mistakes" })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().unwrap_or(Path::new("configuration"));
        match (&self.variable, self.line) {
            (Some(variable), _) => write!(f, "environment {variable}: ")?,
            (None, Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (None, None) => write!(f, "{}: ", file.display())?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

/// Returns the known word nearest to the text; `None` if none is similar.
pub(super) fn nearest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest_name(text, known, 3)
}

/// Formats a suggestion to append to an error: the nearest known word, or else all known words.
pub(super) fn suggestion<'k>(text: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> String {
    if let Some(meant) = nearest(text, known.clone()) {
        return format!("; did you mean {meant:?}?");
    }
    let known: Vec<_> = known.into_iter().collect();
    if known.is_empty() { String::new() } else { format!("; known: {}", known.join(", ")) }
}

/// Formats the error of an unknown word, with a suggestion. `what` is the noun for the word, such as `encoding`.
pub(super) fn unknown(what: &str, text: &str, known: &[&'static str]) -> String {
    format!("there is no {what} {text:?}{}", suggestion(text, known.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(line: Option<usize>, variable: Option<&str>, key: &str) -> Mistake {
        Mistake {
            file: Some("hub.toml".into()),
            line,
            column: line,
            variable: variable.map(str::to_owned),
            key: key.into(),
            problem: "wrong".into(),
        }
    }

    #[test]
    fn mistakes_are_sorted_by_line_then_environment() {
        let errors = ConfigErrors::new(vec![
            mistake(None, Some("INFORMER_HUB_HUB__LISTEN"), "hub.listen"),
            mistake(None, None, "clusters"),
            mistake(Some(10), None, "b"),
            mistake(Some(9), None, "a"),
            mistake(Some(9), None, "a"),
        ]);
        let wanted = "hub.toml:9: a: wrong\nhub.toml:10: b: wrong\nhub.toml: clusters: wrong\n\
                      environment INFORMER_HUB_HUB__LISTEN: hub.listen: wrong\n4 mistakes in the configuration";
        assert_eq!(errors.unwrap().to_string(), wanted);
        assert!(ConfigErrors::new(Vec::new()).is_none());
    }

    #[test]
    fn errors_serialize_as_a_list() {
        let errors = ConfigErrors::new(vec![mistake(Some(3), None, "a.b")]).unwrap();
        let json = serde_json::to_value(&errors).unwrap();
        let wanted =
            serde_json::json!([{ "file": "hub.toml", "line": 3, "column": 3, "key": "a.b", "problem": "wrong" }]);
        assert_eq!(json, wanted);
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let known = ["namespaces", "resync", "drop"];
        assert_eq!(nearest("namespace", known), Some("namespaces"));
        assert_eq!(suggestion("colour", known), "; known: namespaces, resync, drop");
    }
}

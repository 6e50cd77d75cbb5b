//! Mistakes in a configuration: where each is, what is wrong, what would be right; for people and for JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use informer_hub_types::nearest_name;

/// Everything that is wrong with a configuration; never empty. The user of the configuration can fix it.
///
/// Displays one block per mistake, by line, those of the environment last, with a count at the end.
/// Never holds the value of a secret. Serialises as the list of its [`Mistake`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors {
    mistakes: Vec<Mistake>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The file; unset for a configuration that came as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Line in the file, from 1; unset where no line is at fault (something is missing, or the environment said it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column in that line in characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The environment variable that gave the value, where it was not the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The key as TOML writes it, e.g. `resources.pods.namespaces[1]`; empty when the text is not TOML at all.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl ConfigErrors {
    /// Sorts the mistakes; `None` when there are none.
    pub(super) fn new(mut mistakes: Vec<Mistake>) -> Option<Self> {
        let place = |m: &Mistake| (m.variable.clone(), m.line.unwrap_or(usize::MAX), m.column);
        mistakes.sort_by_key(place);
        mistakes.dedup();
        (!mistakes.is_empty()).then_some(Self { mistakes })
    }

    /// The error of a single mistake.
    pub(super) fn of(mistake: Mistake) -> Self {
        Self { mistakes: vec![mistake] }
    }

    /// The mistakes, in the order of their display.
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

/// The key or word that was meant, by what was written.
pub(super) fn nearest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest_name(text, known, 3)
}

/// `; did you mean "x"?`, or what else there is.
pub(super) fn suggestion<'k>(text: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> String {
    if let Some(meant) = nearest(text, known.clone()) {
        return format!("; did you mean {meant:?}?");
    }
    let known: Vec<_> = known.into_iter().collect();
    if known.is_empty() { String::new() } else { format!("; there is {}", known.join(", ")) }
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
    fn mistakes_are_listed_by_line_then_those_without_one_then_the_environment() {
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
    fn errors_serialise_as_a_list_for_machines() {
        let errors = ConfigErrors::new(vec![mistake(Some(3), None, "a.b")]).unwrap();
        let json = serde_json::to_value(&errors).unwrap();
        let wanted =
            serde_json::json!([{ "file": "hub.toml", "line": 3, "column": 3, "key": "a.b", "problem": "wrong" }]);
        assert_eq!(json, wanted);
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let known = ["namespaces", "resync", "drop"];
        assert_eq!(nearest("namespace", known), Some("namespaces"));
        assert_eq!(suggestion("colour", known), "; there is namespaces, resync, drop");
    }
}

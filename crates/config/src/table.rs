//! Parser of one table of the raw configuration, key by key, so that every mistake is found.
//!
//! A wrong value is reported and then treated as not given, so that later checks still run. A configuration with a mistake
//! is never returned, so the substitute is never used.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use figment::value::{Dict, Value};

use super::error::{Mistake, nearest, suggestion, unknown};
use super::probes::Probes;
use super::raw::{Environment, Raw};
use super::spans::KeyPath;
use super::units::{ByteSize, HumanDuration};

/// Context of all checks: the values, their origins, and the collected mistakes.
pub(super) struct Checker<'c> {
    /// The configuration file; `None` for a configuration given as text.
    pub(super) file: Option<&'c Path>,
    /// Base directory of relative paths.
    pub(super) folder: &'c Path,
    /// Home directory of the user, for `~`.
    pub(super) home: Option<PathBuf>,
    /// Environment for secrets; `None` does not look them up.
    pub(super) environment: Option<&'c Environment>,
    /// Additional checks of values.
    pub(super) probes: Option<Probes>,
    /// Whether named files, directories and variables must exist.
    pub(super) check_references: bool,
    pub(super) raw: &'c Raw,
    /// Mistakes found so far, each with the path of its key.
    pub(super) mistakes: RefCell<Vec<(KeyPath, Mistake)>>,
}

impl Checker<'_> {
    /// Reports a mistake at a key.
    pub(super) fn mistake(&self, path: &KeyPath, problem: impl Display) {
        let variable = self.variable(path);
        let position = if variable.is_some() { None } else { self.raw.spans.find(path) };
        let mistake = Mistake {
            file: if variable.is_some() { None } else { self.file.map(Path::to_owned) },
            line: position.map(|p| p.line),
            column: position.map(|p| p.column),
            variable,
            key: path.to_string(),
            problem: problem.to_string(),
        };
        self.mistakes.borrow_mut().push((path.clone(), mistake));
    }

    /// Returns whether no mistake was found at a key or below it.
    pub(super) fn is_clean(&self, path: &KeyPath) -> bool {
        !self.mistakes.borrow().iter().any(|(wrong, _)| wrong.0.starts_with(&path.0))
    }

    /// Returns the name of the environment variable that has set the key at `path`, or a table that contains the key.
    /// If the file lacks the key, a variable that has set a key below it counts too.
    fn variable(&self, path: &KeyPath) -> Option<String> {
        let origins = &self.raw.origins;
        let above = path.ancestors().find_map(|path| origins.get(&path));
        let below = || {
            let first = origins.range(path..).next().filter(|(key, _)| key.0.starts_with(&path.0));
            first.filter(|_| !self.raw.spans.has(path)).map(|(_, origin)| origin)
        };
        above.or_else(below).map(|origin| origin.variable.clone())
    }
}

/// A table of the raw configuration, without the keys that were already taken from it.
pub(super) struct Table<'c> {
    pub(super) checker: &'c Checker<'c>,
    pub(super) path: KeyPath,
    values: Dict,
    known: Vec<&'static str>,
}

impl<'c> Table<'c> {
    /// Wraps a table. Reports any other kind of value as a mistake, and treats it as an empty table.
    pub(super) fn new(checker: &'c Checker<'c>, path: KeyPath, value: Value) -> Self {
        let values = match value {
            Value::Dict(_, values) => values,
            other => {
                let is_of_names = path.0.len() == 1 && path.to_string() != "hub";
                let instead = match other {
                    Value::Array(..) if is_of_names => format!("; write [{path}.NAME] for each, in single brackets"),
                    _ => String::new(),
                };
                checker.mistake(&path, format!("expected a table, found {}{instead}", kind(&other)));
                Dict::new()
            }
        };
        Self { checker, path, values, known: Vec::new() }
    }

    /// Reports a mistake at a key of this table, or at the table if the key is missing.
    pub(super) fn mistake(&self, key: &str, problem: impl Display) {
        self.checker.mistake(&self.path.key(key), problem);
    }

    /// Removes and returns the value of a key. From then on, the key is suggested for similar unknown keys.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// Returns whether a key is given and not taken yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Returns whether a key is a table that is not empty, and not taken yet.
    pub(super) fn has_entries(&self, key: &str) -> bool {
        self.values.get(key).and_then(Value::as_dict).is_some_and(|table| !table.is_empty())
    }

    /// Returns which of these keys are given. Reports more than one as a mistake, since they exclude each other.
    pub(super) fn chosen<'k>(&self, keys: &[&'k str]) -> Vec<&'k str> {
        let given: Vec<_> = keys.iter().copied().filter(|key| self.has(key)).collect();
        if let [first, second, ..] = given[..] {
            self.checker.mistake(&self.path, format!("has {first} and {second}; keep one of them"));
        }
        given
    }

    /// Returns whether the table has none of these keys, and no key that may be a misspelling of one.
    ///
    /// Returns false if the table has a mistake already, so that a misspelt key is not also reported as missing.
    pub(super) fn lacks(&self, keys: &[&str]) -> bool {
        let meant = |given: &String| nearest(given, keys.iter().copied()).is_some();
        self.checker.is_clean(&self.path) && !self.values.keys().any(meant)
    }

    /// Returns whether all keys have been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the keys that have not been taken.
    pub(super) fn names(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// Reads a key whose value is a table.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'c>> {
        let value = self.take(key)?;
        Some(Table::new(self.checker, self.path.key(key), value))
    }

    /// Iterates over a table with user-defined keys. Yields name, path and value of each entry.
    pub(super) fn entries(self) -> impl Iterator<Item = (String, KeyPath, Value)> + use<'c> {
        let path = self.path;
        self.values.into_iter().map(move |(key, value)| {
            let path = path.key(&key);
            (key, path, value)
        })
    }

    /// Reads a non-empty string.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.take(key)?;
        text(self.checker, &self.path.key(key), &value)
    }

    /// Reads a string that `T` parses. If parsing fails, the error text of `T` becomes the mistake.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let text = self.text(key)?;
        text.parse().map_err(|e| self.mistake(key, e)).ok()
    }

    /// Reads one of the `known` words; `what` is the noun for errors.
    pub(super) fn choice<T: Clone>(&mut self, key: &'static str, what: &str, known: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(key)?;
        chosen(&text, what, known).map_err(|e| self.mistake(key, e)).ok()
    }

    /// Reads a list of `known` words. Returns the value of each word with its path in the configuration. `what` is the
    /// noun for errors.
    pub(super) fn choices<T: Clone>(
        &mut self,
        key: &'static str,
        what: &str,
        known: &[(&'static str, T)],
    ) -> Option<Vec<(KeyPath, T)>> {
        let texts = self.texts(key)?;
        let read = |(path, text): (KeyPath, String)| {
            chosen(&text, what, known).map_err(|e| self.checker.mistake(&path, e)).ok().map(|value| (path, value))
        };
        Some(texts.into_iter().filter_map(read).collect())
    }

    /// Reads a list of non-empty strings. Returns each with its path in the configuration.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<(KeyPath, String)>> {
        let value = self.take(key)?;
        let path = self.path.key(key);
        texts(self.checker, &path, &value)
    }

    /// Reads a list of strings that `T` parses. Returns each value with its path in the configuration.
    pub(super) fn parsed_list<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<Vec<(KeyPath, T)>> {
        let texts = self.texts(key)?;
        let read = |(path, text): (KeyPath, String)| match text.parse() {
            Ok(value) => Some((path, value)),
            Err(e) => {
                self.checker.mistake(&path, e);
                None
            }
        };
        Some(texts.into_iter().filter_map(read).collect())
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(_, boolean) => Some(boolean),
            other => {
                self.mistake(key, format!("expected true or false, found {}", kind(&other)));
                None
            }
        }
    }

    /// Reads an integer within bounds.
    pub(super) fn number(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let value = self.take(key)?;
        let found = whole_number(&value).and_then(|n| usize::try_from(n).ok()).filter(|n| bounds.contains(n));
        if found.is_none() {
            let (low, high) = bounds.into_inner();
            self.mistake(key, format!("expected a whole number from {low} to {high}, found {}", show(&value)));
        }
        found
    }

    /// Reads a duration within bounds.
    pub(super) fn duration(&mut self, key: &'static str, bounds: RangeInclusive<Duration>) -> Option<Duration> {
        let value = self.take(key)?;
        let (low, high) = (HumanDuration(*bounds.start()), HumanDuration(*bounds.end()));
        let Value::String(_, text) = &value else {
            self.mistake(key, format!("expected a duration such as \"10m\", found {}", show(&value)));
            return None;
        };
        match text.parse::<HumanDuration>() {
            Ok(HumanDuration(duration)) if bounds.contains(&duration) => return Some(duration),
            Ok(duration) => self.mistake(key, format!("{duration} is out of range: from {low} to {high}")),
            Err(e) => self.mistake(key, e),
        }
        None
    }

    /// Reads a size within bounds; a bare number is bytes.
    pub(super) fn size(&mut self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<usize> {
        let value = self.take(key)?;
        let size = match &value {
            Value::String(_, text) => text.parse::<ByteSize>().map_err(|e| e.to_string()),
            other => {
                let number = whole_number(other).and_then(|n| u64::try_from(n).ok());
                number.map(ByteSize).ok_or_else(|| format!("expected a size such as \"64MiB\", found {}", show(other)))
            }
        };
        let (low, high) = (ByteSize(*bounds.start()), ByteSize(*bounds.end()));
        match size {
            Ok(size) if bounds.contains(&size.0) => return usize::try_from(size.0).ok(),
            Ok(size) => self.mistake(key, format!("{size} is out of range: from {low} to {high}")),
            Err(problem) => self.mistake(key, problem),
        }
        None
    }

    /// Reports the remaining keys as unknown.
    pub(super) fn finish(self) {
        for key in self.values.keys() {
            self.mistake(key, format!("unknown key{}", suggestion(key, self.known.iter().copied())));
        }
    }
}

/// Reads a non-empty string. The value of a variable is a string even if it looks like another type.
pub(super) fn text(checker: &Checker<'_>, path: &KeyPath, value: &Value) -> Option<String> {
    let text = match value {
        Value::String(_, text) => text.clone(),
        Value::Char(_, c) => c.to_string(),
        other => {
            let variable = checker.raw.origins.get(path).and_then(|origin| origin.text.clone());
            if variable.is_none() {
                checker.mistake(path, format!("expected a text in quotes, found {}", kind(other)));
            }
            variable?
        }
    };
    if text.trim().is_empty() {
        checker.mistake(path, "is empty; write a value or remove the key");
        return None;
    }
    Some(text)
}

/// Reads a list of non-empty strings. Returns each with its path in the configuration.
pub(super) fn texts(checker: &Checker<'_>, path: &KeyPath, value: &Value) -> Option<Vec<(KeyPath, String)>> {
    let Value::Array(_, values) = value else {
        checker.mistake(path, format!("expected a list such as [\"a\", \"b\"], found {}", kind(value)));
        return None;
    };
    let each = values.iter().enumerate().filter_map(|(i, value)| {
        let path = path.index(i);
        text(checker, &path, value).map(|text| (path, text))
    });
    Some(each.collect())
}

fn whole_number(value: &Value) -> Option<i128> {
    match value {
        Value::Num(_, number) => number.to_i128().or_else(|| number.to_u128().and_then(|n| i128::try_from(n).ok())),
        _ => None,
    }
}

/// Names the kind of a value for errors, such as `a text`, without showing the value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "a text",
        Value::Bool(..) => "true or false",
        Value::Num(..) => "a number",
        Value::Empty(..) => "nothing",
        Value::Dict(..) => "a table",
        Value::Array(..) => "a list",
    }
}

/// Formats a number. For any other value returns its kind, because the value may be secret.
fn show(value: &Value) -> String {
    match (whole_number(value), value) {
        (Some(number), _) => number.to_string(),
        (None, Value::Num(_, number)) => number.to_f64().map_or_else(|| "a number".to_owned(), |n| n.to_string()),
        (None, other) => kind(other).to_owned(),
    }
}

fn chosen<T: Clone>(text: &str, what: &str, known: &[(&'static str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        unknown(what, text, &words)
    })
}

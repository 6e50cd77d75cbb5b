//! Reading one table of the raw configuration key by key, so that every mistake in it is found.
//!
//! A value that is wrong is noted and taken as not given, so that the checks after it still run. A configuration
//! with a mistake is never handed out, so what stands in for a wrong value is never used.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use figment::value::{Dict, Value};

use super::error::{Mistake, nearest, suggestion};
use super::probes::Probes;
use super::raw::{Environment, Raw};
use super::spans::KeyPath;
use super::transports::unknown;
use super::units::{ByteSize, HumanDuration};

/// What every check needs: where values come from, and where mistakes go.
pub(super) struct Checker<'c> {
    /// The file; `None` for a configuration that came as text.
    pub(super) file: Option<&'c Path>,
    /// What relative paths are relative to.
    pub(super) folder: &'c Path,
    /// Home of the user, for `~`.
    pub(super) home: Option<PathBuf>,
    /// The environment, where secrets may be looked up; `None`: they are not.
    pub(super) environment: Option<&'c Environment>,
    /// What values are tried with; `None`: they are not.
    pub(super) probes: Option<Probes>,
    /// Whether what the configuration names in files, directories and variables has to be there.
    pub(super) whole: bool,
    /// The values.
    pub(super) raw: &'c Raw,
    /// The mistakes so far, with the path of each.
    pub(super) mistakes: RefCell<Vec<(KeyPath, Mistake)>>,
}

impl Checker<'_> {
    /// Notes a mistake at a key.
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

    /// Whether nothing was found wrong at a key or below it.
    pub(super) fn is_clean(&self, path: &KeyPath) -> bool {
        !self.mistakes.borrow().iter().any(|(wrong, _)| wrong.0.starts_with(&path.0))
    }

    /// The variable that gave the value of a key, or a table that the file does not have.
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

/// A table and what has been asked of it so far.
pub(super) struct Table<'c> {
    pub(super) checker: &'c Checker<'c>,
    pub(super) path: KeyPath,
    values: Dict,
    known: Vec<&'static str>,
}

impl<'c> Table<'c> {
    /// Takes a value as a table; anything else is a mistake, and an empty table stands in for it.
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

    /// Notes a mistake at a key of this table (or, where the key is not there, at the table).
    pub(super) fn mistake(&self, key: &str, problem: impl Display) {
        self.checker.mistake(&self.path.key(key), problem);
    }

    /// Takes the value of a key, which is known from now on.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// Whether a key is given and was not taken yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Which of some keys are given, of which one at most may be.
    pub(super) fn chosen<'k>(&self, keys: &[&'k str]) -> Vec<&'k str> {
        let given: Vec<_> = keys.iter().copied().filter(|key| self.has(key)).collect();
        if let [first, second, ..] = given[..] {
            self.checker.mistake(&self.path, format!("has {first} and {second}; keep one of them"));
        }
        given
    }

    /// Whether none of some keys is given, not even misspelt, in what is a table at all: what is to be asked before
    /// saying that one of them is missing, since one slip is one mistake.
    pub(super) fn lacks(&self, keys: &[&str]) -> bool {
        let meant = |given: &String| nearest(given, keys.iter().copied()).is_some();
        self.checker.is_clean(&self.path) && !self.values.keys().any(meant)
    }

    /// Whether nothing is left in it.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The keys that are left in it.
    pub(super) fn names(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    /// A table below this one.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'c>> {
        let value = self.take(key)?;
        Some(Table::new(self.checker, self.path.key(key), value))
    }

    /// Everything in a table whose keys are names.
    pub(super) fn entries(self) -> impl Iterator<Item = (String, KeyPath, Value)> + use<'c> {
        let path = self.path;
        self.values.into_iter().map(move |(key, value)| {
            let path = path.key(&key);
            (key, path, value)
        })
    }

    /// A text that is not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.take(key)?;
        text(self.checker, &self.path.key(key), &value)
    }

    /// A text that `T` reads, whose errors say what would be right.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let text = self.text(key)?;
        text.parse().map_err(|e| self.mistake(key, e)).ok()
    }

    /// One of `known`, of which `what` is the noun in an error.
    pub(super) fn choice<T: Clone>(&mut self, key: &'static str, what: &str, known: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(key)?;
        chosen(&text, what, known).map_err(|e| self.mistake(key, e)).ok()
    }

    /// A list of `known` values, each with its path.
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

    /// A list of texts that are not empty, each with its path.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<(KeyPath, String)>> {
        let value = self.take(key)?;
        let path = self.path.key(key);
        texts(self.checker, &path, &value)
    }

    /// A list of texts that `T` reads, each with its path.
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

    /// `true` or `false`.
    pub(super) fn truth(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(_, truth) => Some(truth),
            other => {
                self.mistake(key, format!("expected true or false, found {}", kind(&other)));
                None
            }
        }
    }

    /// A whole number within bounds.
    pub(super) fn number(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let value = self.take(key)?;
        let found = whole_number(&value).and_then(|n| usize::try_from(n).ok()).filter(|n| bounds.contains(n));
        if found.is_none() {
            let (low, high) = bounds.into_inner();
            self.mistake(key, format!("expected a whole number from {low} to {high}, found {}", show(&value)));
        }
        found
    }

    /// A duration within bounds.
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

    /// A size within bounds; a bare number counts bytes.
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

    /// Says which keys are known, and notes each other one as a mistake.
    pub(super) fn finish(self) {
        for key in self.values.keys() {
            self.mistake(key, format!("unknown key{}", suggestion(key, self.known.iter().copied())));
        }
    }
}

/// A text that is not empty. What a variable says is a text even where it looks like something else.
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

/// A list of texts that are not empty, each with its path.
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

/// What a value is, without saying it.
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

/// A number itself, or else what the value is.
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

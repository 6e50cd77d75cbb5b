//! Positions of the file's keys: key paths with line and column.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use toml_edit::{Item, Key, Value};

/// Step of a [`KeyPath`]: a key, or an index of an array.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Path of a key, displayed in TOML notation: `resources."deployments.apps".namespaces[1]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

impl KeyPath {
    /// Returns the path of `key` in the table at this path.
    pub(super) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    /// Returns the path of the element at `index` in the array at this path.
    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Iterates over this path and its ancestors, from the longest to the shortest.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        (1..=self.0.len()).rev().map(|length| Self(self.0[..length].to_vec()))
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    let dot = if i > 0 { "." } else { "" };
                    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                    if !key.is_empty() && key.chars().all(bare) {
                        write!(f, "{dot}{key}")?;
                    } else {
                        write!(f, "{dot}{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Position in a text. Line and column count from 1, the column in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Positions of all keys and array elements of a document.
#[derive(Debug, Default)]
pub(super) struct Spans {
    places: BTreeMap<KeyPath, Position>,
}

impl Spans {
    /// Collects the positions of a parsed document. Cost: one pass over the text and one over the document.
    pub(super) fn of(document: &toml_edit::Document<&str>) -> Self {
        let lines = Lines::of(document.raw());
        let mut spans = Self::default();
        spans.item(&KeyPath::default(), document.as_item(), &lines);
        spans
    }

    /// Returns the position of a key, or of its nearest ancestor in the text; `None` if the text has neither.
    pub(super) fn find(&self, path: &KeyPath) -> Option<Position> {
        path.ancestors().find_map(|path| self.places.get(&path).copied())
    }

    pub(super) fn has(&self, path: &KeyPath) -> bool {
        self.places.contains_key(path)
    }

    fn item(&mut self, path: &KeyPath, item: &Item, lines: &Lines<'_>) {
        match item {
            Item::None => {}
            Item::Value(value) => self.value(path, value, lines),
            Item::Table(table) => {
                for (name, item) in table {
                    let path = path.key(name);
                    let span = table.key(name).and_then(Key::span);
                    // A table with its own header has the header's position, not that of the first mention of its name.
                    let own =
                        item.as_table().filter(|t| !t.is_implicit() && !t.is_dotted()).and_then(toml_edit::Table::span);
                    self.mark(&path, own.or(span), lines);
                    self.item(&path, item, lines);
                }
            }
            Item::ArrayOfTables(tables) => {
                for (i, table) in tables.iter().enumerate() {
                    let path = path.index(i);
                    self.mark(&path, table.span(), lines);
                    for (name, item) in table {
                        let path = path.key(name);
                        self.mark(&path, table.key(name).and_then(Key::span), lines);
                        self.item(&path, item, lines);
                    }
                }
            }
        }
    }

    fn value(&mut self, path: &KeyPath, value: &Value, lines: &Lines<'_>) {
        match value {
            Value::InlineTable(table) => {
                for (name, value) in table {
                    let path = path.key(name);
                    self.mark(&path, table.key(name).and_then(Key::span), lines);
                    self.value(&path, value, lines);
                }
            }
            Value::Array(array) => {
                for (i, value) in array.iter().enumerate() {
                    let path = path.index(i);
                    self.mark(&path, value.span(), lines);
                    self.value(&path, value, lines);
                }
            }
            _ => {}
        }
    }

    fn mark(&mut self, path: &KeyPath, span: Option<Range<usize>>, lines: &Lines<'_>) {
        if let Some(span) = span {
            self.places.insert(path.clone(), lines.position(span.start));
        }
    }
}

/// Text with the byte offsets of its line starts, to convert offsets to positions.
pub(super) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// Converts a byte offset to a position; an offset beyond the end is the end.
    pub(super) fn position(&self, offset: usize) -> Position {
        let limit = offset.min(self.text.len());
        let offset = (0..=limit).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts[line - 1];
        Position { line, column: self.text[start..offset].chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> KeyPath {
        steps.iter().fold(KeyPath::default(), |path, step| match step.parse() {
            Ok(index) => path.index(index),
            Err(_) => path.key(step),
        })
    }

    #[test]
    fn every_notation_of_a_key_has_a_position() {
        let text = "a.b = 1\n[t.\"x.y\"]\n\"ü\" = 2\n  list = [\n  1, 2]\n inline = { deep = { er = 1 } }\n[[many]]\nk = 1\n\
                    [t]\nz = 3\n";
        let spans = Spans::of(&toml_edit::Document::parse(text).unwrap());
        for (steps, line, column) in [
            (&["a"][..], 1, 1),
            (&["a", "b"], 1, 3),
            (&["t", "x.y"], 2, 1),
            (&["t", "x.y", "list"], 4, 3),
            (&["t", "x.y", "list", "1"], 5, 6),
            (&["t", "x.y", "inline", "deep", "er"], 6, 22),
            (&["many", "0", "k"], 8, 1),
            (&["t"], 9, 1),
            (&["t", "z"], 10, 1),
            (&["t", "x.y", "nowhere", "at", "all"], 2, 1),
        ] {
            assert_eq!(spans.find(&path(steps)), Some(Position { line, column }), "{steps:?}");
        }
        assert_eq!(spans.find(&path(&["nowhere"])), None);
    }

    #[test]
    fn path_is_displayed_in_toml_notation() {
        assert_eq!(
            path(&["resources", "deployments.apps", "names", "1"]).to_string(),
            "resources.\"deployments.apps\".names[1]"
        );
    }

    #[test]
    fn columns_count_whole_characters() {
        let lines = Lines::of("ää\nb");
        assert_eq!(lines.position(2), Position { line: 1, column: 2 });
        assert_eq!(lines.position(3), Position { line: 1, column: 2 });
        assert_eq!(lines.position(5), Position { line: 2, column: 1 });
        assert_eq!(lines.position(99), Position { line: 2, column: 2 });
    }
}

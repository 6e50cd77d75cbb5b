//! Definitions of kinds: their columns, and the function that prints an object.

use serde::Deserialize;
use serde_json::Value;

use super::{Column, Row};

/// Function that prints an object as a row. The time, for ages, is in seconds since 1970.
pub(super) type Print = fn(&[u8], i64) -> serde_json::Result<Row>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) columns: &'static [Spec],
    pub(super) print: Print,
}

/// Definition of a column. `kind` is the JSON type of its cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i32,
}

impl From<&Spec> for Column {
    fn from(spec: &Spec) -> Self {
        Self {
            name: spec.name.to_owned(),
            kind: spec.kind.to_owned(),
            format: spec.format.to_owned(),
            description: spec.description.to_owned(),
            priority: spec.priority,
        }
    }
}

pub(super) const NAME: Spec =
    Spec { format: "name", ..text("Name", "Name of the object, unique within its namespace") };

pub(super) const AGE: Spec = text("Age", "Time since the object was created");

pub(super) const CONTAINERS: Spec = wide("Containers", "Names of the containers of the pod template");

pub(super) const IMAGES: Spec = wide("Images", "Images of the containers of the pod template");

pub(super) const SELECTOR: Spec = wide("Selector", "Label selector of the pods that belong to the object");

/// Column of strings.
pub(super) const fn text(name: &'static str, description: &'static str) -> Spec {
    Spec { name, kind: "string", format: "", description, priority: 0 }
}

/// Column of strings that only wide output shows.
pub(super) const fn wide(name: &'static str, description: &'static str) -> Spec {
    Spec { priority: 1, ..text(name, description) }
}

pub(super) const fn integer(name: &'static str, description: &'static str) -> Spec {
    Spec { kind: "integer", ..text(name, description) }
}

pub(super) const fn boolean(name: &'static str, description: &'static str) -> Spec {
    Spec { kind: "boolean", ..text(name, description) }
}

pub(super) const fn date(name: &'static str, description: &'static str) -> Spec {
    Spec { kind: "date", ..text(name, description) }
}

impl Spec {
    pub(super) const fn with_format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }

    pub(super) const fn only_wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

/// Decodes the fields of an object that its row needs.
pub(super) fn decode<'j, T: Deserialize<'j>>(json: &'j [u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json)
}

pub(super) fn row<const N: usize>(cells: [Value; N]) -> Row {
    Row { cells: cells.into(), conditions: Vec::new() }
}

/// Makes a row from values that can be converted to JSON.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { Ok($crate::table::kind::row([$(serde_json::Value::from($cell)),*])) };
}

pub(super) use cells;

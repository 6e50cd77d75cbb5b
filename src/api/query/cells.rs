//! The items of an answer: as JSON, and as cells of a table.

use serde_json::Value;

use crate::api::kubernetes::head_only;
use crate::cache::{Answer, Group, Row};
use informer_hub_query::{Output, Values};
use informer_hub_types::Object;

/// Items of an answer, of one kind.
#[derive(Debug)]
pub(super) enum Items {
    Objects(Vec<Object>),
    Rows(Vec<Row>),
    /// Distinct values, each with its number of objects.
    Groups(Vec<Group>),
    /// Distinct values.
    Values(Vec<Group>),
    Count(u64),
}

impl Items {
    /// Takes the items out of an answer.
    pub(super) fn of(answer: &mut Answer, output: &Output) -> Self {
        match output {
            Output::Objects => Self::Objects(std::mem::take(&mut answer.items)),
            Output::Columns(_) => Self::Rows(std::mem::take(&mut answer.rows)),
            Output::CountBy(_) => Self::Groups(std::mem::take(&mut answer.groups)),
            Output::Distinct(_) => Self::Values(std::mem::take(&mut answer.groups)),
            Output::Count => Self::Count(answer.count.unwrap_or_default()),
        }
    }

    /// Returns the name of the JSON member in which an answer has its items, such as `rows`.
    pub(super) fn member(&self) -> &'static str {
        match self {
            Self::Objects(_) => "items",
            Self::Rows(_) => "rows",
            Self::Groups(_) => "groups",
            Self::Values(_) => "values",
            Self::Count(_) => "count",
        }
    }

    /// Returns the number of items; a count is one item.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Objects(objects) => objects.len(),
            Self::Rows(rows) => rows.len(),
            Self::Groups(groups) | Self::Values(groups) => groups.len(),
            Self::Count(_) => 1,
        }
    }

    /// Returns the column titles of an answer.
    pub(super) fn titles(output: &Output) -> Vec<String> {
        let place = ["cluster", "namespace", "name"];
        match output {
            Output::Objects => place.map(str::to_owned).to_vec(),
            Output::Columns(columns) => columns.iter().map(ToString::to_string).collect(),
            Output::Count => vec!["count".to_owned()],
            Output::CountBy(column) => vec![column.to_string(), "count".to_owned()],
            Output::Distinct(column) => vec![column.to_string()],
        }
    }

    /// Returns the table cells of the item at index `at`.
    pub(super) fn cells(&self, at: usize) -> Vec<String> {
        match self {
            Self::Objects(objects) => {
                let key = objects[at].key();
                let namespace = key.namespace().unwrap_or_default().to_owned();
                vec![objects[at].cluster().to_string(), namespace, key.name().to_owned()]
            }
            Self::Rows(rows) => rows[at].values.iter().map(cell_of_all).collect(),
            Self::Groups(groups) => vec![cell(&groups[at].value), groups[at].count.to_string()],
            Self::Values(groups) => vec![cell(&groups[at].value)],
            Self::Count(count) => vec![count.to_string()],
        }
    }

    /// Appends an item as JSON. With `is_line`, every item is a JSON object; a row then has the column titles as keys.
    pub(super) fn write(&self, at: usize, titles: &[String], is_line: bool, out: &mut Vec<u8>) {
        match self {
            Self::Objects(objects) => write_object(&objects[at], out),
            Self::Rows(rows) if is_line => {
                out.push(b'{');
                for (column, (title, values)) in titles.iter().zip(&rows[at].values).enumerate() {
                    if column > 0 {
                        out.push(b',');
                    }
                    append(out, title);
                    out.push(b':');
                    append(out, &joined(values));
                }
                out.push(b'}');
            }
            Self::Rows(rows) => append(out, &rows[at].values.iter().map(joined).collect::<Vec<_>>()),
            Self::Groups(groups) => {
                append(out, &serde_json::json!({ "value": groups[at].value, "count": groups[at].count }));
            }
            Self::Values(groups) if is_line => append(out, &serde_json::json!({ "value": groups[at].value })),
            Self::Values(groups) => append(out, &groups[at].value),
            Self::Count(count) if is_line => append(out, &serde_json::json!({ "count": count })),
            Self::Count(count) => append(out, count),
        }
    }
}

/// Writes cluster and object. Of an object whose stored JSON (body) is not in memory, only metadata is written.
fn write_object(object: &Object, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cluster\":");
    append(out, object.cluster().as_str());
    out.extend_from_slice(b",\"object\":");
    match object.stored().json() {
        Ok(json) => out.extend_from_slice(json.trim_ascii()),
        Err(_) => out.extend(head_only(object.stored(), object.origin())),
    }
    out.push(b'}');
}

/// Returns the values of one cell as a single JSON value: `null` for no value, a single value as it is, several values
/// as an array.
fn joined(values: &Values) -> Value {
    match values.as_slice() {
        [] => Value::Null,
        [one] => one.clone(),
        many => Value::Array(many.to_vec()),
    }
}

fn cell_of_all(values: &Values) -> String {
    match values.as_slice() {
        [] => String::new(),
        [one] => cell(one),
        many => many.iter().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// Returns a value as text: strings as they are, `null` empty, everything else as JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(super) fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Values of these types are always serializable, and writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

//! Table columns of custom resources.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{List, Text};
use super::jsonpath::Path;
use super::kind::{NAME, decode};
use super::{Column, Row};

/// Printer of a custom resource's objects, by the columns that its definition declares for one version.
#[derive(Debug)]
pub(super) struct Custom {
    name: Path,
    columns: Vec<CustomColumn>,
}

#[derive(Debug)]
struct CustomColumn {
    kind: String,
    path: Path,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Definition<'j> {
    #[serde(borrow)]
    spec: DefinitionSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DefinitionSpec<'j> {
    #[serde(borrow)]
    versions: List<Version<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Version<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(borrow)]
    additional_printer_columns: List<Declared<'j>>,
}

/// A column as the CustomResourceDefinition declares it.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Declared<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow)]
    format: Text<'j>,
    #[serde(borrow)]
    description: Text<'j>,
    priority: i32,
    #[serde(borrow)]
    json_path: Text<'j>,
}

impl Declared<'_> {
    fn column(&self) -> Column {
        let description = format!("Custom resource definition column (in JSONPath format): {}", self.json_path);
        Column {
            name: self.name.to_string(),
            kind: self.kind.to_string(),
            format: self.format.to_string(),
            description: self.description.or(&description).to_owned(),
            priority: self.priority,
        }
    }
}

impl Custom {
    /// Returns the columns for an API version of the resource, and the printer of its objects. `None` if the definition
    /// declares no columns for this version. If a column has an invalid path, it is left out, and so are all columns
    /// after it.
    pub(super) fn new(definition: &[u8], version: &str) -> Option<(Vec<Column>, Self)> {
        let definition: Definition<'_> = decode(definition).ok()?;
        let version = definition.spec.versions.iter().find(|found| *found.name == *version)?;
        let declared = &version.additional_printer_columns;
        if declared.is_empty() {
            return None;
        }
        let name = Path::parse(".metadata.name").ok()?;
        let (mut columns, mut custom) = (vec![Column::from(&NAME)], Self { name, columns: Vec::new() });
        for column in declared.iter() {
            let Ok(path) = Path::parse(&column.json_path) else { break };
            columns.push(column.column());
            custom.columns.push(CustomColumn { kind: column.kind.to_string(), path });
        }
        Some((columns, custom))
    }

    /// Returns the row of an object at time `now`, in seconds since 1970.
    pub(super) fn row(&self, json: &[u8], now: i64) -> Row {
        let name = self.name.first(json).map_or(Value::Null, |name| name.cell("string", now));
        let name = if name.is_string() { name } else { "".into() };
        let others = self.columns.iter().map(|column| {
            let found = column.path.first(json);
            found.map_or(Value::Null, |found| found.cell(&column.kind, now))
        });
        Row { cells: std::iter::once(name).chain(others).collect(), conditions: Vec::new() }
    }
}

//! `Table`: the columns that kubectl prints.
//!
//! Names, types and cells are those of kube-apiserver's printers; the descriptions are the hub's own. Of an object,
//! only the fields that the cells need are decoded.

mod access;
mod age;
mod autoscaler;
mod batch;
mod control;
mod core;
mod custom;
mod definition;
mod endpoint;
mod event;
mod fields;
mod jsonpath;
mod kind;
mod network;
mod pod;
mod registry;
mod storage;
mod workload;

use informer_hub_types::ApiResource;
use serde_json::Value;

use custom::Custom;
use kind::Print;

/// Definition of a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Heading, as kube-apiserver writes it (`Name`).
    pub name: String,
    /// JSON type: `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    /// Format: `name` for the column of the name, else usually empty.
    pub format: String,
    /// Description of the column, for clients that show it.
    pub description: String,
    /// 0 for a column that is always shown, greater for one that only `-o wide` shows.
    pub priority: i32,
}

/// One object as a row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Values, one per column.
    pub cells: Vec<Value>,
    /// `conditions` of the row: one for a pod that has succeeded or failed, none for other objects.
    pub conditions: Vec<Value>,
}

/// Prints the objects of one resource as table rows.
#[derive(Debug)]
pub struct Printer {
    columns: Vec<Column>,
    cells: Cells,
    marks_default: bool,
    default_class: Option<String>,
}

/// Source of the cells: a built-in printer, or the columns of a CustomResourceDefinition.
#[derive(Debug)]
enum Cells {
    BuiltIn(Print),
    Custom(Custom),
}

impl Printer {
    /// Returns the printer of a resource. `definition` is the JSON of its CustomResourceDefinition, if it has one.
    #[must_use]
    pub fn new(resource: &ApiResource, definition: Option<&[u8]>) -> Self {
        let gvr = &resource.gvr;
        if let Some((columns, custom)) = definition.and_then(|definition| Custom::new(definition, &gvr.version)) {
            return Self { columns, cells: Cells::Custom(custom), marks_default: false, default_class: None };
        }
        let kind = match definition {
            Some(_) => core::CUSTOM_DEFAULT,
            None => registry::kind(&gvr.group, &gvr.resource),
        };
        let columns = kind.columns.iter().map(Column::from).collect();
        let marks_default = gvr.group == "storage.k8s.io" && gvr.resource == "storageclasses";
        Self { columns, cells: Cells::BuiltIn(kind.print), marks_default, default_class: None }
    }

    /// Returns the columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Finds the default storage class among all objects of a list, so that [`Printer::row`] can add `(default)` to its
    /// name. Call this method before the rows are printed. Does nothing for other resources.
    pub fn read_list<'o>(&mut self, objects: impl IntoIterator<Item = &'o [u8]>) {
        if self.marks_default {
            self.default_class = storage::default_class(objects);
        }
    }

    /// Returns the row of one object. `now` is in seconds since 1970, for ages. The row of an object that cannot be
    /// decoded has its name, and `<unknown>` in the other columns.
    #[must_use]
    pub fn row(&self, json: &[u8], now: i64) -> Row {
        let print = match &self.cells {
            Cells::Custom(custom) => return custom.row(json, now),
            Cells::BuiltIn(print) => print,
        };
        let Ok(mut row) = print(json, now) else { return self.unknown(json) };
        if let (Some(default), Some(Value::String(name))) = (&self.default_class, row.cells.first_mut())
            && name == default
        {
            name.push_str(" (default)");
        }
        row
    }

    /// Returns the row of an object that cannot be decoded: its name, if known, and `<unknown>`.
    fn unknown(&self, json: &[u8]) -> Row {
        let name = kind::decode::<fields::Object<'_>>(json).map(|object| object.metadata.name.to_string());
        let name = name.unwrap_or_default();
        let is_name = |column: &Column| column.name == "Name";
        let cell = |column| if is_name(column) { name.as_str().into() } else { "<unknown>".into() };
        Row { cells: self.columns.iter().map(cell).collect(), conditions: Vec::new() }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

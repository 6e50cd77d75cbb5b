//! Pages of a list in the `Table` form.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::list::PageMeta;

/// `Accept` header of a request for a table.
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct TableColumn {
    /// Heading, as the hub writes it (`Name`).
    pub name: String,
    /// 0 for a column that is always shown, greater for one that only `-o wide` shows.
    #[serde(default)]
    pub priority: i64,
}

/// A row of a table, for one object.
#[derive(Debug)]
pub struct TableRow {
    /// Texts of the cells; empty for `null`.
    pub cells: Vec<String>,
    /// Namespace of the object; empty if it has none.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// JSON of the object, or of its metadata, or `null`, as requested by `includeObject`.
    pub object: Box<RawValue>,
}

/// A page of a list in the `Table` form.
#[derive(Debug)]
pub struct TablePage {
    /// `resourceVersion` and continue token of the page.
    pub metadata: PageMeta,
    /// Columns; empty in all tables of a watch but the first.
    pub columns: Vec<TableColumn>,
    /// Rows of the page, one for each object.
    pub rows: Vec<TableRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    column_definitions: Option<Vec<TableColumn>>,
    #[serde(default)]
    rows: Vec<WrittenRow>,
}

#[derive(Deserialize)]
struct WrittenRow {
    cells: Vec<Value>,
    object: Box<RawValue>,
}

#[derive(Default, Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Identity,
}

#[derive(Default, Deserialize)]
struct Identity {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl TablePage {
    /// Parses a page of a list in the `Table` form from its JSON.
    ///
    /// # Errors
    /// The text is not a table.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let written: Written = serde_json::from_slice(json)?;
        Ok(Self {
            metadata: written.metadata,
            columns: written.column_definitions.unwrap_or_default(),
            rows: written.rows.into_iter().map(row).collect(),
        })
    }
}

fn row(row: WrittenRow) -> TableRow {
    // `object` may be null.
    let object: Option<Object> = serde_json::from_str(row.object.get()).unwrap_or_default();
    let Identity { namespace, name } = object.unwrap_or_default().metadata;
    TableRow { cells: row.cells.iter().map(cell).collect(), namespace, name, object: row.object }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_text_cells_and_the_identity_of_their_object() {
        let text = br#"{"kind":"Table","metadata":{"resourceVersion":"7"},
            "columnDefinitions":[{"name":"Name","type":"string","priority":0},{"name":"IP","priority":1}],
            "rows":[{"cells":["web",3,null],"object":{"metadata":{"name":"web","namespace":"shop"}}},
                    {"cells":["x"],"object":null}]}"#;
        let page = TablePage::parse(text).unwrap();
        assert_eq!(page.columns[1], TableColumn { name: "IP".to_owned(), priority: 1 });
        assert_eq!(page.rows[0].cells, ["web", "3", ""]);
        assert_eq!((page.rows[0].namespace.as_str(), page.rows[0].name.as_str()), ("shop", "web"));
        assert_eq!((page.rows[1].name.as_str(), page.metadata.resource_version.as_str()), ("", "7"));
        assert!(TablePage::parse(br#"{"columnDefinitions":null}"#).unwrap().columns.is_empty());
    }
}

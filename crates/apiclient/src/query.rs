//! Answers of `/v1/query`.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// An answer to a query. Its objects are read one by one, because there may be many.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryAnswer<'a> {
    /// Objects, each with its cluster; `None` if the query asks for something else.
    #[serde(borrow)]
    pub items: Option<Vec<&'a RawValue>>,
    /// Values of the selected columns, one row for each object; `None` if the query asks for something else.
    pub rows: Option<Vec<Vec<Value>>>,
    /// Distinct values of a `count by` query, each with its number of objects; `None` if the query asks for something
    /// else.
    pub groups: Option<Vec<Group>>,
    /// Distinct values of the queried path; `None` if the query asks for something else.
    pub values: Option<Vec<Value>>,
    /// Number of objects; `None` if the query does not ask for it.
    pub count: Option<u64>,
    /// How the query was evaluated, in one line.
    #[serde(default)]
    pub plan: String,
    /// Steps of the query plan that find candidates: objects that may match. Empty unless the query asks for an
    /// explanation.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Estimated number of candidates, the objects that `steps` find. 0 unless the query asks for an explanation.
    #[serde(default)]
    pub candidates: u64,
    /// Clusters that the answer covers.
    #[serde(default)]
    pub coverage: Coverage,
    /// Paths in the query that none of the examined objects has.
    #[serde(default)]
    pub paths_without_values: Vec<String>,
    /// Whether the answer is incomplete because it reached the limit on results.
    #[serde(default)]
    pub more: bool,
    /// Continue token with which a request returns further results; `None` if the answer is complete or has no token.
    #[serde(rename = "continue")]
    pub continuation: Option<String>,
}

/// Result of a `count by` query for one value.
#[derive(Debug, Deserialize)]
pub struct Group {
    /// Value that the objects are grouped by.
    pub value: Value,
    /// Number of objects with this value.
    pub count: u64,
}

/// Clusters that an answer covers, and those whose objects may be outdated or missing.
#[derive(Debug, Default, Deserialize)]
pub struct Coverage {
    /// Number of clusters that the answer covers.
    #[serde(default)]
    pub clusters: u64,
    /// Clusters whose objects may be outdated.
    #[serde(default)]
    pub stale: Vec<Value>,
    /// Clusters whose first list has not completed, so that objects may be missing.
    #[serde(default)]
    pub missing: Vec<Value>,
}

/// An object in the answer to a query, with its cluster.
#[derive(Debug, Deserialize)]
pub struct QueryItem<'a> {
    /// Name of the object's cluster.
    pub cluster: String,
    /// The object as JSON.
    #[serde(borrow)]
    pub object: &'a RawValue,
}

impl<'a> QueryAnswer<'a> {
    /// Parses the answer to a query from its JSON.
    ///
    /// # Errors
    /// The text is not an answer.
    pub fn parse(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

impl<'a> QueryItem<'a> {
    /// Parses an item of [`QueryAnswer::items`].
    ///
    /// # Errors
    /// The text is not an item.
    pub fn parse(item: &'a RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(item.get())
    }
}

/// Returns a column's value as text: several values are joined with commas, `null` is empty.
#[must_use]
pub fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(value_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Splits the text of a query plan at `; ` and returns the parts after the estimate `about <candidates> objects`. One
/// such part is `matched on heads`. If the plan has no such estimate, returns all parts.
#[must_use]
pub fn plan_parts(plan: &str, candidates: u64) -> Vec<&str> {
    let about = format!(": about {candidates} objects; ");
    let rest = plan.rfind(&about).map_or(plan, |at| &plan[at + about.len()..]);
    rest.split("; ").collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_all_outputs_are_read() {
        let text = br#"{"coverage":{"clusters":2,"stale":[],"missing":["b"]},"plan":"all objects: about 4 objects; all match",
            "pathsWithoutValues":["status.phse"],"more":true,"continue":"t","items":[{"cluster":"a","object":{"x":1}}]}"#;
        let answer = QueryAnswer::parse(text).unwrap();
        let item = QueryItem::parse(answer.items.as_ref().unwrap()[0]).unwrap();
        assert_eq!((item.cluster.as_str(), item.object.get()), ("a", "{\"x\":1}"));
        assert_eq!((answer.continuation.as_deref(), answer.coverage.missing.len(), answer.more), (Some("t"), 1, true));
        let answer = QueryAnswer::parse(br#"{"groups":[{"value":null,"count":3}]}"#).unwrap();
        assert_eq!(answer.groups.unwrap()[0].count, 3);
        assert!(QueryAnswer::parse(b"[]").is_err());
    }

    #[test]
    fn values_are_texts_for_people() {
        let texts = [json!(null), json!("a"), json!(["a", 1]), json!({ "a": 1 })].map(|value| value_text(&value));
        assert_eq!(texts, ["", "a", "a, 1", "{\"a\":1}"]);
    }

    #[test]
    fn plan_is_split_behind_its_steps() {
        let plan =
            "index by-x = \"a: about 3 objects; b\": about 3 objects; matched on heads; matches are decompressed";
        assert_eq!(plan_parts(plan, 3), ["matched on heads", "matches are decompressed"]);
        assert_eq!(plan_parts("other", 3), ["other"]);
    }
}

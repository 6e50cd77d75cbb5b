//! JSON schemas of request and response bodies. Schemas of responses allow unknown members, because later versions may
//! add some.

use serde_json::{Map, Value, json};

use super::schema_of::schema_of;
use crate::api::query;

/// Returns all schemas by name.
pub(super) fn schemas() -> Value {
    let groups = [common(), of_query(), of_events(), of_objects(), of_operators()];
    Value::Object(groups.into_iter().flat_map(members).collect())
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Returns the JSON schema of an object with these members, of which the first `required` are mandatory.
fn object(required: usize, members: &[(&str, Value)]) -> Value {
    let names: Vec<_> = members.iter().take(required).map(|(name, _)| *name).collect();
    let properties: Map<_, _> = members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}

fn of(kind: &str) -> Value {
    json!({ "type": kind })
}

fn or_null(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn common() -> Value {
    let error = object(
        1,
        &[
            ("error", of("string")),
            ("position", of("integer")),
            ("expected", of("string")),
            ("found", of("string")),
            ("suggestion", of("string")),
            ("excerpt", of("string")),
        ],
    );
    let difference = object(1, &[("path", of("string")), ("old", json!({})), ("new", json!({}))]);
    json!({
        "Anything": { "type": "object" },
        "Error": error,
        "Difference": difference,
        "KubernetesObject": object(1, &[
            ("metadata", of("object")),
            ("apiVersion", of("string")),
            ("kind", of("string")),
        ]),
    })
}

fn of_query() -> Value {
    let request = query::PARAMETERS.iter().map(|parameter| (parameter.name.to_owned(), schema_of(parameter)));
    let cluster = json!({ "type": "string" });
    let coverage = object(
        6,
        &[
            ("clusters", of("integer")),
            ("synced", list(&cluster)),
            ("stale", list(&object(1, &[("cluster", of("string")), ("since", json!({}))]))),
            ("missing", list(&cluster)),
            ("withoutBodies", list(&cluster)),
            ("cachedInPart", list(&object(2, &[("cluster", of("string")), ("part", of("string"))]))),
            ("rightsUnknown", list(&object(2, &[("cluster", of("string")), ("error", of("string"))]))),
        ],
    );
    let item = object(2, &[("cluster", of("string")), ("object", reference("KubernetesObject"))]);
    let cost = object(
        2,
        &[
            ("examined", of("integer")),
            ("read", of("integer")),
            ("unreadable", of("integer")),
            ("withoutBody", of("integer")),
        ],
    );
    let answer = object(
        6,
        &[
            ("resource", of("string")),
            ("apiVersion", of("string")),
            ("kind", of("string")),
            ("complete", of("boolean")),
            ("coverage", coverage),
            ("plan", of("string")),
            ("cost", cost),
            ("more", of("boolean")),
            ("continue", of("string")),
            ("pathsWithoutValues", list(&of("string"))),
            ("steps", list(&of("string"))),
            ("candidates", of("integer")),
            ("items", list(&item)),
            ("columns", list(&of("string"))),
            ("rows", list(&of("array"))),
            ("groups", list(&object(2, &[("value", json!({})), ("count", of("integer"))]))),
            ("values", list(&json!({}))),
            ("count", of("integer")),
        ],
    );
    json!({
        "QueryRequest": {
            "type": "object",
            "required": ["resource"],
            "additionalProperties": false,
            "properties": request.collect::<Map<_, _>>(),
        },
        "QueryAnswer": answer,
        "QueryLine": { "type": "object", "description": "An object, a row, a group, a value or the count" },
    })
}

fn of_events() -> Value {
    let event = object(
        6,
        &[
            ("specversion", json!({ "const": "1.0" })),
            ("id", of("string")),
            ("source", of("string")),
            ("type", of("string")),
            ("time", json!({ "type": "string", "format": "date-time" })),
            ("data", of("object")),
            ("datacontenttype", of("string")),
            ("subject", of("string")),
            ("position", of("string")),
        ],
    );
    json!({ "CloudEvent": event })
}

fn of_objects() -> Value {
    let identity = [
        ("resource", of("string")),
        ("apiVersion", of("string")),
        ("kind", of("string")),
        ("namespace", or_null("string")),
        ("name", of("string")),
        ("uid", of("string")),
    ];
    let with = |more: &[(&'static str, Value)]| [&identity[..], more].concat();
    let event = [
        ("type", json!({})),
        ("reason", json!({})),
        ("message", json!({})),
        ("count", json!({})),
        ("source", json!({})),
        ("last", json!({})),
    ];
    let change = [
        ("event", json!({ "enum": ["added", "updated", "deleted"] })),
        ("time", json!({ "type": "string", "format": "date-time" })),
        ("resourceVersion", of("string")),
        ("changed", list(&reference("Difference"))),
        ("changedMore", of("integer")),
    ];
    let nullable = |schema: Value| json!({ "anyOf": [schema, { "type": "null" }] });
    let answer = with(&[
        ("cluster", of("string")),
        ("freshness", object(1, &[("state", of("string")), ("since", json!({}))])),
        ("object", reference("KubernetesObject")),
        ("owners", list(&reference("Owner"))),
        ("ownersEnd", or_null("string")),
        ("children", list(&reference("Child"))),
        ("childrenMore", of("boolean")),
        ("events", nullable(list(&object(6, &event)))),
        ("lastChange", nullable(object(3, &change))),
    ]);
    let child = with(&[("status", or_null("string")), ("children", list(&reference("Child")))]);
    json!({
        "ObjectAnswer": object(answer.len(), &answer),
        "Owner": object(identity.len(), &with(&[("object", reference("KubernetesObject"))])),
        "Child": object(child.len(), &child),
    })
}

fn of_operators() -> Value {
    let names = list(&of("string"));
    let changed = object(0, &[("added", names.clone()), ("changed", names.clone()), ("removed", names.clone())]);
    let letter = object(
        8,
        &[
            ("number", of("integer")),
            ("id", of("string")),
            ("cluster", of("string")),
            ("subject", of("string")),
            ("event", of("string")),
            ("attempts", of("integer")),
            ("error", of("string")),
            ("at", of("string")),
            ("bytes", of("integer")),
            ("body", json!({})),
        ],
    );
    let filter = object(
        0,
        &[
            ("ids", names.clone()),
            ("cluster", or_null("string")),
            ("subject", or_null("string")),
            ("error", or_null("string")),
            ("before", or_null("string")),
        ],
    );
    json!({
        "Status": object(1, &[
            ("ready", of("boolean")),
            ("clusters", list(&of("object"))),
            ("sinks", list(&of("object"))),
        ]),
        "Changes": object(0, &[
            ("clusters", changed.clone()),
            ("clusterSources", changed.clone()),
            ("resources", changed.clone()),
            ("sinks", changed),
            ("needsRestart", names),
        ]),
        "DeadLetters": object(2, &[("letters", list(&reference("DeadLetter"))), ("next", or_null("integer"))]),
        "DeadLetter": letter,
        "LetterFilter": filter,
        "Count": object(1, &[("count", of("integer"))]),
    })
}

//! Writer of the OpenAPI document.

use serde_json::{Map, Value, json};

use super::schema_of::schema_of;
use super::schemas::schemas;
use crate::api::v1::{Answer, Method, Operation, Parameter, Place, Route};

/// Returns the OpenAPI document of the routes.
pub(super) fn document(routes: &[&Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let operations = route.operations.iter().map(|operation| {
            let method = match operation.method {
                Method::Get => "get",
                Method::Post => "post",
            };
            (method.to_owned(), self::operation(operation))
        });
        paths.insert(route.path.to_owned(), Value::Object(operations.collect()));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "informer-hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Queries, live changes and objects of all clusters, and the operation of the hub. \
                            docs/query-api.md and docs/http.md explain it.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

fn operation(operation: &Operation) -> Value {
    let parameters = operation.parameters.iter().copied().flatten().map(parameter);
    let mut members = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters.collect::<Vec<_>>(),
    });
    if let Some(body) = operation.body {
        members["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": reference(body) } } });
    }
    let answers = operation.answers.iter().map(|answer| (answer.code.to_string(), self::answer(answer)));
    let failure = json!({
        "description": "The request failed: `error` says why",
        "content": { "application/json": { "schema": reference("Error") } },
    });
    members["responses"] = Value::Object(answers.chain([("default".to_owned(), failure)]).collect());
    members
}

fn answer(answer: &Answer) -> Value {
    let media = answer.media.iter().map(|media| {
        let schema = media.schema.map_or_else(|| json!({ "type": "string" }), reference);
        (media.name.to_owned(), json!({ "schema": schema }))
    });
    json!({ "description": answer.text, "content": media.collect::<Map<_, _>>() })
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    let schema = schema_of(parameter);
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.is_required,
        "description": parameter.text,
        "schema": schema,
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

//! Sends requests of readers and prepares the answers for comparison.

use axum::http::header::{CONTENT_TYPE, WARNING};

use super::super::super::*;

pub(super) const JSON: &str = "application/json";

/// Code, warning and body of an answer.
pub(super) type Answered = (u16, String, Value);

/// Removes members of these names, at any depth.
pub(super) fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|value| without(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without(item, names)),
        _ => {}
    }
}

/// Sends a request of a reader to some routes.
pub(super) async fn ask(routes: &Router, reader: &Reader, path: &str, accept: &str) -> Answered {
    let request = Request::get(path).header(ACCEPT, accept).extension(reader.clone()).body(Body::empty()).unwrap();
    let response = tokio::time::timeout(PATIENCE, routes.clone().oneshot(request)).await.expect("an answer").unwrap();
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(PATIENCE, to_bytes(body, usize::MAX)).await.expect("an end").unwrap();
    let text = String::from_utf8(body.into()).unwrap();
    let media = head.headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
    let body = match media.split(';').next().unwrap() {
        "application/json" => serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}")),
        "application/yaml" => serde_saphyr::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}")),
        "application/x-ndjson" => text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect(),
        _ => json!(text),
    };
    let warnings = head.headers.get_all(WARNING).iter().map(|value| value.to_str().unwrap());
    (head.status.as_u16(), warnings.collect::<Vec<_>>().join(", "), body)
}

impl Bench {
    /// Sends a request of a reader.
    pub(super) async fn ask_as(&self, reader: &Reader, path: &str, accept: &str) -> Answered {
        ask(&self.routes, reader, path, accept).await
    }
}

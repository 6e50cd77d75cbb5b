//! Tests of the OpenAPI document: it is valid, names the paths that the router has, and describes the answers of these
//! paths.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Method as HttpMethod, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::api::kubernetes::tests::Bench;
use crate::api::{AskLetters, AskReload, ReportedState, Services, StateSource, router};
use informer_hub_telemetry::metrics::{Scraper, Snapshot};

/// Schema of OpenAPI 3.1 documents, from <https://spec.openapis.org/oas/3.1/schema/2022-10-07>.
const META: &str = include_str!("tests/openapi-3.1.json");

fn all(bench: &Bench) -> Router {
    let show: StateSource = Arc::new(|| {
        let status = json!({ "ready": true, "clusters": [], "sinks": [] });
        Box::pin(std::future::ready(Some(ReportedState { ready: true, waiting: Vec::new(), status })))
    });
    let letters: AskLetters = Arc::new(|_, _| Box::pin(async { None }));
    let reload: AskReload = Arc::new(|| Box::pin(std::future::ready(Some(Ok(json!({ "needsRestart": [] }))))));
    let scraper = Scraper::new(|| Snapshot::new(jiff::Timestamp::UNIX_EPOCH));
    router(Services { show, letters, reload, scraper, read: Some(bench.api()) })
}

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::draft202012::options().build(schema).expect("it is a schema")
}

/// Returns a validator of a schema of the document.
fn of_component(document: &Value, name: &str) -> jsonschema::Validator {
    let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": document["components"] });
    validator(&schema)
}

fn errors(validator: &jsonschema::Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{error} at {}", error.instance_path())).collect()
}

/// Replaces the parameter names in a path by `{}`, because the router may use other names.
fn without_names(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "{}".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[test]
fn document_is_valid_openapi_and_its_references_resolve() {
    let meta: Value = serde_json::from_str(META).unwrap();
    let validator = validator(&meta);
    for reads in [false, true] {
        let document = document(&declared(reads));
        assert_eq!(errors(&validator, &document), [""; 0]);
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
        assert_eq!(document["paths"].get("/v1/query").is_some(), reads);
    }
    let mut broken = document(&declared(true));
    broken["paths"]["/v1/query"]["get"]["parameters"][0]["in"] = json!("somewhere");
    assert!(!validator.is_valid(&broken), "the check can fail");
}

#[test]
fn identifiers_are_unique_and_path_parameters_declared() {
    let mut ids = BTreeSet::new();
    for route in declared(true) {
        for operation in route.operations {
            assert!(ids.insert(operation.id), "{}", operation.id);
            let of_path: Vec<_> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
            let parameters = operation.parameters.iter().copied().flatten();
            let declared = parameters.filter(|parameter| parameter.place == crate::api::v1::Place::Path);
            assert_eq!(declared.map(|parameter| parameter.name).collect::<Vec<_>>(), of_path, "{}", route.path);
        }
    }
}

#[test]
fn document_has_exactly_the_paths_of_the_router() {
    let bench = Bench::with_pods();
    let text = format!("{:?}", all(&bench));
    let in_router: BTreeSet<_> = text.split('"').filter(|path| path.starts_with("/v1/")).map(without_names).collect();
    assert!(in_router.len() > 5, "{text}");
    let in_document: BTreeSet<_> = declared(true).iter().map(|route| without_names(route.path)).collect();
    assert_eq!(in_router, in_document);
}

#[tokio::test]
async fn router_allows_exactly_the_declared_methods() {
    let bench = Bench::with_pods();
    for route in declared(true) {
        let path = route.path.replace(['{', '}'], "");
        let request = Request::builder().method(HttpMethod::DELETE).uri(&path).body(Body::empty()).unwrap();
        let response = all(&bench).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = response.headers()["allow"].to_str().unwrap().to_owned();
        let has = |method: Method| route.operations.iter().any(|operation| operation.method == method);
        assert_eq!(allowed.contains("GET"), has(Method::Get), "{path}: {allowed}");
        assert_eq!(allowed.contains("POST"), has(Method::Post), "{path}: {allowed}");
    }
}

#[tokio::test]
async fn answers_have_the_declared_form() {
    let bench = Bench::with_pods();
    let served: Value = ask(&bench, "/v1/openapi.json", 200).await;
    assert_eq!(served, document(&declared(true)));
    for (path, code, schema) in [
        ("/v1/query?resource=pods", 200, "QueryAnswer"),
        ("/v1/query?resource=pods&q=select%20name", 200, "QueryAnswer"),
        ("/v1/query?resource=pods&q=count%20by%20cluster", 200, "QueryAnswer"),
        ("/v1/query?resource=pods&q=nmae", 400, "Error"),
        ("/v1/objects/a/pods/shop/x", 200, "ObjectAnswer"),
        ("/v1/objects/a/pods/shop/none", 404, "Error"),
        ("/v1/status", 200, "Status"),
    ] {
        let answer = ask(&bench, path, code).await;
        assert_eq!(errors(&of_component(&served, schema), &answer), [""; 0], "{path}: {answer}");
    }
    let validator = of_component(&served, "ObjectAnswer");
    assert!(!validator.is_valid(&json!({ "cluster": "a" })), "the check can fail");
}

async fn ask(bench: &Bench, path: &str, code: u16) -> Value {
    let request = Request::get(path).extension(bench.reader.clone()).body(Body::empty()).unwrap();
    let response = all(bench).oneshot(request).await.unwrap();
    assert_eq!(response.status().as_u16(), code, "{path}");
    serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
}

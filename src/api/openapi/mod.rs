//! `/v1/openapi.json`: the OpenAPI document of the paths below `/v1`, made from their declarations.

mod document;
mod operators;
mod schema_of;
mod schemas;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::v1::{Answer, Media, Method, Operation, Route};
use super::{events, objects, query};
use document::document;

const PATH: &str = "/v1/openapi.json";

const ROUTE: Route = Route {
    path: PATH,
    operations: &[Operation {
        method: Method::Get,
        id: "openapi",
        summary: "Returns this document",
        parameters: &[],
        body: None,
        answers: &[Answer {
            code: 200,
            text: "OpenAPI document",
            media: &[Media { name: "application/json", schema: Some("Anything") }],
        }],
    }],
};

/// Returns the declarations of all paths below `/v1` that a port serves: with `reads`, also those that read objects.
fn declared(reads: bool) -> Vec<&'static Route> {
    const READS: [&Route; 4] = [&query::ROUTE, &events::ROUTE, &objects::ROUTES[0], &objects::ROUTES[1]];
    let reads = if reads { &READS[..] } else { &[] };
    reads.iter().copied().chain(&operators::ROUTES).chain([&ROUTE]).collect()
}

/// Returns all paths below `/v1`; with `reads`, also those that read objects.
pub(super) fn paths(reads: bool) -> impl Iterator<Item = &'static str> {
    declared(reads).into_iter().map(|route| route.path)
}

/// Returns the route of the OpenAPI document; with `reads`, it also describes the paths that read objects.
pub(super) fn routes(reads: bool) -> Router {
    let text = Bytes::from(format!("{:#}\n", document(&declared(reads))));
    Router::new().route(PATH, get(move || async move { answer(text) }))
}

fn answer(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

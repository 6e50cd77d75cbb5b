//! `/v1/query`: the query language over HTTP.
//!
//! `GET` has the request as parameters, `POST` as a JSON object with the same members. Both only read.
//!
//! The module `request` parses a request, the cache executes the query, and the module `rows` writes the answer.
//! `docs/query-api.md` describes it for users.

mod cells;
mod meta;
mod request;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;

use super::kubernetes::ReadApi;
use super::v1::{Answer, Failure, Media, Method, Operation, Route, Sight, find};
pub(super) use request::PARAMETERS;
use request::ParsedQuery;

pub(super) const PATH: &str = "/v1/query";

pub(super) const ROUTE: Route = Route {
    path: PATH,
    operations: &[
        Operation {
            method: Method::Get,
            id: "query",
            summary: "Answers a query over the objects of one resource in all clusters",
            parameters: &[PARAMETERS],
            body: None,
            answers: ANSWERS,
        },
        Operation {
            method: Method::Post,
            id: "queryByBody",
            summary: "Answers a query whose members are in the body",
            parameters: &[],
            body: Some("QueryRequest"),
            answers: ANSWERS,
        },
    ],
};

const ANSWERS: &[Answer] = &[Answer {
    code: 200,
    text: "The objects, rows, groups, values or the count. With `explain`, the plan alone, as JSON. If there is more, the \
           header `informer-hub-continue` has the token",
    media: &[
        Media { name: "application/json", schema: Some("QueryAnswer") },
        Media { name: "application/x-ndjson", schema: Some("QueryLine") },
        Media { name: "text/csv", schema: None },
        Media { name: "text/plain", schema: None },
    ],
}];

pub(super) fn routes(api: Arc<ReadApi>) -> Router {
    Router::new().route(PATH, get(by_parameters).post(by_body)).with_state(api)
}

async fn by_parameters(State(api): State<Arc<ReadApi>>, parts: Parts) -> Response {
    let asked = ParsedQuery::of_parameters(&parts.uri);
    respond(&api, &parts, asked).await
}

async fn by_body(State(api): State<Arc<ReadApi>>, parts: Parts, body: Bytes) -> Response {
    let asked = match parts.uri.query() {
        None | Some("") => ParsedQuery::of_body(&body),
        Some(_) => Err(Failure::invalid("a POST takes its members from the body: remove the parameters from the URL")),
    };
    respond(&api, &parts, asked).await
}

async fn respond(api: &Arc<ReadApi>, parts: &Parts, asked: Result<ParsedQuery, Failure>) -> Response {
    let began = informer_hub_types::clock::now();
    let (outcome, resource) = match asked {
        Ok(asked) => answer(api, parts, asked).await,
        Err(failure) => (Err(failure), String::new()),
    };
    let response = outcome.unwrap_or_else(Failure::response);
    api.count("query", &resource, parts, response.status().as_u16(), began);
    response
}

/// Returns the answer and the resource label for metrics.
async fn answer(api: &Arc<ReadApi>, parts: &Parts, asked: ParsedQuery) -> (Result<Response, Failure>, String) {
    let fleet = match api.complete_fleet() {
        Ok(fleet) => fleet,
        Err(status) => return (Err(status.into()), String::new()),
    };
    let cache = match find(&*fleet, &asked.resource, &Sight::of(api, parts)) {
        Ok(cache) => cache,
        Err(failure) => return (Err(failure), String::new()),
    };
    let resource = cache.resource.gvr.to_string();
    (rows::answer(api, &*fleet, cache, parts, asked).await, resource)
}

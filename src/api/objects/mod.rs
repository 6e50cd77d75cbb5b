//! `/v1/objects`: one object with its owners, its children, the Events about it and its last change.
//!
//! `surroundings` gathers the parts, `children` searches downwards, `object_events` reads Events, and `report` writes
//! JSON. `docs/query-api.md` describes it for users.

mod children;
mod object_events;
mod report;
mod surroundings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;

use super::kubernetes::{ReadApi, reader_id, whole_response};
use super::rights::reader_of;
use super::v1::{Answer, Failure, Form, Kind, Media, Method, Operation, Parameter, Parameters, Route, accepted};
use informer_hub_types::clock;
use surroundings::AnswerParts;

/// Path of a namespaced object.
pub(super) const PATH: &str = "/v1/objects/{cluster}/{resource}/{namespace}/{name}";

/// Path of a cluster-scoped object: first for the OpenAPI document, then for axum. For axum, the name is called
/// `{namespace}`, because parameters at the same place of several paths must have the same name.
const CLUSTER_SCOPED: [&str; 2] =
    ["/v1/objects/{cluster}/{resource}/{name}", "/v1/objects/{cluster}/{resource}/{namespace}"];

const CLUSTER: Parameter = Parameter::of_path("cluster", "Name of the cluster");
const RESOURCE: Parameter = Parameter::of_path(
    "resource",
    "Resource: its plural, singular or kind, alone, with the group, or with version and group",
);

const PARAMETERS: &[Parameter] = &[
    Parameter::new("children", Kind::Flag, "Whether to search the objects that the object owns; true if absent"),
    Parameter::new("events", Kind::Flag, "Whether to search the Events about the object; true if absent"),
    Parameter::new("objects", Kind::Flag, "Whether to return the bodies of the owners; true if absent"),
];

const ANSWERS: &[Answer] = &[Answer {
    code: 200,
    text: "The object and its surroundings",
    media: &[Media { name: "application/json", schema: Some("ObjectAnswer") }],
}];

pub(super) const ROUTES: [Route; 2] = [
    Route {
        path: PATH,
        operations: &[Operation {
            method: Method::Get,
            id: "object",
            summary: "Returns a namespaced object with its owners, children, Events and last change",
            parameters: &[
                &[
                    CLUSTER,
                    RESOURCE,
                    Parameter::of_path("namespace", "Namespace of the object"),
                    Parameter::of_path("name", "Name of the object"),
                ],
                PARAMETERS,
            ],
            body: None,
            answers: ANSWERS,
        }],
    },
    Route {
        path: CLUSTER_SCOPED[0],
        operations: &[Operation {
            method: Method::Get,
            id: "clusterScopedObject",
            summary: "Returns a cluster-scoped object with its owners, children, Events and last change",
            parameters: &[&[CLUSTER, RESOURCE, Parameter::of_path("name", "Name of the object")], PARAMETERS],
            body: None,
            answers: ANSWERS,
        }],
    },
];

pub(super) fn routes(api: Arc<ReadApi>) -> Router {
    Router::new().route(PATH, get(namespaced)).route(CLUSTER_SCOPED[1], get(cluster_scoped)).with_state(api)
}

async fn namespaced(
    State(api): State<Arc<ReadApi>>,
    Path([cluster, resource, namespace, name]): Path<[String; 4]>,
    parts: Parts,
) -> Response {
    answer(&api, &parts, [&cluster, &resource, &namespace, &name]).await
}

async fn cluster_scoped(
    State(api): State<Arc<ReadApi>>,
    Path([cluster, resource, name]): Path<[String; 3]>,
    parts: Parts,
) -> Response {
    answer(&api, &parts, [&cluster, &resource, "", &name]).await
}

async fn answer(api: &Arc<ReadApi>, parts: &Parts, place: [&str; 4]) -> Response {
    let began = clock::now();
    let mut resource = String::new();
    let outcome = find(api, parts, place, &mut resource).await;
    let response = outcome.unwrap_or_else(Failure::response);
    api.count("object", &resource, parts, response.status().as_u16(), began);
    response
}

/// Returns the answer about the object at `place`: cluster, resource, namespace and name. Sets `name_of_resource` to
/// the resource label for metrics.
async fn find(
    api: &Arc<ReadApi>,
    parts: &Parts,
    place: [&str; 4],
    name_of_resource: &mut String,
) -> Result<Response, Failure> {
    accepted(parts, &[Form::Json])?;
    let parameters = Parameters::of(&parts.uri, &[PARAMETERS])?;
    let is_wanted = |name| Ok::<_, Failure>(parameters.flag(name)?.unwrap_or(true));
    let wanted =
        AnswerParts { children: is_wanted("children")?, events: is_wanted("events")?, objects: is_wanted("objects")? };
    let fleet = api.complete_fleet()?;
    let admission = api.admit(&reader_id(parts), &reader_of(parts))?;
    let json = surroundings::gather(api, &*fleet, parts, place, wanted, name_of_resource).await?;
    api.sent(json.len());
    Ok(whole_response(Form::Json.content_type(), json.into(), admission))
}

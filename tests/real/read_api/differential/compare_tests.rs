//! Tests of the comparison: it finds every kind of difference, and none between answers that mean the same.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::answer::Answer;
use super::compare::differences;
use super::request::{Request, Verb};
use crate::read_api::endpoint::RawAnswer;

fn request(verb: Verb) -> Request {
    let query = if verb == Verb::Watch { vec![("watch", "1".to_owned())] } else { Vec::new() };
    Request { verb, resource: None, path: "/api/v1/pods".to_owned(), query, accept: None }
}

fn raw(body: &str, content_type: &str) -> RawAnswer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", content_type.parse().unwrap());
    RawAnswer { status: StatusCode::OK, headers, body: body.to_owned(), bytes: body.to_owned().into() }
}

/// Returns where two JSON answers differ.
fn places(verb: Verb, kube: &str, hub: &str) -> Vec<String> {
    let [kube, hub] = [kube, hub].map(|body| Answer::new(&request(verb), &raw(body, "application/json")));
    differences(&kube, &hub, Duration::ZERO).into_iter().map(|difference| difference.at).collect()
}

fn list() -> Value {
    json!({
        "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "70", "continue": "abc" },
        "items": [
            { "metadata": { "name": "a", "resourceVersion": "5", "managedFields": [{}] }, "spec": { "x": [1, 2] } },
            { "metadata": { "name": "b", "resourceVersion": "6" } },
        ],
    })
}

#[test]
fn comparison_finds_each_change_of_a_list() {
    let list = list().to_string();
    let changed = |from: &str, to: &str| {
        assert!(list.contains(from), "{from} in {list}");
        places(Verb::List, &list, &list.replace(from, to))
    };
    assert_eq!(places(Verb::List, &list, &list), [] as [&str; 0]);
    assert_eq!(changed("\"name\":\"b\"", "\"name\":\"c\""), ["/items/1/metadata/name"]);
    assert_eq!(
        changed("\"resourceVersion\":\"6\"", "\"resourceVersion\":\"7\""),
        ["/items/1/metadata/resourceVersion"]
    );
    assert_eq!(changed("[1,2]", "[1,2,3]"), ["/items/0/spec/x/length", "/items/0/spec/x/2"]);
    assert_eq!(changed("[1,2]", "[2,1]"), ["/items/0/spec/x/0", "/items/0/spec/x/1"]);
    assert_eq!(changed("\"continue\":\"abc\",", ""), ["/metadata/continue"]);
    assert_eq!(changed("\"resourceVersion\":\"70\"", "\"resourceVersion\":\"\""), ["/metadata/resourceVersion"]);
    assert_eq!(changed("PodList", "List"), ["/kind"]);
    assert_eq!(changed("{\"apiVersion\"", "{\n\"apiVersion\""), ["pretty"]);
}

#[test]
fn comparison_ignores_list_versions_tokens_and_managed_fields() {
    let mut other = list();
    other["metadata"] = json!({ "resourceVersion": "71", "continue": "def" });
    other["items"][0]["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(places(Verb::List, &list().to_string(), &other.to_string()), [] as [&str; 0]);
}

#[test]
fn comparison_finds_each_change_of_a_watch() {
    let event = |kind: &str, version: &str| {
        json!({ "type": kind, "object": { "kind": "Pod", "metadata": { "resourceVersion": version } } }).to_string()
    };
    let end = json!({ "type": "BOOKMARK", "object": { "kind": "Pod", "metadata": {
        "resourceVersion": "9", "annotations": { "k8s.io/initial-events-end": "true" },
    } } });
    let kube = [event("ADDED", "1"), end.to_string(), event("BOOKMARK", "30")].join("\n");
    let same = [event("ADDED", "1"), end.to_string().replace("\"9\"", "\"8\"")].join("\n");
    assert_eq!(places(Verb::Watch, &kube, &same), [] as [&str; 0]);
    let other = [event("MODIFIED", "1"), end.to_string()].join("\n");
    assert_eq!(places(Verb::Watch, &kube, &other), ["/0/type"]);
    assert_eq!(places(Verb::Watch, &kube, &event("ADDED", "1")), ["/length", "/1"]);
    assert_eq!(places(Verb::Watch, &kube, ""), ["/length", "/0"]);
}

#[test]
fn ages_may_differ_by_the_time_that_the_answers_took() {
    let table = |age: &str| {
        let body = json!({ "kind": "Table", "rows": [{ "cells": ["x", age] }] }).to_string();
        Answer::new(&request(Verb::List), &raw(&body, "application/json"))
    };
    let count =
        |kube: &str, hub: &str, millis| differences(&table(kube), &table(hub), Duration::from_millis(millis)).len();
    assert_eq!([count("59s", "60s", 0), count("59s", "61s", 0), count("17s", "19s", 600)], [0, 1, 0]);
    assert_eq!([count("17s", "21s", 1900), count("2m", "123s", 1900), count("a", "b", 9000)], [1, 0, 1]);
}

#[test]
fn comparison_finds_status_headers_and_messages() {
    let status = |code: u16, message: &str| {
        let body = json!({ "kind": "Status", "code": code, "message": message }).to_string();
        RawAnswer { status: StatusCode::from_u16(code).unwrap(), ..raw(&body, "application/json") }
    };
    let at = |kube: &RawAnswer, hub: &RawAnswer| {
        let [kube, hub] = [kube, hub].map(|raw| Answer::new(&request(Verb::List), raw));
        differences(&kube, &hub, Duration::ZERO).into_iter().map(|difference| difference.at).collect::<Vec<_>>()
    };
    let kube = status(410, "too old resource version: 5 (70)");
    assert_eq!(at(&kube, &status(410, "too old resource version: 5 (83)")), [] as [&str; 0]);
    assert_eq!(at(&kube, &status(410, "too old resource version: 6 (70)")), ["/message"]);
    assert_eq!(at(&kube, &status(400, "too old resource version: 5 (70)")), ["status", "/code"]);
    let mut limited = kube.clone();
    limited.headers.insert("retry-after", "1".parse().unwrap());
    limited.headers.insert("warning", "299 - \"stale\"".parse().unwrap());
    assert_eq!(at(&kube, &limited), ["retry-after", "warning"]);
    let text = raw("404 page not found\n", "text/plain; charset=utf-8");
    assert_eq!(at(&kube, &text), ["status", "content-type", "body"]);
}

#[test]
fn yaml_is_compared_by_value() {
    let kube = raw("kind: Pod\nspec:\n  a: \"1\"\n", "application/yaml");
    let at = |hub: &str| {
        let [kube, hub] = [&kube, &raw(hub, "application/yaml")].map(|raw| Answer::new(&request(Verb::Get), raw));
        differences(&kube, &hub, Duration::ZERO).into_iter().map(|difference| difference.at).collect::<Vec<_>>()
    };
    assert_eq!(at("kind: Pod\nspec: {a: '1'}\n"), [] as [&str; 0]);
    assert_eq!(at("kind: Pod\nspec:\n  a: 1\n"), ["/spec/a"]);
}

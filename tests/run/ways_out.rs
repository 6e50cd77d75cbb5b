//! Test that secret values leave a running hub only as documented. A *way out* is a request, command or sink that can
//! show objects. Markers are planted in objects; each may appear only on the documented ways, and values of Secrets
//! only for readers with the right to Secrets.
//!
//! `rows` is the table of ways, `hub` plants the markers, `ask` takes the ways. A path, form, command or sink without a
//! row fails `every_way_out_has_a_row`.

mod ask;
mod hub;
mod rows;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use futures::StreamExt;

use crate::client::{command, outcome};
use ask::text_of;
use hub::{Planted, READERS};
use rows::{COMMANDS_WITHOUT_OBJECTS, MARKERS, OPERATIONS_WITHOUT_OBJECTS, Row, SINKS_AS_FILE, rows};

/// Number of ways that are tried at the same time.
const AT_ONCE: usize = 8;

/// Returns the markers in a text, as they are or in base64.
fn markers_in(text: &str) -> BTreeSet<&'static str> {
    MARKERS.into_iter().filter(|marker| forms_of(marker).iter().any(|form| text.contains(form))).collect()
}

/// Returns the texts by which a marker is found: itself, and its base64 at each of the three byte offsets, without the
/// characters that depend on neighbouring bytes.
fn forms_of(marker: &str) -> Vec<String> {
    let in_base64 = |before: usize| {
        let bytes = ["x".repeat(before).as_bytes(), marker.as_bytes()].concat();
        let text = STANDARD_NO_PAD.encode(&bytes);
        text[(before * 8).div_ceil(6)..bytes.len() * 8 / 6].to_owned()
    };
    std::iter::once(marker.to_owned()).chain((0..3).map(in_base64)).collect()
}

#[test]
fn markers_are_found_in_base64_at_every_offset() {
    for before in ["", "a", "ab", "abc"] {
        for after in ["", "-", "-2"] {
            let value = STANDARD.encode(format!("{before}mark-data{after}"));
            assert_eq!(markers_in(&format!("{{\"k\":\"{value}\"}}")), ["mark-data"].into(), "{value}");
        }
    }
    assert_eq!(markers_in("bWFyay1vdGhlcg=="), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_values_leave_only_by_documented_ways_to_readers_with_the_right() {
    let hub = Planted::start().await;
    let rows = rows(&hub.positions);
    let asked = rows.iter().flat_map(|row| READERS.iter().map(move |reader| (row, reader)));
    let mut texts = futures::stream::iter(asked.collect::<Vec<_>>())
        .map(|(row, reader)| {
            let text = text_of(&hub, reader, &row.ask);
            async move { (row, reader, text.await) }
        })
        .buffer_unordered(AT_ONCE);
    let mut problems = Vec::new();
    while let Some((Row { way, public, private, .. }, reader, text)) = texts.next().await {
        let private = if reader.sees_secrets { *private } else { &[] };
        let expected: BTreeSet<_> = public.iter().chain(private).copied().collect();
        let found = markers_in(&text);
        if found != expected {
            problems.push(format!("{way} for {}: {found:?} instead of {expected:?} in {text:.1500}", reader.name));
        }
        // As with kube-apiserver, a refusal is a `Status` in JSON.
        if way.contains("protobuf") && !text.contains("k8s\0") && !text.contains("\"kind\": \"Status\"") {
            problems.push(format!("{way} for {} is no protobuf: {text:.1500}", reader.name));
        }
    }
    assert!(problems.is_empty(), "{} of {} ways:\n{}", problems.len(), rows.len(), problems.join("\n"));
    for (sink, text) in hub.delivered() {
        assert!(text.contains("vault") && text.contains("web"), "{sink} has events of both: {text:.500}");
        assert_eq!(markers_in(&text), BTreeSet::new(), "{sink}");
    }
    assert_eq!(markers_in(&hub.process.log()), BTreeSet::new(), "the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_out_has_a_row() {
    let hub = Planted::start().await;
    let rows = rows(&hub.positions);
    let known = |way: &str| rows.iter().any(|row| row.way == way || row.way.starts_with(&format!("{way} ")));
    let document: serde_json::Value =
        serde_json::from_str(&hub.get(&READERS[0], "/v1/openapi.json", "*/*").await.1).unwrap();
    let mut ways = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let operation_way = format!("{} {path}", method.to_uppercase());
            let media = operation["responses"]["200"]["content"].as_object().unwrap();
            for form in media.keys() {
                let way = format!("{operation_way} {form}");
                ways += 1;
                assert!(
                    known(&way) || OPERATIONS_WITHOUT_OBJECTS.contains(&operation_way.as_str()),
                    "{way} has no row: add one to tests/run/ways_out/rows.rs"
                );
            }
        }
    }
    assert!(ways > 15, "{ways}");
    for operation in OPERATIONS_WITHOUT_OBJECTS {
        let (method, path) = operation.split_once(' ').unwrap();
        assert!(document["paths"][path][method.to_lowercase()].is_object(), "{operation} does not exist");
    }
    let help = outcome(command(&["--help"])).out;
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in commands.map(|line| line.split_whitespace().next().unwrap()) {
        let is_known = known(&format!("informer-hub {command}")) || COMMANDS_WITHOUT_OBJECTS.contains(&command);
        assert!(is_known, "informer-hub {command} has no row: add one to tests/run/ways_out/rows.rs");
    }
    let schema = outcome(command(&["config", "schema"])).out;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let kinds = schema["properties"]["sinks"]["additionalProperties"]["oneOf"].as_array().unwrap();
    for kind in kinds.iter().map(|kind| kind["properties"]["type"]["const"].as_str().unwrap()) {
        let is_known = hub.delivered().iter().any(|(sink, _)| *sink == kind) || SINKS_AS_FILE.contains(&kind);
        assert!(is_known, "sinks of type {kind} have no row");
    }
}

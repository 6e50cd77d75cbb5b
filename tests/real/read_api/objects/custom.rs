//! A custom resource with printer columns of each type, selectable fields and a status.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{NAMESPACES, Seed, metadata, past, pick};

pub(in crate::read_api) use crate::read_api::resources::GADGETS;

/// Number of gadgets.
const COUNT: usize = 16;

/// Returns the definition of gadgets.
pub(super) fn definition() -> Seed {
    let text = json!({ "type": "string" });
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let mut wide = column("Note", "string", ".metadata.annotations.note");
    wide["priority"] = json!(1);
    wide["description"] = json!("A note.");
    let mut ratio = column("Ratio", "number", ".spec.ratio");
    ratio["format"] = json!("double");
    let condition = json!({ "type": "object", "properties": {
        "type": text, "status": text, "reason": text, "lastTransitionTime": { "type": "string", "format": "date-time" },
    } });
    let spec = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "size": { "type": "integer" }, "color": text, "ratio": { "type": "number" }, "on": { "type": "boolean" },
        "since": { "type": "string", "format": "date-time" }, "parts": { "type": "array", "items": text },
    } });
    let status = json!({ "type": "object", "properties": {
        "phase": text, "conditions": { "type": "array", "items": condition },
    } });
    Seed::new(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.read.example.com" },
        "spec": {
            "group": GADGETS.group, "scope": "Namespaced",
            "names": {
                "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["gd"],
                "categories": ["all", "toys"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": status } } },
                "selectableFields": [{ "jsonPath": ".spec.size" }, { "jsonPath": ".spec.color" }],
                "additionalPrinterColumns": [
                    column("Size", "integer", ".spec.size"), column("Color", "string", ".spec.color"),
                    ratio, column("On", "boolean", ".spec.on"), column("Since", "date", ".spec.since"),
                    column("Parts", "string", ".spec.parts"), column("First", "string", ".spec.parts[0]"),
                    column("All", "string", ".spec.parts[*]"),
                    column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                    column("App", "string", ".metadata.labels.app"),
                    column("Version", "string", ".metadata.labels.example\\.com/version"),
                    column("Nested", "string", ".spec.nested"), column("Phase", "string", ".status.phase"), wide,
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    }))
}

/// Returns a gadget that the apiserver accepts once gadgets are served.
pub(super) fn probe() -> Vec<u8> {
    let probe = json!({
        "apiVersion": GADGETS.api_version(), "kind": "Gadget", "metadata": { "name": "probe" }, "spec": {},
    });
    probe.to_string().into_bytes()
}

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    (0..COUNT).map(|number| gadget(random, number)).collect()
}

fn gadget(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let mut spec = json!({});
    let parts = &["left", "right", "top"][..random.random_range(0..4)];
    let values = [
        ("size", json!(pick(random, &[1, 7, 42, 1_000_000_000_000i64]))),
        ("color", json!(pick(random, &["red", "blue", ""]))),
        ("ratio", json!(pick(random, &[0.5, 1.0, -3.25, 1e21]))),
        ("on", json!(random.random_bool(0.5))),
        ("since", json!(past(random))),
        ("parts", json!(parts)),
        ("nested", json!({ "b": 1, "a": [true, null, "x"] })),
    ];
    for (field, value) in values {
        if random.random_bool(0.75) {
            spec[field] = value;
        }
    }
    let mut metadata = metadata(random, Some(namespace), &format!("gadget-{number}"));
    if random.random_bool(0.2) {
        metadata["generateName"] = json!("gadget-");
    }
    let seed = Seed::new(json!({
        "apiVersion": GADGETS.api_version(), "kind": "Gadget", "metadata": metadata, "spec": spec,
    }));
    if random.random_bool(0.3) {
        return seed;
    }
    let condition = |random: &mut StdRng, kind: &str| -> Value {
        let status = *pick(random, &["True", "False"]);
        json!({ "type": kind, "status": status, "reason": "Because", "lastTransitionTime": past(random) })
    };
    let conditions = [condition(random, "Synced"), condition(random, "Ready")];
    seed.with_status(json!({ "phase": pick(random, &["Idle", "Busy"]), "conditions": conditions }))
}

//! Random JSON for property tests.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON value.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-z0-9:/.\\- ]{0,12}", "[\\[\\]{}\",:\\\\é\u{1}\n\t' #&]{0,10}", Just("true".to_owned())];
    let lines =
        prop_oneof!["([a-z:#]{1,9} {1,2}){12,20}[a-z]", "([a-zé\"]{1,9} ){12,20}\t", "( ?[a-z]{0,3}\n){1,4}[a-z]?"];
    // No whole floats: written as YAML, they would be read back as integers.
    let float = any::<f64>().prop_map(|number| if number.fract() == 0.0 && number < 1e6 { 0.5 } else { number });
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        float.prop_map(Value::from),
        text.prop_map(Value::from),
        lines.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"\\\\é/. ]{0,6}", inner, 0..4)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// A random Kubernetes object. `kind` and `apiVersion` may both be missing, and so may the metadata or any of its
/// members.
pub(crate) fn object() -> impl Strategy<Value = Value> {
    let map = || {
        prop::collection::btree_map(prop_oneof!["[a-z]{1,3}", Just(super::CLUSTER_KEY.to_owned())], "[a-z]{0,3}", 0..3)
    };
    let metadata = (
        prop::option::weighted(0.9, "[a-z\"\\\\é]{1,8}"),
        prop::option::weighted(0.9, any::<u64>()),
        prop::option::of(map()),
        prop::option::of(map()),
        prop::option::of(json()),
    )
        .prop_map(|(name, version, labels, annotations, other)| {
            let mut metadata = Map::new();
            let mut insert =
                |name: &str, value: Option<Value>| value.map(|value| metadata.insert(name.to_owned(), value));
            insert("name", name.map(Value::from));
            insert("resourceVersion", version.map(|version| version.to_string().into()));
            insert("labels", labels.map(|labels| json!(labels)));
            insert("annotations", annotations.map(|annotations| json!(annotations)));
            insert("managedFields", other);
            Value::from(metadata)
        });
    (any::<bool>(), prop::option::weighted(0.9, metadata), prop::option::of(json()), prop::option::of(json())).prop_map(
        |(has_type, metadata, first, last)| {
            let mut object = Map::new();
            if has_type {
                object.insert("apiVersion".to_owned(), "apps/v1".into());
                object.insert("kind".to_owned(), "Deployment".into());
            }
            let members = [("metadata", metadata), ("a", first), ("spec", last)];
            object.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
            object.into()
        },
    )
}

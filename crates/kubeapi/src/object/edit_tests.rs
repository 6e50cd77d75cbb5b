//! Tests of changes to objects.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::object::testing::object;
use crate::object::{partial_metadata, rewrite, set_version, without_type};

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

fn tree(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(json)))
}

/// Returns the result that `edit` must have for `object`.
fn expected(mut object: Value, edit: &Edit<'_>) -> Value {
    if edit.without_type {
        let members = object.as_object_mut().unwrap();
        members.remove("kind");
        members.remove("apiVersion");
    }
    if let Some(version) = edit.version {
        object["metadata"]["resourceVersion"] = version.to_string().into();
    }
    if let Some(cluster) = edit.cluster {
        object["metadata"]["labels"][CLUSTER_KEY] = cluster.as_str().into();
        object["metadata"]["annotations"][CLUSTER_KEY] = cluster.as_str().into();
        if edit.is_unique
            && let Some(name) = object["metadata"].get_mut("name")
        {
            *name = format!("{cluster}:{}", name.as_str().unwrap()).into();
        }
    }
    object
}

#[test]
fn rewrite_changes_version_name_label_and_annotation() {
    let pod = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"}},"spec":{}}"#;
    let cluster = cluster("prod-eu");
    let rewritten = rewrite(pod, Identity { cluster: &cluster, version: 12, is_unique: true });
    let expected = concat!(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"prod-eu:a","resourceVersion":"12","#,
        r#""labels":{"x":"y","informer-hub.io/cluster":"prod-eu"},"#,
        r#""annotations":{"informer-hub.io/cluster":"prod-eu"}},"spec":{}}"#,
    );
    assert_eq!(String::from_utf8(rewritten).unwrap(), expected);
}

#[test]
fn set_version_leaves_other_bytes_as_they_are() {
    let pod = br#"{"kind":"Pod","metadata":{"resourceVersion":"7","name":"a\u0041" } , "spec":{ }}"#;
    let expected = br#"{"kind":"Pod","metadata":{"resourceVersion":"8","name":"a\u0041" } , "spec":{ }}"#;
    // White space is lost between members that are copied one by one.
    assert_eq!(tree(&set_version(pod, 8)), tree(expected));
    assert!(set_version(pod, 8).ends_with(br#""name":"a\u0041" }, "spec":{ }}"#));
}

#[test]
fn type_is_left_out_wherever_it_is() {
    for (json, expected) in [
        (r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#, r#"{"metadata":{}}"#),
        (r#"{"kind":"Pod","apiVersion":"v1"}"#, "{}"),
        (r#"{"a":1,"kind":"Pod","b":{"kind":"x"}}"#, r#"{"a":1,"b":{"kind":"x"}}"#),
        (r#"{ "kind" : "Pod" , "a" : 1 }"#, r#"{"a" : 1}"#),
        ("{}", "{}"),
        ("[1]", "[1]"),
        ("", ""),
    ] {
        let mut out = b"> ".to_vec();
        without_type(json.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("> {expected}"), "{json}");
    }
}

#[test]
fn partial_metadata_has_the_metadata_only() {
    let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    for (json, metadata) in [
        (r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{}}"#, r#"{"name":"a"}"#),
        (r#"{"kind":"Pod"}"#, "{}"),
        (r#"{"metadata":null}"#, "{}"),
        ("x", "{}"),
    ] {
        assert_eq!(String::from_utf8(partial_metadata(json.as_bytes())).unwrap(), format!("{head}{metadata}}}"));
    }
}

#[test]
fn members_of_a_wrong_type_are_replaced() {
    let cluster = cluster("a");
    let edit = Edit { version: Some(1), cluster: Some(&cluster), is_unique: true, without_type: false };
    let map = json!({CLUSTER_KEY: "a"});
    let complete = json!({"metadata": {"resourceVersion": "1", "labels": map, "annotations": map, "name": 5}});
    for json in [
        r#"{"metadata":{"name":5,"labels":null,"annotations":[1,{}]}}"#,
        r#"{"metadata":{"name":5,"labels":"x","resourceVersion":{}}}"#,
    ] {
        assert_eq!(tree(&edit.object(json.as_bytes())), complete, "{json}");
    }
    assert_eq!(tree(&edit.object(br#"{"metadata":7}"#))["metadata"]["resourceVersion"], "1");
}

#[test]
fn malformed_json_is_copied() {
    let cluster = cluster("a");
    let edit = Edit { version: Some(1), cluster: Some(&cluster), is_unique: true, without_type: true };
    for json in
        ["", "{", "{\"", "{\"kind\"", "{\"kind\":", "{\"metadata\":{\"name\":}", "[]", "{]", "{\"a\":]}", "{a:1}"]
    {
        assert_eq!(edit.object(json.as_bytes()), json.as_bytes(), "{json}");
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(2048))]

    #[test]
    fn edited_object_equals_the_edited_tree(
        object in object(),
        version in prop::option::of(any::<u64>()),
        name in prop::option::of("[a-z][a-z0-9._-]{0,8}"),
        is_unique in any::<bool>(),
        without_type in any::<bool>(),
        is_pretty in any::<bool>(),
    ) {
        let cluster = name.as_deref().map(cluster);
        let edit = Edit { version, cluster: cluster.as_ref(), is_unique, without_type };
        let json = if is_pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
        let edited = edit.object(&json);
        prop_assert!(edited.len() <= json.len() + edit.growth());
        prop_assert_eq!(tree(&edited), expected(object.clone(), &edit));
        let mut partial = Vec::new();
        edit.write_metadata(&json, &mut partial);
        let mut metadata = expected(json!({"metadata": object.get("metadata").cloned().unwrap_or(json!({}))}), &edit);
        metadata["kind"] = "PartialObjectMetadata".into();
        metadata["apiVersion"] = "meta.k8s.io/v1".into();
        prop_assert_eq!(tree(&partial), metadata);
    }

    #[test]
    fn truncated_and_corrupted_objects_cause_no_panic(object in object(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let cluster = cluster("a");
        let edit = Edit { version: Some(1), cluster: Some(&cluster), is_unique: true, without_type: true };
        let mut json = serde_json::to_vec(&object).unwrap();
        let at = at.index(json.len());
        let _ = edit.object(&json[..at]);
        edit.write_metadata(&json[..at], &mut Vec::new());
        json[at] = byte;
        let _ = edit.object(&json);
        edit.write_metadata(&json, &mut Vec::new());
    }
}

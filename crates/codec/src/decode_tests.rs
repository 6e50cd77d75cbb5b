use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ErrorClass;
use informer_hub_types::{Gvr, Segment, SharedStr};

fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

fn paths(texts: &[&str]) -> Vec<FieldPath> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn dropping(texts: &[&str]) -> Decoder {
    Decoder::new(pods(), &Projection::Drop(paths(texts)), Vec::new())
}

fn keeping(texts: &[&str]) -> Decoder {
    Decoder::new(pods(), &Projection::Keep(paths(texts)), Vec::new())
}

fn indexing(indexes: &[(&str, &str)]) -> Decoder {
    let indexes = indexes.iter().map(|(name, path)| ((*name).into(), path.parse().unwrap())).collect();
    Decoder::new(pods(), &Projection::default(), indexes)
}

fn object(decoder: &mut Decoder, json: &str) -> Arc<StoredObject> {
    match decoder.decode_object(json.as_bytes()).unwrap() {
        Decoded::Object(object) => object,
        Decoded::Skipped(skipped) => panic!("{}", skipped.reason),
    }
}

fn stored(decoder: &mut Decoder, json: &Value) -> Value {
    object(decoder, &json.to_string()).typed().unwrap()
}

fn values(object: &StoredObject) -> Vec<(&str, &str)> {
    object.index_values().iter().map(|entry| (&*entry.index, &*entry.value)).collect()
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "resourceVersion": "42", "labels": {"app": "web", "tier": "fr\"ont"},
            "annotations": {"a": "1", "b": "2"},
            "managedFields": [{"manager": "kubectl", "x": {"f:spec": {}}}], "generation": 3,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "i1"}, {"name": "b", "image": "i2"}],
                 "replicas": 3, "hostNetwork": true, "nothing": null},
        "status": {"phase": "Running"},
    })
}

#[test]
fn head_of_object_is_decoded() {
    let object = object(&mut indexing(&[]), &pod().to_string());
    assert_eq!(object.key().as_str(), "shop/web-0");
    assert_eq!(object.uid().to_string(), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6");
    assert_eq!(object.resource_version(), &ResourceVersion::new("42"));
    assert_eq!(object.labels().iter().collect::<Vec<_>>(), [("app", "web"), ("tier", "fr\"ont")]);
}

#[test]
fn default_projection_cuts_managed_fields_only() {
    let mut expected = pod();
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(stored(&mut indexing(&[]), &pod()), expected);
}

#[test]
fn cut_removes_the_right_comma() {
    for text in [
        r#"{"metadata":{"name":"x"},"a":1,"b":2,"c":3}"#,
        r#"{"a":1,"metadata":{"name":"x"}}"#,
        r#"{ "a" : 1 , "metadata" : { "name" : "x" } , "b" : 2 }"#,
        r#"{"metadata":{"a":1,"name":"x","b":2}, "a":1, "b": {"q":"}"} }"#,
        r#"{"metadata":{"name":"x"},"a":[1,2],"\u0061":"\"","b":","}"#,
    ] {
        let mut decoder = dropping(&["a", "b", "c", "metadata.a", "metadata.b"]);
        let stored: Value = object(&mut decoder, text).typed().unwrap();
        assert_eq!(stored, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}), "{text}");
    }
}

#[test]
fn drop_projection_reaches_array_elements() {
    let mut expected = pod();
    expected["spec"]["containers"] = json!([{"name": "a"}, {"name": "b"}]);
    assert_eq!(stored(&mut dropping(&["spec.containers[*].image"]), &pod()), expected);
    expected["spec"]["containers"] = json!([]);
    assert_eq!(stored(&mut dropping(&["spec.containers[*]"]), &pod()), expected);
}

#[test]
fn drop_projection_keeps_identity() {
    let drop = ["metadata", "metadata.name", "metadata.uid", "kind", "metadata.labels"];
    let mut expected = pod();
    expected["metadata"].as_object_mut().unwrap().remove("labels");
    let object = object(&mut dropping(&drop), &pod().to_string());
    assert_eq!(object.typed::<Value>().unwrap(), expected);
    assert_eq!(object.labels().get("app"), Some("web"), "labels of the head are no part of the body");
}

#[test]
fn keep_projection_has_requested_paths_and_head() {
    let kept =
        stored(&mut keeping(&["spec.containers[*].image", "status", "spec.volumes[*].name", "spec.x.y"]), &pod());
    let metadata = json!({"name": "web-0", "namespace": "shop", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "resourceVersion": "42", "labels": {"app": "web", "tier": "fr\"ont"}, "generation": 3});
    assert_eq!(
        kept,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
               "spec": {"containers": [{"image": "i1"}, {"image": "i2"}]}, "status": {"phase": "Running"}})
    );
    let item = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"image": "i"}, {"name": "n"}, 5]}});
    let kept = stored(&mut keeping(&["spec.containers[*].image"]), &item);
    assert_eq!(kept["spec"]["containers"], json!([{"image": "i"}, {}, {}]));
    assert_eq!(kept["kind"], "Pod");
}

/// Decodes a pod with a [`Projection::Keep`] of `paths`. `members` is the JSON that follows the pod's `metadata`.
/// Returns what the projection keeps of `members`.
fn kept(paths: &[&str], members: &str) -> String {
    let json = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"x"}}{members}}}"#);
    let object = object(&mut keeping(paths), &json);
    let text = String::from_utf8(object.json().unwrap().to_vec()).unwrap();
    let rest = text.strip_prefix(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}"#).expect(&text);
    rest.strip_suffix('}').expect(&text).to_owned()
}

#[test]
fn keep_projection_leaves_empty_objects_in_arrays_only() {
    let texts = ["s.a.b", "s.l[*].c", "s.m[*][*].d", "t"];
    for (members, expected) in [
        (r#","s":{"a":{"c":1}}"#, ""),
        (r#","s":{"a":{}}"#, ""),
        (r#","s":{}"#, ""),
        (r#","s":[1,2]"#, ""),
        (r#","s":{"a":7,"z":8}"#, ""),
        (r#","s":{"a":{"b":1,"c":2}}"#, r#","s":{"a":{"b":1}}"#),
        (r#","s":{"l":[]}"#, r#","s":{"l":[]}"#),
        (r#","s":{"l":[1]}"#, r#","s":{"l":[{}]}"#),
        (r#","s":{"l":[{"c":[1, 2],"x":1},{"x":1},{"c":"q\"q"}]}"#, r#","s":{"l":[{"c":[1, 2]},{},{"c":"q\"q"}]}"#),
        (r#","s":{"l":{"c":1}}"#, ""),
        (r#","s":{"m":[[{"d":1},{}],[],7]}"#, r#","s":{"m":[[{"d":1},{}],[],{}]}"#),
        (r#","t":null,"s":{"a":{"b":null}}"#, r#","t":null,"s":{"a":{"b":null}}"#),
        (r#","x":{"t":1},"t":{"x":[{}]}"#, r#","t":{"x":[{}]}"#),
    ] {
        assert_eq!(kept(&texts, members), expected, "{members}");
    }
    assert_eq!(
        kept(&["s", "s.a", "s.l[*].c"], r#","s":{"a":1,"l":[{"c":2}]}"#),
        r#","s":{"a":1,"l":[{"c":2}]}"#,
        "once"
    );
    assert_eq!(kept(&["['a\"b'].c"], r#","a\"b":{"c":1}"#), r#","a\"b":{"c":1}"#);
}

#[test]
fn nested_drop_paths_cut_once() {
    let texts = ["s", "s.a", "s.l[*].c", "t.l[*]", "t.l[*].c", "t.m[*].c"];
    let json =
        r#"{"metadata":{"name":"x"},"s":{"a":1,"l":[{"c":2}]},"t":{"l":[{"c":3},4],"m":[{"c":5},{"d":6,"c":7}]}}"#;
    let object = object(&mut dropping(&texts), json);
    let expected = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"t":{"l":[],"m":[{},{"d":6}]}}"#;
    assert_eq!(object.json_text().unwrap(), expected);
}

#[test]
fn key_ending_in_backslashes_is_cut_whole() {
    for key in [r"\\", r"\\\\", r#"\""#, r#"\\\""#, r#"a\"b\\"#] {
        // Paths and JSON have the same escapes here.
        let mut decoder = dropping(&[&format!("[\"{key}\"]")]);
        let json = format!(r#"{{"metadata":{{"name":"x"}},"q":"\\\"","{key}":1,"z":2}}"#);
        let found: Value = object(&mut decoder, &json).typed().unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "q": "\\\"", "z": 2});
        assert_eq!(found, expected, "{key}");
    }
}

#[test]
fn list_items_get_api_version_and_kind() {
    let object = object(&mut indexing(&[]), r#" {"metadata":{"name":"x"}} "#);
    assert_eq!(&*object.json().unwrap(), br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}"#);
    let deployments =
        ApiResource { gvr: Gvr::new("apps", "v1", "deployments"), kind: "Deployment".into(), namespaced: true };
    let mut decoder = Decoder::new(deployments, &Projection::default(), Vec::new());
    let Decoded::Object(object) = decoder.decode_object(br#"{"kind":"Deployment","metadata":{"name":"x"}}"#).unwrap()
    else {
        panic!("skipped")
    };
    assert_eq!(&*object.json().unwrap(), br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"}}"#);
}

#[test]
fn index_values_are_scalars_as_text() {
    let mut decoder = indexing(&[
        ("by-node", "spec.nodeName"),
        ("by-image", "spec.containers[*].image"),
        ("by-app", "metadata.labels.app"),
        ("by-tier", "metadata.labels['tier']"),
        ("by-replicas", "spec.replicas"),
        ("by-host", "spec.hostNetwork"),
        ("by-nothing", "spec.nothing"),
        ("by-spec", "spec"),
        ("by-manager", "metadata.managedFields[*].manager"),
        ("by-name", "metadata.name"),
        ("again-by-node", "spec.nodeName"),
    ]);
    let object = object(&mut decoder, &pod().to_string());
    let mut found = values(&object);
    found.sort_unstable();
    let mut expected = vec![
        ("by-node", "n1"),
        ("again-by-node", "n1"),
        ("by-image", "i1"),
        ("by-image", "i2"),
        ("by-app", "web"),
        ("by-tier", "fr\"ont"),
        ("by-replicas", "3"),
        ("by-host", "true"),
        ("by-manager", "kubectl"),
        ("by-name", "web-0"),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(!object.json_text().unwrap().contains("managedFields"));
}

#[test]
fn equal_labels_and_index_values_are_interned() {
    let mut decoder = indexing(&[("by-node", "spec.nodeName")]);
    let (one, two) = (object(&mut decoder, &pod().to_string()), object(&mut decoder, &pod().to_string()));
    assert!(SharedStr::ptr_eq(&one.index_values()[0].value, &two.index_values()[0].value));
}

#[test]
fn invalid_object_is_skipped_with_a_reason() {
    for (json, reason) in [
        (r#"{"metadata":{}}"#, "without metadata.name"),
        (r#"{"metadata":[]}"#, "without metadata.name"),
        (r#"{"metadata":"x"}"#, "without metadata.name"),
        (r#"{"kind":"Table","rows":[]}"#, "Table"),
        (r#"{"metadata":{"name":5}}"#, "without metadata.name"),
        (r#"{"metadata":{"name":"a/b"}}"#, "slash"),
        (r#"["x"]"#, "not an object"),
    ] {
        match indexing(&[]).decode_object(json.as_bytes()).unwrap() {
            Decoded::Skipped(skipped) => assert!(skipped.reason.contains(reason), "{json}: {}", skipped.reason),
            Decoded::Object(_) => panic!("{json} was decoded"),
        }
    }
}

// client-go: TestGetExpectedGVKFromObject. Its typed informers drop such a watch event, but do not check list
// items.
#[test]
fn object_of_another_kind_is_skipped_but_partial_metadata_is_not() {
    let deployments =
        ApiResource { gvr: Gvr::new("apps", "v1", "deployments"), kind: "Deployment".into(), namespaced: true };
    let mut decoder = Decoder::new(deployments, &Projection::default(), Vec::new());
    let mut reason = |members: &str| {
        let json = format!(r#"{{{members}"metadata":{{"name":"x","namespace":"ns","resourceVersion":"7"}}}}"#);
        match decoder.decode_object(json.as_bytes()).unwrap() {
            Decoded::Object(_) => None,
            Decoded::Skipped(skipped) => {
                assert_eq!(skipped.key, Some(ObjectKey::new("ns", "x")), "a list that has it keeps what is stored");
                assert_eq!(skipped.version, Some(ResourceVersion::new("7")));
                Some(skipped.reason)
            }
        }
    };
    for own in [
        "",
        r#""kind":"Deployment","#,
        r#""apiVersion":"apps/v1","#,
        r#""apiVersion":"apps/v1","kind":"Deployment","#,
        r#""apiVersion":"","kind":"","#,
        r#""apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","#,
        r#""apiVersion":"meta.k8s.io/v1beta1","kind":"PartialObjectMetadata","#,
    ] {
        assert_eq!(reason(own), None, "{own}");
    }
    let expected = r#"expected "Deployment" of "apps/v1""#;
    for (other, what) in [
        (r#""apiVersion":"apps/v1","kind":"ReplicaSet","#, r#""ReplicaSet" of "apps/v1""#),
        (r#""apiVersion":"apps/v1beta1","kind":"Deployment","#, r#""Deployment" of "apps/v1beta1""#),
        (r#""kind":"PartialObjectMetadata","#, r#""PartialObjectMetadata" of "apps/v1""#),
        (r#""apiVersion":"meta.k8s.io/v1","kind":"Table","#, r#""Table" of "meta.k8s.io/v1""#),
        (r#""apiVersion":"meta.k8s.io/v1beta1","kind":"Table","#, r#""Table" of "meta.k8s.io/v1beta1""#),
        (r#""apiVersion":"meta.k8s.io/v1","#, r#""Deployment" of "meta.k8s.io/v1""#),
    ] {
        assert_eq!(reason(other), Some(format!("unexpected kind {what}, {expected}")), "{other}");
    }
}

// client-go: TestIsUnsupportedTableObject.
#[test]
fn table_of_custom_group_is_an_object_but_of_meta_k8s_io_is_not() {
    let tables = ApiResource { gvr: Gvr::new("custom.group", "v1", "tables"), kind: "Table".into(), namespaced: true };
    let mut decoder = Decoder::new(tables, &Projection::default(), Vec::new());
    for (api_version, is_object) in
        [("custom.group/v1", true), ("meta.k8s.io/v1", false), ("meta.k8s.io/v1beta1", false), ("other/v1", false)]
    {
        let json = format!(r#"{{"apiVersion":"{api_version}","kind":"Table","metadata":{{"name":"x"}}}}"#);
        let found = decoder.decode_object(json.as_bytes()).unwrap();
        assert_eq!(matches!(found, Decoded::Object(_)), is_object, "{api_version}");
        let line = format!(r#"{{"type":"ADDED","object":{json}}}"#);
        let item = decoder.decode_event(line.as_bytes()).unwrap();
        assert_eq!(matches!(item, WatchItem::Added(_)), is_object, "{api_version}");
    }
}

#[test]
fn deletion_of_another_kind_is_skipped() {
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let line = format!(r#"{{"type":"{kind}","object":{{"kind":"Node","metadata":{{"name":"x"}}}}}}"#);
        let WatchItem::Skipped(skipped) = event(&line).unwrap() else { panic!("{kind} was decoded") };
        assert_eq!(skipped.key, Some(ObjectKey::new("", "x")));
        assert_eq!(skipped.reason, r#"unexpected kind "Node" of "v1", expected "Pod" of "v1""#);
    }
}

// client-go: TestReflectorListExtract.
#[test]
fn object_copies_only_its_own_bytes_of_a_list() {
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}"#;
    let bytes = [json, ",", &"x".repeat(100_000)].concat();
    let Next::Value(Decoded::Object(object), used) = indexing(&[]).decode_next(bytes.as_bytes()).unwrap() else {
        panic!("it was not decoded")
    };
    assert_eq!((used, object.body_size()), (json.len(), json.len()));
}

#[test]
fn invalid_json_is_malformed_and_not_quoted() {
    let texts: [&[u8]; 5] =
        [b"", b"{", b"{\"metadata\":{\"name\":\"x\"}", b"{\"hunter2\" 1}", b"{\"metadata\":{\"name\":\"x\"}}}"];
    for text in texts {
        let error = indexing(&[]).decode_object(text).unwrap_err();
        assert_eq!(error.class, ErrorClass::Malformed);
        assert!(!error.message.contains("hunter2"));
    }
}

#[test]
fn object_that_is_not_utf8_is_skipped_by_key() {
    let json = b"{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\"},\"data\":\"\xff\"}";
    let Decoded::Skipped(skipped) = indexing(&[]).decode_object(json).unwrap() else { panic!("it was decoded") };
    assert_eq!(skipped.key.unwrap().name(), "x");
    assert!(skipped.reason.contains("UTF-8"));
}

fn event(line: &str) -> Result<WatchItem, SourceError> {
    indexing(&[]).decode_event(line.as_bytes())
}

#[test]
fn event_type_is_read_in_any_member_order() {
    let body = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"7"}}"#;
    for line in [
        format!(r#"{{"type":"ADDED","object":{body}}}"#),
        format!(r#"{{"object":{body},"type":"ADDED"}}"#),
        format!(r#" {{ "object" : {body} , "type" : "ADDED" }} {}"#, '\r'),
        format!(r#"{{"x":[1],"object":{body},"y\"":{{}},"type":"ADDED"}}"#),
    ] {
        let WatchItem::Added(object) = event(&line).unwrap() else { panic!("{line}") };
        assert_eq!(&*object.json().unwrap(), body.as_bytes(), "{line}");
    }
    for (kind, is) in [("MODIFIED", 1), ("DELETED", 2)] {
        let item = event(&format!(r#"{{"type":"{kind}","object":{body}}}"#)).unwrap();
        assert!(matches!((item, is), (WatchItem::Modified(_), 1) | (WatchItem::Deleted(_), 2)));
    }
    let skipped = event(&format!(r#"{{"type":"GONE","object":{body}}}"#)).unwrap();
    assert!(
        matches!(skipped, WatchItem::Skipped(s) if s.reason.contains("GONE") && s.key.as_ref().unwrap().name() == "x")
    );
}

#[test]
fn only_annotation_true_ends_initial_events() {
    let bookmark = |annotations: &str| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{{"resourceVersion":"9","annotations":{annotations}}}}}}}"#
        )
    };
    for (annotations, end) in [
        (r#"{"k8s.io/initial-events-end":"true"}"#, true),
        (r#"{"k8s.io/initial-events-end":"false"}"#, false),
        (r#"{"k8s.io/initial-events-end":true}"#, false),
        ("null", false),
    ] {
        let WatchItem::Bookmark { version, initial_events_end } = event(&bookmark(annotations)).unwrap() else {
            panic!()
        };
        assert_eq!((version, initial_events_end), (ResourceVersion::new("9"), end), "{annotations}");
    }
}

#[test]
fn error_event_is_classified_by_status() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (9)","reason":"Expired","code":410}"#;
    for line in [format!(r#"{{"type":"ERROR","object":{status}}}"#), format!(r#"{{"object":{status},"type":"ERROR"}}"#)]
    {
        let error = event(&line).unwrap_err();
        assert_eq!(error.class, ErrorClass::Expired);
        assert!(error.message.contains("too old"), "{error}");
    }
    assert_eq!(event(r#"{"type":"ERROR","object":null}"#).unwrap_err().class, ErrorClass::Transient);
}

// client-go: TestBackoffOnTooManyRequests, TestRetryInternalError. Here the errors arrive as `ERROR` events.
#[test]
fn error_event_carries_retry_after() {
    let class = |status: &str| event(&format!(r#"{{"type":"ERROR","object":{status}}}"#)).unwrap_err().class;
    let busy =
        r#"{"kind":"Status","code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":1},"message":"m"}"#;
    assert_eq!(class(busy), ErrorClass::Throttled(Some(std::time::Duration::from_secs(1))));
    let internal = r#"{"kind":"Status","code":500,"reason":"InternalError","message":"etcdserver: no leader"}"#;
    assert_eq!(class(internal), ErrorClass::Transient);
}

#[test]
fn line_without_event_is_malformed() {
    for line in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{}",
        r#"{"type":"ADDED"}"#,
        r#"{"object":{}}"#,
        r#"{"type":"ADDED","object":{"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"x"}}} {}"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"x"}},"object":{"metadata":{"name":"y"}}}"#,
        r#"{"type":"ADDED","\u006fbject":{"metadata":{"name":"x"}}}"#,
        r#"{"type":7,"object":{"metadata":{"name":"x"}}}"#,
        "garbage",
    ] {
        assert_eq!(event(line).unwrap_err().class, ErrorClass::Malformed, "{line}");
    }
}

#[test]
fn truncated_object_has_a_key_only_if_certain() {
    let key = |head: &str| match indexing(&[]).skip_event(head.as_bytes(), String::new()) {
        WatchItem::Skipped(skipped) => skipped.key.map(|key| key.as_str().to_owned()),
        item => panic!("{item:?}"),
    };
    assert_eq!(
        key(r#"{"type":"ADDED","object":{"metadata":{"name":"x","namespace":"ns","a":"#).as_deref(),
        Some("ns/x")
    );
    assert_eq!(key(r#"{"type":"ADDED","object":{"metadata":{"name":"x","names"#), None);
    assert_eq!(key("garbage"), None);
    let nodes = ApiResource { gvr: Gvr::new("", "v1", "nodes"), kind: "Node".into(), namespaced: false };
    let mut decoder = Decoder::new(nodes, &Projection::default(), Vec::new());
    let skipped = decoder.skip_object(br#"{"metadata":{"name":"n1","resourceVersion":"8","x":"#, "large".to_owned());
    assert_eq!(skipped.key.unwrap().as_str(), "n1");
    assert_eq!(skipped.version, Some(ResourceVersion::new("8")));
    for none in [
        r#"{"metadata":{"namespace":"ns","name":"","#,
        r#"{"metadata":{"namespace":"ns","name":"a/b","#,
        r#"{"metadata":{"name":"a","namespace":"b/c","#,
    ] {
        let skipped = indexing(&[]).skip_object(none.as_bytes(), String::new());
        assert_eq!(skipped.key, None, "{none}");
    }
    let skipped = decoder.skip_object(br#"{"metadata":{"name":"a","namespace":"b/c","x":"#, String::new());
    assert_eq!(skipped.key.unwrap().as_str(), "a", "what has no namespaces cannot lack one");
}

/// Random JSON, in which many field names also occur in the paths of the tests.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\\\\\"{},\\[\\]é]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"\\\\]{1,2}", inner, 0..5).prop_map(Value::from_iter),
        ]
    })
}

/// Slow reference implementation of [`Projection::Drop`]: removes the value at `path`.
fn without(value: &mut Value, path: &[Segment]) {
    match (path, value) {
        ([Segment::Field(name)], Value::Object(map)) => drop(map.remove(name.as_str())),
        ([Segment::Each], Value::Array(items)) => items.clear(),
        ([Segment::Field(name), rest @ ..], Value::Object(map)) => {
            if let Some(inner) = map.get_mut(name.as_str()) {
                without(inner, rest);
            }
        }
        ([Segment::Each, rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| without(item, rest)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn drop_projection_agrees_with_model(value in any_json(), pretty in any::<bool>()) {
        let texts = ["a", "b.a", "b.b[*].a", "c[*]", "x.a", "x['\"']", "x.c[*].a[*]", "x['b\"'].b"];
        let tree = json!({"metadata": {"name": "n"}, "x": value.clone(), "b": value.clone(), "c": value.clone(), "a": value});
        let text = if pretty { serde_json::to_string_pretty(&tree).unwrap() } else { tree.to_string() };
        let found: Value = object(&mut dropping(&texts), &text).typed().unwrap();
        let mut expected = tree;
        expected["apiVersion"] = json!("v1");
        expected["kind"] = json!("Pod");
        for path in paths(&texts) {
            without(&mut expected, path.segments());
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn keep_projection_keeps_original_values(value in any_json()) {
        let texts = ["a.a", "a.b[*].c", "a.c", "a['\"']"];
        let tree = json!({"metadata": {"name": "n"}, "a": value});
        let found: Value = object(&mut keeping(&texts), &tree.to_string()).typed().unwrap();
        for path in paths(&["a.a", "a.b[*].c", "a.c", "a['\"']", "metadata.name"]) {
            prop_assert_eq!(path.select(&found), path.select(&tree), "{}", path);
        }
    }

    #[test]
    fn index_values_agree_with_path_select(value in any_json()) {
        let tree = json!({"metadata": {"name": "n"}, "a": value});
        for path in ["a.a", "a.b[*].c", "a[*]", "a[*][*].b", "a['\"']"] {
            let object = object(&mut indexing(&[("i", path)]), &tree.to_string());
            let selected: Vec<_> = path.parse::<FieldPath>().unwrap().select(&tree).into_iter().filter_map(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
                _ => None,
            }).collect();
            prop_assert_eq!(values(&object).into_iter().map(|(_, v)| v.to_owned()).collect::<Vec<_>>(), selected);
        }
    }

    #[test]
    fn decoder_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[{}\\[\\]\",:a\\\\ 0-9.eE-]{0,40}") {
        let mut decoder = indexing(&[("i", "a.a")]);
        for input in [&bytes[..], text.as_bytes()] {
            let _ = (decoder.decode_event(input), decoder.decode_object(input));
            let _ = (decoder.decode_next(input), decoder.skip_event(input, String::new()));
        }
    }
}

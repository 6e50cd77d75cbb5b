//! Checks of decoded objects: plain, packed, and compared with serde_json's reading. Also sample notifications.

use std::sync::{Arc, LazyLock};

use informer_hub_codec::Decoded;
use informer_hub_codec::{Decoder, Projection};
use informer_hub_types::{
    ApiResource, Dictionary, FieldPath, Gvr, Notification, Object, Origin, PackedTotals, Packer, Scope, SharedStr,
    StoredObject,
};
use serde_json::{Value, json};

use super::json as reference;

/// Decoder configuration under test.
pub(crate) struct Profile {
    pub(crate) decoder: Decoder,
    projection: &'static Projection,
    /// Whether bodies are also packed and read back. This costs more than all other checks.
    packs: bool,
}

struct Paths {
    projections: [Projection; 3],
    indexes: Vec<(SharedStr, FieldPath)>,
}

static PATHS: LazyLock<Paths> = LazyLock::new(|| {
    let paths = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a path")).collect();
    let drop = ["metadata.managedFields", "spec.containers[*].env[*].value", "status", "a[*]", "a[*].b", "x['\"'].y"];
    let keep = ["spec.nodeName", "spec.containers[*].image", "metadata.annotations", "a.b[*].c"];
    let indexes = ["spec.nodeName", "metadata.labels['app']", "spec.containers[*].image", "a[*]", "metadata.name"];
    Paths {
        projections: [Projection::default(), Projection::Drop(paths(&drop)), Projection::Keep(paths(&keep))],
        indexes: indexes.iter().map(|path| ((*path).into(), path.parse().expect("a path"))).collect(),
    }
});

static DICTIONARIES: LazyLock<[Arc<Dictionary>; 2]> = LazyLock::new(|| {
    let sample = |i: usize| {
        let (uid, node) = (i * 7919, i % 5);
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-{i}","uid":"{uid:08x}"}},"spec":{{"nodeName":"n{node}"}}}}"#
        )
    };
    [Dictionary::none(), Dictionary::train((0..300).map(sample)).expect("enough samples")].map(Arc::new)
});

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

impl Profile {
    pub(crate) fn new(control: u8) -> Self {
        let paths = &*PATHS;
        let projection = &paths.projections[usize::from(control) % 3];
        let decoder = Decoder::new(pods(), projection, paths.indexes.clone());
        Self { decoder, projection, packs: control & 0x80 != 0 }
    }

    /// Verifies a decoded object. `sent` is the JSON that it was decoded from, if that JSON has only one possible
    /// reading.
    pub(crate) fn check(&self, object: &Arc<StoredObject>, sent: Option<&Value>) {
        let body = object.json().expect("a new object has its body");
        assert!(reference::is_json(&body) && std::str::from_utf8(&body).is_ok(), "the body is not JSON");
        if let Some(sent) = sent {
            self.compare(object, &body, sent);
        }
        if self.packs {
            pack(object, &body);
        }
    }

    fn compare(&self, object: &StoredObject, body: &[u8], sent: &Value) {
        let mut found: Value = serde_json::from_slice(body).expect("the projected body is not JSON");
        let metadata = |name: &str| sent["metadata"][name].as_str().unwrap_or_default();
        assert_eq!(object.key().name(), metadata("name"));
        assert_eq!(object.key().namespace().unwrap_or_default(), metadata("namespace"));
        assert_eq!(object.uid().to_string(), metadata("uid"));
        assert_eq!(object.resource_version().to_string(), metadata("resourceVersion"));
        self.compare_labels(object, sent);
        compare_indexes(object, sent);
        let (found, mut left) = (found.as_object_mut().expect("an object"), sent.clone());
        assert!(found.contains_key("apiVersion") && found.contains_key("kind"));
        let left_members = left.as_object_mut().expect("an object");
        for added in ["apiVersion", "kind"] {
            found.remove(added);
            left_members.remove(added);
        }
        let found = Value::Object(std::mem::take(found));
        match self.projection {
            Projection::Drop(paths) => {
                for path in paths {
                    reference::remove(&mut left, path.segments());
                }
                assert_eq!(found, left, "dropped paths");
            }
            Projection::Keep(paths) => {
                for path in paths {
                    assert_eq!(path.select(&found), path.select(&left), "kept path {path}");
                }
            }
        }
    }

    fn compare_labels(&self, object: &StoredObject, sent: &Value) {
        let sent = sent["metadata"]["labels"].as_object();
        let texts = sent.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        // A key that contains `=` is not a label key.
        let texts = texts.filter(|(key, _)| !key.contains('='));
        let (mut expected, mut labels): (Vec<_>, Vec<_>) = (texts.collect(), object.labels().iter().collect());
        expected.sort_unstable();
        labels.sort_unstable();
        assert_eq!(labels, expected, "labels, {:?}", self.projection);
    }
}

fn compare_indexes(object: &StoredObject, sent: &Value) {
    for (name, path) in &PATHS.indexes {
        let selected = path.select(sent);
        if selected.iter().any(|value| value.is_f64()) {
            // A fraction is indexed as its source text.
            continue;
        }
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            _ => None,
        };
        let expected: Vec<_> = selected.into_iter().filter_map(text).collect();
        let values = object.index_values().iter().filter(|entry| entry.index == *name);
        assert_eq!(values.map(|entry| entry.value.to_string()).collect::<Vec<_>>(), expected, "index {name}");
    }
}

/// Packs a body with each dictionary and verifies that it unpacks to the same bytes.
fn pack(object: &Arc<StoredObject>, body: &[u8]) {
    let totals = Arc::<PackedTotals>::default();
    for dictionary in &*DICTIONARIES {
        let mut packer = Packer::new(dictionary, &totals);
        packer.add(object);
        let _ = packer.finish();
        assert_eq!(&*object.json().expect("a packed body unpacks"), body);
    }
}

fn object(json: &Value) -> Object {
    let origin = Origin {
        cluster: "prod-eu".parse().expect("a name"),
        cluster_labels: [("tier".to_owned(), "prod".to_owned())].into(),
        resource: pods(),
        scope: Scope::all(),
    };
    let mut decoder = Decoder::new(pods(), &PATHS.projections[0], PATHS.indexes.clone());
    match decoder.decode_object(json.to_string().as_bytes()) {
        Ok(Decoded::Object(object)) => Object::new(Arc::new(origin), object),
        other => panic!("{other:?}"),
    }
}

fn pod(version: u32, phase: &str) -> Object {
    let container =
        |name: &str| json!({"name": name, "image": format!("{name}:1"), "env": [{"name": "A", "value": "b"}]});
    object(&json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "resourceVersion": version.to_string(), "labels": {"app": "web", "tier": "front"},
            "annotations": {"note": "hunter2", "list": "a,b,c"}, "generation": version,
        },
        "spec": {"nodeName": "n1", "containers": (0..20).map(|i| container(&format!("c{i}"))).collect::<Vec<_>>(),
                 "replicas": 3, "ratio": 0.5, "large": u64::MAX, "hostNetwork": true, "nothing": null},
        "status": {"phase": phase, "text": "x".repeat(3000), "numbers": (0..200).collect::<Vec<_>>()},
    }))
}

/// Returns one notification of each kind that carries an object.
pub(crate) fn notifications() -> Vec<Notification> {
    vec![
        Notification::Added { object: pod(1, "Pending"), initial: false },
        Notification::Updated { old: pod(1, "Pending"), new: pod(2, "Running"), resync: false },
        Notification::Deleted { object: pod(2, "Running"), tombstone: true },
    ]
}

//! Generators of invented objects, in the form in which the store keeps them.

#[path = "names.rs"]
mod names;
#[path = "network.rs"]
mod network;
#[path = "nodes.rs"]
mod nodes;
#[path = "pods.rs"]
mod pods;
#[path = "random.rs"]
mod random;
#[path = "workloads.rs"]
mod workloads;

use std::sync::Arc;

use informer_hub_protobuf::{ObjectWriter, TypeMeta};
use informer_hub_types::{Labels, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid};

use names::App;
pub(crate) use network::{endpoint_slice, event, service};
pub(crate) use nodes::node;
use pods::Written;
pub(crate) use pods::pod;
use random::Random;
pub(crate) use workloads::{deployment, replica_set};

/// Function that generates an object of one kind and returns its JSON and identity.
pub(crate) type Invent = fn(&mut Random, &App) -> (String, Written);

/// Generates `count` objects. The same seed gives the same objects.
pub(crate) fn objects(invent: Invent, seed: u64, count: usize) -> Vec<Arc<StoredObject>> {
    let mut random = Random::seeded(seed);
    let object = |random: &mut Random| {
        let app = App::new(random);
        let (json, Written { namespace, name, uid, version }) = invent(random, &app);
        let parts = StoredObjectParts {
            key: ObjectKey::new(namespace.as_deref().unwrap_or_default(), &name),
            uid: Uid::new(&uid),
            resource_version: ResourceVersion::new(&version),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: json.into_bytes(),
        };
        Arc::new(StoredObject::new(parts))
    };
    (0..count).map(|_| object(&mut random)).collect()
}

/// Returns the object with its body in protobuf.
pub(crate) fn as_protobuf(object: &StoredObject) -> Arc<StoredObject> {
    let json = object.json().expect("a new object is readable");
    let value: serde_json::Value = serde_json::from_slice(&json).expect("it is JSON");
    let text = |member: &str| value[member].as_str().expect("objects have a kind and a version");
    let type_meta = TypeMeta { api_version: text("apiVersion"), kind: text("kind") };
    let mut writer = ObjectWriter::new(type_meta, 16 << 20).expect("it is a built-in kind");
    with_body(object, writer.object(&json).expect("the generator has the schema's members").into())
}

/// Returns the object with another body.
pub(crate) fn with_body(object: &StoredObject, body: Arc<[u8]>) -> Arc<StoredObject> {
    let parts = StoredObjectParts {
        key: object.key().clone(),
        uid: object.uid().clone(),
        resource_version: object.resource_version().clone(),
        labels: object.labels().clone(),
        index_values: Vec::new(),
        json: Vec::new(),
    };
    Arc::new(StoredObject::of(parts, body))
}

//! Builders for the tests of this module and its neighbours.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Applied;
use crate::types::{
    ApiResource, ClusterLabels, ClusterName, Delta, DeltaKind, Gvr, IndexEntry, Labels, ObjectKey, Origin,
    ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid,
};

pub(crate) fn object(namespace: &str, name: &str, uid: &str, version: u64) -> StoredObject {
    object_with(namespace, name, uid, version, &[], &[])
}

pub(crate) fn object_with(
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
    labels: &[(&str, &str)],
    index: &[(&str, &str)],
) -> StoredObject {
    let entry = |(index, value): &(&str, &str)| IndexEntry { index: (*index).into(), value: (*value).into() };
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
        index_values: index.iter().map(entry).collect(),
        json: format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#).into_bytes(),
    })
}

pub(crate) fn delta(kind: DeltaKind, object: StoredObject) -> Delta {
    Delta { kind, object: Arc::new(object) }
}

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

pub(crate) fn origin(cluster: &str) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: pods(),
        scope: Scope::all(),
    })
}

/// A line per change, e.g. `+a@1`, `a@1>2`, `-a@2`, `†a@2` (tombstone), `=a@2` (resync), `synced`.
pub(crate) fn lines(applied: &[Applied]) -> Vec<String> {
    let version = |object: &StoredObject| object.resource_version().to_string();
    applied
        .iter()
        .map(|applied| match applied {
            Applied::Added(new) => format!("+{}@{}", new.key().name(), version(new)),
            Applied::Updated { old, new } => format!("{}@{}>{}", new.key().name(), version(old), version(new)),
            Applied::Deleted { last, tombstone: false, .. } => format!("-{}@{}", last.key().name(), version(last)),
            Applied::Deleted { last, tombstone: true, .. } => format!("†{}@{}", last.key().name(), version(last)),
            Applied::Repeated(object) => format!("={}@{}", object.key().name(), version(object)),
            Applied::Synced => "synced".to_owned(),
        })
        .collect()
}

/// What a consumer knows, by name.
pub(crate) type Known = BTreeMap<String, (String, u64)>;

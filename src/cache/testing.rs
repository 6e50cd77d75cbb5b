//! Builders for tests of this crate and of the hub.

#![allow(missing_docs, missing_debug_implementations, clippy::unwrap_used, clippy::missing_panics_doc)]

use std::sync::Arc;

#[cfg(test)]
pub(crate) use informer_hub_testing::properties;

use super::{Applied, Controller, DeltaFifo, Outbox, Partition, PartitionId, Popped, Progress, Store};
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, Delta, DeltaKind, Gvr, IndexEntry, InformerHealth, Labels,
    Notification, Object, ObjectKey, Origin, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid,
};

#[must_use]
pub fn object(namespace: &str, name: &str, uid: &str, version: u64) -> StoredObject {
    object_with(namespace, name, uid, version, &[], &[])
}

#[must_use]
pub fn object_with(
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
    labels: &[(&str, &str)],
    index: &[(&str, &str)],
) -> StoredObject {
    object_at(namespace, name, uid, &version.to_string(), labels, index)
}

fn object_at(
    namespace: &str,
    name: &str,
    uid: &str,
    version: &str,
    labels: &[(&str, &str)],
    index: &[(&str, &str)],
) -> StoredObject {
    let entry = |(index, value): &(&str, &str)| IndexEntry { index: (*index).into(), value: (*value).into() };
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new(version),
        labels: Labels::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
        index_values: index.iter().map(entry).collect(),
        json: format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#).into_bytes(),
    })
}

pub fn delta(kind: DeltaKind, object: StoredObject) -> Delta {
    Delta { kind, object: Arc::new(object) }
}

#[must_use]
pub fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

#[must_use]
pub fn origin(cluster: &str) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: pods(),
        scope: Scope::all(),
    })
}

/// Parses one step of a reflector. `+a@1`, `~a@2` and `-a@3` are the watch events ADDED, MODIFIED and DELETED. `*a@4`
/// is a listed object, `=a@4` a resync. `[` starts a list, `&a` lists `a` without an object that could be decoded, `<`
/// says that the versions went back, `]9` ends the list. The UID is `u`, or `v` in `+a:v@1`.
#[must_use]
pub fn change(text: &str) -> Change {
    let (sign, rest) = text.split_at(1);
    let kind = match sign {
        "[" => return Change::ReplaceBegin,
        "&" => return Change::ReplaceKeep(ObjectKey::new("ns", rest)),
        "]" => return Change::ReplaceEnd(ResourceVersion::new(rest)),
        "<" => return Change::Rewind,
        "+" => DeltaKind::Added,
        "~" => DeltaKind::Updated,
        "-" => DeltaKind::Deleted,
        "*" => DeltaKind::Replaced,
        "=" => DeltaKind::Sync,
        _ => panic!("{text:?} is no change"),
    };
    let (name, version) = rest.split_once('@').unwrap();
    let (name, uid) = name.split_once(':').unwrap_or((name, "u"));
    Change::Delta(delta(kind, object_at("ns", name, uid, version, &[], &[])))
}

/// Returns the changes of a list that contains these objects of namespace `ns`, none of which could be decoded. The
/// store therefore keeps them as they are.
pub fn list_keeping<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Change> {
    let keep = names.map(|name| Change::ReplaceKeep(ObjectKey::new("ns", name)));
    let end = Change::ReplaceEnd(ResourceVersion::new("1"));
    [Change::ReplaceBegin].into_iter().chain(keep).chain([end]).collect()
}

pub fn push_all(fifo: &mut DeltaFifo, script: &str) {
    for step in script.split_whitespace() {
        fifo.push(change(step));
    }
}

/// Formats a batch in the notation of [`change`], a line for the deltas of each key. The end of a list is followed by
/// the names in the list, such as `]9 a b`.
#[must_use]
pub fn popped_lines(batch: &[Popped]) -> Vec<String> {
    let line = |popped: &Popped| match popped {
        Popped::Deltas(_, deltas) => deltas.iter().map(delta_text).collect::<Vec<_>>().join(" "),
        Popped::ReplaceEnd { keep, version, .. } => {
            let mut names: Vec<_> = keep.iter().map(ObjectKey::name).collect();
            names.sort_unstable();
            [&[&*format!("]{version}")], names.as_slice()].concat().join(" ")
        }
    };
    batch.iter().map(line).collect()
}

fn delta_text(Delta { kind, object }: &Delta) -> String {
    let sign = match kind {
        DeltaKind::Added => '+',
        DeltaKind::Updated => '~',
        DeltaKind::Deleted => '-',
        DeltaKind::Replaced => '*',
        DeltaKind::Sync => '=',
    };
    let uid = match object.uid().to_string().as_str() {
        "u" => String::new(),
        other => format!(":{other}"),
    };
    format!("{sign}{}{uid}@{}", object.key().name(), object.resource_version())
}

/// An informer for tests, without a connection: a queue of changes, and a store with one open partition that the queue
/// feeds.
pub struct Informer {
    pub controller: Controller,
    pub id: PartitionId,
}

impl Default for Informer {
    fn default() -> Self {
        Self::new()
    }
}

impl Informer {
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// Creates an informer whose queue has a limit in bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        let mut store = Store::new(pods());
        let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
        Self { controller: Controller::new(store, id, DeltaFifo::new(limit)), id }
    }

    /// Processes a script (see [`change`]). Each list end in it ends a batch. Returns the effects of all batches
    /// together, with the number of the last batch.
    pub fn apply(&mut self, script: &str) -> Outbox {
        self.apply_changes(script.split_whitespace().map(change).collect())
    }

    pub fn apply_changes(&mut self, changes: Vec<Change>) -> Outbox {
        for change in changes {
            self.controller.push(change);
        }
        let (mut number, mut applied) = (self.partition().number(), Vec::new());
        let end = self.controller.process_all(&mut |outbox| {
            number = outbox.number;
            applied.extend(outbox.applied.iter().cloned());
            Ok(())
        });
        assert!(matches!(end, Progress::Idle), "{end:?}");
        Outbox { number, applied: applied.into() }
    }

    /// Continues with another partition of the same store.
    pub fn turn_to(&mut self, id: PartitionId) {
        let store = Store::recover(Arc::clone(self.controller.store().published()));
        *self = Self { controller: Controller::new(store, id, DeltaFifo::new(usize::MAX)), id };
    }

    #[must_use]
    pub fn partition(&self) -> Partition {
        self.controller.partition().expect("it stays open")
    }

    /// Returns the visible objects, e.g. `a@1 b@2`.
    #[must_use]
    pub fn contents(&self) -> String {
        contents_of(self.partition().iter())
    }

    /// Returns the objects including staged changes, e.g. `a@1 b@2`.
    #[must_use]
    pub fn newest_contents(&self) -> String {
        contents_of(self.partition().newest_objects().iter())
    }
}

fn contents_of<'o>(objects: impl Iterator<Item = &'o Arc<StoredObject>>) -> String {
    let text = |object: &Arc<StoredObject>| format!("{}@{}", object.key().name(), object.resource_version());
    objects.map(text).collect::<Vec<_>>().join(" ")
}

/// Formats notifications in the notation of [`lines`]. An addition with the flag `initial` is `!a@1`.
#[must_use]
pub fn notification_lines(notifications: &[Notification]) -> Vec<String> {
    let text = |object: &Object| format!("{}@{}", object.name(), object.resource_version());
    notifications
        .iter()
        .map(|notification| match notification {
            Notification::Added { object, initial: true } => format!("!{}", text(object)),
            Notification::Added { object, initial: false } => format!("+{}", text(object)),
            Notification::Updated { new, resync: true, .. } => format!("={}", text(new)),
            Notification::Updated { old, new, .. } => format!("{}>{}", text(old), new.resource_version()),
            Notification::Deleted { object, tombstone: false } => format!("-{}", text(object)),
            Notification::Deleted { object, tombstone: true } => format!("†{}", text(object)),
            Notification::Synced(_) => "synced".to_owned(),
        })
        .collect()
}

/// Formats changes, e.g. `+a@1`, `a@1>2`, `-a@2`, `†a@2` (tombstone), `=a@2` (resync), `synced`.
#[must_use]
pub fn lines(applied: &[Applied]) -> Vec<String> {
    let version = |object: &StoredObject| object.resource_version().to_string();
    applied
        .iter()
        .map(|applied| match applied {
            Applied::Added(new) => format!("+{}@{}", new.key().name(), version(new)),
            Applied::Updated { old, new } => format!("{}@{}>{}", new.key().name(), version(old), version(new)),
            Applied::Deleted { last, tombstone: false, .. } => format!("-{}@{}", last.key().name(), version(last)),
            Applied::Deleted { last, tombstone: true, .. } => format!("†{}@{}", last.key().name(), version(last)),
            Applied::Repeated(object) => format!("={}@{}", object.key().name(), version(object)),
            Applied::Restored { whole, .. } => format!("^{}@{}", whole.key().name(), version(whole)),
            Applied::Synced => "synced".to_owned(),
        })
        .collect()
}

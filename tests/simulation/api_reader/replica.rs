//! State of a reader of the Kubernetes API, and the rules for what it receives.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Label and annotation with the cluster of an object, at the roots of the fleet.
const CLUSTER: &str = "informer-hub.io/cluster";

/// Maximum number of recorded violations. A broken stream causes one per event.
const VIOLATIONS: usize = 20;

/// Root of the Kubernetes API, which decides the clusters and the names of objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    /// `/clusters/<name>`.
    Cluster(String),
    /// `/clusters/*`.
    Fleet,
    /// `/clusters/tier=<value>`.
    Tier(&'static str),
    /// `/unique/*`.
    Unique,
}

impl Root {
    /// Returns the path of the root.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Cluster(name) => format!("/clusters/{name}"),
            Self::Fleet => "/clusters/*".to_owned(),
            Self::Tier(value) => format!("/clusters/tier={value}"),
            Self::Unique => "/unique/*".to_owned(),
        }
    }

    /// Returns whether clusters join and leave by their labels.
    pub(crate) fn changes_labels(&self) -> bool {
        matches!(self, Self::Tier(_))
    }

    /// Returns whether versions are the hub's.
    pub(crate) fn is_fleet(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }
}

/// Cluster, namespace and name of an object.
pub(crate) type Key = (String, String, String);

/// One state of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Hash of the object without what a root adds or replaces.
    pub(crate) content: u64,
}

impl State {
    /// Reads an object as its cluster has it.
    pub(crate) fn original(mut object: Value) -> Self {
        let metadata = &object["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let version = version_of(&object).unwrap_or_default();
        for (at, name) in [("", "kind"), ("", "apiVersion"), ("/metadata", "resourceVersion")] {
            remove(&mut object, at, name);
        }
        // A fault sends an event with padding, which the hub then keeps as a part of the object.
        remove_mark(&mut object, "annotations", "padding");
        let mut hasher = DefaultHasher::new();
        object.to_string().hash(&mut hasher);
        Self { uid, version, content: hasher.finish() }
    }
}

/// Returns the version of an object or a list.
pub(crate) fn version_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn remove(object: &mut Value, at: &str, name: &str) {
    let Some(members) = object.pointer_mut(at).and_then(Value::as_object_mut) else { return };
    members.remove(name);
}

/// Removes a label or an annotation, and the empty map if it was the last one.
fn remove_mark(object: &mut Value, of: &str, name: &str) {
    let Some(members) = object.pointer_mut("/metadata").and_then(|it| it.get_mut(of)?.as_object_mut()) else { return };
    members.remove(name);
    if members.is_empty() {
        remove(object, "/metadata", of);
    }
}

/// Reads an object as a root serves it. The error names the fault.
pub(crate) fn read(root: &Root, mut object: Value) -> Result<(Key, State), String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (namespace, mut name) = (text("/metadata/namespace"), text("/metadata/name"));
    let cluster = if let Root::Cluster(cluster) = root {
        cluster.clone()
    } else {
        let cluster = text("/metadata/labels/informer-hub.io~1cluster");
        let annotation = text("/metadata/annotations/informer-hub.io~1cluster");
        if cluster.is_empty() || cluster != annotation {
            return Err(format!("{name} has the label {cluster:?} and the annotation {annotation:?}"));
        }
        for of in ["labels", "annotations"] {
            remove_mark(&mut object, of, CLUSTER);
        }
        cluster
    };
    if *root == Root::Unique {
        let Some(own) = name.strip_prefix(&format!("{cluster}:")).map(ToOwned::to_owned) else {
            return Err(format!("{name} lacks the name of its cluster {cluster}"));
        };
        name = own;
        object["metadata"]["name"] = name.clone().into();
    }
    Ok(((cluster, namespace, name), State::original(object)))
}

/// Objects that a reader holds.
#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) held: BTreeMap<Key, State>,
    /// Newest version of each object since the last list, also of those deleted since.
    newest: BTreeMap<Key, u64>,
    /// Version from which the reader resumes.
    pub(crate) version: Option<u64>,
    /// Whether the objects are the state at that version.
    pub(crate) is_exact: bool,
    violations: Vec<String>,
    /// Highest version seen. `seen_before` is its value when the current watch began.
    seen: u64,
    seen_before: u64,
}

impl Replica {
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(crate) fn violation(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS {
            self.violations.push(text);
        }
    }

    /// Accepts a complete list. `not_older_than` is the version that was asked for.
    ///
    /// With `changes_labels`, clusters join and leave the root by their labels. Then events have newer versions than
    /// the objects.
    pub(crate) fn replace(
        &mut self,
        objects: BTreeMap<Key, State>,
        version: u64,
        not_older_than: Option<u64>,
        changes_labels: bool,
    ) {
        if let Some(least) = not_older_than {
            if version < least {
                self.violation(format!("a list not older than {least} has version {version}"));
            }
            for (key, state) in objects.iter().filter(|_| !changes_labels) {
                let back = self.held.get(key).filter(|held| held.uid == state.uid && held.version > state.version);
                if let Some(held) = back.cloned() {
                    self.violation(format!("{key:?}: a list goes back from {} to {}", held.version, state.version));
                }
            }
        }
        self.newest = objects.iter().map(|(key, state)| (key.clone(), state.version)).collect();
        self.held = objects;
        self.seen = self.seen.max(version);
        self.version = Some(version);
        self.is_exact = true;
    }

    /// Notes that a watch begins at the reader's version.
    pub(crate) fn resume(&mut self) {
        self.seen_before = self.seen;
    }

    /// Accepts an event of a watch.
    pub(crate) fn event(&mut self, kind: &str, key: Key, state: State, is_fleet: bool) {
        let held = self.held.get(&key);
        let version = state.version;
        let mut faults = Vec::new();
        match (kind, held) {
            ("ADDED", Some(held)) => faults.push(format!("is held at {}", held.version)),
            ("MODIFIED" | "DELETED", None) => faults.push("is not held".to_owned()),
            ("MODIFIED" | "DELETED", Some(held)) if held.uid != state.uid => {
                faults.push(format!("is held with the UID {} instead of {}", held.uid, state.uid));
            }
            ("ADDED" | "MODIFIED" | "DELETED", _) => {}
            _ => faults.push("is no known event".to_owned()),
        }
        if let Some(newest) = self.newest.get(&key).filter(|newest| **newest >= version) {
            faults.push(format!("follows version {newest}"));
        }
        if is_fleet && self.version.is_some_and(|last| last >= version) {
            faults.push(format!("follows the fleet's version {:?}", self.version));
        }
        // A watch of one cluster may repeat changes when it resumes, and deletions, whose versions the hub may make up.
        let is_repeated = version <= self.seen_before || (kind == "DELETED" && held.is_none());
        if is_fleet || !is_repeated {
            for fault in faults {
                self.violation(format!("{kind} {key:?} at {version} {fault}"));
            }
        }
        self.seen = self.seen.max(version);
        self.newest.insert(key.clone(), version);
        if kind == "DELETED" {
            if !is_fleet {
                // The hub makes up the version of a deletion that a list found. It may be above that of a new object.
                self.newest.remove(&key);
            }
            self.held.remove(&key);
        } else {
            self.held.insert(key, state);
        }
        self.version = Some(version);
        self.is_exact = is_fleet;
    }

    /// Accepts a bookmark.
    pub(crate) fn bookmark(&mut self, version: u64, is_fleet: bool) {
        if is_fleet && self.version.is_some_and(|last| last > version) {
            self.violation(format!("a bookmark of {version} follows {:?}", self.version));
        }
        self.version = Some(version);
        self.is_exact = true;
    }

    /// Compares with the state at the present version, as a list shows it. A new process of the hub gives its objects
    /// new versions of the fleet without events.
    pub(crate) fn compare(&mut self, listed: &BTreeMap<Key, State>, root: &Root) {
        let mut differences = differences(&self.held, listed, !root.is_fleet());
        let is_comparable = !root.changes_labels();
        let older = listed
            .iter()
            .filter(|_| is_comparable)
            .filter(|(key, it)| self.held.get(*key).is_some_and(|held| held.version > it.version));
        differences.extend(older.map(|(key, state)| format!("{key:?} is older: {state:?}")));
        for difference in differences {
            let version = self.version;
            self.violation(format!("unlike the list at exactly {version:?}: {difference}"));
        }
    }
}

/// Returns the differences of what a reader holds from what it should hold.
pub(crate) fn differences(
    held: &BTreeMap<Key, State>,
    expected: &BTreeMap<Key, State>,
    with_versions: bool,
) -> Vec<String> {
    let is_equal = |one: &State, other: &State| {
        one.uid == other.uid && one.content == other.content && (!with_versions || one.version == other.version)
    };
    let lacking = expected.iter().filter_map(|(key, state)| match held.get(key) {
        None => Some(format!("{key:?} is missing: {state:?}")),
        Some(held) if !is_equal(held, state) => Some(format!("{key:?} should be {state:?}, but is {held:?}")),
        Some(_) => None,
    });
    let extra = held.iter().filter(|(key, _)| !expected.contains_key(*key));
    lacking.chain(extra.map(|(key, state)| format!("{key:?} is still held: {state:?}"))).collect()
}

//! Consumer oracle: compares a consumer's state with the server's, and rejects impossible notifications.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde_json::Value;

use super::world::GroundTruth;
use informer_hub_types::{Notification, ObjectKey, Origin, ResourceVersion, Uid};

/// Maximum number of stored violations. A broken stream causes one per notification.
const VIOLATIONS: usize = 200;

/// Difference between a consumer's state and the expected state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The consumer lacks an object that exists.
    Missing {
        /// Key of the object.
        key: ObjectKey,
        /// UID and resourceVersion that the consumer should have.
        truth: (Uid, ResourceVersion),
    },
    /// The consumer still has an object that was deleted.
    Extra {
        /// Key of the object.
        key: ObjectKey,
        /// UID and resourceVersion that the consumer has.
        seen: (Uid, ResourceVersion),
    },
    /// The consumer has an object with another UID under this key.
    OtherObject {
        /// Key of the object.
        key: ObjectKey,
        /// UID and resourceVersion that the consumer should have.
        truth: (Uid, ResourceVersion),
        /// UID and resourceVersion that the consumer has.
        seen: (Uid, ResourceVersion),
    },
    /// The consumer has this object at another resourceVersion.
    OtherVersion {
        /// Key of the object.
        key: ObjectKey,
        /// resourceVersion that the consumer should have.
        truth: ResourceVersion,
        /// resourceVersion that the consumer has.
        seen: ResourceVersion,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key, truth: (uid, version) } => write!(f, "{key} is missing: {uid} at {version}"),
            Self::Extra { key, seen: (uid, version) } => {
                write!(f, "{key} was deleted but is still present: {uid} at {version}")
            }
            Self::OtherObject { key, truth, seen } => {
                write!(f, "{key} should be {} at {}, but is {} at {}", truth.0, truth.1, seen.0, seen.1)
            }
            Self::OtherVersion { key, truth, seen } => write!(f, "{key} should be at {truth}, but is at {seen}"),
        }
    }
}

/// Comparison of a consumer's final state with the server's.
#[derive(Clone, Copy, Debug)]
pub struct Oracle;

impl Oracle {
    /// Returns all differences between the consumer's state `seen` and the expected state `truth`, by key.
    #[must_use]
    pub fn diff(truth: &GroundTruth, seen: &GroundTruth) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (key, truth) in truth {
            let key = key.clone();
            match seen.get(&key) {
                None => differences.push(Difference::Missing { key, truth: truth.clone() }),
                Some(seen) if seen.0 != truth.0 => {
                    differences.push(Difference::OtherObject { key, truth: truth.clone(), seen: seen.clone() });
                }
                Some(seen) if seen.1 != truth.1 => {
                    let (truth, seen) = (truth.1.clone(), seen.1.clone());
                    differences.push(Difference::OtherVersion { key, truth, seen });
                }
                Some(_) => {}
            }
        }
        let extra = seen.iter().filter(|(key, _)| !truth.contains_key(key));
        differences.extend(extra.map(|(key, seen)| Difference::Extra { key: key.clone(), seen: seen.clone() }));
        differences
    }
}

/// Event that a consumer received. Its form is the same for all transports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedEvent {
    /// Name of the informer. Objects of different origins are independent, even if their keys are equal.
    pub origin: String,
    /// Event id, if the event was received as a CloudEvent.
    pub id: Option<String>,
    /// Content of the event.
    pub content: EventContent,
}

/// Content of a [`ReceivedEvent`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventContent {
    /// The first list is complete.
    Synced,
    /// An object was added.
    Added {
        /// State of the object.
        object: Seen,
        /// Whether the object is part of the first list.
        initial: bool,
    },
    /// An object changed.
    Updated {
        /// The last delivered state according to the event; `None` if the event does not carry it.
        old: Option<(Uid, ResourceVersion)>,
        /// The new state.
        object: Seen,
        /// Whether the event is a resync, in which nothing changed.
        resync: bool,
    },
    /// An object was deleted.
    Deleted {
        /// Last known state.
        object: Seen,
        /// Whether the watch missed the deletion. The state in `object` may then be outdated.
        tombstone: bool,
    },
}

/// An object in an event: its key, UID and resourceVersion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
}

/// Event that violates the format a sink documents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {id:?}: {attribute} is missing or invalid")]
pub struct InvalidEvent {
    /// Event id; empty if it is missing.
    pub id: String,
    /// JSON pointer to the attribute of the event that is missing or invalid.
    pub attribute: &'static str,
}

/// Returns the name under which a [`Replica`] keeps an informer's objects.
#[must_use]
pub fn origin_name(origin: &Origin) -> String {
    format!("{}/{} {}", origin.cluster, origin.resource.gvr.long(), origin.scope)
}

impl<K> From<&Notification<K>> for ReceivedEvent {
    fn from(notification: &Notification<K>) -> Self {
        let seen = |object: &informer_hub_types::Object<K>| Seen {
            key: object.key().clone(),
            uid: object.uid().clone(),
            version: object.resource_version().clone(),
        };
        let content = match notification {
            Notification::Synced(_) => EventContent::Synced,
            Notification::Added { object, initial } => EventContent::Added { object: seen(object), initial: *initial },
            Notification::Updated { old, new, resync } => EventContent::Updated {
                old: Some((old.uid().clone(), old.resource_version().clone())),
                object: seen(new),
                resync: *resync,
            },
            Notification::Deleted { object, tombstone } => {
                EventContent::Deleted { object: seen(object), tombstone: *tombstone }
            }
        };
        Self { origin: origin_name(notification.origin()), id: None, content }
    }
}

impl ReceivedEvent {
    /// Parses one CloudEvent as a webhook received it. Its origin is `cluster/resource.version.group`.
    ///
    /// # Errors
    /// [`InvalidEvent`] naming the first attribute that is missing or invalid.
    pub fn from_event(event: &Value) -> Result<Self, InvalidEvent> {
        let id = event["id"].as_str().map(str::to_owned);
        let invalid = |attribute| InvalidEvent { id: id.clone().unwrap_or_default(), attribute };
        let text =
            |pointer: &'static str| event.pointer(pointer).and_then(Value::as_str).ok_or_else(|| invalid(pointer));
        let flag = |pointer: &'static str| event.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        let gvr = informer_hub_types::Gvr::new(
            text("/data/resource/group")?,
            text("/data/resource/version")?,
            text("/data/resource/resource")?,
        );
        let origin = format!("{}/{}", text("/data/cluster")?, gvr.long());
        let seen = || {
            let namespace = event.pointer("/data/namespace").and_then(Value::as_str).unwrap_or_default();
            Ok(Seen {
                key: ObjectKey::new(namespace, text("/data/name")?),
                uid: Uid::new(text("/data/uid")?),
                version: ResourceVersion::new(text("/data/resourceVersion")?),
            })
        };
        let old = || {
            let uid = event.pointer("/data/oldObject/metadata/uid")?.as_str()?;
            let version = event.pointer("/data/oldObject/metadata/resourceVersion")?.as_str()?;
            Some((Uid::new(uid), ResourceVersion::new(version)))
        };
        let content = match text("/type")? {
            "io.informer-hub.resource.synced.v1" => EventContent::Synced,
            "io.informer-hub.resource.added.v1" => {
                EventContent::Added { object: seen()?, initial: flag("/data/initial") }
            }
            "io.informer-hub.resource.updated.v1" => {
                EventContent::Updated { old: old(), object: seen()?, resync: false }
            }
            "io.informer-hub.resource.deleted.v1" => {
                EventContent::Deleted { object: seen()?, tombstone: flag("/data/tombstone") }
            }
            _ => return Err(invalid("/type")),
        };
        Ok(Self { origin, id, content })
    }
}

/// Consumer state built from notifications alone, with a record of impossible notifications.
///
/// Verifies the guarantees of client-go and of the hub:
/// - `Updated` and `Deleted` only for known objects, `Added` only for unknown ones;
/// - the old state of an update is the last delivered one;
/// - an update never changes the UID;
/// - versions of one object never decrease;
/// - `Synced` once per origin, and no `initial` event after it.
#[derive(Debug, Default)]
pub struct Replica {
    origins: BTreeMap<String, State>,
    ids: Option<HashSet<String>>,
    events: u64,
    repeats: u64,
    violations: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    objects: GroundTruth,
    /// Version at which each deleted object was deleted, by UID. Detects a late event that restores such an object.
    deleted: HashMap<Uid, ResourceVersion>,
    synced: bool,
}

impl Replica {
    /// Creates a replica that expects each event exactly once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a replica that expects each event at least once. An event whose id was seen before is only counted as a
    /// repeat.
    #[must_use]
    pub fn at_least_once() -> Self {
        Self { ids: Some(HashSet::new()), ..Self::default() }
    }

    /// Applies one notification.
    pub fn apply<K>(&mut self, notification: &Notification<K>) {
        self.record(&notification.into());
    }

    /// Applies one event from any transport.
    pub fn record(&mut self, event: &ReceivedEvent) {
        self.events += 1;
        if let (Some(ids), Some(id)) = (&mut self.ids, &event.id)
            && !ids.insert(id.clone())
        {
            self.repeats += 1;
            return;
        }
        let state = self.origins.entry(event.origin.clone()).or_default();
        if let Err(problem) = state.apply(&event.content)
            && self.violations.len() < VIOLATIONS
        {
            self.violations
                .push(format!("notification {} of {}: {problem}: {:?}", self.events, event.origin, event.content));
        }
    }

    /// Lets each informer (origin) sync and deliver its initial list once more, after a restart of the hub.
    pub fn hub_restarted(&mut self) {
        for state in self.origins.values_mut() {
            state.synced = false;
        }
    }

    /// Drops the state of all informers whose names (origins) have this prefix, because their objects will be delivered
    /// again.
    pub fn forget(&mut self, prefix: &str) {
        self.origins.retain(|name, _| !name.starts_with(prefix));
    }

    /// Returns the objects of the informer with this name; empty for an unknown name.
    #[must_use]
    pub fn seen(&self, origin: &str) -> GroundTruth {
        self.origins.get(origin).map(|state| state.objects.clone()).unwrap_or_default()
    }

    /// Returns the objects of all informers whose names have this prefix (`"prod-eu/pods.v1."`).
    #[must_use]
    pub fn seen_of(&self, prefix: &str) -> GroundTruth {
        let origins = self.origins.iter().filter(|(name, _)| name.starts_with(prefix));
        origins.flat_map(|(_, state)| state.objects.clone()).collect()
    }

    /// Returns the number of objects of one informer in constant time.
    #[must_use]
    pub fn count(&self, origin: &str) -> usize {
        self.origins.get(origin).map_or(0, |state| state.objects.len())
    }

    /// Returns the names of the informers that have sent an event.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.keys().map(String::as_str)
    }

    /// Returns whether the informer with this name has delivered its initial list.
    #[must_use]
    pub fn is_synced(&self, origin: &str) -> bool {
        self.origins.get(origin).is_some_and(|state| state.synced)
    }

    /// Returns the number of applied events, repeats included.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of repeats: events whose id was seen before.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Returns descriptions of the impossible events, at most the first 200. Each begins with the number of the event.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

impl State {
    /// Applies an event and returns an error if it is impossible. An impossible event is applied too, so that later
    /// events are not reported because of it.
    fn apply(&mut self, content: &EventContent) -> Result<(), String> {
        match content {
            EventContent::Synced if self.synced => Err("synced a second time".into()),
            EventContent::Synced => {
                self.synced = true;
                Ok(())
            }
            EventContent::Added { object, initial } => self.added(object, *initial),
            EventContent::Updated { old, object, resync } => self.updated(old.as_ref(), object, *resync),
            EventContent::Deleted { object, .. } => self.deleted(object),
        }
    }

    fn added(&mut self, object: &Seen, initial: bool) -> Result<(), String> {
        let known = self.put(object);
        if let Some((uid, version)) = known {
            return Err(format!("added, but {uid} at {version} is known under this name"));
        }
        if initial && self.synced {
            return Err("initial, but the origin has synced".into());
        }
        match self.deleted.get(&object.uid) {
            Some(deleted) if deleted.newer_than(&object.version) => {
                Err(format!("added, but it was deleted at {deleted}"))
            }
            _ => Ok(()),
        }
    }

    fn updated(&mut self, old: Option<&(Uid, ResourceVersion)>, object: &Seen, resync: bool) -> Result<(), String> {
        let Some(known) = self.put(object) else { return Err("updated, but nothing is known under this name".into()) };
        if known.0 != object.uid {
            return Err(format!("updated, but {} is known under this name", known.0));
        }
        if let Some(old) = old.filter(|old| **old != known) {
            return Err(format!("updated from {} at {}, but the last delivered state is {}", old.0, old.1, known.1));
        }
        if known.1.newer_than(&object.version) {
            return Err(format!("updated to an older version than {}", known.1));
        }
        if resync && known.1 != object.version {
            return Err(format!("a resync that changes {}", known.1));
        }
        if !resync && known.1 == object.version {
            return Err("updated to the same version, and not by a resync".into());
        }
        Ok(())
    }

    fn deleted(&mut self, object: &Seen) -> Result<(), String> {
        let known = self.objects.remove(&object.key);
        self.deleted.insert(object.uid.clone(), object.version.clone());
        let Some(known) = known else { return Err("deleted, but nothing is known under this name".into()) };
        if known.0 != object.uid {
            return Err(format!("deleted, but {} is known under this name", known.0));
        }
        if known.1.newer_than(&object.version) {
            return Err(format!("deleted at a version before {}", known.1));
        }
        Ok(())
    }

    fn put(&mut self, object: &Seen) -> Option<(Uid, ResourceVersion)> {
        self.objects.insert(object.key.clone(), (object.uid.clone(), object.version.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(name: &str, uid: &str, version: u64) -> Seen {
        Seen {
            key: ObjectKey::new("ns", name),
            uid: Uid::new(uid),
            version: ResourceVersion::new(&version.to_string()),
        }
    }

    fn added(name: &str, uid: &str, version: u64) -> EventContent {
        EventContent::Added { object: seen(name, uid, version), initial: false }
    }

    fn updated(name: &str, uid: &str, old: u64, version: u64) -> EventContent {
        let old = Some((Uid::new(uid), ResourceVersion::new(&old.to_string())));
        EventContent::Updated { old, object: seen(name, uid, version), resync: false }
    }

    fn deleted(name: &str, uid: &str, version: u64) -> EventContent {
        EventContent::Deleted { object: seen(name, uid, version), tombstone: false }
    }

    fn run(contents: impl IntoIterator<Item = EventContent>) -> Replica {
        let mut replica = Replica::new();
        for content in contents {
            replica.record(&ReceivedEvent { origin: "a/pods.v1. *".into(), id: None, content });
        }
        replica
    }

    #[test]
    fn replica_accepts_a_valid_sequence_and_ends_in_its_last_states() {
        let initial = EventContent::Added { object: seen("a", "u1", 1), initial: true };
        let sequence =
            [initial, EventContent::Synced, updated("a", "u1", 1, 3), deleted("a", "u1", 4), added("a", "u2", 5)];
        let replica = run(sequence);
        assert_eq!(replica.violations(), &[] as &[String]);
        assert!(replica.is_synced("a/pods.v1. *"));
        let truth = GroundTruth::from([(ObjectKey::new("ns", "a"), (Uid::new("u2"), ResourceVersion::new("5")))]);
        assert_eq!(replica.seen_of("a/pods"), truth);
    }

    #[test]
    fn replica_reports_each_invalid_sequence() {
        let initial = EventContent::Added { object: seen("b", "u", 1), initial: true };
        let resync = EventContent::Updated { old: None, object: seen("a", "u1", 2), resync: true };
        let sequences = [
            ("synced twice", vec![EventContent::Synced, EventContent::Synced]),
            ("initial after synced", vec![EventContent::Synced, initial]),
            ("added twice", vec![added("a", "u1", 1), added("a", "u1", 2)]),
            ("updated unknown", vec![updated("a", "u1", 1, 2)]),
            ("deleted unknown", vec![deleted("a", "u1", 1)]),
            ("new uid in an update", vec![added("a", "u1", 1), updated("a", "u2", 1, 2)]),
            ("wrong old state", vec![added("a", "u1", 2), updated("a", "u1", 1, 3)]),
            ("backwards", vec![added("a", "u1", 3), updated("a", "u1", 3, 2)]),
            ("update to the same", vec![added("a", "u1", 3), updated("a", "u1", 3, 3)]),
            ("deleted backwards", vec![added("a", "u1", 3), deleted("a", "u1", 2)]),
            ("deleted another", vec![added("a", "u1", 3), deleted("a", "u2", 4)]),
            ("added after its deletion", vec![added("a", "u1", 3), deleted("a", "u1", 5), added("a", "u1", 4)]),
            ("resync that changes", vec![added("a", "u1", 1), resync]),
        ];
        for (name, sequence) in sequences {
            assert_eq!(run(sequence).violations().len(), 1, "{name}");
        }
    }

    #[test]
    fn differences_describe_expected_and_actual_states() {
        let truth = run([added("a", "u1", 1), added("b", "u2", 2), added("c", "u3", 3)]).seen_of("a/");
        let seen = run([added("b", "u9", 2), added("c", "u3", 1), added("d", "u4", 4)]).seen_of("a/");
        assert_eq!(Oracle::diff(&truth, &truth), []);
        let found: Vec<_> = Oracle::diff(&truth, &seen).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "ns/a is missing: u1 at 1",
                "ns/b should be u2 at 2, but is u9 at 2",
                "ns/c should be at 3, but is at 1",
                "ns/d was deleted but is still present: u4 at 4",
            ]
        );
    }

    #[test]
    fn webhook_event_is_parsed_and_a_repeat_is_only_counted() {
        let event = json!({
            "id": "e1", "type": "io.informer-hub.resource.updated.v1",
            "data": {
                "cluster": "a", "resource": { "group": "", "version": "v1", "resource": "pods", "kind": "Pod" },
                "namespace": "ns", "name": "a", "uid": "u1", "resourceVersion": "2",
                "oldObject": { "metadata": { "uid": "u1", "resourceVersion": "1" } },
            },
        });
        let event = ReceivedEvent::from_event(&event).unwrap();
        assert_eq!((event.origin.as_str(), &event.content), ("a/pods.v1.", &updated("a", "u1", 1, 2)));
        let mut replica = Replica::at_least_once();
        replica.record(&ReceivedEvent {
            origin: "a/pods.v1.".into(),
            id: Some("e0".into()),
            content: added("a", "u1", 1),
        });
        replica.record(&event);
        replica.record(&event);
        assert_eq!((replica.events(), replica.repeats(), replica.violations().len()), (3, 1, 0));
        let invalid = ReceivedEvent::from_event(&json!({ "id": "e2", "data": {} })).unwrap_err();
        assert_eq!(invalid.attribute, "/data/resource/group");
    }
}

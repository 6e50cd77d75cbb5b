//! Judges what a consumer has seen: against the truth at the end, and against what can happen on the way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde_json::Value;

use super::world::Truth;
use informer_hub_types::{Notification, ObjectKey, Origin, ResourceVersion, Uid};

/// Violations kept; a broken stream makes one per notification.
const VIOLATIONS: usize = 200;

/// A way in which what was seen is not the truth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// It exists, and the consumer does not know.
    Missing {
        /// Which object.
        key: ObjectKey,
        /// What it is.
        truth: (Uid, ResourceVersion),
    },
    /// It is gone, and the consumer still has it.
    Extra {
        /// Which object.
        key: ObjectKey,
        /// What the consumer has.
        seen: (Uid, ResourceVersion),
    },
    /// The consumer has another object under this name.
    OtherObject {
        /// Which name.
        key: ObjectKey,
        /// What it is.
        truth: (Uid, ResourceVersion),
        /// What the consumer has.
        seen: (Uid, ResourceVersion),
    },
    /// The consumer has another state of this object.
    OtherVersion {
        /// Which object.
        key: ObjectKey,
        /// The version that it has.
        truth: ResourceVersion,
        /// The version that the consumer has.
        seen: ResourceVersion,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key, truth: (uid, version) } => write!(f, "{key} is missing: {uid} at {version}"),
            Self::Extra { key, seen: (uid, version) } => write!(f, "{key} is gone but was kept: {uid} at {version}"),
            Self::OtherObject { key, truth, seen } => {
                write!(f, "{key} is {} at {}, but was seen as {} at {}", truth.0, truth.1, seen.0, seen.1)
            }
            Self::OtherVersion { key, truth, seen } => write!(f, "{key} is at {truth}, but was seen at {seen}"),
        }
    }
}

/// Compares final states.
#[derive(Clone, Copy, Debug)]
pub struct Oracle;

impl Oracle {
    /// Every way in which `seen` is not `truth`, by key.
    #[must_use]
    pub fn diff(truth: &Truth, seen: &Truth) -> Vec<Difference> {
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

/// What a consumer was told, freed of where it was told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The informer: notifications of one origin are about one set of keys.
    pub origin: String,
    /// The event's id, where it came over the wire.
    pub id: Option<String>,
    /// What happened.
    pub what: What,
}

/// What happened, in a [`Told`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The first list is complete.
    Synced,
    /// An object is new.
    Added {
        /// Which object.
        object: Seen,
        /// Whether it is part of the first list.
        initial: bool,
    },
    /// An object changed.
    Updated {
        /// The state that is said to have been told last; `None` where the event does not carry it.
        old: Option<(Uid, ResourceVersion)>,
        /// The state now.
        object: Seen,
        /// Whether nothing changed.
        resync: bool,
    },
    /// An object is gone.
    Deleted {
        /// Its last state.
        object: Seen,
        /// Whether the deletion was not seen.
        tombstone: bool,
    },
}

/// One object at one version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
}

/// An event that is not what a sink promises to send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {id:?} lacks {lacks}, or it is not what it should be")]
pub struct InvalidEvent {
    /// The event's id, where it has one.
    pub id: String,
    /// The attribute, as a JSON pointer.
    pub lacks: &'static str,
}

/// The name under which a replica keeps an informer's objects.
#[must_use]
pub fn origin_name(origin: &Origin) -> String {
    format!("{}/{} {}", origin.cluster, origin.resource.gvr.long(), origin.scope)
}

impl<K> From<&Notification<K>> for Told {
    fn from(notification: &Notification<K>) -> Self {
        let seen = |object: &informer_hub_types::Object<K>| Seen {
            key: object.key().clone(),
            uid: object.uid().clone(),
            version: object.resource_version().clone(),
        };
        let what = match notification {
            Notification::Synced(_) => What::Synced,
            Notification::Added { object, initial } => What::Added { object: seen(object), initial: *initial },
            Notification::Updated { old, new, resync } => What::Updated {
                old: Some((old.uid().clone(), old.resource_version().clone())),
                object: seen(new),
                resync: *resync,
            },
            Notification::Deleted { object, tombstone } => {
                What::Deleted { object: seen(object), tombstone: *tombstone }
            }
        };
        Self { origin: origin_name(notification.origin()), id: None, what }
    }
}

impl Told {
    /// Reads one CloudEvent as a webhook received it. Its origin is `cluster/resource.version.group`.
    ///
    /// # Errors
    /// [`InvalidEvent`] naming the first attribute that is missing or wrong.
    pub fn from_event(event: &Value) -> Result<Self, InvalidEvent> {
        let id = event["id"].as_str().map(str::to_owned);
        let lack = |lacks| InvalidEvent { id: id.clone().unwrap_or_default(), lacks };
        let text = |pointer: &'static str| event.pointer(pointer).and_then(Value::as_str).ok_or_else(|| lack(pointer));
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
        let what = match text("/type")? {
            "io.informer-hub.resource.synced.v1" => What::Synced,
            "io.informer-hub.resource.added.v1" => What::Added { object: seen()?, initial: flag("/data/initial") },
            "io.informer-hub.resource.updated.v1" => What::Updated { old: old(), object: seen()?, resync: false },
            "io.informer-hub.resource.deleted.v1" => {
                What::Deleted { object: seen()?, tombstone: flag("/data/tombstone") }
            }
            _ => return Err(lack("/type")),
        };
        Ok(Self { origin, id, what })
    }
}

/// A consumer's copy, built from nothing but what it is told, which notes everything that cannot be right.
///
/// Held to client-go's promises and the hub's own: `Updated` and `Deleted` only of what is known, `Added` only of
/// what is not, the old state of an update is the one told last, identity never changes in an update, versions of
/// one object never go back, `Synced` once per origin, and nothing `initial` after it.
#[derive(Debug, Default)]
pub struct Replica {
    origins: BTreeMap<String, State>,
    ids: Option<HashSet<String>>,
    told: u64,
    repeats: u64,
    violations: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    objects: Truth,
    /// Versions at which objects went, so that a late event cannot bring one of them back unnoticed.
    gone: HashMap<Uid, ResourceVersion>,
    synced: bool,
}

impl Replica {
    /// A replica that is told everything exactly once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A replica that is told everything at least once: an event whose id it has had is only counted.
    #[must_use]
    pub fn at_least_once() -> Self {
        Self { ids: Some(HashSet::new()), ..Self::default() }
    }

    /// Takes one notification in.
    pub fn apply<K>(&mut self, notification: &Notification<K>) {
        self.tell(&notification.into());
    }

    /// Takes one statement in, wherever it comes from.
    pub fn tell(&mut self, told: &Told) {
        self.told += 1;
        if let (Some(ids), Some(id)) = (&mut self.ids, &told.id)
            && !ids.insert(id.clone())
        {
            self.repeats += 1;
            return;
        }
        let state = self.origins.entry(told.origin.clone()).or_default();
        if let Err(problem) = state.take(&told.what)
            && self.violations.len() < VIOLATIONS
        {
            self.violations.push(format!("notification {} of {}: {problem}: {:?}", self.told, told.origin, told.what));
        }
    }

    /// The hub has been restarted: each origin may sync, and tell its first list, once more.
    pub fn hub_restarted(&mut self) {
        for state in self.origins.values_mut() {
            state.synced = false;
        }
    }

    /// What the consumer was told of all origins whose name begins so is forgotten: it is going to be told anew.
    pub fn forget(&mut self, prefix: &str) {
        self.origins.retain(|name, _| !name.starts_with(prefix));
    }

    /// What the consumer has of one origin; empty where it was told nothing.
    #[must_use]
    pub fn seen(&self, origin: &str) -> Truth {
        self.origins.get(origin).map(|state| state.objects.clone()).unwrap_or_default()
    }

    /// What the consumer has of all origins whose name begins so (`"prod-eu/pods.v1."`).
    #[must_use]
    pub fn seen_of(&self, prefix: &str) -> Truth {
        let origins = self.origins.iter().filter(|(name, _)| name.starts_with(prefix));
        origins.flat_map(|(_, state)| state.objects.clone()).collect()
    }

    /// How many objects the consumer has of one origin; cheap.
    #[must_use]
    pub fn count(&self, origin: &str) -> usize {
        self.origins.get(origin).map_or(0, |state| state.objects.len())
    }

    /// The origins that have told anything.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.origins.keys().map(String::as_str)
    }

    /// Whether an origin has told its first list.
    #[must_use]
    pub fn is_synced(&self, origin: &str) -> bool {
        self.origins.get(origin).is_some_and(|state| state.synced)
    }

    /// Statements taken in, repeats included.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Statements that had been told before, by their id.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// What cannot have happened but was told, with its place; the first few hundred.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

impl State {
    /// Takes a statement in even when it is wrong, so that one mistake is not reported for ever.
    fn take(&mut self, what: &What) -> Result<(), String> {
        match what {
            What::Synced if self.synced => Err("synced a second time".into()),
            What::Synced => {
                self.synced = true;
                Ok(())
            }
            What::Added { object, initial } => self.added(object, *initial),
            What::Updated { old, object, resync } => self.updated(old.as_ref(), object, *resync),
            What::Deleted { object, .. } => self.deleted(object),
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
        match self.gone.get(&object.uid) {
            Some(gone) if gone.newer_than(&object.version) => Err(format!("added, but it went at {gone}")),
            _ => Ok(()),
        }
    }

    fn updated(&mut self, old: Option<&(Uid, ResourceVersion)>, object: &Seen, resync: bool) -> Result<(), String> {
        let Some(known) = self.put(object) else { return Err("updated, but nothing is known under this name".into()) };
        if known.0 != object.uid {
            return Err(format!("updated, but under this name {} is known", known.0));
        }
        if let Some(old) = old.filter(|old| **old != known) {
            return Err(format!("updated from {} at {}, but {} was told last", old.0, old.1, known.1));
        }
        if known.1.newer_than(&object.version) {
            return Err(format!("updated backwards from {}", known.1));
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
        self.gone.insert(object.uid.clone(), object.version.clone());
        let Some(known) = known else { return Err("deleted, but nothing is known under this name".into()) };
        if known.0 != object.uid {
            return Err(format!("deleted, but under this name {} is known", known.0));
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

    fn added(name: &str, uid: &str, version: u64) -> What {
        What::Added { object: seen(name, uid, version), initial: false }
    }

    fn updated(name: &str, uid: &str, old: u64, version: u64) -> What {
        let old = Some((Uid::new(uid), ResourceVersion::new(&old.to_string())));
        What::Updated { old, object: seen(name, uid, version), resync: false }
    }

    fn deleted(name: &str, uid: &str, version: u64) -> What {
        What::Deleted { object: seen(name, uid, version), tombstone: false }
    }

    fn run(whats: impl IntoIterator<Item = What>) -> Replica {
        let mut replica = Replica::new();
        for what in whats {
            replica.tell(&Told { origin: "a/pods.v1. *".into(), id: None, what });
        }
        replica
    }

    #[test]
    fn a_lawful_story_has_no_violation_and_ends_in_its_last_states() {
        let initial = What::Added { object: seen("a", "u1", 1), initial: true };
        let story = [initial, What::Synced, updated("a", "u1", 1, 3), deleted("a", "u1", 4), added("a", "u2", 5)];
        let replica = run(story);
        assert_eq!(replica.violations(), &[] as &[String]);
        assert!(replica.is_synced("a/pods.v1. *"));
        let truth = Truth::from([(ObjectKey::new("ns", "a"), (Uid::new("u2"), ResourceVersion::new("5")))]);
        assert_eq!(replica.seen_of("a/pods"), truth);
    }

    #[test]
    fn each_unlawful_story_is_noticed() {
        let initial = What::Added { object: seen("b", "u", 1), initial: true };
        let resync = What::Updated { old: None, object: seen("a", "u1", 2), resync: true };
        let stories = [
            ("synced twice", vec![What::Synced, What::Synced]),
            ("initial after synced", vec![What::Synced, initial]),
            ("added twice", vec![added("a", "u1", 1), added("a", "u1", 2)]),
            ("updated unknown", vec![updated("a", "u1", 1, 2)]),
            ("deleted unknown", vec![deleted("a", "u1", 1)]),
            ("new uid in an update", vec![added("a", "u1", 1), updated("a", "u2", 1, 2)]),
            ("wrong old state", vec![added("a", "u1", 2), updated("a", "u1", 1, 3)]),
            ("backwards", vec![added("a", "u1", 3), updated("a", "u1", 3, 2)]),
            ("update to the same", vec![added("a", "u1", 3), updated("a", "u1", 3, 3)]),
            ("deleted backwards", vec![added("a", "u1", 3), deleted("a", "u1", 2)]),
            ("deleted another", vec![added("a", "u1", 3), deleted("a", "u2", 4)]),
            ("risen from the dead", vec![added("a", "u1", 3), deleted("a", "u1", 5), added("a", "u1", 4)]),
            ("resync that changes", vec![added("a", "u1", 1), resync]),
        ];
        for (name, story) in stories {
            assert_eq!(run(story).violations().len(), 1, "{name}");
        }
    }

    #[test]
    fn differences_say_what_is_wrong() {
        let truth = run([added("a", "u1", 1), added("b", "u2", 2), added("c", "u3", 3)]).seen_of("a/");
        let seen = run([added("b", "u9", 2), added("c", "u3", 1), added("d", "u4", 4)]).seen_of("a/");
        assert_eq!(Oracle::diff(&truth, &truth), []);
        let found: Vec<_> = Oracle::diff(&truth, &seen).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "ns/a is missing: u1 at 1",
                "ns/b is u2 at 2, but was seen as u9 at 2",
                "ns/c is at 3, but was seen at 1",
                "ns/d is gone but was kept: u4 at 4",
            ]
        );
    }

    #[test]
    fn a_webhook_event_is_read_and_a_repeat_is_only_counted() {
        let event = json!({
            "id": "e1", "type": "io.informer-hub.resource.updated.v1",
            "data": {
                "cluster": "a", "resource": { "group": "", "version": "v1", "resource": "pods", "kind": "Pod" },
                "namespace": "ns", "name": "a", "uid": "u1", "resourceVersion": "2",
                "oldObject": { "metadata": { "uid": "u1", "resourceVersion": "1" } },
            },
        });
        let told = Told::from_event(&event).unwrap();
        assert_eq!((told.origin.as_str(), &told.what), ("a/pods.v1.", &updated("a", "u1", 1, 2)));
        let mut replica = Replica::at_least_once();
        replica.tell(&Told { origin: "a/pods.v1.".into(), id: Some("e0".into()), what: added("a", "u1", 1) });
        replica.tell(&told);
        replica.tell(&told);
        assert_eq!((replica.told(), replica.repeats(), replica.violations().len()), (3, 1, 0));
        let lacking = Told::from_event(&json!({ "id": "e2", "data": {} })).unwrap_err();
        assert_eq!(lacking.lacks, "/data/resource/group");
    }
}

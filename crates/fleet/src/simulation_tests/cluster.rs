//! Simulated cluster: the history of one resource.

use std::collections::BTreeMap;

use informer_hub_types::{ObjectKey, ResourceVersion, Uid};
use rand::Rng;
use rand::rngs::StdRng;

use crate::Record;

/// UID and version of each object.
pub(super) type Objects = BTreeMap<ObjectKey, (Uid, u64)>;

/// Event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    pub(super) version: u64,
    pub(super) deleted: bool,
}

#[derive(Default)]
pub(super) struct SimulatedCluster {
    pub(super) events: Vec<Event>,
    objects: Objects,
}

impl SimulatedCluster {
    /// Changes up to three objects.
    pub(super) fn churn(&mut self, rng: &mut StdRng) {
        for _ in 0..rng.random_range(0..4) {
            let key = ObjectKey::new("ns", &rng.random_range(0..6).to_string());
            // Another resource of the cluster takes versions too.
            let version = self.version() + rng.random_range(1..4);
            let (uid, deleted) = match self.objects.get(&key) {
                Some((uid, _)) => (uid.clone(), rng.random_bool(0.4)),
                None => (Uid::new(&format!("uid-{version}")), false),
            };
            if deleted {
                self.objects.remove(&key);
            } else {
                self.objects.insert(key.clone(), (uid.clone(), version));
            }
            self.events.push(Event { key, uid, version, deleted });
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.events.last().map_or(1, |event| event.version)
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }
}

impl Event {
    pub(super) fn record(&self) -> Record {
        let (key, uid, version) = (self.key.clone(), self.uid.clone(), ResourceVersion::new(&self.version.to_string()));
        if self.deleted {
            Record::Delete { key, uid, version, last_state: "{}".into(), tombstone: false }
        } else {
            Record::Put { key, uid, version, body: "{}".into() }
        }
    }

    pub(super) fn of_record(record: &Record) -> Option<Self> {
        let (key, uid, version, deleted) = match record {
            Record::Put { key, uid, version, .. } => (key, uid, version, false),
            Record::Delete { key, uid, version, .. } => (key, uid, version, true),
            _ => return None,
        };
        Some(Self { key: key.clone(), uid: uid.clone(), version: version.as_number()?, deleted })
    }
}

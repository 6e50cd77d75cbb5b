//! CustomResourceDefinitions: in which API versions each custom resource is stored and served. Also keeps the objects
//! and histories of removed resources, for watches that are still open.
//!
//! Every custom resource has a `customresourcedefinition` object, as in a real cluster. The custom objects are stored
//! in one API version, and can be served in others too. All versions share one history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::collection::{Collection, ResourceDef};
use informer_hub_types::{Gvr, ObjectKey};

/// Number of removed resources whose histories are kept for watches that are still open.
const REMOVED: usize = 16;

/// Definitions of the custom resources in a simulated cluster, and the versions in which they are served. Keeps no
/// objects except those of removed resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    /// Additional served versions, each with the version in which its objects are stored.
    served: BTreeMap<Gvr, Gvr>,
    /// Number of changes to each definition. The key is the version in which the resource's objects are stored.
    generations: BTreeMap<Gvr, u64>,
    /// API versions in which objects are stored but not served.
    unserved: BTreeSet<Gvr>,
    /// Objects and histories of removed resources, oldest first.
    removed: Vec<Collection>,
}

impl Definitions {
    pub(super) fn keep_removed(&mut self, collection: Collection) {
        self.removed.push(collection);
        if self.removed.len() > REMOVED {
            self.removed.remove(0);
        }
    }

    /// Returns the objects and history of a removed resource that was created at the version `created_at`; `None` if
    /// they are no longer kept. The version is needed because a resource can be created and removed several times.
    pub(super) fn removed(&self, gvr: &Gvr, created_at: u64) -> Option<&Collection> {
        let stored = self.stored_as(gvr);
        self.removed.iter().find(|removed| removed.created_at() == created_at && removed.def().api.gvr == *stored)
    }

    /// Serves a custom resource in one more version. `stored` is the version in which its objects are stored.
    pub(super) fn serve(&mut self, version: &str, stored: &Gvr) {
        let also = Gvr::new(&stored.group, version, &stored.resource);
        if also == *stored {
            self.unserved.remove(stored);
        } else {
            self.served.insert(also, stored.clone());
        }
    }

    /// Stops serving a custom resource in a version. `stored` is the version in which its objects are stored.
    pub(super) fn unserve(&mut self, version: &str, stored: &Gvr) {
        let no_more = Gvr::new(&stored.group, version, &stored.resource);
        if no_more == *stored {
            self.unserved.insert(no_more);
        } else {
            self.served.remove(&no_more);
        }
    }

    /// Counts a change to a resource's definition, and returns its `metadata.generation`.
    pub(super) fn count_change(&mut self, gvr: &Gvr) -> u64 {
        let generation = self.generations.entry(gvr.clone()).or_default();
        *generation += 1;
        *generation
    }

    pub(super) fn forget(&mut self, gvr: &Gvr) {
        self.generations.remove(gvr);
        self.served.retain(|_, stored| stored != gvr);
        self.unserved.remove(gvr);
    }

    /// Returns the version in which the objects of a served version are stored: `gvr` itself, unless it is an
    /// additional version.
    pub(super) fn stored_as<'g>(&'g self, gvr: &'g Gvr) -> &'g Gvr {
        self.served.get(gvr).unwrap_or(gvr)
    }

    /// Returns whether `gvr` is a storage version that is not served.
    pub(super) fn is_unserved(&self, gvr: &Gvr) -> bool {
        self.unserved.contains(gvr)
    }

    /// Returns the versions that are served in addition to the storage versions.
    pub(super) fn additional(&self) -> impl Iterator<Item = &Gvr> {
        self.served.keys()
    }

    pub(super) fn key(gvr: &Gvr) -> ObjectKey {
        ObjectKey::new("", &format!("{}.{}", gvr.resource, gvr.group))
    }

    /// Returns the definition of a custom resource as JSON, with `metadata` as given.
    pub(super) fn body(&self, def: &ResourceDef, metadata: &Value) -> Value {
        let stored = &def.api.gvr;
        let others = self.served.iter().filter(|(_, of)| *of == stored).map(|(also, _)| also);
        let versions: Vec<Value> = std::iter::once(stored)
            .chain(others)
            .map(|gvr| {
                let is_served = !self.unserved.contains(gvr);
                json!({ "name": gvr.version.as_str(), "served": is_served, "storage": gvr == stored })
            })
            .collect();
        json!({
            "metadata": metadata,
            "spec": {
                "group": stored.group.as_str(), "scope": if def.api.namespaced { "Namespaced" } else { "Cluster" },
                "names": { "plural": stored.resource.as_str(), "kind": def.api.kind.as_str() }, "versions": versions,
            },
            "status": { "conditions": [{ "type": "Established", "status": "True" }] },
        })
    }
}

//! Definitions of custom resources: which there are, in which versions they are served, and how they go.
//!
//! Every custom resource has a `customresourcedefinition`, as a real cluster shows it. Its objects are stored as one version
//! and can be served in others too, under one history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::collection::{Collection, ResourceDef};
use super::world::World;
use informer_hub_types::{Gvr, ObjectKey};

/// Histories of resources that are gone that open watches may still read.
const BURIED: usize = 16;

/// What a world knows of its custom resources besides their objects.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// Versions that are served, and as which their objects are stored.
    served: BTreeMap<Gvr, Gvr>,
    /// Versions that objects are stored as and that are not served.
    unserved: BTreeSet<Gvr>,
    buried: Vec<Collection>,
}

impl Definitions {
    pub(super) fn bury(&mut self, collection: Collection) {
        self.buried.push(collection);
        if self.buried.len() > BURIED {
            self.buried.remove(0);
        }
    }
}

impl World {
    /// `customresourcedefinitions.apiextensions.k8s.io/v1`.
    #[must_use]
    pub fn definitions() -> Gvr {
        Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    /// `apiservices.apiregistration.k8s.io/v1`. There are none at the start.
    #[must_use]
    pub fn services() -> Gvr {
        Gvr::new("apiregistration.k8s.io", "v1", "apiservices")
    }

    pub(super) fn serve_definitions(&mut self) {
        let definitions = ResourceDef::new(&Self::definitions(), "CustomResourceDefinition", false, false);
        self.register(definitions.short_name("crd"));
        self.register(ResourceDef::new(&Self::services(), "APIService", false, false));
    }

    /// Serves the objects of a custom resource in one more version.
    pub fn serve(&mut self, version: &str, of: &Gvr) {
        let also = Gvr::new(&of.group, version, &of.resource);
        if also == *of {
            self.definitions.unserved.remove(of);
        } else {
            self.definitions.served.insert(also, of.clone());
        }
        self.show_definition(of);
    }

    /// Serves them no longer in a version; watches in it close.
    pub fn unserve(&mut self, version: &str, of: &Gvr) {
        let no_more = Gvr::new(&of.group, version, &of.resource);
        if no_more == *of {
            self.definitions.unserved.insert(no_more);
        } else {
            self.definitions.served.remove(&no_more);
        }
        self.show_definition(of);
    }

    /// Deletes a custom resource as an apiserver does: its objects, then its definition; watches are told of each.
    pub fn undefine(&mut self, gvr: &Gvr) -> bool {
        let keys: Vec<ObjectKey> = self.objects(gvr).map(|object| object.key().clone()).collect();
        for key in keys {
            self.delete(gvr, &key);
        }
        self.unregister(gvr)
    }

    /// As what the objects of a resource are stored.
    pub(super) fn stored_as(&self, gvr: &Gvr) -> Gvr {
        self.definitions.served.get(gvr).unwrap_or(gvr).clone()
    }

    /// A resource as it is served; `None` where it is not.
    pub(super) fn served_as(&self, gvr: &Gvr) -> Option<ResourceDef> {
        if self.definitions.unserved.contains(gvr) {
            return None;
        }
        let mut def = self.collection(gvr)?.def().clone();
        def.api.gvr = gvr.clone();
        Some(def)
    }

    /// All that is served, in every version.
    pub(super) fn served(&self) -> Vec<ResourceDef> {
        let all = self.collections.keys().chain(self.definitions.served.keys());
        all.filter_map(|gvr| self.served_as(gvr)).collect()
    }

    /// The collection that a watch has begun with, and whether it is still served.
    pub(super) fn watched(&self, gvr: &Gvr, born: u64) -> Option<(&Collection, bool)> {
        let is_served = self.served_as(gvr).is_some();
        let living = self.collection(gvr).filter(|collection| collection.born() == born);
        let stored = self.stored_as(gvr);
        let is_it = |buried: &&Collection| buried.born() == born && buried.def().api.gvr == stored;
        living.map(|it| (it, is_served)).or_else(|| Some((self.definitions.buried.iter().find(is_it)?, false)))
    }

    /// Brings a resource's definition up to date.
    pub(super) fn show_definition(&mut self, gvr: &Gvr) {
        let Some(def) = self.collections.get(gvr).map(Collection::def).filter(|def| def.custom).cloned() else {
            return;
        };
        let stored = gvr.clone();
        let other = self.definitions.served.iter().filter(|(_, of)| **of == stored).map(|(also, _)| also);
        let versions: Vec<Value> = std::iter::once(&stored)
            .chain(other)
            .map(|gvr| {
                let is_served = !self.definitions.unserved.contains(gvr);
                json!({ "name": gvr.version.as_str(), "served": is_served, "storage": *gvr == stored })
            })
            .collect();
        let name = format!("{}.{}", gvr.resource, gvr.group);
        let key = ObjectKey::new("", &name);
        let uid = self.get(&Self::definitions(), &key).map(|object| object.uid().to_string());
        let (version, time) = (self.tick(), self.time());
        let uid = uid.unwrap_or_else(|| format!("00000000-0000-4000-8000-{version:012x}"));
        let body = json!({
            "metadata": { "name": name, "uid": uid, "creationTimestamp": time, "resourceVersion": version.to_string() },
            "spec": {
                "group": gvr.group.as_str(), "scope": if def.api.namespaced { "Namespaced" } else { "Cluster" },
                "names": { "plural": gvr.resource.as_str(), "kind": def.api.kind.as_str() }, "versions": versions,
            },
            "status": { "conditions": [{ "type": "Established", "status": "True" }] },
        });
        self.put(&Self::definitions(), body);
    }

    pub(super) fn hide_definition(&mut self, gvr: &Gvr) {
        self.definitions.served.retain(|_, of| of != gvr);
        self.definitions.unserved.remove(gvr);
        self.delete(&Self::definitions(), &ObjectKey::new("", &format!("{}.{}", gvr.resource, gvr.group)));
    }
}

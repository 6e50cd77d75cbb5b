//! State and history of a simulated cluster, without I/O. Tests compare the hub with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::collection::{Collection, ResourceDef};
use super::definitions::Definitions;
use super::filter::Filter;
use super::object::SimObject;
use super::pods;
use super::protobuf;
use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};

/// 2026-01-01T00:00:00Z, the start of a simulated cluster's clock, which advances one second per resourceVersion.
const EPOCH: i64 = 1_767_225_600;

/// Expected state of an observer of one resource: UID and version of each object, by key.
pub type GroundTruth = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// Initial content of a simulated cluster.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Seed of all randomness in the simulated cluster.
    pub seed: u64,
    /// Number of pods at the start.
    pub pods: usize,
    /// Number of nodes at the start. Pods are spread over them.
    pub nodes: usize,
    /// Number of objects of the custom resource at the start.
    pub widgets: usize,
    /// Whether pods are short (about 600 B) instead of real-sized (about 9 KB).
    pub small: bool,
    /// Number of events kept per resource. A client that needs an older event must list again.
    pub history: usize,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self { seed: 1, pods: 20, nodes: 3, widgets: 5, small: true, history: 10_000 }
    }
}

/// All resources of one cluster. Their objects share one counter of resourceVersions, as in etcd.
///
/// Synchronous and without I/O. Equal seeds and equal calls produce equal worlds, byte for byte. If the resource or the
/// object does not exist, operations return `None` or `false` and change nothing. To simulate an etcd restored from a
/// backup, replace a world by an older clone.
#[derive(Clone, Debug)]
pub struct World {
    rng: StdRng,
    version: u64,
    nodes: usize,
    small: bool,
    history: usize,
    collections: BTreeMap<Gvr, Collection>,
    definitions: Definitions,
    /// Whether objects of built-in types are stored as a kube-apiserver does: with the members that Go writes for empty
    /// values.
    is_typed: bool,
}

impl World {
    /// Creates a world with objects of `pods`, `nodes` and `widgets.example.com`.
    #[must_use]
    pub fn new(config: &WorldConfig) -> Self {
        Self::create_world(config, false)
    }

    /// Creates a world whose objects of built-in types have the form in which a kube-apiserver stores them: with the
    /// members that Go writes for empty values. Debug builds panic at members that a type lacks; a kube-apiserver drops
    /// those.
    #[must_use]
    pub fn typed(config: &WorldConfig) -> Self {
        Self::create_world(config, true)
    }

    fn create_world(config: &WorldConfig, is_typed: bool) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(config.seed),
            version: 1000,
            nodes: config.nodes,
            small: config.small,
            history: config.history,
            collections: BTreeMap::new(),
            definitions: Definitions::default(),
            is_typed,
        };
        world.register(
            ResourceDef::new(&Self::definitions(), "CustomResourceDefinition", false, false).short_name("crd"),
        );
        world.register(ResourceDef::new(&Self::services(), "APIService", false, false));
        world.register(ResourceDef::new(&Self::pods(), "Pod", true, false).short_name("po"));
        world.register(ResourceDef::new(&Self::nodes(), "Node", false, false).short_name("no"));
        world.register(ResourceDef::new(&Self::widgets(), "Widget", true, true).short_name("wd"));
        for i in 0..config.nodes {
            let time = world.time();
            let body = pods::node(&mut world.rng, &time);
            world.create(&Self::nodes(), "", &format!("node-{i}"), body);
        }
        for _ in 0..config.pods {
            world.create_pod();
        }
        for i in 0..config.widgets {
            world.create_widget(&format!("widget-{i}"));
        }
        world
    }

    /// `v1` pods.
    #[must_use]
    pub fn pods() -> Gvr {
        Gvr::new("", "v1", "pods")
    }

    /// `v1` nodes, which are cluster-scoped.
    #[must_use]
    pub fn nodes() -> Gvr {
        Gvr::new("", "v1", "nodes")
    }

    /// `widgets.example.com/v1`, a custom resource.
    #[must_use]
    pub fn widgets() -> Gvr {
        Gvr::new("example.com", "v1", "widgets")
    }

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

    /// Serves one more resource. Does nothing if it is served already.
    pub fn register(&mut self, def: ResourceDef) {
        if self.collections.contains_key(&def.api.gvr) {
            return;
        }
        if def.custom {
            self.version += 1;
        }
        let (gvr, history, version) = (def.api.gvr.clone(), self.history, self.version);
        self.collections.insert(gvr.clone(), Collection::new(def, history, version));
        self.write_definition(&gvr);
    }

    /// Changes all objects of a custom resource without events and without new versions of the objects. A new default
    /// value in a CRD has this effect.
    pub fn add_default(&mut self, gvr: &Gvr, change: impl Fn(&mut Value)) {
        if let Some(collection) = self.collections.get_mut(gvr) {
            collection.rewrite(change);
        }
        self.write_definition(gvr);
    }

    /// Stops serving a resource and deletes its definition, if it has one. Its objects vanish without deletion events,
    /// as if the client was disconnected during the deletion. [`Self::undefine`] sends these events.
    pub fn unregister(&mut self, gvr: &Gvr) -> bool {
        let Some(collection) = self.collections.remove(gvr) else { return false };
        self.definitions.keep_removed(collection);
        self.definitions.forget(gvr);
        self.delete(&Self::definitions(), &Definitions::key(gvr));
        true
    }

    /// Serves the objects of a custom resource in one more version.
    pub fn serve(&mut self, version: &str, of: &Gvr) {
        self.definitions.serve(version, of);
        self.write_definition(of);
    }

    /// Stops serving a custom resource in a version; watches in that version close.
    pub fn unserve(&mut self, version: &str, of: &Gvr) {
        self.definitions.unserve(version, of);
        self.write_definition(of);
    }

    /// Deletes a custom resource as an apiserver does: first its objects, with one event each, then its definition.
    pub fn undefine(&mut self, gvr: &Gvr) -> bool {
        let keys: Vec<ObjectKey> = self.objects(gvr).map(|object| object.key().clone()).collect();
        for key in keys {
            self.delete(gvr, &key);
        }
        self.unregister(gvr)
    }

    /// Returns the stored resources, by GVR.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceDef> {
        self.collections.values().map(Collection::def)
    }

    /// The cluster's resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Creates an object and returns its key. Returns `None` if the resource does not exist or the name is taken.
    /// `body` provides labels, spec and status.
    pub fn create(&mut self, gvr: &Gvr, namespace: &str, name: &str, mut body: Value) -> Option<ObjectKey> {
        let gvr = &self.definitions.stored_as(gvr).clone();
        let key = ObjectKey::new(namespace, name);
        let collection = self.collections.get(gvr)?;
        if !body.is_object() || collection.objects().contains_key(&key) {
            return None;
        }
        self.version += 1;
        let time = self.time();
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        let metadata = &mut body["metadata"];
        metadata["name"] = json!(name);
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(pods::uuid(&mut self.rng));
        metadata["creationTimestamp"] = json!(time);
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.put(gvr, body)
    }

    /// Creates a random pod and returns its key; `None` if no pod was created, as in [`Self::create`].
    pub fn create_pod(&mut self) -> Option<ObjectKey> {
        let time = self.time();
        let (name, body) = pods::pod(&mut self.rng, self.nodes, &time, self.small);
        let namespace = pods::NAMESPACES[self.rng.random_range(0..pods::NAMESPACES.len())];
        self.create(&Self::pods(), namespace, &name, body)
    }

    /// Creates a widget in the namespace `shop` and returns its key; `None` if the name is taken.
    pub fn create_widget(&mut self, name: &str) -> Option<ObjectKey> {
        let body = pods::widget(&mut self.rng);
        self.create(&Self::widgets(), "shop", name, body)
    }

    /// Changes an object and returns its new version; `None` if the object does not exist. `change` cannot alter name,
    /// namespace, UID and version.
    pub fn update(&mut self, gvr: &Gvr, key: &ObjectKey, change: impl FnOnce(&mut Value)) -> Option<u64> {
        let gvr = &self.definitions.stored_as(gvr).clone();
        let before = Arc::clone(self.get(gvr, key)?);
        let mut body = before.value();
        change(&mut body);
        if !body.is_object() || !body["metadata"].is_object() {
            return None;
        }
        self.version += 1;
        let metadata = &mut body["metadata"];
        metadata["name"] = json!(key.name());
        if let Some(namespace) = key.namespace() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(before.uid().to_string());
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.put(gvr, body)?;
        Some(self.version)
    }

    /// Applies a JSON merge patch (RFC 7396) to an object and returns its new version; `None` if the object does not
    /// exist.
    pub fn patch(&mut self, gvr: &Gvr, key: &ObjectKey, patch: &Value) -> Option<u64> {
        self.update(gvr, key, |body| merge(body, patch))
    }

    /// Deletes an object and returns the resourceVersion of the deletion; `None` if the object does not exist.
    pub fn delete(&mut self, gvr: &Gvr, key: &ObjectKey) -> Option<u64> {
        let gvr = &self.definitions.stored_as(gvr).clone();
        let collection = self.collections.get_mut(gvr)?;
        let before = Arc::clone(collection.objects().get(key)?);
        self.version += 1;
        let kind = collection.def().api.kind.clone();
        let last_state = before.at_version(gvr, &kind, self.version);
        collection.remove(last_state);
        Some(self.version)
    }

    /// Deletes an object and creates it under the same name with the same content and a new UID. Returns the new
    /// version; `None` if the object does not exist.
    pub fn recreate(&mut self, gvr: &Gvr, key: &ObjectKey) -> Option<u64> {
        let body = self.get(gvr, key)?.value();
        self.delete(gvr, key)?;
        self.create(gvr, key.namespace().unwrap_or_default(), key.name(), body)?;
        Some(self.version)
    }

    /// Drops all history: every version and continue token that a client holds expires.
    ///
    /// An open watch that has received all events continues, as on a real apiserver.
    pub fn compact(&mut self) {
        self.version += 1;
        for collection in self.collections.values_mut() {
            collection.compact(self.version);
        }
    }

    /// Returns one object; `None` if it does not exist.
    #[must_use]
    pub fn get(&self, gvr: &Gvr, key: &ObjectKey) -> Option<&Arc<SimObject>> {
        self.collections.get(self.definitions.stored_as(gvr))?.objects().get(key)
    }

    /// Returns the objects of a resource, by key; empty if the resource does not exist.
    pub fn objects(&self, gvr: &Gvr) -> impl Iterator<Item = &Arc<SimObject>> {
        self.collections
            .get(self.definitions.stored_as(gvr))
            .into_iter()
            .flat_map(|collection| collection.objects().values())
    }

    /// Returns the number of objects of a resource.
    #[must_use]
    pub fn count(&self, gvr: &Gvr) -> usize {
        self.collections.get(self.definitions.stored_as(gvr)).map_or(0, |collection| collection.objects().len())
    }

    /// Returns the key of a random object of a resource; `None` if there is no object. Iterates over the keys.
    pub fn random_key(&mut self, gvr: &Gvr, rng: &mut impl Rng) -> Option<ObjectKey> {
        let objects = self.collections.get(gvr)?.objects();
        if objects.is_empty() {
            return None;
        }
        objects.keys().nth(rng.random_range(0..objects.len())).cloned()
    }

    /// Returns UID and version of each object that a consumer of the whole resource should have.
    #[must_use]
    pub fn truth(&self, gvr: &Gvr) -> GroundTruth {
        self.truth_where(gvr, &Filter::all())
    }

    /// Returns UID and version of each object that a consumer of the objects selected by `filter` should have.
    #[must_use]
    pub fn truth_where(&self, gvr: &Gvr, filter: &Filter) -> GroundTruth {
        let selected = self.objects(gvr).filter(|object| filter.matches(object));
        selected.map(|o| (o.key().clone(), (o.uid().clone(), o.resource_version()))).collect()
    }

    pub(super) fn collection(&self, gvr: &Gvr) -> Option<&Collection> {
        self.collections.get(self.definitions.stored_as(gvr))
    }

    pub(super) fn collection_mut(&mut self, gvr: &Gvr) -> Option<&mut Collection> {
        self.collections.get_mut(self.definitions.stored_as(gvr))
    }

    /// Returns the definition of a resource in the served version `gvr`; `None` if that is not served.
    pub(super) fn served_as(&self, gvr: &Gvr) -> Option<ResourceDef> {
        if self.definitions.is_unserved(gvr) {
            return None;
        }
        let mut def = self.collection(gvr)?.def().clone();
        def.api.gvr = gvr.clone();
        Some(def)
    }

    /// Returns all served resources in every served version.
    pub(super) fn served(&self) -> Vec<ResourceDef> {
        let all = self.collections.keys().chain(self.definitions.additional());
        all.filter_map(|gvr| self.served_as(gvr)).collect()
    }

    /// Returns the collection (objects and history) on which a watch was opened, and whether `gvr` is still served.
    /// Returns `None` if the collection was dropped. `created_at` is the version at which the collection was created,
    /// and identifies it.
    pub(super) fn watched(&self, gvr: &Gvr, created_at: u64) -> Option<(&Collection, bool)> {
        let current = self.collection(gvr).filter(|collection| collection.created_at() == created_at);
        let current = current.map(|collection| (collection, self.served_as(gvr).is_some()));
        current.or_else(|| Some((self.definitions.removed(gvr, created_at)?, false)))
    }

    /// Writes the definition of a custom resource as a new version of that object.
    fn write_definition(&mut self, gvr: &Gvr) {
        let Some(def) = self.collections.get(gvr).map(Collection::def).filter(|def| def.custom).cloned() else {
            return;
        };
        let key = Definitions::key(gvr);
        let uid = self.get(&Self::definitions(), &key).map(|object| object.uid().to_string());
        self.version += 1;
        let uid = uid.unwrap_or_else(|| format!("00000000-0000-4000-8000-{:012x}", self.version));
        let metadata = json!({
            "name": key.name(), "uid": uid, "creationTimestamp": self.time(),
            "resourceVersion": self.version.to_string(), "generation": self.definitions.count_change(gvr),
        });
        let body = self.definitions.body(&def, &metadata);
        self.put(&Self::definitions(), body);
    }

    /// Returns the world's time, derived from the version, so that equal worlds have equal times.
    #[must_use]
    pub fn time(&self) -> String {
        let second = EPOCH.saturating_add_unsigned(self.version);
        jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
    }

    fn put(&mut self, gvr: &Gvr, body: Value) -> Option<ObjectKey> {
        let collection = self.collections.get_mut(gvr)?;
        let api = &collection.def().api;
        let stored = if self.is_typed { protobuf::stored_form(api, &body) } else { Ok(None) };
        let object = match stored {
            Ok(stored) => SimObject::encode(gvr, &api.kind, self.version, stored.unwrap_or(body)),
            Err(error) => {
                let object = SimObject::encode(gvr, &api.kind, self.version, body);
                debug_assert!(false, "a kube-apiserver cannot store {}: {error}", object.key());
                object
            }
        };
        let key = object.key().clone();
        collection.put(object);
        Some(key)
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::churn::Churn;
    use super::*;

    fn bytes(world: &World) -> Vec<Vec<u8>> {
        [World::pods(), World::nodes(), World::widgets()]
            .iter()
            .flat_map(|gvr| world.objects(gvr).map(|o| o.json().to_vec()).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn equal_seeds_make_byte_identical_worlds() {
        let make = |seed: u64| {
            let mut world = World::new(&WorldConfig { seed, small: false, ..WorldConfig::default() });
            let mut churn = Churn::new(seed);
            for _ in 0..200 {
                churn.step(&mut world);
            }
            bytes(&world)
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }

    #[test]
    fn pods_have_realistic_sizes() {
        let world = World::new(&WorldConfig { pods: 200, small: false, ..WorldConfig::default() });
        let pods = World::pods();
        let total: usize = world.objects(&pods).map(|pod| pod.json().len()).sum();
        let managed: usize =
            world.objects(&pods).map(|pod| pod.value()["metadata"]["managedFields"].to_string().len()).sum();
        let (total, managed) = (total / 200, managed / 200);
        assert!((8_800..9_800).contains(&total), "{total} B a pod");
        assert!((2_700..3_300).contains(&managed), "{managed} B of managedFields");
        let small = World::new(&WorldConfig { pods: 100, ..WorldConfig::default() });
        let total: usize = small.objects(&pods).map(|pod| pod.json().len()).sum();
        assert!((450..700).contains(&(total / 100)), "{} B a small pod", total / 100);
    }

    #[test]
    fn recreated_object_has_a_new_uid_under_the_old_name() {
        let mut world = World::new(&WorldConfig::default());
        let pods = World::pods();
        let before = Arc::clone(world.objects(&pods).next().unwrap());
        let version = world.recreate(&pods, before.key()).unwrap();
        let after = world.get(&pods, before.key()).unwrap();
        assert_ne!(after.uid(), before.uid());
        assert_eq!((after.version(), world.version()), (version, version));
        assert_eq!(after.value()["spec"], before.value()["spec"]);
    }

    #[test]
    fn patch_changes_its_fields_and_never_the_identity() {
        let mut world = World::new(&WorldConfig::default());
        let pods = World::pods();
        let before = Arc::clone(world.objects(&pods).next().unwrap());
        let patch = json!({ "metadata": { "uid": "x", "labels": { "app": null, "new": "1" } }, "status": { "phase": "Failed" } });
        world.patch(&pods, before.key(), &patch).unwrap();
        let after = world.get(&pods, before.key()).unwrap();
        assert_eq!((after.uid(), after.phase()), (before.uid(), "Failed"));
        assert_eq!(
            (after.label("app"), after.label("new"), after.label("tier")),
            (None, Some("1"), before.label("tier"))
        );
    }

    #[test]
    fn history_is_bounded_and_ends_at_a_compaction() {
        let mut world = World::new(&WorldConfig { pods: 1, history: 10, ..WorldConfig::default() });
        let pods = World::pods();
        let key = world.objects(&pods).next().unwrap().key().clone();
        let start = world.version();
        for i in 0..10 {
            world.patch(&pods, &key, &json!({ "status": { "observedGeneration": i } })).unwrap();
        }
        let collection = world.collection(&pods).unwrap();
        let mut cursor = collection.cursor_after(start).unwrap();
        assert_eq!(collection.read(&mut cursor, 100).unwrap().len(), 10);
        let caught_up = collection.end();
        world.patch(&pods, &key, &json!({ "status": { "observedGeneration": 11 } })).unwrap();
        assert!(world.collection(&pods).unwrap().cursor_after(start).is_err());
        world.compact();
        let collection = world.collection(&pods).unwrap();
        assert!(collection.cursor_after(world.version() - 1).is_err());
        assert!(collection.cursor_after(world.version()).is_ok());
        assert!(collection.read(&mut caught_up.clone(), 1).is_err());
        assert!(collection.read(&mut collection.end(), 1).unwrap().is_empty());
    }
}

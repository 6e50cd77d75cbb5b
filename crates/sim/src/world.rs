//! A simulated cluster's state and history, without any I/O: the truth that tests compare the hub with.

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
use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};

/// 2026-01-01T00:00:00Z: where a world's own clock starts. It ticks once per resourceVersion.
const EPOCH: i64 = 1_767_225_600;

/// What an observer of one resource should have ended up with.
pub type Truth = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// How a world begins.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Decides everything that is random in the world.
    pub seed: u64,
    /// Pods at the start.
    pub pods: usize,
    /// Nodes at the start; pods are spread over them.
    pub nodes: usize,
    /// Objects of the custom resource at the start.
    pub widgets: usize,
    /// Short pods (about 600 B) instead of real-sized ones (about 9 KB).
    pub small: bool,
    /// Events kept per resource; a watcher that is further behind has to list again.
    pub history: usize,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self { seed: 1, pods: 20, nodes: 3, widgets: 5, small: true, history: 10_000 }
    }
}

/// All resources of one cluster, under one rising resourceVersion.
///
/// Pure and synchronous; equal seeds and equal calls make equal worlds, byte for byte. Operations answer `None`
/// (or `false`) where the resource or the object does not exist, and change nothing then.
#[derive(Debug)]
pub struct World {
    rng: StdRng,
    version: u64,
    nodes: usize,
    small: bool,
    history: usize,
    pub(super) collections: BTreeMap<Gvr, Collection>,
    pub(super) definitions: Definitions,
}

impl World {
    /// A world with `pods`, `nodes` and `widgets.example.com`, populated.
    #[must_use]
    pub fn new(config: &WorldConfig) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(config.seed),
            version: 1000,
            nodes: config.nodes,
            small: config.small,
            history: config.history,
            collections: BTreeMap::new(),
            definitions: Definitions::default(),
        };
        world.serve_definitions();
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

    /// Serves one more resource; one that is there already stays as it is.
    pub fn register(&mut self, def: ResourceDef) {
        if self.collections.contains_key(&def.api.gvr) {
            return;
        }
        if def.custom {
            self.version += 1;
        }
        let (gvr, history, version) = (def.api.gvr.clone(), self.history, self.version);
        self.collections.insert(gvr.clone(), Collection::new(def, history, version));
        self.show_definition(&gvr);
    }

    /// Stops serving a resource, with its definition if it has one; its objects vanish with it, and nobody is told of their
    /// end: as a client sees the deletion of a CRD that was not there to see it. [`Self::undefine`] tells.
    pub fn unregister(&mut self, gvr: &Gvr) -> bool {
        let Some(collection) = self.collections.remove(gvr) else { return false };
        self.definitions.bury(collection);
        self.hide_definition(gvr);
        true
    }

    /// What is served, by GVR.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceDef> {
        self.collections.values().map(Collection::def)
    }

    /// The cluster's resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Creates an object; `None` also when there is one of that name. `body` gives labels, spec and status.
    pub fn create(&mut self, gvr: &Gvr, namespace: &str, name: &str, mut body: Value) -> Option<ObjectKey> {
        let gvr = &self.stored_as(gvr);
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

    /// Creates a random pod.
    pub fn create_pod(&mut self) -> Option<ObjectKey> {
        let time = self.time();
        let (name, body) = pods::pod(&mut self.rng, self.nodes, &time, self.small);
        let namespace = pods::NAMESPACES[self.rng.random_range(0..pods::NAMESPACES.len())];
        self.create(&Self::pods(), namespace, &name, body)
    }

    /// Creates a widget in the namespace `shop`.
    pub fn create_widget(&mut self, name: &str) -> Option<ObjectKey> {
        let body = pods::widget(&mut self.rng);
        self.create(&Self::widgets(), "shop", name, body)
    }

    /// Changes an object in place; name, namespace, UID and version stay the world's. Gives the new version.
    pub fn update(&mut self, gvr: &Gvr, key: &ObjectKey, change: impl FnOnce(&mut Value)) -> Option<u64> {
        let gvr = &self.stored_as(gvr);
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

    /// Applies a JSON merge patch (RFC 7396). Gives the new version.
    pub fn patch(&mut self, gvr: &Gvr, key: &ObjectKey, patch: &Value) -> Option<u64> {
        self.update(gvr, key, |body| merge(body, patch))
    }

    /// Deletes an object. Gives the deletion's version.
    pub fn delete(&mut self, gvr: &Gvr, key: &ObjectKey) -> Option<u64> {
        let gvr = &self.stored_as(gvr);
        let collection = self.collections.get_mut(gvr)?;
        let before = Arc::clone(collection.objects().get(key)?);
        self.version += 1;
        let kind = collection.def().api.kind.clone();
        let last_state = before.at_version(gvr, &kind, self.version);
        collection.remove(last_state);
        Some(self.version)
    }

    /// Deletes an object and creates it anew under the same name: same content, new UID. Gives the new version.
    pub fn recreate(&mut self, gvr: &Gvr, key: &ObjectKey) -> Option<u64> {
        let body = self.get(gvr, key)?.value();
        self.delete(gvr, key)?;
        self.create(gvr, key.namespace().unwrap_or_default(), key.name(), body)?;
        Some(self.version)
    }

    /// Forgets all history: every version and continue token that a client may hold has expired.
    ///
    /// A watch that is open and has been sent everything goes on, as on a real apiserver.
    pub fn compact(&mut self) {
        self.version += 1;
        for collection in self.collections.values_mut() {
            collection.compact(self.version);
        }
    }

    /// One object.
    #[must_use]
    pub fn get(&self, gvr: &Gvr, key: &ObjectKey) -> Option<&Arc<SimObject>> {
        self.collections.get(&self.stored_as(gvr))?.objects().get(key)
    }

    /// The objects of a resource, by key; none where it is not served.
    pub fn objects(&self, gvr: &Gvr) -> impl Iterator<Item = &Arc<SimObject>> {
        self.collections.get(&self.stored_as(gvr)).into_iter().flat_map(|collection| collection.objects().values())
    }

    /// How many objects a resource has.
    #[must_use]
    pub fn count(&self, gvr: &Gvr) -> usize {
        self.collections.get(&self.stored_as(gvr)).map_or(0, |collection| collection.objects().len())
    }

    /// A random key of a resource. Costs a walk over the keys.
    pub fn random_key(&mut self, gvr: &Gvr, rng: &mut impl Rng) -> Option<ObjectKey> {
        let objects = self.collections.get(gvr)?.objects();
        if objects.is_empty() {
            return None;
        }
        objects.keys().nth(rng.random_range(0..objects.len())).cloned()
    }

    /// What an observer of the whole resource should have.
    #[must_use]
    pub fn truth(&self, gvr: &Gvr) -> Truth {
        self.truth_where(gvr, &Filter::all())
    }

    /// What an observer of the selected part should have.
    #[must_use]
    pub fn truth_where(&self, gvr: &Gvr, filter: &Filter) -> Truth {
        let selected = self.objects(gvr).filter(|object| filter.matches(object));
        selected.map(|o| (o.key().clone(), (o.uid().clone(), o.resource_version()))).collect()
    }

    pub(super) fn collection(&self, gvr: &Gvr) -> Option<&Collection> {
        self.collections.get(&self.stored_as(gvr))
    }

    pub(super) fn collection_mut(&mut self, gvr: &Gvr) -> Option<&mut Collection> {
        let gvr = self.stored_as(gvr);
        self.collections.get_mut(&gvr)
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The world's own time: fixed by the version, so that equal worlds show equal times.
    #[must_use]
    pub fn time(&self) -> String {
        let second = EPOCH.saturating_add_unsigned(self.version);
        jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
    }

    pub(super) fn put(&mut self, gvr: &Gvr, body: Value) -> Option<ObjectKey> {
        let collection = self.collections.get_mut(gvr)?;
        let kind = collection.def().api.kind.clone();
        let object = SimObject::encode(gvr, &kind, self.version, body);
        let key = object.key().clone();
        collection.put(object);
        Some(key)
    }
}

/// RFC 7396.
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
    fn equal_seeds_make_equal_worlds_byte_for_byte() {
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
    fn pods_are_as_large_as_real_ones_and_a_third_is_managed_fields() {
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
    fn a_recreated_object_has_a_new_uid_under_the_old_name() {
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
    fn a_patch_changes_what_it_names_and_never_the_identity() {
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
            world.patch(&pods, &key, &json!({ "status": { "n": i } })).unwrap();
        }
        let collection = world.collection(&pods).unwrap();
        let mut cursor = collection.cursor_after(start).unwrap();
        assert_eq!(collection.read(&mut cursor, 100).unwrap().len(), 10);
        let caught_up = collection.end();
        world.patch(&pods, &key, &json!({ "status": { "n": 11 } })).unwrap();
        assert!(world.collection(&pods).unwrap().cursor_after(start).is_err());
        world.compact();
        let collection = world.collection(&pods).unwrap();
        assert!(collection.cursor_after(world.version() - 1).is_err());
        assert!(collection.cursor_after(world.version()).is_ok());
        assert!(collection.read(&mut caught_up.clone(), 1).is_err());
        assert!(collection.read(&mut collection.end(), 1).unwrap().is_empty());
    }
}

//! Random changes to objects, reproducible by seed.

use std::collections::BTreeMap;

use informer_hub_types::{ObjectKey, ResourceVersion, Uid};
use kube::{Client, Resource, ResourceExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::ground_truth::GroundTruth;
use super::objects::{create_pod, create_widget, delete_now, merge, pods, widgets};

/// Returns `CHURN_SEED` or `INFORMER_HUB_SEED` if one is set, otherwise a random seed, and prints it.
pub(crate) fn seed() -> u64 {
    let set = ["CHURN_SEED", "INFORMER_HUB_SEED"].iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let seed = match set {
        Some((name, text)) => text.parse().unwrap_or_else(|error| panic!("{name}={text:?} is not a number: {error}")),
        None => informer_hub_types::rng::rng().random(),
    };
    println!("INFORMER_HUB_SEED={seed}");
    seed
}

/// Random changes to the pods and widgets of one namespace, which nothing else may change meanwhile. Several may run at
/// once, each with its own namespace.
///
/// It records what the server acknowledged: [`Self::pods`] and [`Self::widgets`] are the expected state.
#[derive(Debug)]
pub(crate) struct Churn {
    random: StdRng,
    namespace: String,
    created: usize,
    pods: GroundTruth,
    widgets: GroundTruth,
    deleted: Vec<Uid>,
}

#[derive(Clone, Copy)]
enum Kind {
    Pod,
    Widget,
}

impl Churn {
    /// Creates a churn for an existing, empty namespace. The widgets' CRD must be installed.
    pub(crate) fn new(seed: u64, namespace: &str) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            namespace: namespace.to_owned(),
            created: 0,
            pods: BTreeMap::new(),
            widgets: BTreeMap::new(),
            deleted: Vec::new(),
        }
    }

    /// Returns the UIDs of the objects deleted since the last call.
    pub(crate) fn take_deleted(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.deleted)
    }

    /// Returns the expected pods.
    pub(crate) fn pods(&self) -> &GroundTruth {
        &self.pods
    }

    /// Returns the expected widgets.
    pub(crate) fn widgets(&self) -> &GroundTruth {
        &self.widgets
    }

    /// Makes `count` changes in sequence, each acknowledged before the next.
    pub(crate) async fn run(&mut self, client: &Client, count: usize) {
        for _ in 0..count {
            self.step(client).await;
        }
    }

    /// Makes one change. Of ten, about five are updates, three creations, one a deletion and one a re-creation under
    /// the same name, which a watcher must not report as an update.
    async fn step(&mut self, client: &Client) {
        let kind = if self.random.random_bool(0.5) { Kind::Pod } else { Kind::Widget };
        let roll = self.random.random_range(0..10);
        match (self.random_name(kind), roll) {
            (Some(name), 0..5) => self.update(client, kind, &name).await,
            (Some(name), 5) => self.delete(client, kind, &name).await,
            (Some(name), 6) => {
                self.delete(client, kind, &name).await;
                self.create(client, kind, &name).await;
            }
            _ => {
                let name = format!("churn-{}", self.created);
                self.created += 1;
                self.create(client, kind, &name).await;
            }
        }
    }

    fn random_name(&mut self, kind: Kind) -> Option<String> {
        let count = self.expected(kind).len();
        let at = (count > 0).then(|| self.random.random_range(0..count))?;
        self.expected(kind).keys().nth(at).map(|key| key.name().to_owned())
    }

    async fn create(&mut self, client: &Client, kind: Kind, name: &str) {
        match kind {
            Kind::Pod => {
                let pod = create_pod(client, &self.namespace, name).await;
                self.keep(kind, &pod);
            }
            Kind::Widget => {
                let widget = create_widget(client, &self.namespace, name).await;
                self.keep(kind, &widget);
            }
        }
    }

    async fn update(&mut self, client: &Client, kind: Kind, name: &str) {
        let mark = self.random.random::<u32>();
        let patch = json!({"metadata": {"annotations": {"generation": mark.to_string()}}});
        match kind {
            Kind::Pod => {
                let pod = merge(&pods(client, &self.namespace), name, patch).await;
                self.keep(kind, &pod);
            }
            Kind::Widget => {
                let widget = merge(&widgets(client, &self.namespace), name, patch).await;
                self.keep(kind, &widget);
            }
        }
    }

    async fn delete(&mut self, client: &Client, kind: Kind, name: &str) {
        match kind {
            Kind::Pod => delete_now(&pods(client, &self.namespace), name).await,
            Kind::Widget => delete_now(&widgets(client, &self.namespace), name).await,
        }
        let key = ObjectKey::new(&self.namespace, name);
        let gone = self.expected(kind).remove(&key);
        self.deleted.extend(gone.map(|(uid, _)| uid));
    }

    fn keep<K: Resource>(&mut self, kind: Kind, object: &K) {
        let key = ObjectKey::new(&self.namespace, &object.name_any());
        let uid = Uid::new(&object.uid().unwrap_or_default());
        let version = ResourceVersion::new(&object.resource_version().unwrap_or_default());
        self.expected(kind).insert(key, (uid, version));
    }

    fn expected(&mut self, kind: Kind) -> &mut GroundTruth {
        match kind {
            Kind::Pod => &mut self.pods,
            Kind::Widget => &mut self.widgets,
        }
    }
}

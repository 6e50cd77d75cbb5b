//! Random changes that can be repeated: the same seed does the same things in the same order.

use std::collections::BTreeMap;

use informer_hub_types::{ObjectKey, ResourceVersion, Uid};
use kube::{Client, Resource, ResourceExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::objects::{create_pod, create_widget, delete_now, merge, pods, widgets};
use super::truth::Truth;

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

/// Random changes to pods and widgets of one namespace, which nobody else may change meanwhile. Several, each with its
/// own namespace, may run at once.
///
/// It keeps account of what the server acknowledged; [`Self::pods`] and [`Self::widgets`] are what must be true after.
#[derive(Debug)]
pub(crate) struct Churn {
    random: StdRng,
    namespace: String,
    made: usize,
    pods: Truth,
    widgets: Truth,
    deleted: Vec<Uid>,
}

#[derive(Clone, Copy)]
enum Kind {
    Pod,
    Widget,
}

impl Churn {
    /// Starts with an empty namespace that exists; the widgets' CRD must be installed.
    pub(crate) fn new(seed: u64, namespace: &str) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            namespace: namespace.to_owned(),
            made: 0,
            pods: BTreeMap::new(),
            widgets: BTreeMap::new(),
            deleted: Vec::new(),
        }
    }

    /// What it has deleted since this was last asked for.
    pub(crate) fn take_deleted(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.deleted)
    }

    /// The pods that there are now.
    pub(crate) fn pods(&self) -> &Truth {
        &self.pods
    }

    /// The widgets that there are now.
    pub(crate) fn widgets(&self) -> &Truth {
        &self.widgets
    }

    /// Makes `count` changes, one after the other, each acknowledged before the next.
    pub(crate) async fn run(&mut self, client: &Client, count: usize) {
        for _ in 0..count {
            self.step(client).await;
        }
    }

    /// Of ten changes about five are updates, three creations, one a deletion and one a deletion with a new object of
    /// the same name right behind it, which a watcher must not take for an update.
    async fn step(&mut self, client: &Client) {
        let kind = if self.random.random_bool(0.5) { Kind::Pod } else { Kind::Widget };
        let dice = self.random.random_range(0..10);
        match (self.any(kind), dice) {
            (Some(name), 0..5) => self.update(client, kind, &name).await,
            (Some(name), 5) => self.delete(client, kind, &name).await,
            (Some(name), 6) => {
                self.delete(client, kind, &name).await;
                self.create(client, kind, &name).await;
            }
            _ => {
                let name = format!("churn-{}", self.made);
                self.made += 1;
                self.create(client, kind, &name).await;
            }
        }
    }

    fn any(&mut self, kind: Kind) -> Option<String> {
        let count = self.of(kind).len();
        let at = (count > 0).then(|| self.random.random_range(0..count))?;
        self.of(kind).keys().nth(at).map(|key| key.name().to_owned())
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
        let gone = self.of(kind).remove(&key);
        self.deleted.extend(gone.map(|(uid, _)| uid));
    }

    fn keep<K: Resource>(&mut self, kind: Kind, object: &K) {
        let key = ObjectKey::new(&self.namespace, &object.name_any());
        let uid = Uid::new(&object.uid().unwrap_or_default());
        let version = ResourceVersion::new(&object.resource_version().unwrap_or_default());
        self.of(kind).insert(key, (uid, version));
    }

    fn of(&mut self, kind: Kind) -> &mut Truth {
        match kind {
            Kind::Pod => &mut self.pods,
            Kind::Widget => &mut self.widgets,
        }
    }
}

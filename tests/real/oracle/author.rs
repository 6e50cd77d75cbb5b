//! The only one who changes the objects of a schedule, and so the one who knows what really happened to them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use informer_hub_types::{ResourceVersion, Uid};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::account::{Count, Fact, Kind, State, Subject, What};
use crate::bed::{install_widgets, uninstall_widgets};

/// How long one write may take.
const WRITE: Duration = Duration::from_secs(30);

/// Requests in flight when there are many: beyond this the server only queues.
const IN_FLIGHT: usize = 16;

/// Objects of a burst, and the changes of each.
const BURST: (usize, u32) = (8, 3);

/// Makes changes, straight at the apiserver, and notes the answers. The same seed makes the same changes.
pub(super) struct Author {
    client: Client,
    namespace: String,
    random: StdRng,
    made: usize,
    facts: Count,
    history: Mutex<BTreeMap<Subject, Vec<Fact>>>,
}

impl Author {
    /// Starts with a namespace that exists and is empty.
    pub(super) fn new(client: Client, namespace: &str, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self {
            client,
            namespace: namespace.to_owned(),
            random,
            made: 0,
            facts: Count::default(),
            history: Mutex::default(),
        }
    }

    /// Counts the facts.
    pub(super) fn facts(&self) -> Count {
        self.facts.clone()
    }

    /// Everything that happened, by object, in its order.
    pub(super) fn history(&self) -> BTreeMap<Subject, Vec<Fact>> {
        self.history.lock().clone()
    }

    /// What there is now.
    pub(super) fn truth(&self) -> BTreeMap<Subject, State> {
        let history = self.history.lock();
        history.iter().filter_map(|(subject, facts)| Some((subject.clone(), is(facts)?))).collect()
    }

    fn is(&self, subject: &Subject) -> Option<State> {
        is(self.history.lock().get(subject)?)
    }

    /// Makes objects of every kind.
    pub(super) async fn fill(&mut self, each: usize) {
        for _ in 0..each {
            for kind in Kind::ALL {
                let fresh = self.fresh(kind);
                self.create(&fresh).await;
            }
        }
    }

    /// Makes `count` changes at random.
    pub(super) async fn change(&mut self, count: usize) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Makes `count` objects of one kind, changes each, and deletes every other one: many at a time.
    pub(super) async fn bulk(&mut self, count: usize) {
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let fresh: Vec<_> = (0..count).map(|_| self.fresh(kind)).collect();
        let life = async |(at, subject): (usize, Subject)| {
            self.create(&subject).await;
            self.update(&subject, 0).await;
            if at.is_multiple_of(2) {
                self.delete(&subject).await;
            }
        };
        stream::iter(fresh.into_iter().enumerate()).for_each_concurrent(IN_FLIGHT, life).await;
    }

    /// Has the custom resource removed and installed again, which deletes its objects.
    pub(super) async fn reinstall(&self) {
        let there = self.truth().into_iter().filter(|((kind, _), _)| *kind == Kind::Widgets);
        let gone: Vec<_> = there.map(|(subject, last)| (subject, last.uid, self.facts.next())).collect();
        uninstall_widgets(&self.client).await;
        for (subject, uid, number) in gone {
            self.note(&subject, number, What::Gone { uid, version: None });
        }
        install_widgets(&self.client).await;
    }

    /// Of twenty changes eight are updates, three creations, two deletions; the others are what informers get wrong:
    /// another object under the same name, one that is there for a moment, many changes at once.
    async fn step(&mut self) {
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let dice = self.random.random_range(0..20);
        let there: Vec<_> = self.truth().into_keys().filter(|(of, _)| *of == kind).collect();
        let any = there.choose(&mut self.random).cloned();
        match (any, dice) {
            (Some(any), 0..8) => self.update(&any, dice).await,
            (Some(any), 8..10) => self.delete(&any).await,
            (Some(any), 10..13) => self.recreate(&any).await,
            (Some(any), 13) => {
                self.recreate(&any).await;
                self.update(&any, dice).await;
                self.recreate(&any).await;
            }
            (Some(_), 14..16) => {
                let some: Vec<_> = there.choose_multiple(&mut self.random, BURST.0).collect();
                join_all(some.into_iter().map(async |subject| {
                    for mark in 100..100 + BURST.1 {
                        self.update(subject, mark).await;
                    }
                }))
                .await;
            }
            (_, 16) => {
                let fresh = self.fresh(kind);
                self.create(&fresh).await;
                self.delete(&fresh).await;
            }
            _ => {
                let fresh = self.fresh(kind);
                self.create(&fresh).await;
            }
        }
    }

    fn fresh(&mut self, kind: Kind) -> Subject {
        self.made += 1;
        (kind, format!("o-{}", self.made))
    }

    async fn recreate(&self, subject: &Subject) {
        self.delete(subject).await;
        self.create(subject).await;
    }

    async fn create(&self, subject: &Subject) {
        let (kind, name) = subject;
        let mut object = DynamicObject::new(name, &resource(*kind));
        object.data = body(*kind);
        let (api, params) = (self.api(*kind), PostParams::default());
        let number = self.facts.next();
        let made = within("create", subject, api.create(&params, &object)).await;
        self.note(subject, number, What::Is(state(&made)));
    }

    async fn update(&self, subject: &Subject, mark: u32) {
        let number = self.facts.next();
        let patch = json!({"metadata": {"annotations": {"mark": format!("{mark}-{number}")}}});
        let (api, params, patch) = (self.api(subject.0), PatchParams::default(), Patch::Merge(patch));
        let now = within("patch", subject, api.patch(&subject.1, &params, &patch)).await;
        self.note(subject, number, What::Is(state(&now)));
    }

    async fn delete(&self, subject: &Subject) {
        let last = self.is(subject).expect("only what is there is deleted");
        let (api, params) = (self.api(subject.0), DeleteParams::default().grace_period(0));
        let (dying, number) = (self.facts.next(), self.facts.next());
        let gone = within("delete", subject, api.delete(&subject.1, &params)).await.left();
        let version = gone.as_ref().map(|object| state(object).version).filter(|version| *version != last.version);
        let uid = last.uid;
        if let (Kind::Pods, Some(before)) = (subject.0, version.clone()) {
            self.note(subject, dying, What::Dying { uid: uid.clone(), after: last.version, before });
        }
        self.note(subject, number, What::Gone { uid, version });
    }

    fn note(&self, subject: &Subject, number: usize, what: What) {
        self.history.lock().entry(subject.clone()).or_default().push(Fact { number, what });
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }
}

/// What there is after all this.
fn is(facts: &[Fact]) -> Option<State> {
    match &facts.last()?.what {
        What::Is(state) => Some(state.clone()),
        What::Dying { .. } | What::Gone { .. } => None,
    }
}

/// Waits for a write, which must succeed: of one whose outcome is not known nothing could be judged.
async fn within<T>(what: &str, subject: &Subject, write: impl Future<Output = kube::Result<T>>) -> T {
    let answer = tokio::time::timeout(WRITE, write).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} of {subject:?}: no answer within {WRITE:?}"));
    answer.unwrap_or_else(|error| panic!("{what} of {subject:?}: {error}"))
}

fn state(object: &DynamicObject) -> State {
    let uid = Uid::new(&object.uid().unwrap_or_default());
    State { uid, version: ResourceVersion::new(&object.resource_version().unwrap_or_default()) }
}

fn resource(kind: Kind) -> ApiResource {
    let informer_hub_types::ApiResource { gvr, kind, .. } = kind.resource();
    ApiResource {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        api_version: gvr.api_version(),
        kind: kind.to_string(),
        plural: gvr.resource.to_string(),
    }
}

fn body(kind: Kind) -> Value {
    match kind {
        Kind::Pods => json!({"spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "registry.example.com/app:1"}],
        }}),
        Kind::Widgets => json!({"spec": {"size": 7, "parts": {"color": "red"}}}),
        Kind::ConfigMaps => json!({"data": {"key": "value"}}),
    }
}

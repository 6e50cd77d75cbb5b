//! Writer of all changes in a schedule. It records the acknowledged changes as ground truth.

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

use super::history::{Change, ChangeCounter, ChangeKind, Kind, State, Subject};
use crate::bed::{install_widgets, uninstall_widgets};

/// Deadline of one write.
const WRITE: Duration = Duration::from_secs(30);

/// Concurrent requests of a bulk change. With more, the server only queues.
const IN_FLIGHT: usize = 16;

/// Number of objects in a burst, and changes of each.
const BURST: (usize, u32) = (8, 3);

/// Makes changes directly at the apiserver and records the responses. The same seed makes the same changes.
pub(super) struct Writer {
    client: Client,
    namespace: String,
    random: StdRng,
    created: usize,
    changes: ChangeCounter,
    history: Mutex<BTreeMap<Subject, Vec<Change>>>,
}

impl Writer {
    /// Creates a writer for an existing, empty namespace.
    pub(super) fn new(client: Client, namespace: &str, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self {
            client,
            namespace: namespace.to_owned(),
            random,
            created: 0,
            changes: ChangeCounter::default(),
            history: Mutex::default(),
        }
    }

    /// Returns the shared counter of changes.
    pub(super) fn changes(&self) -> ChangeCounter {
        self.changes.clone()
    }

    /// Returns all changes by object, in order.
    pub(super) fn history(&self) -> BTreeMap<Subject, Vec<Change>> {
        self.history.lock().clone()
    }

    /// Returns the current state of all objects.
    pub(super) fn current_state(&self) -> BTreeMap<Subject, State> {
        let history = self.history.lock();
        history.iter().filter_map(|(subject, changes)| Some((subject.clone(), state_after(changes)?))).collect()
    }

    fn current(&self, subject: &Subject) -> Option<State> {
        state_after(self.history.lock().get(subject)?)
    }

    /// Creates `each` objects of every kind.
    pub(super) async fn fill(&mut self, each: usize) {
        for _ in 0..each {
            for kind in Kind::ALL {
                let subject = self.new_subject(kind);
                self.create(&subject).await;
            }
        }
    }

    /// Makes `count` random changes.
    pub(super) async fn change(&mut self, count: usize) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Concurrently creates `count` objects of one kind, updates each, and deletes every other one.
    pub(super) async fn bulk(&mut self, count: usize) {
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let subjects: Vec<_> = (0..count).map(|_| self.new_subject(kind)).collect();
        let life = async |(at, subject): (usize, Subject)| {
            self.create(&subject).await;
            self.update(&subject, 0).await;
            if at.is_multiple_of(2) {
                self.delete(&subject).await;
            }
        };
        stream::iter(subjects.into_iter().enumerate()).for_each_concurrent(IN_FLIGHT, life).await;
    }

    /// Removes and reinstalls the custom resource, which deletes its objects.
    pub(super) async fn reinstall(&self) {
        let existing = self.current_state().into_iter().filter(|((kind, _), _)| *kind == Kind::Widgets);
        let deleted: Vec<_> = existing.map(|(subject, last)| (subject, last.uid, self.changes.next())).collect();
        uninstall_widgets(&self.client).await;
        for (subject, uid, number) in deleted {
            self.note(&subject, number, ChangeKind::Deleted { uid, version: None });
        }
        install_widgets(&self.client).await;
    }

    /// Makes one random step. Of twenty, eight are updates, three creations and two deletions. The others are
    /// error-prone for informers: re-creation under the same name, short-lived objects, and bursts.
    async fn step(&mut self) {
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let roll = self.random.random_range(0..20);
        let existing: Vec<_> = self.current_state().into_keys().filter(|(of, _)| *of == kind).collect();
        let any = existing.choose(&mut self.random).cloned();
        match (any, roll) {
            (Some(any), 0..8) => self.update(&any, roll).await,
            (Some(any), 8..10) => self.delete(&any).await,
            (Some(any), 10..13) => self.recreate(&any).await,
            (Some(any), 13) => {
                self.recreate(&any).await;
                self.update(&any, roll).await;
                self.recreate(&any).await;
            }
            (Some(_), 14..16) => {
                let some: Vec<_> = existing.choose_multiple(&mut self.random, BURST.0).collect();
                join_all(some.into_iter().map(async |subject| {
                    for mark in 100..100 + BURST.1 {
                        self.update(subject, mark).await;
                    }
                }))
                .await;
            }
            (_, 16) => {
                let subject = self.new_subject(kind);
                self.create(&subject).await;
                self.delete(&subject).await;
            }
            _ => {
                let subject = self.new_subject(kind);
                self.create(&subject).await;
            }
        }
    }

    fn new_subject(&mut self, kind: Kind) -> Subject {
        self.created += 1;
        (kind, format!("o-{}", self.created))
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
        let number = self.changes.next();
        let created = within("create", subject, api.create(&params, &object)).await;
        self.note(subject, number, ChangeKind::Present(state(&created)));
    }

    async fn update(&self, subject: &Subject, mark: u32) {
        let number = self.changes.next();
        let patch = json!({"metadata": {"annotations": {"mark": format!("{mark}-{number}")}}});
        let (api, params, patch) = (self.api(subject.0), PatchParams::default(), Patch::Merge(patch));
        let now = within("patch", subject, api.patch(&subject.1, &params, &patch)).await;
        self.note(subject, number, ChangeKind::Present(state(&now)));
    }

    async fn delete(&self, subject: &Subject) {
        let last = self.current(subject).expect("only existing objects are deleted");
        let (api, params) = (self.api(subject.0), DeleteParams::default().grace_period(0));
        let (mark, number) = (self.changes.next(), self.changes.next());
        let deleted = within("delete", subject, api.delete(&subject.1, &params)).await.left();
        let version = deleted.as_ref().map(|object| state(object).version).filter(|version| *version != last.version);
        let uid = last.uid;
        if let (Kind::Pods, Some(before)) = (subject.0, version.clone()) {
            self.note(subject, mark, ChangeKind::MarkedForDeletion { uid: uid.clone(), after: last.version, before });
        }
        self.note(subject, number, ChangeKind::Deleted { uid, version });
    }

    fn note(&self, subject: &Subject, number: usize, kind: ChangeKind) {
        self.history.lock().entry(subject.clone()).or_default().push(Change { number, kind });
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }
}

/// Returns the state after these changes, or `None` if the object is deleted or being deleted.
fn state_after(changes: &[Change]) -> Option<State> {
    match &changes.last()?.kind {
        ChangeKind::Present(state) => Some(state.clone()),
        ChangeKind::MarkedForDeletion { .. } | ChangeKind::Deleted { .. } => None,
    }
}

/// Waits for a write, which must succeed: with an unknown outcome, the history would be unknown.
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

//! What the hub asks an apiserver for and what that brings: seen where its source hands over to its reflector, as
//! client-go's is where its requests leave it.
//!
//! A list takes the hub from the version up to which it was brought every event to the version of the list. What
//! happened between the two, and nothing else, it need not have been brought: that is a [`Gap`].

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use informer_hub_reflector::{
    Connection, Connector, Discovered, InformerOptions, ListChunk, ListRequest, ListStream, ListerWatcher,
    ResolveError, Server, SourceError, WatchBatch, WatchItem, WatchRequest, WatchStream,
};
use informer_hub_types::{ApiResource, ResourceRef, ResourceVersion, Scope, clock};
use parking_lot::Mutex;

use super::account::{Count, Kind};

/// Versions that a list jumped over: those above `after`, up to `upto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub(super) after: u64,
    pub(super) upto: u64,
}

/// What one informer was brought.
#[derive(Clone, Default, Debug)]
pub(super) struct Reading {
    /// Up to where it was brought everything that happened, by event or by list.
    upto: u64,
    gaps: Vec<Gap>,
    /// The same of single objects: of a list that broke off no more is known than the objects that it brought.
    of_objects: BTreeMap<String, Vec<Gap>>,
    lists: usize,
    requests: Vec<String>,
}

impl Reading {
    /// What it jumped over of the object of a name.
    pub(super) fn gaps(&self, name: &str) -> Vec<Gap> {
        self.gaps.iter().chain(self.of_objects.get(name).into_iter().flatten()).copied().collect()
    }

    /// Lists that came to their end.
    pub(super) fn lists(&self) -> usize {
        self.lists
    }

    /// Every request and how it ended, for people.
    pub(super) fn requests(&self) -> &[String] {
        &self.requests
    }

    fn event(&mut self, version: &ResourceVersion) {
        self.upto = number(version);
    }

    fn listed_object(&mut self, name: &str, version: &ResourceVersion) {
        let gap = Gap { after: self.upto, upto: number(version) };
        self.of_objects.entry(name.to_owned()).or_default().push(gap);
    }

    fn listed(&mut self, version: &ResourceVersion) {
        self.lists += 1;
        self.gaps.push(Gap { after: self.upto, upto: number(version) });
        self.upto = number(version);
    }
}

/// A real apiserver's versions are numbers.
pub(super) fn number(version: &ResourceVersion) -> u64 {
    version.as_number().unwrap_or_else(|| panic!("the apiserver gave {version} for a version"))
}

/// Sees what passes between the hub's reflectors and their sources. Clones see the same.
#[derive(Clone)]
pub(super) struct Witness {
    facts: Count,
    began: clock::Instant,
    readings: Arc<Mutex<BTreeMap<Kind, Reading>>>,
}

impl Witness {
    pub(super) fn new(facts: Count) -> Self {
        Self { facts, began: clock::now(), readings: Arc::default() }
    }

    /// What the informer of a kind was brought.
    pub(super) fn reading(&self, kind: Kind) -> Reading {
        self.readings.lock().get(&kind).cloned().unwrap_or_default()
    }

    fn with(&self, kind: Kind, see: impl FnOnce(&mut Reading)) {
        see(self.readings.lock().entry(kind).or_default());
    }

    fn note(&self, kind: Kind, what: &dyn fmt::Display) {
        let (elapsed, facts) = (self.began.elapsed(), self.facts.now());
        self.with(kind, |reading| {
            let upto = reading.upto;
            reading.requests.push(format!("{elapsed:?}, {facts} facts, read to {upto}: {what}"));
        });
    }

    fn see_chunk(&self, kind: Kind, chunk: &Result<ListChunk, SourceError>) {
        match chunk {
            Ok(ListChunk::Items(objects)) => self.with(kind, |reading| {
                for object in objects {
                    reading.listed_object(object.key().name(), object.resource_version());
                }
            }),
            Ok(ListChunk::End { version, continue_token: None, .. }) => {
                self.note(kind, &format_args!("listed at {version}"));
                self.with(kind, |reading| reading.listed(version));
            }
            Ok(ListChunk::End { .. } | ListChunk::Skipped(_)) => {}
            Err(error) => self.note(kind, &format_args!("the list ends: {error}")),
        }
    }

    /// `listing`: whether the initial events of a streaming list are still coming.
    fn see_batch(&self, kind: Kind, batch: &Result<WatchBatch, SourceError>, listing: &mut bool) {
        let items = match batch {
            Ok(batch) => &batch.items,
            Err(error) => return self.note(kind, &format_args!("the watch ends: {error}")),
        };
        for item in items {
            match item {
                WatchItem::Bookmark { version, initial_events_end: true } if *listing => {
                    *listing = false;
                    self.note(kind, &format_args!("streamed to {version}"));
                    self.with(kind, |reading| reading.listed(version));
                }
                WatchItem::Bookmark { version, .. } if !*listing => self.with(kind, |reading| reading.event(version)),
                WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
                    let version = object.resource_version();
                    self.with(kind, |reading| {
                        if *listing {
                            reading.listed_object(object.key().name(), version);
                        } else {
                            reading.event(version);
                        }
                    });
                }
                WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => {}
            }
        }
    }
}

/// Something of the hub's, with a witness beside it.
pub(super) struct Witnessed<T> {
    inner: T,
    witness: Witness,
}

impl<T> Witnessed<T> {
    pub(super) fn new(inner: T, witness: Witness) -> Self {
        Self { inner, witness }
    }
}

impl<T: Debug> Debug for Witnessed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<C: Connector> Connector for Witnessed<C> {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let (connecting, witness) = (self.inner.connect(), self.witness.clone());
        async move { Ok(Arc::new(Witnessed::new(connecting.await?, witness)) as Arc<dyn Connection>) }.boxed()
    }
}

impl Connection for Witnessed<Arc<dyn Connection>> {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        self.inner.server()
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        self.inner.resolve(resource)
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        self.inner.catalogue(known)
    }

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let source = self.inner.lister_watcher(resource, scope, options);
        // Definitions and the like the hub watches for itself.
        let Some(kind) = Kind::of(&resource.gvr.resource) else { return source };
        Arc::new(Witnessed::new((kind, source), self.witness.clone()))
    }
}

impl ListerWatcher for Witnessed<(Kind, Arc<dyn ListerWatcher>)> {
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let (kind, witness) = (self.inner.0, self.witness.clone());
        witness.note(kind, &format_args!("list {:?}", request.version));
        let answer = self.inner.1.list(request);
        async move {
            match answer.await {
                Ok(stream) => Ok(stream.inspect(move |chunk| witness.see_chunk(kind, chunk)).boxed()),
                Err(error) => {
                    witness.note(kind, &format_args!("no list: {error}"));
                    Err(error)
                }
            }
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let (kind, witness) = (self.inner.0, self.witness.clone());
        let mut listing = request.initial_events;
        witness.note(kind, &format_args!("{} {:?}", if listing { "stream" } else { "watch" }, request.version));
        let answer = self.inner.1.watch(request);
        async move {
            match answer.await {
                Ok(stream) => {
                    witness.note(kind, &"the watch opens");
                    Ok(stream.inspect(move |batch| witness.see_batch(kind, batch, &mut listing)).boxed())
                }
                Err(error) => {
                    witness.note(kind, &format_args!("no watch: {error}"));
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

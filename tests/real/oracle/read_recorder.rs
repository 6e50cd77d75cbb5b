//! Records the hub's requests to an apiserver and their results, between its source and its reflector.
//!
//! A list moves the hub from the last version that it has read to the version of the list. Only changes between the two
//! may be missing from its notifications. This range is a [`Gap`].

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

use super::history::{ChangeCounter, Kind};

/// Versions that a list skipped: above `after`, up to `upto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub(super) after: u64,
    pub(super) upto: u64,
}

/// Recorded reads of one informer.
#[derive(Clone, Default, Debug)]
pub(super) struct ReadLog {
    /// Version up to which events and lists are complete.
    upto: u64,
    gaps: Vec<Gap>,
    /// Gaps of single objects: an interrupted list only covers the objects that it returned.
    of_objects: BTreeMap<String, Vec<Gap>>,
    lists: usize,
    requests: Vec<String>,
}

impl ReadLog {
    /// Returns the gaps of an object by name.
    pub(super) fn gaps(&self, name: &str) -> Vec<Gap> {
        self.gaps.iter().chain(self.of_objects.get(name).into_iter().flatten()).copied().collect()
    }

    /// Returns the number of completed lists.
    pub(super) fn lists(&self) -> usize {
        self.lists
    }

    /// Returns a readable log of all requests and their results.
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

/// Returns a version as a number. A real apiserver's versions are numbers.
pub(super) fn number(version: &ResourceVersion) -> u64 {
    version.as_number().unwrap_or_else(|| panic!("the apiserver gave {version} for a version"))
}

/// Recorder between the hub's reflectors and their sources. Clones share the records.
#[derive(Clone)]
pub(super) struct ReadRecorder {
    changes: ChangeCounter,
    began: clock::Instant,
    readings: Arc<Mutex<BTreeMap<Kind, ReadLog>>>,
}

impl ReadRecorder {
    pub(super) fn new(changes: ChangeCounter) -> Self {
        Self { changes, began: clock::now(), readings: Arc::default() }
    }

    /// Returns the recorded reads of a kind's informer.
    pub(super) fn reads(&self, kind: Kind) -> ReadLog {
        self.readings.lock().get(&kind).cloned().unwrap_or_default()
    }

    fn with(&self, kind: Kind, see: impl FnOnce(&mut ReadLog)) {
        see(self.readings.lock().entry(kind).or_default());
    }

    fn note(&self, kind: Kind, what: &dyn fmt::Display) {
        let (elapsed, changes) = (self.began.elapsed(), self.changes.now());
        self.with(kind, |reads| {
            let upto = reads.upto;
            reads.requests.push(format!("{elapsed:?}, {changes} changes, read to {upto}: {what}"));
        });
    }

    fn see_chunk(&self, kind: Kind, chunk: &Result<ListChunk, SourceError>) {
        match chunk {
            Ok(ListChunk::Items(objects)) => self.with(kind, |reads| {
                for object in objects {
                    reads.listed_object(object.key().name(), object.resource_version());
                }
            }),
            Ok(ListChunk::End { version, continue_token: None, .. }) => {
                self.note(kind, &format_args!("listed at {version}"));
                self.with(kind, |reads| reads.listed(version));
            }
            Ok(ListChunk::End { .. } | ListChunk::Skipped(_)) => {}
            Err(error) => self.note(kind, &format_args!("the list ends: {error}")),
        }
    }

    /// Records a watch batch. `listing` is true while the initial events of a streaming list are incomplete.
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
                    self.with(kind, |reads| reads.listed(version));
                }
                WatchItem::Bookmark { version, .. } if !*listing => self.with(kind, |reads| reads.event(version)),
                WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
                    let version = object.resource_version();
                    self.with(kind, |reads| {
                        if *listing {
                            reads.listed_object(object.key().name(), version);
                        } else {
                            reads.event(version);
                        }
                    });
                }
                WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => {}
            }
        }
    }
}

/// A component of the hub, wrapped by a recorder.
pub(super) struct Recorded<T> {
    inner: T,
    recorder: ReadRecorder,
}

impl<T> Recorded<T> {
    pub(super) fn new(inner: T, recorder: ReadRecorder) -> Self {
        Self { inner, recorder }
    }
}

impl<T: Debug> Debug for Recorded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<C: Connector> Connector for Recorded<C> {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let (connecting, recorder) = (self.inner.connect(), self.recorder.clone());
        async move { Ok(Arc::new(Recorded::new(connecting.await?, recorder)) as Arc<dyn Connection>) }.boxed()
    }
}

impl Connection for Recorded<Arc<dyn Connection>> {
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
        // Resources that the hub watches internally, such as definitions, are not recorded.
        let Some(kind) = Kind::of(&resource.gvr.resource) else { return source };
        Arc::new(Recorded::new((kind, source), self.recorder.clone()))
    }
}

impl ListerWatcher for Recorded<(Kind, Arc<dyn ListerWatcher>)> {
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let (kind, recorder) = (self.inner.0, self.recorder.clone());
        recorder.note(kind, &format_args!("list {:?}", request.version));
        let answer = self.inner.1.list(request);
        async move {
            match answer.await {
                Ok(stream) => Ok(stream.inspect(move |chunk| recorder.see_chunk(kind, chunk)).boxed()),
                Err(error) => {
                    recorder.note(kind, &format_args!("no list: {error}"));
                    Err(error)
                }
            }
        }
        .boxed()
    }

    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        self.inner.1.current_version()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let (kind, recorder) = (self.inner.0, self.recorder.clone());
        let mut listing = request.initial_events;
        recorder.note(kind, &format_args!("{} {:?}", if listing { "stream" } else { "watch" }, request.version));
        let answer = self.inner.1.watch(request);
        async move {
            match answer.await {
                Ok(stream) => {
                    recorder.note(kind, &"the watch opens");
                    Ok(stream.inspect(move |batch| recorder.see_batch(kind, batch, &mut listing)).boxed())
                }
                Err(error) => {
                    recorder.note(kind, &format_args!("no watch: {error}"));
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

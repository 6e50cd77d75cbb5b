//! Readers of the Kubernetes read API: they list, watch, lose connections and resume, as client-go's reflectors do.
//!
//! A reader outlives hubs. It draws from its own generator, and calls the handlers of the HTTP port without a socket.

mod replica;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use informer_hub::app::{Hub, LocalReadApi};
use informer_hub_sim::World;
use informer_hub_types::{Gvr, clock};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::testbed::Testbed;
use replica::{Key, Replica, Root, State, differences, read, version_of};

/// Next request of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// A list that is not older than the reader's version.
    List,
    /// A list of the most recent state, after the hub could not serve the reader's version.
    RecentList,
    /// A watch from the reader's version.
    Watch,
}

/// Form of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListForm {
    Whole,
    /// Pages of this many objects.
    Paged(usize),
    /// A watch with `sendInitialEvents`.
    Streaming,
}

/// Reason for the end of a request that did not complete.
#[derive(Debug)]
enum Failure {
    /// The reader lost the connection.
    Cut,
    /// A refusal that ends by itself.
    Busy,
    /// 410.
    Expired,
    /// 504: the hub has not reached the reader's version.
    TooNew,
}

/// Objects and version of a complete list.
type Listed = (BTreeMap<Key, State>, u64);

/// Reader of one resource below one root.
pub(crate) struct ApiReader {
    name: String,
    root: Root,
    resource: Gvr,
    rng: Mutex<StdRng>,
    next: Mutex<Next>,
    replica: Mutex<Replica>,
}

/// Returns one reader for each kind of root.
pub(crate) fn readers(seed: u64, clusters: u64) -> Vec<Arc<ApiReader>> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xA91_4EAD);
    let own = Root::Cluster(format!("c{}", rng.random_range(0..clusters)));
    let roots = [own, Root::Fleet, Root::Tier("prod"), Root::Unique];
    let reader = |root: Root| {
        let resource = if rng.random_bool(0.8) { World::pods() } else { World::widgets() };
        Arc::new(ApiReader {
            name: format!("{}/{}", root.path(), resource.resource),
            root,
            resource,
            rng: Mutex::new(StdRng::seed_from_u64(rng.random())),
            next: Mutex::new(Next::List),
            replica: Mutex::default(),
        })
    };
    roots.map(reader).into()
}

/// Connects all readers with a hub, and returns the read API through which they read. They read until the actix system
/// of the hub ends.
pub(crate) async fn connect(bed: &Arc<Testbed>, hub: &Hub) -> Option<LocalReadApi> {
    let api = LocalReadApi::of(hub, &bed.plan.reads).await.ok().flatten()?;
    for reader in &bed.api_readers {
        // A hub that was killed is behind its readers, and may leave out changes for one that resumes at a cluster
        // root.
        if !reader.root.is_fleet() {
            *reader.next.lock() = Next::List;
        }
        actix::spawn(Connected { reader: Arc::clone(reader), api: api.clone(), bed: Arc::clone(bed) }.run());
    }
    Some(api)
}

impl ApiReader {
    /// Returns the impossible answers and events that it received.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.replica.lock().violations().iter().map(|it| format!("{}: {it}", self.name)).collect()
    }

    /// Returns the differences from the clusters of its root.
    pub(crate) fn mistakes(&self, bed: &Testbed) -> Vec<String> {
        let mut expected = BTreeMap::new();
        for (name, cluster) in &bed.clusters {
            let is_read = match &self.root {
                Root::Cluster(only) => name == only,
                Root::Fleet | Root::Unique => true,
                Root::Tier(tier) => bed.tiers.lock().get(name).is_some_and(|of| of == tier),
            };
            if !is_read {
                continue;
            }
            cluster.with_world(|world| {
                for object in world.objects(&self.resource) {
                    let (namespace, own) = (object.key().namespace().unwrap_or_default(), object.key().name());
                    let key = (name.clone(), namespace.to_owned(), own.to_owned());
                    expected.insert(key, State::original(object.value()));
                }
            });
        }
        let replica = self.replica.lock();
        let found = differences(&replica.held, &expected, !self.root.is_fleet());
        found.into_iter().map(|it| format!("{}: {it}", self.name)).collect()
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }
}

/// Reader that is connected with a running hub.
struct Connected {
    reader: Arc<ApiReader>,
    api: LocalReadApi,
    bed: Arc<Testbed>,
}

impl Connected {
    async fn run(self) {
        loop {
            let pause = self.reader.draw(|rng| rng.random_range(0..300));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let now = *self.reader.next.lock();
            let outcome = match now {
                Next::List => self.list(true).await,
                Next::RecentList => self.list(false).await,
                Next::Watch => self.watch().await,
            };
            self.note(|| format!("{now:?} ended: {outcome:?} at {:?}", self.reader.replica.lock().version));
            let next = match outcome {
                Ok(()) => Next::Watch,
                Err(Failure::Expired) if now == Next::Watch => Next::List,
                Err(Failure::Expired | Failure::TooNew) => Next::RecentList,
                Err(Failure::Cut | Failure::Busy) => now,
            };
            let is_busy = matches!(outcome, Err(Failure::Busy));
            *self.reader.next.lock() = next;
            if is_busy {
                let pause = self.reader.draw(|rng| rng.random_range(200..2000));
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            if outcome.is_ok() && self.reader.draw(|rng| rng.random_bool(0.2)) {
                self.compare().await;
            }
        }
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.bed.note(|| format!("{}: {}", self.reader.name, what()));
    }

    /// Sends a request and returns the body of its answer.
    async fn ask(&self, query: &str) -> Result<Body, Failure> {
        let gvr = &self.reader.resource;
        let group = if gvr.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", gvr.group) };
        let uri = format!("{}{group}/{}/{}?{query}", self.reader.root.path(), gvr.version, gvr.resource);
        let request = Request::get(&uri).body(()).unwrap();
        let response = self.api.answer(request).await;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(self.failure(status.as_u16().into(), &uri)),
        }
    }

    /// Returns how a client reacts to a refusal. An unexpected code is a violation.
    fn failure(&self, code: u64, of: &str) -> Failure {
        self.note(|| format!("{code}: {of}"));
        match code {
            404 | 429 | 503 => Failure::Busy,
            410 => Failure::Expired,
            504 => Failure::TooNew,
            _ => {
                self.reader.replica.lock().violation(format!("{of} is answered with {code}"));
                Failure::Busy
            }
        }
    }

    /// Requests a list, and keeps its objects if it is complete.
    async fn list(&self, is_resuming: bool) -> Result<(), Failure> {
        let known = self.reader.replica.lock().version;
        let version = is_resuming.then(|| known.unwrap_or(0));
        let form = self.reader.draw(|rng| match rng.random_range(0..3) {
            0 => ListForm::Whole,
            1 => ListForm::Paged(rng.random_range(1..20)),
            _ => ListForm::Streaming,
        });
        let listed = match form {
            ListForm::Whole => {
                let version = version.map(|version| format!("resourceVersion={version}"));
                self.pages(version.unwrap_or_default(), None).await?
            }
            ListForm::Paged(limit) => {
                let version = version.map(|it| format!("resourceVersion={it}&resourceVersionMatch=NotOlderThan"));
                self.pages(version.unwrap_or_default(), Some(limit)).await?
            }
            ListForm::Streaming => {
                let least = version.map(|version| format!("&resourceVersion={version}")).unwrap_or_default();
                let query = format!("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan{least}");
                return self.follow(&query, Some(InitialState { least: version })).await;
            }
        };
        self.reader.replica.lock().replace(listed.0, listed.1, version, self.reader.root.changes_labels());
        Ok(())
    }

    /// Reads the pages of a list.
    async fn pages(&self, first: String, limit: Option<usize>) -> Result<Listed, Failure> {
        let (mut objects, mut version, mut query) = (BTreeMap::new(), None, first);
        loop {
            let limit = limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
            let body = self.ask(&format!("{query}{limit}")).await?;
            if self.reader.draw(|rng| rng.random_bool(0.03)) {
                return Err(Failure::Cut);
            }
            let bytes = body.collect().await.map_err(|_| Failure::Cut)?.to_bytes();
            let mut list: Value = serde_json::from_slice(&bytes).unwrap();
            let of_page = version_of(&list).unwrap_or_default();
            self.take_page(&mut list, (version, of_page), &mut objects);
            version = Some(of_page);
            match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => query = format!("continue={token}"),
                None => return Ok((objects, of_page)),
            }
            let pause = self.reader.draw(|rng| rng.random_range(0..30));
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Adds the objects of a page. All pages must have the same version.
    fn take_page(&self, list: &mut Value, (version, of_page): (Option<u64>, u64), objects: &mut BTreeMap<Key, State>) {
        let mut replica = self.reader.replica.lock();
        if version.is_some_and(|version| version != of_page) {
            replica.violation(format!("a page has version {of_page}, the one before {version:?}"));
        }
        for item in list["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
            match read(&self.reader.root, item) {
                Ok((key, state)) => {
                    if objects.insert(key.clone(), state).is_some() {
                        replica.violation(format!("{key:?} is listed twice"));
                    }
                }
                Err(fault) => replica.violation(fault),
            }
        }
    }

    /// Watches from the reader's version until the watch ends or the connection is lost.
    async fn watch(&self) -> Result<(), Failure> {
        let version = {
            let mut replica = self.reader.replica.lock();
            replica.resume();
            replica.version.unwrap_or(0)
        };
        self.follow(&format!("watch=1&resourceVersion={version}"), None).await
    }

    /// Follows a watch. `initial` is given if it begins with the present state.
    async fn follow(&self, query: &str, initial: Option<InitialState>) -> Result<(), Failure> {
        let (seconds, millis) = self.reader.draw(|rng| (rng.random_range(1..90), rng.random_range(0..8000)));
        let query = format!("{query}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        self.note(|| query.clone());
        let mut body = self.ask(&query).await?;
        let stop = clock::now() + Duration::from_millis(millis);
        let mut stream =
            Stream { of: self, rest: Vec::new(), initial: initial.map(|initial| (initial.least, BTreeMap::new())) };
        loop {
            let frame = tokio::time::timeout_at(stop, body.frame()).await;
            let Ok(Some(Ok(frame))) = frame else { break };
            let Ok(mut chunk) = frame.into_data() else { continue };
            let is_cut = self.reader.draw(|rng| rng.random_bool(0.1));
            if is_cut {
                chunk.truncate(self.reader.draw(|rng| rng.random_range(0..=chunk.len())));
            }
            stream.read(&chunk)?;
            if is_cut {
                break;
            }
            if self.reader.draw(|rng| rng.random_bool(0.1)) {
                let pause = self.reader.draw(|rng| rng.random_range(0..3000));
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
        if stream.initial.is_some() { Err(Failure::Cut) } else { Ok(()) }
    }

    /// Compares with a list of exactly the reader's version.
    async fn compare(&self) {
        let version = {
            let replica = self.reader.replica.lock();
            let Some(version) = replica.version.filter(|_| replica.is_exact) else { return };
            version
        };
        let query = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        if let Ok((listed, _)) = self.pages(query, None).await {
            self.note(|| format!("compared with the list at {version}"));
            self.reader.replica.lock().compare(&listed, &self.reader.root);
        }
    }
}

/// Request for the present state at the beginning of a watch.
struct InitialState {
    /// Version that the state must have reached.
    least: Option<u64>,
}

/// Events of one watch.
struct Stream<'r> {
    of: &'r Connected,
    /// Bytes after the last complete line.
    rest: Vec<u8>,
    /// Version that was asked for and initial objects, until the bookmark that ends them.
    initial: Option<(Option<u64>, BTreeMap<Key, State>)>,
}

impl Stream<'_> {
    /// Reads the events of a chunk.
    fn read(&mut self, chunk: &Bytes) -> Result<(), Failure> {
        self.rest.extend_from_slice(chunk);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = self.rest.drain(..=end).collect();
            self.event(serde_json::from_slice(&line).unwrap())?;
        }
        Ok(())
    }

    fn event(&mut self, mut event: Value) -> Result<(), Failure> {
        let (kind, object) = (event["type"].as_str().unwrap_or_default().to_owned(), event["object"].take());
        let reader = &self.of.reader;
        let is_fleet = reader.root.is_fleet();
        if kind == "ERROR" {
            return Err(self.of.failure(object["code"].as_u64().unwrap_or_default(), "an event"));
        }
        let version = version_of(&object);
        let mut replica = reader.replica.lock();
        if kind == "BOOKMARK" {
            let Some(version) = version else {
                replica.violation(format!("a bookmark without a version: {object}"));
                return Ok(());
            };
            self.of.note(|| format!("BOOKMARK {version}"));
            let is_end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
            match self.initial.take() {
                Some((least, objects)) if is_end => {
                    replica.replace(objects, version, least, reader.root.changes_labels());
                }
                None if !is_end => replica.bookmark(version, is_fleet),
                initial => {
                    replica.violation(format!("a bookmark, end of initial events {is_end}, is out of place"));
                    self.initial = initial;
                }
            }
            return Ok(());
        }
        let (key, state) = match read(&reader.root, object) {
            Ok(read) => read,
            Err(fault) => {
                replica.violation(fault);
                return Ok(());
            }
        };
        self.of.note(|| format!("{kind} {key:?} at {}", state.version));
        match &mut self.initial {
            None => replica.event(&kind, key, state, is_fleet),
            Some((_, objects)) => {
                if kind != "ADDED" || objects.contains_key(&key) {
                    replica.violation(format!("{kind} {key:?} among the initial events"));
                }
                objects.insert(key, state);
            }
        }
        Ok(())
    }
}

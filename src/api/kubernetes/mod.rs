//! Kubernetes roots: lists and watches of the fleet for every Kubernetes client.
//!
//! `/clusters/<name>`, `/clusters/*`, `/clusters/<selector>` and `/unique/…` answer the read requests of a
//! kube-apiserver, from the hub's caches. Protocol and texts are in `informer_hub_kubeapi`; this module reads the
//! caches' snapshots and recent changes. `docs/kubernetes-api.md` describes it for users.
//!
//! A request passes `request` (parse, rights, admission), then `read` (lists and objects), `watch` or `documents`.

mod definitions;
mod documents;
mod encode;
mod fields;
mod fleet;
mod frames;
mod freshness;
mod listing;
mod metrics;
mod objects;
mod omitted;
mod protobuf;
mod queue;
mod read;
mod read_request;
mod request;
mod respond;
mod scope;
mod selection;
mod self_subject;
mod shared_frames;
#[cfg(test)]
pub(in crate::api) mod tests;
mod versions;
mod watch;
mod watch_request;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::any;
use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::rights::{CurrentReader, Rights};
use super::usage::ReaderUse;
use definitions::Definitions;
use documents::Documents;
pub use fleet::{CacheInfo, ClusterInfo, FetchError, FindFleet, Fleet};
use informer_hub_access::{Reader, ReviewCache, ReviewMeter};
use informer_hub_kubeapi::{Media, Status};
use informer_hub_types::clock;
use informer_hub_types::clock::Instant;
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName};
pub use metrics::ReadCounts;
use read_request::ReadRequest;
// Used by the paths below `/v1`.
pub(in crate::api) use encode::head_only;
pub(in crate::api) use freshness::{Coverage as Warnings, WITHOUT_BODIES};
pub(in crate::api) use metrics::OpenWatch;
use metrics::ReadMetrics;
use protobuf::{JsonOnly, ResourceWriter};
pub use queue::ReaderInUse;
pub(in crate::api) use queue::{Admission, ReaderId};
use queue::{FairQueue, QueueLimits, Turn};
pub(in crate::api) use read_request::reader_id;
pub(in crate::api) use respond::whole_response;
pub(in crate::api) use scope::{is_visible, view_rank};
use shared_frames::SharedFrames;

/// Minimum wait for a turn in the fair queue that is counted in the metrics.
const LEAST_WAIT: Duration = Duration::from_micros(10);

/// Settings of the read API.
#[derive(Clone, Copy, Debug)]
pub struct ReadApiOptions {
    /// Maximum number of lists, queries and requests for single objects in progress.
    pub requests: usize,
    /// Maximum number of open watches and event streams.
    pub watches: usize,
    /// Whether Secrets are served.
    pub secrets: bool,
}

/// State of the read API, shared by all requests.
pub struct ReadApi {
    find: FindFleet,
    queue: Arc<FairQueue>,
    rights: Rights,
    definitions: Definitions,
    documents: Documents,
    /// Resources that are served as JSON although clients accept protobuf.
    json_only: Arc<JsonOnly>,
    metrics: Arc<ReadMetrics>,
    frames: SharedFrames,
    usage: Arc<ReaderUse>,
    /// Cancelled at shutdown, which ends watches.
    closing: CancellationToken,
    /// Time at which this value was created, as wall-clock time and on the monotonic clock. Wall-clock times of changes
    /// are derived from this pair, so that all readers get the same times.
    began: (jiff::Timestamp, Instant),
}

impl ReadApi {
    /// Creates the API over a hub that may start later.
    #[must_use]
    pub fn new(find: FindFleet, options: ReadApiOptions) -> Self {
        // One concurrent turn per core: more would only delay each other.
        let turns = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let limits = QueueLimits { requests: options.requests, watches: options.watches, turns };
        Self {
            find,
            queue: FairQueue::new(limits),
            rights: Rights::new(options.secrets),
            definitions: Definitions::default(),
            documents: Documents::default(),
            json_only: Arc::default(),
            metrics: Arc::default(),
            frames: SharedFrames::default(),
            usage: Arc::default(),
            closing: CancellationToken::new(),
            began: (clock::wall(), clock::now()),
        }
    }

    /// Sets the function with which open watches ask for the current rights of their readers.
    #[must_use]
    pub fn with_current_readers(mut self, current: CurrentReader) -> Self {
        self.rights.set_current(current);
        self
    }

    /// Enables access reviews, for readers whose rights come from the clusters.
    #[must_use]
    pub fn with_reviews(mut self, reviews: Arc<ReviewCache>) -> Self {
        self.rights.set_reviews(reviews);
        self
    }

    /// Sets the counters to which refused requests are added.
    #[must_use]
    pub fn with_usage(mut self, usage: Arc<ReaderUse>) -> Self {
        self.usage = usage;
        self
    }

    /// Returns the requests, watches and scans in progress, by reader. Readers without a name of their own (anonymous,
    /// or with a token of `hub.auth`) are left out.
    pub fn in_use(&self) -> BTreeMap<SmolStr, ReaderInUse> {
        let all = self.queue.in_use().into_iter();
        all.filter_map(|(id, own)| Some((id.strip_prefix(read_request::NAMED)?.into(), own))).collect()
    }

    /// Returns the counters of access reviews; `None` if access reviews are not enabled.
    pub fn access_reviews(&self) -> Option<&ReviewMeter> {
        self.rights.meter()
    }

    /// Answers one authorized request. A request without a `Reader` in its extensions may read everything.
    pub async fn answer(self: &Arc<Self>, mut request: Request<()>) -> Response {
        if request.extensions().get::<Reader>().is_none() {
            request.extensions_mut().insert(Reader::administrator());
        }
        request::handle(State(Arc::clone(self)), request.map(|()| Body::empty())).await
    }

    /// Returns the values of the read API's counters.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        ReadCounts { in_progress: self.queue.in_progress(), ..self.metrics.counts() }
    }

    /// Returns the running hub.
    ///
    /// # Errors
    /// [`Status`] of code 503 while the hub starts or shuts down.
    fn fleet(&self) -> Result<Arc<dyn Fleet>, Status> {
        (self.find)().filter(|_| !self.closing.is_cancelled()).ok_or_else(|| {
            let status = Status::service_unavailable("the hub is starting or shutting down");
            Status { retry_after: Some(1), ..status }
        })
    }

    /// Returns the running hub if its first lists are complete ([`Fleet::has_started`]).
    ///
    /// # Errors
    /// [`Status`] of code 503 otherwise, and while the hub shuts down.
    pub(in crate::api) fn complete_fleet(&self) -> Result<Arc<dyn Fleet>, Status> {
        let fleet = self.fleet()?;
        request::check_started(&*fleet).map(|()| fleet)
    }

    /// Returns the resources of all caches; none while the hub starts or shuts down.
    pub(in crate::api) fn resources(&self) -> Vec<ApiResource> {
        let fleet = (self.find)();
        fleet.iter().flat_map(|fleet| fleet.caches()).map(|cache| cache.resource).collect()
    }

    /// Returns the labels of a cluster; `None` if the hub has none of this name.
    pub(in crate::api) fn cluster_labels(&self, name: &str) -> Option<ClusterLabels> {
        let clusters = (self.find)()?.clusters();
        clusters.into_iter().find(|cluster| cluster.name.as_str() == name).map(|cluster| cluster.labels)
    }

    pub(in crate::api) fn rights(&self) -> &Rights {
        &self.rights
    }

    pub(in crate::api) fn count(&self, verb: &'static str, resource: &str, parts: &Parts, code: u16, began: Instant) {
        let resource = if resource.is_empty() { "other" } else { resource };
        self.metrics.answered_client(&metrics::client_of(read_request::user_agent(parts)), code);
        self.metrics.answered(verb, resource, code, clock::now() - began);
    }

    pub(in crate::api) fn sent(&self, bytes: usize) {
        self.metrics.sent(bytes);
    }

    pub(in crate::api) fn sent_event(&self) {
        self.metrics.sent_events(1);
    }

    /// Counts an open stream until the returned value is dropped.
    pub(in crate::api) fn watch_began(&self, resource: &str, parts: &Parts) -> OpenWatch {
        OpenWatch::new(&self.metrics, resource, &metrics::client_of(read_request::user_agent(parts)))
    }

    pub(in crate::api) fn time_of(&self, moment: Instant) -> jiff::Timestamp {
        let (wall, began) = self.began;
        let time = match moment.checked_duration_since(began) {
            Some(after) => wall.checked_add(after),
            None => wall.checked_sub(began - moment),
        };
        time.unwrap_or(wall)
    }

    pub(in crate::api) async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Prepares the protobuf encoder; `None` if the answer has another encoding, because the client does not accept
    /// protobuf or the resource has objects that protobuf cannot express.
    ///
    /// # Errors
    /// [`Status`] of code 406 if protobuf cannot be used and the client accepts nothing else.
    fn protobuf_of(&self, asked: &mut ReadRequest, scope: &scope::Scope) -> Result<Option<ResourceWriter>, Status> {
        if asked.accepted.media != Media::Protobuf {
            return Ok(None);
        }
        let resource = &scope.cache.resource;
        let writer = ResourceWriter::new(asked.accepted.form, resource, &self.json_only);
        let is_selected = |cluster: &ClusterName| scope.covers(cluster);
        let writer = writer.filter(|_| !self.json_only.contains(&resource.gvr, is_selected));
        if writer.is_none() {
            asked.refuse_protobuf()?;
        }
        Ok(writer)
    }

    /// Waits for a turn of the reader in the fair queue.
    pub(in crate::api) async fn turn(&self, reader: &ReaderId) -> Turn<'_> {
        let began = clock::now();
        let turn = self.queue.turn(reader).await;
        let waited = clock::now() - began;
        if waited >= LEAST_WAIT {
            self.metrics.queued(waited);
        }
        turn
    }

    /// Ends all watches and event streams, and refuses new requests with 503. A watch ends with a bookmark if its
    /// client accepts them.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Admits a request of a reader, which counts as in progress until the admission is dropped.
    ///
    /// # Errors
    /// [`Status`] of code 429 if this reader, or all readers together, have too many requests in progress.
    pub(in crate::api) fn admit(&self, id: &ReaderId, reader: &Reader) -> Result<Admission, Status> {
        self.queue.admit(id, reader.limits()).map_err(|limit| {
            self.usage.refused(reader, limit);
            Status::too_many_requests("too many requests, please try again later", 1)
        })
    }

    /// Admits a watch of a reader, which counts as open until the admission is dropped. Fails with a [`Status`] of code
    /// 429 if this reader, or all readers together, have too many watches.
    pub(in crate::api) fn admit_watch(&self, id: &ReaderId, reader: &Reader) -> Result<Admission, Status> {
        self.queue.admit_watch(id, reader.limits()).map_err(|limit| {
            self.usage.refused(reader, limit);
            Status::too_many_requests("too many watches, please try again later", 5)
        })
    }

    /// Admits a query that scans the objects of a cache; it counts as in progress until the admission is dropped. Fails
    /// with a [`Status`] of code 429 if this reader has too many scans in progress.
    pub(in crate::api) fn admit_scan(&self, id: &ReaderId, reader: &Reader) -> Result<Admission, Status> {
        self.queue.admit_scan(id, reader.limits()).map_err(|limit| {
            self.usage.refused(reader, limit);
            Status::too_many_requests("too many scans of this reader, please try again later", 1)
        })
    }
}

impl fmt::Debug for ReadApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadApi").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Returns the routes of the Kubernetes roots `/clusters` and `/unique`.
pub(super) fn routes(api: Arc<ReadApi>) -> Router {
    let handler = any(request::handle);
    let paths = ["/clusters", "/clusters/", "/clusters/{*rest}", "/unique", "/unique/", "/unique/{*rest}"];
    paths.into_iter().fold(Router::new(), |routes, path| routes.route(path, handler.clone())).with_state(api)
}

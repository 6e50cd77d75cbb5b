//! List and watch of one resource of one cluster over HTTP.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::pump::{BatchStream, Intake, ListIntake, WatchIntake, pump};
use super::reloading_client::{CurrentClient, ReloadingClient};
use super::request::{Encoding, Get, Query, encode, encoding, transient};
use informer_hub_codec::{Decoder, MAX_OBJECT_BYTES};
use informer_hub_pool::Lane;
use informer_hub_reflector::{
    ErrorClass, ListRequest, ListStream, ListerWatcher, SourceError, StallPolicy, VersionMatch, WatchRequest,
    WatchStream, listed_version,
};
use informer_hub_types::{ApiResource, EncodingInUse, Encodings, JsonReason, ResourceVersion, Scope, Threads};

/// Values of the `Accept` header for one kind of answer: `both` allows protobuf and JSON, `json` only JSON.
struct Accept {
    both: &'static str,
    json: &'static str,
}

/// `Accept` headers of a metadata-only list.
const LIST: Accept = Accept {
    both: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
           application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    json: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
};
/// `Accept` headers of a metadata-only watch.
const WATCH: Accept = Accept {
    both: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
           application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    json: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
};

/// Options of a [`KubeSource`].
#[derive(Debug, Clone)]
pub struct KubeSourceOptions {
    /// Whether to request only `metadata` (`PartialObjectMetadata`). Default false.
    pub metadata_only: bool,
    /// Whether to accept gzipped lists. Default true. Watches are never compressed: an apiserver may compress each
    /// event separately, and decoders take the end of the first event for the end of the body.
    pub compression: bool,
    /// Whether to start traces for a sample of the changes of a watch. Default true.
    pub traces: bool,
    /// Size limit of an object, in bytes. Default [`MAX_OBJECT_BYTES`].
    pub max_object_bytes: usize,
    /// Deadlines for a server that sends nothing.
    pub stall: StallPolicy,
}

impl Default for KubeSourceOptions {
    fn default() -> Self {
        let stall = StallPolicy::default();
        let max_object_bytes = MAX_OBJECT_BYTES;
        Self { metadata_only: false, compression: true, traces: true, max_object_bytes, stall }
    }
}

/// Lists and watches one resource of one cluster over HTTP.
///
/// Each request has a task on the `io` runtime. It reads the socket, decodes, and sends batches through a bounded
/// channel. While the channel is full, the task reads on and collects the decoded items, up to a limit. All requests of
/// a source share its decoder and the strings that the decoder interns.
pub struct KubeSource {
    client: Arc<ReloadingClient>,
    /// Number of address changes of the cluster when the last request was made. A later change invalidates the known
    /// resourceVersions, which belong to the old address.
    epoch: AtomicU64,
    resource: ApiResource,
    scope: Scope,
    decoder: Arc<Mutex<Decoder>>,
    /// Encoding of the last answer.
    encoding: Arc<ArcSwapOption<EncodingInUse>>,
    options: KubeSourceOptions,
    io: Threads,
}

impl fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("resource", &self.resource)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl KubeSource {
    /// Creates a source for the resource that `decoder` decodes. Requests run on `io`, the runtime of the clients.
    pub(super) fn new(
        client: Arc<ReloadingClient>,
        scope: Scope,
        decoder: Decoder,
        options: KubeSourceOptions,
        io: Threads,
    ) -> Self {
        let resource = decoder.resource().clone();
        let epoch = AtomicU64::new(client.current().epoch);
        let (decoder, encoding) = (Arc::new(Mutex::new(decoder)), Arc::default());
        Self { client, epoch, resource, scope, decoder, encoding, options, io }
    }

    /// Returns the client for a request. Fails with [`ErrorClass::Expired`] if the request uses a resourceVersion, and
    /// the cluster's address has changed since the last request.
    fn current(&self, uses_version: bool) -> Result<Arc<CurrentClient>, SourceError> {
        let current = self.client.current();
        if self.epoch.swap(current.epoch, SeqCst) != current.epoch && uses_version {
            return Err(address_changed());
        }
        Ok(current)
    }

    fn path(&self) -> String {
        collection(&self.resource, &self.scope)
    }

    fn selectors(&self) -> Query {
        selectors(&self.scope)
    }

    fn list_request(&self, request: &ListRequest, encodings: Encodings) -> Get {
        let mut query = self.selectors();
        if let Some(limit) = request.limit {
            query.add("limit", &limit.to_string());
        }
        match (&request.continue_token, &request.version) {
            (Some(token), _) => query.add("continue", token),
            (None, VersionMatch::MostRecent) => {}
            (None, VersionMatch::Any) => query.add("resourceVersion", "0"),
            (None, VersionMatch::NotOlderThan(version)) => {
                query.add("resourceVersion", &version.to_string());
                // With a limit but without `resourceVersionMatch`, the server would list exactly this version.
                if request.limit.is_some() {
                    query.add("resourceVersionMatch", "NotOlderThan");
                }
            }
        }
        let (accept, fallback) = self.accept(LIST, encodings);
        Get { path: self.path(), query, accept, fallback, compressed: self.options.compression, lane: Lane::Bulk }
    }

    fn watch_request(&self, request: &WatchRequest, encodings: Encodings) -> Get {
        let mut query = self.selectors();
        query.add("watch", "true");
        query.add("allowWatchBookmarks", "true");
        query.add("timeoutSeconds", &request.timeout.as_secs().max(1).to_string());
        match &request.version {
            VersionMatch::MostRecent => {}
            VersionMatch::Any => query.add("resourceVersion", "0"),
            VersionMatch::NotOlderThan(version) => query.add("resourceVersion", &version.to_string()),
        }
        if request.initial_events {
            query.add("sendInitialEvents", "true");
            query.add("resourceVersionMatch", "NotOlderThan");
        }
        let lane = if request.initial_events { Lane::Bulk } else { Lane::Watch };
        let (accept, fallback) = self.accept(WATCH, encodings);
        Get { path: self.path(), query, accept, fallback, compressed: false, lane }
    }

    /// Returns the `Accept` header of a request. If it allows protobuf, also returns a JSON-only header, for a second
    /// request to a server that refuses the first. Uses the headers in `metadata` if the source requests only metadata.
    fn accept(&self, metadata: Accept, encodings: Encodings) -> (&'static str, Option<&'static str>) {
        let metadata_only = self.options.metadata_only;
        let objects = Accept { both: "application/vnd.kubernetes.protobuf,application/json", json: "application/json" };
        let Accept { both, json } = if metadata_only { metadata } else { objects };
        let is_protobuf = encodings == Encodings::Auto && self.decoder.lock().wants_protobuf(metadata_only);
        if is_protobuf { (both, Some(json)) } else { (json, None) }
    }

    /// Sends a request in its own task, and returns a stream of the decoded batches.
    fn start<I: Intake>(
        &self,
        mut get: Get,
        current: Arc<CurrentClient>,
        mut intake: I,
        head: Duration,
        silence: Duration,
    ) -> BoxFuture<'static, Result<BatchStream<I::Batch>, SourceError>> {
        let (client, decoder, io) = (Arc::clone(&self.client), Arc::clone(&self.decoder), self.io.clone());
        let (in_use, metadata_only) = (Arc::clone(&self.encoding), self.options.metadata_only);
        let wants_protobuf = get.fallback.is_some();
        get.compressed &= current.compression;
        Box::pin(async move {
            let (opened, answer) = oneshot::channel();
            let (out, batches) = mpsc::channel(I::BATCHES);
            let task = io.spawn(async move {
                // Boxed, so that the memory of this future is freed before the body is read.
                let response = match Box::pin(get.open(&current.client, head)).await {
                    Ok(response) => response,
                    Err(error) => {
                        if error.class == ErrorClass::Unauthorized {
                            client.credentials_refused();
                        }
                        // Ignore the error: the caller has dropped the future.
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let encoding = encoding(&response);
                if wants_protobuf && encoding == Encoding::Json {
                    decoder.lock().refuse_protobuf(JsonReason::Refused, "the server answered with JSON");
                }
                let is_configured = current.encoding == Encodings::Json;
                let configured = is_configured.then(|| EncodingInUse::json(JsonReason::Configured));
                let now = configured.unwrap_or_else(|| decoder.lock().encoding(metadata_only));
                in_use.store(Some(Arc::new(now)));
                intake.begin(encoding);
                if opened.send(Ok(())).is_ok() {
                    pump(response.into_body(), intake, out, silence).await;
                }
            });
            let batches = BatchStream::new(batches, task);
            match answer.await {
                Ok(Ok(())) => Ok(batches),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(transient("the read task panicked".to_owned())),
            }
        })
    }
}

/// Returns the percent-encoded path of all objects of a resource in a scope.
pub(super) fn collection(resource: &ApiResource, scope: &Scope) -> String {
    let gvr = &resource.gvr;
    let mut path = String::from(if gvr.group.is_empty() { "/api" } else { "/apis" });
    let mut part = |text: &str| {
        path.push('/');
        encode(text, &mut path);
    };
    if !gvr.group.is_empty() {
        part(&gvr.group);
    }
    part(&gvr.version);
    if let Some(namespace) = scope.namespace.as_deref().filter(|_| resource.namespaced) {
        part("namespaces");
        part(namespace);
    }
    part(&gvr.resource);
    path
}

/// Returns the selectors of a scope as query parameters.
pub(super) fn selectors(scope: &Scope) -> Query {
    let mut query = Query::default();
    if let Some(selector) = &scope.label_selector {
        query.add("labelSelector", selector);
    }
    if let Some(selector) = &scope.field_selector {
        query.add("fieldSelector", selector);
    }
    query
}

fn address_changed() -> SourceError {
    let message = "the cluster's address has changed, listing everything again".to_owned();
    SourceError { class: ErrorClass::Expired, message }
}

impl ListerWatcher for KubeSource {
    /// Lists one object and returns the resourceVersion of the list; `None` if the server ignores the limit of one
    /// object.
    ///
    /// Fails with [`ErrorClass::Expired`] if the cluster's address has changed since the last request: the versions of
    /// two clusters cannot be compared.
    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        if self.client.current().epoch != self.epoch.load(SeqCst) {
            return Box::pin(ready(Err(address_changed())));
        }
        listed_version(self)
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let stall = self.options.stall;
        let intake = ListIntake::new(Arc::clone(&self.decoder), self.options.max_object_bytes);
        let uses_version = request.continue_token.is_some() || matches!(request.version, VersionMatch::NotOlderThan(_));
        let current = match self.current(uses_version) {
            Ok(current) => current,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let get = self.list_request(&request, current.encoding);
        let start = self.start(get, current, intake, stall.list_head, stall.list_chunk);
        Box::pin(async move { Ok(start.await?.boxed()) })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let KubeSourceOptions { stall, traces, max_object_bytes, .. } = self.options;
        let decoder = Arc::clone(&self.decoder);
        let intake = WatchIntake::new(decoder, max_object_bytes, request.initial_events, traces);
        let silence = request.timeout + stall.watch_slack;
        let current = match self.current(matches!(request.version, VersionMatch::NotOlderThan(_))) {
            Ok(current) => current,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let (epoch, mut epochs) = (current.epoch, self.client.epochs());
        let get = self.watch_request(&request, current.encoding);
        let start = self.start(get, current, intake, stall.watch_head, silence);
        Box::pin(async move {
            // An error means that the client was dropped. Its requests have ended too.
            let address_changed = async move { drop(epochs.wait_for(|now| *now != epoch).await) };
            Ok(start.await?.take_until(address_changed).boxed())
        })
    }

    fn encoding(&self) -> Option<EncodingInUse> {
        let last = self.encoding.load_full()?;
        // A locked decoder is decoding a body: then the encoding of the last answer is returned.
        let now = self.decoder.try_lock().map(|decoder| decoder.encoding(self.options.metadata_only));
        let is_given_up = |now: &EncodingInUse| last.reason != Some(JsonReason::Configured) && now.fallback().is_some();
        Some(now.filter(is_given_up).unwrap_or_else(|| EncodingInUse::clone(&last)))
    }

    fn trim(&self) {
        self.decoder.lock().trim();
    }
}

#[cfg(test)]
#[path = "kube_tests.rs"]
mod tests;

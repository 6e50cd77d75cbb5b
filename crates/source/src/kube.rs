//! One resource of one real cluster, listed and watched.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::live::{Live, Made};
use super::pump::{Intake, ListIntake, Pieces, WatchIntake, pump};
use super::request::{Get, Query, encode, transient};
use informer_hub_codec::{Decoder, MAX_OBJECT_BYTES};
use informer_hub_reflector::{
    ErrorClass, ListRequest, ListStream, ListerWatcher, SourceError, StallPolicy, VersionMatch, WatchRequest,
    WatchStream,
};
use informer_hub_types::{ApiResource, Scope, Threads};

/// What can be set of a [`KubeSource`].
#[derive(Debug, Clone)]
pub struct KubeSourceOptions {
    /// Whether only `metadata` is asked for (`PartialObjectMetadata`). Default false.
    pub metadata_only: bool,
    /// Whether lists may come gzipped. Watches never do: an apiserver may compress each event by itself, which
    /// decoders take for the end of the body. Default true.
    pub compression: bool,
    /// Whether some of the changes that a watch brings begin traces. Default true.
    pub traces: bool,
    /// Largest object that is taken in. Default [`MAX_OBJECT_BYTES`].
    pub max_object_bytes: usize,
    /// How long silence is borne.
    pub stall: StallPolicy,
}

impl Default for KubeSourceOptions {
    fn default() -> Self {
        let stall = StallPolicy::default();
        Self { metadata_only: false, compression: true, traces: true, max_object_bytes: MAX_OBJECT_BYTES, stall }
    }
}

/// Lists and watches one resource of one cluster over HTTP.
///
/// Each request has a task on the `io` runtime, which reads the socket, decodes, and hands on batches through a
/// bounded channel; while nobody takes them it goes on reading and merges, up to a bound. The decoder (and with it
/// the shared strings) lives as long as the source.
pub struct KubeSource {
    live: Arc<Live>,
    /// Of the address whose versions are known, that of the last list.
    epoch: AtomicU64,
    resource: ApiResource,
    scope: Scope,
    decoder: Arc<Mutex<Decoder>>,
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
    /// A source for the resource that `decoder` decodes. `io` is the runtime on which clients are made.
    pub(super) fn new(
        live: Arc<Live>,
        scope: Scope,
        decoder: Decoder,
        options: KubeSourceOptions,
        io: Threads,
    ) -> Self {
        let resource = decoder.resource().clone();
        let epoch = AtomicU64::new(live.made().epoch);
        Self { live, epoch, resource, scope, decoder: Arc::new(Mutex::new(decoder)), options, io }
    }

    /// The client for a request, unless that rests on what another address has said.
    fn made(&self, is_based: bool) -> Result<Arc<Made>, SourceError> {
        let made = self.live.made();
        if self.epoch.swap(made.epoch, SeqCst) != made.epoch && is_based {
            let message = "the cluster has another address now, and all is listed there anew".to_owned();
            return Err(SourceError { class: ErrorClass::Expired, message });
        }
        Ok(made)
    }

    fn path(&self) -> String {
        collection(&self.resource, &self.scope)
    }

    fn selectors(&self) -> Query {
        selectors(&self.scope)
    }

    fn list_request(&self, request: &ListRequest) -> Get {
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
                // With a limit, and only then, a version alone would mean exactly that one.
                if request.limit.is_some() {
                    query.add("resourceVersionMatch", "NotOlderThan");
                }
            }
        }
        let accept = if self.options.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        } else {
            "application/json"
        };
        Get { path: self.path(), query, accept, compressed: self.options.compression }
    }

    fn watch_request(&self, request: &WatchRequest) -> Get {
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
        let accept = if self.options.metadata_only {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        } else {
            "application/json"
        };
        Get { path: self.path(), query, accept, compressed: false }
    }

    /// Sends a request from a task of its own and hands on what comes.
    fn start<I: Intake>(
        &self,
        mut get: Get,
        made: Arc<Made>,
        intake: I,
        head: Duration,
        silence: Duration,
    ) -> BoxFuture<'static, Result<Pieces<I::Batch>, SourceError>> {
        let (live, io) = (Arc::clone(&self.live), self.io.clone());
        get.compressed &= made.compression;
        Box::pin(async move {
            let (opened, answer) = oneshot::channel();
            let (out, pieces) = mpsc::channel(I::BATCHES);
            let task = io.spawn(async move {
                let response = match get.open(&made.client, head).await {
                    Ok(response) => response,
                    Err(error) => {
                        if error.class == ErrorClass::Unauthorized {
                            live.refused();
                        }
                        // Nobody waiting is no loss.
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                if opened.send(Ok(())).is_ok() {
                    pump(response.into_body(), intake, out, silence).await;
                }
            });
            let pieces = Pieces::new(pieces, task);
            match answer.await {
                Ok(Ok(())) => Ok(pieces),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(transient("the reading task died".to_owned())),
            }
        })
    }
}

/// A collection's path, percent-encoded.
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

/// The selectors of a scope as the apiserver takes them.
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

impl ListerWatcher for KubeSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let stall = self.options.stall;
        let intake = ListIntake::new(Arc::clone(&self.decoder), self.options.max_object_bytes);
        let is_based = request.continue_token.is_some() || matches!(request.version, VersionMatch::NotOlderThan(_));
        let made = match self.made(is_based) {
            Ok(made) => made,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let start = self.start(self.list_request(&request), made, intake, stall.list_head, stall.list_chunk);
        Box::pin(async move { Ok(start.await?.boxed()) })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let KubeSourceOptions { stall, traces, max_object_bytes, .. } = self.options;
        let decoder = Arc::clone(&self.decoder);
        let intake = WatchIntake::new(decoder, max_object_bytes, request.initial_events, traces);
        let silence = request.timeout + stall.watch_slack;
        let made = match self.made(matches!(request.version, VersionMatch::NotOlderThan(_))) {
            Ok(made) => made,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let (epoch, mut epochs) = (made.epoch, self.live.epochs());
        let start = self.start(self.watch_request(&request), made, intake, stall.watch_head, silence);
        Box::pin(async move {
            // An error means that the client is gone, and its requests with it.
            let moved = async move { drop(epochs.wait_for(|now| *now != epoch).await) };
            Ok(start.await?.take_until(moved).boxed())
        })
    }

    fn trim(&self) {
        self.decoder.lock().trim();
    }
}

#[cfg(test)]
#[path = "kube_tests.rs"]
mod tests;

//! Answers to requests for documents: version, discovery, OpenAPI, health.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;

use super::ReadApi;
use super::fleet::{ClusterInfo, FetchError, Fleet};
use super::respond::{json_response, response};
use super::scope::{Clusters, is_listed};
use crate::api::notes::Notes;
use crate::api::rights::sees_cluster;
use informer_hub_access::Reader;
use informer_hub_kubeapi::{
    Document, Form, Protobuf, Root, Served, ServedVersion, Status, discovery_document, negotiate, version_document,
};
use informer_hub_types::ClusterName;
use informer_hub_types::View;
use informer_hub_types::clock::{self, Instant};

/// How long an OpenAPI document is used before it is fetched again.
const KEPT: Duration = Duration::from_secs(300);

/// Longest wait for a cluster's document.
const WAIT: Duration = Duration::from_secs(10);

/// Maximum size of all kept OpenAPI documents, in bytes.
const MAX_KEPT: usize = 32 << 20;

/// Cache of documents that come from clusters.
#[derive(Debug, Default)]
pub(super) struct Documents {
    known: Mutex<BTreeMap<(ClusterName, String), (Instant, Bytes)>>,
}

impl Documents {
    pub(super) async fn answer(
        &self,
        api: &Arc<ReadApi>,
        fleet: &dyn Fleet,
        root: &Root,
        document: &Document,
        (reader, accept, notes): (&Reader, Option<&str>, &Notes),
    ) -> Result<Response, Status> {
        let (clusters, _) = Clusters::of(root);
        let mut found = clusters.find(fleet);
        let is_known = !found.is_empty();
        found.retain(|cluster| sees_cluster(reader, &cluster.name, &cluster.labels));
        if let (Clusters::One(name), true) = (&clusters, found.is_empty()) {
            if is_known {
                notes.withhold();
            }
            let status = Status::path_not_found();
            return Err(Status {
                message: format!("the hub has no cluster {name}: /v1/status lists its clusters"),
                ..status
            });
        }
        match document {
            Document::Health => Ok(response(StatusCode::OK, "text/plain; charset=utf-8", Body::from("ok"))),
            Document::Version => version(&found).map(|version| json_response(StatusCode::OK, version)),
            Document::CoreVersions | Document::Groups | Document::Group(_) | Document::Resources { .. } => {
                self.discovery(api, fleet, &clusters, document, (reader, accept)).await
            }
            Document::OpenApiV2 => self.of_cluster(fleet, &found, "/openapi/v2".to_owned(), accept).await,
            Document::OpenApiV3(rest) if rest.is_empty() => {
                self.of_cluster(fleet, &found, "/openapi/v3".to_owned(), accept).await
            }
            Document::OpenApiV3(rest) => self.of_cluster(fleet, &found, format!("/openapi/v3/{rest}"), accept).await,
        }
    }

    async fn discovery(
        &self,
        api: &Arc<ReadApi>,
        fleet: &dyn Fleet,
        clusters: &Clusters,
        document: &Document,
        (reader, accept): (&Reader, Option<&str>),
    ) -> Result<Response, Status> {
        let can_aggregate = matches!(document, Document::CoreVersions | Document::Groups);
        let offered: &[Form] = if can_aggregate { &[Form::AggregatedDiscovery] } else { &[] };
        let accepted = negotiate(accept, offered, Protobuf::Never, false)?;
        let mut served: Vec<Served> = Vec::new();
        for cache in fleet.caches() {
            let is_served =
                cache.view != View::Metadata || !served.iter().any(|known| known.resource == cache.resource);
            let visibility = api.rights.visibility(reader, &cache.resource);
            if is_served && is_listed(&cache, clusters, &visibility) {
                let definition = api.definitions.of_resource(fleet, &cache, clusters, reader).await;
                served.retain(|known| known.resource != cache.resource);
                served.push(definition.served);
            }
        }
        let json = discovery_document(document, accepted.form, &served).ok_or_else(Status::path_not_found)?;
        let body = super::encode::to_media(json, accepted.media, false);
        Ok(response(StatusCode::OK, accepted.content_type(), Body::from(body)))
    }

    /// Returns a document of the reachable cluster with the newest Kubernetes version. If that cluster does not answer,
    /// asks the clusters with the second and third newest version. If none of the three answers, uses a cached
    /// document, even if it is outdated.
    async fn of_cluster(
        &self,
        fleet: &dyn Fleet,
        found: &[ClusterInfo],
        path: String,
        accept: Option<&str>,
    ) -> Result<Response, Status> {
        // Refuses clients that accept only protobuf.
        negotiate(accept, &[], Protobuf::Never, false)?;
        let mut newest: Vec<_> = found.iter().filter(|cluster| cluster.is_reachable).collect();
        newest.sort_by_key(|cluster| std::cmp::Reverse(parts(cluster.version.as_deref().unwrap_or_default())));
        for cluster in newest.iter().take(3) {
            let key = (cluster.name.clone(), path.clone());
            if let Some((_, known)) = self.known.lock().get(&key).filter(|(until, _)| clock::now() < *until) {
                return Ok(json_response(StatusCode::OK, known.clone()));
            }
            match tokio::time::timeout(WAIT, fleet.fetch(&cluster.name, path.clone())).await {
                Ok(Ok(document)) => {
                    self.keep(key, document.clone());
                    return Ok(json_response(StatusCode::OK, document));
                }
                Ok(Err(FetchError::Missing)) => return Err(Status::path_not_found()),
                Ok(Err(FetchError::Unavailable)) | Err(_) => {}
            }
        }
        let known = self.known.lock();
        let kept = found.iter().find_map(|cluster| known.get(&(cluster.name.clone(), path.clone())));
        if let Some((_, kept)) = kept {
            return Ok(json_response(StatusCode::OK, kept.clone()));
        }
        let text = "no cluster at this path answers, and the OpenAPI document is not cached";
        Err(Status { retry_after: Some(5), ..Status::service_unavailable(text) })
    }

    fn keep(&self, key: (ClusterName, String), document: Bytes) {
        let mut known = self.known.lock();
        let bytes: usize = known.values().map(|(_, document)| document.len()).sum();
        if bytes + document.len() > MAX_KEPT {
            known.clear();
        }
        known.insert(key, (clock::now() + KEPT, document));
    }
}

/// Returns `/version` of the cluster with the newest Kubernetes version. Fails if no version is known, because a
/// made-up one would mislead clients.
fn version(clusters: &[ClusterInfo]) -> Result<Vec<u8>, Status> {
    let newest = clusters.iter().filter_map(|cluster| cluster.version.as_deref()).max_by_key(|version| parts(version));
    let Some(git_version) = newest else {
        let text = "no cluster at this path has answered yet, so the Kubernetes version is not known";
        return Err(Status { retry_after: Some(5), ..Status::service_unavailable(text) });
    };
    let numbers = parts(git_version);
    let number = |at: usize| numbers.get(at).copied().unwrap_or_default().to_string();
    let served = ServedVersion { git_version: git_version.to_owned(), major: number(0), minor: number(1) };
    Ok(version_document(&served))
}

/// Returns the first three numbers of a version: `[1, 36, 3]` for `v1.36.3`.
fn parts(version: &str) -> Vec<u64> {
    let digits = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    digits.take(3).map_while(|part| part.parse().ok()).collect()
}

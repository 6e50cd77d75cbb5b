//! Discovery of all watchable resources of a cluster. The aggregated documents of `/api` and `/apis` need two requests,
//! which use ETags.
//!
//! Servers before Kubernetes 1.27 do not aggregate. Their groups and versions are requested one by one.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use kube::Client;
use serde::Deserialize;

use super::discovery::{AT_ONCE, DEADLINE, Group, GroupList, MAX_DOCUMENT, Resource, ResourceList, get};
use super::request::{Get, Query, encode, stalled};
use informer_hub_codec::bounded;
use informer_hub_pool::Lane;
use informer_hub_reflector::{Discovered, ErrorClass, SourceError};
use informer_hub_types::{Catalogue, GroupOffer, Offer, VersionOffer};

/// Accepted formats, preferred first. Servers that know neither aggregated format answer with the legacy one.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Answer of `/api` or `/apis`, in the aggregated or the legacy format.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    /// Groups with their versions and resources; empty in the legacy format.
    #[serde(default)]
    items: Vec<AggregatedGroup>,
    /// Groups and their version names in the legacy format of `/apis`; empty in the aggregated format.
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize, Default)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

/// Discovers the resources of a cluster; `None` if they are unchanged since the earlier result `known`. Takes at most
/// 15 s. Call it on the client's runtime.
///
/// # Errors
/// The request fails, or the answer is not a discovery document. If a group's aggregated API is down, the group is stale
/// in the catalogue; this is not an error.
pub(super) async fn catalogue(client: &Client, known: Option<&Discovered>) -> Result<Option<Discovered>, SourceError> {
    let discovery = discover_unless(client, known);
    let late = |_| stalled(&format!("discovery did not finish within {} s", DEADLINE.as_secs()));
    tokio::time::timeout(DEADLINE, discovery).await.map_err(late)?
}

/// Discovers the watchable resources of a cluster. Takes at most 15 s. Call it on the client's runtime.
///
/// # Errors
/// The request fails, or the answer is not a discovery document.
pub async fn discover_catalogue(client: &Client) -> Result<Catalogue, SourceError> {
    let found = catalogue(client, None).await?;
    Ok(found.map(|found| Catalogue::clone(&found.catalogue)).unwrap_or_default())
}

async fn discover_unless(client: &Client, known: Option<&Discovered>) -> Result<Option<Discovered>, SourceError> {
    let tag = known.and_then(|known| known.groups_tag.as_deref());
    let Some((groups, groups_tag)) = fetch(client, "/apis", tag).await? else { return Ok(None) };
    // If `/apis` is unchanged, `/api` is not requested: the core group changes only with the apiserver's release, which
    // changes the other groups too.
    let core_known = known.and_then(|known| Some((known.core_tag.as_deref()?, known.catalogue.groups.first()?)));
    let core = fetch(client, "/api", core_known.map(|(tag, _)| tag)).await?;
    let (mut offers, core_tag) = match (core, core_known) {
        (None, Some((tag, core))) => (vec![core.clone()], Some(tag.to_owned())),
        (None, None) => (Vec::new(), None),
        (Some((document, tag)), _) if is_aggregated(&document) => (offers_of(document.items), tag),
        (Some(_), _) => (vec![legacy_group(client, "", &["v1"]).await?], None),
    };
    if is_aggregated(&groups) {
        offers.extend(offers_of(groups.items));
    } else {
        offers.extend(legacy_groups(client, groups.groups).await?);
    }
    let catalogue = Catalogue { groups: offers };
    if known.is_some_and(|known| *known.catalogue == catalogue && known.groups_tag == groups_tag) {
        return Ok(None);
    }
    Ok(Some(Discovered { catalogue: Arc::new(catalogue), core_tag, groups_tag }))
}

fn is_aggregated(document: &Document) -> bool {
    document.kind == "APIGroupDiscoveryList"
}

async fn fetch(
    client: &Client,
    path: &str,
    tag: Option<&str>,
) -> Result<Option<(Document, Option<String>)>, SourceError> {
    let request = Get {
        path: path.to_owned(),
        query: Query::default(),
        accept: ACCEPT,
        fallback: None,
        compressed: true,
        lane: Lane::Watch,
    };
    let Some((body, tag)) = request.fetch_unless(tag, client, MAX_DOCUMENT, DEADLINE).await? else { return Ok(None) };
    let document: Document = serde_json::from_slice(&body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!("GET {path}: not a discovery document: line {line} column {column}");
        SourceError { class: ErrorClass::Malformed, message: bounded(&message) }
    })?;
    if !matches!(document.kind.as_str(), "APIGroupDiscoveryList" | "APIGroupList" | "APIVersions") {
        let message = format!("GET {path}: not a discovery document, but of kind {:?}", document.kind);
        return Err(SourceError { class: ErrorClass::Malformed, message: bounded(&message) });
    }
    Ok(Some((document, tag)))
}

fn offers_of(groups: Vec<AggregatedGroup>) -> Vec<GroupOffer> {
    let version = |version: AggregatedVersion| VersionOffer {
        name: version.version.into(),
        is_stale: version.freshness == "Stale",
        resources: version.resources.into_iter().filter_map(AggregatedResource::offer).collect(),
    };
    let group = |group: AggregatedGroup| GroupOffer {
        name: group.metadata.name.into(),
        versions: group.versions.into_iter().map(version).collect(),
    };
    groups.into_iter().map(group).collect()
}

impl AggregatedResource {
    /// Returns the resource for the catalogue; `None` if it cannot be listed and watched.
    fn offer(self) -> Option<Offer> {
        let can = |verb: &str| self.verbs.iter().any(|known| known == verb);
        (can("list") && can("watch")).then(|| Offer {
            plural: self.resource.into(),
            singular: self.singular_resource.into(),
            short_names: self.short_names.into_iter().map(Into::into).collect(),
            kind: self.response_kind.kind.into(),
            namespaced: self.scope == "Namespaced",
        })
    }
}

async fn legacy_groups(client: &Client, groups: Vec<Group>) -> Result<Vec<GroupOffer>, SourceError> {
    let list = GroupList { groups };
    let asked = list.groups.iter().map(|group| async { legacy_group(client, &group.name, &group.versions()).await });
    let asked: Vec<_> = asked.collect();
    let mut answers = std::pin::pin!(stream::iter(asked).buffered(AT_ONCE));
    let mut offers = Vec::new();
    while let Some(offer) = answers.next().await {
        offers.push(offer?);
    }
    Ok(offers)
}

/// Discovers a group with one request for each of its versions. Leaves out versions that answer 404, and marks versions
/// with other failures as stale. Returns an error if the server is down or refuses the credentials.
async fn legacy_group(client: &Client, group: &str, versions: &[&str]) -> Result<GroupOffer, SourceError> {
    let mut offers = Vec::new();
    for version in versions {
        let mut path = String::from(if group.is_empty() { "/api" } else { "/apis" });
        for part in [group, version].into_iter().filter(|part| !part.is_empty()) {
            path.push('/');
            encode(part, &mut path);
        }
        let (resources, is_stale) = match get::<ResourceList>(client, path).await {
            Ok(list) => (list.resources, false),
            Err(error) if error.class == ErrorClass::NotFound => continue,
            Err(error) if matches!(error.class, ErrorClass::Refused | ErrorClass::Unauthorized) => return Err(error),
            Err(_) => (Vec::new(), true),
        };
        let offered = resources.into_iter().filter(Resource::is_watchable).map(|resource| Offer {
            plural: resource.name.into(),
            singular: resource.singular_name.into(),
            short_names: resource.short_names.into_iter().flatten().map(Into::into).collect(),
            kind: resource.kind.into(),
            namespaced: resource.namespaced,
        });
        offers.push(VersionOffer { name: (*version).into(), is_stale, resources: offered.collect() });
    }
    Ok(GroupOffer { name: group.into(), versions: offers })
}

#[cfg(test)]
mod tests {
    use super::super::testserver::{Act, TestServer, failure, head, json};
    use super::*;

    const GROUPS: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
        {"metadata":{"name":"example.com"},"versions":[
            {"version":"v1","freshness":"Current","resources":[
                {"resource":"widgets","responseKind":{"kind":"Widget"},"scope":"Namespaced","singularResource":"widget",
                 "verbs":["get","list","watch"],"shortNames":["wd"]},
                {"resource":"reviews","responseKind":{"kind":"Review"},"scope":"Cluster","verbs":["create"]}]}]},
        {"metadata":{"name":"down.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#;
    const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","resources":[
        {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","singularResource":"node",
         "verbs":["list","watch"]}]}]}]}"#;

    fn tagged(tag: &str, body: &str) -> Vec<Act> {
        vec![head("200 OK", &format!("Content-Type: application/json\r\nETag: \"{tag}\"\r\n")), Act::Send(body.into())]
    }

    fn names(catalogue: &Catalogue) -> Vec<String> {
        let text = |resource: &informer_hub_types::ApiResource| {
            format!("{} {}{}", resource.gvr.long(), resource.kind, if resource.namespaced { "" } else { " cluster" })
        };
        catalogue.resources().iter().map(|(resource, _)| text(resource)).collect()
    }

    #[tokio::test]
    async fn aggregated_discovery_is_read_once_then_requested_by_etag() {
        let server = TestServer::start(|request| {
            let is_known = request.to_ascii_lowercase().contains("if-none-match");
            match request.split(' ').nth(1).unwrap_or_default() {
                "/apis" if is_known => vec![head("304 Not Modified", "")],
                "/apis" => tagged("g", GROUPS),
                "/api" => tagged("c", CORE),
                _ => failure(404, "NotFound", ""),
            }
        })
        .await;
        let client = server.client().await;
        let found = catalogue(&client, None).await.unwrap().unwrap();
        assert_eq!(names(&found.catalogue), ["nodes.v1. Node cluster", "widgets.v1.example.com Widget"]);
        assert!(found.catalogue.is_stale("down.example.com") && !found.catalogue.is_stale("example.com"));
        assert_eq!((found.groups_tag.as_deref(), found.core_tag.as_deref()), (Some("\"g\""), Some("\"c\"")));
        assert!(catalogue(&client, Some(&found)).await.unwrap().is_none());
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "{requests:#?}");
        assert!(requests[2].to_ascii_lowercase().contains("if-none-match: \"g\""), "{}", requests[2]);
    }

    #[tokio::test]
    async fn legacy_discovery_requests_each_version() {
        let list = |plural: &str, kind: &str| {
            json(&format!(
                r#"{{"kind":"APIResourceList","resources":[{{"name":"{plural}","singularName":"","kind":"{kind}","namespaced":true,"verbs":["list","watch"]}}]}}"#
            ))
        };
        let server = TestServer::start(move |request| match request.split(' ').nth(1).unwrap_or_default() {
            "/api" => json(r#"{"kind":"APIVersions","versions":["v1"]}"#),
            "/apis" => json(
                r#"{"kind":"APIGroupList","groups":[{"name":"example.com","preferredVersion":{"version":"v2"},
                "versions":[{"version":"v1"},{"version":"v2"}]},{"name":"down.com","versions":[{"version":"v1"}]}]}"#,
            ),
            "/api/v1" => list("pods", "Pod"),
            "/apis/example.com/v1" => list("carts", "Cart"),
            "/apis/example.com/v2" => list("widgets", "Widget"),
            "/apis/down.com/v1" => failure(503, "ServiceUnavailable", ""),
            _ => failure(404, "NotFound", ""),
        })
        .await;
        let client = server.client().await;
        let found = catalogue(&client, None).await.unwrap().unwrap();
        let expected = ["pods.v1. Pod", "widgets.v2.example.com Widget", "carts.v1.example.com Cart"];
        assert_eq!(names(&found.catalogue), expected);
        assert!(found.catalogue.is_stale("down.com"));
        assert!(catalogue(&client, Some(&found)).await.unwrap().is_none(), "nothing has changed");
    }

    #[tokio::test]
    async fn answer_that_is_not_discovery_is_an_error() {
        for answer in [json("{}"), json("[1]"), json(r#"{"kind":"Status"}"#), failure(500, "InternalError", "")] {
            let server = TestServer::always(answer).await;
            assert!(catalogue(&server.client().await, None).await.is_err());
        }
    }
}

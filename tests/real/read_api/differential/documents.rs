//! Documents beside the resources: discovery, version and OpenAPI.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::read_api::endpoint::Endpoint;
use crate::read_api::resources::{RESOURCES, Resource};

/// `Accept` header of kubectl for discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Verifies that the hub's documents are those of the apiserver, limited to the resources that it caches and to
/// reading.
pub(super) async fn compare(apiserver: &Endpoint, hub: &Endpoint) {
    let [kube, hub_version] = [apiserver, hub].map(|endpoint| document(endpoint, "/version", None));
    let (kube, hub_version) = (kube.await, hub_version.await);
    assert_eq!(hub_version["gitVersion"], kube["gitVersion"], "/version");
    let mut versions: Vec<_> = RESOURCES.iter().map(Resource::version_path).collect();
    versions.sort();
    versions.dedup();
    for path in &versions {
        let (kube, hub) = tokio::join!(document(apiserver, path, None), document(hub, path, None));
        let (mut kube, mut hub) = (kube, hub);
        limit(&mut kube["resources"], path);
        hub["resources"].as_array_mut().unwrap().sort_by_key(|resource| resource["name"].to_string());
        assert_eq!(hub, kube, "{path}");
    }
    for path in ["/api", "/apis"] {
        let accept = Some(AGGREGATED);
        let (kube, hub) = tokio::join!(document(apiserver, path, accept), document(hub, path, accept));
        assert_eq!(aggregated(&hub), aggregated(&kube), "{path}");
    }
    let (kube, of_hub) = tokio::join!(document(apiserver, "/openapi/v3", None), document(hub, "/openapi/v3", None));
    for path in versions.iter().map(|path| path.trim_start_matches('/')) {
        assert!(kube["paths"][path].is_object(), "{path} in {kube}");
        assert!(of_hub["paths"][path].is_object(), "{path} in {of_hub}");
        let url = of_hub["paths"][path]["serverRelativeURL"].as_str().unwrap();
        let schemas = document(hub, url, None).await;
        assert!(schemas["components"]["schemas"].is_object(), "{url}");
    }
}

async fn document(endpoint: &Endpoint, path: &str, accept: Option<&str>) -> Value {
    let answer = endpoint.get(path, accept).await;
    assert!(answer.status.is_success(), "{}{path}: {answer:?}", endpoint.url());
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {answer:?}"))
}

/// Limits an apiserver's resources to what the hub caches and to reading.
fn limit(resources: &mut Value, path: &str) {
    let all = resources.as_array_mut().unwrap();
    all.retain(|resource| RESOURCES.iter().any(|it| it.version_path() == path && resource["name"] == it.plural));
    all.sort_by_key(|resource| resource["name"].to_string());
    for resource in all {
        resource["verbs"] = json!(["get", "list", "watch"]);
        resource.as_object_mut().unwrap().remove("storageVersionHash");
    }
}

/// Returns the resources of aggregated discovery, limited as by [`limit`], by group, version and name.
fn aggregated(document: &Value) -> BTreeMap<(String, String, String), Value> {
    let mut all = BTreeMap::new();
    for group in document["items"].as_array().unwrap() {
        let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().unwrap() {
            let version_name = version["version"].as_str().unwrap();
            for resource in version["resources"].as_array().into_iter().flatten() {
                let plural = resource["resource"].as_str().unwrap();
                let is_cached =
                    RESOURCES.iter().any(|it| (it.group, it.version, it.plural) == (group_name, version_name, plural));
                if is_cached {
                    let mut resource = resource.clone();
                    resource["verbs"] = json!(["get", "list", "watch"]);
                    resource.as_object_mut().unwrap().remove("subresources");
                    all.insert((group_name.to_owned(), version_name.to_owned(), plural.to_owned()), resource);
                }
            }
        }
    }
    all
}

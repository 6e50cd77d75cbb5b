//! Lookup of a resource by the name in the configuration: plural, singular or short name.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::request::{Get, Query, encode, stalled};
use informer_hub_codec::{ErrorClass, SourceError, bounded};
use informer_hub_pool::Lane;
use informer_hub_types::{ApiResource, Gvr, ResourceRef, nearest};

/// Deadline of a lookup or a discovery.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);
/// Size limit of a discovery document, in bytes.
pub(super) const MAX_DOCUMENT: usize = 8 * 1024 * 1024;
/// Maximum number of concurrent requests of a lookup or a discovery.
pub(super) const AT_ONCE: usize = 8;

/// Error of a failed resource lookup.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DiscoveryError {
    /// The cluster has no such resource that can be listed and watched. Correct the name, or install the resource.
    #[error("the cluster has no resource {resource:?}{}", suggestion(nearest))]
    NotFound {
        /// The requested name.
        resource: String,
        /// Similar names in the cluster, nearest first.
        nearest: Vec<String>,
    },
    /// The cluster did not answer, or an API group that may have the resource did not answer. The class of the error
    /// decides whether to retry.
    #[error(transparent)]
    Unavailable(#[from] SourceError),
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; known: {}", nearest.join(", ")) }
}

#[derive(Deserialize)]
pub(super) struct GroupList {
    #[serde(default)]
    pub(super) groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    #[serde(default)]
    pub(super) name: String,
    preferred_version: Option<GroupVersion>,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

impl Group {
    pub(super) fn versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self.preferred_version.iter().map(|v| v.version.as_str()).collect();
        for version in &self.versions {
            if !versions.contains(&version.version.as_str()) {
                versions.push(&version.version);
            }
        }
        versions
    }
}

#[derive(Deserialize)]
pub(super) struct ResourceList {
    #[serde(default)]
    pub(super) resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource {
    pub(super) name: String,
    #[serde(default)]
    pub(super) singular_name: String,
    #[serde(default)]
    pub(super) namespaced: bool,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    pub(super) short_names: Option<Vec<String>>,
}

impl Resource {
    fn names(&self) -> impl Iterator<Item = &str> {
        let singular = Some(self.singular_name.as_str()).filter(|name| !name.is_empty());
        let short = self.short_names.iter().flatten().map(String::as_str);
        std::iter::once(self.name.as_str()).chain(singular).chain(short)
    }

    /// Returns whether `name` is the resource's plural, singular or short name. If the server omits the singular name,
    /// the kind counts instead, in upper or lower case.
    fn is_called(&self, name: &str) -> bool {
        self.names().any(|known| known == name) || self.singular_name.is_empty() && self.kind.eq_ignore_ascii_case(name)
    }

    /// Returns whether the resource can be listed and watched and is not a subresource.
    pub(super) fn is_watchable(&self) -> bool {
        let can = |verb: &str| self.verbs.iter().any(|known| known == verb);
        !self.name.contains('/') && can("list") && can("watch")
    }
}

struct Search<'s> {
    client: &'s Client,
    reference: &'s ResourceRef,
    /// Names that did not match, as `name` or `name.group`, for suggestions in the error.
    seen: Vec<String>,
    /// Error of the first API group that did not answer. Ignored if another group has the resource.
    unavailable: Option<SourceError>,
}

/// Finds a resource by its plural, singular or short name.
///
/// A name without a group is searched in the core group, then in the other groups in server order, each in its preferred
/// version. A group that does not answer is an error only if no other group has the resource. Takes at most 15 s. Call it
/// on the client's runtime.
///
/// # Errors
/// See [`DiscoveryError`].
pub async fn resolve(client: &Client, reference: &ResourceRef) -> Result<ApiResource, DiscoveryError> {
    let search = Search { client, reference, seen: Vec::new(), unavailable: None };
    if let Ok(found) = tokio::time::timeout(DEADLINE, search.run()).await {
        found
    } else {
        let message = format!("discovery did not finish within {} s", DEADLINE.as_secs());
        Err(stalled(&message).into())
    }
}

impl Search<'_> {
    async fn run(mut self) -> Result<ApiResource, DiscoveryError> {
        let version = self.reference.version.as_deref();
        let found = match self.reference.group.as_deref() {
            Some("") => self.search_versions(&[("", version.unwrap_or("v1"))]).await,
            Some(group) => match version {
                Some(version) => self.search_versions(&[(group, version)]).await,
                None => self.search_group(group).await?,
            },
            None => match self.search_versions(&[("", "v1")]).await {
                Some(found) => Some(found),
                None => self.search_all_groups().await?,
            },
        };
        match (found, self.unavailable) {
            (Some(found), _) => Ok(found),
            (None, Some(error)) => Err(error.into()),
            (None, None) => {
                let resource = self.reference.to_string();
                Err(DiscoveryError::NotFound { nearest: nearest(&resource, self.seen), resource })
            }
        }
    }

    async fn search_group(&mut self, name: &str) -> Result<Option<ApiResource>, SourceError> {
        let mut path = String::from("/apis/");
        encode(name, &mut path);
        match get::<Group>(self.client, path).await {
            Ok(group) => {
                let versions: Vec<_> = group.versions().into_iter().map(|version| (name, version)).collect();
                Ok(self.search_versions(&versions).await)
            }
            Err(error) if error.class == ErrorClass::NotFound => {
                // The group does not exist: suggest the same resource name in the existing groups.
                let groups: Result<GroupList, _> = get(self.client, "/apis".to_owned()).await;
                let names = groups.map(|list| list.groups).unwrap_or_default().into_iter().map(|group| group.name);
                self.seen.extend(names.map(|group| format!("{}.{group}", self.reference.resource)));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn search_all_groups(&mut self) -> Result<Option<ApiResource>, SourceError> {
        let list: GroupList = get(self.client, "/apis".to_owned()).await?;
        let preferred = |group| Some((Group::versions(group).first().copied()?, group.name.as_str()));
        let places: Vec<_> =
            list.groups.iter().filter_map(preferred).map(|(version, group)| (group, version)).collect();
        Ok(self.search_versions(&places).await)
    }

    /// Returns the resource from the first of these API groups and versions that has it; `None` if none has it.
    /// Requests several of them concurrently.
    async fn search_versions(&mut self, places: &[(&str, &str)]) -> Option<ApiResource> {
        let paths = places.iter().map(|(group, version)| {
            let mut path = String::from(if group.is_empty() { "/api" } else { "/apis" });
            for part in [group, version].into_iter().filter(|part| !part.is_empty()) {
                path.push('/');
                encode(part, &mut path);
            }
            path
        });
        let paths: Vec<_> = paths.collect();
        let requests = paths.into_iter().map(|path| {
            let client = self.client.clone();
            async move { get::<ResourceList>(&client, path).await }
        });
        let answers = stream::iter(requests).buffered(AT_ONCE);
        let mut answers = std::pin::pin!(stream::iter(places).zip(answers));
        while let Some((&(group, version), answer)) = answers.next().await {
            match answer {
                Ok(list) => {
                    if let Some(found) = self.pick(group, version, &list.resources) {
                        return Some(found);
                    }
                }
                Err(error) if error.class == ErrorClass::NotFound => {}
                Err(error) => drop(self.unavailable.get_or_insert(error)),
            }
        }
        None
    }

    /// Returns the resource with this plural name, or else with this singular or short name. If none matches, records
    /// all names for suggestions and returns `None`.
    fn pick(&mut self, group: &str, version: &str, resources: &[Resource]) -> Option<ApiResource> {
        let reference = self.reference.resource.as_str();
        let watchable = || resources.iter().filter(|resource| resource.is_watchable());
        let found = watchable().find(|r| r.name == reference).or_else(|| watchable().find(|r| r.is_called(reference)));
        if found.is_none() {
            for resource in watchable() {
                let full = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
                self.seen.extend(resource.names().map(full));
            }
        }
        found.map(|resource| ApiResource {
            gvr: Gvr::new(group, version, &resource.name),
            kind: resource.kind.as_str().into(),
            namespaced: resource.namespaced,
        })
    }
}

pub(super) async fn get<T: DeserializeOwned>(client: &Client, path: String) -> Result<T, SourceError> {
    let request = Get {
        path: path.clone(),
        query: Query::default(),
        accept: "application/json",
        fallback: None,
        compressed: true,
        lane: Lane::Watch,
    };
    let body = request.fetch(client, MAX_DOCUMENT, DEADLINE).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("GET {path}: not a discovery document: line {} column {}", error.line(), error.column());
        SourceError { class: ErrorClass::Malformed, message: bounded(&message) }
    })
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;

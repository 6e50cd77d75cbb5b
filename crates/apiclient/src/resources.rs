//! Resources of a hub, read from aggregated discovery.

use serde::Deserialize;

use informer_hub_types::{ApiResource, Gvr, ResourceRef, first_names, nearest_name};

/// `Accept` header of a request for aggregated discovery.
pub const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource with all its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// Group, version, plural, kind.
    pub api: ApiResource,
    /// Singular name; empty if the hub sends none.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
}

/// Resources of a hub in the order of discovery, the core group first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    all: Vec<Resource>,
}

/// Error for a name that is neither of a resource nor of a category. Holds the message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownResource(String);

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    resource: String,
    response_kind: Kind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

impl Resource {
    /// Returns whether `word` is a name of the resource: plural, singular, kind or short name.
    fn is_called(&self, word: &str) -> bool {
        let others = [self.singular.as_str()].into_iter().chain(self.short_names.iter().map(String::as_str));
        others.chain([&*self.api.gvr.resource]).any(|name| name == word) || self.api.kind.eq_ignore_ascii_case(word)
    }

    /// Returns the start of an object's name as `-o name` prints it, such as `pod` or `deployment.apps`.
    #[must_use]
    pub fn prefix(&self) -> String {
        let singular = if self.singular.is_empty() { self.api.kind.to_lowercase() } else { self.singular.clone() };
        let group = &self.api.gvr.group;
        if group.is_empty() { singular } else { format!("{singular}.{group}") }
    }

    /// Returns the URL path segments to list the resource, below a root such as `["clusters", "*"]`. If `namespace` is
    /// `None`, the path lists all namespaces.
    #[must_use]
    pub fn path<'p>(&'p self, root: [&'p str; 2], namespace: Option<&'p str>) -> Vec<&'p str> {
        let gvr = &self.api.gvr;
        let mut path = root.to_vec();
        if gvr.group.is_empty() {
            path.extend(["api", &*gvr.version]);
        } else {
            path.extend(["apis", &*gvr.group, &*gvr.version]);
        }
        if let Some(namespace) = namespace.filter(|_| self.api.namespaced) {
            path.extend(["namespaces", namespace]);
        }
        path.push(&gvr.resource);
        path
    }
}

impl Resources {
    /// Reads the aggregated discovery documents of `/api` and `/apis`, in this order.
    ///
    /// # Errors
    /// A document is not one of aggregated discovery.
    pub fn parse<'d>(documents: impl IntoIterator<Item = &'d [u8]>) -> Result<Self, serde_json::Error> {
        let mut all = Vec::new();
        for document in documents {
            let document: Document = serde_json::from_slice(document)?;
            for group in document.items {
                for version in group.versions {
                    let of = |entry| resource(&group.metadata.name, &version.version, entry);
                    all.extend(version.resources.into_iter().map(of));
                }
            }
        }
        Ok(Self { all })
    }

    /// Returns all resources.
    #[must_use]
    pub fn all(&self) -> &[Resource] {
        &self.all
    }

    /// Returns the resource with a name, or all resources of a category such as `all`.
    ///
    /// The name may be a plural, singular, kind or short name, in any case. It may stand alone (`po`) or before its
    /// group (`deploy.apps`) or version and group (`deployments.v1.apps`). Plurals have precedence over other names.
    /// Among equal names, the first group in discovery counts.
    ///
    /// # Errors
    /// [`UnknownResource`], which suggests the nearest name.
    pub fn find(&self, written: &str) -> Result<Vec<&Resource>, UnknownResource> {
        let wanted = written.to_lowercase();
        let (word, rest) = wanted.split_once('.').unwrap_or((&wanted, ""));
        let is_placed = |it: &Resource| {
            let gvr = &it.api.gvr;
            rest.is_empty()
                || rest == gvr.group
                || rest.split_once('.') == Some((&gvr.version, &gvr.group))
                || rest == gvr.version && gvr.group.is_empty()
        };
        let placed = || self.all.iter().filter(|it| is_placed(it));
        let found = placed().find(|it| it.api.gvr.resource == word).or_else(|| placed().find(|it| it.is_called(word)));
        if let Some(found) = found {
            return Ok(vec![found]);
        }
        let mut found: Vec<&Resource> = Vec::new();
        for it in self.all.iter().filter(|it| it.categories.contains(&wanted)) {
            let is_known = |known: &&Resource| {
                let (a, b) = (&known.api.gvr, &it.api.gvr);
                (&a.group, &a.resource) == (&b.group, &b.resource)
            };
            if !found.iter().any(is_known) {
                found.push(it);
            }
        }
        if found.is_empty() { Err(self.unknown(written)) } else { Ok(found) }
    }

    fn unknown(&self, written: &str) -> UnknownResource {
        if written.to_lowercase().parse().is_ok_and(|named: ResourceRef| named.is_secrets()) {
            return UnknownResource(format!(
                "the hub has no resource {written:?} that this client may read; it serves cached Secrets with \
                 serve_secrets = true in [hub.read_api], or to readers with a rule that names secrets"
            ));
        }
        let mut known: Vec<String> = self.all.iter().map(|it| it.api.gvr.to_string()).collect();
        known.dedup();
        if known.is_empty() {
            return UnknownResource(format!(
                "the hub has no resource {written:?}, and no other resource that this token may read"
            ));
        }
        let others = self.all.iter().flat_map(|it| it.short_names.iter().chain([&it.singular]));
        let nearest = nearest_name(written, known.iter().map(String::as_str), 3)
            .or_else(|| nearest_name(written, self.all.iter().map(|it| it.api.gvr.resource.as_str()), 3))
            .or_else(|| nearest_name(written, others.map(String::as_str).filter(|name| name.len() > 3), 3));
        let hint =
            nearest.map_or_else(|| "it has: ".to_owned(), |nearest| format!("did you mean {nearest:?}? It has: "));
        UnknownResource(format!("the hub has no resource {written:?}; {hint}{}", first_names(&known)))
    }
}

fn resource(group: &str, version: &str, entry: Entry) -> Resource {
    let gvr = Gvr::new(group, version, &entry.resource);
    Resource {
        api: ApiResource { gvr, kind: entry.response_kind.kind.into(), namespaced: entry.scope == "Namespaced" },
        singular: entry.singular_resource,
        short_names: entry.short_names,
        categories: entry.categories,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources() -> Resources {
        let entry = |plural: &str, kind: &str, short: &[&str], categories: &[&str]| {
            json!({
                "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind }, "scope": "Namespaced",
                "singularResource": kind.to_lowercase(), "shortNames": short, "categories": categories,
            })
        };
        let group = |name: &str, versions: &[(&str, serde_json::Value)]| {
            let versions: Vec<_> =
                versions.iter().map(|(name, entries)| json!({ "version": name, "resources": entries })).collect();
            json!({ "metadata": { "name": name }, "versions": versions })
        };
        let core = json!({ "items": [group("", &[(
            "v1",
            json!([entry("pods", "Pod", &["po"], &["all"]), entry("events", "Event", &["ev"], &[])]),
        )])] });
        let named = json!({ "items": [
            group("apps", &[("v1", json!([entry("deployments", "Deployment", &["deploy"], &["all"])]))]),
            group("example.com", &[
                ("v1", json!([entry("widgets", "Widget", &["po"], &["all"])])),
                ("v1beta1", json!([entry("widgets", "Widget", &[], &["all"])])),
            ]),
            group("events.k8s.io", &[("v1", json!([entry("events", "Event", &[], &[])]))]),
        ] });
        let documents = [core, named].map(|document| document.to_string().into_bytes());
        Resources::parse(documents.iter().map(Vec::as_slice)).unwrap()
    }

    fn found(word: &str) -> String {
        let resources = resources();
        match resources.find(word) {
            Ok(found) => found.iter().map(|it| it.api.gvr.long()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn resources_are_found_by_all_names_that_kubectl_accepts() {
        for word in ["pods", "pod", "Pod", "PODS", "po", "pods.v1.", "pods.v1"] {
            assert_eq!(found(word), "pods.v1.", "{word}");
        }
        for word in ["deploy", "deployments.apps", "Deployment.v1.apps"] {
            assert_eq!(found(word), "deployments.v1.apps", "{word}");
        }
        assert_eq!(found("widgets"), "widgets.v1.example.com", "the preferred version");
        assert_eq!(found("widgets.v1beta1.example.com"), "widgets.v1beta1.example.com");
        assert_eq!(found("po.example.com"), "widgets.v1.example.com");
        assert_eq!((found("events").as_str(), found("ev.events.k8s.io").len() > 20), ("events.v1.", true));
        assert_eq!(found("all"), "pods.v1. deployments.v1.apps widgets.v1.example.com", "each once");
    }

    #[test]
    fn unknown_name_has_a_suggestion_and_the_known_names() {
        let known = "pods, events, deployments.apps, widgets.example.com, events.events.k8s.io";
        assert_eq!(found("podz"), format!("the hub has no resource \"podz\"; did you mean \"pods\"? It has: {known}"));
        assert!(found("deploymets").contains("did you mean \"deployments\"?"), "{}", found("deploymets"));
        assert!(found("xyzzy").starts_with("the hub has no resource \"xyzzy\"; it has: pods"));
        let none = Resources::default().find("pods").unwrap_err().to_string();
        assert!(none.ends_with("and no other resource that this token may read"), "{none}");
        for written in ["secrets", "Secret", "secrets.v1"] {
            let error = resources().find(written).unwrap_err().to_string();
            assert!(error.contains("serve_secrets = true in [hub.read_api]"), "{error}");
        }
    }

    #[test]
    fn paths_have_group_version_and_namespace() {
        let resources = resources();
        let path =
            |word: &str, namespace| resources.find(word).unwrap()[0].path(["clusters", "*"], namespace).join("/");
        assert_eq!(path("po", None), "clusters/*/api/v1/pods");
        assert_eq!(path("deploy", Some("shop")), "clusters/*/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(resources.find("deploy").unwrap()[0].prefix(), "deployment.apps");
    }
}

//! Verb and object reference of a request for the audit log, derived from its method and path.

use axum::http::{Method, Uri};

use informer_hub_audit::ObjectRef;
use informer_hub_kubeapi::{Options, ResourcePath, Target as PathTarget, parse_path};

/// Maximum length of a verb, in characters; a client may invent methods.
const MAX_VERB: usize = 32;

/// Verb and object reference of a request, as the audit event names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) verb: String,
    /// Resource, namespace and name in the path; `None` if the path names no resource.
    pub(super) object: Option<ObjectRef>,
}

impl Target {
    /// Returns verb and object reference of a request.
    ///
    /// Below the Kubernetes roots `/clusters/` and `/unique/`, verbs are those of kube-apiserver. A `/v1` path that
    /// reads objects has the verb for which the reader's rights are checked. For other paths, the verb is the method.
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        if let Ok(Some((_, PathTarget::Resource(path)))) = parse_path(uri.path()) {
            let verb = verb_of(method, &path, uri.query().unwrap_or_default());
            return Self { verb, object: Some(object_of(path)) };
        }
        let is_read = matches!(*method, Method::GET | Method::HEAD | Method::POST);
        let verb = match uri.path() {
            "/v1/query" if is_read => Some("list"),
            "/v1/events" if is_read => Some("watch"),
            path if is_read && path.starts_with("/v1/objects/") => Some("get"),
            _ => None,
        };
        Self { verb: verb.map_or_else(|| lowercase(method), str::to_owned), object: None }
    }
}

fn lowercase(method: &Method) -> String {
    method.as_str().chars().take(MAX_VERB).map(|c| c.to_ascii_lowercase()).collect()
}

fn verb_of(method: &Method, path: &ResourcePath, query: &str) -> String {
    let verb = match (method.as_str(), &path.name) {
        ("GET" | "HEAD", name) => {
            let is_watch = path.is_watch || Options::of(path, query).is_ok_and(|options| options.watch);
            match name {
                _ if path.is_watch => "watch",
                Some(_) => "get",
                None if is_watch => "watch",
                None => "list",
            }
        }
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => return lowercase(method),
    };
    verb.to_owned()
}

fn object_of(path: ResourcePath) -> ObjectRef {
    let text = |text: Option<_>| text.map(|text: smol_str::SmolStr| text.to_string()).unwrap_or_default();
    ObjectRef {
        resource: path.resource.to_string(),
        namespace: text(path.namespace),
        name: text(path.name),
        api_group: path.group.to_string(),
        api_version: path.version.to_string(),
        subresource: text(path.subresource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, uri: &str) -> (String, Option<[String; 5]>) {
        let target = Target::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let object = target.object.map(|it| [it.api_group, it.api_version, it.resource, it.namespace, it.name]);
        (target.verb, object)
    }

    #[test]
    fn verbs_and_objects_are_those_of_kube_apiserver() {
        let pods = |namespace: &str, name: &str| Some(["", "v1", "pods", namespace, name].map(str::to_owned));
        for (method, uri, verb, object) in [
            ("GET", "/clusters/a/api/v1/pods", "list", pods("", "")),
            ("GET", "/clusters/*/api/v1/pods?watch=true", "watch", pods("", "")),
            ("GET", "/clusters/a/api/v1/watch/pods", "watch", pods("", "")),
            ("GET", "/clusters/a/api/v1/pods?watch=0", "list", pods("", "")),
            ("HEAD", "/clusters/a/api/v1/namespaces/shop/pods/web", "get", pods("shop", "web")),
            ("GET", "/unique/*/api/v1/namespaces/shop/pods/a:web?watch=1", "get", pods("shop", "a:web")),
            ("PUT", "/clusters/a/api/v1/namespaces/shop/pods/web", "update", pods("shop", "web")),
            ("DELETE", "/clusters/a/api/v1/namespaces/shop/pods", "deletecollection", pods("shop", "")),
            ("PATCH", "/clusters/a/api/v1/namespaces/shop/pods/web", "patch", pods("shop", "web")),
            ("OPTIONS", "/clusters/a/api/v1/pods", "options", pods("", "")),
            ("GET", "/clusters/a/apis", "get", None),
            ("GET", "/clusters/a b/api/v1/pods", "get", None),
            ("POST", "/v1/query", "list", None),
            ("DELETE", "/v1/query", "delete", None),
            ("GET", "/v1/events?resource=pods", "watch", None),
            ("GET", "/v1/objects/a/pods/shop/web", "get", None),
            ("POST", "/v1/reload", "post", None),
            ("GET", "/no/such/path", "get", None),
        ] {
            let uri = uri.replace(' ', "%20");
            assert_eq!(of(method, &uri), (verb.to_owned(), object), "{method} {uri}");
        }
        let review = of("POST", "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        assert_eq!((review.0.as_str(), &review.1.unwrap()[2][..]), ("create", "selfsubjectaccessreviews"));
        assert_eq!(of(&"X".repeat(100), "/").0, "x".repeat(MAX_VERB));
    }
}

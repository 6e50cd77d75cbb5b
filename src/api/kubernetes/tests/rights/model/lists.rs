//! Lists, single objects and queries, in every form.

use super::super::super::*;
use super::ask::{Answered, JSON, without};
use super::{Hubs, NAMESPACES, NODES, ROOTS, encoded, is_fleet, resources};

const LISTS: [&str; 7] = [
    "?limit=1",
    "?limit=2",
    "?limit=500",
    "?labelSelector=app%3Dweb&limit=2",
    "?fieldSelector=metadata.name%3Do1",
    "?fieldSelector=metadata.namespace%3Ds&limit=1",
    "?resourceVersion=0",
];

/// `Accept` headers that select a form of list, each with query parameters.
const FORMS: [(&str, &str); 5] = [
    ("application/json;as=Table;v=v1;g=meta.k8s.io", "?limit=2"),
    ("application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=Object"),
    ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "?limit=3"),
    ("application/yaml", "?limit=2"),
    ("application/yaml;as=Table;v=v1;g=meta.k8s.io", "?includeObject=None"),
];

const FORMS_OF_ONE: [&str; 4] = [
    JSON,
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

const QUERIES: [&str; 14] = [
    "",
    "count",
    "count by namespace",
    "distinct cluster",
    "count by spec.nodeName",
    "namespace = s",
    "namespace in (s, t) and name = o1",
    "namespace prefix s and name prefix o",
    "name = o1 order by cluster desc limit 2",
    "labels(app=web) select cluster, namespace, name limit 3",
    "spec.nodeName = n1 or namespace = team-1",
    "cluster(tier=prod) and not namespace = s",
    "spec.missing = 1",
    "select cluster, name, involvedObject.uid order by name",
];

/// Returns the answers to a request and to all its further pages.
async fn pages(bench: &Bench, path: &str, accept: &str) -> Vec<Answered> {
    let (mut found, mut next) = (Vec::new(), path.to_owned());
    loop {
        let (code, warning, mut answer) = bench.ask_as(&bench.reader, &next, accept).await;
        let token = answer["metadata"]["continue"].as_str().or(answer["continue"].as_str()).map(str::to_owned);
        if is_fleet(path) {
            without(&mut answer, &["resourceVersion", "continue"]);
        } else if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("continue");
        }
        found.push((code, warning, answer));
        match token.filter(|token| !token.is_empty()) {
            // The test fleet pins no snapshots, so the continue tokens of queries do not work.
            Some(token) if !path.starts_with("/v1") => next = format!("{path}&continue={token}"),
            _ => return found,
        }
        assert!(found.len() < 100, "{path}");
    }
}

/// Compares the answers to a request, or the code of its refusal.
async fn request_agrees(hubs: &Hubs, path: &str, accept: &str, refusal: Option<u16>) {
    let found = pages(&hubs.whole, path, accept).await;
    match refusal {
        Some(code) => assert_eq!(found[0].0, code, "{path} {accept}"),
        None => assert_eq!(found, pages(&hubs.visible, path, accept).await, "{path} {accept}"),
    }
    // Error texts must not depend on hidden objects either. Exception: 403 reveals that a cluster has a resource.
    if found[0].0 >= 400 {
        let same = hubs.visible.ask_as(&hubs.whole.reader, path, accept).await;
        let is_missing = found[0].0 == 403 && same.0 == 404 && !is_fleet(path);
        assert!(is_missing || found[0] == same, "{path} {accept}: {:?} and {same:?}", found[0]);
    }
}

pub(super) async fn agree(hubs: &Hubs) {
    for root in ROOTS {
        for (number, resource) in resources().iter().enumerate() {
            let namespaces: &[Option<usize>] =
                if number == NODES { &[None] } else { &[None, Some(0), Some(1), Some(2), Some(3)] };
            for namespace in namespaces {
                let plural = &resource.gvr.resource;
                let path = match namespace {
                    Some(at) => format!("{root}/api/v1/namespaces/{}/{plural}", NAMESPACES[*at]),
                    None => format!("{root}/api/v1/{plural}"),
                };
                let refusal = hubs.refusal(root, number, *namespace);
                for options in LISTS {
                    request_agrees(hubs, &format!("{path}{options}"), JSON, refusal).await;
                }
                if namespace.is_none_or(|at| at == 1) {
                    for (accept, options) in FORMS {
                        request_agrees(hubs, &format!("{path}{options}"), accept, refusal).await;
                    }
                }
                if namespace.is_some() || number == NODES {
                    let path = format!("{path}/{}o1", if root.starts_with("/unique") { "a:" } else { "" });
                    for accept in FORMS_OF_ONE {
                        request_agrees(hubs, &path, accept, refusal).await;
                    }
                }
            }
        }
    }
}

pub(super) async fn queries_agree(hubs: &Hubs) {
    for resource in resources() {
        let is_covered = hubs.rules.iter().any(|rule| rule.covers(&resource));
        let refusal = (!is_covered).then_some(404);
        let path = |query: &str| format!("/v1/query?resource={}&q={}", resource.gvr.resource, encoded(query));
        for query in QUERIES {
            for more in ["", "&explain=true", "&clusters=tier%3Dprod"] {
                request_agrees(hubs, &(path(query) + more), JSON, refusal).await;
            }
        }
        for query in ["", "count", "count by namespace", "select cluster, namespace, name, spec.nodeName limit 4"] {
            for accept in ["application/x-ndjson", "text/csv", "text/plain"] {
                request_agrees(hubs, &path(query), accept, refusal).await;
            }
        }
    }
}

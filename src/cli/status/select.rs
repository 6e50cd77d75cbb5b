//! Selection and order of the parts of a status document, and its output for programs.

use anyhow::bail;
use serde_json::{Value, json};

use super::concern::{cluster_concern, informer_concern, sink_concern};
use super::subject::Subject;
use super::values::{list, text};
use crate::cli::print::without_kind;
use informer_hub_types::ResourceRef;

/// Names of the clusters, resources and sinks to show; an empty list selects all.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) clusters: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) sinks: Vec<String>,
}

impl Selection {
    /// Strips the kind from names of clusters and sinks as `-o name` prints them (`cluster/prod-eu`). Names of
    /// resources stay as they are (`resource/prod-eu/pods`), because their cluster is needed to find them.
    pub(super) fn without_kinds(&self) -> Self {
        let strip =
            |names: &[String], kind: &str| names.iter().map(|name| without_kind(kind, name).to_owned()).collect();
        Self {
            clusters: strip(&self.clusters, "cluster"),
            resources: self.resources.clone(),
            sinks: strip(&self.sinks, "sink"),
        }
    }

    /// Returns the selected part of a status document, sorted worst first.
    ///
    /// # Errors
    /// If a name does not exist.
    pub(super) fn of(&self, status: &Value) -> anyhow::Result<Value> {
        let mut status = status.clone();
        self.check(&status)?;
        if let Some(clusters) = list_mut(&mut status, "clusters") {
            clusters.retain(|cluster| {
                self.clusters.is_empty() || self.clusters.iter().any(|name| cluster["name"] == **name)
            });
            for cluster in clusters.iter_mut() {
                let name = text(cluster, "name").to_owned();
                let Some(informers) = list_mut(cluster, "informers") else { continue };
                informers.retain(|informer| self.includes(&name, informer));
                informers.sort_by_key(informer_concern);
            }
            clusters.retain(|cluster| self.resources.is_empty() || !list(cluster, "informers").is_empty());
            clusters.sort_by_key(cluster_concern);
        }
        if let Some(sinks) = list_mut(&mut status, "sinks") {
            sinks.retain(|sink| self.sinks.is_empty() || self.sinks.iter().any(|name| sink["name"] == **name));
            sinks.sort_by_key(sink_concern);
        }
        Ok(status)
    }

    fn includes(&self, cluster: &str, informer: &Value) -> bool {
        self.resources.is_empty() || self.resources.iter().any(|name| is_informer(cluster, informer, name))
    }

    fn check(&self, status: &Value) -> anyhow::Result<()> {
        for (kind, names) in [("clusters", &self.clusters), ("sinks", &self.sinks)] {
            for name in names {
                let known: Vec<_> = list(status, kind).iter().map(|one| text(one, "name")).collect();
                if !known.contains(&name.as_str()) {
                    bail!("there is no {} {name:?}; known: {}", kind.trim_end_matches('s'), joined(&known));
                }
            }
        }
        for name in &self.resources {
            let all = informers(status);
            if !all.iter().any(|(cluster, informer)| is_informer(cluster, informer, name)) {
                let mut known: Vec<_> = all.iter().map(|(_, informer)| text(informer, "resource")).collect();
                known.sort_unstable();
                known.dedup();
                bail!("the hub watches no resource {name:?}; it watches {}", joined(&known));
            }
        }
        Ok(())
    }
}

fn joined(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns whether `name` denotes this informer: by its resource (`pods`), or with its cluster as `-o name` prints it
/// (`resource/prod-eu/pods`).
fn is_informer(cluster: &str, informer: &Value, name: &str) -> bool {
    let resource = text(informer, "resource");
    match name.strip_prefix("resource/").and_then(|name| name.split_once('/')) {
        Some((of, name)) => of == cluster && is_resource(resource, name),
        None => is_resource(resource, name),
    }
}

/// Whether `name` denotes a resource of the status: with or without its group, and for built-in resources also by short
/// name or singular.
fn is_resource(resource: &str, name: &str) -> bool {
    let is = |name: &str| resource == name || resource.split_once('.').is_some_and(|(plural, _)| plural == name);
    let known = name.parse::<ResourceRef>().ok().map(|name| ResourceRef { version: None, ..name.canonical() });
    is(name) || known.is_some_and(|known| is(&known.to_string()))
}

fn list_mut<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Vec<Value>> {
    value.get_mut(key)?.as_array_mut()
}

/// Returns each informer with the name of its cluster, worst first.
pub(super) fn informers(status: &Value) -> Vec<(&str, &Value)> {
    let of = |cluster| list(cluster, "informers").iter().map(|informer| (text(cluster, "name"), informer));
    let mut all: Vec<_> = list(status, "clusters").iter().flat_map(of).collect();
    all.sort_by_key(|(_, informer)| informer_concern(informer));
    all
}

/// Returns the selected part of the status as a document for programs, with the members of `/v1/status`.
pub(super) fn document(subject: Subject, status: &Value) -> Value {
    match subject {
        Subject::Status => status.clone(),
        Subject::Clusters => json!(list(status, "clusters")),
        Subject::Sinks => json!(list(status, "sinks")),
        Subject::Resources => {
            informers(status).into_iter().map(|(cluster, informer)| with_cluster(cluster, informer)).collect()
        }
    }
}

fn with_cluster(cluster: &str, informer: &Value) -> Value {
    let mut informer = informer.clone();
    if let Some(members) = informer.as_object_mut() {
        members.insert("cluster".to_owned(), cluster.into());
    }
    informer
}

/// Returns kind and name (`cluster/prod-eu`) of each selected cluster, resource or sink, in the style of kubectl.
pub(super) fn names(subject: Subject, status: &Value) -> Vec<String> {
    let names = |member, kind| -> Vec<_> {
        list(status, member).iter().map(|one| format!("{kind}/{}", text(one, "name"))).collect()
    };
    let informers = || -> Vec<_> {
        informers(status)
            .into_iter()
            .map(|(cluster, informer)| format!("resource/{cluster}/{}", text(informer, "resource")))
            .collect()
    };
    match subject {
        Subject::Status => [names("clusters", "cluster"), names("sinks", "sink")].concat(),
        Subject::Clusters => names("clusters", "cluster"),
        Subject::Sinks => names("sinks", "sink"),
        Subject::Resources => {
            let mut all = informers();
            let mut seen = std::collections::HashSet::new();
            all.retain(|name| seen.insert(name.clone()));
            all
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn status() -> Value {
        let informer = |resource: &str, state: &str| {
            json!({ "resource": resource, "scope": "*", "state": state, "synced": true, "objects": 12_345, "bytes": 5 << 20,
                    "freshness": { "state": "synced" }, "skipped": 0 })
        };
        let cluster = |name: &str, state: &str, informers: Vec<Value>| json!({ "name": name, "state": state, "informers": informers });
        let sink = |name: &str, open: bool| json!({ "name": name, "pendingEvents": 3, "circuitOpen": open, "deadLettered": 0 });
        json!({
            "ready": true,
            "clusters": [
                cluster("a", "connected", vec![informer("pods", "watching"), informer("deployments.apps", "forbidden")]),
                cluster("b", "connected", vec![informer("pods", "watching")]),
                cluster("c", "unreachable", vec![informer("pods", "stale")]),
            ],
            "sinks": [sink("audit", false), sink("chat", true)],
        })
    }

    #[test]
    fn the_worst_comes_first() {
        let status = Selection::default().of(&status()).unwrap();
        assert_eq!(names(Subject::Clusters, &status), ["cluster/c", "cluster/a", "cluster/b"]);
        let resources = ["resource/a/deployments.apps", "resource/c/pods", "resource/a/pods", "resource/b/pods"];
        assert_eq!(names(Subject::Resources, &status), resources);
        assert_eq!(names(Subject::Sinks, &status), ["sink/chat", "sink/audit"]);
        assert_eq!(document(Subject::Resources, &status)[0]["cluster"], "a");
    }

    #[test]
    fn names_select_parts_and_unknown_names_are_errors() {
        let of = |selection: Selection| selection.of(&status());
        let resources = |name: &str| Selection { resources: vec![name.into()], ..Selection::default() };
        assert_eq!(names(Subject::Clusters, &of(resources("deployments")).unwrap()), ["cluster/a"]);
        assert_eq!(
            names(Subject::Resources, &of(resources("deployments.apps")).unwrap()),
            ["resource/a/deployments.apps"]
        );
        assert_eq!(names(Subject::Clusters, &of(resources("deploy")).unwrap()), ["cluster/a"]);
        assert_eq!(names(Subject::Clusters, &of(resources("po")).unwrap()), ["cluster/c", "cluster/a", "cluster/b"]);
        let printed =
            Selection { clusters: vec!["cluster/b".into()], sinks: vec!["sink/chat".into()], ..Selection::default() };
        assert_eq!(names(Subject::Status, &of(printed.without_kinds()).unwrap()), ["cluster/b", "sink/chat"]);
        let printed = of(resources("resource/a/pods")).unwrap();
        assert_eq!(names(Subject::Resources, &printed), ["resource/a/pods"]);
        assert!(of(resources("resource/b/deployments.apps")).is_err());
        let error = of(resources("deployments.extensions")).unwrap_err().to_string();
        assert_eq!(error, "the hub watches no resource \"deployments.extensions\"; it watches deployments.apps, pods");
        let error = of(Selection { clusters: vec!["d".into()], ..Selection::default() }).unwrap_err().to_string();
        assert_eq!(error, "there is no cluster \"d\"; known: a, b, c");
    }

    #[test]
    fn malformed_answers_do_not_panic() {
        for odd in [json!(null), json!([]), json!({ "clusters": 7, "sinks": [1, {}] }), json!({ "clusters": [{}, 1] })]
        {
            let status = Selection::default().of(&odd).unwrap();
            for subject in [Subject::Status, Subject::Clusters, Subject::Resources, Subject::Sinks] {
                let _ = (
                    names(subject, &status),
                    document(subject, &status),
                    super::super::screen::text(subject, &status, true),
                );
            }
        }
    }
}

//! The part of `/v1/status` that a reader may see.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Rights, names_cluster};
use informer_hub_access::{Reader, Visibility, Visible};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName};

/// JSON members of a cluster's status that every reader of the cluster sees.
const OF_CLUSTER: [&str; 5] = ["name", "labels", "state", "version", "informers"];

/// JSON members of an informer's status that are shown to a reader of only some of its objects. The other members
/// depend on all objects.
const OF_INFORMER: [&str; 6] = ["resource", "scope", "view", "state", "synced", "freshness"];

impl Rights {
    /// Returns the part of the status that a reader may see: everything, or the visible clusters with the informers of
    /// visible resources. `resources` are the resources of the caches. Sends no access review: if clusters decide what
    /// the reader may see, their recent answers are used.
    pub(in crate::api) fn status(&self, reader: &Reader, mut status: Value, resources: &[ApiResource]) -> Value {
        if reader.sees_everything() {
            return status;
        }
        let allowed = self.allowed_lately(reader);
        let visible = |resource: &ApiResource| {
            let visibility = self.visibility(reader, resource);
            match visibility.reviewed() {
                None => visibility,
                Some(_) => visibility.with_reviewed(allowed.get(&resource.gvr).cloned().unwrap_or_default()),
            }
        };
        let visible = resources.iter().map(|resource| (resource.gvr.to_string(), visible(resource))).collect();
        let is_named = |name: &ClusterName, labels: &ClusterLabels| {
            names_cluster(reader, name, labels) || allowed.values().any(|reviewed| reviewed.contains_key(name))
        };
        let clusters = status.get_mut("clusters").and_then(Value::as_array_mut).map(std::mem::take);
        let clusters = clusters.unwrap_or_default().into_iter().filter_map(|cluster| {
            let cluster = only(cluster, &OF_CLUSTER)?;
            cluster_status(cluster, &visible, is_named)
        });
        let mut shown = Map::new();
        shown.insert("ready".to_owned(), status["ready"].take());
        shown.insert("clusters".to_owned(), Value::Array(clusters.collect()));
        Value::Object(shown)
    }
}

/// Returns the visible part of a cluster's status; `None` if the reader may not see the cluster. `visible` has what the
/// reader may see of each cached resource.
fn cluster_status(
    mut cluster: Map<String, Value>,
    visible: &BTreeMap<String, Visibility>,
    is_named: impl Fn(&ClusterName, &ClusterLabels) -> bool,
) -> Option<Value> {
    let name = ClusterName::new(cluster.get("name")?.as_str()?).ok()?;
    let labels: ClusterLabels =
        cluster.get("labels").and_then(|labels| serde_json::from_value(labels.clone()).ok()).unwrap_or_default();
    if !is_named(&name, &labels) {
        return None;
    }
    if let Some(informers) = cluster.get_mut("informers").and_then(Value::as_array_mut) {
        let all = std::mem::take(informers);
        informers.extend(all.into_iter().filter_map(|informer| {
            match visible.get(informer.get("resource")?.as_str()?)?.visible(&name, &labels) {
                Visible::Everything => Some(informer),
                some if some.is_nothing() => None,
                _ => only(informer, &OF_INFORMER).map(Value::Object),
            }
        }));
    }
    Some(Value::Object(cluster))
}

/// Returns a JSON object without members other than `members`; `None` if `value` is not an object.
fn only(value: Value, members: &[&str]) -> Option<Map<String, Value>> {
    let Value::Object(mut object) = value else { return None };
    object.retain(|name, _| members.contains(&name.as_str()));
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use informer_hub_access::{Grants, ReaderOrigin, ResourceMatch, Rule};
    use informer_hub_types::{ClusterSelector, Exclusion, Gvr};

    #[test]
    fn status_has_the_visible_clusters_and_counters_of_wholly_visible_informers() {
        let resource =
            |plural: &str, namespaced| ApiResource { gvr: Gvr::new("", "v1", plural), kind: plural.into(), namespaced };
        let resources = [resource("pods", true), resource("nodes", false), resource("secrets", true)];
        let informer = |resource: &str| json!({ "resource": resource, "scope": "*", "synced": true, "objects": 7 });
        let informers = json!([informer("pods"), informer("nodes"), informer("secrets"), informer("unknown")]);
        let cluster = |name: &str, tier: &str| json!({ "name": name, "labels": { "tier": tier }, "state": "connected", "informers": informers, "error": "x" });
        let status = json!({
            "ready": true, "memory": { "limit": 1 }, "sinks": [{ "name": "audit" }],
            "clusters": [cluster("a", "prod"), cluster("b", "dev")],
        });
        let of = |namespaces: &[&str]| {
            let clusters = ClusterSelector::Labels([("tier".to_owned(), "prod".to_owned())].into());
            let all: ResourceMatch = "*".parse::<Exclusion>().unwrap().into();
            let rules = [Rule::new(clusters, namespaces, vec![all], Vec::new())].into();
            let reader = Reader::named("ann", ReaderOrigin::Table("ann".into()), Grants { rules, ..Grants::default() });
            Rights::new(false).status(&reader, status.clone(), &resources)
        };
        let shown = |informers: Value| {
            let labels = json!({ "tier": "prod" });
            json!({
                "ready": true,
                "clusters": [{ "name": "a", "labels": labels, "state": "connected", "informers": informers }],
            })
        };
        assert_eq!(of(&["*"]), shown(json!([informer("pods"), informer("nodes")])));
        assert_eq!(of(&["shop"]), shown(json!([{ "resource": "pods", "scope": "*", "synced": true }])));
        let all = Rights::new(false).status(&Reader::administrator(), status.clone(), &resources);
        assert_eq!(all, status);
        let none = Rights::new(false).status(&Reader::unknown(), status.clone(), &resources);
        assert_eq!(none, json!({ "ready": true, "clusters": [] }));
    }
}

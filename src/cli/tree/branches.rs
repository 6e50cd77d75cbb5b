//! Rows of the output of `tree`.

use serde_json::Value;

use informer_hub_apiclient::value_text;
use informer_hub_kubeapi::Printer;
use informer_hub_types::{ApiResource, Gvr, clock};

/// Table columns that show the status of an object, in order of preference.
const STATUS: [&str; 4] = ["Status", "Phase", "State", "Ready"];
/// Maximum depth of the printed tree. The hub's answer has fewer levels.
const LEVELS: usize = 64;

/// Returns the rows of an answer of `/v1/objects`: cluster, namespace, indented name, status.
pub(super) fn rows(document: &Value) -> Vec<Vec<String>> {
    let mut tree = Tree { cluster: text(&document["cluster"]), rows: Vec::new() };
    let owners = document["owners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chain = owners.iter().rev().chain([document]);
    let mut indent = String::new();
    for (level, object) in chain.enumerate().take(LEVELS) {
        let branch = if level == 0 { "" } else { "└─ " };
        let mark = if level == owners.len() { " *" } else { "" };
        tree.push(&format!("{indent}{branch}"), object, mark, &status(object));
        if level > 0 {
            indent.push_str("   ");
        }
    }
    tree.children(&document["children"], &indent, 0);
    tree.rows
}

struct Tree {
    cluster: String,
    rows: Vec<Vec<String>>,
}

impl Tree {
    fn push(&mut self, branch: &str, object: &Value, mark: &str, status: &str) {
        let name = format!("{branch}{}/{}{mark}", text(&object["kind"]), text(&object["name"]));
        self.rows.push(vec![self.cluster.clone(), text(&object["namespace"]), name, status.to_owned()]);
    }

    fn children(&mut self, children: &Value, indent: &str, level: usize) {
        let children = children.as_array().map(Vec::as_slice).unwrap_or_default();
        for (at, child) in children.iter().enumerate().filter(|_| level < LEVELS) {
            let (branch, below) = if at + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.push(&format!("{indent}{branch}"), child, "", &text(&child["status"]));
            self.children(&child["children"], &format!("{indent}{below}"), level + 1);
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the status of an object, as the Kubernetes API's table shows it. If the table has a column Desired, as for
/// ReplicaSets, a slash and the desired number follow: `2/3`.
fn status(object: &Value) -> String {
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = text(&object["resource"]);
    let plural = resource.split('.').next().unwrap_or_default();
    let api =
        ApiResource { gvr: Gvr::new(group, version, plural), kind: text(&object["kind"]).into(), namespaced: true };
    let printer = Printer::new(&api, None);
    let row = printer.row(object["object"].to_string().as_bytes(), clock::wall().as_second());
    let cell = |wanted: &str| {
        let at = printer.columns().iter().position(|column| column.name == wanted)?;
        row.cells.get(at).map(value_text)
    };
    match (STATUS.iter().find_map(|wanted| cell(wanted)), cell("Desired")) {
        (Some(ready), Some(desired)) => format!("{ready}/{desired}"),
        (status, _) => status.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tree_has_owners_above_the_object_and_children_below() {
        let child = |name: &str, children: Value| json!({ "kind": "Pod", "namespace": "shop", "name": name, "status": "Running", "children": children });
        let document = json!({
            "cluster": "eu", "resource": "replicasets.apps", "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "namespace": "shop", "name": "web-7", "object": { "metadata": { "name": "web-7" } },
            "owners": [{
                "resource": "deployments.apps", "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web",
                "object": { "metadata": { "name": "web" }, "spec": { "replicas": 3 }, "status": { "readyReplicas": 2, "replicas": 3 } },
            }],
            "children": [child("a", json!([child("c", json!([]))])), child("b", json!([]))],
        });
        let found: Vec<_> = rows(&document).into_iter().map(|row| format!("{}|{}", row[2], row[3])).collect();
        assert_eq!(
            found,
            [
                "Deployment/web|2/3",
                "└─ ReplicaSet/web-7 *|0/1",
                "   ├─ Pod/a|Running",
                "   │  └─ Pod/c|Running",
                "   └─ Pod/b|Running",
            ]
        );
        let alone = json!({ "cluster": "eu", "kind": "Node", "name": "n1", "children": [child("a", json!([]))] });
        let found: Vec<_> = rows(&alone).into_iter().map(|row| row[2].clone()).collect();
        assert_eq!(found, ["Node/n1 *", "└─ Pod/a"]);
    }
}

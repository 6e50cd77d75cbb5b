//! Schema of `[fleet]`.

use serde_json::{Value, json};

use super::node::{bytes, default, duration, human, labels, list, named, pattern, secret, size, table, text};
use crate::fleet_config::{NEW_LOG, ROLES, WINDOW_AGE, WINDOW_BYTES};

pub(super) fn fleet() -> Value {
    let (copies, age, size_of_log) = NEW_LOG;
    let window = table(
        "How much of the log is kept. Changes beyond either limit are removed. Without a key, an existing log keeps its limit.",
        vec![
            ("age", default(duration("Age of changes.", &WINDOW_AGE), human(age))),
            ("bytes", default(size("Size of the log.", &WINDOW_BYTES), bytes(size_of_log))),
        ],
    );
    let url = json!({ "type": "string", "pattern": "^(nats|tls)://[^/@,\\s]+$" });
    let words: Vec<_> = ROLES.iter().map(|(word, _)| word).collect();
    let replicas = json!({
        "description": "Copies of the log and its buckets, an odd number of at most the servers of the NATS cluster. Without the key, an existing log keeps its number.",
        "type": "integer",
        "enum": [1, 3, 5],
    });
    let mut prefer = labels("Labels of the clusters that prefer collectors in the zone, while these have room.");
    prefer["minProperties"] = 1.into();
    let mut fleet = table(
        "Fleet of processes that share the clusters. Without the table, the hub is a process by itself.",
        vec![
            ("nats", list("Addresses of the NATS servers, with JetStream.", 1, &url)),
            ("credentials", secret("Credentials of NATS, as in a credentials file. Unset: none.")),
            ("name", pattern("Name of the fleet, which begins the names of its stream and buckets.", NAME)),
            (
                "roles",
                list(
                    "Roles of the process. collect watches clusters for the fleet, alone. serve answers readers from its log, deliver \
                     runs sinks from it.",
                    1,
                    &json!({ "enum": words }),
                ),
            ),
            ("replicas", default(replicas, copies)),
            ("window", default(window, json!({}))),
            ("zone", text("Zone of the process. Requires prefer.")),
            ("prefer", prefer),
            ("shards", shards()),
        ],
    );
    fleet["dependentRequired"] = json!({ "zone": ["prefer"], "prefer": ["zone"] });
    fleet["required"] = json!(["nats", "name", "roles"]);
    fleet
}

fn shards() -> Value {
    let cluster = json!({ "type": "string", "pattern": CLUSTERS });
    let clusters =
        list("Names of the clusters that are divided, in which * is any text. Unset: all clusters.", 1, &cluster);
    let resource = json!({ "type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" });
    let resources = list("Resources of the shard, as kubectl names them.", 1, &resource);
    let namespaces = super::namespaces(
        "Namespaces of the shard, which [resources] lists too. Unset: all informers of the resources.",
    );
    let mut shard = table(
        "Resources of clusters that a collector watches apart from the rest of the cluster.",
        vec![("clusters", clusters), ("resources", resources), ("namespaces", namespaces)],
    );
    shard["required"] = json!(["resources"]);
    let description = "Shards of clusters that are too much for one collector. A resource belongs to the first shard by name, \
                       after those with namespaces; what belongs to none stays together.";
    named(description, super::NAMESPACE, &shard)
}

const CLUSTERS: &str = "^[A-Za-z0-9*][A-Za-z0-9._*-]*$";
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$";

//! Tests of cluster tables and cluster selectors.

use super::*;

/// Like [`only`], for lines of a cluster, counted from 1; its header is 0.
#[track_caller]
fn only_in_cluster(lines: &str, line: usize, words: &str) {
    only(&format!("[resources.pods]\n[clusters.one]\n{lines}"), line + 2, words);
}

#[test]
fn cluster_has_exactly_one_connection() {
    only_in_cluster("", 0, "clusters.one: has no connection to the cluster; write kubeconfig = ");
    only_in_cluster("in_cluster = false\n", 0, "has no connection to the cluster");
    only_in_cluster("in_cluster = true\nserver = \"https://x\"\n", 0, "has in_cluster and server; keep one of them");
    only_in_cluster("in_clutser = true\n", 1, "unknown key; did you mean \"in_cluster\"?");
    only_in_cluster("in_cluster = 1\n", 1, "expected true or false, found a number");
    only_in_cluster("in_cluster = true\ncontext = \"a\"\n", 2, "context: requires kubeconfig, which is missing");
    only_in_cluster("in_cluster = true\ntoken = { env = \"A\" }\n", 2, "token: requires server, which is missing");
}

#[test]
fn cluster_values_are_checked() {
    only_in_cluster("server = \"one\"\n", 1, "the address does not begin with http:// or https://");
    only_in_cluster("server = \"http://x\"\ntoken = { env = \"A\" }\n", 1, "would send the token unencrypted");
    only_in_cluster("server = \"https://x\"\ncompression = \"no\"\n", 2, "expected true or false, found a text");
    only_in_cluster("server = \"https://x\"\nencoding = \"jsn\"\n", 2, "there is no encoding \"jsn\"");
    only_in_cluster("server = \"https://x\"\nlabels = { a = 1 }\n", 2, "clusters.one.labels.a: expected a text");
    only_in_cluster("server = \"https://x\"\ncontxt = 1\n", 2, "unknown key; did you mean \"context\"?");
    only("[clusters.\"a b\"]\nin_cluster = true\n[resources.pods]\n", 1, "cluster name \"a b\" is not valid: 1 to 63");
    let loopback = "server = \"http://127.0.0.1:1\"\ntoken = { env = \"A\" }\nlabels = { empty = \"\" }\n";
    assert_eq!(problems(&format!("[resources.pods]\n[clusters.one]\n{loopback}")), Vec::<String>::new());
}

#[test]
fn cluster_selectors_must_select_a_cluster() {
    only_in_resource("clusters = { tier = \"dev\" }\n", 1, "matches no cluster; the label \"tier\" is prod");
    only_in_resource("clusters = { teir = \"prod\" }\n", 1, "no cluster has a label \"teir\"; did you mean \"tier\"?");
    only_in_resource("clusters = [\"on\"]\n", 1, "clusters[0]: there is no cluster \"on\"; did you mean \"one\"?");
    only_in_resource("clusters = []\n", 1, "selects no cluster; remove the key");
    only_in_resource("clusters = {}\n", 1, "has no labels; remove the key");
    only_in_resource("clusters = \"one\"\n", 1, "expected labels such as");
    let named = Config::from_toml(&format!("{BASE}clusters = [\"one\"]\n")).unwrap();
    assert_eq!(named.resources[0].clusters, ClusterSelector::Names(vec![ClusterName::new("one").unwrap()]));
}

//! Tests of `agent = true` and of the configuration of an agent.

use super::*;

const FLEET: &str = "[fleet]\nnats = [\"nats://a\"]\nname = \"prod\"\nroles = [\"collect\"]\n";
const CLUSTERS: &str = "[clusters.edge-1]\nagent = true\nlabels = { tier = \"edge\" }\n\
                        [clusters.eu]\nserver = \"https://eu\"\n";
const RESOURCES: &str = "[resources.pods]\n\
                         [resources.nodes]\nclusters = [\"eu\"]\n";

fn agent(text: &str, cluster: Option<&str>) -> Result<Config, String> {
    let config = Config::from_toml(text).unwrap();
    let cluster = cluster.map(|name| name.parse().unwrap());
    config.into_agent(None, cluster.as_ref()).map_err(|mistakes| mistakes.mistakes()[0].to_string())
}

#[test]
fn agent_needs_a_fleet_and_no_other_connection() {
    let text = format!("[resources.pods]\n{CLUSTERS}");
    only(&text, 3, "clusters.edge-1.agent: an agent needs a fleet; add [fleet], or connect with kubeconfig");
    let text = format!("{FLEET}[resources.pods]\n[clusters.a]\nagent = true\nserver = \"https://a\"\n");
    only(&text, 8, "clusters.a.server: has no effect with agent = true; remove one of them");
    let text = format!("{FLEET}[resources.pods]\n[clusters.a]\nagent = false\n");
    only(&text, 6, "clusters.a: has no connection to the cluster");
    let text = format!("{FLEET}[resources.pods]\n[clusters.a]\nagent = \"yes\"\n");
    only(&text, 7, "clusters.a.agent: expected true or false, found a text");
}

#[test]
fn agent_takes_its_cluster_and_the_resources_of_it() {
    let text = format!("{FLEET}{CLUSTERS}{RESOURCES}");
    for chosen in [None, Some("edge-1")] {
        let config = agent(&text, chosen).unwrap();
        let mut own = ClusterConfig::new("edge-1".parse().unwrap(), ClusterAccess::InCluster);
        own.labels = [("tier".to_owned(), "edge".to_owned())].into();
        assert_eq!(config.clusters, [own]);
        assert_eq!(config.resources.iter().map(|resource| resource.name.as_str()).collect::<Vec<_>>(), ["pods"]);
        assert_eq!(config.fleet.unwrap().roles, [FleetRole::Collect]);
    }
    let config = agent(&text, Some("eu")).unwrap();
    assert_eq!(config.clusters[0].access, ClusterAccess::server("https://eu", None, None), "its own connection");
    assert_eq!(config.resources.len(), 2);
}

#[test]
fn mistakes_of_an_agent_are_named() {
    let text = format!("{FLEET}{CLUSTERS}{RESOURCES}");
    let unknown = agent(&text, Some("edge-2")).unwrap_err();
    assert!(unknown.contains("clusters: there is no cluster \"edge-2\"; did you mean \"edge-1\"?"), "{unknown}");
    let several = agent(&text.replace("agent = true", "in_cluster = true"), None).unwrap_err();
    assert!(several.contains("choose the cluster of the agent with --cluster; known: edge-1, eu"), "{several}");
    let alone = agent(&format!("{RESOURCES}[clusters.eu]\nin_cluster = true\n"), None).unwrap_err();
    assert!(alone.contains("fleet: is missing; an agent writes to the log of a fleet, so add [fleet]"), "{alone}");
    let nodes = format!("{FLEET}{CLUSTERS}[resources.nodes]\nclusters = [\"eu\"]\n");
    let unused = agent(&nodes, Some("edge-1")).unwrap_err();
    assert!(unused.contains("resources: no entry selects the cluster edge-1"), "{unused}");
}

//! Tests of `[fleet]`.

use super::*;
use informer_hub_types::{ShardName, ShardRule};

const FLEET: &str = "[fleet]\nnats = [\"nats://a\", \"tls://b:4222\"]\nname = \"prod\"\nroles = [\"collect\"]\n";

fn fleet(lines: &str) -> FleetConfig {
    Config::from_toml(&format!("{BASE}{FLEET}{lines}")).unwrap().fleet.unwrap()
}

/// Like [`only`], for lines after [`FLEET`], counted from 1.
#[track_caller]
fn only_in_fleet(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{FLEET}{lines}\n"), line + 8, words);
}

#[test]
fn keys_are_read() {
    assert_eq!(Config::from_toml(BASE).unwrap().fleet, None);
    let servers = vec!["nats://a".to_owned(), "tls://b:4222".to_owned()];
    let default = FleetConfig::new("prod", servers, vec![FleetRole::Collect]);
    assert_eq!(fleet(""), default);
    let expected = FleetConfig {
        credentials: Some(Secret::Env("CREDS".to_owned())),
        replicas: Some(3),
        window_age: Some(Duration::from_secs(7200)),
        window_bytes: Some(1 << 30),
        zone: Some("eu-west".to_owned()),
        prefer: ClusterLabels::from([("region".to_owned(), "eu".to_owned())]),
        ..default.clone()
    };
    let window = "window = { age = \"2h\", bytes = \"1GiB\" }\n";
    let zone = "zone = \"eu-west\"\nprefer = { region = \"eu\" }\n";
    let found = fleet(&format!("credentials = {{ env = \"CREDS\" }}\nreplicas = 3\n{window}{zone}"));
    assert_eq!(found, expected);
    assert_eq!(fleet_keys_to_restart(Some(&default), Some(&default)), [] as [&str; 0]);
    assert_eq!(fleet_keys_to_restart(None, Some(&default)), ["fleet"]);
    let changed =
        ["fleet.credentials", "fleet.replicas", "fleet.window.age", "fleet.window.bytes", "fleet.zone", "fleet.prefer"];
    assert_eq!(fleet_keys_to_restart(Some(&default), Some(&expected)), changed);
}

#[test]
fn shards_are_read() {
    let rule = |name: &str, clusters: &[&str], namespaces: &[&str]| ShardRule {
        name: ShardName::new(name).unwrap(),
        clusters: clusters.iter().map(|name| (*name).to_owned()).collect(),
        resources: vec!["pods".parse().unwrap()],
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
    };
    let found =
        fleet("shards.all = { resources = [\"pods\"] }\nshards.b = { resources = [\"pods\"], clusters = [\"c*\"] }\n");
    assert_eq!(found.shards, [rule("all", &[], &[]), rule("b", &["c*"], &[])]);
    let default = FleetConfig { shards: Vec::new(), ..found.clone() };
    assert_eq!(fleet_keys_to_restart(Some(&default), Some(&found)), ["fleet.shards"]);
    let text = format!(
        "{BASE}namespaces = [\"shop\"]\n{FLEET}shards.a = {{ resources = [\"po\"], namespaces = [\"shop\"] }}\n"
    );
    let namespaced = Config::from_toml(&text).unwrap().fleet.unwrap();
    assert_eq!(namespaced.shards[0].namespaces, ["shop"]);
}

#[test]
fn shards_are_checked() {
    for (shard, words) in [
        ("a = {}", "fleet.shards.a: has no resources; write resources = [\"pods\"]"),
        ("a = { resources = [] }", "fleet.shards.a.resources: is empty"),
        ("a = { resources = [\"podz\"] }", "fleet.shards.a.resources[0]: no entry of [resources] watches podz"),
        (
            "a = { resources = [\"pods\"], namespaces = [\"x\"] }",
            "no entry of [resources] watches pods in namespace \"x\" by itself",
        ),
        ("a = { resources = [\"pods\"], clusters = [] }", "fleet.shards.a.clusters: selects no cluster"),
        ("a = { resources = [\"pods\"], clusters = [\"?\"] }", "\"?\" is not a cluster name or pattern"),
        ("A = { resources = [\"pods\"] }", "shard name \"A\" is not valid"),
        ("a = { resource = [\"pods\"], resources = [\"pods\"] }", "fleet.shards.a.resource: unknown key"),
    ] {
        only_in_fleet(&format!("shards.{shard}"), 1, words);
    }
}

#[test]
fn required_keys_are_named() {
    let without = |key: &str| FLEET.lines().filter(|line| !line.starts_with(key)).collect::<Vec<_>>().join("\n");
    for (key, words) in [
        ("nats", "fleet: has no nats; write nats = [\"nats://…\"]"),
        ("name", "fleet: has no name; write name = \"prod\""),
        ("roles", "fleet: has no roles; write roles = [\"collect\"]"),
    ] {
        only(&format!("{BASE}{}\n", without(key)), 5, words);
    }
}

#[test]
fn values_are_checked() {
    let with = |key: &str, line: &str| {
        let lines = FLEET.lines().map(|old| if old.starts_with(key) { line } else { old });
        format!("{BASE}{}\n", lines.collect::<Vec<_>>().join("\n"))
    };
    only(&with("nats", "nats = [\"http://a\"]"), 6, "fleet.nats[0]: the address does not begin with nats:// or tls://");
    only(&with("nats", "nats = [\"nats://a,nats://b\"]"), 6, "has several addresses");
    only(&with("nats", "nats = [\"nats://u:p@a\"]"), 6, "do not belong in the address; use fleet.credentials");
    only(&with("nats", "nats = []"), 6, "fleet.nats: is empty; write an address");
    only(&with("name", "name = \"a.b\""), 7, "\"a.b\" is not a valid fleet name");
    only(&with("roles", "roles = [\"colect\"]"), 8, "there is no role \"colect\"; did you mean \"collect\"?");
    only(&with("roles", "roles = []"), 8, "fleet.roles: is empty");
    only(&with("roles", "roles = [\"collect\", \"serve\"]"), 8, "fleet.roles: combines collect with another role; run");
    let both = Config::from_toml(&with("roles", "roles = [\"serve\", \"deliver\"]")).unwrap().fleet.unwrap();
    assert_eq!(both.roles, [FleetRole::Serve, FleetRole::Deliver]);
    let serving = Config::from_toml(&with("roles", "roles = [\"serve\"]")).unwrap().fleet.unwrap();
    assert_eq!(serving.roles, [FleetRole::Serve]);
    only_in_fleet("replicas = 2", 1, "fleet.replicas: 2 copies are no safer than 1; write an odd number");
    only_in_fleet("replicas = 7", 1, "expected a whole number from 1 to 5, found 7");
    only_in_fleet("window = { age = \"1s\" }", 1, "1s is out of range: from 1m to 7d");
    only_in_fleet("window = { bytes = 1 }", 1, "is out of range: from 64MiB to 64TiB");
    only_in_fleet("window = { size = 1 }", 1, "fleet.window.size: unknown key");
    only_in_fleet("zone = \"eu\"", 1, "fleet.zone: has no effect without prefer; write prefer = {");
    only_in_fleet("prefer = { a = \"b\" }", 1, "fleet.prefer: has no effect without zone; write zone =");
    only_in_fleet("zone = \"eu\"\nprefer = {}", 2, "fleet.prefer: has no labels");
    only_in_fleet("rolls = 1", 1, "fleet.rolls: unknown key; did you mean \"roles\"?");
}

#[test]
fn keys_without_an_effect_in_a_fleet_are_refused() {
    let text = format!("[hub]\nstate_dir = \"state\"\n{BASE}{FLEET}");
    only(&text, 2, "hub.state_dir: has no effect in a fleet");
    only(&format!("{BASE}{FLEET}[ha.lease]\nnamespace = \"hub\"\n"), 9, "ha: has no effect in a fleet");
    only(
        &format!("{BASE}{FLEET}[sinks.lines]\ntype = \"stdout\"\n"),
        9,
        "sinks: has no effect without the role deliver",
    );
    let delivering =
        format!("{BASE}{FLEET}[sinks.lines]\ntype = \"stdout\"\n").replace("[\"collect\"]", "[\"deliver\"]");
    assert_eq!(Config::from_toml(&delivering).unwrap().fleet.unwrap().roles, [FleetRole::Deliver]);
}

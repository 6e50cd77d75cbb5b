//! Tests of `fleet` without NATS: `tests/real/fleet.rs` has the others.

use crate::command::Workdir;

const CLUSTERS: &str = "[clusters.a]\nserver = \"https://a\"\n[resources.pods]\n";

#[tokio::test(flavor = "multi_thread")]
async fn fleet_reports_what_it_needs() {
    let dir = Workdir::with(CLUSTERS);
    let outcome = dir.run(&["fleet", "status", "-c", "hub.toml"]).await;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(
        outcome.err.contains("hub.toml has no table [fleet]; give the configuration file of a collector"),
        "{outcome:?}"
    );
    let outcome = dir.run(&["fleet", "move", "a", "-c", "hub.toml"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("<COLLECTOR"), "{outcome:?}");
    let outcome = dir.run(&["fleet", "move", "a", "hub-0", "--auto", "-c", "hub.toml"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("cannot be used with"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_names_the_servers_that_do_not_answer() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fleet = format!("[fleet]\nnats = [\"nats://{closed}\"]\nname = \"prod\"\nroles = [\"collect\"]\n");
    let dir = Workdir::with(&format!("{fleet}{CLUSTERS}"));
    for command in [&["status"][..], &["drain", "hub-0"], &["move", "a", "hub-0"]] {
        let outcome = dir.run(&[&["fleet"][..], command, &["-c", "hub.toml"]].concat()).await;
        let words = format!("cannot reach fleet prod: cannot connect to nats://{closed}");
        assert!(outcome.code == 1 && outcome.err.contains(&words), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_warns_of_shards_without_a_cluster() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = Workdir::with(&format!(
        "[fleet]\nnats = [\"nats://{closed}\"]\nname = \"prod\"\nroles = [\"collect\"]\n\
         [fleet.shards.a]\nclusters = [\"prod-*\"]\nresources = [\"pods\"]\n\
         [cluster_sources.files]\ntype = \"folder\"\npath = \"nowhere\"\n[resources.pods]\n"
    ));
    let outcome = dir.run(&["check", "-c", "hub.toml"]).await;
    assert!(outcome.out.contains("fleet.shards.a.clusters: selects none of the present clusters"), "{outcome:?}");
}

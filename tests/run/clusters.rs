//! Tests of unreachable, silent and forbidden clusters next to a healthy one.

use std::fmt::Write;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use informer_hub_sim::World;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::process::{Launch, Process, cluster, message_of, sim};
use crate::wait::until;

const PODS: &str = "[resources.pods]\n";

/// Starts a server that accepts connections and never answers.
async fn silent() -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    (url, task)
}

fn named<'s>(status: &'s Value, name: &str) -> &'s Value {
    let clusters = status["clusters"].as_array().unwrap();
    clusters.iter().find(|cluster| cluster["name"] == name).unwrap()
}

async fn synced(hub: &Process, name: &str) -> Value {
    until("synced", async || {
        let status = hub.status().await;
        (named(&status, name)["informers"][0]["synced"] == true).then_some(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_cluster_is_named_by_readyz_until_it_is_unreachable() {
    let (sim, (url, accepting)) = (sim(1, 20), silent().await);
    let hub = Launch::new(&(cluster("mute", &url) + &cluster("well", &sim.url()) + PODS)).start();
    let start = Instant::now();
    assert_eq!(hub.get("/livez").await.0, 200);
    let status = synced(&hub, "well").await;
    assert!(start.elapsed() < Duration::from_secs(10), "the other cluster waited: {:?}", start.elapsed());
    assert_eq!((&status["ready"], &named(&status, "mute")["state"]), (&false.into(), &"connecting".into()), "{status}");
    let (code, body) = hub.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("mute/pods") && body.contains("pending") && !body.contains("well/"), "{body}");
    hub.ready().await;
    let status = hub.status().await;
    let mute = named(&status, "mute");
    assert_eq!(mute["state"], "unreachable", "{mute}");
    for error in [&mute["lastError"], &mute["informers"][0]["lastError"]] {
        assert!(error.as_str().is_some_and(|text| text.contains("within 15 s")), "{mute}");
    }
    let (_, body) = hub.get("/readyz").await;
    assert!(body.starts_with("ready") && body.contains("mute"), "{body}");
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_cluster_blocks_no_other_and_its_error_is_in_the_status() {
    let (sim, down) = (sim(2, 20), sim(3, 20));
    down.stop().await;
    let hub = Launch::new(&(cluster("down", &down.url()) + &cluster("well", &sim.url()) + PODS)).start();
    hub.ready().await;
    let status = synced(&hub, "well").await;
    let refusing = named(&status, "down");
    assert_eq!(refusing["state"], "unreachable", "{refusing}");
    assert!(refusing["lastError"].as_str().is_some_and(|text| text.contains("refused")), "{refusing}");
    down.restart().await;
    let status = synced(&hub, "down").await;
    let back = named(&status, "down");
    assert_eq!((&back["state"], &back["informers"][0]["objects"]), (&"connected".into(), &20.into()), "{back}");
    assert!(back["lastError"].is_null(), "{back}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_and_recovery_are_logged_once_per_cluster() {
    let sim = sim(4, 20);
    let resources = "[resources.pods]\n[resources.nodes]\n[resources.\"widgets.example.com\"]\n";
    let hub = Launch::new(&(cluster("c0", &sim.url()) + resources)).start();
    hub.ready().await;
    sim.stop().await;
    let failed = |status: &Value| {
        let informers = named(status, "c0")["informers"].as_array().unwrap().clone();
        informers.iter().all(|informer| informer["state"] == "stale")
    };
    until("stale", async || failed(&hub.status().await).then_some(())).await;
    // Long enough for several attempts: the first delays are below a second.
    let enough = Instant::now() + Duration::from_secs(6);
    until("attempts", async || (Instant::now() > enough).then_some(())).await;
    let warned: Vec<_> = hub.lines().into_iter().filter(|line| line["level"] == "WARN").collect();
    assert!(matches!(&warned[..], [line] if message_of(line).contains("cannot reach the cluster")), "{warned:#?}");
    assert!(warned[0]["cluster"] == "c0" && warned[0]["error"].is_string(), "{warned:#?}");
    sim.restart().await;
    hub.line("the cluster answers again").await;
    until("synced again", async || (!failed(&hub.status().await)).then_some(())).await;
    assert_eq!((hub.count("the cluster answers again"), hub.count("watching again")), (1, 0), "{}", hub.log());
    let others: Vec<_> =
        hub.lines().into_iter().filter(|line| message_of(line).contains("failed with error")).collect();
    assert!(others.is_empty(), "a dependency's own lines: {others:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_resources_are_logged_in_one_line() {
    let sim = sim(7, 5);
    let def = sim.with_world(|world| world.resources().find(|def| def.api.gvr == World::widgets()).unwrap().clone());
    let mut toml = cluster("shut", &sim.url());
    for number in 10..22 {
        let mut def = def.clone();
        def.api.gvr.resource = format!("things{number}").into();
        sim.forbid(&def.api.gvr, true);
        writeln!(toml, "[resources.\"things{number}.example.com\"]").unwrap();
        sim.with_world(|world| world.register(def));
    }
    for gvr in [World::definitions(), World::services(), World::nodes()] {
        sim.forbid(&gvr, true);
    }
    toml += "[resources.pods]\n[resources.nodes]\n";
    let hub = Launch::new(&toml).env("RUST_LOG", "informer_hub=debug").start();
    let line = hub.line("the cluster forbids list or watch").await;
    let resources = line["resources"].as_str().unwrap();
    assert!(resources.starts_with("nodes, things10.example.com, ") && resources.ends_with(" and 3 more"), "{line}");
    assert!(line["cluster"] == "shut" && line["error"].to_string().contains("403"), "{line}");
    hub.ready().await;
    let tries = async || (hub.count("list or watch failed") > 30).then_some(());
    until("repeated requests for each resource", tries).await;
    let warned = || hub.lines().into_iter().filter(|line| line["level"] == "WARN").collect::<Vec<_>>();
    let others = "cannot watch for added and removed resource types";
    hub.line(others).await;
    assert_eq!((warned().len(), hub.count(others)), (2, 1), "{:#?}", warned());
    sim.forbid(&World::nodes(), false);
    let line = hub.line("watching again").await;
    assert_eq!((&line["resources"], &line["level"]), (&"nodes".into(), &"INFO".into()), "{line}");
    assert_eq!(warned().len(), 2, "{:#?}", warned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_cluster_is_logged_once() {
    let down = sim(5, 20);
    down.stop().await;
    // The custom resource makes the hub watch discovery.
    let resources = "[resources.pods]\n[resources.nodes]\n[resources.\"widgets.example.com\"]\n";
    let launch = Launch::new(&(cluster("down", &down.url()) + resources));
    let hub = launch.env("RUST_LOG", "informer_hub=debug").start();
    until("repeated requests for every resource and for discovery", async || {
        let status = hub.status().await;
        let down = named(&status, "down");
        let informers = down["informers"].as_array().unwrap();
        let failed = informers.len() == 3 && informers.iter().all(|informer| informer["lastError"].is_string());
        let discovered =
            down["discovery"]["lastError"].is_string() && hub.count("requests to the cluster still fail") > 5;
        (failed && discovered).then_some(())
    })
    .await;
    let warned = || hub.lines().into_iter().filter(|line| line["level"] == "WARN").collect::<Vec<_>>();
    let warnings = warned();
    assert!(matches!(&warnings[..], [line] if message_of(line).contains("cannot reach the cluster")), "{warnings:#?}");
    assert!(warnings[0]["cluster"] == "down" && warnings[0]["error"].to_string().contains("refused"), "{warnings:#?}");
    assert!(!warnings[0].to_string().contains("client error"), "an error without information: {warnings:#?}");
    down.restart().await;
    hub.ready().await;
    hub.line("the cluster answers again").await;
    until("all is synced", async || {
        let status = hub.status().await;
        let informers = named(&status, "down")["informers"].as_array().unwrap().clone();
        informers.iter().all(|informer| informer["synced"] == true).then_some(())
    })
    .await;
    assert_eq!((hub.count("the cluster answers again"), warned().len()), (1, 1), "{:#?}", warned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_with_forbidden_definitions_is_logged_as_polled() {
    let sim = sim(6, 5);
    sim.forbid(&World::definitions(), true);
    let hub = Launch::new(&(cluster("c0", &sim.url()) + PODS + "[resources.\"widgets.example.com\"]\n")).start();
    let line = hub.line("cannot watch for added and removed resource types").await;
    assert_eq!(line["resource"], "customresourcedefinitions.apiextensions.k8s.io", "{line}");
    hub.ready().await;
    let warned = hub.lines().into_iter().filter(|line| line["level"] == "WARN").count();
    assert_eq!((warned, hub.count("the cluster answers again")), (1, 0), "{}", hub.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_cluster_is_logged_once() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let strangers = Router::new().fallback(async || StatusCode::UNAUTHORIZED);
    let answering = tokio::spawn(async move { axum::serve(listener, strangers).await });
    let toml = cluster("strange", &url) + PODS + "[resources.nodes]\n[resources.\"widgets.example.com\"]\n";
    let hub = Launch::new(&toml).env("RUST_LOG", "informer_hub=debug").start();
    until("repeated requests", async || (hub.count("requests to the cluster still fail") > 5).then_some(())).await;
    let warned: Vec<_> = hub.lines().into_iter().filter(|line| line["level"] == "WARN").collect();
    assert!(matches!(&warned[..], [line] if message_of(line).contains("denies discovery requests")), "{warned:#?}");
    assert!(warned[0]["error"].to_string().contains("401"), "{warned:#?}");
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_reports_start_connections_and_readiness() {
    let (sim, down) = (sim(9, 20), sim(10, 20));
    down.stop().await;
    let hub = Launch::new(&(cluster("down", &down.url()) + &cluster("well", &sim.url()) + PODS)).start();
    let start = hub.line("the hub starts").await;
    assert_eq!(
        (&start["clusters"], &start["resources"], &start["sinks"]),
        (&2.into(), &1.into(), &0.into()),
        "{start}"
    );
    assert!(start["config"].as_str().is_some_and(|file| file.ends_with("hub.toml")), "{start}");
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    let connected = hub.line("connected to the cluster").await;
    assert_eq!((&connected["cluster"], &connected["server"]), (&"well".into(), &sim.url().into()), "{connected}");
    assert!(connected["version"].as_str().is_some_and(|version| version.starts_with('v')), "{connected}");
    let unreachable = hub.line("cannot reach the cluster").await;
    let error = format!("cannot connect to {}: connection refused", down.url());
    assert_eq!((&unreachable["cluster"], &unreachable["error"]), (&"down".into(), &error.into()), "{unreachable}");
    let ready = until("ready", async || hub.lines().into_iter().find(|line| message_of(line) == "ready")).await;
    let numbers = ["informers", "watching", "stale", "objects"].map(|key| ready[key].as_u64());
    assert_eq!(numbers, [2, 1, 0, 20].map(Some), "{ready}");
    assert_eq!(ready["unreachable"], "down", "{ready}");
    let status = hub.status().await;
    let well = named(&status, "well");
    assert_eq!((&well["server"], &well["version"]), (&connected["server"], &connected["version"]), "{well}");
    down.restart().await;
    until("the other server", async || (hub.count("connected to the cluster") == 2).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_start_without_its_cluster_is_ready_with_stale_objects() {
    let (sim, folder) = (sim(11, 20), tempfile::tempdir().unwrap());
    let hub = format!("state_dir = \"{}\"\ncheckpoint = \"1s\"\n", folder.path().join("state").display());
    let toml = hub + &cluster("a", &sim.url()) + PODS;
    let mut first = Launch::new(&toml).start();
    synced(&first, "a").await;
    first.signal("TERM");
    assert_eq!(first.ended().await, 0, "{}", first.log());
    sim.stop().await;
    let hub = Launch::new(&toml).start();
    let ready = until("ready", async || hub.lines().into_iter().find(|line| message_of(line) == "ready")).await;
    let numbers = ["informers", "watching", "stale", "objects"].map(|key| ready[key].as_u64());
    assert_eq!(numbers, [1, 0, 1, 20].map(Some), "{ready}");
    assert_eq!(ready["unreachable"], "a", "{ready}");
    let status = hub.status().await;
    let informer = &named(&status, "a")["informers"][0];
    assert!(informer["bytes"].as_u64().is_some_and(|bytes| bytes > 20 * 560), "{informer}");
}

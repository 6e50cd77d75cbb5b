//! Tests of changes of the configuration file under the running binary.

use informer_hub_sim::{SimCluster, World};

use crate::process::{Launch, Process, cluster, message_of, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

const PODS: &str = "[resources.pods]\n";
const NODES: &str = "[resources.nodes]\n";

fn lists(sim: &SimCluster) -> u64 {
    let stats = sim.stats();
    stats.lists + stats.streaming
}

fn start(toml: &str) -> Process {
    Launch::new(toml).env("HOOK_SECRET", SECRET).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_file_is_applied_and_an_invalid_one_is_refused() {
    let (first, second) = (sim(41, 12), sim(42, 12));
    let receiver = Receiver::start(Mode::Healthy);
    let base = cluster("a", &first.url()) + PODS + &receiver.sink("hook");
    let hub = start(&base);
    hub.ready().await;
    receiver.converged("a", &first, &World::pods()).await;
    let listed = lists(&first);
    hub.configure(&(base.clone() + &cluster("b", &second.url())));
    receiver.converged("b", &second, &World::pods()).await;
    hub.configure(&(base.clone() + NODES + "colour = \"red\"\nsize = 3\n"));
    let error = until("the mistake is shown", async || {
        hub.status().await["configuration"]["lastError"].as_str().map(ToOwned::to_owned)
    })
    .await;
    assert!(error.contains("resources.nodes.colour"), "{error}");
    let refused = hub.line("the configuration is not usable").await;
    assert_eq!(refused["mistakes"], 2, "{refused}");
    let one_line_each = || hub.lines().into_iter().filter(|line| message_of(line) == "mistake in the configuration");
    until("a line for each mistake", async || (one_line_each().count() == 2).then_some(())).await;
    let keys: Vec<_> = one_line_each().map(|line| line["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, ["resources.nodes.colour", "resources.nodes.size"]);
    assert!(one_line_each().all(|line| line["error"].is_string() && line["line"].is_number()), "{}", hub.log());
    assert!(!hub.log().contains("\\n"), "an escaped line break: {}", hub.log());
    let mistakes = hub.status().await["configuration"]["mistakes"].clone();
    assert_eq!(mistakes.as_array().map(Vec::len), Some(2), "{mistakes}");
    first.with_world(World::create_pod).unwrap();
    receiver.converged("a", &first, &World::pods()).await;
    hub.configure(&(base + NODES));
    receiver.converged("a", &first, &World::nodes()).await;
    let status = hub.status().await;
    assert!(status["configuration"]["lastError"].is_null(), "{status}");
    assert_eq!(status["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(lists(&first), listed + 1, "only the nodes are listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hangup_reloads_the_file_and_logs_keys_that_need_a_restart() {
    let sim = sim(43, 8);
    let base = cluster("a", &sim.url()) + PODS;
    let hub = start(&base);
    hub.ready().await;
    hub.configure(&format!("checkpoint = \"7s\"\n{base}"));
    hub.signal("HUP");
    let line = hub.line("changed keys take effect only after").await;
    assert_eq!(line["keys"], "hub.checkpoint", "{line}");
    assert_eq!(hub.status().await["configuration"]["needsRestart"][0], "hub.checkpoint");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_endpoint_returns_changes_or_errors() {
    let (first, second) = (sim(44, 8), sim(45, 8));
    let base = cluster("a", &first.url()) + PODS;
    let hub = start(&base);
    hub.ready().await;
    hub.configure(&(base.clone() + &cluster("b", &second.url())));
    let (status, body) = hub.post("/v1/reload").await;
    let changes: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &changes["clusters"]["added"][0]), (200, &"b".into()), "{body}");
    let line = hub.line("the configuration is applied").await;
    assert_eq!(
        (&line["added"], line.get("changed"), line.get("removed")),
        (&"clusters b".into(), None, None),
        "{line}"
    );
    hub.configure(&(base + "colour = \"red\"\n"));
    let (status, body) = hub.post("/v1/reload").await;
    assert!(status == 422 && body.contains("resources.pods.colour"), "{status} {body}");
    let metrics = hub.get("/metrics").await.1;
    for line in ["reloads_total 1", "reload_failures_total 1", "last_reload_successful 0", "needs_restart_keys 0"] {
        assert!(metrics.contains(&format!("\ninformer_hub_config_{line}\n")), "{line}");
    }
}

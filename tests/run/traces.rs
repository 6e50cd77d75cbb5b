//! Tests of traces exported over OTLP/HTTP.

use std::time::{Duration, Instant};

use informer_hub_sim::{Churn, World};
use tokio::net::TcpListener;

use crate::otlp_collector::{Attributes, collector};
use crate::process::{Launch, Process, cluster, message_of, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Variable with the export delay in milliseconds.
const DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";
/// Longer than any test, so that only the final flush exports.
const NEVER: &str = "600000";

fn launch(url: &str, receiver: &Receiver, variables: &[(&str, &str)]) -> Process {
    let toml = cluster("c0", url) + "[resources.pods]\n" + &receiver.sink("hook");
    start(Launch::new(&toml).env("HOOK_SECRET", SECRET), variables)
}

fn start(launch: Launch, variables: &[(&str, &str)]) -> Process {
    variables.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_a_span_for_each_list_watch_and_delivery() {
    let (sim, (url, collected)) = (sim(1, 30), collector().await);
    let receiver = Receiver::start(Mode::Error);
    let mut hub = launch(&sim.url(), &receiver, &[(ENDPOINT, &url), (DELAY, NEVER)]);
    hub.ready().await;
    receiver.met(Mode::Error, 1).await;
    receiver.set(Mode::Healthy);
    receiver.converged("c0", &sim, &World::pods()).await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    let collected = collected.lock();
    assert!(collected.problems.is_empty(), "{:?}", collected.problems);
    assert!(collected.services.iter().all(|name| name == "informer-hub"), "{:?}", collected.services);
    let spans =
        |name: &str| collected.spans.iter().filter(|(of, ..)| of == name).map(|(_, a, _)| a).collect::<Vec<_>>();
    let lists = spans("list");
    assert_eq!(lists.len(), 1, "{lists:?}");
    let has =
        |of: &Attributes, key: &str, value: &str| assert_eq!(of.get(key).map(String::as_str), Some(value), "{of:?}");
    for (key, value) in [("cluster", "c0"), ("resource", "pods"), ("objects", "30")] {
        has(lists[0], key, value);
    }
    assert!(lists[0].contains_key("pages"), "{lists:?}");
    let watches = spans("watch");
    assert!(!watches.is_empty(), "{:?}", collected.spans);
    has(watches[0], "cluster", "c0");
    let deliveries = spans("deliver");
    let status = |code: &str| {
        deliveries.iter().filter(|of| of.get("http.response.status_code").is_some_and(|status| status == code)).count()
    };
    assert!(status("500") >= 1 && status("204") >= 1, "{deliveries:?}");
    for of in &deliveries {
        has(of, "sink", "hook");
    }
    let delivered = deliveries.iter().filter(|of| of["http.response.status_code"] == "204");
    assert_eq!(delivered.map(|of| of["events"].parse::<u64>().unwrap()).sum::<u64>(), 30);
    let known = ["list", "watch", "deliver"];
    assert!(collected.spans.iter().all(|(name, ..)| known.contains(&name.as_str())), "{:?}", collected.spans);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_continues_the_trace_of_the_client() {
    let (sim, (url, collected)) = (sim(3, 10), collector().await);
    let receiver = Receiver::start(Mode::Healthy);
    let mut hub = launch(&sim.url(), &receiver, &[(ENDPOINT, &url), (DELAY, NEVER)]);
    hub.ready().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let client = reqwest::Client::builder().tls_certs_only([]).user_agent("kubectl/v1 (x)").build().unwrap();
    for (path, code) in [("/clusters/c0/api/v1/pods", 200), ("/clusters/*/api/v1/things", 404)] {
        let request = client.get(hub.url().await + path).header("traceparent", parent);
        assert_eq!(request.send().await.unwrap().status(), code);
    }
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    let collected = collected.lock();
    let reads: Vec<_> = collected.spans.iter().filter(|(name, ..)| name == "read").map(|(_, of, _)| of).collect();
    let seen = |of: &&Attributes| {
        ["verb", "resource", "root", "client", "http.response.status_code"].map(|key| of[key].clone()).join(" ")
    };
    let seen: Vec<_> = reads.iter().map(seen).collect();
    assert_eq!(seen, ["list pods c0 kubectl 200", "list things * kubectl 404"]);
    let (trace, span) = ids(parent);
    let continued =
        collected.tree.iter().filter(|((of, _), (name, parent))| *of == trace && name == "read" && *parent == span);
    assert_eq!(continued.count(), 2, "{:?}", collected.tree);
}

/// Returns trace id and span id of a `traceparent`.
fn ids(parent: &str) -> (String, String) {
    let mut parts = parent.split('-').skip(1);
    (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_is_traced_from_the_watch_to_its_receiver() {
    let (sim, (url, collected)) = (sim(7, 30), collector().await);
    let receiver = Receiver::start(Mode::Healthy);
    let mut hub = launch(&sim.url(), &receiver, &[(ENDPOINT, &url), (DELAY, NEVER)]);
    hub.ready().await;
    receiver.converged("c0", &sim, &World::pods()).await;
    let listed = receiver.received(|received| received.traces.iter().any(|(_, events)| !events.is_empty()));
    assert!(!listed, "listed objects are not traced as changes");
    let mut churn = Churn::new(7);
    let (header, events) = until("a request with a traced event", async || {
        sim.with_world(|world| churn.step(world));
        receiver.received(|received| received.traces.iter().find(|(_, events)| !events.is_empty()).cloned())
    })
    .await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    let collected = collected.lock();
    let (trace, sink) = ids(&events[0]);
    let tree = &collected.tree;
    let of_trace = tree.iter().filter(|((of, _), _)| *of == trace);
    let parents: std::collections::BTreeMap<&str, &str> =
        of_trace.map(|(_, (name, parent))| (name.as_str(), parent.as_str())).collect();
    let change = tree.iter().find(|((of, _), (name, _))| *of == trace && name == "change").unwrap().0.1.clone();
    for stage in ["reflector", "fifo", "processor", "listener", "sink"] {
        assert_eq!(parents.get(stage), Some(&change.as_str()), "{stage}: {parents:?}");
    }
    let attempt = ids(&header.unwrap());
    assert_eq!(tree.get(&attempt), Some(&("deliver".to_owned(), sink)), "{tree:#?}");
    assert_eq!(attempt.0, trace);
    let (_, attributes, _) = collected.spans.iter().find(|(name, ..)| name == "change").unwrap();
    let keys: Vec<_> = attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert!(keys.contains(&("cluster", "c0")) && keys.contains(&("resource", "pods")), "{keys:?}");
    let names: Vec<_> = sim.truth(&World::pods()).into_keys().map(|key| key.name().to_owned()).collect();
    let text = format!("{:?}", collected.spans);
    assert!(!names.iter().any(|name| text.contains(name)), "spans contain no object name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_watches_start_no_traces() {
    let (sim, (url, collected)) = (sim(9, 5), collector().await);
    let toml = cluster("c0", &sim.url()) + "[resources.pods]\n[resources.\"widgets.example.com\"]\n";
    let mut hub = start(Launch::new(&toml), &[(ENDPOINT, &url), (DELAY, NEVER)]);
    let last_survey = async || {
        let discovery = hub.status().await["clusters"][0]["discovery"].clone();
        (discovery["state"] == "watching").then(|| discovery["asked"].as_str().unwrap_or_default().to_owned())
    };
    let before = until("definitions are watched", &last_survey).await;
    let definitions = World::definitions();
    until("a changed definition causes a discovery", async || {
        sim.with_world(|world| {
            let key = world.objects(&definitions).next().map(|object| object.key().clone()).unwrap();
            world.patch(&definitions, &key, &serde_json::json!({ "metadata": { "labels": { "touched": "yes" } } }));
        });
        last_survey().await.filter(|at| *at != before)
    })
    .await;
    let pods = World::pods();
    until("a cached change is traced", async || {
        sim.with_world(World::create_pod);
        let status = hub.status().await;
        let informers = status["clusters"][0]["informers"].as_array().unwrap().clone();
        let cached = informers.iter().find(|informer| informer["resource"] == "pods")?["objects"].as_u64()?;
        (cached > 5 && cached == sim.truth(&pods).len() as u64).then_some(())
    })
    .await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    let collected = collected.lock();
    let attributes: Vec<_> =
        collected.spans.iter().filter(|(name, ..)| name == "change").map(|(_, of, _)| of).collect();
    assert!(
        !attributes.is_empty() && attributes.iter().all(|of| of.contains_key("cluster")),
        "a trace without parts: {attributes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_name_comes_from_the_environment_and_spans_are_exported_while_running() {
    let (sim, (url, collected)) = (sim(2, 10), collector().await);
    let receiver = Receiver::start(Mode::Healthy);
    let endpoint = format!("{url}/v1/traces");
    let variables = [(TRACES_ENDPOINT, &*endpoint), ("OTEL_SERVICE_NAME", "another"), (DELAY, "50")];
    let hub = launch(&sim.url(), &receiver, &variables);
    hub.ready().await;
    until("a list's span", async || collected.lock().spans.iter().any(|span| span.0 == "list").then_some(())).await;
    assert!(collected.lock().services.iter().all(|name| name == "another"), "{:?}", collected.lock().services);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_lines_carry_trace_and_span_ids() {
    let (sim, (url, collected)) = (sim(3, 30), collector().await);
    let receiver = Receiver::start(Mode::Error);
    let endpoint = format!("{url}/v1/traces");
    let hub = launch(&sim.url(), &receiver, &[(TRACES_ENDPOINT, &endpoint), (DELAY, "50")]);
    let line = hub.line("delivery failed").await;
    let id = |key: &str| line[key].as_str().unwrap_or_else(|| panic!("no {key}: {line}")).to_owned();
    let ids = (id("trace_id"), id("span_id"));
    until("the span of the line", async || collected.lock().ids.contains(&ids).then_some(())).await;
    assert!(hub.line("serving").await["trace_id"].is_null(), "the line is outside of spans");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_have_no_trace_id_without_an_exporter() {
    let sim = sim(4, 30);
    let receiver = Receiver::start(Mode::Error);
    let hub = launch(&sim.url(), &receiver, &[]);
    assert!(hub.line("delivery failed").await["trace_id"].is_null());
}

/// Asserts that a hub with an unusable collector delivers events, warns at most once for traces and once for metrics,
/// and ends in time.
async fn assert_not_disturbed(endpoint: &str, warnings: usize) {
    let sim = sim(3, 30);
    let receiver = Receiver::start(Mode::Healthy);
    let variables = [(ENDPOINT, endpoint), (DELAY, "50"), ("OTEL_METRIC_EXPORT_INTERVAL", "100")];
    let mut hub = launch(&sim.url(), &receiver, &variables);
    hub.ready().await;
    receiver.converged("c0", &sim, &World::pods()).await;
    if warnings > 0 {
        for what in ["traces", "metrics"] {
            let line = until(what, async || {
                let mut warnings = hub.lines().into_iter().filter(|line| line["level"] == "WARN");
                warnings.find(|line| message_of(line).contains(what))
            })
            .await;
            assert!(!line.to_string().contains("us3r"), "{line}");
        }
    }
    let signalled = Instant::now();
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
    let warned = hub.lines().iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").count();
    // One warning for traces and one for metrics.
    assert!(warned <= 2, "{}", hub.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_collector_causes_only_a_warning() {
    assert_not_disturbed("http://us3r:us3r@127.0.0.1:1", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_collector_does_not_block_shutdown() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    assert_not_disturbed(&format!("http://{}", listener.local_addr().unwrap()), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_collector_address_causes_only_a_warning() {
    assert_not_disturbed("us3r collector", 1).await;
}

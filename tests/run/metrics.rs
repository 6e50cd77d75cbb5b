//! Tests of metrics by scrape and by OTLP export.
#![allow(clippy::cast_precision_loss, clippy::float_cmp, reason = "they count, and not far")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use informer_hub_sim::{Churn, World};
use informer_hub_telemetry::metrics::{CATALOGUE, Kind};

use crate::otlp_collector::collector;
use crate::process::{LEASE, Launch, Process, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).timeout(Duration::from_secs(10)).build().unwrap()
}

/// Time of the last message of a cluster.
const HEARD: &str = r#"informer_hub_cluster_last_heard_timestamp_seconds{cluster="c0"}"#;

async fn scrape(url: &str) -> BTreeMap<String, f64> {
    let answer = client().get(format!("{url}/metrics")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    values(&answer.text().await.unwrap())
}

/// Returns the values of a scrape by series.
fn values(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

/// Returns the metric names of these series.
fn names(values: &BTreeMap<String, f64>) -> BTreeSet<&str> {
    let bare = |series: &'_ String| series.len().min(series.find('{').unwrap_or(usize::MAX));
    let names = values.keys().map(|series| &series[..bare(series)]);
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect()
}

fn launch(hub: &str, url: &str, receiver: &Receiver) -> Process {
    let toml = format!("{hub}{}[resources.pods]\n{}", cluster("c0", url), receiver.sink("hook"));
    Launch::new(&toml).env("HOOK_SECRET", SECRET).start()
}

/// Prefixes of metrics that this hub lacks. Metrics of the port's certificate exist only with TLS, those of readers
/// only with limits, and those of the fleet only with `[fleet]`. Only an embedding program registers work queues.
const ABSENT: [&str; 4] =
    ["informer_hub_port_certificate_", "informer_hub_workqueue_", "informer_hub_reader_", "informer_hub_fleet_"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrape_has_every_metric_with_correct_values() {
    let sim = sim(1, 40);
    let receiver = Receiver::start(Mode::Healthy);
    let state = tempfile::tempdir().unwrap();
    let place = |name: &str| state.path().join(name).display().to_string();
    std::fs::create_dir(place("edge")).unwrap();
    let hub = format!(
        "state_dir = {:?}\ncheckpoint = \"100ms\"\nmemory_limit = \"1GiB\"\naudit = {{ stdout = true }}\n[resources.ours]\nresource = \"*.none.com\"\n\
         [cluster_sources.edge]\ntype = \"folder\"\npath = {:?}\n\
         [cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nserver = {:?}\ntoken = {{ file = {:?} }}\n\
         [sinks.idle]\ntype = \"nats\"\nurl = \"tls://127.0.0.1:1\"\nsubject = \"a\"\nclient_cert_file = {:?}\n\
         client_key_file = {:?}\nmatch = {{ resources = [\"ours\"] }}\n",
        place("s"),
        place("edge"),
        sim.url(),
        place("token"),
        place("client.pem"),
        place("client.key"),
    );
    // The payload is `{"iat":1700000000,"exp":4000000000}`.
    std::fs::write(place("token"), "e30.eyJpYXQiOjE3MDAwMDAwMDAsImV4cCI6NDAwMDAwMDAwMH0.c2ln").unwrap();
    let certificate = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
    std::fs::write(place("client.pem"), certificate.cert.pem()).unwrap();
    std::fs::write(place("client.key"), certificate.signing_key.serialize_pem()).unwrap();
    let credentials = format!("token = {{ file = {:?} }}\n", place("token"));
    let toml = hub + &cluster("c0", &sim.url()) + &credentials + "[resources.pods]\n" + &receiver.sink("hook") + LEASE;
    let hub = Launch::new(&toml).env("HOOK_SECRET", SECRET).start();
    hub.ready().await;
    let mut churn = Churn::new(1);
    for _ in 0..100 {
        sim.with_world(|world| churn.step(world));
    }
    let pods = World::pods();
    receiver.converged("c0", &sim, &pods).await;
    let (truth, url) = (sim.truth(&pods).len(), hub.url().await);
    let delivered = r#"informer_hub_sink_delivered_events_total{sink="hook"}"#;
    // Metrics of the read API exist once it has been used.
    assert_eq!(hub.get("/clusters/*/api/v1/pods").await.0, 200);
    // Denials exist once a request was denied.
    let misdirected = client().get(format!("{url}/v1/status")).header("host", "evil.example").send().await.unwrap();
    assert_eq!(misdirected.status(), 421);
    let _watch = client().get(format!("{url}/clusters/*/api/v1/pods?watch=1")).send().await.unwrap();
    let seen = until("a scrape that shows everything", async || {
        let seen = scrape(&url).await;
        let events: u64 = receiver.received(|received| received.events);
        let expected = CATALOGUE.iter().filter(|metric| !ABSENT.iter().any(|prefix| metric.name.starts_with(prefix)));
        let complete = expected.clone().all(|metric| names(&seen).contains(metric.name));
        (complete && seen[delivered] == events as f64).then_some(seen)
    })
    .await;
    let is = |series: &str, expected: f64| assert_eq!(seen.get(series), Some(&expected), "{series}: {seen:#?}");
    is(r#"informer_hub_clusters{state="connected"}"#, 1.0);
    is(r#"informer_hub_cluster_up{cluster="c0"}"#, 1.0);
    is(r#"informer_hub_cluster_stale_seconds{cluster="c0"}"#, 0.0);
    is(r#"informer_hub_cluster_credentials_expiry_timestamp_seconds{cluster="c0"}"#, 4e9);
    is(r#"informer_hub_cluster_credentials_expiring{cluster="c0"}"#, 0.0);
    is(r#"informer_hub_cluster_source_credentials_expiry_timestamp_seconds{source="argo"}"#, 4e9);
    is(r#"informer_hub_sink_certificate_expiring{sink="idle"}"#, 0.0);
    is(r#"informer_hub_informers{cluster="c0",state="watching"}"#, 1.0);
    is(r#"informer_hub_informers{cluster="c0",state="degraded"}"#, 0.0);
    is(r#"informer_hub_lists_total{cluster="c0",reason="first"}"#, 1.0);
    is(r#"informer_hub_lists_total{cluster="c0",reason="expired"}"#, 0.0);
    is(r#"informer_hub_pattern_watched_resources{cluster="c0",entry="ours"}"#, 0.0);
    is(r#"informer_hub_pattern_left_out_resources{cluster="c0",entry="ours"}"#, 0.0);
    is(r#"informer_hub_objects{cluster="c0",resource="pods"}"#, truth as f64);
    is(r#"informer_hub_informer_synced{cluster="c0",resource="pods"}"#, 1.0);
    is(r#"informer_hub_sink_dead_lettered_events_total{sink="hook"}"#, 0.0);
    is(r#"informer_hub_sink_attempt_duration_seconds_count{sink="hook",outcome="failed"}"#, 0.0);
    let attempts = seen[r#"informer_hub_sink_attempt_duration_seconds_count{sink="hook",outcome="accepted"}"#];
    assert_eq!(attempts, seen[r#"informer_hub_sink_delivered_batches_total{sink="hook"}"#]);
    assert!(seen[r#"informer_hub_told_lag_seconds_count{subscription="hook"}"#] >= 1.0, "{seen:#?}");
    let (now, heard) = (jiff::Timestamp::now().as_second() as f64, &seen[HEARD]);
    assert!((now - 120.0..=now + 1.0).contains(heard), "{heard}, {now}");
    assert_ready_leader(&seen);
    assert_reads_are_counted_by_client(&seen);
}

/// Asserts that the hub is ready and holds the Lease.
fn assert_ready_leader(seen: &BTreeMap<String, f64>) {
    let names = ["informer_hub_ready", "informer_hub_leader", "informer_hub_lease_failing"];
    assert_eq!(names.map(|name| seen[name]), [1.0, 1.0, 0.0], "{seen:#?}");
}

/// Asserts that one list and one open watch of a client without a `User-Agent` are counted.
fn assert_reads_are_counted_by_client(seen: &BTreeMap<String, f64>) {
    let is = |series: &str, expected: f64| assert_eq!(seen.get(series), Some(&expected), "{series}: {seen:#?}");
    is(r#"informer_hub_read_client_responses_total{client="unknown",code="200"}"#, 2.0);
    is(r#"informer_hub_read_client_watchers{client="unknown"}"#, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openmetrics_has_the_same_values_as_text() {
    let sim = sim(2, 20);
    let receiver = Receiver::start(Mode::Healthy);
    let hub = launch("", &sim.url(), &receiver);
    hub.ready().await;
    receiver.converged("c0", &sim, &World::pods()).await;
    let url = hub.url().await;
    let request =
        client().get(format!("{url}/metrics")).header("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.text().await.unwrap();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let plain: BTreeSet<_> = scrape(&url).await.into_keys().map(|series| series.replace(".0\"}", "\"}")).collect();
    let open: BTreeSet<_> = values(&text).into_keys().map(|series| series.replace(".0\"}", "\"}")).collect();
    assert_eq!(plain, open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_are_answered_from_start_to_shutdown() {
    let sim = sim(3, 200);
    let slow = Mode::Slow(Duration::from_millis(300));
    let receiver = Receiver::start(slow);
    let toml = format!("{}[resources.pods]\n{}", cluster("c0", &sim.url()), receiver.sink("hook"));
    let (launch, url) = Launch::at_port(&toml);
    let mut hub = launch.env("HOOK_SECRET", SECRET).start();
    // The port answers from the first connection on.
    let first = until("the port is open", async || client().get(format!("{url}/metrics")).send().await.ok()).await;
    assert_eq!(first.status(), 200);
    assert!(values(&first.text().await.unwrap()).contains_key("informer_hub_ready"));
    until("ready", async || (scrape(&url).await["informer_hub_ready"] > 0.0).then_some(())).await;
    receiver.met(slow, 1).await;
    hub.signal("TERM");
    hub.line("shutting down").await;
    let seen = scrape(&url).await;
    assert!(seen.contains_key(r#"informer_hub_sink_pending_events{sink="hook"}"#), "{seen:#?}");
    assert_eq!(hub.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_the_scraped_metrics_and_the_final_state() {
    let (sim, (url, collected)) = (sim(4, 30), collector().await);
    let receiver = Receiver::start(Mode::Healthy);
    let toml = format!("{}[resources.pods]\n{}", cluster("c0", &sim.url()), receiver.sink("hook"));
    let launch = Launch::new(&toml).env("HOOK_SECRET", SECRET).env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let launch = launch.env("OTEL_METRIC_EXPORT_INTERVAL", "50").env("OTEL_SERVICE_NAME", "another");
    let mut hub = launch.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken").start();
    hub.ready().await;
    until("objects at the collector", async || {
        (collected.lock().metric("informer_hub.objects", &["c0", "pods"]) == Some(30.0)).then_some(())
    })
    .await;
    receiver.converged("c0", &sim, &World::pods()).await;
    let scraped = scrape(&hub.url().await).await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    let collected = collected.lock();
    assert!(collected.problems.is_empty(), "{:?}", collected.problems);
    assert!(collected.services.iter().all(|name| name == "another"), "{:?}", collected.services);
    assert_eq!(collected.headers["authorization"], "Bearer t0ken");
    assert!(!hub.log().contains("t0ken"));
    assert_eq!(collected.metric("informer_hub.sink_delivered_events", &["hook"]), Some(30.0));
    let attempts = collected.metric("informer_hub.sink_attempt_duration", &["accepted", "hook"]);
    assert_eq!(attempts, collected.metric("informer_hub.sink_delivered_batches", &["hook"]));
    for metric in CATALOGUE.iter().filter(|metric| names(&scraped).contains(metric.name)) {
        let kind = match metric.kind {
            Kind::Counter => "sum",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let expected = (metric.otlp_unit().to_owned(), kind);
        assert_eq!(collected.kinds.get(&metric.otlp_name()), Some(&expected), "{}", metric.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traced_delivery_is_an_exemplar() {
    let (sim, (url, collected)) = (sim(5, 5), collector().await);
    let receiver = Receiver::start(Mode::Healthy);
    let toml = format!("{}[resources.pods]\n{}", cluster("c0", &sim.url()), receiver.sink("hook"));
    let launch = Launch::new(&toml).env("HOOK_SECRET", SECRET);
    let hub = launch.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{url}/v1/traces")).start();
    hub.ready().await;
    receiver.converged("c0", &sim, &World::pods()).await;
    let url = hub.url().await;
    let exemplar = until("an exemplar", async || {
        let request = client().get(format!("{url}/metrics")).header("accept", "application/openmetrics-text");
        let text = request.send().await.unwrap().text().await.unwrap();
        text.lines().find(|line| line.contains("# {trace_id=")).map(ToOwned::to_owned)
    })
    .await;
    assert!(
        exemplar.starts_with("informer_hub_sink_attempt_duration_seconds_bucket{sink=\"hook\",outcome=\"accepted\""),
        "{exemplar}"
    );
    assert!(!exemplar.contains(&"0".repeat(32)), "{exemplar}");
    assert_eq!(collected.lock().exports, 0, "metrics are not exported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_concurrent_scrapes_are_answered() {
    let sim = sim(6, 20);
    let receiver = Receiver::start(Mode::Healthy);
    let hub = launch("", &sim.url(), &receiver);
    hub.ready().await;
    let (url, client, began) = (hub.url().await + "/metrics", client(), Instant::now());
    let scrapes: Vec<_> = (0..300).map(|_| tokio::spawn(client.get(&url).send())).collect();
    for scrape in scrapes {
        assert_eq!(scrape.await.unwrap().unwrap().status(), 200);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    receiver.converged("c0", &sim, &World::pods()).await;
}

//! The queries of the dashboard and of the alerts, over what a hub on a real apiserver shows, by Prometheus' own engine
//! (`tests/testbed/promtool/evaluate`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use informer_hub_telemetry::metrics::{CATALOGUE, Kind, Metric};
use serde::Deserialize;
use serde_json::{Value, json};

use super::desk::Desk;
use crate::bed::{
    RealCluster, built, comes_true, create_namespace, create_pod, create_pods, create_widgets, delete_now,
    install_widgets, pods,
};
use crate::fleet::PATIENCE;
use crate::receiver::Receiver;

/// What a query came to.
#[derive(Debug, Deserialize)]
struct Answer {
    query: String,
    #[serde(default)]
    error: String,
    values: usize,
    selectors: Vec<Selected>,
}

#[derive(Debug, Deserialize)]
struct Selected {
    metric: String,
    labels: BTreeSet<String>,
    series: usize,
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// What Grafana puts in place of variables when all is chosen.
fn chosen(query: &str) -> String {
    ["$job", "$instance", "$cluster"].iter().fold(query.to_owned(), |query, variable| query.replace(variable, ".*"))
}

/// The dashboard's queries, by panel or variable.
fn of_dashboard() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((panel["title"].as_str().unwrap().to_owned(), chosen(target["expr"].as_str().unwrap())));
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        // `label_values(selector, label)` is Grafana's; the selector is a query.
        let inner = variable["query"]["query"].as_str().and_then(|text| text.strip_prefix("label_values("));
        if let Some((selector, _)) = inner.and_then(|inner| inner.rsplit_once(',')) {
            queries.push((format!("variable {}", variable["name"]), chosen(selector)));
        }
    }
    queries
}

/// The alerts' expressions, by their names.
fn of_alerts() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/informer-hub.rules.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    rules.map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

/// Has queries evaluated over scrapes that are a minute apart.
fn evaluate(scrapes: &[String], queries: &[String]) -> Vec<Answer> {
    let begin = jiff::Timestamp::now().as_second() - 60 * i64::try_from(scrapes.len()).unwrap();
    let labels = json!({ "job": "informer-hub", "instance": "hub:7080" });
    let scrape = |(at, text): (usize, &String)| json!({ "at": begin + 60 * i64::try_from(at).unwrap(), "labels": labels, "text": text });
    let scrapes: Vec<_> = scrapes.iter().enumerate().map(scrape).collect();
    let mut command = Command::new(built("tests/testbed/promtool/evaluate.sh"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let order = json!({ "scrapes": scrapes, "queries": queries }).to_string();
    child.stdin.take().unwrap().write_all(order.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers = String::from_utf8(output.stdout).unwrap();
    answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn metric(name: &str) -> Option<&'static Metric> {
    let is_part = |of: &Metric| ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{}{part}", of.name));
    CATALOGUE.iter().find(|of| if of.kind == Kind::Histogram { is_part(of) } else { name == of.name })
}

/// What is wrong with a query, by what it came to.
fn mistakes(answer: &Answer) -> Vec<String> {
    let mut wrong = Vec::new();
    if !answer.error.is_empty() {
        wrong.push(answer.error.clone());
    }
    for Selected { metric: name, labels, series } in &answer.selectors {
        let Some(metric) = metric(name) else {
            wrong.push(format!("there is no metric {name}"));
            continue;
        };
        let of_scrape = ["job", "instance", "le"];
        let strange =
            labels.iter().find(|label| !metric.labels.contains(&&***label) && !of_scrape.contains(&&***label));
        if let Some(label) = strange {
            wrong.push(format!("{name} has no label {label}"));
        }
        // A selector with a value of a label may find nothing where all is well.
        let is_whole = labels.iter().all(|label| of_scrape.contains(&&**label) || label == "cluster");
        // Only a port with TLS has a certificate, and the desk speaks plain HTTP.
        let is_of_tls = name.starts_with("informer_hub_port_certificate_");
        if *series == 0 && is_whole && !is_of_tls {
            wrong.push(format!("{name} is not shown"));
        }
    }
    wrong
}

/// A hub with everything that has metrics, and what it showed, twice.
async fn scraped() -> Vec<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (cluster, desk, receiver) = (RealCluster::start("metrics").await, Desk::new(), Receiver::start().await);
    let client = cluster.client().await;
    install_widgets(&client).await;
    create_namespace(&client, "shop").await;
    create_pods(&client, "shop", "web", 10).await;
    create_widgets(&client, "shop", "part", 2).await;
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    desk.write("kubeconfig", &text);
    desk.write("edge/spoke.yaml", &text);
    let certificate = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
    desk.write("client.pem", &certificate.cert.pem());
    desk.write("client.key", &certificate.signing_key.serialize_pem());
    let sink = format!("type = \"webhook\"\nurl = \"{}\"\ninitial = \"replay\"\n", receiver.url());
    desk.write(
        "hub.toml",
        &format!(
            "[hub]\nlisten = \"{}\"\nstate_dir = \"state\"\ncheckpoint = \"200ms\"\nmemory_limit = \"1GiB\"\n\
             [clusters.hub]\nkubeconfig = \"kubeconfig\"\n[clusters.gone]\nserver = \"http://127.0.0.1:1\"\n\
             [cluster_sources.edge]\ntype = \"folder\"\npath = \"edge\"\n[resources.pods]\n\
             [cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nkubeconfig = \"kubeconfig\"\n\
             [sinks.idle]\ntype = \"nats\"\nurl = \"tls://127.0.0.1:1\"\nsubject = \"a\"\nclient_cert_file = \"client.pem\"\n\
             client_key_file = \"client.key\"\nmatch = {{ resources = [\"ours\"] }}\n\
             [resources.ours]\nresource = \"*.bed.example.com\"\n[sinks.audit]\n{sink}batch = {{ max_wait = \"20ms\" }}\n",
            desk.listen()
        ),
    );
    let mut hub = desk.hub();
    desk.ready(&hub).await;
    // Two clusters that are one.
    let told = async |events: f64| {
        let delivered = "informer_hub_sink_delivered_events_total{sink=\"audit\"}";
        let told = comes_true(PATIENCE, async || desk.metric(delivered).await.is_some_and(|it| it >= events));
        assert!(told.await, "{}", desk.get("/metrics").await.1);
    };
    told(24.0).await;
    let mut scrapes = vec![desk.get("/metrics").await.1];
    for at in 0..5 {
        create_pod(&client, "shop", &format!("late-{at}")).await;
    }
    delete_now(&pods(&client, "shop"), "web-1").await;
    told(36.0).await;
    let lag = "informer_hub_told_lag_seconds_count";
    assert!(comes_true(PATIENCE, async || desk.get("/metrics").await.1.contains(lag)).await);
    scrapes.push(desk.get("/metrics").await.1);
    assert_eq!(hub.ended().await, 0);
    scrapes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_query_of_dashboard_and_alerts_reads_what_the_hub_shows() {
    let scrapes = scraped().await;
    let (board, alerts) = (of_dashboard(), of_alerts());
    assert!(board.len() > 50 && alerts.len() > 25, "{} and {}", board.len(), alerts.len());
    let queries: Vec<_> = board.iter().chain(&alerts).map(|(_, query)| query.clone()).collect();
    let answers = evaluate(&scrapes, &queries);
    assert_eq!(answers.len(), queries.len());
    let mut wrong = Vec::new();
    for ((name, _), answer) in board.iter().chain(&alerts).zip(&answers) {
        wrong.extend(mistakes(answer).into_iter().map(|what| format!("{name}: {what}: {}", answer.query)));
    }
    for ((name, query), answer) in board.iter().zip(&answers) {
        // What compares with 0 at its end shows nothing where there is nothing.
        if answer.values == 0 && !query.ends_with("> 0") {
            wrong.push(format!("{name} has no value: {query}"));
        }
    }
    let fires: Vec<_> = alerts.iter().zip(&answers[board.len()..]).filter(|(_, answer)| answer.values > 0).collect();
    let fires: Vec<_> = fires.into_iter().map(|((name, _), _)| name.as_str()).collect();
    assert_eq!(fires, ["InformerHubClusterUnreachable"], "the cluster that is not there, and nothing else");
    assert!(wrong.is_empty(), "{}\n\n{}", wrong.join("\n"), scrapes[1]);
    // It does look.
    let strange = ["informer_hub_events_total{sink=\"a\"}", "informer_hub_event_total", "sum(informer_hub_ready"];
    let strange = evaluate(&scrapes, &strange.map(str::to_owned));
    assert!(strange.iter().all(|answer| !mistakes(answer).is_empty()), "{strange:#?}");
}

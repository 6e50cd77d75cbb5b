//! Test of the dashboard's and alerts' queries over the metrics of a hub on a real apiserver.
//!
//! Prometheus' own engine evaluates them (`tests/testbed/promtool/evaluate`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use informer_hub_telemetry::metrics::{CATALOGUE, Kind, Metric};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bed::{
    RealCluster, becomes_true, built, create_namespace, create_pod, create_pods, create_widgets, delete_now,
    install_widgets, pods,
};
use crate::fixture::WAIT_DEADLINE;
use crate::receiver::Receiver;
use crate::workdir::Workdir;

/// Result of a query.
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

/// Replaces Grafana's variables as if "All" were selected.
fn with_all_selected(query: &str) -> String {
    ["$job", "$instance", "$cluster"].iter().fold(query.to_owned(), |query, variable| query.replace(variable, ".*"))
}

/// Returns the dashboard's queries, by panel or variable.
fn dashboard_queries() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((
                panel["title"].as_str().unwrap().to_owned(),
                with_all_selected(target["expr"].as_str().unwrap()),
            ));
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        // `label_values(selector, label)` is Grafana's; the selector is a query.
        let inner = variable["query"]["query"].as_str().and_then(|text| text.strip_prefix("label_values("));
        if let Some((selector, _)) = inner.and_then(|inner| inner.rsplit_once(',')) {
            queries.push((format!("variable {}", variable["name"]), with_all_selected(selector)));
        }
    }
    queries
}

/// Returns the alerts' expressions, by alert name.
fn alert_queries() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/informer-hub.rules.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    rules.map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

/// Evaluates queries over scrapes that are a minute apart.
fn evaluate(scrapes: &[String], queries: &[String]) -> Vec<Answer> {
    let begin = jiff::Timestamp::now().as_second() - 60 * i64::try_from(scrapes.len()).unwrap();
    let labels = json!({ "job": "informer-hub", "instance": "hub:7080" });
    let scrape = |(at, text): (usize, &String)| json!({ "at": begin + 60 * i64::try_from(at).unwrap(), "labels": labels, "text": text });
    let scrapes: Vec<_> = scrapes.iter().enumerate().map(scrape).collect();
    let mut command = Command::new(built("tests/testbed/promtool/evaluate.sh"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = json!({ "scrapes": scrapes, "queries": queries }).to_string();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers = String::from_utf8(output.stdout).unwrap();
    answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn metric(name: &str) -> Option<&'static Metric> {
    let is_part = |of: &Metric| ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{}{part}", of.name));
    CATALOGUE.iter().find(|of| if of.kind == Kind::Histogram { is_part(of) } else { name == of.name })
}

/// Returns whether the hub of the test cannot have a metric: it has no readers with limits, no standby and no fleet.
fn is_of_others(name: &str) -> bool {
    let absent = ["reader_refused_requests", "reader_delay_seconds", "sink_standby", "leader", "lease_", "fleet_"];
    name.strip_prefix("informer_hub_").is_some_and(|name| absent.iter().any(|part| name.starts_with(part)))
}

/// Returns the mistakes of a query, by its result.
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
        let scrape_labels = ["job", "instance", "le"];
        let strange =
            labels.iter().find(|label| !metric.labels.contains(&&***label) && !scrape_labels.contains(&&***label));
        if let Some(label) = strange {
            wrong.push(format!("{name} has no label {label}"));
        }
        // A selector of a label value may legitimately match nothing.
        let is_general = labels.iter().all(|label| scrape_labels.contains(&&**label) || label == "cluster");
        // Only a TLS port has a certificate, and this hub serves plain HTTP.
        let is_of_tls = name.starts_with("informer_hub_port_certificate_");
        if *series == 0 && is_general && !is_of_tls && !is_of_others(name) {
            wrong.push(format!("{name} has no series"));
        }
    }
    wrong
}

/// Runs a hub with every feature that has metrics, and returns two scrapes.
async fn scrape_hub() -> Vec<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (cluster, workdir, receiver) = (RealCluster::start("metrics").await, Workdir::new(), Receiver::start().await);
    let client = cluster.client().await;
    install_widgets(&client).await;
    create_namespace(&client, "shop").await;
    create_pods(&client, "shop", "web", 10).await;
    create_widgets(&client, "shop", "part", 2).await;
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    workdir.write("kubeconfig", &text);
    workdir.write("edge/spoke.yaml", &text);
    let certificate = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
    workdir.write("client.pem", &certificate.cert.pem());
    workdir.write("client.key", &certificate.signing_key.serialize_pem());
    let sink = format!("type = \"webhook\"\nurl = \"{}\"\ninitial = \"replay\"\n", receiver.url());
    workdir.write(
        "hub.toml",
        &format!(
            "[hub]\nlisten = \"{}\"\nstate_dir = \"state\"\ncheckpoint = \"200ms\"\nmemory_limit = \"1GiB\"\n\
             [hub.audit]\npath = \"audit.log\"\n[clusters.hub]\nkubeconfig = \"kubeconfig\"\n\
             [clusters.gone]\nserver = \"http://127.0.0.1:1\"\n\
             [cluster_sources.edge]\ntype = \"folder\"\npath = \"edge\"\n[resources.pods]\n\
             [cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nkubeconfig = \"kubeconfig\"\n\
             [sinks.idle]\ntype = \"nats\"\nurl = \"tls://127.0.0.1:1\"\nsubject = \"a\"\nclient_cert_file = \"client.pem\"\n\
             client_key_file = \"client.key\"\nmatch = {{ resources = [\"ours\"] }}\n\
             [resources.ours]\nresource = \"*.bed.example.com\"\n[sinks.audit]\n{sink}batch = {{ max_wait = \"20ms\" }}\n",
            workdir.listen()
        ),
    );
    let mut hub = workdir.hub();
    workdir.ready(&hub).await;
    // Two of the configured clusters are the same apiserver, so each object is delivered twice.
    let delivered = async |events: f64| {
        let series = "informer_hub_sink_delivered_events_total{sink=\"audit\"}";
        let reached = becomes_true(WAIT_DEADLINE, async || workdir.metric(series).await.is_some_and(|it| it >= events));
        assert!(reached.await, "{}", workdir.get("/metrics").await.1);
    };
    delivered(24.0).await;
    let listed = workdir.get("/clusters/hub/api/v1/pods").await;
    assert_eq!(listed.0, 200, "{}", listed.1);
    let path = format!("http://{}/clusters/hub/api/v1/pods?watch=true", workdir.listen());
    let reader = reqwest::Client::builder().tls_certs_only([]).user_agent("dashboard-test/1").build().unwrap();
    let mut followed = reader.get(path).send().await.unwrap();
    assert!(followed.chunk().await.unwrap().is_some(), "the watch begins with the present pods");
    let mut scrapes = vec![workdir.get("/metrics").await.1];
    for at in 0..5 {
        create_pod(&client, "shop", &format!("late-{at}")).await;
    }
    delete_now(&pods(&client, "shop"), "web-1").await;
    delivered(36.0).await;
    assert_eq!(workdir.get("/clusters/hub/api/v1/pods").await.0, 200);
    assert!(followed.chunk().await.unwrap().is_some(), "the watch shows the new pods");
    let lag = "informer_hub_told_lag_seconds_count";
    assert!(becomes_true(WAIT_DEADLINE, async || workdir.get("/metrics").await.1.contains(lag)).await);
    scrapes.push(workdir.get("/metrics").await.1);
    drop(followed);
    assert_eq!(hub.terminate().await, 0);
    scrapes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dashboard_and_alert_queries_match_the_hubs_metrics() {
    let scrapes = scrape_hub().await;
    let (board, alerts) = (dashboard_queries(), alert_queries());
    assert!(board.len() > 50 && alerts.len() > 25, "{} and {}", board.len(), alerts.len());
    let queries: Vec<_> = board.iter().chain(&alerts).map(|(_, query)| query.clone()).collect();
    let answers = evaluate(&scrapes, &queries);
    assert_eq!(answers.len(), queries.len());
    let mut wrong = Vec::new();
    for ((name, _), answer) in board.iter().chain(&alerts).zip(&answers) {
        wrong.extend(mistakes(answer).into_iter().map(|what| format!("{name}: {what}: {}", answer.query)));
    }
    for ((name, query), answer) in board.iter().zip(&answers) {
        let is_of_others = answer.selectors.iter().all(|selected| is_of_others(&selected.metric));
        // A query that ends with `> 0` is empty if there is nothing to show.
        if answer.values == 0 && !query.ends_with("> 0") && !is_of_others {
            wrong.push(format!("{name} has no value: {query}"));
        }
    }
    let fires: Vec<_> = alerts.iter().zip(&answers[board.len()..]).filter(|(_, answer)| answer.values > 0).collect();
    let fires: Vec<_> = fires.into_iter().map(|((name, _), _)| name.as_str()).collect();
    assert_eq!(fires, ["InformerHubClusterUnreachable"], "only the unreachable cluster's alert fires");
    assert!(wrong.is_empty(), "{}\n\n{}", wrong.join("\n"), scrapes[1]);
    // Self-test: invalid queries are found.
    let strange = ["informer_hub_events_total{sink=\"a\"}", "informer_hub_event_total", "sum(informer_hub_ready"];
    let strange = evaluate(&scrapes, &strange.map(str::to_owned));
    assert!(strange.iter().all(|answer| !mistakes(answer).is_empty()), "{strange:#?}");
}

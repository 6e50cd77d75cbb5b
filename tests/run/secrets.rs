//! Tests that logs, status and errors contain no secret, even if everything fails.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use informer_hub_sim::{ResourceDef, SimCluster};
use informer_hub_types::Gvr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::process::{Launch, Process, cluster, sim};
use crate::receiver::read_request;
use crate::wait::until;

/// A part of each secret that must not be shown.
const SECRETS: [&str; 9] = [
    "t0ken-env",
    "t0ken-file",
    "t0ken-kube",
    "t0ken-argo",
    // Base64 of `t0ken-argo`, as in a Kubernetes Secret.
    "dDBrZW4tYXJnb",
    "us3r1nfo",
    "s1gning",
    "hook-p4th",
    "hook-qu3ry",
];

/// Starts a server that answers 500 and repeats the request's path and query in the body.
async fn echo() -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = read_request(&mut stream).await;
                let body = "Cannot POST /services/hook-p4th?key=hook-qu3ry";
                let head = format!("HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, (head + body).as_bytes()).await;
            });
        }
    });
    (url, task)
}

fn assert_clean(text: &str, place: &str) {
    for secret in SECRETS {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} is in {place}: {line:?}");
    }
}

fn launch(rust_log: &str, well: &str, echo: &str, json: bool) -> Process {
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         clusters: [{{name: c, cluster: {{server: 'http://us3r1nfo:us3r1nfo@{echo}', \
         proxy-url: 'http://us3r1nfo:us3r1nfo@127.0.0.1:1'}}}}]\n\
         users: [{{name: u, user: {{token: t0ken-kube}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    );
    let dead = "http://127.0.0.1:1";
    let toml = cluster("well", well)
        + &cluster("env", dead)
        + "token = { env = \"TOKEN\" }\n"
        + &cluster("file", &format!("http://{echo}"))
        + "token = { file = \"token\" }\n[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\n"
        + &format!("server = \"{well}\"\n")
        + "[clusters.kube]\nkubeconfig = \"kube\"\n[resources.pods]\n"
        + &format!(
            "[sinks.hook]\ntype = \"webhook\"\ninitial = \"replay\"\nretry = {{ first = \"10ms\", max = \"100ms\" }}\n\
             url = \"http://{echo}/services/hook-p4th?key=hook-qu3ry\"\nsigning_secret = {{ env = \"KEY\" }}\n\
             [sinks.down]\ntype = \"webhook\"\ninitial = \"replay\"\nurl = \"{dead}/hook-p4th?key=hook-qu3ry\"\n\
             signing_secret = {{ env = \"KEY\" }}\n"
        );
    let launch = Launch::new(&toml).file("kube", &kubeconfig).file("token", "t0ken-file\n");
    let launch = launch.env("TOKEN", "t0ken-env").env("KEY", "s1gning").env("RUST_LOG", rust_log);
    if json { launch.start() } else { launch.start_as_text() }
}

/// Creates two Argo CD Secrets: one of an unreachable cluster, one that is invalid.
fn give_clusters(sim: &SimCluster) {
    let secrets = Gvr::new("", "v1", "secrets");
    let secret = |config: Value| {
        let text = config.to_string();
        let data = json!({ "server": STANDARD.encode("http://127.0.0.1:1"), "config": STANDARD.encode(text) });
        json!({ "metadata": { "labels": { "argocd.argoproj.io/secret-type": "cluster" } }, "data": data })
    };
    sim.with_world(|world| {
        world.register(ResourceDef::new(&secrets, "Secret", true, false));
        world.create(&secrets, "argocd", "found", secret(json!({ "bearerToken": "t0ken-argo" }))).unwrap();
        let wrong = json!({ "awsAuthConfig": {}, "bearerToken": "t0ken-argo" });
        world.create(&secrets, "argocd", "wrong", secret(wrong)).unwrap();
    });
}

async fn assert_no_secret_is_shown(rust_log: &str) {
    let (sim, (echo, task)) = (sim(1, 20), echo().await);
    give_clusters(&sim);
    let mut hub = launch(rust_log, &sim.url(), &echo, true);
    until("everything fails", async || {
        let status = hub.status().await;
        let sinks = status["sinks"].as_array().unwrap();
        let failing = sinks.iter().all(|sink| sink["retries"].as_u64() > Some(1) && sink["lastError"].is_string());
        let clusters = status["clusters"].as_array().unwrap();
        let unwell = clusters.iter().filter(|cluster| cluster["informers"][0]["lastError"].is_string()).count();
        let source = &status["clusterSources"][0];
        (failing && unwell == 4 && source["invalid"] == 1).then_some(())
    })
    .await;
    assert_clean(&hub.get("/v1/status").await.1, "the status");
    assert_clean(&hub.get("/readyz").await.1, "the probe");
    hub.signal("TERM");
    hub.line("shutting down").await;
    assert_eq!(hub.ended_by("TERM").await, 143);
    assert_clean(&hub.log(), "the log");
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_log_and_status_contain_no_secret() {
    assert_no_secret_is_shown("informer_hub=trace").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependency_logs_contain_no_secret() {
    assert_no_secret_is_shown("trace").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_information_in_an_address_is_refused_and_not_printed() {
    let toml = "[clusters.c]\nserver = \"https://u:us3r1nfo@127.0.0.1:1\"\n[resources.pods]\n[sinks.s]\n\
                type = \"webhook\"\nurl = \"https://u:us3r1nfo@127.0.0.1:1/\"\n";
    let mut hub = Launch::new(toml).start_as_text();
    assert_eq!(hub.ended().await, 2);
    assert_clean(&hub.log(), "the log");
    assert!(hub.log().contains("2 mistakes"), "{}", hub.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_without_a_terminal_has_no_control_codes() {
    let (sim, (echo, task)) = (sim(2, 20), echo().await);
    let mut hub = launch("info", &sim.url(), &echo, false);
    let log = async || (hub.log().contains("serving") && hub.log().contains("delivery failed")).then_some(());
    until("failures", log).await;
    hub.signal("TERM");
    until("the signal", async || hub.log().contains("shutting down").then_some(())).await;
    assert_eq!(hub.ended_by("TERM").await, 143);
    let log = hub.log();
    let control = log.chars().find(|c| c.is_control() && *c != '\n');
    assert!(control.is_none(), "{control:?} in\n{log}");
    std::io::stderr().flush().unwrap();
    task.abort();
}

/// Returns an unsigned Kubernetes token with this age and remaining lifetime, in hours.
fn jwt(age: i64, left: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({ "iat": now - age * 3600, "exp": now + left * 3600 }).to_string();
    format!("e30.{}.t0ken-file", URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiring_token_is_reported_until_it_is_replaced() {
    let sim = sim(1, 3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, jwt(23, 1)).unwrap();
    let toml = format!("{}token = {{ file = {file:?} }}\n[resources.pods]\n", cluster("c0", &sim.url()));
    let hub = Launch::new(&toml).start();
    hub.ready().await;
    let line = hub.line("the credential expires soon and has not been replaced").await;
    let place = file.display().to_string();
    assert_eq!((&line["level"], &line["cluster"], &line["place"]), (&json!("WARN"), &json!("c0"), &json!(place)));
    let credential = hub.status().await["clusters"][0]["credentials"][0].clone();
    assert_eq!((&credential["kind"], &credential["state"]), (&json!("token-file"), &json!("imminent")));
    let expiring = "informer_hub_cluster_credentials_expiring{cluster=\"c0\"}";
    let metrics = async || hub.get("/metrics").await.1;
    assert!(metrics().await.contains(&format!("{expiring} 1\n")), "{}", metrics().await);

    std::fs::write(&file, jwt(0, 24)).unwrap();
    // A reload reads the token at once; otherwise it takes up to a minute.
    until("the new token is seen", async || {
        hub.post("/v1/reload").await;
        (hub.count("the credential was replaced") == 1).then_some(())
    })
    .await;
    assert_eq!(hub.status().await["clusters"][0]["credentials"][0]["state"], "valid");
    assert!(metrics().await.contains(&format!("{expiring} 0\n")), "{}", metrics().await);
    assert_eq!(hub.count("the credential expires soon"), 1, "{}", hub.log());
    for text in [hub.log(), metrics().await, hub.get("/v1/status").await.1] {
        assert!(!text.contains("t0ken-file") && !text.contains("e30."), "{text}");
    }
}

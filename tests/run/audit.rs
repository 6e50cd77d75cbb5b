//! The audit log of the hub: its file, what it shows of requests, and its end at a shutdown. Limits of readers in
//! status and metrics.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::process::{Launch, client, cluster, sim};

const TOKEN: &str = "t0ken-0123456789abcdef";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_in_the_file_until_the_end_of_the_process() {
    let sim = sim(32, 20);
    let toml = format!(
        "[hub.auth]\ntoken = {{ file = \"token\" }}\n[hub.audit]\npath = \"audit.log\"\n\
         rules = [{{ level = \"None\", paths = [\"/v1/*\"] }}]\n{}[resources.pods]\n",
        cluster("c0", &sim.url())
    );
    let mut hub = Launch::new(&toml).file("token", TOKEN).start();
    hub.ready().await;
    let url = hub.url().await;
    let client = client();
    let get = async |path: &str, token: &str| {
        let answer = client.get(format!("{url}{path}")).bearer_auth(token).send().await.unwrap();
        (answer.status().as_u16(), answer.headers()["audit-id"].to_str().unwrap().to_owned())
    };
    let pods = get("/clusters/c0/api/v1/pods?limit=5", TOKEN).await;
    let wrong = get("/clusters/c0/api/v1/pods", "wr0ng-0123456789abcdef").await;
    let quiet = get("/v1/status", TOKEN).await;
    let watch = client.get(format!("{url}/clusters/*/api/v1/pods?watch=1")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!((pods.0, wrong.0, quiet.0, watch.status().as_u16()), (200, 401, 200, 200));
    assert_eq!(hub.ended_by("TERM").await, 0);
    let path = hub.path().join("audit.log");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(TOKEN) && !text.contains("wr0ng"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str| events.iter().filter(|event| event["auditID"] == *id).collect::<Vec<_>>();
    let [event] = of(&pods.1)[..] else { panic!("{text}") };
    assert_eq!((&event["verb"], &event["annotations"]["informer-hub.io/objects"]), (&"list".into(), &"5".into()));
    let [event] = of(&wrong.1)[..] else { panic!("{text}") };
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert!(of(&quiet.1).is_empty(), "{text}");
    let watches = of(watch.headers()["audit-id"].to_str().unwrap());
    let stages: Vec<_> = watches.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_readers_are_in_status_and_metrics() {
    const APP: &str = "app-0123456789abcdef";
    let sim = sim(33, 5);
    let toml = format!(
        "[hub.auth]\ntoken = {{ file = \"token\" }}\n[readers.app]\ntoken = {{ file = \"app\" }}\nallow = [{{}}]\n\
         limits = {{ watches = 1, bytes_per_second = \"1MiB\" }}\n{}[resources.pods]\n",
        cluster("c0", &sim.url())
    );
    let hub = Launch::new(&toml).file("token", TOKEN).file("app", APP).start();
    hub.ready().await;
    let (url, client) = (hub.url().await, client());
    let get =
        async |path: &str, token: &str| client.get(format!("{url}{path}")).bearer_auth(token).send().await.unwrap();
    let watch = "/clusters/*/api/v1/pods?watch=1";
    let open = get(watch, APP).await;
    let refused = get(watch, APP).await;
    assert_eq!((open.status().as_u16(), refused.status().as_u16()), (200, 429));
    let json = async |answer: reqwest::Response| serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap();
    let status = json(get("/v1/status", TOKEN).await).await;
    assert_eq!(
        status["readers"],
        serde_json::json!([{
            "name": "app",
            "limits": { "watches": 1, "bytesPerSecond": 1 << 20 },
            "inUse": { "requests": 0, "scans": 0, "watches": 1 },
            "refused": { "watches": 1 },
        }])
    );
    let own = json(get("/v1/status", APP).await).await;
    assert!(own["clusters"].is_array() && own["readers"].is_null(), "{own}");
    let metrics = get("/metrics", TOKEN).await.text().await.unwrap();
    let line = "informer_hub_reader_refused_requests_total{reader=\"app\",limit=\"watches\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("informer_hub_reader_sent_bytes_total{reader=\"app\"} "), "{metrics}");
    assert!(metrics.contains("informer_hub_reviews_total{kind=\"token\",outcome=\"allowed\"} 0\n"), "{metrics}");
}

//! A hub over a cluster with markers, its readers, and its sinks.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_sim::{ResourceDef, SimCluster, World};
use informer_hub_types::{Gvr, ObjectKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::rows::{OBJECTS, ROOTS};
use crate::process::{Launch, Process, cluster, sim_of_any_objects};
use crate::receiver::read_request;
use crate::wait::{PATIENCE, until};

/// A reader of the hub.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) name: &'static str,
    pub(super) token: &'static str,
    pub(super) sees_secrets: bool,
}

/// Readers: one without the right to Secrets, one with it, and the operator, who has no right to Secrets here.
pub(super) const READERS: [Reader; 3] = [
    Reader { name: "plain", token: "plain-0123456789abcdef", sees_secrets: false },
    Reader { name: "secrets", token: "secrets-0123456789abcdef", sees_secrets: true },
    Reader { name: "operator", token: "operator-0123456789abcdef", sees_secrets: false },
];

const READER_OF_SECRETS: &Reader = &READERS[1];
const OPERATOR: &Reader = &READERS[2];

/// Versions and event positions from before the objects were changed, to resume from.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Versions of lists, by root and resource.
    pub(super) versions: BTreeMap<(String, &'static str), String>,
    /// Positions of events, by resource.
    pub(super) events: BTreeMap<&'static str, String>,
}

/// A hub whose objects have markers.
pub(super) struct Planted {
    pub(super) process: Process,
    pub(super) url: String,
    pub(super) positions: Positions,
    client: reqwest::Client,
    /// Bodies that the receiver got.
    bodies: Arc<Mutex<String>>,
    receiver: JoinHandle<()>,
    cluster: SimCluster,
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

fn secrets() -> Gvr {
    Gvr::new("", "v1", "secrets")
}

/// Starts a receiver that accepts events at `/accepted` and refuses them elsewhere.
async fn receive() -> (String, Arc<Mutex<String>>, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bodies = Arc::<Mutex<String>>::default();
    let all = Arc::clone(&bodies);
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                while let Some((path, _, body)) = read_request(&mut stream).await {
                    let code = if path == "/accepted" { "204 No Content" } else { "422 No" };
                    all.lock().push_str(&String::from_utf8_lossy(&body));
                    let answer = format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\n\r\n");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, bodies, task)
}

/// Creates the objects. The pod `web` owns the Secret `vault`, which owns the pod `client`.
fn plant(world: &mut World) {
    world.register(ResourceDef::new(&secrets(), "Secret", true, false));
    let copy = |object: Value| json!({ "kubectl.kubernetes.io/last-applied-configuration": object.to_string() });
    let reference = |world: &World, gvr: &Gvr, kind: &str, name: &str| {
        let uid = world.get(gvr, &ObjectKey::new("shop", name)).unwrap().uid().to_string();
        json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true }])
    };
    let spec = json!({ "hostname": "mark-redacted", "nodeName": "node-0" });
    let mut web = json!({ "metadata": { "annotations": copy(json!({ "spec": spec })) }, "spec": spec });
    web["spec"]["subdomain"] = json!("mark-dropped");
    world.create(&World::pods(), "shop", "web", web).unwrap();
    let owner = reference(world, &World::pods(), "Pod", "web");
    let applied = json!({ "data": { "k": "mark-applied" }, "stringData": { "s": "mark-applied" } });
    let vault = json!({
        "metadata": { "annotations": copy(applied), "ownerReferences": owner },
        "type": "Opaque", "data": { "k": STANDARD.encode("mark-data-1") }, "stringData": { "s": "mark-string-1" },
    });
    world.create(&secrets(), "shop", "vault", vault).unwrap();
    let owner = reference(world, &secrets(), "Secret", "vault");
    world.create(&World::pods(), "shop", "client", json!({ "metadata": { "ownerReferences": owner } })).unwrap();
    let spec = json!({ "shown": "yes", "gone": "mark-unkept" });
    world.create(&World::widgets(), "shop", "w", json!({ "spec": spec })).unwrap();
}

/// Changes every object with markers.
fn change(world: &mut World) {
    let step = json!({ "metadata": { "labels": { "step": "2" } } });
    let mut vault = step.clone();
    (vault["data"], vault["stringData"]) =
        (json!({ "k": STANDARD.encode("mark-data-2") }), json!({ "s": "mark-string-2" }));
    let mut web = step.clone();
    web["spec"] = json!({ "hostname": "mark-redacted-2", "subdomain": "mark-dropped-2" });
    let mut widget = step;
    widget["spec"] = json!({ "shown": "more", "gone": "mark-unkept-2" });
    for (gvr, name, patch) in
        [(secrets(), "vault", vault), (World::pods(), "web", web), (World::widgets(), "w", widget)]
    {
        world.patch(&gvr, &ObjectKey::new("shop", name), &patch).unwrap();
    }
}

impl Planted {
    pub(super) async fn start() -> Self {
        let cluster_of = sim_of_any_objects(5, 0);
        cluster_of.with_world(plant);
        let (receiver_url, bodies, receiver) = receive().await;
        let sink = |name: &str| {
            format!(
                "[sinks.{name}]\ntype = \"webhook\"\nurl = \"{receiver_url}/{name}\"\ninitial = \"replay\"\n\
                 retry = {{ first = \"10ms\", max = \"20ms\", refused_for = \"1s\" }}\nredact = [\"spec.hostname\"]\n"
            )
        };
        let toml = "auth = { token = { env = \"OPERATOR\" } }\n".to_owned()
            + &cluster("c", &cluster_of.url())
            + "labels = { tier = \"prod\" }\n\
               [resources.pods]\ndrop = [\"metadata.managedFields\", \"spec.subdomain\"]\n\
               [resources.secrets]\n[resources.nodes]\n\
               [resources.\"widgets.example.com\"]\nkeep = [\"spec.shown\", \"metadata.labels\"]\n\
               [readers.plain]\ntoken = { env = \"PLAIN\" }\nallow = [{}]\n\
               [readers.secrets]\ntoken = { env = \"SECRETS\" }\nallow = [{}, { resources = [\"secrets\"] }]\n\
               [sinks.file]\ntype = \"file\"\npath = \"events.jsonl\"\ninitial = \"replay\"\nredact = [\"spec.hostname\"]\n"
            + &sink("accepted")
            + &sink("refused");
        let mut launch = Launch::new(&toml);
        for Reader { name, token, .. } in READERS {
            launch = launch.env(&name.to_uppercase(), token);
        }
        let process = launch.start();
        process.ready().await;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().tls_certs_only([]).timeout(PATIENCE).build().unwrap();
        let (url, positions) = (process.url().await, Positions::default());
        let mut hub = Self { process, url, positions, client, bodies, receiver, cluster: cluster_of };
        hub.find_positions().await;
        hub.cluster.with_world(change);
        hub.wait_for_changes().await;
        hub
    }

    async fn find_positions(&mut self) {
        for (resource, group, _) in OBJECTS {
            for root in ROOTS {
                let list: Value = self.json(&format!("{root}/{group}/{resource}?limit=1")).await;
                let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                self.positions.versions.insert((root.to_owned(), resource), version);
            }
            let path = format!("/v1/events?resource={resource}&timeout=1ms");
            let (_, stream) = self.get(READER_OF_SECRETS, &path, "text/event-stream").await;
            let position = stream.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
            self.positions.events.insert(resource, position);
        }
    }

    /// Waits until readers, sinks and dead letters have the changes.
    async fn wait_for_changes(&self) {
        for (resource, ..) in OBJECTS {
            let path = format!("/v1/query?resource={resource}&q=labels(step%3D2)%20count");
            until(resource, async || (self.json(&path).await["count"] == 1).then_some(())).await;
        }
        until("deliveries", async || {
            let is_whole = |text: &str| ["vault", "web", "client"].iter().all(|name| text.contains(name));
            self.delivered().iter().all(|(_, text)| is_whole(text) && text.contains("\"step\":\"2\"")).then_some(())
        })
        .await;
        until("dead letters", async || {
            let letters = self.letters().await;
            let has = |subject: &str| letters.iter().any(|letter| letter["subject"] == subject);
            (has("/v1/secrets/shop/vault") && has("/v1/pods/shop/web")).then_some(())
        })
        .await;
    }

    /// Returns the output of the sinks, by their type.
    pub(super) fn delivered(&self) -> Vec<(&'static str, String)> {
        let file = std::fs::read_to_string(self.process.path().join("events.jsonl")).unwrap_or_default();
        vec![("webhook", self.bodies.lock().clone()), ("file", file)]
    }

    /// Returns all dead letters of the sink that is refused.
    pub(super) async fn letters(&self) -> Vec<Value> {
        let (_, text) = self.get(OPERATOR, "/v1/sinks/refused/dead-letters?limit=1000", "*/*").await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["letters"].as_array().unwrap().clone()
    }

    async fn json(&self, path: &str) -> Value {
        let (code, text) = self.get(READER_OF_SECRETS, path, "application/json").await;
        assert_eq!(code, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Sends a request of a reader.
    pub(super) async fn get(&self, reader: &Reader, path: &str, accept: &str) -> (u16, String) {
        self.send(self.client.get(self.url.clone() + path), reader, accept).await
    }

    /// Sends a prepared request of a reader.
    pub(super) async fn send(&self, request: reqwest::RequestBuilder, reader: &Reader, accept: &str) -> (u16, String) {
        let answer = request.bearer_auth(reader.token).header("accept", accept).send().await.unwrap();
        let headers = format!("{:?}", answer.headers());
        let (code, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        // Markers in headers count too.
        (code, if super::markers_in(&headers).is_empty() { text } else { headers + &text })
    }

    pub(super) fn client(&self) -> &reqwest::Client {
        &self.client
    }
}

//! Tests of readers over the port: an issuer that signs, rotates and fails, and clusters that review users and tokens.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use informer_hub_sim::SimCluster;
use informer_hub_testing::jwt::{Signer, base64url, unsigned};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::process::{Launch, Process, cluster, sim};
use crate::wait::{PATIENCE, until};

/// Answer of the issuer to a request for its keys.
#[derive(Clone)]
enum Keys {
    Published(Vec<Value>),
    /// A document above the size limit.
    Huge,
    /// Nothing, and the connection stays open.
    Silent,
}

/// An issuer on loopback. Its port is open until the process ends.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Keys>>,
}

impl Issuer {
    fn start(keys: Keys) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(keys));
        let (served, issuer) = (Arc::clone(&keys), url.clone());
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for socket in listener.incoming().map_while(Result::ok) {
                silent.extend(answer(socket, &issuer, &served));
            }
        });
        Self { url, keys }
    }

    fn claims(&self, changes: &Value) -> Value {
        let now = Timestamp::now().as_second();
        let mut claims = json!({ "iss": self.url, "aud": "hub", "sub": "jane", "exp": now + 600 });
        for (key, value) in changes.as_object().unwrap() {
            claims[key] = value.clone();
        }
        claims
    }

    fn config(&self) -> String {
        format!("[oidc]\nissuer = \"{}\"\naudience = \"hub\"\n", self.url)
    }
}

/// Answers one request. Returns the connection if it stays open.
fn answer(mut socket: TcpStream, issuer: &str, keys: &Mutex<Keys>) -> Option<TcpStream> {
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut piece) {
            Ok(read @ 1..) => head.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
    let body = if head.starts_with(b"GET /keys ") {
        match keys.lock().clone() {
            Keys::Published(keys) => json!({ "keys": keys }).to_string(),
            Keys::Huge => " ".repeat(1 << 20),
            Keys::Silent => return Some(socket),
        }
    } else {
        json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }).to_string()
    };
    let length = body.len();
    let _ = write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    None
}

/// Sends a GET with a token. Returns code, headers and body.
async fn get(hub: &Process, path: &str, token: &str) -> (u16, reqwest::header::HeaderMap, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().tls_certs_only([]).timeout(PATIENCE).build().unwrap();
    let answer = client.get(hub.url().await + path).bearer_auth(token).send().await.unwrap();
    (answer.status().as_u16(), answer.headers().clone(), answer.text().await.unwrap())
}

async fn code(hub: &Process, path: &str, token: &str) -> u16 {
    get(hub, path, token).await.0
}

const STATUS: &str = "/v1/status";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_the_issuer_are_judged_over_the_port() {
    let (signer, other) = (Signer::new("k1"), Signer::new("k1"));
    let issuer = Issuer::start(Keys::Published(vec![signer.public()]));
    let readers = "[readers.jane]\noidc_user = \"jane\"\nallow = [{}]\n";
    let cluster = sim(41, 3);
    let toml =
        format!("{}{readers}{}[resources.pods]\n", issuer.config(), crate::process::cluster("a", &cluster.url()));
    let hub = Launch::new(&toml).start();
    hub.ready().await;
    let now = Timestamp::now().as_second();
    let good = signer.sign(&issuer.claims(&json!({})));
    let key = URL_SAFE_NO_PAD.decode(signer.public()["x"].as_str().unwrap()).unwrap();
    let hmac = |header: Value| {
        use hmac::{KeyInit, Mac};
        let start = unsigned(&header, &issuer.claims(&json!({})));
        let mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap().chain_update(start.as_bytes());
        format!("{start}.{}", base64url(mac.finalize().into_bytes()))
    };
    let (start, _) = good.rsplit_once('.').unwrap();
    let cases = [
        ("valid", good.clone(), 200, ""),
        (
            "none",
            format!("{}.", unsigned(&json!({ "alg": "none" }), &issuer.claims(&json!({})))),
            401,
            "must be signed",
        ),
        ("stripped", format!("{start}."), 401, "signature"),
        ("HMAC with the public key", hmac(json!({ "alg": "HS256", "kid": "k1" })), 401, "must be signed"),
        ("another key of the name", other.sign(&issuer.claims(&json!({}))), 401, "signature"),
        ("another issuer", signer.sign(&issuer.claims(&json!({ "iss": "https://other.example.com" }))), 401, "valid"),
        ("another audience", signer.sign(&issuer.claims(&json!({ "aud": ["apiserver"] }))), 401, "audience"),
        ("no audience", signer.sign(&issuer.claims(&json!({ "aud": null }))), 401, "audience"),
        ("expired", signer.sign(&issuer.claims(&json!({ "exp": now - 60 }))), 401, "expired"),
        ("without an end", signer.sign(&issuer.claims(&json!({ "exp": null }))), 401, "expired"),
        ("not valid yet", signer.sign(&issuer.claims(&json!({ "nbf": now + 3600 }))), 401, "not valid yet"),
        ("a user of Kubernetes", signer.sign(&issuer.claims(&json!({ "sub": "system:admin" }))), 401, "user name"),
    ];
    for (what, token, expected, text) in &cases {
        let (found, headers, body) = get(&hub, STATUS, token).await;
        assert_eq!(found, *expected, "{what}: {body}");
        assert!(body.contains(text), "{what}: {body}");
        assert_eq!(headers.contains_key("www-authenticate"), *expected == 401, "{what}");
    }
    // A valid user without a table authenticates, and sees nothing.
    let eve = signer.sign(&issuer.claims(&json!({ "sub": "eve" })));
    let (found, _, body) = get(&hub, STATUS, &eve).await;
    assert_eq!((found, serde_json::from_str::<Value>(&body).unwrap()["clusters"].clone()), (200, json!([])));
    assert_eq!(code(&hub, "/clusters/a/api/v1/pods", &eve).await, 404);
    assert_eq!(code(&hub, "/clusters/a/api/v1/pods", &good).await, 200);
    let log = hub.log();
    assert!(cases.iter().all(|(_, token, ..)| !log.contains(token)), "a token in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuer_without_usable_keys_is_503_and_new_keys_are_fetched() {
    let (first, second) = (Signer::new("k1"), Signer::new("k2"));
    let issuer = Issuer::start(Keys::Huge);
    let cluster = sim(42, 3);
    let toml = format!("{}{}[resources.pods]\n", issuer.config(), crate::process::cluster("a", &cluster.url()));
    let hub = Launch::new(&toml).start();
    hub.ready().await;
    let of = |signer: &Signer| signer.sign(&issuer.claims(&json!({})));
    let (first_token, second_token) = (of(&first), of(&second));
    let (found, headers, body) = get(&hub, STATUS, &first_token).await;
    assert_eq!((found, headers["retry-after"].to_str().unwrap()), (503, "5"), "{body}");
    let line = hub.line("cannot fetch the keys of the issuer").await;
    assert!(line.to_string().contains("is larger than"), "{line}");
    *issuer.keys.lock() = Keys::Published(vec![first.public()]);
    until("the keys are fetched", async || (code(&hub, STATUS, &first_token).await == 200).then_some(())).await;
    assert_eq!(code(&hub, STATUS, &second_token).await, 401, "not published yet");
    // While the issuer is silent, the known keys stay in use.
    *issuer.keys.lock() = Keys::Silent;
    until("the issuer is asked about the unknown key", async || {
        code(&hub, STATUS, &second_token).await;
        (hub.count("cannot fetch the keys of the issuer") == 2).then_some(())
    })
    .await;
    assert_eq!(code(&hub, STATUS, &first_token).await, 200);
    *issuer.keys.lock() = Keys::Published(vec![second.public()]);
    until("the rotated key is fetched", async || (code(&hub, STATUS, &second_token).await == 200).then_some(())).await;
    assert_eq!(code(&hub, STATUS, &first_token).await, 401, "a withdrawn key");
}

/// Namespace of some pod.
fn namespace_of(sim: &SimCluster) -> String {
    let truth = sim.truth(&informer_hub_types::Gvr::new("", "v1", "pods"));
    truth.keys().next().unwrap().namespace().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_decide_about_users_and_silent_ones_show_nothing() {
    let signer = Signer::new("k1");
    let issuer = Issuer::start(Keys::Published(vec![signer.public()]));
    let (a, b) = (sim(43, 30), sim(44, 30));
    let authorization = "[hub.authorization]\nkubernetes = { mode = \"subject-access-review\", cache = \"1s\" }\n\
                         token_review = { clusters = [\"a\"], audience = \"hub\", cache = \"1s\" }\n";
    let toml =
        [authorization, &issuer.config(), &cluster("a", &a.url()), &cluster("b", &b.url()), "[resources.pods]\n"];
    let hub = Launch::new(&toml.concat()).start();
    hub.ready().await;
    let jane = signer.sign(&issuer.claims(&json!({})));
    let namespace = namespace_of(&a);
    a.allow("jane", "pods", &namespace, true);
    b.allow("jane", "pods", "", true);
    let of_namespace = |cluster: &str| format!("/clusters/{cluster}/api/v1/namespaces/{namespace}/pods");
    assert_eq!(code(&hub, &of_namespace("a"), &jane).await, 200);
    assert_eq!(code(&hub, "/clusters/a/api/v1/pods", &jane).await, 403);
    assert_eq!(code(&hub, "/clusters/b/api/v1/pods", &jane).await, 200);
    let count = async || {
        let (code, _, body) = get(&hub, "/v1/query?resource=pods&q=count", &jane).await;
        assert_eq!(code, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let pods = |sim: &SimCluster, namespace: Option<&str>| {
        let truth = sim.truth(&informer_hub_types::Gvr::new("", "v1", "pods"));
        truth.keys().filter(|key| namespace.is_none_or(|name| key.namespace() == Some(name))).count()
    };
    let (of_a, of_b) = (pods(&a, Some(&namespace)), pods(&b, None));
    let answer = count().await;
    assert_eq!((&answer["count"], &answer["complete"]), (&json!(of_a + of_b), &json!(true)), "{answer}");

    // Once the cached answers have expired, the answer has no objects of the silent cluster, and names that cluster.
    a.silence_reviews(true);
    let answer = until("the silent cluster is noticed", async || {
        Some(count().await).filter(|answer| answer["count"] == json!(of_b))
    })
    .await;
    let unknown = json!([{ "cluster": "a", "error": "the cluster did not answer in time" }]);
    assert_eq!((&answer["complete"], &answer["coverage"]["rightsUnknown"]), (&json!(false), &unknown));
    assert_eq!(code(&hub, &of_namespace("a"), &jane).await, 403);
    // A token that only the silent cluster could accept gets 503.
    let claims = json!({ "sub": "system:serviceaccount:tools:grafana", "aud": "hub", "iss": "kubernetes" });
    let account = signer.sign(&issuer.claims(&claims));
    let (found, headers, _) = get(&hub, STATUS, &account).await;
    assert_eq!((found, headers["retry-after"].to_str().unwrap()), (503, "5"));

    a.silence_reviews(false);
    assert_eq!(code(&hub, STATUS, &account).await, 401);
    a.accept_token(&account, "system:serviceaccount:tools:grafana");
    a.allow("system:serviceaccount:tools:grafana", "pods", "", true);
    b.allow("system:serviceaccount:tools:grafana", "pods", "", true);
    until("the refusal expires", async || (code(&hub, STATUS, &account).await == 200).then_some(())).await;
    assert_eq!(code(&hub, "/clusters/a/api/v1/pods", &account).await, 200);
    assert_eq!(code(&hub, "/clusters/b/api/v1/pods", &account).await, 403, "an account of the same name elsewhere");
    let log = hub.log();
    assert!(!log.contains(&jane) && !log.contains(&account), "a token in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_shortens_how_long_answers_of_clusters_are_used() {
    let signer = Signer::new("k1");
    let issuer = Issuer::start(Keys::Published(vec![signer.public()]));
    let a = sim(45, 3);
    let toml = |cache: &str| {
        let kubernetes =
            format!("[hub.authorization]\nkubernetes = {{ mode = \"subject-access-review\", cache = \"{cache}\" }}\n");
        [&kubernetes, &issuer.config(), &cluster("a", &a.url()), "[resources.pods]\n"].concat()
    };
    let hub = Launch::new(&toml("1h")).start();
    hub.ready().await;
    let jane = signer.sign(&issuer.claims(&json!({})));
    a.allow("jane", "pods", "", true);
    let pods = async || code(&hub, "/clusters/a/api/v1/pods", &jane).await;
    until("the cluster allows it", async || (pods().await == 200).then_some(())).await;
    a.allow("jane", "pods", "", false);
    assert_eq!(pods().await, 200, "the answer is kept");
    hub.configure(&toml("1s"));
    until("the kept answer expires", async || (pods().await == 403).then_some(())).await;
}

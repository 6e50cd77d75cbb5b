//! Tests of the webhook transport against scripted receivers on loopback, with real sockets and time.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use informer_hub_testing::tls::{self, Ca};
use parking_lot::Mutex;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::contract::{Fault, TestBed, assert_sink_contract};
use crate::test_objects::event;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Time limit of steps that must succeed, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);

type Request = (HeaderMap, Bytes);

/// Starts a receiver that gives every request the same answer and records the requests.
async fn receiver(answer: impl IntoResponse + Clone + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<Request>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    let handler = move |headers: HeaderMap, body: Bytes| async move {
        kept.lock().push((headers, body));
        answer
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (addr, requests)
}

/// Starts a receiver that reads a request head, writes these bytes and closes; with `None` it never answers.
async fn rude_receiver(answer: Option<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 8192]).await;
            match answer {
                Some(bytes) => drop(socket.write_all(bytes).await),
                None => open.push(socket),
            }
        }
    });
    addr
}

/// Starts a receiver that answers the first request of each connection with these bytes and keeps the connection open.
/// Returns the number of connections too.
async fn stalling_receiver(answer: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, connections) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            counter.fetch_add(1, Relaxed);
            let _ = socket.read(&mut [0; 8192]).await;
            let _ = socket.write_all(answer).await;
            open.push(socket);
        }
    });
    (addr, connections)
}

fn params(addr: SocketAddr) -> WebhookParams {
    WebhookParams {
        signing_keys: Some(SigningKeys::parse(SECRET).unwrap()),
        timeout: TIMEOUT,
        batched: true,
        ..WebhookParams::new(WebhookUrl::parse(&format!("http://{addr}/k8s?token=hunter2")).unwrap())
    }
}

async fn attempt(params: WebhookParams, events: usize) -> Outcome {
    let batch = (0..events as u64).map(|i| event("web", i, 10)).collect();
    WebhookTransport::new(params).unwrap().attempt(batch).await
}

async fn answered(answer: impl IntoResponse + Clone + Send + Sync + 'static) -> Outcome {
    attempt(params(receiver(answer).await.0), 2).await
}

/// Returns delay, content flag and error of an outcome that asks for a retry.
fn retry_parts(outcome: Outcome) -> (Option<Duration>, bool, String) {
    match outcome {
        Outcome::Retry { after, content, error } => {
            assert!(!error.contains("hunter2") && !error.contains(SECRET), "{error}");
            (after, content, error)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn signed_batch_verifies_and_has_cloud_events() {
    let (addr, requests) = receiver(StatusCode::NO_CONTENT).await;
    assert_eq!(attempt(params(addr), 3).await, Outcome::Accepted);
    let requests = requests.lock();
    let (headers, body) = &requests[0];
    assert_eq!(headers["content-type"], "application/cloudevents-batch+json");
    assert!(headers["user-agent"].to_str().unwrap().starts_with("informer-hub/"));
    Webhook::new(SECRET).unwrap().verify(body, headers).unwrap();
    assert!(Webhook::new("whsec_AAAA").unwrap().verify(body, headers).is_err());
    let events: Vec<Value> = serde_json::from_slice(body).unwrap();
    assert_eq!(events.len(), 3);
    for event in &events {
        assert_eq!(event["specversion"], "1.0");
        for required in ["id", "source", "type"] {
            assert!(event[required].as_str().is_some_and(|text| !text.is_empty()), "{required}");
        }
        assert!(event["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }
}

#[tokio::test]
async fn single_event_has_the_single_event_media_type() {
    let (addr, requests) = receiver(StatusCode::OK).await;
    let single = WebhookParams { batched: false, signing_keys: None, ..params(addr) };
    assert_eq!(attempt(single, 1).await, Outcome::Accepted);
    let requests = requests.lock();
    let (headers, body) = &requests[0];
    assert_eq!(headers["content-type"], "application/cloudevents+json");
    assert!(!headers.contains_key("webhook-signature"));
    let event: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(event["id"], headers["webhook-id"].to_str().unwrap());
}

#[tokio::test]
async fn retry_keeps_its_id_and_reuses_the_connection() {
    let (addr, requests) = receiver((StatusCode::INTERNAL_SERVER_ERROR, "sorry")).await;
    let transport = WebhookTransport::new(params(addr)).unwrap();
    let batch: Arc<[Event]> = Arc::new([event("web", 1, 10), event("web", 2, 10)]);
    for _ in 0..2 {
        let (after, content, error) = retry_parts(transport.attempt(Arc::clone(&batch)).await);
        assert_eq!((after, content), (None, false));
        assert_eq!(error, "receiver answered 500 Internal Server Error: sorry");
    }
    let requests = requests.lock();
    assert_eq!(requests[0].0["webhook-id"], requests[1].0["webhook-id"]);
    assert_eq!(requests[0].1, requests[1].1);
}

#[tokio::test]
async fn status_codes_map_to_outcomes() {
    for status in [StatusCode::OK, StatusCode::CREATED, StatusCode::ACCEPTED] {
        assert_eq!(answered(status).await, Outcome::Accepted);
    }
    for (status, of_content) in [(400, true), (413, true), (422, true), (401, false), (404, false), (502, false)] {
        let (_, content, error) = retry_parts(answered(StatusCode::from_u16(status).unwrap()).await);
        assert_eq!(content, of_content, "{error}");
    }
    assert!(matches!(answered(StatusCode::GONE).await, Outcome::Disable { .. }));
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        let (after, ..) = retry_parts(answered((status, [("retry-after", "7")])).await);
        assert_eq!(after, Some(Duration::from_secs(7)));
    }
    let (after, ..) = retry_parts(answered((StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "7")])).await);
    assert_eq!(after, None, "only 429 and 503 set a delay");
}

#[tokio::test]
async fn redirect_is_not_followed_and_only_its_host_is_named() {
    let (target, requests) = receiver(StatusCode::OK).await;
    let location = format!("http://{target}/elsewhere?token=hunter2");
    let (.., error) = retry_parts(answered((StatusCode::FOUND, [("location", location)])).await);
    assert!(error.contains("302") && error.contains("127.0.0.1"), "{error}");
    assert!(requests.lock().is_empty());
}

#[tokio::test]
async fn broken_or_missing_answer_is_retried() {
    for answer in [&b""[..], b"HTTP/1.1 200", b"garbage\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Length: 999\r\n\r\nhalf"]
    {
        retry_parts(attempt(params(rude_receiver(Some(answer)).await), 1).await);
    }
    let mute = rude_receiver(None).await;
    let silent = WebhookParams { timeout: Duration::from_millis(200), ..params(mute) };
    let (.., error) = retry_parts(attempt(silent, 1).await);
    assert_eq!(error, format!("no answer from http://{mute} within 200ms"));
    // A port that was free a moment ago and has no listener.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let secret = WebhookUrl::parse(&format!("http://{free}/T0/hunter2?token=hunter2")).unwrap();
    let (.., error) = retry_parts(attempt(WebhookParams { url: secret, ..params(free) }, 1).await);
    assert_eq!(error, format!("cannot connect to http://{free}: connection refused"));
}

#[tokio::test]
async fn acknowledgement_counts_despite_a_broken_body() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nhalf";
    assert_eq!(attempt(params(rude_receiver(Some(answer)).await), 1).await, Outcome::Accepted);
}

#[tokio::test]
async fn head_of_an_answer_decides_if_the_body_stalls() {
    let after = Some(Duration::from_secs(7));
    let retry = |after, content, error: &str| Outcome::Retry { after, content, error: error.to_owned() };
    for (answer, expected) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"[..], Outcome::Accepted),
        (b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", Outcome::Accepted),
        (
            b"HTTP/1.1 410 Gone\r\nContent-Length: 10\r\n\r\nno",
            Outcome::Disable { error: "receiver answered 410 Gone: no".to_owned() },
        ),
        (
            b"HTTP/1.1 422 No\r\nContent-Length: 10\r\n\r\nno",
            retry(None, true, "receiver answered 422 Unprocessable Entity: no"),
        ),
        (
            b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 10\r\n\r\n",
            retry(after, false, "receiver answered 429 Too Many Requests"),
        ),
    ] {
        let (addr, connections) = stalling_receiver(answer).await;
        let transport = WebhookTransport::new(WebhookParams { timeout: TIMEOUT * 6, ..params(addr) }).unwrap();
        for attempts in 1..=2 {
            let attempt = transport.attempt(Arc::new([event("web", 1, 10)]));
            let outcome = tokio::time::timeout(TIMEOUT, attempt).await.expect("the body delays the outcome");
            assert_eq!(outcome, expected);
            assert_eq!(connections.load(Relaxed), attempts, "an unfinished connection is not used again");
        }
    }
}

#[tokio::test]
async fn redirect_without_a_target_is_described() {
    let (.., error) = retry_parts(answered(StatusCode::NOT_MODIFIED).await);
    assert_eq!(error, "receiver answered 304 Not Modified, which does not acknowledge a webhook; answer 2xx");
    for location in [None, Some("mailto:hunter2"), Some("http://")] {
        let headers: HeaderMap =
            location.map(|text| (http::header::LOCATION, text.parse().unwrap())).into_iter().collect();
        let (.., error) = retry_parts(answered((StatusCode::FOUND, headers)).await);
        assert!(error.starts_with("receiver answered 302 Found without a usable Location, which a webhook"), "{error}");
    }
}

/// Makes a delivery attempt through the proxy of the environment. The test
/// `proxy_of_the_environment_is_named_without_credentials` runs it in a process of its own.
#[tokio::test]
async fn proxy_probe() {
    if std::env::var_os("PROXY_PROBE").is_none() {
        return;
    }
    let url = WebhookUrl::parse("http://audit.example.com/k8s?token=hunter2").unwrap();
    let (.., error) = retry_parts(attempt(WebhookParams::new(url), 1).await);
    println!("error: {error}");
}

#[tokio::test]
async fn proxy_of_the_environment_is_named_without_credentials() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "webhook::tests::proxy_probe", "--nocapture"]).env("PROXY_PROBE", "1");
    child.env_remove("REQUEST_METHOD").env_remove("NO_PROXY").env_remove("no_proxy");
    let output = child.env("HTTP_PROXY", format!("http://user:hunter2@{free}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = text.lines().find_map(|line| Some(line.split_once("error: ")?.1)).unwrap_or_else(|| panic!("{text}"));
    let route = format!("http://audit.example.com:80 through the proxy http://{free}");
    assert_eq!(error, format!("cannot connect to {route}: connection refused"));
}

#[tokio::test]
async fn echo_of_the_request_is_hidden() {
    let app = Router::new().fallback(|uri: axum::http::Uri, headers: HeaderMap| async move {
        let key = headers["x-api-key"].to_str().unwrap().replace('&', "&amp;").replace('/', "\\/");
        (StatusCode::UNAUTHORIZED, format!("{{\"url\": \"{uri}\", \"key\": \"{key}\"}}"))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = WebhookUrl::parse(&format!("http://{}/T0K3N123?sig=s1gn4ture", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let headers = ExtraHeaders::new([("x-api-key", "s3cr3t/k&y")]).unwrap();
    let (.., error) = retry_parts(attempt(WebhookParams { headers, ..WebhookParams::new(url) }, 1).await);
    assert_eq!(error, r#"receiver answered 401 Unauthorized: {"url": "/…?…", "key": "…"}"#);
}

#[tokio::test]
async fn large_answer_is_read_in_part() {
    let (.., error) = retry_parts(answered((StatusCode::BAD_GATEWAY, "x".repeat(50_000_000))).await);
    assert!(error.len() < 300, "{}", error.len());
}

/// Starts a TLS receiver that has a certificate of a private CA and answers one request. Returns its port, the CA as
/// PEM, and a thread whose result says whether the exchange succeeded.
fn tls_receiver() -> (u16, String, std::thread::JoinHandle<bool>) {
    let ca = Ca::new();
    let config = ca.server_config(&[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        tls::answer(socket, config, b"HTTP/1.1 204 No Content\r\n\r\n")
    });
    (port, ca.pem(), serving)
}

#[tokio::test]
async fn private_ca_is_trusted_only_through_ca_file() {
    for with_ca in [true, false] {
        let (port, pem, serving) = tls_receiver();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        let url = WebhookUrl::parse(&format!("https://127.0.0.1:{port}/")).unwrap();
        let ca_file = with_ca.then(|| file.path().to_owned());
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let transport = WebhookTransport::new(WebhookParams { url, ca_file, ..params(addr) });
        let outcome = match transport {
            Ok(transport) => transport.attempt(Arc::new([event("web", 1, 0)])).await,
            // On a machine without system roots, building the transport fails.
            Err(error) if !with_ca => return assert!(matches!(error, WebhookError::Client(_))),
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(outcome == Outcome::Accepted, with_ca, "{outcome:?}");
        assert_eq!(serving.join().unwrap(), with_ca);
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let params = params("127.0.0.1:1".parse().unwrap());
    let text = format!("{params:?}");
    let text = format!("{text} {:?}", WebhookTransport::new(params).unwrap());
    assert!(!text.contains("hunter2") && !text.contains("MfKQ9") && !text.contains("/k8s"), "{text}");
    assert!(text.contains("http://127.0.0.1:1"), "{text}");
}

#[test]
fn unusable_parameters_are_rejected() {
    for bad in ["", "audit.example.com/k8s", "ftp://audit.example.com", "http://"] {
        let error = WebhookUrl::parse(bad).unwrap_err().to_string();
        assert!(error.contains("https://audit.example.com/k8s"), "{error}");
    }
    let with_ca = |path: PathBuf| {
        let addr = "127.0.0.1:1".parse().unwrap();
        WebhookTransport::new(WebhookParams { ca_file: Some(path), ..params(addr) }).unwrap_err()
    };
    assert!(matches!(with_ca("/nonexistent/ca.pem".into()), WebhookError::CaFile { .. }));
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(with_ca(empty.path().to_owned()), WebhookError::NoCertificate { .. }));
}

#[tokio::test]
async fn compressed_body_verifies_after_decompression() {
    for compression in [Compression::Gzip, Compression::Zstd] {
        let (addr, requests) = receiver(StatusCode::OK).await;
        let compressed = WebhookParams { compression: Some(compression), ..params(addr) };
        assert_eq!(attempt(compressed, 20).await, Outcome::Accepted);
        let requests = requests.lock();
        let (headers, body) = &requests[0];
        assert_eq!(headers["content-encoding"], compression.as_str());
        let content = match compression {
            Compression::Gzip => std::io::read_to_string(flate2::read::GzDecoder::new(&body[..])).unwrap(),
            Compression::Zstd => String::from_utf8(zstd::bulk::decompress(body, 1 << 20).unwrap()).unwrap(),
        };
        assert!(body.len() < content.len() / 2);
        Webhook::new(SECRET).unwrap().verify(content.as_bytes(), headers).unwrap();
        let events: Vec<Value> = serde_json::from_str(&content).unwrap();
        assert_eq!(events.len(), 20);
    }
}

#[tokio::test]
async fn extra_headers_are_sent_with_each_request() {
    let (addr, requests) = receiver(StatusCode::OK).await;
    let headers = ExtraHeaders::new([("Authorization", "Bearer hunter2"), ("x-team", "platform")]).unwrap();
    let with_headers = WebhookParams { headers, ..params(addr) };
    assert!(!format!("{with_headers:?}").contains("hunter2"));
    assert_eq!(attempt(with_headers, 1).await, Outcome::Accepted);
    let requests = requests.lock();
    let (headers, body) = &requests[0];
    assert_eq!(
        (&headers["authorization"], &headers["x-team"]),
        (&"Bearer hunter2".parse().unwrap(), &"platform".parse().unwrap())
    );
    Webhook::new(SECRET).unwrap().verify(body, headers).unwrap();
}

#[tokio::test]
async fn failing_template_makes_the_event_unsendable() {
    let (addr, requests) = receiver(StatusCode::OK).await;
    let single = |template: &str| {
        let shape =
            Arc::new(Shape::Template(Box::new(crate::Template::compile(template, "application/json").unwrap())));
        WebhookParams { shape, batched: false, ..params(addr) }
    };
    let outcome = attempt(single("{{ object.nothing }}"), 1).await;
    let Outcome::Unsendable { error } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("undefined"), "{error}");
    assert!(requests.lock().is_empty());
    assert_eq!(attempt(single(r#"{"text": {{ name }}}"#), 1).await, Outcome::Accepted);
    let requests = requests.lock();
    assert_eq!(requests[0].0["content-type"], "application/json");
    assert_eq!(&requests[0].1[..], br#"{"text": "web"}"#);
}

/// Starts a receiver that requires client certificates of the CA and records them.
async fn mutual_receiver(ca: &Ca) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let acceptor = tokio_rustls::TlsAcceptor::from(ca.mutual_server_config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&shown);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, kept) = (acceptor.clone(), Arc::clone(&kept));
            tokio::spawn(async move {
                let mut tls = acceptor.accept(socket).await?;
                let cert = tls.get_ref().1.peer_certificates().and_then(|certs| certs.first()).unwrap().to_vec();
                while tls.read(&mut [0; 16384]).await? > 0 {
                    kept.lock().push(cert.clone());
                    tls.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    (addr, shown)
}

#[tokio::test]
async fn client_certificate_is_sent_and_reloaded() {
    let ca = Ca::new();
    let (addr, shown) = mutual_receiver(&ca).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |(cert, key): (String, String)| {
        std::fs::write(file("cert.pem"), cert).unwrap();
        std::fs::write(file("key.pem"), key).unwrap();
    };
    std::fs::write(file("ca.pem"), ca.pem()).unwrap();
    write(ca.issue("hub"));
    let url = WebhookUrl::parse(&format!("https://{addr}/")).unwrap();
    let client_cert = ClientCert { cert_file: file("cert.pem"), key_file: file("key.pem") };
    let with_cert = || WebhookParams {
        url: url.clone(),
        ca_file: Some(file("ca.pem")),
        client_cert: Some(client_cert.clone()),
        ..params(addr)
    };
    let batch: Arc<[Event]> = Arc::new([event("web", 1, 0)]);
    // This needs a machine with system roots.
    let Ok(transport) = WebhookTransport::new(with_cert()) else { return };
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    // Only one of the files is replaced: the old certificate stays in use.
    let (cert, key) = ca.issue("the new hub");
    std::fs::write(file("cert.pem"), &cert).unwrap();
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    write((cert, key));
    assert_eq!(transport.attempt(Arc::clone(&batch)).await, Outcome::Accepted);
    {
        let shown = shown.lock();
        assert_eq!(shown.len(), 4);
        assert!(shown[0] == shown[1] && shown[1] == shown[2] && shown[2] != shown[3]);
    }
    // The embedding program, not this crate, chooses the crypto provider of the process.
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    // A certificate that the receiver does not trust, and no certificate.
    write(Ca::new().issue("stranger"));
    retry_parts(transport.attempt(Arc::clone(&batch)).await);
    retry_parts(attempt(WebhookParams { client_cert: None, ..with_cert() }, 1).await);
}

#[test]
fn unusable_client_certificate_names_the_wrong_file() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new();
    let (cert, key) = ca.issue("hub");
    let (_, other) = ca.issue("other");
    let check = |cert: Option<&str>, key: &str| {
        let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let _ = std::fs::remove_file(&cert_file);
        if let Some(cert) = cert {
            std::fs::write(&cert_file, cert).unwrap();
        }
        std::fs::write(&key_file, key).unwrap();
        check_client_cert(&ClientCert { cert_file, key_file }).map_err(|error| (error.key(), error.to_string()))
    };
    assert_eq!(check(Some(&cert), &key), Ok(()));
    for (cert_pem, key_pem, key_at_fault, words) in [
        (None, key.as_str(), "client_cert_file", "cannot read"),
        (Some(key.as_str()), key.as_str(), "client_cert_file", "no PEM certificate"),
        (Some(cert.as_str()), cert.as_str(), "client_key_file", "no PEM private key"),
        (Some(cert.as_str()), other.as_str(), "client_key_file", "does not match the certificate"),
    ] {
        let (at, error) = check(cert_pem, key_pem).unwrap_err();
        assert!(at == key_at_fault && error.contains(words), "{at}: {error}");
        assert!(!error.contains("PRIVATE KEY-----"));
    }
}

/// Receiver with configurable faults.
struct WebhookBed {
    addr: SocketAddr,
    fault: Arc<Mutex<Fault>>,
    taken: Arc<Mutex<Vec<String>>>,
}

impl WebhookBed {
    async fn start() -> Self {
        let (fault, taken) = (Arc::<Mutex<Fault>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (moody, kept) = (Arc::clone(&fault), Arc::clone(&taken));
        let handler = move |body: String| async move {
            let fault = moody.lock().clone();
            match fault {
                Fault::Hang => std::future::pending().await,
                Fault::FailOnce => {
                    *moody.lock() = Fault::None;
                    return StatusCode::BAD_GATEWAY;
                }
                Fault::Poison(text) if body.contains(text) => return StatusCode::UNPROCESSABLE_ENTITY,
                Fault::None | Fault::Poison(_) => {}
            }
            let events: Vec<Value> = serde_json::from_str(&body).unwrap();
            kept.lock().extend(events.iter().map(Value::to_string));
            StatusCode::ACCEPTED
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
        Self { addr, fault, taken }
    }
}

impl TestBed for WebhookBed {
    fn transport(&self, timeout: Duration) -> Arc<dyn Transport> {
        Arc::new(WebhookTransport::new(WebhookParams { timeout, ..params(self.addr) }).unwrap())
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn accepted(&self) -> Vec<String> {
        self.taken.lock().clone()
    }
}

#[tokio::test]
async fn webhook_passes_the_sink_contract() {
    assert_sink_contract(WebhookBed::start).await;
}

#[tokio::test]
async fn dialled_connection_replaces_tcp_without_tls() {
    let (heard, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let dial = Dial::new(move |uri| {
        let heard = heard.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(1024);
            tokio::spawn(async move {
                let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (heard, host) = (heard.clone(), uri.host().map(ToOwned::to_owned));
                    async move {
                        let _ = heard.send((host, request.method().clone(), request.uri().path().to_owned()));
                        let answer = http::Response::builder().status(429).header("retry-after", "7");
                        answer.body("later".to_owned())
                    }
                });
                let io = hyper_util::rt::TokioIo::new(ours);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
            });
            Ok(theirs)
        }
    });
    let at = |url| WebhookParams { dial: Some(dial.clone()), ..WebhookParams::new(WebhookUrl::parse(url).unwrap()) };
    let outcome = attempt(at("http://nowhere.invalid/told"), 1).await;
    let error = "receiver answered 429 Too Many Requests: later".to_owned();
    assert_eq!(outcome, Outcome::Retry { after: Some(Duration::from_secs(7)), content: false, error });
    let (host, method, path) = requests.recv().await.unwrap();
    assert_eq!((host.as_deref(), method.as_str(), path.as_str()), (Some("nowhere.invalid"), "POST", "/told"));
    let refused = WebhookTransport::new(at("https://nowhere.invalid/told")).unwrap_err();
    assert_eq!((refused.key(), refused.to_string().contains("write http")), ("url", true));
}

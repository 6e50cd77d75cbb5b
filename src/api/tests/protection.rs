//! Authentication over plain HTTP and TLS, and reloading of certificates.

use std::path::PathBuf;

use informer_hub_testing::tls::Ca;
use informer_hub_tls::{Identity, Roots, certificates, http_config};

use super::*;

/// Folder with the files of a CA and of the certificates that it issues.
pub(super) struct Files {
    folder: tempfile::TempDir,
    ca: Ca,
}

pub(super) fn files() -> Files {
    let files = Files { folder: tempfile::tempdir().unwrap(), ca: Ca::new() };
    std::fs::write(files.path("ca.pem"), files.ca.pem()).unwrap();
    files.issue("127.0.0.1", "cert.pem", "key.pem");
    files
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a new certificate and its key; returns both in one text.
    fn issue(&self, name: &str, cert_file: &str, key_file: &str) -> String {
        let (cert, key) = self.ca.issue(name);
        std::fs::write(self.path(cert_file), &cert).unwrap();
        std::fs::write(self.path(key_file), &key).unwrap();
        cert + &key
    }

    pub(super) fn tls(&self, mutual: bool) -> TlsFiles {
        TlsFiles {
            cert_file: self.path("cert.pem"),
            key_file: self.path("key.pem"),
            client_ca_file: mutual.then(|| self.path("ca.pem")),
        }
    }

    /// Returns a client that trusts the CA and shows a certificate if given one.
    fn client(&self, shows: Option<&str>) -> reqwest::Client {
        let roots = Roots::Only(certificates(self.ca.pem().as_bytes()).unwrap());
        let identity = shows.map(|pem| Identity::from_pem(pem.as_bytes(), pem.as_bytes()).unwrap());
        let builder = reqwest::Client::builder().tls_backend_preconfigured(http_config(roots, identity).unwrap());
        builder.timeout(PATIENCE).tls_info(true).build().unwrap()
    }
}

/// Returns the status of a response and the certificate that the port showed.
async fn ask(client: &reqwest::Client, port: &Port, path: &str) -> (u16, Vec<u8>) {
    let answer = client.get(format!("https://{}{path}", port.address)).send().await.unwrap();
    let tls = answer.extensions().get::<reqwest::tls::TlsInfo>();
    let shown = tls.and_then(reqwest::tls::TlsInfo::peer_certificate).map(<[u8]>::to_vec);
    let status = answer.status().as_u16();
    let _ = answer.bytes().await.unwrap();
    (status, shown.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_a_token_sees_probes_without_details() {
    let protection =
        Protection { token: Some(token(TOKEN)), read_token: Some(token(READ_TOKEN)), ..Protection::default() };
    let port = Port::open(protection).await;
    let answer = port.get("/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ready\n") && !answer.contains("c0/nodes"),
        "{answer}"
    );
    for path in ["/v1/status", "/metrics", "/v1/sinks/a/dead-letters", "/none"] {
        let answer = port.get(path).await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("www-authenticate: Bearer"), "{path}: {answer}");
        assert!(answer.contains("{\"error\":\"a token is required"), "{path}: {answer}");
    }
    let with = |method: &str, path: &str, token: &str| {
        head(method, path, &["Connection: close", &format!("Authorization: Bearer {token}")])
    };
    let answer = port.exchange(&with("GET", "/readyz", READ_TOKEN)).await;
    assert!(answer.contains("c0/nodes is forbidden"), "{answer}");
    assert!(port.exchange(&with("GET", "/v1/status", READ_TOKEN)).await.starts_with("HTTP/1.1 200 "));
    assert!(port.exchange(&with("GET", "/v1/status", "nonsense")).await.starts_with("HTTP/1.1 401 "));
    let purge = "/v1/sinks/a/dead-letters/purge";
    assert!(port.exchange(&with("POST", purge, READ_TOKEN)).await.starts_with("HTTP/1.1 403 "));
    let answer = port.exchange(&with("POST", purge, TOKEN)).await;
    assert!(
        answer.starts_with("HTTP/1.1 415 ") && answer.contains("{\"error\":"),
        "authorized but incomplete: {answer}"
    );
    let answer = port.exchange(&with("GET", "/none", TOKEN)).await;
    assert!(
        answer.starts_with("HTTP/1.1 404 ")
            && answer.ends_with(r#"{"error":"there is no path /none; GET / lists the paths"}"#)
    );
    let answer = port.exchange(&with("GET", "/clusters/a/api", TOKEN)).await;
    assert!(answer.contains("hub.read_api.enabled is false"), "{answer}");
    let answer = port.exchange(&with("GET", "/", TOKEN)).await;
    assert!(answer.contains("\"/v1/status\"") && !answer.contains("/clusters"), "{answer}");
    let answer = port.exchange(&with("GET", "/", "nonsense")).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = port.exchange(&with("DELETE", "/livez", TOKEN)).await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("/livez does not support this method"), "{answer}");
    let answer = port.exchange(&with("DELETE", "/v1/status", TOKEN)).await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET,HEAD"), "{answer}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_grants_access_and_without_one_only_probes_work() {
    let files = files();
    let port = Port::open(Protection { tls: Some(files.tls(true)), ..Protection::default() }).await;
    let identity = files.issue("operator", "client.pem", "client-key.pem");
    let (known, unknown) = (files.client(Some(&identity)), files.client(None));
    assert_eq!(ask(&known, &port, "/v1/status").await.0, 200);
    assert_eq!(ask(&unknown, &port, "/v1/status").await.0, 401);
    assert_eq!(ask(&unknown, &port, "/livez").await.0, 200);
    let stranger = self::files();
    let foreign = stranger.issue("operator", "client.pem", "client-key.pem");
    let refused = files.client(Some(&foreign)).get(format!("https://{}/livez", port.address)).send().await;
    assert!(refused.is_err(), "a certificate of another CA fails the handshake");
    let answer = port.get("/livez").await;
    assert!(!answer.contains("ok"), "plain HTTP: {answer}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_certificate_serves_new_connections_and_keeps_open_ones() {
    let files = files();
    let port = Port::open(Protection { tls: Some(files.tls(false)), ..Protection::default() }).await;
    let old = files.client(None);
    let (_, first) = ask(&old, &port, "/livez").await;
    // While only one of the two files is replaced, the old certificate stays in use.
    std::fs::write(files.path("key.pem"), "not yet").unwrap();
    assert_eq!(ask(&files.client(None), &port, "/livez").await.1, first);
    files.issue("127.0.0.1", "cert.pem", "key.pem");
    let changed = async {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        loop {
            tick.tick().await;
            let (status, shown) = ask(&files.client(None), &port, "/livez").await;
            assert_eq!(status, 200);
            if shown != first {
                return shown;
            }
        }
    };
    let second = tokio::time::timeout(PATIENCE, changed).await.expect("the new certificate");
    assert_ne!(second, first);
    assert_eq!(ask(&old, &port, "/livez").await, (200, first), "on the open connection");
    port.end().await;
}

#[test]
fn tls_check_names_the_unusable_file_and_the_reason() {
    let files = files();
    let problem = |files: &TlsFiles| check_tls(files).map_err(|error| (error.key(), error.to_string())).unwrap_err();
    assert!(check_tls(&files.tls(true)).is_ok());
    let (key, answer) = problem(&TlsFiles { key_file: files.path("none.pem"), ..files.tls(false) });
    assert!(key == "key_file" && answer.contains("none.pem"), "{answer}");
    let (key, answer) = problem(&TlsFiles { client_ca_file: Some(files.path("key.pem")), ..files.tls(false) });
    assert!(key == "client_ca_file" && answer.contains("holds no PEM certificate"), "{answer}");
    files.issue("127.0.0.1", "other.pem", "other-key.pem");
    let (key, answer) = problem(&TlsFiles { key_file: files.path("other-key.pem"), ..files.tls(false) });
    assert!(key == "key_file" && answer.contains("is not the key"), "{answer}");
}

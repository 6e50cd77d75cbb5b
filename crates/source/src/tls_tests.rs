//! Tests of TLS and proxies against servers on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};

use http::Request;
use informer_hub_testing::tls::{Ca, answer};
use informer_hub_types::Threads;
use kube::client::Body;
use rustls::ServerConfig;

use super::*;
use crate::{Access, connect};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Starts a server that answers all requests. Returns its port.
fn serve(config: Arc<ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || answer(socket.unwrap(), config, OK));
        }
    });
    port
}

/// Sends a request; returns the error's text if there is no answer.
async fn try_get(access: Access) -> Result<(), String> {
    let client = connect(access.into(), None, &Threads::current()).await.map_err(|error| error.to_string())?;
    let answer = client.send(Request::get("/").body(Body::empty()).unwrap()).await;
    // The embedding program, not this crate, chooses the crypto provider of the process.
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    answer.map(drop).map_err(|error| super::super::request::describe(&error))
}

fn by_file(port: u16, ca: &Path) -> Access {
    Access::Server { server: format!("https://127.0.0.1:{port}"), ca_file: Some(ca.to_owned()), token: None }
}

/// Returns access by a kubeconfig in memory. `cluster` and `user` are additional members of its cluster and user, as
/// YAML.
fn inline(server: &str, cluster: &str, user: &str) -> Access {
    let text = format!(
        "{{apiVersion: v1, kind: Config, clusters: [{{name: c, cluster: {{server: '{server}'{cluster}}}}}],\n\
         users: [{{name: u, user: {{{user}}}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x}}"
    );
    Access::Inline { text: text.into(), origin: "a test".into() }
}

fn with_ca(ca: &Ca) -> String {
    format!(", certificate-authority-data: {}", STANDARD.encode(ca.pem()))
}

#[tokio::test]
async fn server_is_verified_against_the_configured_ca() {
    let (ca, other) = (Ca::new(), Ca::new());
    let port = serve(ca.server_config(&[]));
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    std::fs::write(&right, ca.pem()).unwrap();
    std::fs::write(&wrong, other.pem()).unwrap();
    assert_eq!(try_get(by_file(port, &right)).await, Ok(()));
    let error = try_get(by_file(port, &wrong)).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    let server = format!("https://127.0.0.1:{port}");
    assert_eq!(try_get(inline(&server, &with_ca(&ca), "")).await, Ok(()));
    assert!(try_get(inline(&server, &with_ca(&other), "")).await.is_err());
    assert_eq!(try_get(inline(&server, ", insecure-skip-tls-verify: true", "")).await, Ok(()));
}

#[tokio::test]
async fn tls_server_name_replaces_the_host_in_the_verification() {
    let ca = Ca::new();
    let (by_name, cluster) = (format!("https://localhost:{}", serve(ca.server_config(&[]))), with_ca(&ca));
    assert!(try_get(inline(&by_name, &cluster, "")).await.is_err());
    assert_eq!(try_get(inline(&by_name, &format!("{cluster}, tls-server-name: 127.0.0.1"), "")).await, Ok(()));
    let error = try_get(inline(&by_name, &format!("{cluster}, tls-server-name: 'a b'"), "")).await.unwrap_err();
    assert!(error.contains("tls-server-name"), "{error}");
}

#[tokio::test]
async fn client_certificate_of_a_kubeconfig_is_sent() {
    let ca = Ca::new();
    let (server, cluster) = (format!("https://127.0.0.1:{}", serve(ca.mutual_server_config())), with_ca(&ca));
    let (cert, key) = ca.issue("me");
    let [cert, key] = [cert, key].map(|pem| STANDARD.encode(pem));
    let user = format!("client-certificate-data: {cert}, client-key-data: {key}");
    assert_eq!(try_get(inline(&server, &cluster, &user)).await, Ok(()));
    assert!(try_get(inline(&server, &cluster, "")).await.is_err());
    let error = try_get(inline(&server, &cluster, &format!("client-certificate-data: {cert}"))).await.unwrap_err();
    assert!(error.contains("set both or neither"), "{error}");
    let swapped = format!("client-certificate-data: {key}, client-key-data: {cert}");
    let error = try_get(inline(&server, &cluster, &swapped)).await.unwrap_err();
    assert!(error.contains("must be PEM"), "{error}");
}

/// Starts a server that verifies client certificates, and answers accepted ones. After a refusal it reads until the client
/// closes the connection, so that the client gets the alert. Returns its address.
fn serve_verified(config: Arc<ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, config) = (socket.unwrap(), Arc::clone(&config));
            std::thread::spawn(move || {
                let mut tls = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::Stream::new(&mut tls, &mut socket);
                if stream.read(&mut [0; 4096]).is_ok() {
                    let _ = stream.write_all(OK);
                } else {
                    let _ = std::io::copy(&mut socket, &mut std::io::sink());
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_refused_in_the_handshake_is_unauthorized() {
    use informer_hub_reflector::ErrorClass;
    let (ca, other) = (Ca::new(), Ca::new());
    let user = |ca: &Ca| {
        let (cert, key) = ca.issue("me");
        format!("client-certificate-data: {}, client-key-data: {}", STANDARD.encode(cert), STANDARD.encode(key))
    };
    for version in rustls::ALL_VERSIONS {
        for protocols in [&[][..], &[H2]] {
            let server = serve_verified(ca.mutual_server_config_of(protocols, &[version]));
            for user in [user(&other), String::new()] {
                let access = inline(&server, &with_ca(&ca), &user);
                let client = connect(access.into(), None, &Threads::current()).await.unwrap();
                let sent = client.send(Request::get("/").body(Body::empty()).unwrap()).await;
                let error = super::super::request::failure(&sent.unwrap_err());
                assert_eq!(error.class, ErrorClass::Unauthorized, "{version:?} {}: {error}", protocols.len());
                assert!(error.message.contains("alert"), "{error}");
            }
        }
        let server = serve_verified(ca.mutual_server_config_of(&[], &[version]));
        assert_eq!(try_get(inline(&server, &with_ca(&ca), &user(&ca))).await, Ok(()));
        // The client refuses this server, not the other way round.
        let client = connect(inline(&server, &with_ca(&other), &user(&ca)).into(), None, &Threads::current()).await;
        let sent = client.unwrap().send(Request::get("/").body(Body::empty()).unwrap()).await;
        assert_eq!(super::super::request::failure(&sent.unwrap_err()).class, ErrorClass::Transient);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_renews_a_certificate_refused_in_the_handshake() {
    use crate::KubeConnector;
    use informer_hub_reflector::{Connector, ErrorClass, StallPolicy};
    let (ca, old, folder) = (Ca::new(), Ca::new(), tempfile::tempdir().unwrap());
    let server = serve_verified(ca.mutual_server_config_of(&[], rustls::ALL_VERSIONS));
    let credential = folder.path().join("credential");
    let write = |ca: &Ca| {
        let (cert, key) = ca.issue("me");
        let status = serde_json::json!({ "clientCertificateData": cert, "clientKeyData": key });
        std::fs::write(&credential, serde_json::json!({ "status": status }).to_string()).unwrap();
    };
    write(&old);
    let user = format!("exec: {{command: cat, args: ['{}']}}", credential.display());
    let access = inline(&server, &with_ca(&ca), &user);
    let connector = KubeConnector::new(access.into(), StallPolicy::default(), &Threads::current());
    let connection = connector.connect().await.unwrap();
    write(&ca);
    assert_eq!(connection.server().await.unwrap_err().class, ErrorClass::Unauthorized);
    let renewed = async {
        // The accepted answer has no version in it.
        while connection.server().await.unwrap_err().class == ErrorClass::Unauthorized {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), renewed).await.expect("the plugin runs again");
}

#[tokio::test(start_paused = true)]
async fn ca_file_is_reread_and_an_unusable_one_keeps_the_last_roots() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), Ca::new().pem()).unwrap();
    let reloading = CaFile::open(file.path().to_owned()).unwrap();
    let first = reloading.current();
    std::fs::write(file.path(), Ca::new().pem()).unwrap();
    assert!(Arc::ptr_eq(&reloading.current(), &first), "it is read once a minute");
    tokio::time::advance(CA_AGE).await;
    let second = reloading.current();
    assert!(!Arc::ptr_eq(&second, &first));
    std::fs::write(file.path(), "nothing").unwrap();
    tokio::time::advance(CA_AGE).await;
    assert!(Arc::ptr_eq(&reloading.current(), &second));
}

/// Starts a proxy for one connection, which tunnels to the requested port. Returns the proxy's address, and a receiver
/// of the head of the tunnel request.
fn proxy() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, heads) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut server = TcpStream::connect(head.split(' ').nth(1).unwrap()).unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        send.send(head).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut server, &mut client);
    });
    (address, heads)
}

#[tokio::test]
async fn http_proxy_tunnels_tls_and_gets_the_decoded_user() {
    let ca = Ca::new();
    let server = format!("https://127.0.0.1:{}", serve(ca.server_config(&[])));
    let (address, heads) = proxy();
    let cluster = format!("{}, proxy-url: 'http://me:p%40ss@{address}'", with_ca(&ca));
    assert_eq!(try_get(inline(&server, &cluster, "")).await, Ok(()));
    let head = heads.recv().unwrap();
    let authorization = format!("proxy-authorization: basic {}", STANDARD.encode("me:p@ss")).to_lowercase();
    assert!(head.starts_with("CONNECT 127.0.0.1:") && head.to_lowercase().contains(&authorization), "{head}");
    let error = try_get(inline(&server, &with_ca(&ca).replace(", c", ", proxy-url: 'ftp://u:hunter2@x', c"), "")).await;
    let error = error.unwrap_err();
    assert!(error.contains("must be http, https or socks5") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn new_token_keeps_connections_and_new_certificate_replaces_them() {
    let ca = Ca::new();
    let fingerprint_of = async |server: &str, user: &str, http| {
        let Access::Inline { text, .. } = inline(server, &with_ca(&ca), user) else { unreachable!() };
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await;
        fingerprint(&config.unwrap(), http).unwrap()
    };
    let certificate = || {
        let (chain, key) = ca.issue("user");
        let (chain, key) = (STANDARD.encode(chain), STANDARD.encode(key));
        format!("client-certificate-data: {chain}, client-key-data: {key}")
    };
    let (a, b, server) = (certificate(), certificate(), "https://127.0.0.1:1");
    let first = fingerprint_of(server, "token: one", HttpVersions::Auto).await;
    assert_eq!(first, fingerprint_of(server, "token: two", HttpVersions::Auto).await);
    assert_ne!(first, fingerprint_of(server, "token: one", HttpVersions::Http1).await);
    assert_ne!(first, fingerprint_of("https://127.0.0.1:2", "token: one", HttpVersions::Auto).await);
    let with_a = fingerprint_of(server, &a, HttpVersions::Auto).await;
    assert_eq!(with_a, fingerprint_of(server, &a, HttpVersions::Auto).await);
    assert_ne!(with_a, fingerprint_of(server, &b, HttpVersions::Auto).await);
}

//! The compared servers, each in its own process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use informer_hub_testing::tls::Ca;
use kube::config::Kubeconfig;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::hub::TIMEOUT;
use crate::common::process;
use crate::real;

/// Address and process of a server.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) process: u32,
    /// URL below which the Kubernetes API is.
    pub(super) root: String,
    ca: Option<Vec<u8>>,
    pub(super) token: Option<String>,
}

impl Server {
    /// Creates a client with connections of its own, over HTTP/1.1 or HTTP/2.
    pub(super) fn client(&self, is_http2: bool) -> reqwest::Client {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let certificates = self.ca.iter().map(|pem| reqwest::Certificate::from_pem(pem).unwrap());
        let builder = reqwest::Client::builder().tls_certs_only(certificates).timeout(Duration::from_secs(3600));
        let builder = if is_http2 { builder } else { builder.http1_only() };
        builder.build().unwrap()
    }

    /// Creates a request with the server's credentials.
    pub(super) fn get(&self, client: &reqwest::Client, path: &str, accept: &str) -> reqwest::RequestBuilder {
        self.at(client, reqwest::Method::GET, path).header("accept", accept)
    }

    pub(super) fn at(&self, client: &reqwest::Client, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = client.request(method, format!("{}{path}", self.root));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Returns the CPU seconds that the process has used.
    pub(super) fn cpu(&self) -> f64 {
        process::cpu_of(self.process).as_secs_f64()
    }

    /// Returns the same server with this token for requests.
    pub(super) fn with_token(self, token: String) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Returns a server without TLS, with a token for requests. Its process ID is unknown, so [`Self::cpu`] must not be
    /// called.
    pub(super) fn plain(root: String, token: String) -> Self {
        Self { process: 0, root, ca: None, token: Some(token) }
    }

    /// Returns the same server with another path as its root.
    pub(super) fn at_root(&self, root: &str) -> Self {
        let base = self.root.split("/clusters/").next().unwrap();
        Self { root: format!("{base}{root}"), ..self.clone() }
    }
}

/// Reads a body to its end and returns its length.
pub(super) async fn read_all(mut response: reqwest::Response) -> u64 {
    assert_eq!(response.status(), 200);
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes += chunk.len() as u64;
    }
    bytes
}

/// A kube-apiserver with its etcd in one process.
pub(super) struct Apiserver {
    running: real::Server,
    _dir: TempDir,
    pub(super) kubeconfig: String,
}

impl Apiserver {
    /// Starts the apiserver and creates pods.
    pub(super) async fn start(pods: u64) -> Self {
        let testbed = std::env::var("BENCH_TESTBED").expect("BENCH_TESTBED is set, as by `make bench-read`");
        let dir = tempfile::tempdir().unwrap();
        let (running, kubeconfig) = real::start(&testbed, dir.path());
        eprintln!("making {pods} pods …");
        real::fill(&kubeconfig, pods as usize).await;
        Self { running, _dir: dir, kubeconfig }
    }

    pub(super) fn server(&self) -> Server {
        let read = serde_json::to_value(Kubeconfig::read_from(&self.kubeconfig).unwrap()).unwrap();
        let (cluster, user) = (&read["clusters"][0]["cluster"], &read["users"][0]["user"]);
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let ca = text(&cluster["certificate-authority"]).map(|file| std::fs::read(file).unwrap());
        let decode = |data: String| base64::engine::general_purpose::STANDARD.decode(data).unwrap();
        let ca = ca.or_else(|| text(&cluster["certificate-authority-data"]).map(decode));
        let (root, token) = (text(&cluster["server"]).unwrap(), text(&user["token"]));
        Server { process: self.running.0.id(), root, ca, token }
    }
}

/// The hub in its own process.
pub(super) struct HubServer {
    child: Child,
    dir: TempDir,
    server: Server,
}

impl Drop for HubServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl HubServer {
    /// Starts a hub that watches the pods of an apiserver, with TLS.
    pub(super) async fn beside(apiserver: &Apiserver) -> Self {
        let toml = format!("[clusters.bench]\nkubeconfig = {:?}\n[resources.pods]\n", apiserver.kubeconfig);
        Self::start(&toml, true).await
    }

    /// Starts a hub with one cluster `bench` and waits until it is ready. `toml` is its configuration without `[hub]`.
    pub(super) async fn start(toml: &str, has_tls: bool) -> Self {
        Self::start_with(toml, has_tls, &[]).await
    }

    /// Starts a hub as [`Self::start`] does, with `files` (name and content) beside its configuration.
    pub(super) async fn start_with(toml: &str, has_tls: bool, files: &[(String, String)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut hub = "[hub]\nlisten = \"127.0.0.1:0\"\n".to_owned();
        let ca = has_tls.then(Ca::new);
        if let Some(ca) = &ca {
            let (certificate, key) = ca.issue("127.0.0.1");
            let files = [("cert.pem", certificate), ("key.pem", key), ("ca.pem", ca.pem())];
            for (name, text) in files {
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            hub += "[hub.tls]\ncert_file = \"cert.pem\"\nkey_file = \"key.pem\"\n";
        }
        std::fs::write(dir.path().join("hub.toml"), hub + toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        command.args(["run", "-c", "hub.toml", "--log-format", "json"]).current_dir(dir.path()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let address = address_of(&mut child);
        let scheme = if has_tls { "https" } else { "http" };
        let root = format!("{scheme}://{address}/clusters/bench");
        let server = Server { process: child.id(), root, ca: ca.map(|ca| ca.pem().into_bytes()), token: None };
        let hub = Self { child, dir, server };
        hub.ready().await;
        hub
    }

    pub(super) fn server(&self) -> Server {
        self.server.clone()
    }

    async fn ready(&self) {
        let (server, client) = (self.server.at_root(""), self.server.client(false));
        let until = std::time::Instant::now() + TIMEOUT;
        loop {
            let answer = server.get(&client, "/readyz", "*/*").send().await;
            if answer.as_ref().is_ok_and(|answer| answer.status() == 200) {
                break;
            }
            assert!(std::time::Instant::now() < until, "the hub is not ready: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Bodies are compressed some seconds after they arrived.
        tokio::time::sleep(Duration::from_secs(8)).await;
    }

    /// Writes a kubeconfig for kubectl and returns its path. The kubeconfig has a user, because kubectl otherwise
    /// prompts for a name over TLS.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        let file = self.dir.path().join("kubeconfig");
        let ca = self.dir.path().join("ca.pem");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: hub\nclusters:\n- name: hub\n  cluster:\n    server: {}\n    \
             certificate-authority: {}\ncontexts:\n- name: hub\n  context: {{ cluster: hub, user: reader }}\n\
             users:\n- name: reader\n  user: {{ token: none }}\n",
            self.server.root,
            Path::display(&ca)
        );
        std::fs::write(&file, text).unwrap();
        file
    }
}

/// Returns the address that the hub logs. A thread then reads the rest of the log, so that the pipe does not fill up.
fn address_of(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().expect("the hub runs").unwrap();
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        if value["message"].as_str().is_some_and(|message| message.contains("serving /livez")) {
            break value["address"].as_str().unwrap().to_owned();
        }
    };
    std::thread::spawn(move || lines.for_each(drop));
    address
}

//! The binary as a child process: configuration, log, HTTP answers, exit code.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use informer_hub_sim::{SimCluster, SimConfig, WorldConfig};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::wait::{PATIENCE, until};

pub(crate) fn sim(seed: u64, pods: usize) -> SimCluster {
    sim_with(SimConfig::default(), seed, pods)
}

/// Starts a cluster whose objects of built-in types may have any members.
pub(crate) fn sim_of_any_objects(seed: u64, pods: usize) -> SimCluster {
    sim_with(SimConfig { protobuf: false, ..SimConfig::default() }, seed, pods)
}

fn sim_with(config: SimConfig, seed: u64, pods: usize) -> SimCluster {
    let world = WorldConfig { seed, pods, small: true, ..WorldConfig::default() };
    SimCluster::start(SimConfig { world, ..config }, &Handle::current()).unwrap()
}

/// Returns `[clusters.<name>]` with an address.
pub(crate) fn cluster(name: &str, url: &str) -> String {
    format!("[clusters.{name}]\nserver = \"{url}\"\n")
}

/// A Lease in the cluster `c0`.
pub(crate) const LEASE: &str = "[ha]\nlease = { cluster = \"c0\", namespace = \"hub\" }\n";

fn whole(toml: &str) -> String {
    format!("[hub]\nlisten = \"127.0.0.1:0\"\n{toml}")
}

/// Builder of a hub process.
pub(crate) struct Launch {
    command: Command,
    folder: TempDir,
}

impl Launch {
    /// Creates a launch with a free port. `toml` starts inside `[hub]`.
    pub(crate) fn new(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hub.toml");
        std::fs::write(&file, whole(toml)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| ["OTEL_", "INFORMER_HUB_"].iter().any(|own| name.starts_with(own))) {
                command.env_remove(name);
            }
        }
        command.arg("run").arg("-c").arg(&file).env_remove("RUST_LOG").current_dir(folder.path());
        Self { command, folder }
    }

    /// Creates a launch whose port is known before the start.
    pub(crate) fn at_port(toml: &str) -> (Self, String) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        (Self::at(&port, toml), format!("http://{port}"))
    }

    /// Creates a launch at an address.
    pub(crate) fn at(address: &str, toml: &str) -> Self {
        let launch = Self::new(toml);
        let file = launch.folder.path().join("hub.toml");
        std::fs::write(file, format!("[hub]\nlisten = \"{address}\"\n{toml}")).unwrap();
        launch
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Runs a shell script first, which then executes the hub in the same process.
    pub(crate) fn after(mut self, script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{script} && exec \"$0\" \"$@\"")).arg(self.command.get_program());
        shell.args(self.command.get_args()).current_dir(self.folder.path());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        self.command = shell;
        self
    }

    /// Writes a file next to the configuration.
    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        std::fs::write(self.folder.path().join(name), content).unwrap();
        self
    }

    /// Starts the hub with a JSON log.
    pub(crate) fn start(self) -> Process {
        self.arg("--log-format").arg("json").start_as_text()
    }

    pub(crate) fn start_as_text(mut self) -> Process {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (log, stderr) = (Arc::clone(&lines), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                log.lock().push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Process { child, lines, reader: Some(reader), folder: self.folder }
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).timeout(PATIENCE).build().unwrap()
}

async fn answer_of(request: reqwest::RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Running hub process. Dropping it kills the process.
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
    folder: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the hub's log ---\n{}", self.log());
        }
    }
}

impl Process {
    /// Returns the folder of the configuration.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns everything written to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Returns the log lines so far, each a JSON object.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.lines.lock();
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }

    /// Waits for a line whose message contains this text.
    pub(crate) async fn line(&self, message: &str) -> Value {
        until(message, async || self.lines().into_iter().find(|line| message_of(line).contains(message))).await
    }

    /// Returns the number of lines whose message contains this text.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.lines().iter().filter(|line| message_of(line).contains(message)).count()
    }

    /// Returns the URL of the hub's port, from its log.
    pub(crate) async fn url(&self) -> String {
        format!("http://{}", self.line("serving /livez").await["address"].as_str().unwrap())
    }

    /// Sends a GET request.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        answer_of(client().get(self.url().await + path)).await
    }

    /// Sends an empty POST request.
    pub(crate) async fn post(&self, path: &str) -> (u16, String) {
        answer_of(client().post(self.url().await + path)).await
    }

    pub(crate) async fn status(&self) -> Value {
        let (code, body) = self.get("/v1/status").await;
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until `/readyz` answers 200.
    pub(crate) async fn ready(&self) {
        until("ready", async || (self.get("/readyz").await.0 == 200).then_some(())).await;
    }

    /// Replaces the configuration file atomically.
    pub(crate) fn configure(&self, toml: &str) {
        let new = self.folder.path().join("hub.toml.new");
        std::fs::write(&new, whole(toml)).unwrap();
        std::fs::rename(new, self.folder.path().join("hub.toml")).unwrap();
    }

    /// Sends a signal: `TERM`, `INT`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal until the hub ends, and returns the exit code.
    pub(crate) async fn ended_by(&mut self, name: &str) -> i32 {
        until("the hub ended by a signal", async || {
            let ended = self.child.try_wait().unwrap();
            if ended.is_none() {
                self.signal(name);
            }
            ended.map(|_| ())
        })
        .await;
        self.ended().await
    }

    /// Waits until the hub ends, and returns the exit code.
    pub(crate) async fn ended(&mut self) -> i32 {
        let status = until("the hub ended", async || self.child.try_wait().unwrap()).await;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status.code().unwrap_or_else(|| panic!("killed: {status}"))
    }
}

pub(crate) fn message_of(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

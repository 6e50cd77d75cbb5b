//! The binary as a child process: its configuration, its log, its answers, its end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use informer_hub_sim::{SimCluster, SimConfig, WorldConfig};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::waiting::{PATIENCE, until};

pub(crate) fn sim(seed: u64, pods: usize) -> SimCluster {
    let world = WorldConfig { seed, pods, small: true, ..WorldConfig::default() };
    SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap()
}

/// `[clusters.<name>]` at an address.
pub(crate) fn cluster(name: &str, url: &str) -> String {
    format!("[clusters.{name}]\nserver = \"{url}\"\n")
}

fn whole(toml: &str) -> String {
    format!("[hub]\nlisten = \"127.0.0.1:0\"\n{toml}")
}

/// What is to be started.
pub(crate) struct Launch {
    command: Command,
    folder: TempDir,
}

impl Launch {
    /// A free port, and what `toml` says beside it. `[hub]` is open at its beginning.
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

    /// With a port that is known before it starts, as good as free.
    pub(crate) fn at_port(toml: &str) -> (Self, String) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let launch = Self::new(toml);
        std::fs::write(launch.folder.path().join("hub.toml"), format!("[hub]\nlisten = \"{port}\"\n{toml}")).unwrap();
        (launch, format!("http://{port}"))
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Has a shell do something first, in whose place the hub is run then.
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

    /// A file beside the configuration.
    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        std::fs::write(self.folder.path().join(name), content).unwrap();
        self
    }

    /// Starts it with its log in JSON.
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

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).timeout(PATIENCE).build().unwrap()
}

async fn answer_of(request: reqwest::RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// A running hub. Dropping it kills it.
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
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Its log lines so far, each a JSON object.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.lines.lock();
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }

    /// Waits for a line with this in its message.
    pub(crate) async fn line(&self, message: &str) -> Value {
        until(message, async || self.lines().into_iter().find(|line| message_of(line).contains(message))).await
    }

    /// Lines with this in their message.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.lines().iter().filter(|line| message_of(line).contains(message)).count()
    }

    /// Where it serves, as its log says.
    pub(crate) async fn url(&self) -> String {
        format!("http://{}", self.line("serving /livez").await["address"].as_str().unwrap())
    }

    /// Asks it something, as curl would.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        answer_of(client().get(self.url().await + path)).await
    }

    /// The same by POST, with nothing in it.
    pub(crate) async fn post(&self, path: &str) -> (u16, String) {
        answer_of(client().post(self.url().await + path)).await
    }

    pub(crate) async fn status(&self) -> Value {
        let (code, body) = self.get("/v1/status").await;
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn ready(&self) {
        until("ready", async || (self.get("/readyz").await.0 == 200).then_some(())).await;
    }

    /// Puts another configuration in the place of the one that it was started with, whole, as `mv` does.
    pub(crate) fn configure(&self, toml: &str) {
        let new = self.folder.path().join("hub.toml.new");
        std::fs::write(&new, whole(toml)).unwrap();
        std::fs::rename(new, self.folder.path().join("hub.toml")).unwrap();
    }

    /// Sends it a signal: `TERM`, `INT`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal until it ends; gives its exit code.
    pub(crate) async fn ended_by(&mut self, name: &str) -> i32 {
        until("the hub's end by a signal", async || {
            let ended = self.child.try_wait().unwrap();
            if ended.is_none() {
                self.signal(name);
            }
            ended.map(|_| ())
        })
        .await;
        self.ended().await
    }

    /// Waits for its end; gives its exit code.
    pub(crate) async fn ended(&mut self) -> i32 {
        let status = until("the hub's end", async || self.child.try_wait().unwrap()).await;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status.code().unwrap_or_else(|| panic!("killed: {status}"))
    }
}

pub(crate) fn message_of(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

//! A user's folder, in which the program's commands and the hub run.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::{becomes_true, signal};
use crate::fixture::WAIT_DEADLINE;

/// The folder, which is also the user's home, and the hub's URL.
pub(crate) struct Workdir {
    folder: TempDir,
    url: String,
    /// CA of the hub's certificate, if it serves TLS.
    ca: Option<reqwest::Certificate>,
}

impl Workdir {
    /// Creates an empty folder and picks a free port for the hub.
    pub(crate) fn new() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), url: format!("http://{port}"), ca: None }
    }

    /// Makes requests to the hub use TLS, and trust the CA in this file.
    pub(crate) fn with_tls(self, ca: &Path) -> Self {
        let ca = reqwest::Certificate::from_pem(&fs::read(ca).unwrap()).unwrap();
        Self { url: self.url.replace("http://", "https://"), ca: Some(ca), ..self }
    }

    /// Returns the hub's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address for the hub to listen on.
    pub(crate) fn listen(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file atomically, by a rename.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let new = file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        for (name, _) in std::env::vars_os() {
            let own = ["OTEL_", "INFORMER_HUB_", "KUBECONFIG", "RUST_LOG"];
            if name.to_str().is_some_and(|name| own.iter().any(|own| name.starts_with(own))) {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.env("INFORMER_HUB_URL", &self.url).stdin(Stdio::null());
        command
    }

    /// Runs a command of the program to completion.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a shell line in the folder and returns its output.
    pub(crate) fn shell(&self, line: &str) -> String {
        let done = Command::new("sh").args(["-c", line]).current_dir(self.folder.path()).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs a command with `-o json` and parses its output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.printed(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}"))
    }

    /// Runs a command repeatedly until `check` accepts its output.
    pub(crate) async fn shows(&self, arguments: &[&str], check: impl Fn(&str) -> bool) {
        let shown = || String::from_utf8_lossy(&self.run(arguments).stdout).into_owned();
        assert!(becomes_true(WAIT_DEADLINE, async || check(&shown())).await, "{arguments:?} shows:\n{}", shown());
    }

    /// Starts the hub with `hub.toml` and a JSON log.
    pub(crate) fn hub(&self) -> Running {
        self.service(&["run", "-c", "hub.toml"])
    }

    /// Starts a hub or an agent with a JSON log.
    pub(crate) fn service(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(&[arguments, &["--log-format", "json"]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Running::new(child, stderr)
    }

    /// Starts a long-running command with its output in a pipe.
    pub(crate) fn watching(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Running::new(child, stdout)
    }

    /// Sends a GET to the hub and returns status code and body; code 0 if it cannot be reached.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let client = reqwest::Client::builder().tls_certs_only(self.ca.clone()).timeout(WAIT_DEADLINE).build().unwrap();
        let Ok(answer) = client.get(format!("{}{path}", self.url)).send().await else { return (0, String::new()) };
        (answer.status().as_u16(), answer.text().await.unwrap_or_default())
    }

    /// Waits until the hub is ready.
    pub(crate) async fn ready(&self, hub: &Running) {
        let ready = becomes_true(WAIT_DEADLINE, async || self.get("/readyz").await.0 == 200).await;
        assert!(ready, "not ready: {}\n{}", self.get("/readyz").await.1, hub.lines().join("\n"));
    }

    /// Returns the value of a series in the hub's metrics.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await;
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
}

/// Running process and the lines that it has printed. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- output of the process ---\n{}", self.lines().join("\n"));
        }
    }
}

impl Running {
    fn new(child: Child, output: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| log.lock().push(line));
        });
        Self { child, lines, reader: Some(reader) }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Returns the lines that contain `text`.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.contains(text)).collect()
    }

    /// Waits for a line that contains all of `texts`.
    pub(crate) async fn prints(&self, texts: &[&str]) {
        let printed = || self.lines().iter().any(|line| texts.iter().all(|text| line.contains(text)));
        assert!(becomes_true(WAIT_DEADLINE, async || printed()).await, "no line with {texts:?}");
    }

    /// Suspends the process, or resumes it.
    pub(crate) fn freeze(&self, frozen: bool) {
        signal(&self.child, if frozen { "STOP" } else { "CONT" });
    }

    /// Sends SIGTERM, waits for the end and returns the exit code.
    pub(crate) async fn terminate(&mut self) -> i32 {
        signal(&self.child, "TERM");
        let ended =
            becomes_true(WAIT_DEADLINE, || std::future::ready(matches!(self.child.try_wait(), Ok(Some(_))))).await;
        assert!(ended, "the process does not end after SIGTERM");
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

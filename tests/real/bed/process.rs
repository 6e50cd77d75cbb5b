//! Process of the test bed's binary: start, commands, end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::build;

/// Deadline of a start. Longer than the binary's own deadline, so that its error arrives first. Measured: 3 s on two
/// cores.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// Deadline of a command.
const COMMAND_DEADLINE: Duration = Duration::from_secs(30);

/// JSON line that the binary prints once the cluster serves.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) url: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) limited_kubeconfig: PathBuf,
    pub(super) ca: PathBuf,
    pub(super) tokens: std::collections::BTreeMap<String, String>,
}

/// Sends a signal to a child that has not been waited for, so that its PID cannot have been reused.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "SIG{name} could not be sent to the test bed");
}

/// A running test bed. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Starts the binary on `dir` and waits until the cluster serves requests.
    ///
    /// # Panics
    /// If the binary exits or misses the deadline; the message contains the end of its log.
    pub(super) async fn start(name: &str, dir: &Path, flags: &[String]) -> (Self, Ready) {
        let mut child = Command::new(build::binary())
            .arg("--dir")
            .arg(dir)
            // If this process is killed, the binary must remove the temporary directory.
            .args(["--name", name, "--remove", "--"])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test bed's binary was built a moment ago");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let mut process = Self { child, stdin, lines, log: dir.join("log") };
        let ready = process.answer(&format!("start of cluster {name:?}"), START_DEADLINE).await;
        (process, ready)
    }

    /// Sends one command and returns its answer.
    pub(super) async fn command<T: DeserializeOwned>(&mut self, command: &str) -> T {
        writeln!(self.stdin, "{command}").unwrap_or_else(|error| panic!("cannot send {command:?}: {error}"));
        self.answer(command, COMMAND_DEADLINE).await
    }

    async fn answer<T: DeserializeOwned>(&mut self, to: &str, deadline: Duration) -> T {
        let Ok(line) = tokio::time::timeout(deadline, self.lines.recv()).await else {
            panic!("{to}: no answer within {deadline:?}; the log ends with\n{}", self.log_tail());
        };
        let Some(line) = line else {
            panic!("{to}: the test bed ended; its log ends with\n{}", self.log_tail());
        };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{to}: answered {line}: {error}"))
    }

    /// Suspends the process (SIGSTOP). Its sockets stay open.
    pub(super) fn freeze(&self) {
        signal(&self.child, "STOP");
    }

    /// Resumes the process. Its clock has jumped by the suspended time.
    pub(super) fn thaw(&self) {
        signal(&self.child, "CONT");
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub(super) fn kill(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<_> = text.lines().filter(|line| !line.contains("addrConn.createTransport")).collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

//! One run of the test bed's binary: its ready line, its commands, its end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::build;

/// How long a start may take: longer than the binary gives itself, so that it can say what went wrong.
/// Measured: 3 s on two cores.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// How long a command may take.
const COMMAND_DEADLINE: Duration = Duration::from_secs(30);

/// What the binary says once it serves.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) url: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) limited_kubeconfig: PathBuf,
    pub(super) ca: PathBuf,
    pub(super) tokens: std::collections::BTreeMap<String, String>,
}

/// Sends a signal to a child that has not been waited for, so that its number cannot be another's.
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
    /// Starts the binary on `dir` and waits until the cluster serves.
    ///
    /// # Panics
    /// When it ends or lets the deadline pass; the message has the end of its log.
    pub(super) async fn start(name: &str, dir: &Path, flags: &[String]) -> (Self, Ready) {
        let mut child = Command::new(build::binary())
            .arg("--dir")
            .arg(dir)
            // The directory is a temporary one; should this process be killed, there is nobody else to remove it.
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
        writeln!(self.stdin, "{command}").unwrap_or_else(|error| panic!("{command:?} not taken: {error}"));
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

    /// Stops the process where it stands (SIGSTOP); its sockets stay as they are.
    pub(super) fn freeze(&self) {
        signal(&self.child, "STOP");
    }

    /// Lets it go on. Its clock has jumped by the time that it stood still.
    pub(super) fn thaw(&self) {
        signal(&self.child, "CONT");
    }

    /// Kills the process the hard way and waits for its end.
    pub(super) fn kill(&mut self) {
        // Fails only when the process has ended, which is what is wanted.
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

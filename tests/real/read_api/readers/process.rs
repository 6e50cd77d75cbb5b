//! Readers in other processes. They print their state on command.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::expected::Held;
use crate::bed::{built, reader};
use crate::read_api::endpoint::Endpoint;

/// Deadline of a command.
const DEADLINE: Duration = Duration::from_secs(60);

/// A process with readers. Dropping it kills it.
pub(super) struct Readers {
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    _child: Child,
}

/// State of a reader.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Dump {
    pub(super) synced: bool,
    pub(super) objects: Vec<Held>,
    /// Events by kind, and requests by verb and status.
    pub(super) counts: BTreeMap<String, usize>,
    /// The last errors.
    pub(super) errors: Vec<String>,
    /// Updates whose version was lower than the object's version before.
    pub(super) reverts: Vec<String>,
}

impl Readers {
    /// Starts readers of client-go, each given as `NAME=MODE,RESOURCE,URL`.
    pub(super) fn client_go(is_streaming: bool, readers: &[String]) -> Self {
        let mut command = Command::new(reader());
        command.env("KUBE_FEATURE_WatchListClient", is_streaming.to_string());
        Self::start(command, readers)
    }

    /// Starts readers of the Python client, each given as `NAME=URL`. `None` if the client cannot be installed.
    pub(super) fn python(readers: &[String]) -> Option<Self> {
        let python = built("tests/testbed/python/build.sh");
        if python.as_os_str().is_empty() {
            println!("SKIPPED: the readers of the Python client, since PyPI is not reached");
            return None;
        }
        let mut command = Command::new(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testbed/python/reader.py"));
        Some(Self::start(command, readers))
    }

    fn start(mut command: Command, readers: &[String]) -> Self {
        command.args(readers).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the readers were built a moment ago");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { pipes: Mutex::new((stdin, stdout.lines())), _child: child }
    }

    /// Returns the state of all readers, by name.
    pub(super) async fn dump(&self) -> BTreeMap<String, Dump> {
        self.ask("dump").await
    }

    /// Lists a resource from an apiserver, with the client of a reader.
    pub(super) async fn list(&self, reader: &str, apiserver: &Endpoint) -> Vec<Held> {
        let (token, ca) = (apiserver.token().expect("an apiserver"), apiserver.ca().expect("an apiserver"));
        self.ask(&format!("list {reader} {} {token} {}", apiserver.url(), ca.display())).await
    }

    async fn ask<T: DeserializeOwned>(&self, command: &str) -> T {
        let mut pipes = self.pipes.lock().await;
        let (stdin, lines) = &mut *pipes;
        let asking = async {
            stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
            lines.next_line().await.unwrap().unwrap_or_else(|| panic!("{command}: the readers ended"))
        };
        let answer = tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("{command}: no answer"));
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{command}: {error}: {answer:.1000}"))
    }
}

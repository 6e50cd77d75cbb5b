//! client-go's informers, in a separate process (`tests/testbed/watch.go`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use informer_hub_types::{ResourceVersion, Uid};
use serde::Deserialize;

use super::history::{ChangeCounter, Kind, Log, Notified, State};
use super::schedule::Schedule;
use crate::bed::{binary, signal};

/// Running client-go informers. Dropping it ends the process.
pub(super) struct ClientGo {
    child: Child,
    // Kept open, since the process ends at the end of its stdin.
    stdin: ChildStdin,
    logs: [Log; 2],
}

/// One output line of the process.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line {
    resource: String,
    late: bool,
    event: String,
    name: String,
    uid: String,
    version: String,
    old_uid: String,
    old_version: String,
    initial: bool,
    tombstone: bool,
    verb: String,
}

impl ClientGo {
    /// Starts the informers of one namespace, as configured by the schedule. Their log goes to `trace`.
    pub(super) fn start(
        kubeconfig: &Path,
        namespace: &str,
        schedule: &Schedule,
        trace: &Path,
        changes: ChangeCounter,
    ) -> Self {
        let streaming = format!("--streaming={}", schedule.streaming);
        let resync = format!("--resync={}s", schedule.resync.map_or(0, |period| period.as_secs()));
        let mut child = Command::new(binary())
            .arg("watch")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--log")
            .arg(trace)
            .args(["--namespace", namespace, &streaming, &resync])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test bed's binary was built a moment ago");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let logs = [Log::new(changes.clone()), Log::new(changes)];
        let to_logs = logs.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                take(&line, &to_logs);
            }
        });
        Self { child, stdin, logs }
    }

    /// Adds a second handler to each of its informers.
    pub(super) fn join(&mut self) {
        writeln!(self.stdin, "join").expect("client-go's process runs");
    }

    /// Returns the notifications of the first handlers, and of those that joined later.
    pub(super) fn logs(&self) -> &[Log; 2] {
        &self.logs
    }

    /// Suspends the process, or resumes it with its clock jumped.
    pub(super) fn freeze(&self, frozen: bool) {
        signal(&self.child, if frozen { "STOP" } else { "CONT" });
    }
}

impl Drop for ClientGo {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn take(text: &str, logs: &[Log; 2]) {
    let line: Line = serde_json::from_str(text).unwrap_or_else(|error| panic!("client-go notified {text}: {error}"));
    let Some(kind) = Kind::of(&line.resource) else { panic!("client-go notified of an unknown resource: {text}") };
    let log = &logs[usize::from(line.late)];
    let state = |uid: &str, version: &str| State { uid: Uid::new(uid), version: ResourceVersion::new(version) };
    let new = state(&line.uid, &line.version);
    let notified = match &*line.event {
        "synced" => return log.synced(kind),
        "request" if matches!(&*line.verb, "list" | "stream") => return log.listed(kind),
        "request" => return,
        "added" => Notified::Added { new, initial: line.initial },
        "updated" => Notified::Updated { old: state(&line.old_uid, &line.old_version), new },
        "deleted" => Notified::Deleted { last: new, tombstone: line.tombstone },
        _ => panic!("unknown event of client-go: {text}"),
    };
    log.record((kind, line.name), notified);
}

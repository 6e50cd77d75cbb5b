//! client-go's informers, in a process of their own (`tests/testbed/watch.go`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use informer_hub_types::{ResourceVersion, Uid};
use serde::Deserialize;

use super::account::{Count, Kind, Log, State, Told};
use super::schedule::Schedule;
use crate::bed::{binary, signal};

/// A running set of informers. Dropping it ends it.
pub(super) struct ClientGo {
    child: Child,
    // Held open: its end would be the process's.
    stdin: ChildStdin,
    logs: [Log; 2],
}

/// One line of the process.
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
    /// Starts the informers of one namespace, as the schedule wants them. Their own log goes to `trace`.
    pub(super) fn start(kubeconfig: &Path, namespace: &str, schedule: &Schedule, trace: &Path, facts: Count) -> Self {
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
        let logs = [Log::new(facts.clone()), Log::new(facts)];
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

    /// What its handlers were told: those of the start, and those that joined.
    pub(super) fn logs(&self) -> &[Log; 2] {
        &self.logs
    }

    /// Stops it where it stands, or lets it go on with a clock that has jumped.
    pub(super) fn freeze(&self, still: bool) {
        signal(&self.child, if still { "STOP" } else { "CONT" });
    }
}

impl Drop for ClientGo {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn take(text: &str, logs: &[Log; 2]) {
    let line: Line = serde_json::from_str(text).unwrap_or_else(|error| panic!("client-go told {text}: {error}"));
    let Some(kind) = Kind::of(&line.resource) else { panic!("client-go told of another resource: {text}") };
    let log = &logs[usize::from(line.late)];
    let state = |uid: &str, version: &str| State { uid: Uid::new(uid), version: ResourceVersion::new(version) };
    let new = state(&line.uid, &line.version);
    let told = match &*line.event {
        "synced" => return log.synced(kind),
        "request" if matches!(&*line.verb, "list" | "stream") => return log.listed(kind),
        "request" => return,
        "added" => Told::Added { new, initial: line.initial },
        "updated" => Told::Updated { old: state(&line.old_uid, &line.old_version), new },
        "deleted" => Told::Deleted { last: new, tombstone: line.tombstone },
        _ => panic!("client-go told what is not known: {text}"),
    };
    log.tell((kind, line.name), told);
}

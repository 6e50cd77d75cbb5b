//! client-go's informers, in a process of their own (`tests/testbed/watch.go`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use informer_hub::types::{ResourceVersion, Uid};
use parking_lot::Mutex;
use serde::Deserialize;

use super::account::{Count, Kind, Log, State, Told};
use crate::bed::{binary, signal};

/// A running set of informers. Dropping it ends it.
pub(super) struct ClientGo {
    child: Child,
    // Held open: its end would be the process's.
    _stdin: ChildStdin,
    log: Log,
    requests: Arc<Mutex<Requests>>,
}

/// Requests begun, by kind and verb, those of no answer included.
type Requests = BTreeMap<(Kind, String), u64>;

/// One line of the process.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Line {
    resource: String,
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
    /// Starts the informers of one namespace, with or without streaming lists. Their own log goes to `trace`.
    pub(super) fn start(kubeconfig: &Path, namespace: &str, streaming: bool, trace: &Path, facts: Count) -> Self {
        let mut child = Command::new(binary())
            .arg("watch")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--log")
            .arg(trace)
            .args(["--namespace", namespace, &format!("--streaming={streaming}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test bed's binary was built a moment ago");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (log, requests) = (Log::new(facts), Arc::<Mutex<Requests>>::default());
        let (to_log, to_requests) = (log.clone(), Arc::clone(&requests));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                take(&line, &to_log, &to_requests);
            }
        });
        Self { child, _stdin: stdin, log, requests }
    }

    /// What its handlers were told.
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Lists of a kind that it began, streaming or not.
    pub(super) fn lists(&self, kind: Kind) -> u64 {
        let requests = self.requests.lock();
        ["list", "stream"].iter().filter_map(|verb| requests.get(&(kind, (*verb).to_owned()))).sum()
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

fn take(text: &str, log: &Log, requests: &Mutex<Requests>) {
    let line: Line = serde_json::from_str(text).unwrap_or_else(|error| panic!("client-go told {text}: {error}"));
    let Some(kind) = Kind::of(&line.resource) else { panic!("client-go told of another resource: {text}") };
    let state = |uid: &str, version: &str| State { uid: Uid::new(uid), version: ResourceVersion::new(version) };
    let new = state(&line.uid, &line.version);
    let told = match &*line.event {
        "synced" => return log.synced(kind),
        "request" => return *requests.lock().entry((kind, line.verb)).or_default() += 1,
        "added" => Told::Added { new, initial: line.initial },
        "updated" => Told::Updated { old: state(&line.old_uid, &line.old_version), new },
        "deleted" => Told::Deleted { last: new, tombstone: line.tombstone },
        _ => panic!("client-go told what is not known: {text}"),
    };
    log.tell((kind, line.name), told);
}

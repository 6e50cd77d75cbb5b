//! A small but correct client against seeded faults: every script must let such a client converge.

use std::sync::{Arc, Mutex};

use super::super::{Churn, Truth, oracle::Oracle};
use super::*;
use crate::types::{ObjectKey, ResourceVersion, Uid};

/// Lists and watches pods for ever, relisting after anything odd.
struct Client {
    address: SocketAddr,
    store: Arc<Mutex<Truth>>,
}

impl Client {
    async fn run(self) {
        for round in 0_u64.. {
            let done = if round % 3 == 0 { self.stream().await } else { self.list_and_watch().await };
            if done.is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    async fn list_and_watch(&self) -> Result<(), Failure> {
        let (mut fresh, mut token) = (Truth::new(), String::new());
        let version = loop {
            let page = self.document(&format!("/api/v1/pods?limit=7&continue={token}")).await?;
            for item in page["items"].as_array().ok_or("no items")? {
                fresh.extend(entry(item));
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break page["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned(),
            }
        };
        *self.store.lock().unwrap() = fresh;
        let path = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut watch = self.open(&path).await?;
        while self.follow(&mut watch, None).await? {}
        Ok(())
    }

    async fn stream(&self) -> Result<(), Failure> {
        let path = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut watch = self.open(path).await?;
        let mut fresh = Some(Truth::new());
        while self.follow(&mut watch, fresh.as_mut()).await? {
            if let Some(truth) = fresh.take_if(|truth| truth.remove(&marker()).is_some()) {
                *self.store.lock().unwrap() = truth;
            }
        }
        Ok(())
    }

    async fn document(&self, path: &str) -> Result<Value, Failure> {
        let mut answer = self.open(path).await?;
        while tokio::time::timeout(Duration::from_secs(1), answer.more()).await?? {}
        Ok(serde_json::from_slice(&answer.buffer)?)
    }

    async fn open(&self, path: &str) -> Result<Answer, Failure> {
        let answer = tokio::time::timeout(Duration::from_secs(1), try_get(self.address, path, &[])).await??;
        if answer.status == 200 { Ok(answer) } else { Err(answer.status.to_string().into()) }
    }

    /// Applies one event, to `fresh` where a streaming list is under way. `false` at the end.
    async fn follow(&self, watch: &mut Answer, fresh: Option<&mut Truth>) -> Result<bool, Failure> {
        let patience = if fresh.is_some() { 1 } else { 10 };
        let line = tokio::time::timeout(Duration::from_secs(patience), watch.raw_line()).await??;
        let Some(line) = line else { return Ok(false) };
        let event: Value = serde_json::from_slice(&line)?;
        let object = entry(&event["object"]);
        let mut guard = None;
        let store = match fresh {
            Some(fresh) => fresh,
            None => guard.insert(self.store.lock().unwrap()),
        };
        match (event["type"].as_str(), object) {
            (Some("ADDED" | "MODIFIED"), Some((key, state))) => drop(store.insert(key, state)),
            (Some("DELETED"), Some((key, _))) => drop(store.remove(&key)),
            (Some("BOOKMARK"), _) => {
                if event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" {
                    store.insert(marker(), (Uid::new(""), ResourceVersion::new("")));
                }
            }
            (Some("ERROR"), _) => return Err("error event".into()),
            _ => {}
        }
        Ok(true)
    }
}

/// Stands in a store for "the initial events are complete".
fn marker() -> ObjectKey {
    ObjectKey::new("", "\u{0}marker")
}

fn entry(object: &Value) -> Option<(ObjectKey, (Uid, ResourceVersion))> {
    let metadata = &object["metadata"];
    let key = ObjectKey::new(metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str()?);
    let state = (Uid::new(metadata["uid"].as_str()?), ResourceVersion::new(metadata["resourceVersion"].as_str()?));
    Some((key, state))
}

async fn converges(seed: u64) {
    let cluster = start(SimConfig { bookmark_every: Duration::from_millis(20), ..SimConfig::default() });
    cluster.set_faults(FaultScript::seeded(seed, 0.7));
    let store = Arc::new(Mutex::new(Truth::new()));
    let client = tokio::spawn(Client { address: cluster.address(), store: Arc::clone(&store) }.run());
    let mut churn = Churn::new(seed);
    let script = async {
        while !cluster.faults_over() {
            cluster.with_world(|world| churn.step(world));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), script).await.is_err() {
        cluster.heal();
    }
    let pods = World::pods();
    let same = || Oracle::diff(&cluster.truth(&pods), &store.lock().unwrap());
    for _ in 0..20_000 {
        if same().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let log: Vec<_> = cluster.fault_log().iter().map(ToString::to_string).collect();
    assert!(same().is_empty(), "seed {seed}: {:#?}\nfaults: {log:#?}", same());
    assert!(!log.is_empty());
    client.abort();
}

#[tokio::test]
async fn a_correct_client_converges_after_every_seeded_script() {
    futures::future::join_all((0..8).map(converges)).await;
}

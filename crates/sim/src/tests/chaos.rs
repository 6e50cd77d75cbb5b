//! Tests that a small, correct client converges under every seeded fault script.

use std::sync::{Arc, Mutex};

use super::super::{Churn, GroundTruth, oracle::Oracle};
use super::*;
use informer_hub_types::{ObjectKey, ResourceVersion, Uid};

const STREAM: &str =
    "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Minimal client that lists and watches pods. It resumes a watch that ends or breaks. It lists again after an invalid
/// event and after an answer that is not a watch.
struct Client {
    address: SocketAddr,
    store: Arc<Mutex<GroundTruth>>,
    resumed: Arc<Mutex<usize>>,
}

/// Action after the end of a watch.
enum End {
    Resume,
    Relist,
}

impl Client {
    async fn run(self) {
        for round in 0_u64.. {
            let version = if round % 3 == 0 { self.stream().await } else { self.list().await };
            if let Ok(version) = version {
                self.watch(version).await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn list(&self) -> Result<u64, Failure> {
        let (mut fresh, mut token) = (GroundTruth::new(), String::new());
        loop {
            let page = self.document(&format!("/api/v1/pods?limit=7&continue={token}")).await?;
            fresh.extend(page["items"].as_array().ok_or("no items")?.iter().filter_map(entry));
            if let Some(next) = page["metadata"]["continue"].as_str() {
                token = next.to_owned();
                continue;
            }
            *self.store.lock().unwrap() = fresh;
            return Ok(page["metadata"]["resourceVersion"].as_str().ok_or("no version")?.parse()?);
        }
    }

    /// Reads a streaming list up to its marker.
    async fn stream(&self) -> Result<u64, Failure> {
        let mut watch = self.open(STREAM).await?;
        let mut fresh = GroundTruth::new();
        loop {
            let line = tokio::time::timeout(Duration::from_secs(1), watch.raw_line()).await??.ok_or("no marker")?;
            let event: Value = serde_json::from_slice(&line)?;
            if event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" {
                *self.store.lock().unwrap() = fresh;
                return Ok(summary(&event).2);
            }
            apply(&event, &mut fresh)?;
        }
    }

    async fn watch(&self, mut version: u64) {
        loop {
            let path = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
            let Ok(mut watch) = self.open(&path).await else { return };
            match self.follow(&mut watch, &mut version).await {
                End::Resume => *self.resumed.lock().unwrap() += 1,
                End::Relist => return,
            }
        }
    }

    async fn follow(&self, watch: &mut Answer, version: &mut u64) -> End {
        loop {
            let line = tokio::time::timeout(Duration::from_secs(5), watch.raw_line()).await;
            let Ok(Ok(Some(line))) = line else { return End::Resume };
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { return End::Relist };
            if apply(&event, &mut self.store.lock().unwrap()).is_err() {
                return End::Relist;
            }
            let seen = summary(&event).2;
            assert!(seen >= *version, "the watch went back from {version} to {seen}");
            *version = seen;
        }
    }

    async fn document(&self, path: &str) -> Result<Value, Failure> {
        let mut answer = self.open(path).await?;
        while tokio::time::timeout(Duration::from_secs(1), answer.more()).await?? {}
        Ok(serde_json::from_slice(&answer.buffer)?)
    }

    async fn open(&self, path: &str) -> Result<Answer, Failure> {
        let answer = tokio::time::timeout(Duration::from_secs(1), try_get(self.address, path, &[])).await??;
        let json = answer.headers.get("content-type").is_some_and(|value| value == "application/json");
        if answer.status == 200 && json { Ok(answer) } else { Err(answer.status.to_string().into()) }
    }
}

fn apply(event: &Value, store: &mut GroundTruth) -> Result<(), Failure> {
    match (event["type"].as_str(), entry(&event["object"])) {
        (Some("ADDED" | "MODIFIED"), Some((key, state))) => drop(store.insert(key, state)),
        (Some("DELETED"), Some((key, _))) => drop(store.remove(&key)),
        (Some("ERROR"), _) => return Err("error event".into()),
        _ => {}
    }
    Ok(())
}

fn entry(object: &Value) -> Option<(ObjectKey, (Uid, ResourceVersion))> {
    let metadata = &object["metadata"];
    let key = ObjectKey::new(metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str()?);
    let state = (Uid::new(metadata["uid"].as_str()?), ResourceVersion::new(metadata["resourceVersion"].as_str()?));
    Some((key, state))
}

/// Runs one seed. Returns the number of faults and of resumed watches.
async fn converges(seed: u64) -> (usize, usize) {
    let (bookmark_every, watch_timeout) = (Duration::from_millis(20), Duration::from_millis(100));
    let cluster = start(SimConfig { bookmark_every, watch_timeout, ..SimConfig::default() });
    cluster.set_faults(FaultScript::seeded(seed, 0.7));
    let (store, resumed) = (Arc::default(), Arc::default());
    let client = Client { address: cluster.address(), store: Arc::clone(&store), resumed: Arc::clone(&resumed) };
    let client = tokio::spawn(client.run());
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
    assert!(!client.is_finished(), "seed {seed}: the client ended\nfaults: {log:#?}");
    client.abort();
    let resumed = *resumed.lock().unwrap();
    (log.len(), resumed)
}

#[tokio::test]
async fn correct_client_converges_after_every_seeded_script() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(8);
    for first in (0..seeds).step_by(8) {
        let runs = futures::future::join_all((first..seeds.min(first + 8)).map(converges)).await;
        assert!(runs.iter().all(|(faults, _)| *faults > 5), "{runs:?}");
        assert!(runs.iter().any(|(_, resumed)| *resumed > 0), "{runs:?}");
    }
}

//! Hub processes that deliver from the log of a fleet, through a real `nats-server`: the one that delivers is killed or
//! suspended while two clusters change.

use std::time::Duration;

use informer_hub_fleet::Subjects;
use informer_hub_fleet::jetstream::Leases;
use informer_hub_lease::{Answer, Request};
use informer_hub_types::clock;
use serde_json::Value;

use crate::bed::{RealCluster, becomes_true, seed};
use crate::fixture::WAIT_DEADLINE;
use crate::fleet::{FLEET, config};
use crate::kill::{Changing, FlakyReceiver, TAKEOVER};
use crate::nats_server::Server;
use crate::workdir::{Running, Workdir};

/// Process of the fleet, and its folder.
struct Process {
    name: String,
    workdir: Workdir,
    hub: Running,
}

impl Process {
    fn collector(nats: &Server, clusters: &[RealCluster]) -> Self {
        Self::start("collector", |workdir| configured(workdir, nats, clusters))
    }

    /// Starts a process that delivers, and names itself in a header.
    fn deliverer(name: &str, nats: &Server, clusters: &[RealCluster], url: &str) -> Self {
        Self::start(name, |workdir| delivering(&configured(workdir, nats, clusters), name, url))
    }

    fn start(name: &str, config: impl FnOnce(&Workdir) -> String) -> Self {
        let workdir = Workdir::new();
        workdir.write("hub.toml", &config(&workdir));
        let hub = workdir.hub();
        Self { name: name.to_owned(), workdir, hub }
    }

    async fn role(&self) -> String {
        let (_, status) = self.workdir.get("/v1/status").await;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["ha"]["role"].as_str().unwrap_or_default().to_owned()
    }

    async fn has_role(&self, wanted: &str) {
        let has = becomes_true(WAIT_DEADLINE, async || self.role().await == wanted).await;
        assert!(has, "{} is no {wanted}: {}", self.name, self.role().await);
    }
}

/// Turns a collector's configuration into that of a process that delivers, and names itself in a header.
pub(crate) fn delivering(collector: &str, name: &str, url: &str) -> String {
    collector.replace("\"collect\"", "\"serve\", \"deliver\"")
        + &format!(
            "[sinks.flaky]\ntype = \"webhook\"\nurl = \"{url}\"\ninitial = \"replay\"\n\
             batch = {{ max_wait = \"20ms\" }}\nretry = {{ first = \"20ms\", max = \"1s\" }}\n\
             headers = {{ x-replica = \"{name}\" }}\n"
        )
}

/// Returns the version up to which the leader has delivered a resource, as it has published.
pub(crate) async fn published(leases: &Leases, cluster: &str, resource: &str) -> Option<u64> {
    let Ok(Answer::Found { record, .. }) = leases.execute("sinks", &Request::Get).await else { return None };
    let note: Value = serde_json::from_str(&record.note).ok()?;
    note["sinks"]["flaky"][cluster][resource].as_u64()
}

fn configured(workdir: &Workdir, nats: &Server, clusters: &[RealCluster]) -> String {
    config(workdir.listen(), &nats.url(), clusters) + "[resources.\"widgets.bed.example.com\"]\n"
}

/// Waits until the leader has published progress of each cluster and resource.
async fn progress_is_published(nats: &Server, clusters: &[RealCluster]) {
    let subjects = Subjects::new(FLEET).unwrap();
    let leases = Leases::open(nats.connect().await, &subjects, 1, Duration::from_secs(5)).await.unwrap();
    for cluster in clusters {
        for resource in ["pods.", "widgets.bed.example.com"] {
            let is_published = async || published(&leases, cluster.name(), resource).await.is_some();
            assert!(becomes_true(WAIT_DEADLINE, is_published).await, "no progress of {resource} is published");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliverers_succeed_killed_and_suspended_ones_without_losing_a_change() {
    let seed = seed();
    let (nats, (receiver, url)) = tokio::join!(Server::start(&["--jetstream"]), FlakyReceiver::start());
    let mut changing = Changing::start(seed, receiver.clone()).await;
    let start = |name: &str, changing: &Changing| Process::deliverer(name, &nats, &changing.clusters, &url);
    let _collector = Process::collector(&nats, &changing.clusters);
    let mut leader = start("d0", &changing);
    leader.has_role("leader").await;
    leader.workdir.shows(&["status"], |text| text.contains("replica    leader")).await;
    progress_is_published(&nats, &changing.clusters).await;
    let (mut deleted, mut takeovers, mut suspended) = (Vec::new(), Vec::new(), Vec::new());
    for (number, suspends) in [(1, false), (2, true), (3, false)] {
        deleted.extend(changing.churn(40).await);
        changing.is_delivered().await;
        deleted.extend(changing.churn(20).await);
        // It begins at what the leader has published, so the leader may fail at once.
        let standby = start(&format!("d{number}"), &changing);
        standby.workdir.ready(&standby.hub).await;
        standby.has_role("standby").await;
        deleted.extend(changing.churn(20).await);
        let failed = clock::now();
        if suspends {
            leader.hub.freeze(true);
            suspended.push(std::mem::replace(&mut leader, standby));
        } else {
            drop(std::mem::replace(&mut leader, standby));
        }
        deleted.extend(changing.churn(10).await);
        let delivers = || receiver.arrivals(&leader.name, failed).first().copied();
        assert!(becomes_true(WAIT_DEADLINE, async || delivers().is_some()).await, "no takeover: seed {seed}");
        takeovers.push(delivers().unwrap().duration_since(failed));
        changing.is_delivered().await;
        if let Some(former) = suspended.pop() {
            former.hub.freeze(false);
            let continued = clock::now();
            while continued.elapsed() < Duration::from_secs(5) {
                deleted.extend(changing.churn(5).await);
            }
            changing.is_delivered().await;
            // A request that was being written may still arrive.
            let late = receiver.arrivals(&former.name, continued + Duration::from_secs(1));
            assert_eq!(late.len(), 0, "the former leader still delivers: seed {seed}");
            former.has_role("standby").await;
        }
    }
    // Without any deliverer, and from the cursor.
    drop(leader);
    deleted.extend(changing.churn(20).await);
    let last = start("last", &changing);
    changing.is_delivered().await;
    last.has_role("leader").await;
    assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let (all, known) = (deleted.len(), receiver.verify_deletions(&deleted));
    println!("takeovers {takeovers:?}; {all} deletions, {known} of objects known to the receiver");
    assert!(takeovers.iter().all(|takeover| *takeover < TAKEOVER), "{takeovers:?}: seed {seed}");
    assert!(known > 0, "no deleted object was known to the receiver: seed {seed}");
}

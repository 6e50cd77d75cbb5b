//! Hub processes that deliver from the log of a fleet, through a real `nats-server`: the one that delivers is killed or
//! suspended while two clusters change; three share four sinks.

use std::collections::BTreeSet;
use std::time::Duration;

use informer_hub_fleet::Subjects;
use informer_hub_fleet::jetstream::Leases;
use informer_hub_lease::{Answer, Request};
use informer_hub_types::{Uid, clock};
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
    fn deliverer(name: &str, nats: &Server, clusters: &[RealCluster], sinks: &[(&str, &str)]) -> Self {
        Self::start(name, |workdir| delivering(&configured(workdir, nats, clusters), name, sinks))
    }

    fn start(name: &str, config: impl FnOnce(&Workdir) -> String) -> Self {
        let workdir = Workdir::new();
        workdir.write("hub.toml", &config(&workdir));
        let hub = workdir.hub();
        Self { name: name.to_owned(), workdir, hub }
    }

    async fn status(&self) -> Value {
        let (_, status) = self.workdir.get("/v1/status").await;
        serde_json::from_str(&status).unwrap_or_default()
    }

    async fn role(&self) -> String {
        self.status().await["ha"]["role"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the sinks that this process delivers.
    async fn sinks(&self) -> BTreeSet<String> {
        let status = self.status().await;
        let sinks = status["ha"]["sinks"].as_array().into_iter().flatten();
        sinks.filter_map(|sink| sink.as_str().map(str::to_owned)).collect()
    }

    async fn has_role(&self, wanted: &str) {
        let has = becomes_true(WAIT_DEADLINE, async || self.role().await == wanted).await;
        assert!(has, "{} is no {wanted}: {}", self.name, self.role().await);
    }
}

/// Turns a collector's configuration into that of a process that delivers to sinks, given with their URLs, and names
/// itself in a header.
pub(crate) fn delivering(collector: &str, name: &str, sinks: &[(&str, &str)]) -> String {
    let tables = sinks.iter().map(|(sink, url)| {
        format!(
            "[sinks.{sink}]\ntype = \"webhook\"\nurl = \"{url}\"\ninitial = \"replay\"\n\
             batch = {{ max_wait = \"20ms\" }}\nretry = {{ first = \"20ms\", max = \"1s\" }}\n\
             headers = {{ x-replica = \"{name}\" }}\n"
        )
    });
    collector.replace("\"collect\"", "\"serve\", \"deliver\"") + &tables.collect::<String>()
}

/// Returns the version up to which a sink has delivered a resource, as its deliverer has published.
pub(crate) async fn published(leases: &Leases, sink: &str, cluster: &str, resource: &str) -> Option<u64> {
    let lease = leases.execute(&format!("sink.{sink}"), &Request::Get).await;
    let Ok(Answer::Found { record, .. }) = lease else { return None };
    let note: Value = serde_json::from_str(&record.note).ok()?;
    note["sinks"][sink][cluster][resource].as_u64()
}

fn configured(workdir: &Workdir, nats: &Server, clusters: &[RealCluster]) -> String {
    config(workdir.listen(), &nats.url(), clusters) + "[resources.\"widgets.bed.example.com\"]\n"
}

/// Waits until progress of a sink is published for each cluster and resource.
async fn progress_is_published(nats: &Server, sink: &str, clusters: &[RealCluster]) {
    let subjects = Subjects::new(FLEET).unwrap();
    let leases = Leases::open(nats.connect().await, &subjects, 1, Duration::from_secs(5)).await.unwrap();
    for cluster in clusters {
        for resource in ["pods.", "widgets.bed.example.com"] {
            let is_published = async || published(&leases, sink, cluster.name(), resource).await.is_some();
            assert!(becomes_true(WAIT_DEADLINE, is_published).await, "{sink}: no progress of {resource} is published");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliverers_succeed_killed_and_suspended_ones_without_losing_a_change() {
    let seed = seed();
    let (nats, (receiver, url)) = tokio::join!(Server::start(&["--jetstream"]), FlakyReceiver::start());
    let mut changing = Changing::start(seed, receiver.clone()).await;
    let start =
        |name: &str, changing: &Changing| Process::deliverer(name, &nats, &changing.clusters, &[("flaky", &url)]);
    let _collector = Process::collector(&nats, &changing.clusters);
    let mut leader = start("d0", &changing);
    leader.has_role("leader").await;
    leader.workdir.shows(&["status"], |text| text.contains("replica    leader")).await;
    progress_is_published(&nats, "flaky", &changing.clusters).await;
    let (mut deleted, mut takeovers, mut suspended) = (Vec::new(), Vec::new(), Vec::new());
    for (number, suspends) in [(1, false), (2, true), (3, false)] {
        deleted.extend(changing.churn(40).await);
        changing.is_delivered().await;
        deleted.extend(changing.churn(20).await);
        // The standby starts at the progress that the leader has published, so the leader may fail at once.
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
            // A request that the former leader had begun to write may still arrive.
            let late = receiver.arrivals(&former.name, continued + Duration::from_secs(1));
            assert_eq!(late.len(), 0, "the former leader still delivers: seed {seed}");
            former.has_role("standby").await;
        }
    }
    // Changes objects while there is no deliverer. The last one starts at the cursor.
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

const SINKS: [&str; 4] = ["s0", "s1", "s2", "s3"];

/// Deliverers that share sinks, each of which has a receiver.
struct Sharing {
    processes: Vec<Process>,
    receivers: Vec<(FlakyReceiver, String)>,
}

impl Sharing {
    fn start_process(&mut self, name: &str, nats: &Server, clusters: &[RealCluster]) {
        let sinks: Vec<_> = SINKS.into_iter().zip(self.receivers.iter().map(|(_, url)| &**url)).collect();
        self.processes.push(Process::deliverer(name, nats, clusters, &sinks));
    }

    async fn held(&self) -> Vec<BTreeSet<String>> {
        let mut held = Vec::new();
        for one in &self.processes {
            held.push(one.sinks().await);
        }
        held
    }

    /// Waits until each sink is delivered by one process, and the processes have as many as expected.
    async fn share(&self, expected: &[usize]) {
        let is_shared = async || {
            let held = self.held().await;
            let mut counts: Vec<_> = held.iter().map(BTreeSet::len).collect();
            counts.sort_unstable();
            counts == expected && held.iter().flatten().collect::<BTreeSet<_>>().len() == SINKS.len()
        };
        assert!(becomes_true(WAIT_DEADLINE, is_shared).await, "{expected:?} expected: {:?}", self.held().await);
    }

    /// Verifies that `fleet status` shows the deliverer of each sink.
    async fn fleet_status_shows_each_deliverer(&self) {
        let mut identities = Vec::new();
        for one in &self.processes {
            identities.push(one.status().await["ha"]["identity"].as_str().unwrap().to_owned());
        }
        let held = self.held().await;
        let shown = self.processes[0].workdir.json(&["fleet", "status", "-c", "hub.toml"]);
        let list = |key: &str| shown[key].as_array().unwrap().iter();
        for (identity, held) in identities.iter().zip(&held) {
            let is_shown = |one: &Value| {
                one["name"] == **identity
                    && one["sinks"] == held.len()
                    && one["contendsFor"] == SINKS.len()
                    && one["live"] == true
            };
            assert!(list("deliverers").any(is_shown), "{identity}, {held:?}: {shown}");
        }
        assert_eq!(list("sinks").map(|sink| sink["name"].as_str().unwrap()).collect::<Vec<_>>(), SINKS, "{shown}");
        for sink in list("sinks") {
            let holder = held.iter().position(|held| held.contains(sink["name"].as_str().unwrap())).unwrap();
            assert!(sink["deliverer"] == *identities[holder] && sink["live"] == true, "{identities:?}: {sink}");
        }
    }

    async fn is_delivered(&self, changing: &Changing) {
        for (receiver, _) in &self.receivers {
            changing.is_delivered_to(receiver).await;
        }
    }

    /// Changes the clusters, and verifies that each receiver gets the changes from the process that shows the sink.
    async fn each_sink_has_one_sender(&self, changing: &mut Changing, deleted: &mut Vec<Uid>) {
        let (held, since) = (self.held().await, clock::now());
        deleted.extend(changing.churn(20).await);
        self.is_delivered(changing).await;
        assert_eq!(self.held().await, held, "nothing moves meanwhile");
        for (sink, (receiver, _)) in SINKS.iter().zip(&self.receivers) {
            let holder = self.processes.iter().zip(&held).find(|(_, held)| held.contains(*sink));
            let holder = holder.map(|(one, _)| one.name.clone()).unwrap();
            assert_eq!(receiver.senders(since), BTreeSet::from([holder]), "{sink}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_deliverers_share_four_sinks_and_take_over_those_of_a_killed_one() {
    let seed = seed();
    let nats = Server::start(&["--jetstream"]).await;
    let mut receivers = Vec::new();
    for _ in SINKS {
        receivers.push(FlakyReceiver::start().await);
    }
    let mut changing = Changing::start(seed, receivers[0].0.clone()).await;
    let _collector = Process::collector(&nats, &changing.clusters);
    let (mut deleted, mut sharing) = (Vec::new(), Sharing { processes: Vec::new(), receivers });
    for name in ["d0", "d1", "d2"] {
        sharing.start_process(name, &nats, &changing.clusters);
    }
    sharing.share(&[1, 1, 2]).await;
    deleted.extend(changing.churn(40).await);
    sharing.is_delivered(&changing).await;
    for sink in SINKS {
        progress_is_published(&nats, sink, &changing.clusters).await;
    }
    sharing.each_sink_has_one_sender(&mut changing, &mut deleted).await;
    sharing.fleet_status_shows_each_deliverer().await;
    let held = sharing.held().await;
    let most = held.iter().position(|held| held.len() == 2).unwrap();
    let [one, other] = [held[most].first().unwrap(), held[most].last().unwrap()];
    let shown = format!("replica    leader of {one}, {other}");
    sharing.processes[most].workdir.shows(&["status"], |text| text.contains(&shown)).await;
    let standby = format!("informer_hub_sink_standby{{sink=\"{one}\"}}");
    for (number, process) in sharing.processes.iter().enumerate() {
        let expected = if number == most { 0.0 } else { 1.0 };
        assert_eq!(process.workdir.metric(&standby).await, Some(expected), "{standby} of {}", process.name);
    }

    deleted.extend(changing.churn(20).await);
    let (killed, lost) = (clock::now(), held[most].clone());
    let name = sharing.processes.remove(most).name;
    deleted.extend(changing.churn(20).await);
    let first_arrivals = || {
        let of_lost = SINKS.iter().zip(&sharing.receivers).filter(|(sink, _)| lost.contains(**sink));
        let arrivals = of_lost.map(|(_, (receiver, _))| {
            sharing.processes.iter().filter_map(|one| receiver.arrivals(&one.name, killed).first().copied()).min()
        });
        arrivals.collect::<Option<Vec<_>>>()
    };
    assert!(becomes_true(WAIT_DEADLINE, async || first_arrivals().is_some()).await, "no takeover: seed {seed}");
    let takeovers: Vec<_> = first_arrivals().unwrap().into_iter().map(|at| at.duration_since(killed)).collect();
    sharing.share(&[2, 2]).await;
    sharing.fleet_status_shows_each_deliverer().await;
    sharing.is_delivered(&changing).await;
    sharing.each_sink_has_one_sender(&mut changing, &mut deleted).await;

    sharing.start_process(&name, &nats, &changing.clusters);
    deleted.extend(changing.churn(20).await);
    sharing.share(&[1, 1, 2]).await;
    sharing.is_delivered(&changing).await;
    sharing.each_sink_has_one_sender(&mut changing, &mut deleted).await;
    for (sink, (receiver, _)) in SINKS.iter().zip(&sharing.receivers) {
        assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "{sink}: seed {seed}");
        let known = receiver.verify_deletions(&deleted);
        println!("{sink}: {} deletions, {known} of objects known to the receiver", deleted.len());
        assert!(known > 0, "{sink}: no deleted object was known to the receiver: seed {seed}");
    }
    println!("takeovers {takeovers:?}");
    assert!(takeovers.iter().all(|takeover| *takeover < TAKEOVER), "{takeovers:?}: seed {seed}");
}

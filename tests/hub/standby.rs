//! Tests of active/standby hubs: two hubs over the same simulated clusters, of which one delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use informer_hub::app::{Hub, Role};
use informer_hub::cache::Query;
use informer_hub_config::{Config, HaConfig, LeaseConfig};
use informer_hub_sim::{Churn, SimCluster, World};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::fleet::{
    PATIENCE, cluster_config, config, eventually, file_events, file_sink, pods, quick, small, with_sinks,
};

/// One watched cluster, one cluster with the Lease, and a folder with the files that the sinks write.
struct Pair {
    clusters: BTreeMap<String, SimCluster>,
    lease: SimCluster,
    dir: tempfile::TempDir,
}

impl Pair {
    fn new(pods: usize) -> Self {
        let start = |seed, pods| SimCluster::start(small(seed, pods), &Handle::current()).unwrap();
        let clusters = BTreeMap::from([("c0".to_owned(), start(3, pods))]);
        Self { clusters, lease: start(4, 0), dir: tempfile::tempdir().unwrap() }
    }

    fn config(&self, name: &str, lease_url: &str, durable: bool) -> Config {
        let mut config = config(&self.clusters, &["pods"]);
        for resource in &mut config.resources {
            resource.clusters = informer_hub_types::ClusterSelector::Names(vec!["c0".parse().unwrap()]);
        }
        config.clusters.push(cluster_config("mgmt", lease_url));
        let mut lease = LeaseConfig::new("hub");
        lease.cluster = Some("mgmt".parse().unwrap());
        let mut ha = HaConfig::new(lease);
        ha.identity = Some(name.to_owned());
        ha.lease_duration = Duration::from_secs(4);
        ha.renew_deadline = Duration::from_secs(3);
        ha.retry_period = Duration::from_millis(400);
        config.ha = Some(ha);
        if durable {
            config.hub.state_dir = Some(self.dir.path().join(format!("state-{name}")));
            config.hub.checkpoint = Duration::from_millis(100);
        }
        with_sinks(config, vec![file_sink("file", &self.file(name))])
    }

    async fn start(&self, name: &str, durable: bool) -> Hub {
        Hub::start_with(self.config(name, &self.lease.url(), durable), quick()).await.unwrap()
    }

    /// Starts `a`, which becomes leader, and then the standby `b`.
    async fn start_both(&self, durable: bool) -> (Hub, Hub) {
        let leader = self.start("a", durable).await;
        has_role(&leader, Role::Leader).await;
        let standby = self.start("b", durable).await;
        has_role(&standby, Role::Standby).await;
        (leader, standby)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.jsonl"))
    }

    fn events(&self, name: &str) -> Vec<Value> {
        file_events(&self.file(name))
    }

    /// Waits until the receivers know of every pod and every deletion.
    async fn receivers_converge(&self, created: &BTreeSet<String>) {
        receivers_converge(&self.clusters["c0"], created, || [self.events("a"), self.events("b")].concat()).await;
    }

    /// Waits until the hubs have read all pods. A pod that is deleted before a hub reads it is unknown to that hub.
    async fn is_read_by(&self, hubs: &[&Hub]) {
        for hub in hubs {
            eventually("a hub reads", async || pods_in(hub).await == self.uids().len()).await;
        }
    }

    /// Returns the ids of all pods that exist now.
    fn uids(&self) -> BTreeSet<String> {
        uids(&self.clusters["c0"])
    }

    /// Changes pods at random, and returns the ids of all that existed.
    fn churn(&self, churn: &mut Churn, steps: usize) -> BTreeSet<String> {
        change(&self.clusters["c0"], churn, steps)
    }
}

/// Returns the ids of all pods that exist now.
pub(crate) fn uids(cluster: &SimCluster) -> BTreeSet<String> {
    cluster.truth(&pods().gvr).values().map(|(uid, _)| uid.to_string()).collect()
}

/// Changes pods at random, and returns the ids of all that existed.
pub(crate) fn change(cluster: &SimCluster, churn: &mut Churn, steps: usize) -> BTreeSet<String> {
    let mut seen = uids(cluster);
    for _ in 0..steps {
        cluster.with_world(|world| churn.step(world));
        seen.extend(uids(cluster));
    }
    seen
}

/// Returns the id of the pod of an event; `None` if it is about no pod.
pub(crate) fn uid_of(event: &Value) -> Option<String> {
    event["data"]["resourceVersion"].as_str()?;
    let uid = event["data"]["uid"].as_str().or(event["data"]["object"]["metadata"]["uid"].as_str());
    Some(uid.unwrap_or_else(|| panic!("no uid in {event}")).to_owned())
}

pub(crate) fn is_deletion(event: &Value) -> bool {
    event["type"].as_str().unwrap().contains(".deleted.")
}

/// Returns the last version of each pod according to the events; `None` once the pod is deleted.
fn delivered(events: &[Value]) -> BTreeMap<String, Option<u64>> {
    let mut objects = BTreeMap::new();
    for event in events {
        let Some(uid) = uid_of(event) else { continue };
        let version: u64 = event["data"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let last = objects.entry(uid).or_insert(Some(0));
        *last = match *last {
            _ if is_deletion(event) => None,
            Some(known) => Some(known.max(version)),
            None => None,
        };
    }
    objects
}

/// Waits until the receivers know of every pod and every deletion.
pub(crate) async fn receivers_converge(
    cluster: &SimCluster,
    created: &BTreeSet<String>,
    events: impl Fn() -> Vec<Value>,
) {
    let truth = cluster.truth(&pods().gvr);
    let expected: BTreeMap<_, _> =
        truth.values().map(|(uid, version)| (uid.to_string(), version.as_number())).collect();
    // A pod that was deleted right after its creation may be in no event.
    let differences = || {
        let delivered = delivered(&events());
        let is_gone = |uid: &&String| !expected.contains_key(*uid);
        let late = expected.iter().filter(|(uid, version)| delivered.get(*uid) != Some(*version));
        let left = created.iter().filter(is_gone).filter(|uid| delivered.get(*uid).is_some_and(Option::is_some));
        late.map(|(uid, version)| format!("{uid} at {version:?}")).chain(left.cloned()).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while !differences().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the receivers together lack {:?}", differences());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn role(hub: &Hub) -> Role {
    hub.report().await.unwrap().ha.unwrap().role
}

pub(crate) async fn has_role(hub: &Hub, wanted: Role) {
    eventually("a hub has its role", async || role(hub).await == wanted).await;
}

async fn pods_in(hub: &Hub) -> usize {
    hub.cache_of(pods()).send(Query::list().across_clusters()).await.unwrap().unwrap().items.len()
}

/// Returns how many events the sink has dropped in standby, and how many it holds.
async fn held(hub: &Hub) -> [u64; 2] {
    let report = hub.report().await.unwrap();
    let status = &report.sinks[0].status;
    [status.delivered_elsewhere, status.pending_events]
}

/// Forwards connections until it is cut.
struct Proxy {
    url: String,
    cut: CancellationToken,
}

impl Proxy {
    async fn start(to: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cut = CancellationToken::new();
        let serving = cut.clone();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let cut = serving.clone();
                tokio::spawn(cut.run_until_cancelled_owned(async move {
                    let mut server = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }));
            }
        });
        Self { url, cut }
    }
}

#[tokio::test]
async fn standby_reads_and_delivers_only_what_a_killed_leader_had_not() {
    for durable in [false, true] {
        let pair = Pair::new(40);
        let mut churn = Churn::new(5);
        let (leader, standby) = pair.start_both(durable).await;
        pair.is_read_by(&[&leader, &standby]).await;
        let mut created = pair.churn(&mut churn, 200);
        pair.receivers_converge(&created).await;
        pair.is_read_by(&[&standby]).await;
        let begun = Instant::now();
        loop {
            // The standby keeps the last deletions until it knows that a later version was delivered.
            let [elsewhere, pending] = held(&standby).await;
            if elsewhere > 0 && pending < elsewhere {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{elsewhere} events dropped, {pending} held");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(pair.events("b").is_empty(), "and delivers nothing");
        created.extend(pair.churn(&mut churn, 50));
        drop(leader);
        created.extend(pair.churn(&mut churn, 50));
        has_role(&standby, Role::Leader).await;
        pair.receivers_converge(&created).await;
        let (all, late) = (pair.events("a").len(), pair.events("b").len());
        assert!(late > 0 && late < all + 200, "{late} events from the successor, {all} from the first leader");
        standby.shutdown(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn orderly_shutdown_hands_the_lease_over_before_it_expires() {
    let pair = Pair::new(20);
    let (leader, standby) = pair.start_both(false).await;
    pair.is_read_by(&[&leader, &standby]).await;
    let created = pair.churn(&mut Churn::new(6), 100);
    let report = leader.shutdown(Duration::from_secs(10)).await;
    assert_eq!((report.undelivered, report.actors_left), (Vec::new(), 0));
    let holder = pair.lease.lease("hub", "informer-hub").unwrap()["spec"]["holderIdentity"].clone();
    assert!(!holder.as_str().unwrap().starts_with("a_"), "{holder} has released it");
    has_role(&standby, Role::Leader).await;
    pair.receivers_converge(&created).await;
    let report = standby.shutdown(Duration::from_secs(10)).await;
    assert_eq!(report.undelivered, Vec::new());
    assert_eq!(pair.lease.lease("hub", "informer-hub").unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test]
async fn standby_ends_at_once_with_events_that_the_leader_delivers() {
    let pair = Pair::new(20);
    let (leader, standby) = pair.start_both(false).await;
    pair.clusters["c0"].with_world(World::create_pod);
    let began = Instant::now();
    let report = standby.shutdown(Duration::from_secs(30)).await;
    assert_eq!(report.undelivered, Vec::new(), "they are not lost");
    assert!(began.elapsed() < Duration::from_secs(20));
    pair.receivers_converge(&pair.uids()).await;
    assert_eq!(role(&leader).await, Role::Leader);
}

#[tokio::test]
async fn leader_cut_off_from_the_lease_stops_before_another_one_delivers() {
    let pair = Pair::new(20);
    let proxy = Proxy::start(pair.lease.address()).await;
    let leader = Hub::start_with(pair.config("a", &proxy.url, false), quick()).await.unwrap();
    has_role(&leader, Role::Leader).await;
    let standby = pair.start("b", false).await;
    has_role(&standby, Role::Standby).await;
    pair.is_read_by(&[&leader, &standby]).await;
    let mut churn = Churn::new(7);
    let mut created = pair.churn(&mut churn, 50);
    pair.receivers_converge(&created).await;
    proxy.cut.cancel();
    created.extend(pair.churn(&mut churn, 50));
    has_role(&standby, Role::Leader).await;
    let before = pair.events("a").len();
    created.extend(pair.churn(&mut churn, 50));
    pair.receivers_converge(&created).await;
    assert_eq!(pair.events("a").len(), before, "the former leader has stopped");
    assert_ne!(role(&leader).await, Role::Leader);
    let error = leader.report().await.unwrap().ha.unwrap().error;
    assert!(error.is_some());
    assert_eq!(pods_in(&leader).await, pair.uids().len(), "it still reads");
}

#[tokio::test]
async fn nothing_is_delivered_while_the_apiserver_of_the_lease_is_away_and_nothing_is_lost() {
    let pair = Pair::new(20);
    let hubs = [pair.start("a", false).await, pair.start("b", true).await];
    let roles = async || [role(&hubs[0]).await, role(&hubs[1]).await];
    eventually("one leads", async || roles().await.contains(&Role::Leader)).await;
    pair.is_read_by(&[&hubs[0], &hubs[1]]).await;
    let mut churn = Churn::new(8);
    let mut created = pair.churn(&mut churn, 50);
    pair.receivers_converge(&created).await;
    pair.lease.stop().await;
    eventually("no hub leads", async || roles().await == [Role::Unknown; 2]).await;
    let sent = || pair.events("a").len() + pair.events("b").len();
    let before = sent();
    created.extend(pair.churn(&mut churn, 50));
    pair.is_read_by(&[&hubs[0], &hubs[1]]).await;
    let renewed = async |hub: &Hub| hub.report().await.unwrap().ha.unwrap().renewed_seconds_ago;
    let since = async || renewed(&hubs[0]).await.max(renewed(&hubs[1]).await).unwrap();
    let read_at = since().await;
    eventually("there was time to deliver", async || since().await >= read_at + 3).await;
    assert_eq!(sent(), before);
    pair.lease.restart().await;
    eventually("one leads again", async || roles().await.contains(&Role::Leader)).await;
    pair.receivers_converge(&created).await;
}

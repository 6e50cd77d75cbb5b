//! Tests of a hub that restarts with the same state directory, while its simulated clusters keep changing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub::app::{Hub, StartError};
use informer_hub::cache::{Answer, Query};
use informer_hub_config::{ClusterAccess, Config, Initial};
use informer_hub_sim::{Churn, SimCluster, World};
use informer_hub_types::{ApiResource, ClusterSelector, Freshness, Notification, Object, ObjectKey, object_memory};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::fleet::{
    PATIENCE, Wire, config, eventually, file_events, file_sink, pods, quick, resource_config, small, with_sinks,
};

/// Log of a subscriber's events, see [`describe`].
pub(crate) type EventLog = Arc<Mutex<Vec<String>>>;

/// Simulated clusters and a state directory that outlive hubs.
pub(crate) struct Testbed {
    pub(crate) clusters: BTreeMap<String, SimCluster>,
    pub(crate) dir: tempfile::TempDir,
}

/// Running hub with the event logs of a durable and a transient subscriber.
pub(crate) struct RunningHub {
    pub(crate) hub: Hub,
    pub(crate) durable: EventLog,
    pub(crate) transient: EventLog,
}

/// Returns one line per event: `!` initial, `+` added, `~` updated, `-` deleted, `†` tombstone, then cluster and key.
fn describe(notification: &Notification) -> String {
    let state = |object: &Object| format!("{}/{}", object.cluster(), object.key());
    match notification {
        Notification::Added { object, initial: true } => format!("!{}", state(object)),
        Notification::Added { object, .. } => format!("+{}", state(object)),
        Notification::Updated { new, .. } => format!("~{}", state(new)),
        Notification::Deleted { object, tombstone } => {
            format!(
                "{}{}{}",
                if *tombstone { '†' } else { '-' },
                state(object),
                if object.is_kept() { "" } else { " bare" }
            )
        }
        Notification::Synced(origin) => format!("synced {}", origin.cluster),
    }
}

fn reader() -> (EventLog, Subscriber) {
    let log = EventLog::default();
    let events = Arc::clone(&log);
    let subscriber = Subscriber::from_fn(move |notification: &Notification| events.lock().push(describe(notification)));
    (log, subscriber)
}

impl Testbed {
    pub(crate) fn new(clusters: u64, pods: usize) -> Self {
        let cluster = |i| (format!("c{i}"), SimCluster::start(small(i, pods), &Handle::current()).unwrap());
        Self { clusters: (0..clusters).map(cluster).collect(), dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = config(&self.clusters, &["pods", "nodes"]);
        config.hub.state_dir = Some(self.dir.path().join("state"));
        config.hub.checkpoint = Duration::from_millis(100);
        config
    }

    pub(crate) async fn start(&self) -> RunningHub {
        self.start_with(self.config()).await
    }

    async fn start_over(&self, wire: Wire) -> RunningHub {
        let mut config = self.config();
        wire.apply(&mut config);
        self.start_with(config).await
    }

    pub(crate) async fn start_with(&self, config: Config) -> RunningHub {
        let hub = Hub::start_with(config, quick()).await.unwrap();
        let (durable, subscriber) = reader();
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("durable").durable();
        hub.registry().send(subscribe).await.unwrap();
        let (transient, subscriber) = reader();
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("passing");
        hub.registry().send(subscribe).await.unwrap();
        RunningHub { hub, durable, transient }
    }

    pub(crate) fn lists(&self) -> u64 {
        let stats = self.clusters.values().map(|cluster| cluster.stats());
        stats.map(|stats| stats.lists + stats.streaming).sum()
    }

    pub(crate) fn first_key(&self, cluster: &str) -> ObjectKey {
        self.clusters[cluster].truth(&pods().gvr).into_keys().next().unwrap()
    }

    pub(crate) fn delete(&self, cluster: &str, key: &ObjectKey) {
        self.clusters[cluster].with_world(|world| world.delete(&pods().gvr, key)).unwrap();
    }

    pub(crate) fn create(&self, cluster: &str) -> ObjectKey {
        self.clusters[cluster].with_world(World::create_pod).unwrap()
    }

    /// Returns the cache files of the pods.
    fn files(&self) -> Vec<std::path::PathBuf> {
        let dir = self.dir.path().join("state/caches/core/v1/pods");
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl RunningHub {
    pub(crate) async fn all(&self) -> Answer {
        self.hub.cache_of(pods()).send(Query::list().across_clusters()).await.unwrap().unwrap()
    }

    /// Waits until the cache equals the clusters' pods.
    pub(crate) async fn converged(&self, bed: &Testbed) {
        eventually("the cache equals the clusters' pods", async || {
            let truth: usize = bed.clusters.values().map(|it| it.truth(&pods().gvr).len()).sum();
            let answer = self.all().await;
            let right = answer.items.iter().all(|object| {
                let truth = bed.clusters[object.cluster().as_str()].truth(&pods().gvr);
                truth.get(object.key()).is_some_and(|(_, version)| version == object.resource_version())
            });
            right && answer.items.len() == truth
        })
        .await;
    }

    /// Waits until the checkpoint of every informer is current.
    pub(crate) async fn checkpointed(&self) {
        let deadline = Instant::now() + PATIENCE;
        eventually("all is on disk", async || {
            let report = self.hub.report().await.unwrap();
            let in_time = Instant::now() + Duration::from_secs(1) < deadline;
            assert!(in_time, "{}", serde_json::to_string_pretty(&report).unwrap());
            let mut informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
            informers.all(|informer| {
                let kept = informer.checkpoint.as_ref().and_then(|kept| kept.version.as_deref());
                informer.synced && kept.is_some() && kept == informer.resource_version.as_deref()
            })
        })
        .await;
    }

    pub(crate) async fn logged(&self, log: &EventLog, what: &str) {
        eventually(what, async || log.lock().iter().any(|line| line == what)).await;
    }

    pub(crate) async fn stop(self) -> (Vec<String>, Vec<String>) {
        let report = self.hub.shutdown(Duration::from_secs(10)).await;
        assert_eq!(report.actors_left, 0, "actors leaked");
        (self.durable.lock().clone(), self.transient.lock().clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_hub_lists_nothing_and_delivers_only_changes_to_durable_subscribers() {
    let bed = Testbed::new(2, 100);
    let running = bed.start().await;
    running.converged(&bed).await;
    // Waits for the end of the lists: objects are cached earlier, but a restart would repeat an unfinished list.
    for cluster in ["c0", "c1"] {
        running.logged(&running.durable, &format!("synced {cluster}")).await;
    }
    let (durable, _) = running.stop().await;
    assert_eq!(durable.iter().filter(|line| line.starts_with('!')).count(), 200);
    let lists = bed.lists();
    let (deleted, added) = (bed.first_key("c0"), bed.create("c1"));
    bed.delete("c0", &deleted);

    let running = bed.start().await;
    running.logged(&running.durable, &format!("-c0/{deleted}")).await;
    running.logged(&running.durable, &format!("+c1/{added}")).await;
    running.converged(&bed).await;
    let (durable, transient) = running.stop().await;
    assert_eq!(durable.len(), 2, "exactly two events: {:?}", &durable[..4]);
    assert_eq!(transient.iter().filter(|line| line.starts_with("synced")).count(), 2);
    assert!(
        transient.iter().filter(|line| line.starts_with('!')).count() >= 199,
        "a subscriber that is not durable gets the initial objects again"
    );
    assert_eq!(bed.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_objects_are_queryable_before_any_cluster_answers() {
    let mut bed = Testbed::new(2, 50);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let before = jiff::Timestamp::now();
    running.stop().await;
    let truth = bed.clusters["c0"].truth(&pods().gvr);
    let config = bed.config();
    for cluster in bed.clusters.values_mut() {
        cluster.stop().await;
    }
    let running = bed.start_with(config).await;
    let answer = running.all().await;
    assert_eq!(answer.items.len(), 100);
    for coverage in &answer.coverage {
        let Freshness::StaleSince { since } = coverage.freshness else { panic!("{coverage:?}") };
        assert!(since >= before - Duration::from_secs(1) && since <= jiff::Timestamp::now(), "{since}");
    }
    assert_eq!(answer.coverage.len(), 2);
    let node = answer.items[0].typed::<serde_json::Value>().unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let by_node = Query::by_index("by-node", &node).across_clusters();
    assert!(
        !running.hub.cache_of(pods()).send(by_node).await.unwrap().unwrap().items.is_empty(),
        "indices are restored too"
    );
    running.hub.wait_for_cache_sync(Duration::from_secs(1)).await.unwrap();
    let report = running.hub.report().await.unwrap();
    assert_eq!(report.hub.state_dir.unwrap().restored, 100 + bed.clusters.len() as u64 * nodes(&bed));
    let informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    let counts_all = |(objects, bytes): (u64, u64)| objects > 0 && bytes > object_memory(objects, 0);
    let counted: Vec<_> = informers.map(|informer| (informer.objects, informer.bytes)).collect();
    assert!(counted.len() == 4 && counted.iter().copied().all(counts_all), "restored bodies are counted: {counted:?}");
    let informer = &report.hub.clusters[0].informers[0];
    assert!(informer.synced && informer.objects > 0, "{informer:?}");
    bed.clusters.get_mut("c0").unwrap().restart().await;
    eventually("it watches again", async || bed.clusters["c0"].stats().open_watches >= 2).await;
    assert_eq!(bed.clusters["c0"].truth(&pods().gvr), truth);
    running.stop().await;
}

fn nodes(bed: &Testbed) -> u64 {
    bed.clusters["c0"].with_world(|world| world.count(&World::nodes())) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_deleted_behind_an_expired_version_arrive_once_as_tombstones() {
    let bed = Testbed::new(1, 60);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    running.stop().await;
    let deleted = bed.first_key("c0");
    bed.delete("c0", &deleted);
    bed.clusters["c0"].with_world(World::compact);
    let running = bed.start().await;
    running.logged(&running.durable, &format!("†c0/{deleted}")).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let (durable, _) = running.stop().await;
    assert_eq!(durable, [format!("†c0/{deleted}")], "exactly one event, with the last state");
    let running = bed.start().await;
    running.converged(&bed).await;
    running.hub.wait_for_cache_sync(PATIENCE).await.unwrap();
    eventually("it watches", async || bed.clusters["c0"].stats().open_watches >= 2).await;
    assert!(running.stop().await.0.is_empty());
}

/// Replaces a cluster's etcd by a backup, and creates a pod, which gets the name of the first pod that was created
/// after the backup.
fn restore(bed: &Testbed, backup: World) -> ObjectKey {
    bed.clusters["c0"].with_world(|world| {
        *world = backup;
        world.create_pod().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_restored_from_a_backup_is_noticed_while_running_and_over_a_restart() {
    for is_running in [true, false] {
        let bed = Testbed::new(1, 20);
        let backup = bed.clusters["c0"].with_world(|world| world.clone());
        let file = bed.dir.path().join("events.jsonl");
        let start = || with_sinks(bed.config(), vec![file_sink("file", &file)]);
        let mut running = bed.start_with(start()).await;
        running.converged(&bed).await;
        running.logged(&running.durable, "synced c0").await;
        let (deleted, mut created) = (bed.first_key("c0"), Vec::new());
        bed.delete("c0", &deleted);
        created.extend((0..30).map(|_| bed.create("c0")));
        running.converged(&bed).await;
        let after = if is_running {
            bed.clusters["c0"].stop().await;
            let after = restore(&bed, backup);
            bed.clusters["c0"].restart().await;
            after
        } else {
            running.checkpointed().await;
            running.stop().await;
            let after = restore(&bed, backup);
            running = bed.start_with(start()).await;
            after
        };
        running.converged(&bed).await;
        running.logged(&running.durable, &format!("+c0/{deleted}")).await;
        running.logged(&running.durable, &format!("~c0/{after}")).await;
        for gone in created.iter().filter(|created| **created != after) {
            running.logged(&running.durable, &format!("†c0/{gone}")).await;
        }
        eventually("the sink's file has the state of the cluster", async || {
            let (mut objects, mut ids) = (BTreeMap::new(), BTreeSet::new());
            // Reads the file like a receiver that skips known ids.
            for event in file_events(&file).into_iter().filter(|event| ids.insert(event["id"].to_string())) {
                let subject = event["subject"].as_str().unwrap().to_owned();
                match event["data"]["object"]["metadata"]["resourceVersion"].as_str() {
                    Some(version) if !event["type"].as_str().unwrap().contains("deleted") => {
                        objects.insert(subject, version.to_owned())
                    }
                    _ => objects.remove(&subject),
                };
            }
            let truth = bed.clusters["c0"].truth(&pods().gvr);
            let subject = |key: &ObjectKey| format!("/v1/pods/{key}");
            let truth: BTreeMap<_, _> = truth.iter().map(|(key, (_, at))| (subject(key), at.to_string())).collect();
            objects.retain(|subject, _| subject.contains("/pods/"));
            objects == truth
        })
        .await;
        running.stop().await;
    }
}

/// Copies a directory that a running hub may be changing, as a killed process would leave it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            // The file may have been replaced meanwhile.
            let _ = std::fs::copy(&path, &target);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_hub_converges_and_loses_no_deletion() {
    for seed in 0..4 {
        let bed = Testbed::new(2, 60);
        let running = bed.start_over(Wire::of_seed(seed)).await;
        running.converged(&bed).await;
        running.logged(&running.durable, "synced c1").await;
        running.checkpointed().await;
        let mut churn = Churn::new(seed);
        for _ in 0..60 {
            bed.clusters.values().for_each(|cluster| _ = cluster.with_world(|world| churn.step(world)));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The directory is copied before the log is read, so that the log has at least the events that the copy counts
        // as delivered.
        let second = tempfile::tempdir().unwrap();
        copy(bed.dir.path(), second.path());
        let known: Vec<_> = running.durable.lock().clone();
        running.stop().await;
        for _ in 0..40 {
            bed.clusters.values().for_each(|cluster| _ = cluster.with_world(|world| churn.step(world)));
        }
        let bed = Testbed { clusters: bed.clusters, dir: second };
        let running = bed.start_over(Wire::of_seed(seed + 1)).await;
        running.converged(&bed).await;
        running.checkpointed().await;
        let (later, _) = running.stop().await;
        let alive = |lines: &mut dyn Iterator<Item = &String>| {
            let mut alive = std::collections::BTreeSet::new();
            for line in lines {
                let name = line.trim_start_matches(['!', '+', '~', '-', '†']);
                match line.chars().next() {
                    Some('!' | '+' | '~') => _ = alive.insert(name.to_owned()),
                    Some('-' | '†') => _ = alive.remove(name),
                    _ => {}
                }
            }
            alive
        };
        let truth = bed
            .clusters
            .iter()
            .flat_map(|(name, cluster)| cluster.truth(&pods().gvr).into_keys().map(move |key| format!("{name}/{key}")));
        let received = alive(&mut known.iter().chain(&later));
        assert_eq!(received, truth.collect(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_index_or_projection_relists_without_notifications() {
    let bed = Testbed::new(1, 60);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    running.stop().await;
    let lists = bed.lists();
    let mut config = bed.config();
    let pods_config = &mut config.resources[0];
    pods_config.indexes.insert("by-phase".to_owned(), "status.phase".parse().unwrap());
    pods_config.projection = informer_hub_config::Projection::Keep(vec!["status".parse().unwrap()]);
    let running = bed.start_with(config).await;
    eventually("all pods in the new index", async || {
        let snapshot = running.hub.cache_of(pods()).snapshot().await.unwrap();
        snapshot.index_values("by-phase").map(|(_, objects)| objects).sum::<usize>() == 60
    })
    .await;
    let all = running.all().await;
    let spec = |object: &Object| object.typed::<serde_json::Value>().unwrap().get("spec").is_some();
    assert!(!all.items.iter().any(spec), "objects have the new projection");
    running.checkpointed().await;
    let (durable, _) = running.stop().await;
    assert!(durable.is_empty(), "{durable:?}");
    assert!(bed.lists() > lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_cache_file_loses_only_damaged_records_and_is_rewritten() {
    let bed = Testbed::new(1, 400);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.checkpointed().await;
    running.stop().await;
    let snapshot = bed.files().into_iter().find(|path| path.to_string_lossy().contains("snapshot-")).unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&snapshot, bytes).unwrap();
    let deleted = bed.first_key("c0");
    bed.delete("c0", &deleted);
    let running = bed.start().await;
    let state = running.hub.report().await.unwrap().hub.state_dir.unwrap();
    assert!(state.damage.iter().any(|line| line.contains("damaged")), "{state:?}");
    assert!(state.restored > 0, "{state:?}");
    running.converged(&bed).await;
    running.checkpointed().await;
    running.stop().await;
    let lists = bed.lists();
    let running = bed.start().await;
    assert!(running.hub.report().await.unwrap().hub.state_dir.unwrap().damage.is_empty());
    running.converged(&bed).await;
    running.stop().await;
    assert_eq!(bed.lists(), lists, "the damaged file was rewritten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unconfigured_cluster_is_hidden_but_its_cache_is_kept() {
    let bed = Testbed::new(2, 40);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.checkpointed().await;
    running.stop().await;
    let (mut less, lists) = (bed.config(), bed.lists());
    less.clusters.retain(|cluster| cluster.name.as_str() == "c0");
    less.clusters[0].labels.insert("new".to_owned(), "label".to_owned());
    let running = bed.start_with(less).await;
    let answer = running.all().await;
    assert_eq!((answer.items.len(), answer.coverage.len()), (40, 1));
    let labels = &answer.items[0].origin().cluster_labels;
    assert_eq!(labels.get("new").map(String::as_str), Some("label"), "labels come from the configuration");
    eventually("it watches", async || bed.clusters["c0"].stats().open_watches >= 2).await;
    running.stop().await;
    let running = bed.start().await;
    assert_eq!(running.all().await.items.len(), 80);
    running.converged(&bed).await;
    eventually("both watch", async || bed.clusters.values().all(|it| it.stats().open_watches >= 2)).await;
    running.stop().await;
    assert_eq!(bed.lists(), lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_and_foreign_state_directories_are_refused() {
    let bed = Testbed::new(1, 1);
    let running = bed.start().await;
    let error = Hub::start_with(bed.config(), quick()).await.unwrap_err();
    let StartError::State(error) = error else { panic!("{error:?}") };
    let named = error.to_string();
    assert!(named.contains("in use by another hub, in this process or another container"), "{named}");
    running.stop().await;
    let mut foreign = bed.config();
    foreign.hub.state_dir = Some(bed.dir.path().to_owned());
    let error = Hub::start_with(foreign, quick()).await.unwrap_err();
    assert!(error.to_string().contains("no file FORMAT"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_subscriber_delays_only_the_checkpoints_of_its_partitions() {
    let bed = Testbed::new(1, 20);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let subscriber = Subscriber::from_fn(move |_: &Notification| {
        while !open.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("slow").durable();
    running.hub.registry().send(subscribe).await.unwrap();
    bed.create("c0");
    eventually("the slow subscriber blocks the checkpoint of pods", async || {
        let report = running.hub.report().await.unwrap();
        let informers = &report.hub.clusters[0].informers;
        let held = |resource: &str| {
            let informer = informers.iter().find(|informer| informer.resource == resource).unwrap();
            informer.checkpoint.as_ref().map(|kept| kept.held_by.clone()).unwrap_or_default()
        };
        held("pods") == ["slow"] && held("nodes").is_empty() && report.hub.state_dir.unwrap().held == 1
    })
    .await;
    gate.store(true, SeqCst);
    running.checkpointed().await;
    running.stop().await;
}

/// Events of a cluster that is unreachable since the start are on disk, so they need not stay in the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_cluster_does_not_block_journal_trimming() {
    let bed = Testbed::new(2, 20);
    let config = || {
        let mut sink = file_sink("file", &bed.dir.path().join("events.jsonl"));
        (sink.initial, sink.journal_limit) = (Initial::Skip, 1 << 20);
        with_sinks(bed.config(), vec![sink])
    };
    let running = bed.start_with(config()).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    running.stop().await;
    let closed_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut without = config();
    let unreachable = without.clusters.iter_mut().find(|cluster| cluster.name.as_str() == "c1").unwrap();
    unreachable.access = ClusterAccess::server(format!("http://{closed_address}"), None, None);
    let running = bed.start_with(without).await;
    // Returns the lowest sequence number in the journal, from the names of its segments. A segment takes an eighth of
    // the limit.
    let journal = bed.dir.path().join("state/sinks/file/journal");
    let oldest = || {
        let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.split_once('-')?.0.parse::<u64>().ok()).min()
    };
    assert_eq!(oldest(), Some(0));
    let mut churn = Churn::new(3);
    eventually("the first segment is deleted", async || {
        bed.clusters["c0"].with_world(|world| churn.step(world));
        let status = running.hub.report().await.unwrap().sinks[0].status.journal.clone();
        let bytes = status.map_or(0, |journal| journal.bytes);
        assert!(bytes < 700 << 10, "{bytes} bytes, and no segment was deleted");
        oldest() > Some(0)
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_name_is_restored_from_disk_without_requests() {
    let bed = Testbed::new(1, 3);
    let widgets = World::widgets();
    let there = bed.clusters["c0"].with_world(|world| world.count(&widgets));
    assert!(there > 0);
    let mut config = bed.config();
    config.resources = vec![resource_config("wd")];
    let resource = ApiResource { gvr: widgets, kind: "Widget".into(), namespaced: true };
    let found =
        async |hub: &Hub| hub.cache_of(resource.clone()).send(Query::list()).await.unwrap().unwrap().items.len();
    let running = bed.start_with(config.clone()).await;
    eventually("it is there", async || found(&running.hub).await == there).await;
    running.checkpointed().await;
    running.stop().await;
    let lists = bed.lists();
    // Restored objects are cached before any request.
    let names = bed.dir.path().join("state/names.json");
    assert_eq!(std::fs::read_to_string(&names).unwrap(), r#"{"names":{"wd":["widgets.example.com"]}}"#);
    let running = bed.start_with(config.clone()).await;
    assert_eq!(found(&running.hub).await, there);
    running.checkpointed().await;
    assert_eq!(bed.lists(), lists, "nothing was listed");
    running.stop().await;
    // Without the saved short names, the hub lists again and converges.
    std::fs::write(&names, "rubbish").unwrap();
    let running = bed.start_with(config).await;
    running.checkpointed().await;
    eventually("it is there", async || found(&running.hub).await == there).await;
    assert!(bed.lists() > lists);
    running.stop().await;
}

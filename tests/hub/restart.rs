//! A hub that stops and starts again with the same state directory, over simulated clusters that go on meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub::app::{Hub, StartError};
use informer_hub::cache::{Answer, Query};
use informer_hub_config::{ClusterAccess, Config, FileConfig, SinkConfig, TransportConfig};
use informer_hub_sim::{Churn, SimCluster, World};
use informer_hub_types::{ApiResource, ClusterSelector, Freshness, Notification, Object, ObjectKey, object_memory};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::fleet::{PATIENCE, config, eventually, pods, quick, resource_config, small};

pub(crate) type Diary = Arc<Mutex<Vec<String>>>;

/// Clusters that live on, and a directory.
pub(crate) struct House {
    pub(crate) clusters: BTreeMap<String, SimCluster>,
    pub(crate) dir: tempfile::TempDir,
}

/// A hub in it, and what its readers were told.
pub(crate) struct Life {
    pub(crate) hub: Hub,
    pub(crate) durable: Diary,
    pub(crate) passing: Diary,
}

fn entry(notification: &Notification) -> String {
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

fn reader() -> (Diary, Subscriber) {
    let diary = Diary::default();
    let pages = Arc::clone(&diary);
    let subscriber = Subscriber::from_fn(move |told: &Notification| pages.lock().push(entry(told)));
    (diary, subscriber)
}

impl House {
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

    pub(crate) async fn live(&self) -> Life {
        self.live_with(self.config()).await
    }

    pub(crate) async fn live_with(&self, config: Config) -> Life {
        let hub = Hub::start_with(config, quick()).await.unwrap();
        let (durable, subscriber) = reader();
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("durable").durable();
        hub.registry().send(subscribe).await.unwrap();
        let (passing, subscriber) = reader();
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("passing");
        hub.registry().send(subscribe).await.unwrap();
        Life { hub, durable, passing }
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

    /// The directory of the pods' files.
    fn files(&self) -> Vec<std::path::PathBuf> {
        let dir = self.dir.path().join("state/caches/core/v1/pods");
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Life {
    pub(crate) async fn all(&self) -> Answer {
        self.hub.cache_of(pods()).send(Query::list().across_clusters()).await.unwrap().unwrap()
    }

    /// Waits until the cache has what the clusters have.
    pub(crate) async fn converged(&self, house: &House) {
        eventually("the cache has what the clusters have", async || {
            let truth: usize = house.clusters.values().map(|it| it.truth(&pods().gvr).len()).sum();
            let answer = self.all().await;
            let right = answer.items.iter().all(|object| {
                let truth = house.clusters[object.cluster().as_str()].truth(&pods().gvr);
                truth.get(object.key()).is_some_and(|(_, version)| version == object.resource_version())
            });
            right && answer.items.len() == truth
        })
        .await;
    }

    /// Waits until every informer is on disk as it is.
    pub(crate) async fn kept(&self) {
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

    pub(crate) async fn told(&self, diary: &Diary, what: &str) {
        eventually(what, async || diary.lock().iter().any(|line| line == what)).await;
    }

    pub(crate) async fn end(self) -> (Vec<String>, Vec<String>) {
        let report = self.hub.shutdown(Duration::from_secs(10)).await;
        assert_eq!(report.actors_left, 0, "actors leaked");
        (self.durable.lock().clone(), self.passing.lock().clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_starts_again_lists_nothing_and_tells_durable_readers_only_what_is_new() {
    let house = House::new(2, 100);
    let life = house.live().await;
    life.converged(&house).await;
    // The objects of a list are there before its end, and a list that did not end begins again.
    for cluster in ["c0", "c1"] {
        life.told(&life.durable, &format!("synced {cluster}")).await;
    }
    let (durable, _) = life.end().await;
    assert_eq!(durable.iter().filter(|line| line.starts_with('!')).count(), 200);
    let lists = house.lists();
    let (gone, come) = (house.first_key("c0"), house.create("c1"));
    house.delete("c0", &gone);

    let life = house.live().await;
    life.told(&life.durable, &format!("-c0/{gone}")).await;
    life.told(&life.durable, &format!("+c1/{come}")).await;
    life.converged(&house).await;
    let (durable, passing) = life.end().await;
    assert_eq!(durable.len(), 2, "and nothing else: {:?}", &durable[..4]);
    assert_eq!(passing.iter().filter(|line| line.starts_with("synced")).count(), 2);
    assert!(passing.iter().filter(|line| line.starts_with('!')).count() >= 199, "who is not durable begins anew");
    assert_eq!(house.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_there_can_be_asked_before_any_cluster_answers() {
    let mut house = House::new(2, 50);
    let life = house.live().await;
    life.converged(&house).await;
    life.kept().await;
    let before = jiff::Timestamp::now();
    life.end().await;
    let truth = house.clusters["c0"].truth(&pods().gvr);
    let config = house.config();
    for cluster in house.clusters.values_mut() {
        cluster.stop().await;
    }
    let life = house.live_with(config).await;
    let answer = life.all().await;
    assert_eq!(answer.items.len(), 100);
    for coverage in &answer.coverage {
        let Freshness::StaleSince { since } = coverage.freshness else { panic!("{coverage:?}") };
        assert!(since >= before - Duration::from_secs(1) && since <= jiff::Timestamp::now(), "{since}");
    }
    assert_eq!(answer.coverage.len(), 2);
    let node = answer.items[0].typed::<serde_json::Value>().unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let by_node = Query::by_index("by-node", &node).across_clusters();
    assert!(!life.hub.cache_of(pods()).send(by_node).await.unwrap().unwrap().items.is_empty(), "indices are there too");
    life.hub.wait_for_cache_sync(Duration::from_secs(1)).await.unwrap();
    let report = life.hub.report().await.unwrap();
    assert_eq!(report.hub.state_dir.unwrap().restored, 100 + house.clusters.len() as u64 * nodes(&house));
    let informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    let counts_all = |(objects, bytes): (u64, u64)| objects > 0 && bytes > object_memory(objects, 0);
    let counted: Vec<_> = informers.map(|informer| (informer.objects, informer.bytes)).collect();
    assert!(counted.len() == 4 && counted.iter().copied().all(counts_all), "bodies from disk count: {counted:?}");
    let informer = &report.hub.clusters[0].informers[0];
    assert!(informer.synced && informer.objects > 0, "{informer:?}");
    house.clusters.get_mut("c0").unwrap().restart().await;
    eventually("it watches again", async || house.clusters["c0"].stats().open_watches >= 2).await;
    assert_eq!(house.clusters["c0"].truth(&pods().gvr), truth);
    life.end().await;
}

fn nodes(house: &House) -> u64 {
    house.clusters["c0"].with_world(|world| world.count(&World::nodes())) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_vanished_behind_an_expired_version_arrives_once_as_a_tombstone() {
    let house = House::new(1, 60);
    let life = house.live().await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    life.end().await;
    let gone = house.first_key("c0");
    house.delete("c0", &gone);
    house.clusters["c0"].with_world(World::compact);
    let life = house.live().await;
    life.told(&life.durable, &format!("†c0/{gone}")).await;
    life.converged(&house).await;
    life.kept().await;
    let (durable, _) = life.end().await;
    assert_eq!(durable, [format!("†c0/{gone}")], "once, with its last state, and nothing else");
    let life = house.live().await;
    life.converged(&house).await;
    life.hub.wait_for_cache_sync(PATIENCE).await.unwrap();
    eventually("it watches", async || house.clusters["c0"].stats().open_watches >= 2).await;
    assert!(life.end().await.0.is_empty());
}

/// Leaves a directory as a process does that is killed: the next hub has a copy of what is there in this moment.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            // It may have been replaced since it was found.
            let _ = std::fs::copy(&path, &target);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_killed_while_its_clusters_churn_ends_with_the_truth_and_loses_no_deletion() {
    for seed in 0..4 {
        let house = House::new(2, 60);
        let life = house.live().await;
        life.converged(&house).await;
        life.told(&life.durable, "synced c1").await;
        life.kept().await;
        let mut churn = Churn::new(seed);
        for _ in 0..60 {
            house.clusters.values().for_each(|cluster| _ = cluster.with_world(|world| churn.step(world)));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What the killed one's reader had taken in when it was killed: at least what is on disk.
        let second = tempfile::tempdir().unwrap();
        copy(house.dir.path(), second.path());
        let known: Vec<_> = life.durable.lock().clone();
        life.end().await;
        for _ in 0..40 {
            house.clusters.values().for_each(|cluster| _ = cluster.with_world(|world| churn.step(world)));
        }
        let house = House { clusters: house.clusters, dir: second };
        let life = house.live().await;
        life.converged(&house).await;
        life.kept().await;
        let (later, _) = life.end().await;
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
        let truth = house
            .clusters
            .iter()
            .flat_map(|(name, cluster)| cluster.truth(&pods().gvr).into_keys().map(move |key| format!("{name}/{key}")));
        let told = alive(&mut known.iter().chain(&later));
        assert_eq!(told, truth.collect(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_index_or_projection_lists_and_exchanges_what_is_the_same_without_a_word() {
    let house = House::new(1, 60);
    let life = house.live().await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    life.end().await;
    let lists = house.lists();
    let mut config = house.config();
    let pods_config = &mut config.resources[0];
    pods_config.indexes.insert("by-phase".to_owned(), "status.phase".parse().unwrap());
    pods_config.projection = informer_hub_config::Projection::Keep(vec!["status".parse().unwrap()]);
    let life = house.live_with(config).await;
    eventually("all are in the new index", async || {
        let snapshot = life.hub.cache_of(pods()).snapshot().await.unwrap();
        snapshot.index_values("by-phase").map(|(_, objects)| objects).sum::<usize>() == 60
    })
    .await;
    let all = life.all().await;
    let spec = |object: &Object| object.typed::<serde_json::Value>().unwrap().get("spec").is_some();
    assert!(!all.items.iter().any(spec), "kept as it is projected now");
    life.kept().await;
    let (durable, _) = life.end().await;
    assert!(durable.is_empty(), "{durable:?}");
    assert!(house.lists() > lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_costs_what_is_damaged_and_is_shown_and_mended() {
    let house = House::new(1, 400);
    let life = house.live().await;
    life.converged(&house).await;
    life.kept().await;
    life.end().await;
    let snapshot = house.files().into_iter().find(|path| path.to_string_lossy().contains("snapshot-")).unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&snapshot, bytes).unwrap();
    let gone = house.first_key("c0");
    house.delete("c0", &gone);
    let life = house.live().await;
    let state = life.hub.report().await.unwrap().hub.state_dir.unwrap();
    assert!(state.damage.iter().any(|line| line.contains("damaged")), "{state:?}");
    assert!(state.restored > 0, "{state:?}");
    life.converged(&house).await;
    life.kept().await;
    life.end().await;
    let lists = house.lists();
    let life = house.live().await;
    assert!(life.hub.report().await.unwrap().hub.state_dir.unwrap().damage.is_empty());
    life.converged(&house).await;
    life.end().await;
    assert_eq!(house.lists(), lists, "it was mended by writing it anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_wants_any_more_is_not_shown_but_kept_for_who_wants_it_again() {
    let house = House::new(2, 40);
    let life = house.live().await;
    life.converged(&house).await;
    life.kept().await;
    life.end().await;
    let (mut less, lists) = (house.config(), house.lists());
    less.clusters.retain(|cluster| cluster.name.as_str() == "c0");
    less.clusters[0].labels.insert("new".to_owned(), "label".to_owned());
    let life = house.live_with(less).await;
    let answer = life.all().await;
    assert_eq!((answer.items.len(), answer.coverage.len()), (40, 1));
    let labels = &answer.items[0].origin().cluster_labels;
    assert_eq!(labels.get("new").map(String::as_str), Some("label"), "labels are the configuration's");
    eventually("it watches", async || house.clusters["c0"].stats().open_watches >= 2).await;
    life.end().await;
    let life = house.live().await;
    assert_eq!(life.all().await.items.len(), 80);
    life.converged(&house).await;
    eventually("both watch", async || house.clusters.values().all(|it| it.stats().open_watches >= 2)).await;
    life.end().await;
    assert_eq!(house.lists(), lists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_is_refused_and_a_foreign_directory_too() {
    let house = House::new(1, 1);
    let life = house.live().await;
    let error = Hub::start_with(house.config(), quick()).await.unwrap_err();
    let StartError::State(error) = error else { panic!("{error:?}") };
    let named = error.to_string();
    assert!(named.contains(&format!("in use by process {}", std::process::id())), "{named}");
    life.end().await;
    let mut foreign = house.config();
    foreign.hub.state_dir = Some(house.dir.path().to_owned());
    let error = Hub::start_with(foreign, quick()).await.unwrap_err();
    assert!(error.to_string().contains("no FORMAT"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_answer_holds_its_partitions_and_nobody_elses() {
    let house = House::new(1, 20);
    let life = house.live().await;
    life.converged(&house).await;
    life.kept().await;
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let subscriber = Subscriber::from_fn(move |_: &Notification| {
        while !open.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("slow").durable();
    life.hub.registry().send(subscribe).await.unwrap();
    house.create("c0");
    eventually("the slow one holds the pods", async || {
        let report = life.hub.report().await.unwrap();
        let informers = &report.hub.clusters[0].informers;
        let held = |resource: &str| {
            let informer = informers.iter().find(|informer| informer.resource == resource).unwrap();
            informer.checkpoint.as_ref().map(|kept| kept.held_by.clone()).unwrap_or_default()
        };
        held("pods") == ["slow"] && held("nodes").is_empty() && report.hub.state_dir.unwrap().held == 1
    })
    .await;
    gate.store(true, SeqCst);
    life.kept().await;
    life.end().await;
}

/// What a cluster that is dead since before the start has told before then is on disk: nobody need remember it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_cluster_keeps_no_journal_from_letting_go_of_what_is_acknowledged() {
    let house = House::new(2, 20);
    let config = || {
        let path = house.dir.path().join("events.jsonl");
        let file = FileConfig { path, max_size: 1 << 30, keep: 1, fsync: false };
        let sink = SinkConfig::new("file", TransportConfig::File(file));
        Config { sinks: vec![SinkConfig { journal_limit: 1 << 20, ..sink }], ..house.config() }
    };
    let life = house.live_with(config()).await;
    life.converged(&house).await;
    life.kept().await;
    life.end().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut without = config();
    let dead = without.clusters.iter_mut().find(|cluster| cluster.name.as_str() == "c1").unwrap();
    dead.access = ClusterAccess::Server { server: format!("http://{nobody}"), ca_file: None, token: None };
    let life = house.live_with(without).await;
    // The numbers of the first events of the journal's segments, which are an eighth of its limit each.
    let journal = house.dir.path().join("state/sinks/file/journal");
    let oldest = || {
        let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.split_once('-')?.0.parse::<u64>().ok()).min()
    };
    assert_eq!(oldest(), Some(0));
    let mut churn = Churn::new(3);
    eventually("the first segment has gone", async || {
        house.clusters["c0"].with_world(|world| churn.step(world));
        let status = life.hub.report().await.unwrap().sinks[0].status.journal.clone();
        let bytes = status.map_or(0, |journal| journal.bytes);
        assert!(bytes < 700 << 10, "{bytes} bytes, and it has let go of nothing");
        oldest() > Some(0)
    })
    .await;
    life.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_for_by_a_short_name_is_back_before_any_cluster_answers_and_lists_nothing() {
    let house = House::new(1, 3);
    let widgets = World::widgets();
    let there = house.clusters["c0"].with_world(|world| world.count(&widgets));
    assert!(there > 0);
    let mut config = house.config();
    config.resources = vec![resource_config("wd")];
    let resource = ApiResource { gvr: widgets, kind: "Widget".into(), namespaced: true };
    let found =
        async |hub: &Hub| hub.cache_of(resource.clone()).send(Query::list()).await.unwrap().unwrap().items.len();
    let life = house.live_with(config.clone()).await;
    eventually("it is there", async || found(&life.hub).await == there).await;
    life.kept().await;
    life.end().await;
    let lists = house.lists();
    // What was there is there before anything has been asked.
    let names = house.dir.path().join("state/names.json");
    assert_eq!(std::fs::read_to_string(&names).unwrap(), r#"{"names":{"wd":["widgets.example.com"]}}"#);
    let life = house.live_with(config.clone()).await;
    assert_eq!(found(&life.hub).await, there);
    life.kept().await;
    assert_eq!(house.lists(), lists, "nothing was listed");
    life.end().await;
    // Without what is known of the name it begins anew, and all is right in the end.
    std::fs::write(&names, "rubbish").unwrap();
    let life = house.live_with(config).await;
    life.kept().await;
    eventually("it is there", async || found(&life.hub).await == there).await;
    assert!(house.lists() > lists);
    life.end().await;
}

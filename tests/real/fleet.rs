//! Hub processes that share two clusters through a real `nats-server`: takeover, fencing, serving, and what `check`
//! reports.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use informer_hub_fleet::jetstream::{FixedLimits, JetStreamLog, LogParams, Owners};
use informer_hub_fleet::{Entry, ReadOutcome, Reader, Record, ResetReason, Subjects};
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::{ApiResource, ObjectKey, ResourceVersion, Uid, clock};
use serde_json::Value;

use crate::bed::{
    Churn, GroundTruth, RealCluster, becomes_true, create_namespace, create_pods, ground_truth, install_widgets, seed,
};
use crate::fixture::{WAIT_DEADLINE, origin, pods};
use crate::nats_server::Server;
use crate::new_user::audit::Audit;
use crate::workdir::{Running, Workdir};

pub(crate) const FLEET: &str = "test";

/// Size of the log in bytes. A NATS server refuses a stream that is larger than its free disk space.
const WINDOW_BYTES: u64 = 64 << 20;

pub(crate) fn config(listen: &str, nats: &str, clusters: &[RealCluster]) -> String {
    let tables = clusters.iter().map(|cluster| {
        let (name, kubeconfig) = (cluster.name(), cluster.kubeconfig().display().to_string());
        format!("[clusters.{name}]\nkubeconfig = {kubeconfig:?}\n")
    });
    format!(
        "[hub]\nlisten = \"{listen}\"\n[fleet]\nnats = [\"{nats}\"]\nname = \"{FLEET}\"\nroles = [\"collect\"]\n\
         window = {{ bytes = {WINDOW_BYTES} }}\n{}[resources.pods]\n",
        tables.collect::<String>()
    )
}

/// Hub process of the fleet, and its folder.
pub(crate) struct Process {
    pub(crate) workdir: Workdir,
    pub(crate) hub: Running,
}

impl Process {
    fn start(nats: &Server, clusters: &[RealCluster]) -> Self {
        Self::start_with(nats, clusters, "")
    }

    /// Starts a process with further lines of configuration.
    pub(crate) fn start_with(nats: &Server, clusters: &[RealCluster], lines: &str) -> Self {
        let workdir = Workdir::new();
        workdir.write("hub.toml", &(config(workdir.listen(), &nats.url(), clusters) + lines));
        let hub = workdir.hub();
        Self { workdir, hub }
    }

    /// Starts a serving replica, with credentials of another user than the collectors'.
    fn replica(nats: &Server, clusters: &[RealCluster]) -> Self {
        Self::replica_with(nats, clusters, "")
    }

    /// Starts a serving replica with further lines of configuration.
    pub(crate) fn replica_with(nats: &Server, clusters: &[RealCluster], lines: &str) -> Self {
        let workdir = Workdir::new();
        let mut text = (config(workdir.listen(), &nats.url(), clusters) + lines).replace("\"collect\"", "\"serve\"");
        for cluster in clusters {
            let [all, limited] =
                [cluster.kubeconfig(), cluster.limited_kubeconfig()].map(|it| it.display().to_string());
            text = text.replace(&all, &limited);
        }
        workdir.write("hub.toml", &text);
        let hub = workdir.hub();
        Self { workdir, hub }
    }

    async fn shows_pods(&self, cluster: &RealCluster) {
        shows_objects(&self.workdir, cluster, &pods()).await;
    }

    pub(crate) async fn status(&self) -> Value {
        let (_, status) = self.workdir.get("/v1/status").await;
        serde_json::from_str(&status).unwrap_or_default()
    }

    pub(crate) async fn fleet(&self) -> Value {
        self.status().await["fleet"].take()
    }

    async fn owned(&self) -> Vec<String> {
        let fleet = self.fleet().await;
        let clusters = fleet["clusters"].as_array().cloned().unwrap_or_default();
        clusters.iter().filter(|one| one["own"] == true).map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn owns(&self, count: usize) {
        let is_owner = becomes_true(WAIT_DEADLINE, async || self.owned().await.len() == count).await;
        assert!(is_owner, "it owns no {count} clusters: {}", self.fleet().await);
    }
}

/// Waits until `get` shows the objects of the cluster.
pub(crate) async fn shows_objects(workdir: &Workdir, cluster: &RealCluster, resource: &ApiResource) {
    let expected = ground_truth(&cluster.client().await, &resource.gvr).await;
    let found = || {
        let list = workdir.json(&["get", &resource.gvr.resource, "--clusters", cluster.name()]);
        let object = |object: &Value| {
            let [namespace, name, uid, version] = ["namespace", "name", "uid", "resourceVersion"]
                .map(|field| object["metadata"][field].as_str().unwrap_or_default().to_owned());
            (ObjectKey::new(&namespace, &name), (Uid::new(&uid), ResourceVersion::new(&version)))
        };
        list["items"].as_array().unwrap().iter().map(object).collect::<GroundTruth>()
    };
    let shows = becomes_true(WAIT_DEADLINE, async || found() == expected).await;
    assert!(shows, "{}: {:?}", cluster.name(), Oracle::diff(&expected, &found()));
}

/// Reads the log of the fleet from its begin.
pub(crate) struct LogReader {
    log: JetStreamLog,
}

/// Contents of the log.
#[derive(Default)]
pub(crate) struct Contents {
    /// Objects by [`origin`].
    pub(crate) objects: BTreeMap<String, GroundTruth>,
    /// Lists that were stored, by [`origin`].
    pub(crate) lists: BTreeMap<String, usize>,
    /// Owners by cluster and epoch.
    owners: BTreeMap<String, BTreeMap<u64, String>>,
    deleted: HashSet<Uid>,
}

/// Returns the parameters of the log of [`config`].
pub(crate) fn log_params(replicas: usize) -> LogParams {
    LogParams {
        subjects: Subjects::new(FLEET).unwrap(),
        replicas,
        max_age: Duration::from_secs(3600),
        max_bytes: WINDOW_BYTES,
        fixed: FixedLimits::default(),
        timeout: Duration::from_secs(5),
    }
}

impl LogReader {
    pub(crate) async fn open(nats: &Server) -> Self {
        Self { log: JetStreamLog::open(nats.connect().await, log_params(1)).await.unwrap() }
    }

    /// Reads what the log has now.
    pub(crate) async fn read(&self) -> Contents {
        let (mut reader, mut contents) = (Reader::new(), Contents::default());
        let mut tail = self.log.tail(0, Subjects::new(FLEET).unwrap().all()).await.unwrap();
        // At the end of the log, the tail waits for further entries.
        while let Ok(Ok(Some(entry))) = tokio::time::timeout(Duration::from_secs(1), tail.next()).await {
            contents.apply(&mut reader, &entry);
        }
        contents
    }
}

impl Contents {
    /// Applies an entry.
    ///
    /// # Panics
    /// If an entry is missing, or is of an owner that has lost the cluster; if a record is out of order, or repeats a
    /// deletion.
    pub(crate) fn apply(&mut self, reader: &mut Reader, entry: &Entry) {
        let cluster = entry.partition.cluster.to_string();
        let records = match reader.read(entry).unwrap() {
            ReadOutcome::Records(records) => records,
            // Nothing precedes the first list of a partition.
            ReadOutcome::Nothing | ReadOutcome::Incomplete => return,
            other => panic!("{entry:?}: {other:?}"),
        };
        let state = reader.state(&entry.partition).unwrap();
        let owners = self.owners.entry(cluster.clone()).or_default();
        let owner = owners.entry(state.epoch).or_insert_with(|| state.owner.clone());
        assert_eq!(*owner, state.owner, "two owners of {cluster} in epoch {}", state.epoch);
        let origin = format!("{cluster}/{}", entry.partition.resource.long());
        let objects = self.objects.entry(origin.clone()).or_default();
        for record in records {
            match record {
                Record::Put { key, uid, version, .. } => {
                    let before = objects.insert(key.clone(), (uid, version.clone()));
                    let is_newer = before.is_none_or(|(_, before)| version.newer_than(&before));
                    assert!(is_newer, "{key} goes back to {version}");
                }
                Record::Delete { key, .. } => {
                    let (uid, _) = objects.remove(&key).unwrap_or_else(|| panic!("{key} is deleted twice"));
                    assert!(self.deleted.insert(uid), "{key} is deleted twice");
                }
                Record::Reset { reason } => {
                    assert_eq!(reason, ResetReason::Restart);
                    objects.clear();
                    *self.lists.entry(origin.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
    }
}

/// Waits until the log has the objects of the clusters, and returns its contents.
async fn log_follows(log: &LogReader, clusters: &[RealCluster]) -> Contents {
    let mut expected = BTreeMap::new();
    for cluster in clusters {
        expected.insert(origin(cluster.name(), &pods()), ground_truth(&cluster.client().await, &pods().gvr).await);
    }
    let began = clock::now();
    loop {
        let contents = log.read().await;
        if contents.objects == expected {
            return contents;
        }
        assert!(began.elapsed() < WAIT_DEADLINE, "{:?}\ninstead of\n{expected:?}", contents.objects);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_frozen_processes_lose_their_clusters_and_no_change() {
    let seed = seed();
    let (nats, clusters) = tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all(["east", "west"]));
    let mut churns = Vec::new();
    for (at, cluster) in clusters.iter().enumerate() {
        let client = cluster.client().await;
        install_widgets(&client).await;
        create_namespace(&client, "churn").await;
        create_pods(&client, "default", "web", 50).await;
        churns.push((Churn::new(seed.wrapping_add(at as u64), "churn"), client));
    }
    let change = async |churns: &mut Vec<(Churn, kube::Client)>| {
        for (churn, client) in churns {
            churn.run(client, 30).await;
        }
    };
    let first = Process::start(&nats, &clusters);
    first.owns(2).await;
    let log = LogReader::open(&nats).await;
    change(&mut churns).await;
    let contents = log_follows(&log, &clusters).await;
    assert!(contents.lists.values().all(|lists| *lists == 1), "{:?}", contents.lists);

    // One cluster moves to the second process. Then the first one fails.
    let second = Process::start(&nats, &clusters);
    let joined = clock::now();
    second.workdir.ready(&second.hub).await;
    change(&mut churns).await;
    second.owns(1).await;
    first.owns(1).await;
    println!("1 cluster moved {:?} after the second process joined", joined.elapsed());
    second.workdir.shows(&["status"], |text| text.contains("owns 1 of 2 clusters")).await;
    assert_eq!(first.workdir.metric("informer_hub_fleet_owned_clusters").await, Some(1.0));
    assert_eq!(first.workdir.metric("informer_hub_fleet_moved_total").await, Some(1.0));
    assert_eq!(first.workdir.metric("informer_hub_fleet_lost_total").await, Some(0.0));
    assert_eq!(first.workdir.metric("informer_hub_fleet_connected").await, Some(1.0));
    let left = format!("{{cluster={:?},shard=\"\"}}", first.owned().await[0]);
    let epoch = first.workdir.metric(&format!("informer_hub_fleet_epoch{left}")).await;
    assert!(first.workdir.metric(&format!("informer_hub_fleet_weight{left}")).await >= Some(150.0));
    change(&mut churns).await;
    let killed = clock::now();
    drop(first);
    change(&mut churns).await;
    second.owns(2).await;
    println!("1 cluster taken over {:?} after SIGKILL", killed.elapsed());
    assert!(second.workdir.metric(&format!("informer_hub_fleet_epoch{left}")).await > epoch);
    log_follows(&log, &clusters).await;

    // A frozen process that wakes up has lost its clusters, and stores nothing more.
    let third = Process::start(&nats, &clusters);
    third.workdir.ready(&third.hub).await;
    third.owns(1).await;
    let frozen = clock::now();
    second.hub.freeze(true);
    change(&mut churns).await;
    third.owns(2).await;
    println!("1 cluster taken over {:?} after SIGSTOP", frozen.elapsed());
    second.hub.freeze(false);
    second.owns(0).await;
    assert_eq!(second.workdir.metric("informer_hub_fleet_lost_total").await, Some(1.0));
    change(&mut churns).await;
    let contents = log_follows(&log, &clusters).await;
    assert!(contents.lists.values().all(|lists| *lists == 1), "no takeover lists: {:?}", contents.lists);
    assert!(contents.owners.values().all(|owners| owners.len() >= 3), "{:?}", contents.owners);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_server_and_an_orderly_handover_lose_no_change() {
    let seed = seed();
    let (mut nats, clusters) = tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all(["east"]));
    let client = clusters[0].client().await;
    install_widgets(&client).await;
    create_namespace(&client, "churn").await;
    let mut churn = Churn::new(seed, "churn");
    let mut first = Process::start(&nats, &clusters);
    first.owns(1).await;
    churn.run(&client, 30).await;
    nats.kill_and_restart().await;
    churn.run(&client, 30).await;
    let connected = async || first.fleet().await["connected"] == true;
    assert!(becomes_true(WAIT_DEADLINE, connected).await, "{}", first.fleet().await);
    log_follows(&LogReader::open(&nats).await, &clusters).await;
    let second = Process::start(&nats, &clusters);
    second.workdir.ready(&second.hub).await;
    let ended = clock::now();
    assert_eq!(first.hub.terminate().await, 0);
    second.owns(1).await;
    println!("1 cluster handed over {:?} after SIGTERM", ended.elapsed());
    churn.run(&client, 30).await;
    let contents = log_follows(&LogReader::open(&nats).await, &clusters).await;
    assert_eq!(contents.lists[&origin("east", &pods())], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_collects_the_cluster_that_collectors_cannot_reach() {
    let seed = seed();
    let (nats, clusters) = tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all(["center", "edge"]));
    let client = clusters[1].client().await;
    install_widgets(&client).await;
    create_namespace(&client, "churn").await;
    let mut churn = Churn::new(seed, "churn");

    let workdir = Workdir::new();
    let [text, of_agent] = [workdir.listen(), "127.0.0.1:0"].map(|listen| config(listen, &nats.url(), &clusters));
    let edge = format!("kubeconfig = {:?}\n", clusters[1].kubeconfig().display().to_string());
    assert!(text.contains(&edge));
    workdir.write("hub.toml", &text.replace(&edge, "agent = true\n"));
    let center = Process { hub: workdir.hub(), workdir };
    center.owns(1).await;
    assert_eq!(center.owned().await, ["center"]);

    let report = center.workdir.json(&["check", "-c", "hub.toml"]);
    let checked: Vec<_> = report["clusters"].as_array().unwrap().iter().map(|one| one["cluster"].clone()).collect();
    assert_eq!(checked, ["center"], "{report:#}");
    let named = center.workdir.run(&["check", "-c", "hub.toml", "--cluster", "edge"]);
    assert!(String::from_utf8_lossy(&named.stderr).contains("an agent watches edge; check the file of the agent"));

    // The agent connects with the kubeconfig of its file, since it runs in no pod here.
    center.workdir.write("agent.toml", &of_agent);
    let ambiguous = center.workdir.run(&["agent", "-c", "agent.toml"]);
    let error = String::from_utf8(ambiguous.stderr).unwrap();
    assert!(ambiguous.status.code() == Some(2) && error.contains("--cluster; known: center, edge"), "{error}");
    let agent = || center.workdir.service(&["agent", "-c", "agent.toml", "--cluster", "edge"]);
    let first = agent();
    churn.run(&client, 30).await;
    let log = LogReader::open(&nats).await;
    log_follows(&log, &clusters).await;
    assert_eq!(center.owned().await, ["center"], "a collector leaves the cluster to its agent");
    // No collector takes over the cluster, and a new agent continues where the killed one stopped.
    drop(first);
    churn.run(&client, 30).await;
    let _second = agent();
    let contents = log_follows(&log, &clusters).await;
    assert_eq!(contents.lists[&origin("edge", &pods())], 1, "no list after the restart");
    assert_eq!(contents.owners["edge"].len(), 2, "{:?}", contents.owners);
    assert_eq!(contents.owners["center"].len(), 1, "{:?}", contents.owners);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_serve_from_the_log_over_a_takeover_and_ask_no_apiserver() {
    let (seed, audit) = (seed(), Audit::new());
    let (nats, clusters) =
        tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all_with([("east", audit.flags())]));
    let client = clusters[0].client().await;
    install_widgets(&client).await;
    create_namespace(&client, "churn").await;
    create_pods(&client, "default", "web", 50).await;
    let mut churn = Churn::new(seed, "churn");
    let first = Process::start(&nats, &clusters);
    first.owns(1).await;
    let second = Process::start(&nats, &clusters);
    second.workdir.ready(&second.hub).await;
    let replica = Process::replica(&nats, &clusters);
    replica.workdir.ready(&replica.hub).await;
    replica.shows_pods(&clusters[0]).await;
    replica.workdir.shows(&["status"], |text| text.contains("serves 1 cluster")).await;
    let check = replica.workdir.json(&["check", "-c", "hub.toml"]);
    assert_eq!(check["clusters"], serde_json::json!([]), "{check:#}");

    let watch = replica.workdir.watching(&["watch", "pods", "--initial"]);
    create_pods(&client, "default", "before", 1).await;
    watch.prints(&["before-0"]).await;
    drop(first);
    churn.run(&client, 30).await;
    let killed = clock::now();
    create_pods(&client, "default", "during", 1).await;
    second.owns(1).await;
    watch.prints(&["during-0"]).await;
    println!("a watch of the replica goes on {:?} after SIGKILL of the collector", killed.elapsed());
    replica.shows_pods(&clusters[0]).await;

    // Counts only watches, since the test itself sends lists.
    let watches = || audit.requests().iter().filter(|request| request.uri.contains("watch=true")).count();
    let with_one = watches();
    let more = [Process::replica(&nats, &clusters), Process::replica(&nats, &clusters)];
    for replica in &more {
        replica.workdir.ready(&replica.hub).await;
        churn.run(&client, 10).await;
        replica.shows_pods(&clusters[0]).await;
    }
    assert_eq!(watches(), with_one, "with three replicas as with one");
    let requests = audit.requests();
    let of_replicas: Vec<_> = requests.iter().filter(|request| request.user.contains("limited")).collect();
    assert!(of_replicas.is_empty(), "{of_replicas:#?}");

    // Without any collector, the replicas still answer, and report the cluster as stale.
    drop(second);
    let stale = async || more[0].fleet().await["clusters"][0]["staleReason"].is_string();
    assert!(becomes_true(WAIT_DEADLINE, stale).await, "{}", more[0].fleet().await);
    more[0].shows_pods(&clusters[0]).await;
    assert_eq!(more[0].workdir.metric("informer_hub_fleet_stale_clusters").await, Some(1.0));
    more[0].workdir.shows(&["status"], |text| text.contains("serves 1 cluster, 1 stale")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reports_why_nats_cannot_be_used() {
    let clusters = RealCluster::start_all(["east"]).await;
    let workdir = Workdir::new();
    let check = |nats: &str, more: &str| {
        let text = config("127.0.0.1:0", nats, &clusters).replace("[clusters", &format!("{more}[clusters"));
        workdir.write("hub.toml", &text);
        let done = workdir.run(&["check", "-c", "hub.toml"]);
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let finds = |(code, text): (Option<i32>, String), words: &[&str]| {
        assert_eq!(code, Some(2), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} is missing in\n{text}");
    };
    let usable = Server::start(&["--jetstream"]).await;
    assert_eq!(check(&usable.url(), "").0, Some(0));
    finds(
        check(&usable.url(), "replicas = 3\n"),
        &["fleet.replicas: the log needs 3 copies", "not part of a NATS cluster"],
    );
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    finds(
        check(&format!("nats://{closed}"), ""),
        &["error    fleet.nats: cannot connect to nats://", "check the address"],
    );
    let (code, text) = check(&format!("{}\", \"nats://{closed}", usable.url()), "");
    assert!(code == Some(1) && text.contains("warning  fleet.nats: cannot connect"), "one server is enough: {text}");
    let protected = Server::start_with_token("hunter2").await;
    finds(check(&protected.url(), ""), &["fleet.credentials", "rejects the credentials", "authorization violation"]);
    workdir.write("hub.creds", "hunter3");
    let garbage = check(&usable.url(), "[fleet.credentials]\nfile = \"hub.creds\"\n");
    assert!(!garbage.1.contains("hunter3"));
    finds(garbage, &["fleet.credentials: cannot use the credentials of NATS"]);
    let without = Server::start(&[]).await;
    finds(check(&without.url(), ""), &["fleet.nats: NATS: JetStream is not enabled", "nats-server --jetstream"]);
    let foreign = async_nats::jetstream::stream::Config {
        name: format!("{FLEET}-log"),
        subjects: vec!["other".to_owned()],
        ..Default::default()
    };
    async_nats::jetstream::new(usable.connect().await).create_stream(foreign).await.unwrap();
    finds(check(&usable.url(), ""), &["fleet.name: stream \"test-log\" was not created by informer-hub"]);
}

/// Creates the entry of a cluster without owner that is in no configuration file any more.
async fn leave_without_owner(nats: &Server, cluster: &str) {
    let owners = Owners::open(nats.connect().await, Subjects::new(FLEET).unwrap(), 1, WAIT_DEADLINE).await.unwrap();
    let own = owners.claim(&cluster.parse().unwrap(), "gone", None, 0).await.unwrap().unwrap();
    owners.release(&own).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_moves_clusters_and_drains_a_process() {
    let seed = seed();
    let (nats, clusters) =
        tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all(["east", "west", "north"]));
    let mut churns = Vec::new();
    for (at, cluster) in clusters.iter().enumerate() {
        let client = cluster.client().await;
        install_widgets(&client).await;
        create_namespace(&client, "churn").await;
        churns.push((Churn::new(seed.wrapping_add(at as u64), "churn"), client));
    }
    let change = async |churns: &mut Vec<(Churn, kube::Client)>| {
        for (churn, client) in churns {
            churn.run(client, 20).await;
        }
    };
    let workdir = Workdir::new();
    workdir.write("hub.toml", &config("127.0.0.1:0", &nats.url(), &clusters));
    let fails = |arguments: &[&str], words: &str| {
        let done = workdir.run(&[&["fleet"], arguments, &["-c", "hub.toml"]].concat());
        let problem = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && problem.contains(words), "{words}: {problem}");
    };
    fails(&["status"], "no collector of fleet test has started yet");
    let context = async_nats::jetstream::new(nats.connect().await);
    assert_eq!(context.query_account().await.unwrap().streams, 0, "it creates nothing");
    let first = Process::start(&nats, &clusters);
    first.owns(3).await;
    let second = Process::start(&nats, &clusters);
    second.owns(1).await;
    let third = Process::start(&nats, &clusters);
    third.owns(1).await;
    first.owns(1).await;
    change(&mut churns).await;
    let log = LogReader::open(&nats).await;
    log_follows(&log, &clusters).await;
    let name = async |process: &Process| process.fleet().await["process"].as_str().unwrap().to_owned();
    let (of_first, of_second) = (name(&first).await, name(&second).await);

    let unknown = "there is no cluster \"aest\"; did you mean \"east\"?; known: east, north, west";
    fails(&["move", "aest", &of_first], unknown);
    fails(&["move", "east", "missing"], "there is no collector \"missing\"");
    leave_without_owner(&nats, "removed").await;
    fails(&["move", "removed", &of_first, "--timeout", "1s"], "no collector has claimed removed within 1s");
    for cluster in ["east", "west", "north"] {
        let said = workdir.printed(&["fleet", "move", cluster, &of_first, "-c", "hub.toml"]);
        assert!(said.contains("stays"), "{said}");
    }
    change(&mut churns).await;
    first.owns(3).await;
    let shown = workdir.json(&["fleet", "status", "-c", "hub.toml"]);
    assert_eq!(shown["clusters"].as_array().unwrap().iter().filter(|one| one["pinnedTo"] == of_first).count(), 3);
    assert!(shown["collectors"].as_array().unwrap().iter().all(|one| one["live"] == true), "{shown}");
    let drained = workdir.printed(&["fleet", "drain", &of_first, "-c", "hub.toml"]);
    assert!(drained.contains("is drained"), "{drained}");
    first.owns(0).await;
    fails(&["move", "east", &of_first], "is draining; end the drain with");
    let text = workdir.printed(&["fleet", "status", "-c", "hub.toml"]);
    assert!(text.contains("drained"), "{text}");
    println!("{text}");
    for cluster in ["east", "west", "north"] {
        assert!(workdir.printed(&["fleet", "move", cluster, "--auto", "-c", "hub.toml"]).contains("no longer pinned"));
    }
    workdir.printed(&["fleet", "drain", &of_first, "--undo", "-c", "hub.toml"]);
    first.owns(1).await;
    change(&mut churns).await;
    let contents = log_follows(&log, &clusters).await;
    assert!(contents.lists.values().all(|lists| *lists == 1), "no move lists: {:?}", contents.lists);
    second.hub.freeze(true);
    let frozen = || workdir.printed(&["fleet", "status", "-c", "hub.toml"]).contains("not seen for");
    assert!(becomes_true(WAIT_DEADLINE, async || frozen()).await);
    fails(&["move", "east", &of_second], "does not renew its entry");
}

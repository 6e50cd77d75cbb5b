//! Tests of hubs that deliver from the log of a fleet: one of them delivers at a time, and its successor continues at
//! its cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use informer_hub::app::{Hub, Role, Serve};
use informer_hub_config::SinkConfig;
use informer_hub_fleet::simulated_log::Faults;
use informer_hub_lease::ElectionParams;
use informer_hub_roles::simulated::{SimulatedBackend, SimulatedFleet};
use informer_hub_roles::{Backend, ReplicaParams};
use informer_hub_sim::{Churn, SimCluster};
use serde_json::Value;

use crate::collect::{Process, SOME_FAULTS, cluster, services};
use crate::fleet::{PATIENCE, config, eventually, file_events, file_sink, quick, with_sinks};
use crate::standby::{change, has_role, is_deletion, receivers_converge, role, uid_of, uids};

const ELECTION: ElectionParams = ElectionParams {
    lease_duration: Duration::from_secs(4),
    renew_deadline: Duration::from_secs(3),
    retry_period: Duration::from_millis(400),
};

pub(crate) type Clusters = BTreeMap<String, SimCluster>;

/// Hub that delivers to a file of its own.
pub(crate) struct Deliverer {
    pub(crate) hub: Hub,
    backend: Arc<SimulatedBackend>,
    file: PathBuf,
}

impl Deliverer {
    async fn start(name: &str, services: &SimulatedFleet, clusters: &Clusters, folder: &Path) -> Self {
        let file = folder.join(format!("{name}.jsonl"));
        Self::start_with(name, services, clusters, (file.clone(), vec![file_sink("file", &file)])).await
    }

    /// Starts a deliverer with its sinks.
    pub(crate) async fn start_with(
        name: &str,
        services: &SimulatedFleet,
        clusters: &Clusters,
        (file, sinks): (PathBuf, Vec<SinkConfig>),
    ) -> Self {
        let backend = Arc::new(services.connect());
        let mut params = ReplicaParams::new(name);
        (params.poll, params.stale) = (Duration::from_millis(50), Duration::from_millis(1500));
        let shared: Arc<dyn Backend> = Arc::<SimulatedBackend>::clone(&backend);
        let serve = Serve { backend: shared, params, election: Some(ELECTION) };
        let config = with_sinks(config(clusters, &["pods"]), sinks);
        let mut tuning = quick();
        // Merges all notifications that wait, as after a long list.
        tuning.merge_above = 0;
        let hub = Hub::builder(config).tuning(tuning).serve(serve).start().await.unwrap();
        // Waits for the first list, so that a standby receives the next changes as events.
        hub.wait_for_cache_sync(PATIENCE).await.unwrap();
        Self { hub, backend, file }
    }

    async fn leads(&self) {
        has_role(&self.hub, Role::Leader).await;
    }

    /// Returns whether this hub is on standby, and its sink has dropped events that the leader delivered and holds
    /// fewer than 30.
    async fn is_in_step(&self) -> bool {
        let report = self.hub.report().await.unwrap();
        let status = &report.sinks[0].status;
        role(&self.hub).await == Role::Standby && status.delivered_elsewhere > 0 && status.pending_events < 30
    }
}

/// Changes pods one by one until the standby is in step. The standby drops a deletion once it has read two later
/// versions.
async fn change_until_in_step(
    standby: &Deliverer,
    (pods, changes): (&SimCluster, &mut Churn),
    created: &mut BTreeSet<String>,
    files: &[PathBuf],
) {
    eventually("the standby drops what the leader delivers", async || {
        created.extend(change(pods, changes, 1));
        receivers_converge(pods, created, || events(files)).await;
        standby.is_in_step().await
    })
    .await;
}

/// Returns the events in the files, in the order of the files.
pub(crate) fn events(files: &[PathBuf]) -> Vec<Value> {
    files.iter().flat_map(|file| file_events(file)).collect()
}

/// Asserts that each deletion was delivered under one id.
pub(crate) fn deletions_have_one_id(events: &[Value]) {
    let mut ids = BTreeMap::<_, BTreeSet<_>>::new();
    for event in events.iter().filter(|event| is_deletion(event)) {
        ids.entry(uid_of(event).unwrap()).or_default().insert(event["id"].as_str().unwrap());
    }
    let doubled: Vec<_> = ids.iter().filter(|(_, ids)| ids.len() > 1).collect();
    assert!(!ids.is_empty() && doubled.is_empty(), "{} deletions, {doubled:?}", ids.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_deliverer_is_succeeded_by_one_that_delivers_the_rest() {
    let (services, clusters, mut changes) = (services(31, SOME_FAULTS), cluster(31, 60), Churn::new(31));
    let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
    let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
    let mut leader = Deliverer::start("d0", &services, &clusters, folder.path()).await;
    leader.leads().await;
    let (mut files, mut created) = (vec![leader.file.clone()], uids(pods));
    for number in 1..=2 {
        let standby = Deliverer::start(&format!("d{number}"), &services, &clusters, folder.path()).await;
        files.push(standby.file.clone());
        created.extend(change(pods, &mut changes, 100));
        receivers_converge(pods, &created, || events(&files)).await;
        change_until_in_step(&standby, (pods, &mut changes), &mut created, &files).await;
        assert!(events(&files[number..]).is_empty(), "a standby delivers nothing");
        created.extend(change(pods, &mut changes, 50));
        drop(std::mem::replace(&mut leader, standby));
        created.extend(change(pods, &mut changes, 50));
        leader.leads().await;
        receivers_converge(pods, &created, || events(&files)).await;
    }
    let all = events(&files);
    deletions_have_one_id(&all);
    let ids: BTreeSet<_> = all.iter().map(|event| event["id"].as_str().unwrap()).collect();
    // Only the last changes before each kill may be repeated.
    let repeated = all.len() - ids.len();
    assert!(repeated < 150, "{repeated} of {} events are repetitions", all.len());
    let report = leader.hub.shutdown(Duration::from_secs(10)).await;
    assert_eq!((report.undelivered, report.actors_left), (Vec::new(), 0));
    collector.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliverer_goes_on_at_the_cursor_after_a_time_without_any() {
    for killed in [false, true] {
        let (services, clusters, mut changes) = (services(32, Faults::NONE), cluster(32, 300), Churn::new(32));
        let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
        let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
        let first = Deliverer::start("first", &services, &clusters, folder.path()).await;
        let mut created = uids(pods);
        created.extend(change(pods, &mut changes, 50));
        receivers_converge(pods, &created, || file_events(&first.file)).await;
        let files = [first.file.clone(), folder.path().join("second.jsonl")];
        eventually("the progress is published", async || services.lease_note("sink.file").contains("pods.")).await;
        if killed {
            let published = services.lease_note("sink.file");
            created.extend(change(pods, &mut changes, 20));
            receivers_converge(pods, &created, || file_events(&first.file)).await;
            eventually("later progress", async || services.lease_note("sink.file") != published).await;
            drop(first);
        } else {
            first.hub.shutdown(Duration::from_secs(10)).await;
        }
        let (before, stopped) = (uids(pods), services.log().end());
        created.extend(change(pods, &mut changes, 60));
        let deleted = before.difference(&uids(pods)).count();
        assert!(deleted > 0, "nothing was deleted meanwhile");
        // The newest checkpoint must be newer than the cursor, so that the second deliverer needs an older one for the
        // state at the cursor.
        let is_newer = |newest: u64| newest > stopped;
        eventually("a newer checkpoint", async || services.checkpoints().into_values().all(is_newer)).await;
        let second = Deliverer::start("second", &services, &clusters, folder.path()).await;
        second.leads().await;
        receivers_converge(pods, &created, || events(&files)).await;
        deletions_have_one_id(&events(&files));
        let repeated = file_events(&files[1]);
        assert!(repeated.len() < 200, "{} events for 60 changes, killed: {killed}", repeated.len());
        assert!(repeated.iter().all(|event| event["data"]["initial"] != true), "nothing begins anew");
        second.hub.shutdown(Duration::from_secs(10)).await;
        collector.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliverer_that_is_cut_off_stops_and_stands_by_when_it_is_back() {
    let (services, clusters, mut changes) = (services(33, Faults::NONE), cluster(33, 40), Churn::new(33));
    let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
    let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
    let first = Deliverer::start("first", &services, &clusters, folder.path()).await;
    first.leads().await;
    let second = Deliverer::start("second", &services, &clusters, folder.path()).await;
    let files = [first.file.clone(), second.file.clone()];
    let mut created = uids(pods);
    created.extend(change(pods, &mut changes, 50));
    receivers_converge(pods, &created, || events(&files)).await;
    change_until_in_step(&second, (pods, &mut changes), &mut created, &files).await;
    first.backend.set_cut_off(true);
    created.extend(change(pods, &mut changes, 50));
    second.leads().await;
    assert_eq!(role(&first.hub).await, Role::Unknown);
    let error = first.hub.report().await.unwrap().ha.unwrap().error;
    assert!(error.is_some());
    let sent = file_events(&first.file).len();
    receivers_converge(pods, &created, || events(&files)).await;
    first.backend.set_cut_off(false);
    has_role(&first.hub, Role::Standby).await;
    created.extend(change(pods, &mut changes, 50));
    receivers_converge(pods, &created, || events(&files)).await;
    assert_eq!(file_events(&first.file).len(), sent, "the former leader delivers nothing more");
    deletions_have_one_id(&events(&files));
    collector.end().await;
}

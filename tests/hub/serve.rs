//! Tests of hubs that serve from the log of a fleet: caches, subscribers and staleness, without a request to an
//! apiserver.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use informer_hub::app::{Hub, Serve};
use informer_hub::cache::Query;
use informer_hub::status::FleetStatus;
use informer_hub_dial::Dial;
use informer_hub_fleet::simulated_log::Faults;
use informer_hub_roles::ReplicaParams;
use informer_hub_roles::simulated::SimulatedFleet;
use informer_hub_sim::{Churn, Fault, FaultScript, ResourceDef, Rule, SimCluster, When, World};
use informer_hub_types::{ApiResource, Phase};
use tokio::net::TcpStream;

use crate::collect::{Process, SOME_FAULTS, churn, cluster, lists, services};
use crate::fleet::{Fleet, config, eventually, quick};

const WIDGETS: &str = "widgets.example.com";

/// Serving hub.
struct Serving {
    fleet: Fleet,
    /// Number of connections to apiservers that the hub has tried to open.
    dials: Arc<AtomicUsize>,
}

impl Serving {
    async fn start(services: &SimulatedFleet, clusters: BTreeMap<String, SimCluster>, resources: &[&str]) -> Self {
        let dials = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&dials);
        let refuse = move |_| {
            counted.fetch_add(1, SeqCst);
            async { Err::<TcpStream, _>(io::Error::from(io::ErrorKind::ConnectionRefused)) }
        };
        let mut params = ReplicaParams::new("replica");
        (params.poll, params.stale) = (Duration::from_millis(50), Duration::from_millis(1500));
        let serve = Serve { backend: Arc::new(services.connect()), params, election: None };
        let builder = Hub::builder(config(&clusters, resources)).tuning(quick()).serve(serve).dial(Dial::new(refuse));
        let hub = builder.start().await.unwrap();
        Self { fleet: Fleet::over(clusters, hub).await, dials }
    }

    async fn status(&self) -> FleetStatus {
        self.fleet.hub.report().await.unwrap().fleet.unwrap()
    }

    /// Waits until the pods of the cluster are stale for a reason, or current.
    async fn is_stale(&self, reason: Option<&str>) {
        self.fleet
            .shows("c0", &format!("stale: {reason:?}"), |pods| match reason {
                Some(reason) => {
                    pods.state == Phase::Stale && pods.last_error.as_ref().is_some_and(|error| error.contains(reason))
                }
                None => pods.state == Phase::Watching,
            })
            .await;
    }

    async fn end(self) {
        self.fleet.end().await;
        assert_eq!(self.dials.load(SeqCst), 0, "requests to an apiserver");
    }
}

fn defined() -> ResourceDef {
    ResourceDef::new(&World::widgets(), "Widget", true, true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_follows_the_log_over_takeovers_without_a_request() {
    let (services, mut changes) = (services(21, SOME_FAULTS), Churn::new(21));
    // The replica starts before there is a log.
    let serving = Serving::start(&services, cluster(21, 60), &["pods"]).await;
    let clusters = &serving.fleet.clusters;
    let mut collector = Process::start_with("collector-0", &services, clusters, &["pods"]).await;
    serving.fleet.synced().await;
    churn(clusters, &mut changes, 60);
    serving.fleet.converged().await;
    let listed = lists(clusters);
    for number in 1..=2 {
        let next = Process::start_with(&format!("collector-{number}"), &services, clusters, &["pods"]).await;
        churn(clusters, &mut changes, 40);
        drop(std::mem::replace(&mut collector, next));
        churn(clusters, &mut changes, 40);
        serving.fleet.converged().await;
    }
    assert_eq!(lists(clusters), listed, "a takeover lists nothing");
    assert!(serving.fleet.hub.report().await.unwrap().hub.ready);
    let status = serving.status().await;
    assert_eq!((status.role, status.owned, status.clusters[0].own), ("serve", 0, false));
    assert_eq!(status.clusters[0].owner.as_deref(), Some("collector-2"));
    let server = serving.fleet.cluster("c0").await;
    assert_eq!(server.server, Some(clusters["c0"].url()), "known from the collector");
    collector.end().await;
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_serves_what_is_there_without_any_collector_and_says_so() {
    let (services, mut changes) = (services(22, Faults::NONE), Churn::new(22));
    let serving = Serving::start(&services, cluster(22, 30), &["pods"]).await;
    let clusters = &serving.fleet.clusters;
    serving.fleet.eventually("no collector", async || serving.status().await.clusters[0].stale_since.is_some()).await;
    let first = Process::start_with("first", &services, clusters, &["pods"]).await;
    serving.fleet.converged().await;
    serving.is_stale(None).await;
    drop(first);
    serving.is_stale(Some("collector first has not renewed its ownership since")).await;
    let status = serving.status().await;
    assert!(status.connected && status.clusters[0].stale_since.is_some(), "{status:?}");
    // The cluster's objects are still cached, and another replica gets them too.
    serving.fleet.converged().await;
    let late = Serving::start(&services, cluster(22, 30), &["pods"]).await;
    eventually("objects of the log", async || late.fleet.cached("c0").await == serving.fleet.cached("c0").await).await;
    late.is_stale(Some("has not renewed its ownership")).await;
    late.end().await;

    let second = Process::start_with("second", &services, clusters, &["pods"]).await;
    serving.is_stale(None).await;
    services.set_down(true);
    churn(clusters, &mut changes, 30);
    serving.is_stale(Some("the fleet's data about the cluster has been unreadable since")).await;
    assert!(!serving.status().await.connected);
    services.set_down(false);
    serving.is_stale(None).await;
    serving.fleet.converged().await;

    // The cluster refuses the watches of the next collector.
    clusters["c0"].set_faults(FaultScript::one(Rule::new(When::Watch, Fault::Unavailable).times(usize::MAX)));
    second.end().await;
    let third = Process::start_with("third", &services, clusters, &["pods"]).await;
    serving.is_stale(Some("its collector has failed to watch the resource since")).await;
    clusters["c0"].heal();
    churn(clusters, &mut changes, 30);
    serving.is_stale(None).await;
    serving.fleet.converged().await;
    third.end().await;
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_learns_definitions_from_the_collector() {
    let services = services(23, Faults::NONE);
    let clusters = cluster(23, 5);
    clusters["c0"].unregister(&World::widgets());
    let resources = ["pods", WIDGETS];
    let serving = Serving::start(&services, clusters, &resources).await;
    let collector = Process::start_with("collector", &services, &serving.fleet.clusters, &resources).await;
    let phase = async || {
        let informers = serving.fleet.cluster("c0").await.informers;
        informers.into_iter().find(|informer| informer.resource == WIDGETS).map(|informer| informer.state)
    };
    eventually("the definition is missing", async || phase().await == Some(Phase::Absent)).await;
    serving.fleet.ready().await;
    serving.fleet.clusters["c0"].with_world(|world| {
        world.register(defined());
        world.create_widget("first").unwrap();
    });
    eventually("widgets are watched", async || phase().await == Some(Phase::Watching)).await;
    let resource = ApiResource { gvr: World::widgets(), kind: "Widget".into(), namespaced: true };
    eventually("the widget", async || {
        let answer = serving.fleet.hub.cache_of(resource.clone()).send(Query::list()).await;
        matches!(answer, Ok(Ok(answer)) if answer.items.len() == 1)
    })
    .await;
    collector.end().await;
    serving.end().await;
}

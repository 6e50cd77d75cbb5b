//! Recovery time of a cluster's informers after an outage, on a paused clock with a seeded RNG.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use actix::prelude::*;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::watch;

use crate::actors::control::cluster::{ClusterActor, ClusterParts};
use crate::actors::control::messages::Resolved;
use crate::actors::runtime::supervision::{ExitGuard, start_control};
use crate::actors::subscribe::requests::RequestInformer;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::User;
use crate::actors::{Env, ThreadPools, Tuning};
use crate::cache::testing::pods;
use informer_hub_reflector::{
    Connection, Connector, Discovered, ErrorClass, InformerOptions, ListChunk, ListRequest, ListStream, ListerWatcher,
    ResolveError, Server, SourceError, WatchRequest, WatchStream,
};
use informer_hub_types::rng::SeededRng;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, ResourceRef, ResourceVersion, Scope, Threads, clock,
};

/// Cluster that is up or refuses connections.
#[derive(Clone, Debug)]
struct SwitchableCluster {
    up: watch::Receiver<bool>,
    open: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// Counts an open watch until dropped.
struct OpenWatch(Arc<AtomicUsize>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl SwitchableCluster {
    fn ask(&self) -> Result<(), SourceError> {
        self.requests.fetch_add(1, Relaxed);
        if *self.up.borrow() { Ok(()) } else { Err(refused()) }
    }
}

fn refused() -> SourceError {
    SourceError { class: ErrorClass::Refused, message: "connection refused".to_owned() }
}

impl Connector for SwitchableCluster {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let connection: Arc<dyn Connection> = Arc::new(self.clone());
        std::future::ready(Ok(connection)).boxed()
    }
}

impl Connection for SwitchableCluster {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        std::future::ready(self.ask().map(|()| Server { address: "https://fragile:6443".to_owned(), version: None }))
            .boxed()
    }

    fn resolve(&self, _: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        std::future::ready(self.ask().map(|()| pods()).map_err(ResolveError::Unavailable)).boxed()
    }

    fn catalogue(&self, _: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        std::future::ready(Err(refused())).boxed()
    }

    fn lister_watcher(&self, _: &ApiResource, _: &Scope, _: &InformerOptions) -> Arc<dyn ListerWatcher> {
        Arc::new(self.clone())
    }
}

impl ListerWatcher for SwitchableCluster {
    fn list(&self, _: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let end = ListChunk::End { version: ResourceVersion::new("1"), continue_token: None, remaining: None };
        std::future::ready(self.ask().map(|()| stream::iter([Ok(end)]).boxed())).boxed()
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        if let Err(error) = self.ask() {
            return std::future::ready(Err(error)).boxed();
        }
        self.open.fetch_add(1, Relaxed);
        let (mut up, open) = (self.up.clone(), OpenWatch(Arc::clone(&self.open)));
        let broken = async move {
            let _open = open;
            let _ = up.wait_for(|up| !up).await;
            Err(refused())
        };
        std::future::ready(Ok(stream::once(broken).boxed())).boxed()
    }
}

struct NullRegistry;

impl Actor for NullRegistry {
    type Context = Context<Self>;
}

impl Handler<Resolved> for NullRegistry {
    type Result = ();

    fn handle(&mut self, _: Resolved, _: &mut Self::Context) {}
}

struct Recovery {
    /// Time from the end of the outage until the first watch was open.
    first: Duration,
    /// Time from the end of the outage until all watches were open.
    all: Duration,
    /// Requests during the outage.
    requests: usize,
}

/// Simulates an outage of five minutes, and returns how the informers recover from it.
///
/// With `before_start`, the cluster has never answered before. With `separate`, each informer has a cluster actor of its
/// own, so no recovery signal is shared.
fn outage(seed: u64, informers: usize, before_start: bool, separate: bool) -> Recovery {
    let _rng = SeededRng::new(seed);
    System::new().block_on(async {
        tokio::time::pause();
        let (switch, up) = watch::channel(!before_start);
        let cluster = SwitchableCluster { up, open: Arc::default(), requests: Arc::default() };
        let mut tuning = Tuning::default();
        tuning.reflector.streaming_list = false;
        let threads = Threads::simulated(tokio::runtime::Handle::current());
        let arbiter = Arbiter::current();
        let env = Env::new(ThreadPools::of(&threads), vec![arbiter.clone()], tuning);
        let cluster_actor = |number: usize| {
            let parts = ClusterParts {
                name: ClusterName::new(format!("c{number}")).unwrap(),
                labels: ClusterLabels::new(),
                connector: Arc::new(cluster.clone()),
                view: Arc::default(),
                registry: NullRegistry.start().recipient(),
                subscriptions: Vec::new(),
            };
            let (env, guard) = (env.clone(), ExitGuard::new(0, 0, None, &env.actor_count));
            start_control(&arbiter, move |_| ClusterActor::new(env, parts, guard))
        };
        let actors: Vec<_> = (0..if separate { informers } else { 1 }).map(cluster_actor).collect();
        for number in 0..informers {
            let scope = Scope { namespace: Some(format!("n{number}").into()), ..Scope::all() };
            let wanted = ResourceRequest::Written("pods".parse().unwrap());
            let options = Arc::<InformerOptions>::default();
            let user = User::Caller("test".to_owned());
            actors[number % actors.len()]
                .send(RequestInformer { user, wanted, scope, options, watch_errors: None })
                .await
                .unwrap();
        }
        let opened = async |count: usize| {
            while cluster.open.load(Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            clock::now()
        };
        if !before_start {
            opened(informers).await;
            tokio::time::sleep(Duration::from_secs(120)).await;
        }
        let asked = cluster.requests.load(Relaxed);
        switch.send_replace(false);
        tokio::time::sleep(Duration::from_secs(300)).await;
        let requests = cluster.requests.load(Relaxed) - asked;
        switch.send_replace(true);
        let returned = clock::now();
        let first = opened(1).await - returned;
        let all = opened(informers).await - returned;
        Recovery { first, all, requests }
    })
}

/// The first informer recovers at the end of the shortest wait. The others follow within the spread of 250 ms, or twice
/// that if they must resolve their resource first.
#[test]
fn informers_of_a_cluster_recover_together_after_an_outage() {
    for (informers, before_start) in [(1, false), (10, false), (50, false), (10, true), (50, true)] {
        for seed in 1..=5 {
            let separate = outage(seed, informers, before_start, true);
            println!(
                "{informers} informers apart, seed {seed}: all after {:?}, {} requests",
                separate.all, separate.requests
            );
            assert!(
                informers == 1 || separate.all > Duration::from_secs(2),
                "seed {seed}: recovered without the signal"
            );
            let Recovery { first, all, requests } = outage(seed, informers, before_start, false);
            println!(
                "{informers} informers, never answered {before_start}, seed {seed}: first after {first:?}, all after \
                 {all:?}, {requests} requests in the outage"
            );
            let rest = all.saturating_sub(first);
            let lookups = if before_start { 2 } else { 1 };
            assert!(rest <= Duration::from_millis(300) * lookups, "seed {seed}: the others after {rest:?}");
            assert!(first <= Duration::from_secs(61), "seed {seed}: the first after {first:?}");
        }
    }
}

//! Informer actor tests: restarts of its pipeline.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::runtime::Runtime;

use crate::actors::ActorCount;
use crate::actors::control::informer::{InformerActor, InformerParts};
use crate::actors::control::messages::{Relist, WatchMode};
use crate::actors::runtime::recovery::RecoverySignal;
use crate::actors::runtime::supervision::ExitGuard;
use crate::actors::tests::fleet::PATIENCE;
use crate::actors::tests::reflector::{Swallow, end, lists};
use crate::actors::tests::{Crash, Victim};
use crate::actors::{Env, ThreadPools, Tuning};
use crate::cache::testing::{object, origin, pods};
use informer_hub_reflector::{ListChunk, ReflectorOptions};
use informer_hub_types::{InformerHealth, Threads, View};

fn list(version: &str) -> Vec<ListChunk> {
    vec![ListChunk::Items(vec![Arc::new(object("ns", "a", "u", 1))]), end(version)]
}

/// Polls until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("timeout: {what}"));
}

#[test]
fn changed_definition_is_compared_although_the_cache_dies_at_the_relist() {
    let io = Runtime::new().unwrap();
    let handle = Threads::of(io.handle().clone());
    // All actors share one thread, so their order is fixed.
    System::new().block_on(async move {
        let reflector = ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() };
        let tuning = Tuning { reflector, ..Tuning::default() };
        let env = Env::new(ThreadPools::of(&handle), vec![Arbiter::current()], tuning);
        let health = InformerHealth::new();
        health.set_definition_generation(1);
        let parts = InformerParts {
            origin: origin("c"),
            health: Arc::clone(&health),
            source: lists(vec![list("1")]),
            indexes: Arc::default(),
            settings: 0,
            watch_errors: Arc::default(),
            outcomes: Swallow.start().recipient(),
            recovery: RecoverySignal::new(),
            mode: WatchMode::Active,
            moved_from: None,
        };
        let guard = ExitGuard::new(0, 0, None, &ActorCount::default());
        let informer = InformerActor::new(env.clone(), parts, Vec::new(), guard).start();
        until("the first list", || health.has_synced()).await;
        let source = lists(vec![list("2")]);
        informer.do_send(Relist { source, indexes: Arc::default(), settings: 0, converted_by: Some(2) });
        // The cache gets this before the request to open the partition, which fails.
        env.caches.of(&pods(), &View::Shared).do_send(Crash(Victim::Processor));
        until("the list after the change", || health.definition_generation() == 2).await;
    });
    io.shutdown_background();
}

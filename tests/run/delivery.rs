//! End-to-end tests of webhooks: a receiver that fails in any way converges, with signed events in order.

use std::time::Duration;

use informer_hub_sim::{Churn, SimCluster, World};

use crate::process::{Launch, Process, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};

const RESOURCES: &str = "[resources.pods]\n[resources.nodes]\n";

fn launch(sim: &SimCluster, receiver: &Receiver) -> Process {
    let toml = cluster("c0", &sim.url()) + RESOURCES + &receiver.sink("hook");
    Launch::new(&toml).env("HOOK_SECRET", SECRET).start()
}

fn churn(sim: &SimCluster, churn: &mut Churn, steps: usize) {
    for _ in 0..steps {
        sim.with_world(|world| churn.step(world));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_applies_the_events_converges() {
    let (first, second) = (sim(1, 60), sim(2, 40));
    let receiver = Receiver::start(Mode::Healthy);
    let toml = cluster("c0", &first.url()) + &cluster("c1", &second.url()) + RESOURCES + &receiver.sink("hook");
    let hub = Launch::new(&toml).env("HOOK_SECRET", SECRET).start();
    hub.ready().await;
    let mut churns = (Churn::new(1), Churn::new(2));
    for _ in 0..10 {
        churn(&first, &mut churns.0, 40);
        churn(&second, &mut churns.1, 40);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    for gvr in [World::pods(), World::nodes()] {
        receiver.converged("c0", &first, &gvr).await;
        receiver.converged("c1", &second, &gvr).await;
    }
    assert!(!receiver.seen("c0", &World::pods()).is_empty());
    let status = hub.status().await;
    let sink = &status["sinks"][0];
    assert_eq!((&sink["name"], &sink["pendingEvents"], &sink["deadLettered"]), (&"hook".into(), &0.into(), &0.into()));
    assert_eq!(sink["delivered"].as_u64(), Some(receiver.received(|received| received.events)), "{sink}");
}

/// Runs a receiver in a failing mode during changes and asserts that it converges afterwards.
async fn assert_converges_after(mode: Mode) {
    let sim = sim(3, 50);
    let receiver = Receiver::start(mode);
    let hub = launch(&sim, &receiver);
    let mut changes = Churn::new(3);
    for round in 1..=4 {
        churn(&sim, &mut changes, 30);
        receiver.met(mode, round).await;
    }
    receiver.set(Mode::Healthy);
    for gvr in [World::pods(), World::nodes()] {
        receiver.converged("c0", &sim, &gvr).await;
    }
    let status = hub.status().await;
    let sink = &status["sinks"][0];
    let slow = matches!(mode, Mode::Slow(_));
    assert_eq!(sink["retries"].as_u64() > Some(0), !slow, "{mode:?}: {sink}");
    assert_eq!(sink["deadLettered"], 0, "{sink}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_answers_500_loses_nothing() {
    assert_converges_after(Mode::Error).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_redirects_loses_nothing() {
    assert_converges_after(Mode::Redirect).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_closes_during_its_answer_loses_nothing() {
    assert_converges_after(Mode::Close).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_receiver_loses_nothing() {
    assert_converges_after(Mode::Slow(Duration::from_millis(300))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_receiver_loses_nothing() {
    assert_converges_after(Mode::Silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_is_down_at_the_start_loses_nothing() {
    let sim = sim(4, 50);
    let mut receiver = Receiver::closed();
    let hub = launch(&sim, &receiver);
    hub.ready().await;
    let warning = hub.line("delivery failed").await;
    assert_eq!((&warning["sink"], &warning["level"]), (&"hook".into(), &"WARN".into()), "{warning}");
    churn(&sim, &mut Churn::new(4), 50);
    let sink = &hub.status().await["sinks"][0];
    assert!(sink["pendingEvents"].as_u64() > Some(0) && sink["delivered"] == 0, "{sink}");
    assert!(sink["lastError"].as_str().is_some_and(|error| error.contains("refused")), "{sink}");
    receiver.open();
    receiver.converged("c0", &sim, &World::pods()).await;
    let sink = &hub.status().await["sinks"][0];
    assert!(sink["lastError"].is_null(), "{sink}");
}

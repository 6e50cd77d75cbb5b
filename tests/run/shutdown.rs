//! Tests of shutdown: draining, the deadline, a second signal.

use std::time::{Duration, Instant};

use informer_hub_sim::{SimCluster, World};

use crate::process::{Launch, Process, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

fn launch(hub: &str, url: &str, receiver: &Receiver) -> Process {
    let toml = format!("{hub}{}[resources.pods]\n{}", cluster("c0", url), receiver.sink("hook"));
    Launch::new(&toml).env("HOOK_SECRET", SECRET).start()
}

/// Starts a hub over a cluster's pods and waits until its receiver has handled a request in this mode.
async fn started(sim: SimCluster, mode: Mode, settings: &str) -> (SimCluster, Receiver, Process) {
    let receiver = Receiver::start(mode);
    let hub = launch(settings, &sim.url(), &receiver);
    hub.ready().await;
    receiver.met(mode, 1).await;
    (sim, receiver, hub)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_receiver_gets_all_events_before_the_exit() {
    let (sim, receiver, mut hub) = started(sim(1, 200), Mode::Slow(Duration::from_millis(300)), "").await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    receiver.assert_clean();
    assert_eq!(receiver.seen("c0", &World::pods()), sim.truth(&World::pods()));
    assert_eq!(hub.count("SIGTERM: shutting down"), 1);
    assert_eq!(hub.count("no sink has events left"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_events_at_the_deadline_exit_with_1() {
    let (_sim, _receiver, mut hub) = started(sim(2, 30), Mode::Error, "shutdown_deadline = \"1s\"\n").await;
    let signalled = Instant::now();
    hub.signal("INT");
    assert_eq!(hub.ended().await, 1);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
    let line = hub.line("not delivered within").await;
    let values = (&line["level"], &line["sink"], &line["events"]);
    assert_eq!(values, (&"ERROR".into(), &"hook".into(), &30.into()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_events_of_a_full_sink_are_counted() {
    let sim = sim(5, 15_000);
    let receiver = Receiver::start(Mode::Error);
    let mut hub = launch("shutdown_deadline = \"1s\"\n", &sim.url(), &receiver);
    until("a full sink", async || (hub.status().await["sinks"][0]["held"].as_u64() > Some(0)).then_some(())).await;
    hub.ready().await;
    assert_eq!(hub.count("delivery failed"), 1);
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 1);
    let line = hub.line("not delivered within").await;
    // The count may include one more notification, `synced`, which the full sink has not accepted.
    assert!((15_000..=15_001).contains(&line["events"].as_u64().unwrap()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_ends_the_hub_at_once() {
    for (second, code) in [("TERM", 143), ("INT", 130)] {
        let (_sim, _receiver, mut hub) = started(sim(3, 30), Mode::Silent, "shutdown_deadline = \"10m\"\n").await;
        hub.signal("TERM");
        hub.line("shutting down").await;
        let signalled = Instant::now();
        // A second signal within 0.1 s of the first is ignored as a duplicate.
        assert_eq!(hub.ended_by(second).await, code);
        assert!(signalled.elapsed() < Duration::from_secs(5), "{:?}", signalled.elapsed());
        assert_eq!(hub.count("second signal"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_answer_while_the_hub_drains() {
    let (sim, receiver, mut hub) = started(sim(4, 30), Mode::Silent, "shutdown_deadline = \"10m\"\n").await;
    hub.signal("TERM");
    hub.line("shutting down").await;
    until("not ready", async || (hub.get("/readyz").await.0 == 503).then_some(())).await;
    assert_eq!(hub.get("/livez").await.0, 200);
    receiver.set(Mode::Healthy);
    assert_eq!(hub.ended().await, 0);
    assert_eq!(receiver.seen("c0", &World::pods()), sim.truth(&World::pods()));
}

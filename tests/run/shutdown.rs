//! How a run ends: drained, at its deadline, at a second signal.

use std::time::{Duration, Instant};

use informer_hub_sim::{SimCluster, World};

use crate::process::{Launch, Process, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::waiting::until;

fn launch(hub: &str, url: &str, receiver: &Receiver) -> Process {
    let toml = format!("{hub}{}[resources.pods]\n{}", cluster("c0", url), receiver.sink("hook"));
    Launch::new(&toml).env("HOOK_SECRET", SECRET).start()
}

/// A hub over a cluster's pods, whose receiver has met it in this mode.
async fn met(sim: SimCluster, mode: Mode, settings: &str) -> (SimCluster, Receiver, Process) {
    let receiver = Receiver::start(mode);
    let hub = launch(settings, &sim.url(), &receiver);
    hub.ready().await;
    receiver.met(mode, 1).await;
    (sim, receiver, hub)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_receiver_gets_everything_before_the_exit() {
    let (sim, receiver, mut hub) = met(sim(1, 200), Mode::Slow(Duration::from_millis(300)), "").await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    receiver.is_clean();
    assert_eq!(receiver.seen("c0", &World::pods()), sim.truth(&World::pods()));
    assert_eq!(hub.count("SIGTERM: shutting down"), 1);
    assert_eq!(hub.count("no sink has events left"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_undelivered_at_the_deadline_make_the_exit_code_1_and_are_counted_per_sink() {
    let (_sim, _receiver, mut hub) = met(sim(2, 30), Mode::Error, "shutdown_deadline = \"1s\"\n").await;
    let asked = Instant::now();
    hub.signal("INT");
    assert_eq!(hub.ended().await, 1);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let line = hub.line("not delivered within").await;
    let told = (&line["level"], &line["sink"], &line["events"]);
    assert_eq!(told, (&"ERROR".into(), &"hook".into(), &30.into()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_a_full_sink_had_no_room_for_are_counted_too_and_a_failure_is_logged_once_for_all_lanes() {
    let sim = sim(5, 15_000);
    let receiver = Receiver::start(Mode::Error);
    let mut hub = launch("shutdown_deadline = \"1s\"\n", &sim.url(), &receiver);
    until("a full sink", async || (hub.status().await["sinks"][0]["held"].as_u64() > Some(0)).then_some(())).await;
    hub.ready().await;
    assert_eq!(hub.count("delivery failed"), 1);
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 1);
    let line = hub.line("not delivered within").await;
    // One more for `synced`, which the sink would not have taken.
    assert!((15_000..=15_001).contains(&line["events"].as_u64().unwrap()), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once_with_the_code_of_that_signal() {
    for (second, code) in [("TERM", 143), ("INT", 130)] {
        let (_sim, _receiver, mut hub) = met(sim(3, 30), Mode::Silent, "shutdown_deadline = \"10m\"\n").await;
        hub.signal("TERM");
        hub.line("shutting down").await;
        let asked = Instant::now();
        // One that follows the first within a tenth of a second is taken for its echo.
        assert_eq!(hub.ended_by(second).await, code);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        assert_eq!(hub.count("second signal"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_answer_while_it_drains_and_it_is_not_ready_then() {
    let (sim, receiver, mut hub) = met(sim(4, 30), Mode::Silent, "shutdown_deadline = \"10m\"\n").await;
    hub.signal("TERM");
    hub.line("shutting down").await;
    until("not ready", async || (hub.get("/readyz").await.0 == 503).then_some(())).await;
    assert_eq!(hub.get("/livez").await.0, 200);
    receiver.set(Mode::Well);
    assert_eq!(hub.ended().await, 0);
    assert_eq!(receiver.seen("c0", &World::pods()), sim.truth(&World::pods()));
}

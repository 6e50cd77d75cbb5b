//! Tests of state that outlives the process: undelivered events, dead letters, caches.

use std::path::Path;
use std::process::Command;

use informer_hub_sim::{Churn, SimCluster, World};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Launch, Process, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

const RESOURCES: &str = "[resources.pods]\n[resources.nodes]\n";

pub(crate) fn launch(sim: &SimCluster, receiver: &Receiver, state: &Path) -> Process {
    prepare(sim, receiver, state).start()
}

fn prepare(sim: &SimCluster, receiver: &Receiver, state: &Path) -> Launch {
    let state = format!("state_dir = {:?}\ncheckpoint = \"100ms\"\n", state.display().to_string());
    let toml = state + &cluster("c0", &sim.url()) + RESOURCES + &receiver.sink("hook");
    Launch::new(&toml).env("HOOK_SECRET", SECRET)
}

fn churn(sim: &SimCluster, churn: &mut Churn, steps: usize) {
    for _ in 0..steps {
        sim.with_world(|world| churn.step(world));
    }
}

fn state_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Hub that was shut down while its receiver failed, with its state directory.
pub(crate) struct StoppedHub {
    pub(crate) sim: SimCluster,
    pub(crate) receiver: Receiver,
    pub(crate) state: TempDir,
    pub(crate) hub: Process,
}

pub(crate) async fn stopped_with_a_failing_receiver(seed: u64) -> StoppedHub {
    let (sim, state) = (sim(seed, 50), state_dir());
    let receiver = Receiver::start(Mode::Error);
    let mut hub = launch(&sim, &receiver, state.path());
    hub.ready().await;
    receiver.met(Mode::Error, 8).await;
    hub.signal("TERM");
    assert_eq!(hub.ended().await, 0);
    StoppedHub { sim, receiver, state, hub }
}

/// Inverts a byte in the middle of a directory's last file with `part` in its name, and returns that name.
pub(crate) fn damage(dir: &Path, part: &str) -> String {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = names.filter(|name| name.contains(part)).max().unwrap();
    let mut bytes = std::fs::read(dir.join(&name)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(dir.join(&name), bytes).unwrap();
    name
}

async fn sink_status(hub: &Process) -> Value {
    hub.status().await["sinks"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_hub_delivers_undelivered_and_missed_events_after_restart() {
    let (sim, state) = (sim(5, 60), state_dir());
    let receiver = Receiver::start(Mode::Healthy);
    let mut changes = Churn::new(5);
    let hub = launch(&sim, &receiver, state.path());
    hub.ready().await;
    receiver.converged("c0", &sim, &World::pods()).await;
    receiver.set(Mode::Error);
    churn(&sim, &mut changes, 150);
    until("events wait in the journal", async || {
        (sink_status(&hub).await["journal"]["pending"].as_u64() > Some(50)).then_some(())
    })
    .await;
    // Killed with SIGKILL: nothing is flushed.
    drop(hub);
    churn(&sim, &mut changes, 100);
    receiver.set(Mode::Healthy);
    let hub = launch(&sim, &receiver, state.path());
    for gvr in [World::pods(), World::nodes()] {
        receiver.converged("c0", &sim, &gvr).await;
    }
    until("nothing is pending", async || (sink_status(&hub).await["pendingEvents"] == 0).then_some(())).await;
    let sink = sink_status(&hub).await;
    assert_eq!(sink["deadLettered"], 0, "{sink}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_kills_at_random_moments_lose_nothing() {
    let (sim, state) = (sim(6, 40), state_dir());
    let receiver = Receiver::start(Mode::Healthy);
    let mut changes = Churn::new(6);
    for round in 0..10_u64 {
        let hub = launch(&sim, &receiver, state.path());
        receiver.set(if round % 3 == 0 { Mode::Close } else { Mode::Healthy });
        for _ in 0..=round % 4 {
            churn(&sim, &mut changes, 20);
            // A different delay in each round.
            tokio::time::sleep(std::time::Duration::from_millis(40 + 37 * round)).await;
        }
        drop(hub);
        churn(&sim, &mut changes, 10);
    }
    receiver.set(Mode::Healthy);
    let _hub = launch(&sim, &receiver, state.path());
    for gvr in [World::pods(), World::nodes()] {
        receiver.converged("c0", &sim, &gvr).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_with_a_dead_receiver_keeps_events_in_the_journal() {
    let StoppedHub { sim, receiver, state, hub } = stopped_with_a_failing_receiver(7).await;
    let line = hub.line("stay in the journal for the next start").await;
    assert!(line["events"].as_u64() > Some(0), "{line}");
    receiver.set(Mode::Healthy);
    let _hub = launch(&sim, &receiver, state.path());
    receiver.converged("c0", &sim, &World::pods()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_hub_on_the_same_state_directory_is_refused() {
    let (sim, state) = (sim(8, 5), state_dir());
    let receiver = Receiver::start(Mode::Healthy);
    let hub = launch(&sim, &receiver, state.path());
    hub.ready().await;
    let mut second = launch(&sim, &receiver, state.path());
    assert_eq!(second.ended().await, 1);
    assert!(second.log().contains("is in use by process"), "{}", second.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_size_limit_is_reported_and_does_not_end_the_hub() {
    let (sim, state) = (sim(9, 40), state_dir());
    let receiver = Receiver::start(Mode::Error);
    let limited =
        prepare(&sim, &receiver, state.path()).env("INFORMER_HUB_HUB__SHUTDOWN_DEADLINE", "1s").after("ulimit -f 20");
    let mut hub = limited.start();
    hub.ready().await;
    let error = until("the journal rejects appends", async || {
        sink_status(&hub).await["journal"]["trouble"].as_str().map(ToOwned::to_owned)
    })
    .await;
    assert!(error.starts_with("cannot write to the disk: File too large"), "{error}");
    hub.signal("TERM");
    assert!([0, 1].contains(&hub.ended().await), "the hub ends without a signal");
    receiver.set(Mode::Healthy);
    let _hub = launch(&sim, &receiver, state.path());
    receiver.converged("c0", &sim, &World::pods()).await;
}

fn all_objects(sim: &SimCluster) -> u64 {
    [World::pods(), World::nodes()].map(|gvr| sim.truth(&gvr).len() as u64).iter().sum()
}

/// Runs `dead-letters` and returns its JSON output.
async fn dead_letters(hub: &Process, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_informer-hub"))
        .arg("dead-letters")
        .args(arguments)
        .args(["-o", "json", "--server", &hub.url().await])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_survive_a_restart_and_are_replayed_and_purged() {
    let (sim, state) = (sim(9, 12), state_dir());
    let receiver = Receiver::start(Mode::Unprocessable);
    let hub = launch(&sim, &receiver, state.path());
    hub.ready().await;
    let count = |status: &Value| status["journal"]["deadLetters"].as_u64().unwrap_or_default();
    until("all events are dead letters", async || {
        let status = sink_status(&hub).await;
        (status["pendingEvents"] == 0 && count(&status) == all_objects(&sim)).then_some(())
    })
    .await;
    let all = dead_letters(&hub, &["list", "hook"]).await;
    let letters = all.as_array().unwrap();
    assert!(letters[0]["error"].as_str().unwrap().contains("422"), "{}", letters[0]);
    drop(hub);
    receiver.set(Mode::Healthy);
    let hub = launch(&sim, &receiver, state.path());
    hub.ready().await;
    assert_eq!(dead_letters(&hub, &["list", "hook"]).await, all);
    let number = letters[0]["number"].to_string();
    let shown = dead_letters(&hub, &["show", "hook", &number]).await;
    assert_eq!((&shown["id"], &shown["body"]["id"]), (&letters[0]["id"], &letters[0]["id"]));
    let nodes = dead_letters(&hub, &["purge", "hook", "--subject", "/v1/nodes/"]).await["count"].as_u64().unwrap();
    let pods = dead_letters(&hub, &["replay", "hook", "--all"]).await["count"].as_u64().unwrap();
    assert!(nodes > 0 && pods == 12, "{nodes} nodes, {pods} pods");
    assert_eq!(nodes + pods, letters.len() as u64);
    receiver.converged("c0", &sim, &World::pods()).await;
    assert!(receiver.seen("c0", &World::nodes()).is_empty());
    assert_eq!(dead_letters(&hub, &["list", "hook"]).await, serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_journal_loses_only_damaged_events_and_is_reported() {
    let StoppedHub { sim, receiver, state, .. } = stopped_with_a_failing_receiver(10).await;
    damage(&state.path().join("sinks/hook/journal"), ".log");
    receiver.set(Mode::Healthy);
    let hub = launch(&sim, &receiver, state.path());
    let line = hub.line("found damaged records").await;
    assert_eq!((&line["sink"], &line["level"]), (&"hook".into(), &"ERROR".into()), "{line}");
    until("the rest is delivered", async || (sink_status(&hub).await["pendingEvents"] == 0).then_some(())).await;
    let (pods, nodes) = (receiver.seen("c0", &World::pods()).len(), receiver.seen("c0", &World::nodes()).len());
    assert_eq!((pods + nodes) as u64, all_objects(&sim) - 1, "one event is damaged");
}

//! client-go reads from the hub through the fault-injecting proxy, and from the apiserver directly.
//!
//! The hub is a process with TLS and tokens, so client-go speaks HTTP/2 with it. Faults hit the connection between
//! client-go and the hub, and the hub itself. The notifications of client-go through the hub are verified against the
//! recorded changes, and compared with those of client-go at the apiserver. They may lack only changes that client-go's
//! own lists skipped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use informer_hub_types::clock;
use kube::Client;
use tokio::time::sleep;

use super::clientgo::ClientGo;
use super::faults::{change, change_under, fail_on, fault, wrong_objects};
use super::history::{Kind, Log};
use super::judge::Tally;
use super::pair::{HandlerPair, Reads};
use super::run::{SETTLE, listed, ticks};
use super::schedule::{Disruption, Schedule, Step};
use super::writer::Writer;
use crate::bed::{RealCluster, becomes_true, create_namespace, install_widgets};
use crate::proxy::{Fault, FaultProxy};
use crate::workdir::{Running, Workdir};

/// Default schedules, which together contain every fault.
const ORDINARY: [u64; 4] = [1, 2, 13, 20];

/// Files of the hub.
const TOKEN: &str = "token";
const READ_TOKEN: &str = "read-token";

/// The hub as a process. Dropping it kills it.
struct HubOverTls {
    workdir: Workdir,
    running: Option<Running>,
    token: String,
}

impl HubOverTls {
    /// Starts a hub that serves the certificate of the cluster's apiserver and accepts its admin's token.
    async fn start(cluster: &RealCluster, is_durable: bool) -> Self {
        let workdir = Workdir::new().with_tls(cluster.ca());
        let file = |name: &str| cluster.ca().with_file_name(name).display().to_string();
        let mut toml = format!(
            "[hub]\nlisten = {:?}\n[hub.tls]\ncert_file = {:?}\nkey_file = {:?}\n[hub.auth]\ntoken = {{ file = {TOKEN:?} }}\n\
             read_token = {{ file = {READ_TOKEN:?} }}\n[clusters.{}]\nkubeconfig = {:?}\n",
            workdir.listen(),
            file("serving.crt"),
            file("serving.key"),
            cluster.name(),
            cluster.kubeconfig().display().to_string(),
        );
        if is_durable {
            toml = toml.replacen('\n', "\nstate_dir = \"state\"\ncheckpoint = \"200ms\"\n", 1);
        }
        for kind in Kind::ALL {
            let gvr = kind.resource().gvr;
            let dot = if gvr.group.is_empty() { "" } else { "." };
            let _ = writeln!(toml, "[resources.\"{}{dot}{}\"]", gvr.resource, gvr.group);
        }
        workdir.write("hub.toml", &toml);
        workdir.write(TOKEN, "a-token-that-no-reader-of-this-test-has");
        let mut hub = Self { workdir, running: None, token: cluster.token("admin").to_owned() };
        hub.permit(true);
        hub.restart();
        hub.ready().await;
        hub
    }

    /// Kills the process, if it runs, and starts it again. Returns before it is ready.
    fn restart(&mut self) {
        self.running = None;
        self.running = Some(self.workdir.hub());
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it was started")
    }

    async fn ready(&self) {
        self.workdir.ready(self.running()).await;
    }

    /// Grants or revokes the right to read. The hub looks at its files once a second.
    fn permit(&self, is_permitted: bool) {
        let token = if is_permitted { &self.token } else { "a-token-of-another-reader" };
        self.workdir.write(READ_TOKEN, token);
    }
}

/// Writes a kubeconfig for the hub's root of a cluster, reached through a proxy.
fn kubeconfig(cluster: &RealCluster, proxy: &FaultProxy) -> PathBuf {
    let path = cluster.kubeconfig().with_extension(format!("hub-{}", proxy.address().port()));
    let text = std::fs::read_to_string(cluster.kubeconfig()).expect("the test bed wrote its kubeconfig");
    let root = format!("https://{}/clusters/{}", proxy.address(), cluster.name());
    std::fs::write(&path, text.replace(cluster.url(), &root)).expect("the cluster's directory is writable");
    path
}

/// Running schedule.
struct Run<'a> {
    began: clock::Instant,
    client: &'a Client,
    hub: &'a mut HubOverTls,
    proxy: FaultProxy,
    seed: u64,
    schedule: Schedule,
    namespace: String,
    writer: Writer,
    started_at: usize,
    through: ClientGo,
    direct: ClientGo,
}

impl<'a> Run<'a> {
    /// Creates the first objects and starts both readers under the schedule's first fault.
    async fn start(cluster: &RealCluster, client: &'a Client, hub: &'a mut HubOverTls, seed: u64, turn: usize) -> Self {
        let schedule = Schedule::of(seed);
        println!("oracle through the hub, seed {seed}: {schedule:?}");
        let namespace = format!("through-{seed}-{turn}");
        create_namespace(client, &namespace).await;
        let mut writer = Writer::new(client.clone(), &namespace, seed);
        writer.fill(6).await;
        writer.change(10).await;
        let started_at = writer.changes().now();
        let proxy = FaultProxy::start(hub.workdir.url()).await;
        if let Some(fault) = fault(schedule.start.disruption) {
            proxy.set(fault).await;
        }
        let started = |side: &str, kubeconfig: &Path| {
            let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{namespace}-{side}.log"));
            ClientGo::start(kubeconfig, &namespace, &schedule, &trace, writer.changes())
        };
        let through = started("hub", &kubeconfig(cluster, &proxy));
        let direct = started("direct", cluster.kubeconfig());
        let began = clock::now();
        Self { began, client, hub, proxy, seed, schedule, namespace, writer, started_at, through, direct }
    }

    /// Runs the schedule and judges the notifications.
    async fn go_through(mut self) -> Tally {
        let start = self.schedule.start;
        // The readers are not comparable before the direct reader's first list.
        self.until("the first direct lists are notified", |run| run.direct.logs()[0].is_synced()).await;
        if start.disruption == Disruption::None {
            self.until("the first lists are notified", |run| run.through.logs()[0].is_synced()).await;
        } else {
            self.run_step(start).await;
        }
        for (at, step) in self.schedule.steps.clone().into_iter().enumerate() {
            if at == self.schedule.join_at {
                self.through.join();
                self.direct.join();
            }
            self.run_step(step).await;
        }
        // Makes a change that only a working watch or a new list can show.
        self.writer.fill(1).await;
        self.settle().await;
        self.judge()
    }

    /// Runs one step of the schedule and repairs its fault.
    async fn run_step(&mut self, step: Step) {
        match step.disruption {
            // The restart drops the window of recent changes, so watches from before it expire.
            Disruption::Expire => {
                self.proxy.set(Fault::Refuse).await;
                change(&mut self.writer, step).await;
                self.hub.restart();
                self.hub.ready().await;
                self.proxy.set(Fault::Pass).await;
            }
            Disruption::Restart => {
                let half = Step { changes: step.changes / 2, ..step };
                change(&mut self.writer, half).await;
                self.hub.restart();
                change(&mut self.writer, half).await;
            }
            Disruption::Freeze => {
                self.hub.running().freeze(true);
                tokio::join!(sleep(step.lasts), change(&mut self.writer, step));
                self.hub.running().freeze(false);
            }
            Disruption::Forbid => {
                self.hub.permit(false);
                sleep(Duration::from_millis(1500)).await;
                self.proxy.reset_all().await;
                tokio::join!(sleep(step.lasts), change(&mut self.writer, step));
                self.hub.permit(true);
            }
            _ => change_under(step, &self.proxy, &self.through, &mut self.writer).await,
        }
        self.writer.change(step.then).await;
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        self.through.logs().iter().chain(self.direct.logs())
    }

    /// Waits until both have converged.
    async fn settle(&self) {
        let expected = self.writer.current_state();
        let fresh = listed(self.client, &self.namespace).await;
        assert_eq!(fresh, expected, "the recorded history differs from a fresh list");
        let agree = |run: &Self| run.logs().all(|log| log.is_synced() && log.known() == expected);
        self.until("both converge", agree).await;
    }

    async fn until(&self, what: &str, check: impl Fn(&Self) -> bool) {
        if !becomes_true(SETTLE, async || check(self)).await {
            let expected = self.writer.current_state();
            let wrong = wrong_objects(self.logs(), &expected);
            panic!(
                "oracle through the hub, seed {}: not within {SETTLE:?}: {what}\n{:?}\ndifferences of client-go through \
                 the hub, its late handler, client-go directly, its late handler: {wrong:?}",
                self.seed, self.schedule
            );
        }
    }

    fn judge(&self) -> Tally {
        let (history, mut differences, mut problems) = (self.writer.history(), Tally::new(), Vec::new());
        let resyncs = self.schedule.resync.map_or(0, |period| ticks(self.began.elapsed(), period));
        for kind in Kind::ALL {
            let [lists, go_lists] = [&self.through, &self.direct].map(|go| go.logs()[0].lists(kind));
            println!("  {kind:?}: {} lists through the hub, {} directly", lists.len(), go_lists.len());
            // For later handlers, no change counts as before the start.
            for (late, started_at, resyncs) in [(false, self.started_at, resyncs), (true, 0, 0)] {
                let [hub, go] = [&self.through, &self.direct].map(|go| &go.logs()[usize::from(late)]);
                let reads = Reads::ThroughHub(&lists);
                let pair = HandlerPair { hub, go, late, reads, go_lists: &go_lists, started_at, resyncs };
                problems.extend(pair.judge(kind, &history, &mut differences));
            }
        }
        fail_on(&problems, &format!("oracle through the hub, seed {}", self.seed), &self.schedule);
        differences
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_client_go_is_notified_through_the_hub_as_directly() {
    let mut cluster = RealCluster::start("oracle-through").await;
    let client = cluster.client().await;
    install_widgets(&client).await;
    for (is_durable, turn) in [(true, 0), (false, 1)] {
        let mut hub = HubOverTls::start(&cluster, is_durable).await;
        for seed in super::seeds(&ORDINARY).into_iter().filter(|seed| is_durable == seed.is_multiple_of(2)) {
            let began = clock::now();
            let run = Run::start(&cluster, &client, &mut hub, seed, turn).await;
            let differences = run.go_through().await;
            println!("oracle through the hub, seed {seed}: {:?}, {differences:?}", began.elapsed());
        }
    }
    cluster.kill();
}

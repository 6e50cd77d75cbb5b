//! Runs one schedule: start, faults, convergence, judgement.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use informer_hub_types::{ObjectKey, ResourceVersion, Uid, clock};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::clientgo::ClientGo;
use super::faults::{change, change_under, fail_on, fault, wrong_objects};
use super::history::{Kind, Log, State, Subject};
use super::hub_side::HubUnderTest;
use super::judge::Tally;
use super::pair::{HandlerPair, Reads};
use super::schedule::{Disruption, Schedule, Step};
use super::writer::Writer;
use crate::bed::{
    RealCluster, Verbs, becomes_true, create_namespace, grant_limited, ground_truth, install_widgets, revoke_limited,
};
use crate::proxy::{Fault, FaultProxy};

/// Deadline for the hub and client-go to converge. Each waits up to a minute between attempts, and attempts may fail.
pub(super) const SETTLE: Duration = Duration::from_secs(240);

/// Running schedule.
pub(super) struct Run<'a> {
    began: clock::Instant,
    cluster: &'a mut RealCluster,
    client: Client,
    limited: Client,
    compaction_expires: bool,
    seed: u64,
    schedule: Schedule,
    namespace: String,
    writer: Writer,
    started_at: usize,
    proxy: FaultProxy,
    hub: HubUnderTest,
    go: ClientGo,
}

/// Result of a schedule.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) differences: Tally,
    /// Number of lists by the hub and by client-go.
    pub(super) lists: BTreeMap<Kind, [usize; 2]>,
    /// Time until the hub and client-go converged, after the last fault.
    pub(super) settled: [Duration; 2],
    #[expect(dead_code, reason = "printed by Debug")]
    changes: usize,
    /// Number of notifications of the hub and of client-go.
    #[expect(dead_code, reason = "printed by Debug")]
    notified: [usize; 2],
}

impl<'a> Run<'a> {
    /// Creates the first objects and starts both sides under the schedule's first fault.
    pub(super) async fn start(
        cluster: &'a mut RealCluster,
        client: &Client,
        seed: u64,
        namespace: &str,
        compaction_expires: bool,
    ) -> Self {
        let schedule = Schedule::of(seed);
        println!("oracle seed {seed}: {schedule:?}");
        create_namespace(client, namespace).await;
        let mut writer = Writer::new(client.clone(), namespace, seed);
        writer.fill(6).await;
        writer.change(10).await;
        let started_at = writer.changes().now();
        let proxy = FaultProxy::start(cluster.url()).await;
        let limited = cluster.limited_client().await;
        let kubeconfig = if schedule.limited() {
            grant_limited(client, &limited, Verbs::ListAndWatchMore).await;
            cluster.limited_kubeconfig_via(&proxy)
        } else {
            cluster.kubeconfig_via(&proxy)
        };
        if let Some(fault) = fault(schedule.start.disruption) {
            proxy.set(fault).await;
        }
        let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{namespace}.log"));
        let go = ClientGo::start(&kubeconfig, namespace, &schedule, &trace, writer.changes());
        let hub = HubUnderTest::start(&kubeconfig, namespace, schedule.resync, writer.changes()).await;
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let began = clock::now();
        Self {
            began,
            cluster,
            client,
            limited,
            compaction_expires,
            seed,
            schedule,
            namespace,
            writer,
            started_at,
            proxy,
            hub,
            go,
        }
    }

    /// Runs the schedule and judges the notifications.
    pub(super) async fn go_through(mut self) -> Outcome {
        let start = self.schedule.start;
        if start.disruption == Disruption::None {
            let synced = |run: &Self| run.hub.logs()[0].is_synced() && run.go.logs()[0].is_synced();
            self.until("the first lists are notified", synced).await;
        } else {
            self.run_step(start).await;
        }
        for (at, step) in self.schedule.steps.clone().into_iter().enumerate() {
            if at == self.schedule.join_at {
                self.go.join();
                self.hub.join().await;
            }
            self.run_step(step).await;
        }
        // Makes a change that only a working watch or a new list can show.
        self.writer.fill(1).await;
        let settled = self.settle().await;
        let outcome = Outcome { settled, ..self.judge().await };
        self.hub.end().await;
        outcome
    }

    /// Runs one step of the schedule and repairs its fault.
    async fn run_step(&mut self, step: Step) {
        match step.disruption {
            Disruption::Expire => self.expire(step).await,
            Disruption::Restart => {
                change(&mut self.writer, step).await;
                self.restart().await;
            }
            Disruption::Freeze => {
                change(&mut self.writer, step).await;
                self.cluster.freeze(true);
                sleep(step.lasts).await;
                self.cluster.freeze(false);
            }
            Disruption::Forbid => {
                revoke_limited(&self.client, &self.limited).await;
                self.proxy.reset_all().await;
                tokio::join!(sleep(step.lasts), change(&mut self.writer, step));
                grant_limited(&self.client, &self.limited, Verbs::ListAndWatchMore).await;
            }
            _ => change_under(step, &self.proxy, &self.go, &mut self.writer).await,
        }
        self.writer.change(step.then).await;
    }

    /// Compacts while the proxy refuses. The compacted revision stays readable, so one more change precedes the
    /// compaction.
    async fn expire(&mut self, step: Step) {
        self.proxy.set(Fault::Refuse).await;
        change(&mut self.writer, step).await;
        self.writer.fill(1).await;
        self.cluster.compact().await;
        if !self.compaction_expires {
            self.restart().await;
        }
        self.proxy.set(Fault::Pass).await;
    }

    async fn restart(&mut self) {
        self.cluster.restart().await;
        install_widgets(&self.client).await;
    }

    /// Waits until both have converged, and returns how long each took.
    async fn settle(&self) -> [Duration; 2] {
        let (expected, began) = (self.writer.current_state(), clock::now());
        assert_eq!(
            listed(&self.client, &self.namespace).await,
            expected,
            "the recorded history differs from a fresh list"
        );
        let took = Mutex::new([None; 2]);
        let agree = |run: &Self| {
            let mut took = took.lock();
            for (took, logs) in took.iter_mut().zip([run.hub.logs(), run.go.logs()]) {
                if took.is_none() && logs.iter().all(|log| log.is_synced() && log.known() == expected) {
                    *took = Some(began.elapsed());
                }
            }
            took.iter().all(Option::is_some)
        };
        self.until("both converge", agree).await;
        assert_eq!(self.hub.cached().await, expected, "seed {}: the cache differs from the recorded state", self.seed);
        took.into_inner().map(Option::unwrap_or_default)
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        self.hub.logs().iter().chain(self.go.logs())
    }

    async fn until(&self, what: &str, check: impl Fn(&Self) -> bool) {
        if !becomes_true(SETTLE, async || check(self)).await {
            let expected = self.writer.current_state();
            let wrong = wrong_objects(self.logs(), &expected);
            for kind in Kind::ALL {
                self.show_requests(kind);
            }
            let report = self.hub.report_text().await;
            panic!(
                "oracle seed {}: not within {SETTLE:?}: {what}\n{:?}\ndifferences of the hub, its late subscriber, client-go, \
                 its late handler: {wrong:?}\n{report}",
                self.seed, self.schedule
            );
        }
    }

    fn show_requests(&self, kind: Kind) {
        println!("oracle seed {}: requests of the hub for {kind:?}:", self.seed);
        self.hub.reads(kind).requests().iter().for_each(|line| println!("  {line}"));
    }

    async fn judge(&self) -> Outcome {
        let history = self.writer.history();
        let mut outcome = Outcome {
            differences: Tally::new(),
            lists: BTreeMap::new(),
            settled: Default::default(),
            changes: self.writer.changes().now(),
            notified: [self.hub.logs()[0].len(), self.go.logs()[0].len()],
        };
        let mut problems = self.hub.violations();
        let resyncs = self.schedule.resync.map_or(0, |period| ticks(self.began.elapsed(), period));
        for kind in Kind::ALL {
            let informer = self.hub.informer(kind).await;
            assert_eq!((informer.restarts, informer.skipped), (0, 0), "seed {}: {informer:?}", self.seed);
            let merged: u64 = informer.listeners.iter().map(|listener| listener.merged).sum();
            assert_eq!(merged, 0, "seed {}: the hub merged notifications, so they cannot be compared", self.seed);
            let (reads, go_lists) = (self.hub.reads(kind), self.go.logs()[0].lists(kind));
            outcome.lists.insert(kind, [reads.lists(), go_lists.len()]);
            let found = problems.len();
            // For later handlers, no change counts as before the start.
            for (late, started_at, resyncs) in [(false, self.started_at, resyncs), (true, 0, 0)] {
                let [hub, go] = [self.hub.logs(), self.go.logs()].map(|logs| &logs[usize::from(late)]);
                let reads = Reads::Hub(&reads);
                let pair = HandlerPair { hub, go, late, reads, go_lists: &go_lists, started_at, resyncs };
                problems.extend(pair.judge(kind, &history, &mut outcome.differences));
            }
            if problems.len() > found {
                self.show_requests(kind);
            }
        }
        fail_on(&problems, &format!("oracle seed {}", self.seed), &self.schedule);
        outcome
    }
}

/// Lists all objects in a schedule's namespace.
pub(super) async fn listed(client: &Client, namespace: &str) -> BTreeMap<Subject, State> {
    let mut listed = BTreeMap::new();
    for kind in Kind::ALL {
        let all = ground_truth(client, &kind.resource().gvr).await;
        let here = |(key, _): &(ObjectKey, (Uid, ResourceVersion))| key.namespace() == Some(namespace);
        let all = all.into_iter().filter(here);
        listed.extend(all.map(|(key, (uid, version))| ((kind, key.name().to_owned()), State { uid, version })));
    }
    listed
}

/// Returns the maximum number of ticks in a time, plus one.
pub(super) fn ticks(elapsed: Duration, period: Duration) -> usize {
    usize::try_from(elapsed.as_millis() / period.as_millis()).unwrap_or(usize::MAX - 2) + 1
}

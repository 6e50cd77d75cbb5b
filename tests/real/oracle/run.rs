//! One schedule, from start to judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use informer_hub_types::{ObjectKey, ResourceVersion, Uid, clock};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::account::{Kind, Log, State, Subject};
use super::author::Author;
use super::clientgo::ClientGo;
use super::judge::Tally;
use super::schedule::{Schedule, Step, Trouble};
use super::subject::HubUnderTest;
use super::verdict::Pair;
use crate::bed::{
    RealCluster, Verbs, comes_true, create_namespace, grant_limited, install_widgets, revoke_limited, truth,
};
use crate::proxy::{Fault, FaultProxy};

/// How long both may take to have what is true. Each waits up to a minute before it tries again, and may try in vain.
const SETTLE: Duration = Duration::from_secs(240);

/// Objects that a failure tells of.
const SHOWN: usize = 4;

/// A schedule under way.
pub(super) struct Run<'a> {
    began: clock::Instant,
    cluster: &'a mut RealCluster,
    client: Client,
    limited: Client,
    forgets: bool,
    seed: u64,
    schedule: Schedule,
    namespace: String,
    author: Author,
    started_at: usize,
    proxy: FaultProxy,
    hub: HubUnderTest,
    go: ClientGo,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) differences: Tally,
    /// Lists of the hub and of client-go.
    pub(super) lists: BTreeMap<Kind, [usize; 2]>,
    /// How long the hub and client-go took to have what is true, once all was well.
    pub(super) settled: [Duration; 2],
    #[expect(dead_code, reason = "shown")]
    facts: usize,
    /// Notifications of the hub and of client-go.
    #[expect(dead_code, reason = "shown")]
    told: [usize; 2],
}

impl<'a> Run<'a> {
    /// Makes the first objects and starts both sides, into the trouble that the schedule begins with.
    pub(super) async fn start(
        cluster: &'a mut RealCluster,
        client: &Client,
        seed: u64,
        namespace: &str,
        forgets: bool,
    ) -> Self {
        let schedule = Schedule::of(seed);
        println!("oracle seed {seed}: {schedule:?}");
        create_namespace(client, namespace).await;
        let mut author = Author::new(client.clone(), namespace, seed);
        author.fill(6).await;
        author.change(10).await;
        let started_at = author.facts().now();
        let proxy = FaultProxy::start(cluster.url()).await;
        let limited = cluster.limited_client().await;
        let kubeconfig = if schedule.limited() {
            grant_limited(client, &limited, Verbs::ListAndWatchMore).await;
            cluster.limited_kubeconfig_via(&proxy)
        } else {
            cluster.kubeconfig_via(&proxy)
        };
        if let Some(fault) = fault(schedule.start.trouble) {
            proxy.set(fault).await;
        }
        let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{namespace}.log"));
        let go = ClientGo::start(&kubeconfig, namespace, &schedule, &trace, author.facts());
        let hub = HubUnderTest::start(&kubeconfig, namespace, schedule.resync, author.facts()).await;
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let began = clock::now();
        Self { began, cluster, client, limited, forgets, seed, schedule, namespace, author, started_at, proxy, hub, go }
    }

    /// Runs the schedule and judges.
    pub(super) async fn go_through(mut self) -> Outcome {
        let start = self.schedule.start;
        if start.trouble == Trouble::None {
            let synced = |run: &Self| run.hub.logs()[0].is_synced() && run.go.logs()[0].is_synced();
            self.until("the first lists are told", synced).await;
        } else {
            self.suffer(start).await;
        }
        for (at, step) in self.schedule.steps.clone().into_iter().enumerate() {
            if at == self.schedule.join_at {
                self.go.join();
                self.hub.join().await;
            }
            self.suffer(step).await;
        }
        // Something that only who watches or lists again can know of.
        self.author.fill(1).await;
        let settled = self.settle().await;
        let outcome = Outcome { settled, ..self.judge().await };
        self.hub.end().await;
        outcome
    }

    /// One step of the schedule, and its mending.
    async fn suffer(&mut self, step: Step) {
        match step.trouble {
            Trouble::None => self.author.change(step.changes).await,
            Trouble::Reset { times } => {
                let (proxy, pause) = (&self.proxy, step.lasts / times);
                let resets = async {
                    for _ in 0..times {
                        sleep(pause).await;
                        proxy.reset_all().await;
                    }
                };
                tokio::join!(resets, change(&mut self.author, step));
            }
            Trouble::Slow | Trouble::Stall { .. } | Trouble::Refuse => self.change_under(step).await,
            Trouble::Expire => self.expire(step).await,
            Trouble::Restart => {
                change(&mut self.author, step).await;
                self.restart().await;
            }
            Trouble::Freeze => {
                change(&mut self.author, step).await;
                self.cluster.freeze(true);
                sleep(step.lasts).await;
                self.cluster.freeze(false);
            }
            Trouble::Forbid => {
                revoke_limited(&self.client, &self.limited).await;
                self.proxy.reset_all().await;
                tokio::join!(sleep(step.lasts), change(&mut self.author, step));
                grant_limited(&self.client, &self.limited, Verbs::ListAndWatchMore).await;
            }
            Trouble::Uninstall => {
                change(&mut self.author, step).await;
                self.author.reinstall().await;
            }
            Trouble::Sleep { reset } => {
                self.go.freeze(true);
                tokio::join!(sleep(step.lasts), change(&mut self.author, step));
                if reset {
                    self.proxy.reset_all().await;
                }
                self.go.freeze(false);
            }
        }
        self.author.change(step.then).await;
    }

    async fn change_under(&mut self, step: Step) {
        if let Some(fault) = fault(step.trouble) {
            self.proxy.set(fault).await;
        }
        if step.trouble == (Trouble::Stall { reset: true }) {
            self.proxy.reset_all().await;
        }
        tokio::join!(sleep(step.lasts), change(&mut self.author, step));
        self.proxy.set(Fault::Pass).await;
    }

    /// The revision that is compacted to stays readable, so there is one more change before.
    async fn expire(&mut self, step: Step) {
        self.proxy.set(Fault::Refuse).await;
        change(&mut self.author, step).await;
        self.author.fill(1).await;
        self.cluster.compact().await;
        if !self.forgets {
            self.restart().await;
        }
        self.proxy.set(Fault::Pass).await;
    }

    async fn restart(&mut self) {
        self.cluster.restart().await;
        install_widgets(&self.client).await;
    }

    /// Waits until both have what is true; gives how long each took.
    async fn settle(&self) -> [Duration; 2] {
        let (expected, began) = (self.author.truth(), clock::now());
        assert_eq!(self.listed().await, expected, "the author is wrong about what there is");
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
        self.until("both have what is true", agree).await;
        assert_eq!(self.hub.cached().await, expected, "seed {}: the cache is wrong", self.seed);
        took.into_inner().map(Option::unwrap_or_default)
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        self.hub.logs().iter().chain(self.go.logs())
    }

    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        if !comes_true(SETTLE, async || is(self)).await {
            let expected = self.author.truth();
            let wrong = |log: &Log| {
                let known = log.known();
                let all: BTreeSet<_> = known.keys().chain(expected.keys()).collect();
                let wrong = all.into_iter().filter(|subject| known.get(subject) != expected.get(subject));
                wrong.map(|subject| format!("{subject:?}")).collect::<Vec<_>>()
            };
            let wrong: Vec<_> = self.logs().map(wrong).collect();
            for kind in Kind::ALL {
                self.show_requests(kind);
            }
            let report = self.hub.report_text().await;
            panic!(
                "oracle seed {}: not within {SETTLE:?}: {what}\n{:?}\nwrong of the hub, its late subscriber, client-go, \
                 its late handler: {wrong:?}\n{report}",
                self.seed, self.schedule
            );
        }
    }

    fn show_requests(&self, kind: Kind) {
        println!("oracle seed {}: what the hub asked for of {kind:?}:", self.seed);
        self.hub.reading(kind).requests().iter().for_each(|line| println!("  {line}"));
    }

    /// A fresh list of everything in the schedule's namespace.
    async fn listed(&self) -> BTreeMap<Subject, State> {
        let mut listed = BTreeMap::new();
        for kind in Kind::ALL {
            let all = truth(&self.client, &kind.resource().gvr).await;
            let here = |(key, _): &(ObjectKey, (Uid, ResourceVersion))| key.namespace() == Some(&self.namespace);
            let all = all.into_iter().filter(here);
            listed.extend(all.map(|(key, (uid, version))| ((kind, key.name().to_owned()), State { uid, version })));
        }
        listed
    }

    async fn judge(&self) -> Outcome {
        let history = self.author.history();
        let mut outcome = Outcome {
            differences: Tally::new(),
            lists: BTreeMap::new(),
            settled: Default::default(),
            facts: self.author.facts().now(),
            told: [self.hub.logs()[0].len(), self.go.logs()[0].len()],
        };
        let mut problems = self.hub.violations();
        let resyncs = self.schedule.resync.map_or(0, |period| ticks(self.began.elapsed(), period));
        for kind in Kind::ALL {
            let informer = self.hub.informer(kind).await;
            assert_eq!((informer.restarts, informer.skipped), (0, 0), "seed {}: {informer:?}", self.seed);
            let merged: u64 = informer.listeners.iter().map(|listener| listener.merged).sum();
            assert_eq!(merged, 0, "seed {}: the hub merged, of which nothing can be judged", self.seed);
            let (reading, go_lists) = (self.hub.reading(kind), self.go.logs()[0].lists(kind));
            outcome.lists.insert(kind, [reading.lists(), go_lists.len()]);
            let found = problems.len();
            // Of what was there when the later handlers joined nothing is known.
            for (late, started_at, resyncs) in [(false, self.started_at, resyncs), (true, 0, 0)] {
                let [hub, go] = [self.hub.logs(), self.go.logs()].map(|logs| &logs[usize::from(late)]);
                let pair = Pair { hub, go, late, reading: &reading, go_lists: &go_lists, started_at, resyncs };
                problems.extend(pair.judge(kind, &history, &mut outcome.differences));
            }
            if problems.len() > found {
                self.show_requests(kind);
            }
        }
        if !problems.is_empty() {
            let (count, shown) = (problems.len(), problems[..problems.len().min(SHOWN)].join("\n\n"));
            panic!(
                "oracle seed {}: {count} problems, after {:?}, the first of them:\n{shown}",
                self.seed, self.schedule
            );
        }
        outcome
    }
}

/// How often a clock can have ticked, and one for the road.
fn ticks(elapsed: Duration, period: Duration) -> usize {
    usize::try_from(elapsed.as_millis() / period.as_millis()).unwrap_or(usize::MAX - 2) + 1
}

/// The changes of a step.
async fn change(author: &mut Author, step: Step) {
    author.change(step.changes).await;
    author.bulk(step.bulk).await;
}

/// What the proxy does in a trouble that is the line's.
fn fault(trouble: Trouble) -> Option<Fault> {
    match trouble {
        Trouble::Slow => Some(Fault::Slow),
        Trouble::Stall { .. } => Some(Fault::Stall),
        Trouble::Refuse => Some(Fault::Refuse),
        _ => None,
    }
}

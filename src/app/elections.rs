//! Leader elections of a process. With `[ha]`, one election decides for all sinks. In a fleet, each sink has an
//! election of its own.
//!
//! In a fleet, the deliverers share the sinks. The holder of a sink's lease delivers the sink's events, and publishes
//! its progress in the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{join, join_all};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::delivered::Delivered;
use super::deliverers::{Deliverers, Entries};
use super::election::{Connected, Election, ElectionStatus, Role, SharedElection};
use super::lease_store::LeaseStore;
use informer_hub_config::Config;
use informer_hub_lease::group::{Balance, Handover, Holders, claim_delay};
use informer_hub_lease::{ElectionParams, Elector};
use informer_hub_sink::SendFence;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Threads, rng};

/// Leader elections for the sinks of a running hub. Dropping it ends them without releasing the leases.
pub(super) struct Elections(pub(super) Arc<ElectionSet>);

impl Drop for Elections {
    fn drop(&mut self) {
        self.0.end.cancel();
    }
}

/// Leader elections for the sinks, shared by the tasks and status reports of a hub.
pub(super) struct ElectionSet {
    kind: Kind,
    pub(super) changed: Arc<Notify>,
    pub(super) end: CancellationToken,
    /// Threads on which elections of sinks run; set when the elections begin.
    begun: OnceLock<Threads>,
    is_closing: AtomicBool,
}

enum Kind {
    /// One election for all sinks, configured by `[ha]`.
    All(Election),
    BySink(Box<Shares>),
}

/// Function that opens the store of the lease with this name.
type OpenStore = Box<dyn Fn(String) -> Arc<dyn LeaseStore> + Send + Sync>;

/// Leader elections of a process in a fleet, by sink.
struct Shares {
    open: OpenStore,
    identity: String,
    params: ElectionParams,
    elections: Mutex<BTreeMap<String, Election>>,
    /// Removed sinks whose elections have not ended. If such a sink is added again, its new election waits for the end
    /// of the old one, because both would contend under one name.
    retiring: Arc<Mutex<BTreeSet<String>>>,
    /// Fences of all sinks that this process has had since its start. A fence stops deliveries while this process does
    /// not hold the lease of the sink.
    fences: Mutex<BTreeMap<String, Arc<SendFence>>>,
    balance: Mutex<Balance>,
    deliverers: Arc<Deliverers>,
}

/// Sinks that share one lease, and their progress.
pub(super) struct Group {
    pub(super) shared: Arc<SharedElection>,
    pub(super) leads: bool,
    /// Published progress of the sinks. If this process leads, the progress that it published itself, else the progress
    /// last read from the lease.
    pub(super) delivered: Delivered,
    pub(super) sinks: BTreeSet<String>,
}

impl Elections {
    /// Creates the set with the one election of `[ha]`, for all sinks.
    pub(super) fn of_lease(main: Election) -> Self {
        let changed = Arc::clone(&main.shared.changed);
        Self::with(Kind::All(main), changed)
    }

    /// Prepares the elections of a fleet process that delivers to `sinks`. At first it only observes the leases, and
    /// takes none.
    #[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "only a fleet shares sinks"))]
    pub(super) fn of_fleet(
        (open, entries): (OpenStore, Box<dyn Entries>),
        identity: &str,
        params: ElectionParams,
        sinks: &BTreeSet<String>,
    ) -> Self {
        let shares = Shares {
            open,
            identity: identity.to_owned(),
            params,
            elections: Mutex::default(),
            retiring: Arc::default(),
            fences: Mutex::default(),
            balance: Mutex::new(Balance::new(params.retry_period * 2)),
            deliverers: Arc::new(Deliverers::new(entries, identity, &params)),
        };
        let elections = Self::with(Kind::BySink(Box::new(shares)), Arc::default());
        elections.0.follow(sinks);
        elections
    }

    fn with(kind: Kind, changed: Arc<Notify>) -> Self {
        let (end, begun, is_closing) = (CancellationToken::new(), OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(ElectionSet { kind, changed, end, begun, is_closing }))
    }
}

impl Shares {
    fn fence(&self, sink: &str) -> Arc<SendFence> {
        Arc::clone(self.fences.lock().entry(sink.to_owned()).or_default())
    }

    fn election(&self, sink: &str, set: &ElectionSet) -> Election {
        let key = sink_lease(sink);
        let connected =
            Connected { fence: self.fence(sink), changed: Arc::clone(&set.changed), end: set.end.child_token() };
        let elector = Elector::observing(&self.identity, self.params, rng::rng());
        Election::over(((self.open)(key.clone()), key), &self.identity, (self.params, elector), connected)
    }

    fn shared(&self) -> BTreeMap<String, Arc<SharedElection>> {
        self.elections.lock().iter().map(|(sink, one)| (sink.clone(), Arc::clone(&one.shared))).collect()
    }

    fn shared_of(&self, sink: &str) -> Option<Arc<SharedElection>> {
        self.elections.lock().get(sink).map(|one| Arc::clone(&one.shared))
    }

    /// Combines the elections of all sinks into one status.
    fn status(&self) -> ElectionStatus {
        let all = self.shared().into_iter().map(|(sink, share)| (sink, share.status())).collect::<Vec<_>>();
        let held = || all.iter().filter(|(_, status)| status.role == Role::Leader);
        let role = match held().count() {
            0 if all.iter().all(|(_, status)| status.role == Role::Standby) => Role::Standby,
            0 => Role::Unknown,
            _ => Role::Leader,
        };
        ElectionStatus {
            role,
            identity: self.identity.clone(),
            holder: None,
            lease: sink_lease("*"),
            transitions: all.iter().map(|(_, status)| status.transitions).sum(),
            renewed_seconds_ago: held().filter_map(|(_, status)| status.renewed_seconds_ago).max(),
            error: all.iter().find_map(|(_, status)| status.error.clone()),
            sinks: Some(held().map(|(sink, _)| sink.clone()).collect()),
        }
    }
}

impl ElectionSet {
    /// Starts to compete for the leases of the sinks.
    pub(super) fn begin(&self, io: &Threads) {
        match &self.kind {
            Kind::All(election) => election.begin(io),
            Kind::BySink(shares) => {
                let elections = shares.elections.lock();
                // Called once. From then on, elections of added sinks begin immediately.
                let _ = self.begun.set(io.clone());
                for share in elections.values() {
                    share.begin(io);
                }
                drop(elections);
                let (deliverers, end) = (Arc::clone(&shares.deliverers), self.end.clone());
                io.spawn(async move { end.run_until_cancelled(deliverers.run()).await });
            }
        }
    }

    /// Returns the fence that stops a sink while this process does not hold its lease.
    pub(super) fn fence_of(&self, sink: &str) -> Arc<SendFence> {
        match &self.kind {
            Kind::All(election) => Arc::clone(&election.shared.fence),
            Kind::BySink(shares) => shares.fence(sink),
        }
    }

    /// Returns the elections by sink; `None` without a fleet, and once this process shuts down.
    fn open_shares(&self) -> Option<&Shares> {
        match &self.kind {
            Kind::BySink(shares) if !self.is_closing.load(SeqCst) => Some(shares),
            _ => None,
        }
    }

    /// In a fleet, starts and ends elections so that exactly the sinks in `sinks` have one.
    pub(super) fn follow(&self, sinks: &BTreeSet<String>) {
        let Some(shares) = self.open_shares() else { return };
        let (mut elections, mut retiring) = (shares.elections.lock(), shares.retiring.lock());
        for sink in sinks.iter().filter(|sink| !retiring.contains(*sink)) {
            elections.entry(sink.clone()).or_insert_with(|| {
                let election = shares.election(sink, self);
                if let Some(io) = self.begun.get() {
                    election.begin(io);
                }
                election
            });
        }
        let Some(io) = self.begun.get() else { return };
        let obsolete: Vec<_> = elections.keys().filter(|sink| !sinks.contains(*sink)).cloned().collect();
        for sink in obsolete {
            let Some(election) = elections.remove(&sink) else { continue };
            retiring.insert(sink.clone());
            let retiring = Arc::clone(&shares.retiring);
            io.spawn(async move {
                election.retire().await;
                retiring.lock().remove(&sink);
            });
        }
    }

    /// Applies the address and credentials that a new configuration has for the cluster of the Lease of `[ha]`.
    pub(super) fn follow_cluster(&self, config: &Config) {
        match &self.kind {
            Kind::All(election) => election.follow_cluster(config),
            Kind::BySink(_) => {}
        }
    }

    /// Returns the sinks in groups that share a lease. In a fleet, each group has one sink; otherwise, one group has
    /// all sinks.
    pub(super) fn groups(&self, sinks: BTreeSet<String>) -> Vec<Group> {
        let group = |shared: Arc<SharedElection>, sinks| {
            let (leads, note) = shared.leads_with_note();
            Group { shared, leads, delivered: Delivered::parse(&note), sinks }
        };
        match &self.kind {
            Kind::All(election) => vec![group(Arc::clone(&election.shared), sinks)],
            Kind::BySink(shares) => {
                let elections = shares.shared().into_iter().filter(|(sink, _)| sinks.contains(sink));
                elections.map(|(sink, shared)| group(shared, BTreeSet::from([sink]))).collect()
            }
        }
    }

    /// Whether all leases have been read.
    pub(super) fn has_answered(&self) -> bool {
        match &self.kind {
            Kind::All(election) => election.shared.has_answered(),
            Kind::BySink(shares) => shares.shared().values().all(|share| share.has_answered()),
        }
    }

    /// In a fleet, waits until the leases of all sinks have been read, and returns the published progress of the sinks.
    /// With `[ha]`, returns immediately, without any progress.
    #[cfg(feature = "fleet")]
    pub(super) async fn first_delivered(&self) -> Delivered {
        let mut delivered = Delivered::default();
        let Kind::BySink(shares) = &self.kind else { return delivered };
        for (sink, share) in shares.shared() {
            share.first_answer().await;
            let note = share.record().map(|record| Delivered::parse(&record.note));
            if let Some(versions) = note.and_then(|mut note| note.sinks.remove(&sink)) {
                delivered.sinks.insert(sink, versions);
            }
        }
        delivered
    }

    /// In a fleet, lets this process compete for the leases of the groups that `is_in_step` accepts: groups whose
    /// sinks, in this process, have caught up with the published progress.
    pub(super) fn contend(&self, groups: &[Group], is_in_step: impl Fn(&Group) -> bool) {
        let Some(shares) = self.open_shares() else { return };
        for group in groups.iter().filter(|group| group.shared.observes() && is_in_step(group)) {
            group.shared.contend();
        }
        let contended = groups.iter().filter(|group| !group.shared.observes());
        shares.deliverers.set_sinks(contended.flat_map(|group| group.sinks.iter().cloned()).collect());
    }

    /// In a fleet, sets how long this process leaves a free lease to other processes before it takes the lease. May
    /// also begin to hand over one lease. For that, this process must hold the most leases, and the receiving process
    /// at least two fewer.
    pub(super) fn balance(&self) {
        let Some(shares) = self.open_shares() else { return };
        let now = clock::since_boot();
        let (elections, running) = (shares.shared(), shares.deliverers.running(now));
        let holders: Holders = elections.iter().map(|(sink, share)| (sink.clone(), share.holder(now))).collect();
        let (unit, longest) = (shares.params.retry_period / 2, shares.params.retry_period);
        let delay = claim_delay(&shares.identity, &holders, &running, unit, longest);
        for share in elections.values() {
            share.set_claim_delay(delay);
        }
        if elections.values().any(|share| share.is_handing_over()) {
            return;
        }
        if let Some(Handover { lease, to }) = shares.balance.lock().next(&shares.identity, &holders, &running, now)
            && let Some(share) = elections.get(&lease)
        {
            share.hand_over(&to);
        }
    }

    /// Notes that the hub shuts down. From now on, the progress of the sinks stays as it is, because their informers
    /// stop, and this process neither competes for leases nor hands them over.
    pub(super) fn begin_closing(&self) {
        self.is_closing.store(true, SeqCst);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(SeqCst)
    }

    /// Stops deliveries and releases the leases. Waits for the releases until `deadline`.
    pub(super) async fn resign(&self, deadline: Instant) {
        self.begin_closing();
        match &self.kind {
            Kind::All(election) => election.resign(deadline).await,
            Kind::BySink(shares) => {
                let elections = std::mem::take(&mut *shares.elections.lock());
                let resigning = elections.values().map(|election| election.resign(deadline));
                join(shares.deliverers.leave(deadline), join_all(resigning)).await;
            }
        }
    }

    /// Returns the interval at which sinks are opened or closed and their progress is published.
    pub(super) fn reconcile_interval(&self) -> Duration {
        match &self.kind {
            Kind::All(election) => election.shared.reconcile_interval(),
            Kind::BySink(shares) => shares.params.retry_period / 2,
        }
    }

    /// Returns whether this process does not deliver to the sink. In a fleet, also returns the process that holds the
    /// lease of the sink.
    pub(super) fn standby(&self, sink: &str) -> (bool, Option<String>) {
        let now = clock::since_boot();
        match &self.kind {
            Kind::All(election) => (!election.shared.leads(now), None),
            Kind::BySink(shares) => {
                let Some(share) = shares.shared_of(sink) else { return (true, None) };
                (!share.leads(now), share.holder(now).map(|holder| holder.to_string()))
            }
        }
    }

    pub(super) fn status(&self) -> ElectionStatus {
        match &self.kind {
            Kind::All(election) => election.shared.status(),
            Kind::BySink(shares) => shares.status(),
        }
    }
}

/// Returns the name of the lease of a sink. Dots are escaped, because a NATS key must not have an empty part between
/// two dots.
pub(crate) fn sink_lease(sink: &str) -> String {
    format!("sink.{}", sink.replace('.', "=2E"))
}

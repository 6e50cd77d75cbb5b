//! Leader election of active/standby replicas: runs the elector, and sets the fence that stops sinks of a standby.
//!
//! All replicas watch their clusters and answer requests. Only the holder of the Lease delivers to sinks. Two tasks
//! share the state of the election: the task of this module reads and renews the Lease and sets the fence;
//! [`super::reconciler`] opens the sinks and publishes their progress. A process of a fleet has an election for each
//! sink, see [`super::elections`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::convert;
use super::delivered::Delivered;
use super::election_state::ElectionState;
use super::host::host_name;
use super::lease_store::{KubernetesLease, LeaseCluster, LeaseStore};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config, HaConfig};
use informer_hub_dial::Dial;
use informer_hub_lease::kubernetes::LeaseName;
use informer_hub_lease::{Answer, ElectionParams, Elector, Record, Request};
use informer_hub_reflector::StallPolicy;
use informer_hub_sink::SendFence;
use informer_hub_source::KubeConnector;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Threads, rng};

/// Maximum time for which an ending election waits until its Lease is released. If the release fails, the next leader
/// has to wait until the Lease expires.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// This replica delivers to the sinks; in a fleet, to some of them.
    Leader,
    /// Another replica delivers.
    Standby,
    /// It is unknown whether another replica delivers.
    Unknown,
}

/// Status of the leader election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElectionStatus {
    /// Role of this replica.
    pub role: Role,
    /// Unique name of this replica.
    pub identity: String,
    /// Last known holder of the Lease; absent in a fleet, and if the Lease has no holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Cluster, namespace and name of the Lease; in a fleet, the keys of the leases.
    pub lease: String,
    /// Number of times that the holder changed; in a fleet, the sum over the leases of all sinks.
    pub transitions: u64,
    /// Seconds since this replica last renewed the Lease; absent before the first renewal. In a fleet, the longest of
    /// these times among the leases that this process holds; absent if it holds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds_ago: Option<u64>,
    /// Why the last request for the Lease failed; absent after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// In a fleet, the sinks to which this process delivers; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sinks: Option<Vec<String>>,
}

/// Leader election of this process. Dropping it ends the election without releasing the Lease.
pub(super) struct Election {
    pub(super) shared: Arc<SharedElection>,
    store: Arc<dyn LeaseStore>,
    /// Cluster of the Lease; `None` in a fleet.
    cluster: Option<Box<LeaseCluster>>,
    end: CancellationToken,
}

/// State of the election, shared by the task that renews the Lease and by the reconciler of the sinks.
pub(super) struct SharedElection {
    pub(super) fence: Arc<SendFence>,
    params: ElectionParams,
    identity: Arc<str>,
    /// Name of the lease, for logs and the status.
    place: String,
    /// Maximum size of the note (the published progress of sinks) in the lease, in bytes.
    pub(super) max_note: usize,
    /// Whether the store of the lease has answered a request.
    answered: watch::Sender<bool>,
    state: Mutex<ElectionState>,
    /// Wakes the election before its next request is due.
    wake: Notify,
    /// Notified when this replica becomes leader or stops being it.
    pub(super) changed: Arc<Notify>,
    /// Cancelled when the election is over.
    over: CancellationToken,
}

/// Handles that connect an election with the hub: the fence that stops deliveries, the notification of role changes,
/// and the token that ends the election.
#[derive(Default)]
pub(super) struct Connected {
    pub(super) fence: Arc<SendFence>,
    pub(super) changed: Arc<Notify>,
    pub(super) end: CancellationToken,
}

impl Election {
    /// Prepares the election that `[ha]` configures; `None` without that table.
    pub(super) fn new(config: &Config, stall: StallPolicy, dial: Option<Dial>, io: &Threads) -> Option<Self> {
        let ha = config.ha.as_ref()?;
        // The configuration is checked: if it names a cluster for the Lease, that cluster exists.
        let watched = config.clusters.iter().find(|one| ha.is_lease_in(one)).cloned();
        let cluster = watched.unwrap_or_else(own_cluster);
        Some(Self::of_lease_in(&cluster, ha, convert::connector(&cluster, stall, dial, io)))
    }

    fn of_lease_in(cluster: &ClusterConfig, ha: &HaConfig, connector: KubeConnector) -> Self {
        let params = ElectionParams {
            lease_duration: ha.lease_duration,
            renew_deadline: ha.renew_deadline,
            retry_period: ha.retry_period,
        };
        let name = LeaseName { namespace: ha.lease.namespace.clone(), name: ha.lease.name.clone() };
        let place = format!("{}/{}/{}", cluster.name, name.namespace, name.name);
        let store = Arc::new(KubernetesLease::new(Arc::new(connector.clone()), name));
        let identity = identity(ha.identity.as_deref());
        let elector = Elector::new(&identity, params, rng::rng());
        let cluster = LeaseCluster::new(ha, convert::settings(cluster), connector);
        let mut election = Self::over((store, place), &identity, (params, elector), Connected::default());
        election.cluster = Some(Box::new(cluster));
        election
    }

    /// Applies the address and credentials that a new configuration has for the cluster of the Lease.
    pub(super) fn follow_cluster(&self, config: &Config) {
        self.cluster.iter().for_each(|cluster| cluster.follow(config));
    }

    /// Prepares an election for the lease that `store` reads and writes. `place` is the name of the lease, for logs and
    /// the status.
    pub(super) fn over(
        (store, place): (Arc<dyn LeaseStore>, String),
        identity: &str,
        (params, elector): (ElectionParams, Elector),
        connected: Connected,
    ) -> Self {
        let state = ElectionState::new(elector);
        let Connected { fence, changed, end } = connected;
        let shared = SharedElection {
            fence,
            params,
            identity: identity.into(),
            place,
            max_note: store.max_note(),
            answered: watch::Sender::default(),
            state: Mutex::new(state),
            wake: Notify::new(),
            changed,
            over: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared), store, cluster: None, end }
    }

    /// Starts to compete for the Lease.
    pub(super) fn begin(&self, io: &Threads) {
        let (shared, store, end) = (Arc::clone(&self.shared), Arc::clone(&self.store), self.end.clone());
        io.spawn(async move {
            end.run_until_cancelled(shared.run(&*store)).await;
            shared.state.lock().close(&shared.fence);
            shared.over.cancel();
        });
    }

    /// Stops deliveries and releases the Lease, so that another replica need not wait for its expiry. Waits for the
    /// release until `deadline`.
    pub(super) async fn resign(&self, deadline: Instant) {
        let shared = &self.shared;
        if shared.end() {
            return;
        }
        if tokio::time::timeout_at(deadline, shared.over.cancelled()).await.is_err() {
            let error = shared.state.lock().error.clone();
            tracing::warn!(
                lease = shared.place,
                error,
                "cannot release the Lease; another replica waits for its expiry"
            );
        }
    }

    /// Stops deliveries and releases the lease, and waits until the last request for it has ended.
    pub(super) async fn retire(self) {
        self.resign(clock::now() + RELEASE_TIMEOUT).await;
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.over.cancelled().await;
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl SharedElection {
    async fn run(&self, store: &dyn LeaseStore) {
        loop {
            let now = clock::since_boot();
            let (request, wake) = {
                let elector = &mut self.state.lock().elector;
                (elector.next(now), elector.wake_at())
            };
            self.note_role();
            let Some(request) = request else {
                let Some(wake) = wake else {
                    if self.change(|state| state.stand_again(&self.identity, self.params)) {
                        continue;
                    }
                    return;
                };
                self.pause(wake.saturating_sub(now)).await;
                continue;
            };
            let answer = self.ask(&request, store).await;
            self.answered(answer);
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.wake.notified() => {}
        }
    }

    async fn ask(&self, request: &Request, store: &dyn LeaseStore) -> Answer {
        // As in client-go, two requests fit into the renew deadline.
        let asked = store.execute(request, self.params.renew_deadline / 2).await;
        let mut state = self.state.lock();
        match asked {
            Ok(answer) => {
                state.error = None;
                answer
            }
            Err(error) => {
                if state.error.is_none() {
                    tracing::warn!(lease = self.place, error, "cannot read or renew the Lease; retrying");
                }
                state.error = Some(error);
                Answer::Failed
            }
        }
    }

    fn answered(&self, answer: Answer) {
        let has_answered = self.change(|state| {
            let ElectionState { elector, note, claim_delay, error, .. } = state;
            elector.answered(answer, clock::since_boot());
            // If this replica takes over, it publishes the last holder's note again, whose progress still holds.
            if let Some(record) = elector.record_seen().filter(|record| *record.holder != *self.identity) {
                note.clone_from(&record.note);
                let receiver = if record.holder.is_empty() { Delivered::parse(note).next } else { None };
                elector.set_note(Arc::clone(note));
                elector.set_claim_delay(match receiver {
                    Some(receiver) if receiver == *self.identity => Duration::ZERO,
                    Some(_) => self.params.lease_duration,
                    None => *claim_delay,
                });
            }
            error.is_none()
        });
        if has_answered {
            self.answered.send_replace(true);
        }
    }

    /// Changes the state of the election. Under the same lock, opens or closes the fence (the switch that stops
    /// deliveries) to match the new state.
    fn change<R>(&self, change: impl FnOnce(&mut ElectionState) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        state.set_fence(&self.fence);
        result
    }

    /// Last step of a handover: stops deliveries and begins to release the lease, so that another process can take it.
    /// Called after [`Self::advance_handover`] has returned the name of that process. Does nothing if the lease was
    /// lost meanwhile.
    pub(super) fn release(&self) {
        self.change(|state| {
            if state.release(clock::since_boot()) {
                self.note_release(state);
            }
        });
        self.wake.notify_one();
    }

    /// Begins the end of this election: stops deliveries, starts to release the lease, and no longer competes for it.
    /// Returns true if nothing is left to release, so that the caller need not wait.
    fn end(&self) -> bool {
        let has_resigned = self.change(|state| {
            let has_resigned = state.end(clock::since_boot());
            self.note_release(state);
            has_resigned
        });
        self.wake.notify_one();
        has_resigned
    }

    /// If this process led, logs that it releases the lease, and notifies the reconciler of its new role.
    /// [`Self::note_role`] then does not log the release as a loss of the lease.
    fn note_release(&self, state: &mut ElectionState) {
        if std::mem::take(&mut state.was_leader) {
            tracing::info!(
                lease = self.place, identity = %self.identity,
                "releasing the Lease; no longer delivering events"
            );
            self.changed.notify_one();
        }
    }

    /// Logs a change of the role and notifies the reconciler of it. Ends a handover if the lease was lost.
    fn note_role(&self) {
        let (is_change, leads, error) = self.change(|state| {
            let now = clock::since_boot();
            state.end_lost_handover(now);
            let leads = state.elector.leads(now);
            (std::mem::replace(&mut state.was_leader, leads) != leads, leads, state.error.clone())
        });
        if !is_change {
            return;
        }
        let (lease, identity) = (&self.place, &self.identity);
        if leads {
            tracing::info!(lease, %identity, "acquired the Lease; delivering events");
        } else {
            tracing::warn!(lease, %identity, error, "lost the Lease; no longer delivering events");
        }
        self.changed.notify_one();
    }

    /// Returns whether this replica leads, and the note (the published progress of the sinks). A leader has the note
    /// that it publishes; any other replica has the note last read from the lease.
    pub(super) fn leads_with_note(&self) -> (bool, Arc<str>) {
        let state = self.state.lock();
        (state.elector.leads(clock::since_boot()), Arc::clone(&state.note))
    }

    /// Waits until the store has answered a request.
    #[cfg(feature = "fleet")]
    pub(super) async fn first_answer(&self) {
        // This cannot fail, because `self` owns the sender.
        let _ = self.answered.subscribe().wait_for(|answered| *answered).await;
    }

    /// Whether this process holds the lease.
    pub(super) fn leads(&self, now: Duration) -> bool {
        self.state.lock().elector.leads(now)
    }

    /// Returns the content of the lease (holder, renewal, note) as last read or written; `None` before that.
    pub(super) fn record(&self) -> Option<Record> {
        self.state.lock().elector.record_seen().cloned()
    }

    /// Returns the name of the lease's holder; `None` if the lease is free or expired.
    pub(super) fn holder(&self, now: Duration) -> Option<Arc<str>> {
        let elector = &self.state.lock().elector;
        let record = elector.record_seen().filter(|record| !record.holder.is_empty() && elector.has_holder(now));
        record.map(|record| Arc::clone(&record.holder))
    }

    /// Sets the delay before this process takes a free lease. The delay does not apply if the last holder handed the
    /// lease over to a named process.
    pub(super) fn set_claim_delay(&self, delay: Duration) {
        self.state.lock().claim_delay = delay;
    }

    /// Begins a handover of the lease to the process `to`. From now on, the sinks begin no delivery, but attempts in
    /// flight may complete. The second reconciliation of the sinks after this call releases the lease. Does nothing if
    /// this process does not lead, or already gives the lease up.
    pub(super) fn hand_over(&self, to: &str) {
        if self.change(|state| state.hand_over(to, clock::since_boot())) {
            tracing::info!(lease = self.place, to, "handing the Lease over to another process");
        }
    }

    pub(super) fn is_handing_over(&self) -> bool {
        self.state.lock().is_handing_over()
    }

    /// Advances a handover. The leader calls this at each reconciliation of its sinks. From the second call on, returns
    /// the process that takes the lease: the sinks have then begun no delivery for one interval. Returns `None` before
    /// that, and without a handover.
    pub(super) fn advance_handover(&self) -> Option<String> {
        self.change(ElectionState::advance_handover)
    }

    pub(super) fn has_answered(&self) -> bool {
        *self.answered.borrow()
    }

    /// Whether this replica only observes: it does not take a free lease yet.
    pub(super) fn observes(&self) -> bool {
        self.state.lock().elector.observes()
    }

    /// Ends the observation: from now on this replica takes the lease when it is free.
    pub(super) fn contend(&self) {
        self.state.lock().elector.contend(clock::since_boot());
        self.wake.notify_one();
    }

    /// Sets the note (progress of the sinks) that the leader publishes with its next renewal.
    pub(super) fn publish(&self, note: &str) {
        let mut state = self.state.lock();
        state.note = note.into();
        let note = Arc::clone(&state.note);
        state.elector.set_note(note);
    }

    /// Returns the interval at which sinks are opened or closed and their progress is published.
    pub(super) fn reconcile_interval(&self) -> Duration {
        self.params.retry_period / 2
    }

    pub(super) fn status(&self) -> ElectionStatus {
        let (state, now) = (self.state.lock(), clock::since_boot());
        let record = state.elector.record_seen();
        let role = if state.elector.leads(now) {
            Role::Leader
        } else if state.elector.has_holder(now) && state.error.is_none() {
            Role::Standby
        } else {
            Role::Unknown
        };
        let since = |then: Duration| now.saturating_sub(then).as_secs();
        ElectionStatus {
            role,
            identity: self.identity.to_string(),
            holder: record.map(|record| record.holder.to_string()).filter(|holder| !holder.is_empty()),
            lease: self.place.clone(),
            transitions: record.map_or(0, |record| record.transitions),
            renewed_seconds_ago: state.elector.last_renewal().map(since),
            error: state.error.clone(),
            sinks: None,
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("lease", &self.shared.place).finish_non_exhaustive()
    }
}

/// Returns the cluster of the hub's own pod. It is used for a Lease in a cluster that the hub does not watch.
pub(crate) fn own_cluster() -> ClusterConfig {
    ClusterConfig::new("own-cluster".parse().expect("a valid name"), ClusterAccess::InCluster)
}

/// Returns a unique name of this process: `given` or the host's name, and a random suffix.
fn identity(given: Option<&str>) -> String {
    let name = given.map_or_else(host_name, str::to_owned);
    format!("{}_{:08x}", name.trim(), rng::rng().random::<u32>())
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;

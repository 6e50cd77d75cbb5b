//! Tests of the election over a simulated cluster with leases.

use futures::future::BoxFuture;

use informer_hub_config::LeaseConfig;
use informer_hub_lease::memory::MemoryStore;
use informer_hub_sim::{SimCluster, SimConfig};
use informer_hub_types::Gvr;
use tokio::runtime::Handle;

use super::*;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster() -> SimCluster {
    SimCluster::start(SimConfig::default(), &Handle::current()).unwrap()
}

/// Starts a contender with a lease duration of 3 s.
fn contender(cluster: &SimCluster, name: &str) -> Election {
    contender_for(cluster, name, Duration::from_secs(3))
}

fn contender_for(cluster: &SimCluster, name: &str, lease_duration: Duration) -> Election {
    let mut ha = HaConfig::new(LeaseConfig::new("hub"));
    ha.identity = Some(name.to_owned());
    ha.lease_duration = lease_duration;
    ha.renew_deadline = lease_duration * 2 / 3;
    ha.retry_period = Duration::from_millis(200);
    let (io, access) = (Threads::current(), ClusterAccess::server(cluster.url(), None, None));
    let config = ClusterConfig::new("mgmt".parse().unwrap(), access);
    let connector = convert::connector(&config, StallPolicy::default(), None, &io);
    let election = Election::of_lease_in(&config, &ha, connector);
    election.begin(&io);
    election
}

fn role(election: &Election) -> Role {
    election.shared.status().role
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !holds() {
        assert!(clock::now() < deadline, "timeout: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until one of two contenders leads and the other stands by. Returns the leader, then the standby.
async fn settled(one: Election, other: Election) -> (Election, Election) {
    let roles = |one: &Election, other: &Election| [role(one), role(other)];
    until("one leads", || roles(&one, &other).contains(&Role::Leader) && roles(&one, &other).contains(&Role::Standby))
        .await;
    if role(&one) == Role::Leader { (one, other) } else { (other, one) }
}

#[tokio::test]
async fn only_one_contender_leads_and_its_resignation_is_a_quick_takeover() {
    let cluster = cluster();
    // The lease does not expire during the test, so the standby can lead only after the leader has released it.
    let contender = |name| contender_for(&cluster, name, 10 * PATIENCE);
    let (leader, standby) = settled(contender("a"), contender("b")).await;
    assert!(leader.shared.fence.is_open() && !standby.shared.fence.is_open());
    leader.shared.publish("what was delivered");
    until("the note is read", || &*standby.shared.leads_with_note().1 == "what was delivered").await;
    let status = standby.shared.status();
    assert_eq!((&*status.lease, status.holder), ("mgmt/hub/informer-hub", Some(leader.shared.identity.to_string())));
    leader.resign(clock::now() + PATIENCE).await;
    assert!(!leader.shared.fence.is_open());
    until("the other one leads", || role(&standby) == Role::Leader).await;
    assert_eq!(&*standby.shared.leads_with_note().1, "what was delivered", "and it is published again");
    let lease = cluster.lease("hub", "informer-hub").unwrap();
    assert_eq!(lease["metadata"]["annotations"]["informer-hub.io/delivered"], "what was delivered");
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

#[tokio::test]
async fn leader_that_dies_is_succeeded_after_the_lease() {
    let cluster = cluster();
    let (leader, standby) = settled(contender(&cluster, "a"), contender(&cluster, "b")).await;
    let since = clock::now();
    drop(leader);
    until("the other one leads", || role(&standby) == Role::Leader).await;
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}: not before the lease has expired", since.elapsed());
}

#[tokio::test]
async fn fences_close_while_the_apiserver_is_away_or_too_slow_and_one_opens_again() {
    let cluster = cluster();
    let (one, other) = settled(contender(&cluster, "a"), contender(&cluster, "b")).await;
    let fences = [Arc::clone(&one.shared.fence), Arc::clone(&other.shared.fence)];
    let open = || fences.iter().filter(|fence| fence.is_open()).count();
    cluster.stop().await;
    until("the fence closes", || open() == 0).await;
    until("neither knows a leader", || (role(&one), role(&other)) == (Role::Unknown, Role::Unknown)).await;
    cluster.restart().await;
    until("one leads again", || open() == 1).await;
    // Each answer takes longer than a contender waits.
    cluster.delay_leases(Duration::from_secs(3600));
    until("the fence closes again", || open() == 0).await;
    cluster.delay_leases(Duration::ZERO);
    cluster.heal();
    until("one leads in the end", || open() == 1).await;
}

#[tokio::test]
async fn missing_right_is_an_error_and_a_deleted_lease_is_created_again() {
    let cluster = cluster();
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    cluster.forbid(&leases, true);
    let election = contender(&cluster, "a");
    until("the error is known", || election.shared.status().error.is_some()).await;
    let error = election.shared.status().error.unwrap();
    assert!(error.contains("leases.coordination.k8s.io is forbidden"), "{error}");
    assert_eq!(role(&election), Role::Unknown);
    cluster.forbid(&leases, false);
    until("it leads", || role(&election) == Role::Leader).await;
    assert_eq!(election.shared.status().error, None);
    cluster.delete_lease("hub", "informer-hub");
    until("the lease is there again", || cluster.lease("hub", "informer-hub").is_some()).await;
    until("it leads", || role(&election) == Role::Leader).await;
}

/// Store that answers no request. Tests pass answers to the election themselves.
struct SilentStore;

impl LeaseStore for SilentStore {
    fn max_note(&self) -> usize {
        1 << 10
    }

    fn execute<'s>(&'s self, _: &'s Request, _: Duration) -> BoxFuture<'s, Result<Answer, String>> {
        Box::pin(std::future::pending())
    }
}

/// Returns an election without a background task: the test makes it send its requests, and passes the answers. The
/// retry period is zero, so every request is due at once.
fn manual(name: &str, fence: &Arc<SendFence>) -> Election {
    let params = ElectionParams { retry_period: Duration::ZERO, ..ElectionParams::default() };
    let elector = Elector::new(name, params, rng::rng());
    let connected = Connected { fence: Arc::clone(fence), ..Connected::default() };
    Election::over((Arc::new(SilentStore), "lease".to_owned()), name, (params, elector), connected)
}

/// Sends the next request of an election, and returns it.
fn send(election: &Election) -> Request {
    let request = election.shared.state.lock().elector.next(clock::since_boot()).unwrap();
    election.shared.note_role();
    request
}

/// Exchanges requests and answers of an election until it leads.
fn lead(election: &Election, store: &mut MemoryStore) {
    while !election.shared.leads(clock::since_boot()) {
        election.shared.answered(store.apply(&send(election)));
    }
    election.shared.note_role();
}

#[test]
fn handover_of_a_lost_lease_leaves_the_election_standing() {
    let (fence, mut store) = (Arc::default(), MemoryStore::default());
    let election = manual("a", &fence);
    lead(&election, &mut store);
    election.shared.hand_over("b");
    assert!(!fence.is_open());
    assert_eq!(election.shared.advance_handover(), None);
    assert_eq!(election.shared.advance_handover().as_deref(), Some("b"));
    // Another process takes the lease before the reconciler releases it.
    let Answer::Found { record, version } = store.apply(&Request::Get) else { panic!("no record") };
    let taken = Record { holder: "c".into(), ..record };
    store.apply(&Request::Update { record: taken, version });
    while election.shared.leads(clock::since_boot()) {
        election.shared.answered(store.apply(&send(&election)));
    }
    election.shared.note_role();
    election.shared.release();
    assert!(!election.shared.is_handing_over());
    assert!(!election.shared.state.lock().elector.is_resigning(), "it competes again");
    assert!(!fence.is_open());
}

#[test]
fn released_lease_is_followed_by_another_candidacy_unless_the_election_ends() {
    for ends in [false, true] {
        let (fence, mut store) = (Arc::default(), MemoryStore::default());
        let election = manual("a", &fence);
        lead(&election, &mut store);
        election.shared.hand_over("b");
        election.shared.advance_handover();
        let in_flight = send(&election);
        election.shared.advance_handover();
        election.shared.release();
        assert!(!fence.is_open(), "the release closes the fence");
        election.shared.answered(store.apply(&in_flight));
        assert!(!fence.is_open(), "an answer from before the release does not open it");
        if ends {
            assert!(!election.shared.end());
        }
        while !election.shared.state.lock().elector.has_resigned() {
            election.shared.answered(store.apply(&send(&election)));
        }
        assert!(store.record().unwrap().holder.is_empty());
        let params = election.shared.params;
        let stands = election.shared.change(|state| state.stand_again("a", params));
        assert_eq!(stands, !ends);
        assert!(!fence.is_open());
    }
}

#[test]
fn election_that_is_over_leaves_the_fence_to_its_successor() {
    let fence = Arc::default();
    let (first, second) = (manual("a", &fence), manual("a", &fence));
    lead(&first, &mut MemoryStore::default());
    first.shared.state.lock().close(&fence);
    assert!(!fence.is_open());
    lead(&second, &mut MemoryStore::default());
    first.shared.hand_over("b");
    first.shared.release();
    first.shared.note_role();
    assert!(first.shared.end());
    assert!(fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn resignation_without_an_answer_ends_at_its_deadline() {
    let election = manual("a", &Arc::default());
    election.begin(&Threads::current());
    // Lets the election send its first request.
    tokio::task::yield_now().await;
    let begun = clock::now();
    election.resign(begun + Duration::from_millis(700)).await;
    assert_eq!(begun.elapsed().as_millis() / 10, 70);
}

#[tokio::test]
async fn election_follows_the_cluster_of_the_lease_to_another_address() {
    let (old, new) = (cluster(), cluster());
    let mut lease = LeaseConfig::new("hub");
    lease.cluster = Some("mgmt".parse().unwrap());
    let mut ha = HaConfig::new(lease);
    ha.identity = Some("a".to_owned());
    let config = |cluster: &SimCluster| {
        let access = ClusterAccess::server(cluster.url(), None, None);
        let mut config = Config::default();
        config.clusters = vec![ClusterConfig::new("mgmt".parse().unwrap(), access)];
        config.ha = Some(ha.clone());
        config
    };
    let io = Threads::current();
    let election = Election::new(&config(&old), StallPolicy::default(), None, &io).unwrap();
    election.begin(&io);
    until("it leads", || role(&election) == Role::Leader).await;
    assert!(new.lease("hub", "informer-hub").is_none());
    election.follow_cluster(&config(&new));
    until("the lease is in the new cluster", || new.lease("hub", "informer-hub").is_some()).await;
    // The configuration may lack the cluster of the Lease while its cluster source is unreachable.
    let mut without = config(&new);
    without.clusters.clear();
    election.follow_cluster(&without);
    until("it leads", || role(&election) == Role::Leader).await;
}

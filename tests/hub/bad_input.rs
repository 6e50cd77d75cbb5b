//! Tests of the exact effect of bad input on the cache and on a subscriber, as listed in `docs/bad-input.md`.
//! `invalid_responses` tests that such input affects no other cluster and that the hub recovers.

use std::collections::BTreeMap;

use informer_hub::actors::Tuning;
use informer_hub_sim::{Fault, FaultScript, RawAnswer, Rule, SimCluster, SimConfig, Streaming, When, World};
use informer_hub_types::ObjectKey;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, eventually, quick, small};
use crate::parity::{EventLog, event_log, to_pods};
use crate::subscriptions::touch;

const PODS: usize = 3;

/// Hub over one cluster that sends bad input, with the events of a subscriber.
struct FaultyCluster {
    fleet: Fleet,
    events: EventLog,
    /// Pod that the bad input refers to.
    pod: Value,
    key: ObjectKey,
    /// A version that the cluster has not reached when the bad input arrives.
    fresh: u64,
}

impl FaultyCluster {
    /// Starts a hub over one cluster. `script` builds the fault from one of its pods and a new version.
    async fn new(streaming: Streaming, tuning: Tuning, script: impl FnOnce(&Value, u64) -> FaultScript) -> Self {
        let cluster =
            SimCluster::start(SimConfig { streaming, protobuf: false, ..small(1, PODS) }, &Handle::current()).unwrap();
        let (key, pod, fresh) = cluster.with_world(|world| {
            let pod = world.objects(&World::pods()).last().unwrap();
            (pod.key().clone(), pod.value().clone(), world.version() + 100)
        });
        cluster.set_faults(script(&pod, fresh));
        let clusters = BTreeMap::from([("faulty".to_owned(), cluster)]);
        let fleet = Fleet::start_with(clusters, &["pods"], Vec::new(), tuning).await;
        let (events, subscriber) = event_log();
        fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
        Self { fleet, events, pod, key, fresh }
    }

    /// Starts a cluster whose watch sends these lines after the sync. `lines` gets the pod and a new version.
    async fn watching(lines: impl FnOnce(&Value, &str) -> Vec<Value>) -> Self {
        let script = |pod: &Value, fresh: u64| {
            let lines: Vec<_> = lines(pod, &fresh.to_string()).iter().map(|line| format!("{line}\n")).collect();
            FaultScript::one(Rule::new(When::Streaming, Fault::Insert(lines.concat().into())).after(PODS + 1))
        };
        let faulty = Box::pin(Self::new(Streaming::Supported, quick(), script)).await;
        faulty.receives(PODS + 1).await;
        // The fault inserts the lines after the next event.
        touch(faulty.cluster());
        faulty
    }

    fn cluster(&self) -> &SimCluster {
        &self.fleet.clusters["faulty"]
    }

    async fn receives(&self, count: usize) {
        eventually(&format!("{count} events"), async || self.events.lock().len() >= count).await;
    }

    /// Waits for `count` events after the bad input and returns them.
    async fn next_events(&self, count: usize) -> Vec<String> {
        self.receives(PODS + 2 + count).await;
        let events = self.events.lock();
        assert!(events[PODS + 1].starts_with('~'), "{events:?}");
        events[PODS + 2..].to_vec()
    }

    /// Returns the cached UID and version of the pod.
    async fn cached(&self) -> Option<(String, String)> {
        let cached = self.fleet.cached("faulty").await;
        cached.get(&self.key).map(|(uid, version)| (uid.to_string(), version.to_string()))
    }

    /// Ends the fault and forces a relist, which removes objects that the cluster never had.
    async fn heal(&mut self) {
        self.cluster().heal();
        // Advances past every invented version: a watch from a future version gets no events until then.
        while self.cluster().with_world(|world| world.version()) <= self.fresh {
            touch(self.cluster());
        }
        self.cluster().with_world(World::compact);
        self.fleet.first().stop().await;
        self.fleet.first().restart().await;
        self.fleet.converged().await;
    }

    async fn end(self) {
        assert_eq!(self.fleet.informer("faulty").await.restarts, 0);
        self.fleet.end().await;
    }
}

fn event(kind: &str, object: &Value) -> Value {
    json!({ "type": kind, "object": object })
}

/// Returns the pod with another value of a metadata field.
fn with(pod: &Value, field: &str, value: Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"][field] = value;
    pod
}

fn text(pod: &Value, field: &str) -> String {
    pod["metadata"][field].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_of_another_kind_neither_replaces_nor_deletes_its_namesake() {
    let lines = |pod: &Value, fresh: &str| {
        let mut gadget = with(pod, "resourceVersion", json!(fresh));
        gadget["kind"] = json!("Gadget");
        vec![event("MODIFIED", &gadget), event("DELETED", &gadget)]
    };
    let faulty = FaultyCluster::watching(lines).await;
    faulty.fleet.shows("faulty", "two skipped", |informer| informer.skipped == 2).await;
    let error = faulty.fleet.informer("faulty").await.last_error.unwrap();
    assert!(error.contains(r#"unexpected kind "Gadget" of "v1", expected "Pod" of "v1""#), "{error}");
    let (uid, version) = (text(&faulty.pod, "uid"), text(&faulty.pod, "resourceVersion"));
    assert_eq!(faulty.cached().await, Some((uid, version)));
    touch(faulty.cluster());
    assert_eq!(faulty.next_events(1).await.len(), 1, "the skipped events are not notified");
    faulty.fleet.converged().await;
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_uid_deletes_the_old_object_and_adds_a_new_one() {
    let lines = |pod: &Value, fresh: &str| {
        vec![event("MODIFIED", &with(&with(pod, "uid", json!("other")), "resourceVersion", json!(fresh)))]
    };
    let mut faulty = FaultyCluster::watching(lines).await;
    let name = faulty.key.name().to_owned();
    assert_eq!(faulty.next_events(2).await, [format!("†{name}"), format!("+{name}")]);
    assert_eq!(faulty.cached().await, Some(("other".to_owned(), faulty.fresh.to_string())));
    faulty.heal().await;
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_version_is_stale_and_a_missing_version_is_applied() {
    let lines = |pod: &Value, _: &str| {
        vec![
            event("MODIFIED", &with(pod, "resourceVersion", json!("1"))),
            event("DELETED", &with(pod, "resourceVersion", json!("1"))),
            event("MODIFIED", &with(pod, "resourceVersion", json!(""))),
        ]
    };
    let mut faulty = FaultyCluster::watching(lines).await;
    assert_eq!(faulty.next_events(1).await, [format!("~{}", faulty.key.name())]);
    assert_eq!(faulty.cached().await, Some((text(&faulty.pod, "uid"), String::new())));
    let informer = faulty.fleet.informer("faulty").await;
    assert_eq!((informer.skipped, informer.last_error), (0, None));
    faulty.heal().await;
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_object_in_a_list_takes_the_later_state() {
    let script = |pod: &Value, _| {
        let twins: Vec<_> = ["900001", "900002"]
            .map(|version| with(&with(pod, "name", json!("twin")), "resourceVersion", json!(version)).to_string())
            .into();
        FaultScript::one(Rule::new(When::List, Fault::Insert(twins.join(",").into())).after(1))
    };
    let mut faulty = FaultyCluster::new(Streaming::Refused, quick(), script).await;
    eventually("the twin", async || faulty.events.lock().iter().any(|word| word == "synced")).await;
    let events = faulty.events.lock().clone();
    assert!(events.contains(&"!twin".to_owned()), "{events:?}");
    let cached = faulty.fleet.cached("faulty").await;
    assert_eq!(cached.len(), PODS + 1);
    let twin = cached.iter().find(|(key, _)| key.name() == "twin").unwrap();
    assert_eq!(twin.1.1.to_string(), "900002");
    faulty.heal().await;
    // The cache is updated before subscribers are notified.
    eventually("the deletion of the twin", async || faulty.events.lock().contains(&"†twin".to_owned())).await;
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bookmark_without_a_version_ends_a_streaming_list_and_causes_a_relist() {
    let script = |pod: &Value, _| {
        let mark = json!({ "kind": "Pod", "apiVersion": "v1",
            "metadata": { "annotations": { "k8s.io/initial-events-end": "true" } } });
        let lines = [
            event("ADDED", &with(&with(pod, "name", json!("ghost")), "resourceVersion", json!(""))),
            event("BOOKMARK", &mark),
            event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "" } })),
        ];
        let body = lines.map(|line| format!("{line}\n")).concat();
        FaultScript::one(Rule::new(When::Streaming, Fault::Answer(RawAnswer::new(200, body))))
    };
    let faulty = FaultyCluster::new(Streaming::Supported, quick(), script).await;
    faulty.fleet.converged().await;
    faulty.receives(PODS + 3).await;
    let mut events = faulty.events.lock().clone();
    assert_eq!(events[..2], ["!ghost", "synced"], "the streaming list was complete");
    events.sort();
    assert!(events.contains(&"†ghost".to_owned()), "the next list did not contain it: {events:?}");
    assert_eq!(faulty.fleet.informer("faulty").await.last_error, None);
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_error_event_ends_the_watch_and_is_reported() {
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "code": 299, "reason": "Sparkle", "message": "who knows" });
    let faulty = FaultyCluster::watching(|_, _| vec![event("ERROR", &status)]).await;
    let before = faulty.fleet.informer("faulty").await.lists;
    faulty
        .fleet
        .shows("faulty", "the error", |informer| {
            informer.last_error.as_ref().is_some_and(|error| error.contains("500 Sparkle: who knows"))
        })
        .await;
    touch(faulty.cluster());
    assert_eq!(faulty.next_events(1).await.len(), 1);
    faulty.fleet.converged().await;
    let informer = faulty.fleet.informer("faulty").await;
    assert_eq!((informer.watches, informer.lists), (2, before), "reopened without a list");
    faulty.end().await;
}

// client-go: TestReflectorReplacesStoreOnUnsafeDelete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_read_error_relists_and_deletes_only_the_corrupt_object() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "StoreReadError",
        "message": "failed to prepare current and previous objects: corrupt object has been deleted",
    });
    let lines = |pod: &Value, _: &str| {
        let corrupt = with(&with(pod, "name", json!("corrupt")), "uid", json!("corrupt"));
        vec![event("ADDED", &corrupt), event("ERROR", &status)]
    };
    let faulty = FaultyCluster::watching(lines).await;
    assert_eq!(faulty.next_events(2).await, ["+corrupt", "†corrupt"]);
    touch(faulty.cluster());
    let next_events = faulty.next_events(3).await;
    assert!(
        next_events.len() == 3 && next_events[2].starts_with('~'),
        "only the corrupt object was deleted: {next_events:?}"
    );
    faulty.fleet.converged().await;
    let informer = faulty.fleet.informer("faulty").await;
    assert_eq!((informer.lists, informer.objects), (2, PODS as u64));
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_continue_token_restarts_the_list_without_duplicates() {
    let mut tuning = quick();
    tuning.reflector.page_size = Some(1);
    // A list at any version is answered in one page; here it gets 410. The next list, at the most recent version, is
    // paged, and its third page expires.
    let script = |_: &Value, _| {
        FaultScript::one(Rule::new(When::List, Fault::HttpGone))
            .with(Rule::new(When::Continue, Fault::HttpGone).skip(1))
    };
    let faulty = FaultyCluster::new(Streaming::Refused, tuning, script).await;
    faulty.fleet.converged().await;
    faulty.receives(PODS + 1).await;
    assert_eq!(faulty.cluster().fault_log().len(), 2);
    // The cluster's counters count a list with limit 1, like the first page, as a check of the version.
    let stats = faulty.cluster().stats();
    assert_eq!((stats.lists, stats.checks), (4, 1), "410, two pages, 410, the whole list");
    let events = faulty.events.lock().clone();
    assert_eq!(events.iter().filter(|word| word.starts_with('!')).count(), PODS, "{events:?}");
    assert_eq!((events.len(), events[PODS].as_str()), (PODS + 1, "synced"));
    faulty.end().await;
}

/// Returns a page of a list with a continue token.
fn page(items: &[&Value], token: &str) -> Fault {
    let page = json!({
        "kind": "PodList", "apiVersion": "v1",
        "metadata": { "resourceVersion": "1", "continue": token },
        "items": items,
    });
    Fault::Answer(RawAnswer::new(200, page.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_with_a_repeated_continue_token_ends_and_is_reported() {
    // Two lists of two pages each, then a valid list.
    let script = |pod: &Value, _| FaultScript::one(Rule::new(When::List, page(&[pod], "again")).times(4));
    let faulty = FaultyCluster::new(Streaming::Refused, quick(), script).await;
    let named = "list: page 2 repeats an earlier continue token";
    faulty.fleet.shows("faulty", named, |pods| pods.last_error.as_deref() == Some(named)).await;
    faulty.fleet.converged().await;
    assert_eq!(faulty.cluster().stats().lists, 5, "each list ends at the repeated token");
    faulty.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_empty_pages_ends_and_is_reported() {
    let mut tuning = quick();
    tuning.reflector.list.empty_pages = 4;
    let empty = |token| Rule::new(When::List, page(&[], token));
    let script = |_: &Value, _| {
        ["b", "c", "d"].into_iter().fold(FaultScript::one(empty("a")), |all, token| all.with(empty(token)))
    };
    let begun = std::time::Instant::now();
    let faulty = FaultyCluster::new(Streaming::Refused, tuning, script).await;
    let named = "list: 4 empty pages in a row";
    faulty.fleet.shows("faulty", named, |pods| pods.last_error.as_deref() == Some(named)).await;
    assert!(begun.elapsed() >= std::time::Duration::from_millis(700), "empty pages are paced: {:?}", begun.elapsed());
    faulty.fleet.converged().await;
    assert_eq!(faulty.cluster().stats().lists, 5);
    faulty.end().await;
}

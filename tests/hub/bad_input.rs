//! What each piece of bad input does to the cache and to a subscriber, exactly: the table is `docs/bad-input.md`.
//! That it disturbs nobody else and is got over, among many more of its kind, is in `hostile`.

use std::collections::BTreeMap;

use informer_hub::actors::Tuning;
use informer_hub_sim::{Fault, FaultScript, RawAnswer, Rule, SimCluster, SimConfig, Streaming, When, World};
use informer_hub_types::ObjectKey;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, eventually, quick, small};
use crate::parity::{Words, to_pods, words};
use crate::subscriptions::touch;

const PODS: usize = 3;

struct Patient {
    fleet: Fleet,
    told: Words,
    /// A pod that the bad input is about.
    pod: Value,
    key: ObjectKey,
    /// A version that the cluster has not come to when the bad input arrives.
    fresh: u64,
}

impl Patient {
    /// A hub over one cluster of a few pods, to whom the bad input made of one of them happens.
    async fn new(streaming: Streaming, tuning: Tuning, script: impl FnOnce(&Value, u64) -> FaultScript) -> Self {
        let cluster = SimCluster::start(SimConfig { streaming, ..small(1, PODS) }, &Handle::current()).unwrap();
        let (key, pod, fresh) = cluster.with_world(|world| {
            let pod = world.objects(&World::pods()).last().unwrap();
            (pod.key().clone(), pod.value().clone(), world.version() + 100)
        });
        cluster.set_faults(script(&pod, fresh));
        let clusters = BTreeMap::from([("ill".to_owned(), cluster)]);
        let fleet = Fleet::start_with(clusters, &["pods"], Vec::new(), tuning).await;
        let (told, subscriber) = words();
        fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
        Self { fleet, told, pod, key, fresh }
    }

    /// One whose watch brings these lines once it is in step. `lines` is given the pod and a version that is new.
    async fn watching(lines: impl FnOnce(&Value, &str) -> Vec<Value>) -> Self {
        let script = |pod: &Value, fresh: u64| {
            let lines: Vec<_> = lines(pod, &fresh.to_string()).iter().map(|line| format!("{line}\n")).collect();
            FaultScript::one(Rule::new(When::Streaming, Fault::Insert(lines.concat().into())).after(PODS + 1))
        };
        let patient = Self::new(Streaming::Supported, quick(), script).await;
        patient.tells(PODS + 1).await;
        // The lines come behind the next event.
        touch(patient.cluster());
        patient
    }

    fn cluster(&self) -> &SimCluster {
        &self.fleet.clusters["ill"]
    }

    async fn tells(&self, words: usize) {
        eventually(&format!("{words} words"), async || self.told.lock().len() >= words).await;
    }

    /// Waits for something that is told after the bad input, and takes the words in between.
    async fn news(&self, words: usize) -> Vec<String> {
        self.tells(PODS + 2 + words).await;
        let told = self.told.lock();
        assert!(told[PODS + 1].starts_with('~'), "{told:?}");
        told[PODS + 2..].to_vec()
    }

    /// UID and version that the cache has of the pod.
    async fn cached(&self) -> Option<(String, String)> {
        let cached = self.fleet.cached("ill").await;
        cached.get(&self.key).map(|(uid, version)| (uid.to_string(), version.to_string()))
    }

    /// Only a list takes away what the cluster never had.
    async fn heal(&mut self) {
        self.cluster().heal();
        // Past every version that was made up: a watch from one that is still to come is told nothing until then.
        while self.cluster().with_world(|world| world.version()) <= self.fresh {
            touch(self.cluster());
        }
        self.cluster().with_world(World::compact);
        self.fleet.first().stop().await;
        self.fleet.first().restart().await;
        self.fleet.converged().await;
    }

    async fn end(self) {
        assert_eq!(self.fleet.informer("ill").await.restarts, 0);
        self.fleet.end().await;
    }
}

fn event(kind: &str, object: &Value) -> Value {
    json!({ "type": kind, "object": object })
}

/// The pod with another value at a place in its metadata.
fn with(pod: &Value, field: &str, value: Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"][field] = value;
    pod
}

fn text(pod: &Value, field: &str) -> String {
    pod["metadata"][field].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_another_kind_neither_replaces_nor_ends_what_has_its_name() {
    let lines = |pod: &Value, fresh: &str| {
        let mut gadget = with(pod, "resourceVersion", json!(fresh));
        gadget["kind"] = json!("Gadget");
        vec![event("MODIFIED", &gadget), event("DELETED", &gadget)]
    };
    let patient = Patient::watching(lines).await;
    patient.fleet.shows("ill", "two skipped", |informer| informer.skipped == 2).await;
    let said = patient.fleet.informer("ill").await.last_error.unwrap();
    assert!(said.contains(r#"unexpected kind "Gadget" of "v1", expected "Pod" of "v1""#), "{said}");
    let (uid, version) = (text(&patient.pod, "uid"), text(&patient.pod, "resourceVersion"));
    assert_eq!(patient.cached().await, Some((uid, version)));
    touch(patient.cluster());
    assert_eq!(patient.news(1).await.len(), 1, "nobody was told");
    patient.fleet.converged().await;
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_uid_that_changes_is_the_end_of_one_object_and_the_beginning_of_another() {
    let lines = |pod: &Value, fresh: &str| {
        vec![event("MODIFIED", &with(&with(pod, "uid", json!("other")), "resourceVersion", json!(fresh)))]
    };
    let mut patient = Patient::watching(lines).await;
    let name = patient.key.name().to_owned();
    assert_eq!(patient.news(2).await, [format!("†{name}"), format!("+{name}")]);
    assert_eq!(patient.cached().await, Some(("other".to_owned(), patient.fresh.to_string())));
    patient.heal().await;
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_goes_backwards_is_stale_and_one_that_is_missing_is_taken_at_its_word() {
    let lines = |pod: &Value, _: &str| {
        vec![
            event("MODIFIED", &with(pod, "resourceVersion", json!("1"))),
            event("DELETED", &with(pod, "resourceVersion", json!("1"))),
            event("MODIFIED", &with(pod, "resourceVersion", json!(""))),
        ]
    };
    let mut patient = Patient::watching(lines).await;
    assert_eq!(patient.news(1).await, [format!("~{}", patient.key.name())]);
    assert_eq!(patient.cached().await, Some((text(&patient.pod, "uid"), String::new())));
    let informer = patient.fleet.informer("ill").await;
    assert_eq!((informer.skipped, informer.last_error), (0, None));
    patient.heal().await;
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_object_that_a_list_has_twice_the_later_one_counts() {
    let script = |pod: &Value, _| {
        let twins: Vec<_> = ["900001", "900002"]
            .map(|version| with(&with(pod, "name", json!("twin")), "resourceVersion", json!(version)).to_string())
            .into();
        FaultScript::one(Rule::new(When::List, Fault::Insert(twins.join(",").into())).after(1))
    };
    let mut patient = Patient::new(Streaming::Refused, quick(), script).await;
    eventually("the twin", async || patient.told.lock().iter().any(|word| word == "synced")).await;
    let told = patient.told.lock().clone();
    assert!(told.contains(&"!twin".to_owned()), "{told:?}");
    let cached = patient.fleet.cached("ill").await;
    assert_eq!(cached.len(), PODS + 1);
    let twin = cached.iter().find(|(key, _)| key.name() == "twin").unwrap();
    assert_eq!(twin.1.1.to_string(), "900002");
    patient.heal().await;
    // The cache comes first, and who is told of it after that.
    eventually("the end of the twin", async || patient.told.lock().contains(&"†twin".to_owned())).await;
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_without_a_version_ends_a_streaming_list_and_another_list_follows_the_watch() {
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
    let patient = Patient::new(Streaming::Supported, quick(), script).await;
    patient.fleet.converged().await;
    patient.tells(PODS + 3).await;
    let mut told = patient.told.lock().clone();
    assert_eq!(told[..2], ["!ghost", "synced"], "it was a whole list");
    told.sort();
    assert!(told.contains(&"†ghost".to_owned()), "and the next one did not have it: {told:?}");
    assert_eq!(patient.fleet.informer("ill").await.last_error, None);
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_event_that_nobody_knows_breaks_the_watch_and_is_named() {
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "code": 299, "reason": "Sparkle", "message": "who knows" });
    let patient = Patient::watching(|_, _| vec![event("ERROR", &status)]).await;
    let before = patient.fleet.informer("ill").await.lists;
    patient
        .fleet
        .shows("ill", "the error", |informer| {
            informer.last_error.as_ref().is_some_and(|said| said.contains("500 Sparkle: who knows"))
        })
        .await;
    touch(patient.cluster());
    assert_eq!(patient.news(1).await.len(), 1);
    patient.fleet.converged().await;
    let informer = patient.fleet.informer("ill").await;
    assert_eq!((informer.watches, informer.lists), (2, before), "opened again, not listed");
    patient.end().await;
}

// client-go: TestReflectorReplacesStoreOnUnsafeDelete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_read_error_of_a_watch_relists_and_only_the_corrupt_object_leaves() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "StoreReadError",
        "message": "failed to prepare current and previous objects: corrupt object has been deleted",
    });
    let lines = |pod: &Value, _: &str| {
        let corrupt = with(&with(pod, "name", json!("corrupt")), "uid", json!("corrupt"));
        vec![event("ADDED", &corrupt), event("ERROR", &status)]
    };
    let patient = Patient::watching(lines).await;
    assert_eq!(patient.news(2).await, ["+corrupt", "†corrupt"]);
    touch(patient.cluster());
    let news = patient.news(3).await;
    assert!(news.len() == 3 && news[2].starts_with('~'), "nothing else left: {news:?}");
    patient.fleet.converged().await;
    let informer = patient.fleet.informer("ill").await;
    assert_eq!((informer.lists, informer.objects), (2, PODS as u64));
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_loses_its_continue_token_half_way_is_taken_whole() {
    let mut tuning = quick();
    tuning.reflector.page_size = Some(1);
    // A list at any version comes in one piece; one at the most recent comes in pages, of which the third expires.
    let script = |_: &Value, _| {
        FaultScript::one(Rule::new(When::List, Fault::HttpGone))
            .with(Rule::new(When::Continue, Fault::HttpGone).skip(1))
    };
    let patient = Patient::new(Streaming::Refused, tuning, script).await;
    patient.fleet.converged().await;
    patient.tells(PODS + 1).await;
    assert_eq!(patient.cluster().fault_log().len(), 2);
    assert_eq!(patient.cluster().stats().lists, 5, "refused, two pages, refused, everything");
    let told = patient.told.lock().clone();
    assert_eq!(told.iter().filter(|word| word.starts_with('!')).count(), PODS, "{told:?}");
    assert_eq!((told.len(), told[PODS].as_str()), (PODS + 1, "synced"));
    patient.end().await;
}

/// A page of a list that goes on.
fn page(items: &[&Value], token: &str) -> Fault {
    let page = json!({
        "kind": "PodList", "apiVersion": "v1",
        "metadata": { "resourceVersion": "1", "continue": token },
        "items": items,
    });
    Fault::Answer(RawAnswer::new(200, page.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_goes_round_in_a_circle_ends_and_is_named() {
    // Two lists of two pages each, then one as it should be.
    let script = |pod: &Value, _| FaultScript::one(Rule::new(When::List, page(&[pod], "again")).times(4));
    let patient = Patient::new(Streaming::Refused, quick(), script).await;
    let named = "list: page 2 repeats an earlier continue token";
    patient.fleet.shows("ill", named, |pods| pods.last_error.as_deref() == Some(named)).await;
    patient.fleet.converged().await;
    assert_eq!(patient.cluster().stats().lists, 5, "no list goes on after the repeated token");
    patient.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_empty_pages_ends_and_is_named() {
    let mut tuning = quick();
    tuning.reflector.list.empty_pages = 4;
    let empty = |token| Rule::new(When::List, page(&[], token));
    let script = |_: &Value, _| {
        ["b", "c", "d"].into_iter().fold(FaultScript::one(empty("a")), |all, token| all.with(empty(token)))
    };
    let begun = std::time::Instant::now();
    let patient = Patient::new(Streaming::Refused, tuning, script).await;
    let named = "list: 4 empty pages in a row";
    patient.fleet.shows("ill", named, |pods| pods.last_error.as_deref() == Some(named)).await;
    assert!(begun.elapsed() >= std::time::Duration::from_millis(700), "empty pages are paced: {:?}", begun.elapsed());
    patient.fleet.converged().await;
    assert_eq!(patient.cluster().stats().lists, 5);
    patient.end().await;
}

//! Tests of clusters that are removed from a running hub and re-added, with and without a state directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub::state::caches::inspect;
use informer_hub_config::Config;
use informer_hub_disk::RealDisk;
use informer_hub_sim::World;
use informer_hub_types::{ClusterSelector, Notification};

use crate::fleet::eventually;
use crate::restart::{EventLog, RunningHub, Testbed};

fn without(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.clusters.retain(|cluster| cluster.name.as_str() != name);
    config
}

impl RunningHub {
    async fn change_to(&self, config: Config) {
        self.hub.reloader().reload(config).await.unwrap();
    }

    async fn leaving(&self) -> u64 {
        self.hub.report().await.unwrap().hub.state_dir.unwrap().leaving
    }
}

/// Drains a log.
fn take_events(log: &EventLog) -> Vec<String> {
    std::mem::take(&mut *log.lock())
}

/// Returns the clusters whose pods are on disk, each with the number of subscribers that have acknowledged all of them.
fn cached_on_disk(bed: &Testbed) -> Vec<(String, usize)> {
    let caches = bed.dir.path().join("state/caches");
    let reports = inspect(&RealDisk, &caches, true).unwrap();
    let pods = reports.into_iter().find(|report| report.directory == "core/v1/pods").unwrap();
    pods.partitions.into_iter().map(|it| (it.cluster, it.readers.len())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readded_cluster_lists_nothing_and_delivers_changes_once() {
    let bed = Testbed::new(2, 60);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    running.logged(&running.durable, "synced c1").await;
    running.logged(&running.transient, "synced c0").await;
    let (lists, all) = (bed.lists(), bed.config());
    // An event right before the removal is delivered before it.
    let before = bed.create("c0");
    running.logged(&running.durable, &format!("+c0/{before}")).await;
    _ = (take_events(&running.durable), take_events(&running.transient));

    running.change_to(without(&all, "c0")).await;
    assert_eq!(running.all().await.items.len(), 60, "only the objects of c1");
    assert_eq!(cached_on_disk(&bed)[0], ("c0".to_owned(), 1));
    let (deleted, added, other) = (bed.first_key("c0"), bed.create("c0"), bed.create("c1"));
    bed.delete("c0", &deleted);
    running.logged(&running.durable, &format!("+c1/{other}")).await;
    running.checkpointed().await;
    running.change_to(all.clone()).await;
    running.logged(&running.durable, &format!("-c0/{deleted}")).await;
    running.logged(&running.durable, &format!("+c0/{added}")).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let events = take_events(&running.durable);
    assert_eq!(events.len(), 3, "exactly three events: {events:?}");
    running.logged(&running.transient, "synced c0").await;
    assert!(
        take_events(&running.transient).len() > 60,
        "a subscriber that is not durable gets the initial objects again"
    );

    // Removes the cluster and re-adds it at once with other labels, several times.
    for at in 0..3 {
        running.change_to(without(&all, "c0")).await;
        let mut relabelled = all.clone();
        relabelled.clusters[0].labels.insert("round".to_owned(), at.to_string());
        running.change_to(relabelled).await;
    }
    let last = bed.create("c0");
    running.logged(&running.durable, &format!("+c0/{last}")).await;
    running.converged(&bed).await;
    let (durable, _) = running.stop().await;
    assert_eq!(durable, [format!("+c0/{last}")]);
    assert_eq!(bed.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_deleted_while_a_cluster_was_removed_arrive_once_as_tombstones() {
    let bed = Testbed::new(1, 30);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    running.checkpointed().await;
    _ = take_events(&running.durable);
    running.change_to(without(&bed.config(), "c0")).await;
    let deleted = bed.first_key("c0");
    bed.delete("c0", &deleted);
    bed.clusters["c0"].with_world(World::compact);
    running.change_to(bed.config()).await;
    running.logged(&running.durable, &format!("†c0/{deleted}")).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let (durable, _) = running.stop().await;
    assert_eq!(durable, [format!("†c0/{deleted}")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_can_be_readded_after_a_restart_of_the_hub() {
    let bed = Testbed::new(2, 30);
    let running = bed.start().await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    running.checkpointed().await;
    let less = without(&bed.config(), "c0");
    running.change_to(less.clone()).await;
    running.stop().await;
    let (deleted, lists) = (bed.first_key("c0"), bed.lists());
    bed.delete("c0", &deleted);
    let running = bed.start_with(less).await;
    running.change_to(bed.config()).await;
    running.logged(&running.durable, &format!("-c0/{deleted}")).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    running.stop().await;
    let running = bed.start().await;
    running.converged(&bed).await;
    assert!(running.stop().await.0.is_empty());
    assert_eq!(bed.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_events_of_a_removed_cluster_are_delivered_after_readding() {
    let bed = Testbed::new(1, 20);
    let running = bed.start().await;
    running.converged(&bed).await;
    let gate = Arc::new(AtomicBool::new(true));
    let (open, log) = (Arc::clone(&gate), EventLog::default());
    let keys = Arc::clone(&log);
    let subscriber = Subscriber::from_fn(move |notification: &Notification| {
        while !open.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        keys.lock().extend(notification.object().map(|object| object.key().to_string()));
    });
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("slow").durable();
    running.hub.registry().send(subscribe).await.unwrap();
    eventually("20 events at the slow subscriber", async || log.lock().len() == 20).await;
    running.checkpointed().await;
    eventually("both subscribers on disk", async || cached_on_disk(&bed) == [("c0".to_owned(), 2)]).await;
    gate.store(false, SeqCst);
    let unanswered = bed.create("c0");
    running.logged(&running.durable, &format!("+c0/{unanswered}")).await;
    _ = (take_events(&running.durable), take_events(&log));
    running.change_to(without(&bed.config(), "c0")).await;
    assert_eq!((running.leaving().await, running.all().await.items.len()), (1, 0));
    assert_eq!(cached_on_disk(&bed), [("c0".to_owned(), 2)], "the files are unchanged");
    let deleted = bed.first_key("c0");
    bed.delete("c0", &deleted);
    running.change_to(bed.config()).await;
    assert_eq!(running.leaving().await, 0);
    gate.store(true, SeqCst);
    running.logged(&running.durable, &format!("-c0/{deleted}")).await;
    running.logged(&log, &deleted.to_string()).await;
    running.converged(&bed).await;
    running.checkpointed().await;
    let (durable, _) = running.stop().await;
    assert_eq!(durable, [format!("-c0/{deleted}")]);
    let events = take_events(&log);
    assert!(events.contains(&unanswered.to_string()), "{events:?}");
    assert_eq!(events.iter().filter(|key| **key == deleted.to_string()).count(), 1, "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readded_cluster_without_a_state_directory_starts_empty() {
    let bed = Testbed::new(1, 20);
    let mut config = bed.config();
    config.hub.state_dir = None;
    let running = bed.start_with(config.clone()).await;
    running.converged(&bed).await;
    running.logged(&running.durable, "synced c0").await;
    _ = take_events(&running.durable);
    running.change_to(without(&config, "c0")).await;
    let deleted = bed.first_key("c0");
    bed.delete("c0", &deleted);
    running.change_to(config).await;
    running.logged(&running.durable, "synced c0").await;
    let (durable, _) = running.stop().await;
    assert_eq!(durable.iter().filter(|line| line.starts_with('!')).count(), 19);
    assert_eq!(durable.len(), 20, "the deletion is not notified: {durable:?}");
}

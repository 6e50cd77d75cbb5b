//! Clusters that are taken out of a running hub and put back, with a state directory and without.

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
use crate::restart::{Diary, House, Life};

fn without(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.clusters.retain(|cluster| cluster.name.as_str() != name);
    config
}

impl Life {
    async fn change_to(&self, config: Config) {
        self.hub.reloader().reload(config).await.unwrap();
    }

    async fn leaving(&self) -> u64 {
        self.hub.report().await.unwrap().hub.state_dir.unwrap().leaving
    }
}

/// What a diary has from here on; empties it.
fn news(diary: &Diary) -> Vec<String> {
    std::mem::take(&mut *diary.lock())
}

/// What a hub that runs has on disk of the pods of clusters: their names, and how many readers know all of it.
fn on_disk(house: &House) -> Vec<(String, usize)> {
    let caches = house.dir.path().join("state/caches");
    let reports = inspect(&RealDisk, &caches, true).unwrap();
    let pods = reports.into_iter().find(|report| report.directory == "core/v1/pods").unwrap();
    pods.partitions.into_iter().map(|it| (it.cluster, it.readers.len())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_taken_out_and_put_back_lists_nothing_and_tells_what_is_new_once() {
    let house = House::new(2, 60);
    let life = house.live().await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    life.told(&life.durable, "synced c1").await;
    life.told(&life.passing, "synced c0").await;
    let (lists, all) = (house.lists(), house.config());
    // What happens right before is told before it goes.
    let before = house.create("c0");
    life.told(&life.durable, &format!("+c0/{before}")).await;
    _ = (news(&life.durable), news(&life.passing));

    life.change_to(without(&all, "c0")).await;
    assert_eq!(life.all().await.items.len(), 60, "only the other's are there");
    assert_eq!(on_disk(&house)[0], ("c0".to_owned(), 1));
    let (gone, come, other) = (house.first_key("c0"), house.create("c0"), house.create("c1"));
    house.delete("c0", &gone);
    life.told(&life.durable, &format!("+c1/{other}")).await;
    life.kept().await;
    life.change_to(all.clone()).await;
    life.told(&life.durable, &format!("-c0/{gone}")).await;
    life.told(&life.durable, &format!("+c0/{come}")).await;
    life.converged(&house).await;
    life.kept().await;
    let told = news(&life.durable);
    assert_eq!(told.len(), 3, "and nothing else: {told:?}");
    life.told(&life.passing, "synced c0").await;
    assert!(news(&life.passing).len() > 60, "who is not durable begins anew");

    // For a moment, under other labels, and several times.
    for at in 0..3 {
        life.change_to(without(&all, "c0")).await;
        let mut relabelled = all.clone();
        relabelled.clusters[0].labels.insert("round".to_owned(), at.to_string());
        life.change_to(relabelled).await;
    }
    let last = house.create("c0");
    life.told(&life.durable, &format!("+c0/{last}")).await;
    life.converged(&house).await;
    let (durable, _) = life.end().await;
    assert_eq!(durable, [format!("+c0/{last}")]);
    assert_eq!(house.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_vanished_while_a_cluster_was_out_arrives_once_as_a_tombstone() {
    let house = House::new(1, 30);
    let life = house.live().await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    life.kept().await;
    _ = news(&life.durable);
    life.change_to(without(&house.config(), "c0")).await;
    let gone = house.first_key("c0");
    house.delete("c0", &gone);
    house.clusters["c0"].with_world(World::compact);
    life.change_to(house.config()).await;
    life.told(&life.durable, &format!("†c0/{gone}")).await;
    life.converged(&house).await;
    life.kept().await;
    let (durable, _) = life.end().await;
    assert_eq!(durable, [format!("†c0/{gone}")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_be_out_over_the_end_of_the_hub_and_come_back_while_the_next_one_runs() {
    let house = House::new(2, 30);
    let life = house.live().await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    life.kept().await;
    let less = without(&house.config(), "c0");
    life.change_to(less.clone()).await;
    life.end().await;
    let (gone, lists) = (house.first_key("c0"), house.lists());
    house.delete("c0", &gone);
    let life = house.live_with(less).await;
    life.change_to(house.config()).await;
    life.told(&life.durable, &format!("-c0/{gone}")).await;
    life.converged(&house).await;
    life.kept().await;
    life.end().await;
    let life = house.live().await;
    life.converged(&house).await;
    assert!(life.end().await.0.is_empty());
    assert_eq!(house.lists(), lists, "nothing was listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_readers_have_not_answered_goes_on_from_memory_and_nothing_is_lost_on_disk() {
    let house = House::new(1, 20);
    let life = house.live().await;
    life.converged(&house).await;
    let gate = Arc::new(AtomicBool::new(true));
    let (open, diary) = (Arc::clone(&gate), Diary::default());
    let pages = Arc::clone(&diary);
    let subscriber = Subscriber::from_fn(move |told: &Notification| {
        while !open.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        pages.lock().extend(told.object().map(|object| object.key().to_string()));
    });
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("slow").durable();
    life.hub.registry().send(subscribe).await.unwrap();
    eventually("the slow one knows all", async || diary.lock().len() == 20).await;
    life.kept().await;
    eventually("both readers are on disk", async || on_disk(&house) == [("c0".to_owned(), 2)]).await;
    gate.store(false, SeqCst);
    let unanswered = house.create("c0");
    life.told(&life.durable, &format!("+c0/{unanswered}")).await;
    _ = (news(&life.durable), news(&diary));
    life.change_to(without(&house.config(), "c0")).await;
    assert_eq!((life.leaving().await, life.all().await.items.len()), (1, 0));
    assert_eq!(on_disk(&house), [("c0".to_owned(), 2)], "it stays as it was");
    let gone = house.first_key("c0");
    house.delete("c0", &gone);
    life.change_to(house.config()).await;
    assert_eq!(life.leaving().await, 0);
    gate.store(true, SeqCst);
    life.told(&life.durable, &format!("-c0/{gone}")).await;
    life.told(&diary, &gone.to_string()).await;
    life.converged(&house).await;
    life.kept().await;
    let (durable, _) = life.end().await;
    assert_eq!(durable, [format!("-c0/{gone}")]);
    let told = news(&diary);
    assert!(told.contains(&unanswered.to_string()), "{told:?}");
    assert_eq!(told.iter().filter(|key| **key == gone.to_string()).count(), 1, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_state_directory_a_cluster_that_is_put_back_begins_anew() {
    let house = House::new(1, 20);
    let mut config = house.config();
    config.hub.state_dir = None;
    let life = house.live_with(config.clone()).await;
    life.converged(&house).await;
    life.told(&life.durable, "synced c0").await;
    _ = news(&life.durable);
    life.change_to(without(&config, "c0")).await;
    let gone = house.first_key("c0");
    house.delete("c0", &gone);
    life.change_to(config).await;
    life.told(&life.durable, "synced c0").await;
    let (durable, _) = life.end().await;
    assert_eq!(durable.iter().filter(|line| line.starts_with('!')).count(), 19);
    assert_eq!(durable.len(), 20, "the deletion is told to nobody: {durable:?}");
}

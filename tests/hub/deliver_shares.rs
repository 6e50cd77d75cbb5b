//! Tests of deliverers that share the sinks of a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use informer_hub_config::Config;
use informer_hub_roles::simulated::SimulatedFleet;
use informer_hub_sim::Churn;
use serde_json::Value;

use crate::collect::{Process, SOME_FAULTS, cluster, services};
use crate::deliver::{Clusters, Deliverer, deletions_have_one_id, events};
use crate::fleet::{config, eventually, file_events, file_sink, with_sinks};
use crate::standby::{change, receivers_converge, uid_of, uids};

const SINKS: [&str; 4] = ["a", "b", "c.d", "e"];

fn file(folder: &Path, deliverer: &str, sink: &str) -> PathBuf {
    folder.join(format!("{deliverer}-{sink}.jsonl"))
}

async fn deliverer(name: &str, services: &SimulatedFleet, clusters: &Clusters, folder: &Path) -> Deliverer {
    let sinks = SINKS.map(|sink| file_sink(sink, &file(folder, name, sink)));
    Deliverer::start_with(name, services, clusters, (folder.to_owned(), sinks.to_vec())).await
}

/// Returns the sinks that a deliverer delivers.
async fn delivered_by(one: &Deliverer) -> BTreeSet<String> {
    let report = one.hub.report().await.unwrap();
    let delivering = report.sinks.iter().filter(|sink| !sink.standby).map(|sink| sink.name.clone()).collect();
    let of_process: BTreeSet<_> = report.ha.unwrap().sinks.unwrap().into_iter().collect();
    // The report reads the two one after the other, so one may be older. Then only the sinks in both count.
    if of_process == delivering { delivering } else { of_process.intersection(&delivering).cloned().collect() }
}

async fn share(deliverers: &[&Deliverer], expected: &[usize]) {
    eventually(&format!("they share the sinks as {expected:?}"), async || {
        let mut counts = Vec::new();
        for one in deliverers {
            counts.push(delivered_by(one).await.len());
        }
        counts == expected
    })
    .await;
}

/// Waits until the status of each deliverer names the holder of each sink.
async fn each_names_the_holders(deliverers: &[(&str, &Deliverer)]) {
    let mut expected = BTreeMap::new();
    for (name, one) in deliverers {
        expected.extend(delivered_by(one).await.into_iter().map(|sink| (sink, (*name).to_owned())));
    }
    for (name, one) in deliverers {
        eventually(&format!("{name} names the holders {expected:?}"), async || {
            let sinks = one.hub.report().await.unwrap().sinks;
            sinks.into_iter().filter_map(|sink| Some((sink.name, sink.deliverer?))).collect::<BTreeMap<_, _>>()
                == expected
        })
        .await;
    }
}

/// Asserts that the versions of each object never decrease in what one process has sent to a sink.
fn each_process_keeps_the_order(files: &[PathBuf]) {
    for file in files {
        let mut newest = BTreeMap::<String, u64>::new();
        for event in file_events(file) {
            let (Some(uid), Some(version)) = (uid_of(&event), event["data"]["resourceVersion"].as_str()) else {
                continue;
            };
            let version = version.parse().unwrap();
            let newest = newest.entry(uid.clone()).or_insert(version);
            assert!(*newest <= version, "{}: {uid} at {version} after {newest}", file.display());
            *newest = version;
        }
    }
}

fn ids(events: &[Value]) -> BTreeSet<&str> {
    events.iter().map(|event| event["id"].as_str().unwrap()).collect()
}

async fn sinks_are_shared_through_a_kill_and_a_return(seed: u64) {
    let (services, clusters, mut changes) = (services(seed, SOME_FAULTS), cluster(seed, 40), Churn::new(seed));
    let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
    let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
    let names = ["d0", "d1", "d2"];
    let files = |sink: &str| names.map(|name| file(folder.path(), name, sink)).to_vec();
    let mut created = uids(pods);
    let first = deliverer(names[0], &services, &clusters, folder.path()).await;
    share(&[&first], &[4]).await;
    let second = deliverer(names[1], &services, &clusters, folder.path()).await;
    created.extend(change(pods, &mut changes, 60));
    share(&[&first, &second], &[2, 2]).await;
    each_names_the_holders(&[(names[0], &first), (names[1], &second)]).await;
    created.extend(change(pods, &mut changes, 60));
    for sink in SINKS {
        receivers_converge(pods, &created, || events(&files(sink))).await;
    }
    let kept = delivered_by(&second).await;
    drop(first);
    created.extend(change(pods, &mut changes, 40));
    eventually("the survivor delivers all sinks", async || {
        let delivered = delivered_by(&second).await;
        assert!(delivered.is_superset(&kept), "seed {seed}: {delivered:?} lacks some of {kept:?}");
        delivered.len() == 4
    })
    .await;
    let third = deliverer(names[2], &services, &clusters, folder.path()).await;
    created.extend(change(pods, &mut changes, 40));
    share(&[&second, &third], &[2, 2]).await;
    created.extend(change(pods, &mut changes, 40));
    for sink in SINKS {
        receivers_converge(pods, &created, || events(&files(sink))).await;
        let all = events(&files(sink));
        deletions_have_one_id(&all);
        each_process_keeps_the_order(&files(sink));
        let repeated = all.len() - ids(&all).len();
        println!("seed {seed}: sink {sink}: {repeated} of {} events are repetitions", all.len());
        assert!(repeated < 150, "seed {seed}: {repeated} of {} events are repetitions", all.len());
    }
    // An orderly stop hands everything over.
    third.hub.shutdown(Duration::from_secs(10)).await;
    share(&[&second], &[4]).await;
    collector.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_deliverers_deliver_two_of_four_sinks_each_and_a_killed_one_costs_only_its_own() {
    for seed in [41, 42] {
        sinks_are_shared_through_a_kill_and_a_return(seed).await;
    }
}

fn with_shares(clusters: &Clusters, deliverer: &str, names: &[&str], folder: &Path) -> Config {
    let sinks = names.iter().map(|sink| file_sink(sink, &file(folder, deliverer, sink))).collect();
    with_sinks(config(clusters, &["pods"]), sinks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_adds_removes_and_returns_sinks_of_deliverers_that_share_them() {
    let (services, clusters, mut changes) = (services(43, SOME_FAULTS), cluster(43, 30), Churn::new(43));
    let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
    let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
    let names = ["d0", "d1"];
    let [first, second] = [
        deliverer(names[0], &services, &clusters, folder.path()).await,
        deliverer(names[1], &services, &clusters, folder.path()).await,
    ];
    let reload = async |which: usize, sinks: &[&str]| {
        let next = with_shares(&clusters, names[which], sinks, folder.path());
        [&first, &second][which].hub.reloader().reload(next).await.unwrap();
    };
    let files = |sink: &str| names.map(|name| file(folder.path(), name, sink)).to_vec();
    let mut created = uids(pods);
    created.extend(change(pods, &mut changes, 40));
    share(&[&first, &second], &[2, 2]).await;
    let one_delivers = async |sink: &str| {
        let holders = async || {
            let delivered = [delivered_by(&first).await, delivered_by(&second).await];
            delivered.iter().filter(|delivered| delivered.contains(sink)).count()
        };
        eventually(&format!("one of them delivers {sink}"), async || holders().await == 1).await;
    };
    // Sink `f` is added, first on one deliverer only.
    let more = ["a", "b", "c.d", "e", "f"];
    reload(0, &more).await;
    eventually("the one that has it delivers it", async || delivered_by(&first).await.contains("f")).await;
    reload(1, &more).await;
    created.extend(change(pods, &mut changes, 40));
    one_delivers("f").await;
    // Sink `a` is removed, first on the deliverer that delivers it, so that the other one takes it over.
    let fewer = ["b", "c.d", "e", "f"];
    let holder = usize::from(!delivered_by(&first).await.contains("a"));
    reload(holder, &fewer).await;
    created.extend(change(pods, &mut changes, 40));
    let other = [&second, &first][holder];
    eventually("the other one delivers it", async || delivered_by(other).await.contains("a")).await;
    receivers_converge(pods, &created, || events(&files("a"))).await;
    let published = services.lease_note("sink.a");
    eventually("its progress is published", async || services.lease_note("sink.a") != published).await;
    reload(1 - holder, &fewer).await;
    share(&[&first, &second], &[2, 2]).await;
    // Sink `a` is added again, on both deliverers at once.
    let before = events(&files("a")).len();
    reload(0, &more[..]).await;
    reload(1, &more[..]).await;
    one_delivers("a").await;
    created.extend(change(pods, &mut changes, 40));
    for sink in more {
        receivers_converge(pods, &created, || events(&files(sink))).await;
        deletions_have_one_id(&events(&files(sink)));
        each_process_keeps_the_order(&files(sink));
    }
    let again = events(&files("a")).split_off(before);
    println!("{} events of the sink that was added again", again.len());
    first.hub.shutdown(Duration::from_secs(10)).await;
    share(&[&second], &[5]).await;
    collector.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_of_a_sink_are_shared_and_keep_each_object_in_one_partition() {
    const COUNT: NonZeroU16 = NonZeroU16::new(4).unwrap();
    let (services, clusters, mut changes) = (services(44, SOME_FAULTS), cluster(44, 60), Churn::new(44));
    let (pods, folder) = (&clusters["c0"], tempfile::tempdir().unwrap());
    let collector = Process::start_with("collector", &services, &clusters, &["pods"]).await;
    let names = ["d0", "d1"];
    let partitions: Vec<_> = (1..=COUNT.get()).map(|number| format!("audit-{number}-of-{COUNT}")).collect();
    let start = async |name: &str| {
        let whole = file_sink("audit", Path::new("of each partition"));
        let sinks = whole.partitions(COUNT).map(|mut sink| {
            sink.transport = file_sink(&sink.name, &file(folder.path(), name, &sink.name)).transport;
            sink
        });
        Deliverer::start_with(name, &services, &clusters, (folder.path().to_owned(), sinks.collect())).await
    };
    let (first, second) = (start(names[0]).await, start(names[1]).await);
    let mut created = uids(pods);
    share(&[&first, &second], &[2, 2]).await;
    created.extend(change(pods, &mut changes, 80));
    let of_partition = |sink: &String| events(&names.map(|name| file(folder.path(), name, sink)));
    let all = || partitions.iter().flat_map(of_partition).collect::<Vec<_>>();
    let repeated = |sink: &String| of_partition(sink).len() - ids(&of_partition(sink)).len();
    receivers_converge(pods, &created, all).await;
    // A partition that moved during its first list had no cursor yet, and was delivered from its beginning.
    let before = |sink: String| {
        let has_moved = !events(&[file(folder.path(), names[0], &sink)]).is_empty();
        let repeated = if has_moved { repeated(&sink) } else { 0 };
        (sink, repeated)
    };
    let kept: BTreeMap<_, _> = delivered_by(&second).await.into_iter().map(before).collect();
    drop(first);
    created.extend(change(pods, &mut changes, 80));
    share(&[&second], &[4]).await;
    receivers_converge(pods, &created, all).await;
    deletions_have_one_id(&all());
    let mut objects = BTreeMap::new();
    for sink in &partitions {
        let found: BTreeSet<_> = of_partition(sink).iter().filter_map(uid_of).collect();
        assert!(found.len() > 5, "{sink} has {} objects", found.len());
        for uid in found {
            let other = objects.insert(uid.clone(), sink);
            assert_eq!(other, None, "{uid} is in {sink} too");
        }
        if let Some(before) = kept.get(sink) {
            assert_eq!(repeated(sink), *before, "{sink} was not taken over, but repeats events");
        }
        each_process_keeps_the_order(&names.map(|name| file(folder.path(), name, sink)));
    }
    collector.end().await;
}

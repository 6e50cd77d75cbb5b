//! Tests of a collector's watch of owners and documents: how many requests it sends, and how it recovers if it becomes
//! silent.

use informer_hub_fleet::Ownership;
use tokio::time::sleep;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the number of requests that a collector without clusters of its own sends in a minute.
async fn requests_of_an_observer(clusters: usize) -> usize {
    let mut world = World::with(Faults::NONE, clusters, 0.0, ShardRules::default());
    let collector = world.fleet.connect();
    let mut owned: Vec<Ownership> = Vec::new();
    for shard in world.clusters.keys() {
        owned.push(collector.claim(shard, "owner", None, 0).await.unwrap().unwrap());
    }
    world.join();
    let mut before = 0;
    for second in 0..70 {
        if second == 10 {
            before = world.processes[0].1.requests();
        }
        for own in &mut owned {
            *own = collector.renew(own).await.unwrap().unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    let (process, connection) = &world.processes[0];
    assert_eq!(process.collector.owned(), []);
    assert_eq!(process.collector.status().shards.values().filter(|owner| owner.collector == "owner").count(), clusters);
    connection.requests() - before
}

#[test]
fn requests_grow_only_with_the_owned_clusters() {
    let observe = |clusters| run(31, async || requests_of_an_observer(clusters).await);
    let (few, many) = (observe(10), observe(1000));
    println!("requests in a minute of a collector without clusters: {few} of 10 clusters, {many} of 1,000");
    assert!(few.abs_diff(many) <= few / 10, "{few} {many}");
    // The roster is renewed and read, and the last revisions of the buckets are requested, each every second.
    assert!(many <= 240, "{many}");
    run(31, async || {
        let mut world = World::with(Faults::NONE, 10, 0.0, ShardRules::default());
        world.join();
        world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
        sleep(MINUTE).await;
        let before = world.processes[0].1.requests();
        sleep(MINUTE).await;
        let requests = world.processes[0].1.requests() - before;
        println!("requests in a minute of the owner of 10 clusters: {requests}");
        assert!(requests <= 10 * 60 + 240, "{requests}");
    });
}

#[test]
fn silent_watches_cause_no_takeover_and_delay_none() {
    run(32, async || {
        let mut world = World::with(Faults::NONE, 6, 0.0, ShardRules::default());
        (0..3).for_each(|_| world.join());
        world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
        world.pass(MINUTE).await;
        for _ in 0..20 {
            world.fleet.silence_watches();
            world.pass(Duration::from_millis(8300)).await;
            let lost = world.processes.iter().map(|(process, _)| process.collector.status().lost);
            assert_eq!(lost.sum::<u64>(), 0, "a cluster was taken over");
        }
        let (killed, connection) = world.processes.remove(0);
        connection.set_cut_off(true);
        let (former, died) = (killed.name.clone(), clock::now());
        drop(killed);
        world.fleet.silence_watches();
        world
            .until("its clusters are taken over", |world| {
                let owners = world.owners();
                owners.values().all(|owner| !owner.is_empty() && *owner != former)
            })
            .await;
        println!("taken over after {:?}", died.elapsed());
        assert!(died.elapsed() < Duration::from_secs(13));
        world.settle().await;
        world.verify_log();
    });
}

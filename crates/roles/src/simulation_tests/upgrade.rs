//! Tests of fleets with processes of two versions. The later version writes formats that the present version refuses to
//! read.

use super::*;

/// Number of objects of each shard that never change.
const KEPT: usize = 3;

/// Returns a fleet of this version. Its shards have owners and checkpoints, and its replicas have read all objects.
async fn settled(faults: Faults, clusters: usize) -> World {
    let mut world = World::with(faults, clusters, 0.0, divided());
    world.clusters.values().for_each(|shard| shard.fill(KEPT));
    for _ in 0..COLLECTORS {
        world.join();
    }
    for _ in 0..REPLICAS {
        let replica = world.start_replica();
        world.replicas.push(replica);
    }
    world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
    world.pass(Duration::from_secs(20)).await;
    let has_all =
        |world: &World| world.clusters.keys().all(|shard| world.replicas.iter().all(|(it, _)| it.keeps(shard)));
    world.until("the replicas have all objects", has_all).await;
    world
}

impl ServingProcess {
    fn keeps(&self, shard: &Shard) -> bool {
        let cached = self.cached(shard).unwrap_or_default();
        cached.keys().filter(|key| key.name().starts_with("fill-")).count() == KEPT
    }
}

impl World {
    /// Replaces a collector by one of the version in `World::version`. The old collector shuts down, or is cut off as
    /// if it were killed.
    fn upgrade(&mut self, at: usize) {
        let upgraded = self.start();
        let (former, connection) = std::mem::replace(&mut self.processes[at], upgraded);
        if self.rng.random_bool(0.5) {
            tokio::spawn(async move { former.collector.shutdown().await });
        } else {
            connection.set_cut_off(true);
        }
    }

    fn verify_replicas(&self) {
        for (replica, _) in &self.replicas {
            replica.verify();
            assert!(self.clusters.keys().all(|shard| replica.keeps(shard)), "a replica has lost objects");
        }
    }
}

#[test]
fn fleet_is_upgraded_process_by_process_without_a_list() {
    for seed in informer_hub_testing::seeds(2000..2000 + u64::from(informer_hub_testing::cases(4))) {
        run(seed, async || {
            let faults = Faults { lost_answer: 0.02, failed: 0.02, delay: Duration::from_millis(20), ..Faults::NONE };
            let mut world = settled(faults, 4).await;
            let lists = world.lists();
            world.version = Later(1);
            for at in 0..COLLECTORS {
                world.upgrade(at);
                let time = Duration::from_millis(world.rng.random_range(100..40_000));
                world.pass(time).await;
                world.verify_replicas();
            }
            for at in 0..REPLICAS {
                world.replicas[at] = world.start_replica();
            }
            world.settle().await;
            world.verify_log();
            assert_eq!(world.lists(), lists, "an upgrade lists nothing");
        });
    }
}

#[test]
fn collector_of_a_former_version_leaves_what_it_cannot_read_to_others() {
    run(28, async || {
        let mut world = settled(Faults::NONE, 3).await;
        let lists = world.lists();
        world.version = Later(1);
        (1..COLLECTORS).for_each(|at| world.upgrade(at));
        // Each shard has a log in the later format.
        let (former, others) = (world.processes[0].0.name.clone(), [1, 2].map(|at| world.processes[at].0.name.clone()));
        for shard in world.clusters.keys().cloned().collect::<Vec<_>>() {
            world.set(RosterItem::Pin { shard, collector: others[0].clone() });
        }
        world.until("they move", |world| world.owners().values().all(|owner| *owner == others[0])).await;
        world.pass(Duration::from_secs(5)).await;
        world.fleet.clear_roster();
        for (killed, connection) in world.processes.drain(1..) {
            connection.set_cut_off(true);
            drop(killed);
        }
        let entries = world.fleet.log().history().len();
        world.until("it tries", |world| world.owners().values().any(|owner| *owner == former)).await;
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.fleet.log().history().len(), entries, "it has stored something");
        world.verify_replicas();

        world.join();
        let later = world.processes[1].0.name.clone();
        world.until("the later one has all", |world| world.owners().values().all(|owner| *owner == later)).await;
        world.pass(Duration::from_secs(60)).await;
        assert!(world.owners().values().all(|owner| *owner == later), "{:?}", world.owners());
        for at in 0..REPLICAS {
            world.replicas[at] = world.start_replica();
        }
        world.settle().await;
        world.verify_log();
        assert_eq!(world.lists(), lists, "an upgrade lists nothing");
    });
}

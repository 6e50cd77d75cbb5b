//! Tests of moves of clusters: collectors join, leave and fail, and the operator sets drains and pins.

use informer_hub_fleet::Ownership;
use tokio::time::sleep;

use super::*;

/// Number of objects of each cluster, for a fleet whose clusters have unequal loads.
const OBJECTS: [usize; 12] = [900, 400, 300, 250, 200, 150, 120, 100, 80, 60, 40, 0];

impl World {
    fn owner(&self, shard: &Shard) -> Option<Ownership> {
        self.fleet.owner(shard).filter(|own| !own.collector.is_empty())
    }

    /// Lets virtual time pass under churn. Returns the largest number of clusters that had no owner at the same time.
    pub(super) async fn pass(&mut self, time: Duration) -> usize {
        let (begun, mut most) = (clock::now(), 0);
        while begun.elapsed() < time {
            for cluster in self.clusters.values() {
                if self.rng.random_bool(0.01) {
                    cluster.churn(&mut self.rng);
                }
            }
            sleep(Duration::from_millis(20)).await;
            most = most.max(self.clusters.keys().filter(|name| self.owner(name).is_none()).count());
        }
        most
    }

    /// Lets virtual time pass until `holds` returns true. After `PATIENCE`, panics with the text `what`.
    pub(super) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let begun = clock::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", self.loads());
            self.pass(Duration::from_millis(100)).await;
        }
    }

    /// Returns the weights of the live collectors by name.
    fn loads(&self) -> BTreeMap<String, u64> {
        let mut loads: BTreeMap<_, _> = self.processes.iter().map(|(process, _)| (process.name.clone(), 0)).collect();
        for own in self.clusters.keys().filter_map(|name| self.fleet.owner(name)) {
            *loads.entry(own.collector).or_default() += own.weight;
        }
        loads
    }

    /// Returns whether each collector's load differs from the mean load by at most this fraction of the mean.
    fn is_balanced(&self, part: f64) -> bool {
        let loads = self.loads();
        #[expect(clippy::cast_precision_loss, reason = "the loads are small")]
        let (sum, count) = (loads.values().sum::<u64>() as f64, loads.len() as f64);
        #[expect(clippy::cast_precision_loss, reason = "the loads are small")]
        let is_near = |load: &u64| (*load as f64 / (sum / count) - 1.0).abs() <= part;
        loads.values().all(is_near)
    }

    pub(super) fn owners(&self) -> BTreeMap<Shard, String> {
        self.clusters
            .keys()
            .map(|name| (name.clone(), self.owner(name).map_or(String::new(), |own| own.collector)))
            .collect()
    }
}

/// Returns a fleet without faults whose clusters have unequal loads, with two balanced collectors.
async fn balanced() -> World {
    let mut world = World::with(Faults::NONE, OBJECTS.len(), 0.0, ShardRules::default());
    for (cluster, objects) in world.clusters.values().zip(OBJECTS) {
        cluster.fill(objects);
    }
    world.join();
    world.join();
    // Long enough to measure the weights, and then to move clusters into balance.
    world.pass(Duration::from_secs(180)).await;
    assert!(world.is_balanced(0.25), "{:?}", world.loads());
    world
}

#[test]
fn joining_collector_gets_its_share_by_weight_one_cluster_at_a_time_without_a_list() {
    run(21, async || {
        let mut world = balanced().await;
        let (owners, lists, before) = (world.owners(), world.lists(), world.moved());
        world.join();
        let without_owner = world.pass(Duration::from_secs(120)).await;
        println!("{:?}", world.loads());
        assert!(world.is_balanced(0.25), "{:?}", world.loads());
        assert_eq!(without_owner, 1, "one cluster moves at a time");
        let moves = world.moved() - before;
        let changed = world.owners().iter().filter(|(cluster, owner)| owners[*cluster] != **owner).count();
        assert!(moves <= 6 && changed as u64 == moves, "{moves} moves for {changed} clusters: no cluster moves twice");
        assert_eq!(world.lists(), lists, "a move lists nothing");
        // Nothing moves any more.
        let owners = world.owners();
        world.pass(Duration::from_secs(300)).await;
        assert_eq!(world.owners(), owners);
        world.settle().await;
        world.verify_log();
        assert_eq!(world.totals.exact, OBJECTS.len());
    });
}

#[test]
fn collectors_that_want_to_move_at_the_same_time_take_turns() {
    run(26, async || {
        // Requests take so long that collectors read the free token before one of them has taken it.
        let mut world =
            World::with(Faults { delay: Duration::from_millis(600), ..Faults::NONE }, 12, 0.0, ShardRules::default());
        (0..4).for_each(|_| world.join());
        world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
        world.pass(Duration::from_secs(10)).await;
        for _ in 0..2 {
            let drained: Vec<_> = world.processes[..3].iter().map(|(process, _)| process.name.clone()).collect();
            for name in &drained {
                world.set(RosterItem::Drain(name.clone()));
            }
            let without_owner = world.pass(Duration::from_secs(60)).await;
            assert!(without_owner <= 1, "{without_owner} clusters move at a time");
            assert!(world.owners().values().all(|owner| !drained.contains(owner)), "{:?}", world.owners());
            world.fleet.clear_roster();
            let without_owner = world.pass(Duration::from_secs(60)).await;
            assert!(without_owner <= 1, "{without_owner} clusters move at a time");
        }
        println!("{} moves", world.moved());
        assert!(world.moved() >= 18);
    });
}

#[test]
fn clusters_of_a_killed_collector_spread_by_weight() {
    run(22, async || {
        let mut world = balanced().await;
        world.join();
        world.pass(Duration::from_secs(120)).await;
        let lists = world.lists();
        let killed = world.processes.remove(0);
        killed.1.set_cut_off(true);
        drop(killed);
        let died = clock::now();
        let live = |world: &World| world.processes.iter().map(|(process, _)| process.name.clone()).collect::<Vec<_>>();
        world
            .until("the others take over", |world| world.owners().values().all(|owner| live(world).contains(owner)))
            .await;
        println!("taken over after {:?}: {:?}", died.elapsed(), world.loads());
        assert!(died.elapsed() <= Duration::from_secs(10));
        assert!(world.is_balanced(0.25), "{:?}", world.loads());
        assert_eq!(world.lists(), lists);
    });
}

#[test]
fn owners_that_follow_each_other_soon_leave_a_checkpoint_and_a_short_log() {
    run(33, async || {
        let world =
            World::with(Faults { delay: Duration::from_millis(5), ..Faults::NONE }, 1, 0.0, ShardRules::default());
        let mut world = World { checkpoint: Duration::from_secs(600), ..world };
        (0..2).for_each(|_| world.join());
        for round in 0..30 {
            // No owner lives for as long as the checkpoint interval.
            for _ in 0..150 {
                world.clusters.values().for_each(|cluster| cluster.churn(&mut world.rng));
                sleep(Duration::from_millis(100)).await;
            }
            let (killed, connection) = world.processes.remove(round % 2);
            connection.set_cut_off(true);
            drop(killed);
            world.join();
        }
        world.settle().await;
        world.verify_log();
        let checkpoints = world.fleet.checkpoints();
        let log = world.fleet.log().history();
        let after = |sequence: u64| log.iter().filter(|entry| entry.sequence > sequence).count();
        println!(
            "{} entries, {:?} after the checkpoints",
            log.len(),
            checkpoints.values().map(|at| after(*at)).collect::<Vec<_>>()
        );
        assert!(log.len() > 2000 && checkpoints.len() == 1);
        assert!(checkpoints.values().all(|sequence| after(*sequence) < 1200));
    });
}

#[test]
fn drained_collector_gives_its_clusters_away_and_claims_none() {
    run(23, async || {
        let mut world = balanced().await;
        world.join();
        world.pass(Duration::from_secs(120)).await;
        let (lists, drained) = (world.lists(), world.processes[0].0.name.clone());
        world.set(RosterItem::Drain(drained.clone()));
        let owned = |world: &World| world.owners().values().filter(|owner| **owner == drained).count();
        assert!(owned(&world) > 2);
        let is_drained = |owner: &String| !owner.is_empty() && *owner != drained;
        world.until("it is drained", |world| world.owners().values().all(is_drained)).await;
        let killed = world.processes.remove(1);
        killed.1.set_cut_off(true);
        drop(killed);
        world.pass(Duration::from_secs(60)).await;
        assert_eq!((owned(&world), world.lists()), (0, lists), "{:?} {:?}", world.owners(), world.fleet);
        world.fleet.clear_roster();
        world.until("it gets clusters again", |world| owned(world) > 2).await;
        world.settle().await;
        world.verify_log();
    });
}

#[test]
fn cluster_that_is_moved_a_hundred_times_loses_and_doubles_nothing() {
    run(24, async || {
        let mut world =
            World::with(Faults { delay: Duration::from_millis(20), ..Faults::NONE }, 2, 0.0, ShardRules::default());
        (0..3).for_each(|_| world.join());
        let cluster = world.clusters.keys().next().unwrap().clone();
        world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
        world.pass(Duration::from_secs(2)).await;
        let lists = world.lists();
        for round in 0..100 {
            let collector = world.processes[round % 3].0.name.clone();
            world.set(RosterItem::Pin { shard: cluster.clone(), collector: collector.clone() });
            world.until("it moves", |world| world.owners()[&cluster] == collector).await;
            world.pass(Duration::from_millis(300)).await;
        }
        let epoch = world.fleet.owner(&cluster).unwrap().epoch;
        println!("epoch {epoch}, {} moves", world.moved());
        assert!(epoch >= 99);
        assert_eq!(world.lists(), lists, "a move lists nothing");
        world.settle().await;
        world.verify_log();
        assert_eq!((world.totals.exact, world.totals.restarts), (2, 2));
    });
}

#[test]
fn shards_of_a_hot_cluster_spread_over_collectors() {
    run(27, async || {
        let mut world = World::with(Faults { delay: Duration::from_millis(20), ..Faults::NONE }, 1, 0.0, divided());
        world.clusters.values().for_each(|shard| shard.fill(500));
        world.join();
        world.until("both are listed", |world| world.lists() == 2).await;
        world.pass(Duration::from_secs(2)).await;
        let lists = world.lists();
        world.join();
        world.until("each has a shard", |world| world.is_balanced(0.2)).await;
        assert_eq!(world.lists(), lists, "a move lists nothing");
        let (killed, connection) = world.processes.remove(0);
        connection.set_cut_off(true);
        drop(killed);
        let other = world.processes[0].0.name.clone();
        world.until("the other has both", |world| world.owners().values().all(|owner| *owner == other)).await;
        assert_eq!(world.lists(), lists, "a takeover lists nothing");
        world.settle().await;
        world.verify_log();
        assert_eq!(world.totals.exact, 2);
    });
}

#[test]
fn move_to_a_collector_that_does_not_answer_is_given_up() {
    run(25, async || {
        let mut world = World::with(Faults::NONE, 2, 0.0, ShardRules::default());
        world.join();
        world.until("all are owned", |world| world.owners().values().all(|owner| !owner.is_empty())).await;
        world.join();
        world.pass(Duration::from_secs(3)).await;
        let (cluster, owner) = world.owners().pop_first().unwrap();
        let (other, connection) = world.processes.iter().find(|(process, _)| process.name != owner).unwrap();
        connection.set_cut_off(true);
        let collector = other.name.clone();
        world.set(RosterItem::Pin { shard: cluster.clone(), collector });
        world.until("the move begins", |world| world.fleet.moving().is_some()).await;
        world.until("the move ends", |world| world.fleet.moving().is_none()).await;
        world.until("the cluster has an owner again", |world| world.owners()[&cluster] == owner).await;
        world.processes.iter().for_each(|(_, connection)| connection.set_cut_off(false));
        world.until("it moves later", |world| world.owners()[&cluster] != owner).await;
        world.settle().await;
        world.verify_log();
    });
}

#[test]
fn collectors_that_join_leave_and_fail_during_moves_lose_and_double_nothing() {
    let (mut moved, mut takeovers) = (0, 0);
    for seed in informer_hub_testing::seeds(1000..1000 + u64::from(informer_hub_testing::cases(4))) {
        let world = run(seed, async || {
            let faults = Faults { lost_answer: 0.02, failed: 0.02, delay: Duration::from_millis(20), ..Faults::NONE };
            let mut world = World::with(faults, 6, 0.02, ShardRules::default());
            (0..2).for_each(|_| world.join());
            for _ in 0..40 {
                let at = world.rng.random_range(0..world.processes.len());
                match world.rng.random_range(0..12) {
                    0 | 1 if world.processes.len() < 5 => world.join(),
                    2 if world.processes.len() > 2 => {
                        let (killed, connection) = world.processes.swap_remove(at);
                        connection.set_cut_off(true);
                        world.totals.moved += killed.collector.status().moved;
                    }
                    3 if world.processes.len() > 2 => {
                        let (left, _) = world.processes.swap_remove(at);
                        world.totals.moved += left.collector.status().moved;
                        tokio::spawn(async move { left.collector.shutdown().await });
                    }
                    4 => world.processes[at].1.set_cut_off(true),
                    5..8 => world.processes.iter().for_each(|(_, connection)| connection.set_cut_off(false)),
                    _ => world.steer(),
                }
                let time = Duration::from_millis(world.rng.random_range(100..6000));
                world.pass(time).await;
            }
            world.settle().await;
            world.verify_log();
            // Time to reach balance; after that, no cluster may move.
            sleep(Duration::from_secs(150)).await;
            let owners = world.owners();
            sleep(Duration::from_secs(150)).await;
            assert_eq!(world.owners(), owners, "clusters move without a reason");
            world
        });
        moved += world.moved() + world.totals.moved;
        takeovers += world.clusters.keys().filter_map(|name| world.fleet.owner(name)).map(|own| own.epoch).sum::<u64>();
    }
    println!("{moved} moves, {takeovers} takeovers");
    if informer_hub_testing::replayed().is_none() {
        assert!(moved > 30 && takeovers > moved, "{moved} {takeovers}");
    }
}

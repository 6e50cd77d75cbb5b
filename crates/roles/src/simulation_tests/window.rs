//! Tests with a log whose size limit removes changes long before its age limit does.

use super::*;
use crate::restore::PAGE_BYTES;

/// Bytes that the log retains: the changes of some seconds.
const WINDOW: usize = 20_000;

/// Returns a fleet whose checkpoints are due every five minutes, with a log that retains little.
async fn with_small_log() -> World {
    let mut world = World::with(Faults::NONE, 2, 0.0, ShardRules::default());
    world.checkpoint = Duration::from_secs(300);
    world.join();
    world.step().await;
    world.settle().await;
    world.fleet.log().set_retention(WINDOW, Duration::MAX);
    world
}

/// Changes the clusters `count` times, every `pause`.
async fn churn(world: &mut World, count: usize, pause: Duration) {
    for _ in 0..count {
        for cluster in world.clusters.values() {
            cluster.churn(&mut world.rng);
        }
        tokio::time::sleep(pause).await;
    }
}

#[test]
fn checkpoints_keep_up_with_the_size_of_the_log() {
    run(21, async || {
        let mut world = with_small_log().await;
        let lists = world.lists();
        // Changes of three times the size that the log retains.
        churn(&mut world, 300, Duration::from_millis(300)).await;
        world.settle().await;
        assert!(world.fleet.log().retained().first > 100, "the log has removed entries");
        assert_eq!(world.lists(), lists, "nothing is listed");
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
    });
}

#[test]
fn log_that_has_removed_changes_before_a_checkpoint_is_filled_by_a_list() {
    run(22, async || {
        let mut world = with_small_log().await;
        let lists = world.lists();
        // Changes of twice the size that the log retains, within a second: before collectors read its limits again.
        churn(&mut world, 300, Duration::from_millis(3)).await;
        // The changes after that go on, so the log would never be silent.
        churn(&mut world, 60, Duration::from_secs(1)).await;
        world.settle().await;
        assert!(world.lists() > lists, "the log has lost the beginning");
        assert!(world.lists() <= lists + 4, "each cluster is listed once or twice");
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
    });
}

#[test]
fn replica_learns_of_changes_that_the_log_removed_while_it_was_away() {
    run(23, async || {
        let mut world = with_small_log().await;
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
        let lists = world.lists();
        world.replicas[0].1.set_cut_off(true);
        churn(&mut world, 5, Duration::from_secs(1)).await;
        // From here on, one cluster is quiet, and the changes of the other fill the log three times.
        let busy = world.clusters.values().next().map(Arc::clone).unwrap();
        for _ in 0..600 {
            busy.churn(&mut world.rng);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let removed = world.fleet.log().retained().first;
        assert!(removed > 300, "the log has removed all changes of the quiet cluster: {removed}");
        world.settle().await;
        assert_eq!(world.lists(), lists, "the replica reads checkpoints and log");
    });
}

#[test]
fn replica_reads_a_long_backlog_page_by_page() {
    run(24, async || {
        let mut world = World::with(Faults::NONE, 2, 0.0, ShardRules::default());
        world.checkpoint = Duration::from_secs(3600);
        world.join();
        world.step().await;
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
        world.replicas[0].1.set_cut_off(true);
        churn(&mut world, 300, Duration::from_millis(100)).await;
        let backlog: usize = world.fleet.log().history().iter().map(|entry| entry.payload.len()).sum();
        assert!(backlog > 10 * PAGE_BYTES, "{backlog}");
        world.settle().await;
        let largest = world.replicas[0].1.largest_page();
        assert!((PAGE_BYTES..2 * PAGE_BYTES).contains(&largest), "{largest}");
    });
}

#[test]
fn log_restored_from_an_older_backup_is_noticed_by_collectors_and_replicas() {
    run(25, async || {
        let mut world = World::with(Faults::NONE, 2, 0.0, ShardRules::default());
        world.join();
        world.step().await;
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
        churn(&mut world, 40, Duration::from_millis(100)).await;
        world.settle().await;
        let end = world.fleet.log().end();
        world.fleet.log().roll_back(end - 30);
        // The log is silent until a collector has read it, then it reuses the lost sequences.
        tokio::time::sleep(Duration::from_secs(20)).await;
        churn(&mut world, 3, Duration::from_secs(1)).await;
        world.settle().await;
        let replica = world.start_replica();
        world.replicas.push(replica);
        world.settle().await;
    });
}

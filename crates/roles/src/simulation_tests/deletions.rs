//! Tests in which an operator deletes owners, documents or checkpoints while collectors run.

use super::*;

/// Returns a fleet without faults whose two clusters have owners.
async fn settled() -> World {
    let mut world = World::with(Faults::NONE, 2, 0.0, ShardRules::default());
    for _ in 0..COLLECTORS {
        world.join();
    }
    for _ in 0..50 {
        world.step().await;
    }
    world.settle().await;
    world
}

/// Returns the owner of each cluster, and its epoch.
fn owners(world: &World) -> Vec<Option<(String, u64)>> {
    let own = |name| world.fleet.owner(name).map(|own| (own.collector, own.epoch));
    world.clusters.keys().map(own).collect()
}

#[test]
fn owners_keep_their_clusters_and_epochs_after_a_deletion() {
    run(7, async || {
        let mut world = settled().await;
        let (before, lists) = (owners(&world), world.lists());
        assert!(before.iter().all(Option::is_some));
        world.fleet.delete_owners();
        world.fleet.delete_documents();
        for _ in 0..3 {
            world.step().await;
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(owners(&world), before);
        world.settle().await;
        assert_eq!(owners(&world), before);
        assert_eq!(world.lists(), lists);
        let backend = world.fleet.connect();
        for name in world.clusters.keys() {
            assert!(backend.document(name).await.unwrap().is_some(), "the document of {name} is stored again");
        }
    });
}

#[test]
fn owners_keep_their_clusters_while_the_services_are_away() {
    run(8, async || {
        let mut world = settled().await;
        let (before, lists) = (owners(&world), world.lists());
        for outage in 0..20 {
            world.fleet.set_down(true);
            tokio::time::sleep(Duration::from_millis(8000 + 530 * outage)).await;
            world.fleet.set_down(false);
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(owners(&world), before, "after outage {outage}");
        }
        world.settle().await;
        assert_eq!((owners(&world), world.lists()), (before, lists));
    });
}

#[test]
fn cluster_is_listed_again_if_deleted_checkpoints_had_the_only_copy_of_objects() {
    run(7, async || {
        let mut world = settled().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.fleet.checkpoints().len(), 2);
        let lists = world.lists();
        // The log loses all entries but the last ones.
        world.fleet.log().set_retention(500, Duration::from_secs(3600));
        world.fleet.log().set_retention(1 << 20, Duration::from_secs(3600));
        world.settle().await;
        world.fleet.delete_checkpoints();
        let begun = clock::now();
        while world.fleet.checkpoints().len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", world.fleet.checkpoints());
            world.step().await;
        }
        world.settle().await;
        assert_eq!(world.lists(), lists + 2);
    });
}

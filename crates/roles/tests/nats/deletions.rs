//! Parts of a fleet that an operator deletes in NATS under running collectors.

use async_nats::jetstream;
use informer_hub_roles::Backend;
use informer_hub_types::clock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{Duration, sleep};

use super::{Clusters, backend, clusters, follow, lists, start};
use crate::process::Process;
use crate::server::{Servers, within};

/// Returns how often clusters were claimed, without the claims of ordered moves; `None` if an owner is unknown.
async fn takeovers(backend: &impl Backend, clusters: &Clusters, processes: &[Process]) -> Option<u64> {
    let mut epochs = 0;
    for name in clusters.keys() {
        epochs += backend.owner(name).await.ok()??.epoch;
    }
    epochs.checked_sub(processes.iter().map(|process| process.collector.status().moved).sum())
}

/// Waits until a bucket has an entry of each cluster.
async fn until_filled(context: &jetstream::Context, bucket: &str, clusters: &Clusters) {
    let deleted = clock::now();
    within(bucket, async {
        loop {
            if let Ok(store) = context.get_key_value(bucket).await
                && store.status().await.is_ok_and(|status| status.values() >= clusters.len() as u64)
            {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    println!("{bucket} has all entries {:.1?} after its deletion", deleted.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_buckets_and_log_are_created_again_and_no_change_is_lost() {
    let seed = 12;
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let servers = Servers::start(3).await;
    let context = jetstream::new(servers.client().await);
    let clusters = clusters();
    let processes: Vec<_> = ["a", "b", "c"].map(|name| start(name, &servers, &clusters)).into();
    follow(&processes, &clusters, &mut rng).await;
    let backend = backend("test", &servers);
    until_filled(&context, "test-checkpoints", &clusters).await;
    within("all collectors know the owners", async {
        let knows = |process: &Process| {
            let owners = process.collector.status().shards;
            owners.len() == clusters.len() && owners.values().all(|owner| !owner.collector.is_empty())
        };
        while !processes.iter().all(knows) {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let none_is_taken_over = async || {
        within("each cluster keeps its owner, or moves in order", async {
            while takeovers(&backend, &clusters, &processes).await != Some(clusters.len() as u64) {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    };
    let listed = lists(&clusters);
    for bucket in ["test-owners", "test-clusters", "test-checkpoints"] {
        context.delete_key_value(bucket).await.unwrap();
        until_filled(&context, bucket, &clusters).await;
        follow(&processes, &clusters, &mut rng).await;
        none_is_taken_over().await;
    }
    context.delete_object_store("test-checkpoints").await.unwrap();
    within("objects of checkpoints", async {
        loop {
            if let Ok(objects) = context.get_object_store("test-checkpoints").await
                && let Ok(names) = objects.list().await
                && futures::StreamExt::count(names).await >= clusters.len()
            {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    follow(&processes, &clusters, &mut rng).await;
    none_is_taken_over().await;
    assert_eq!(lists(&clusters), listed, "no list");

    context.delete_stream("test-log").await.unwrap();
    follow(&processes, &clusters, &mut rng).await;
    none_is_taken_over().await;
    let again: Vec<_> = listed.iter().map(|lists| lists + 1).collect();
    assert_eq!(lists(&clusters), again, "each cluster is listed again");
}

//! Random faults in a whole fleet: three collectors, a serving replica and a deliverer on three NATS servers share two
//! clusters that change all the time. Processes are killed, suspended, and cut off from NATS or an apiserver; one NATS
//! server is killed, or two are. About a third of the faults begin while another one is in effect.
//!
//! A seed decides the schedule, which the test prints. The variable `FAULTS` sets the number of faults; `make
//! test-nightly` has 100.

mod members;
mod observer;
mod schedule;
mod takeovers;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use informer_hub_types::Uid;

use self::members::Fleet;
use crate::bed::seed;
use crate::fixture::{pods, widgets};
use crate::fleet::shows_objects;
use crate::kill::{Changing, FlakyReceiver};

/// Default number of faults.
const FAULTS: usize = 10;
/// Number of changes of each cluster in each interval.
const CHANGES: usize = 4;
const INTERVAL: Duration = Duration::from_millis(200);

/// Changes both clusters until `ended`, and returns the deleted objects.
async fn change_until(ended: &AtomicBool, changing: &mut Changing) -> Vec<Uid> {
    let (mut deleted, mut pace) = (Vec::new(), tokio::time::interval(INTERVAL));
    while !ended.load(Relaxed) {
        pace.tick().await;
        deleted.extend(changing.churn(CHANGES).await);
    }
    deleted
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_under_random_faults_loses_no_change() {
    let count = std::env::var("FAULTS").map_or(FAULTS, |text| text.parse().unwrap());
    let seed = seed();
    let schedule = schedule::draw(seed, count);
    let (receiver, url) = FlakyReceiver::start().await;
    let mut changing = Changing::start(seed, receiver.clone()).await;
    let mut fleet = Fleet::start(&changing.clusters, &url).await;
    let ended = AtomicBool::new(false);
    let (deleted, takeovers) = tokio::join!(change_until(&ended, &mut changing), async {
        let takeovers = fleet.suffer(&schedule).await;
        ended.store(true, Relaxed);
        takeovers
    });

    changing.is_delivered().await;
    for cluster in &changing.clusters {
        for resource in [pods(), widgets()] {
            fleet.observer.has(cluster, &resource).await;
            shows_objects(fleet.replica(), cluster, &resource).await;
        }
    }
    let lists = fleet.observer.end().await;
    assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let known = receiver.verify_deletions(&deleted);
    println!("{} deletions, {known} of objects known to the receiver", deleted.len());
    println!("single faults: {}", takeovers::histogram(&takeovers.alone));
    println!("overlapping faults: {}", takeovers::histogram(&takeovers.overlapping));
    assert!(known > 0, "no deleted object was known to the receiver: seed {seed}");
    assert!(lists.values().all(|lists| *lists == 1), "no fault causes a list: {lists:?}: seed {seed}");
    assert!(takeovers.alone.iter().all(|it| *it < takeovers::LONGEST), "{:?}: seed {seed}", takeovers.alone);
}

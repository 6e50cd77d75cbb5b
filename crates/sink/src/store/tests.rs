//! Tests of a store on a disk that is full when it is opened.

use informer_hub_sim::SimDisk;

use super::*;
use crate::test_objects::event;

const LIMITS: StoreLimits = StoreLimits { journal: 128 << 10, letters: 64 << 10 };

fn open(disk: &Arc<dyn Disk>) -> (Store, Durability) {
    let (store, found) =
        Store::open(disk, Path::new("/s/sinks/a"), LIMITS, Fsync::default(), &|_| true).expect("the disk works");
    (store, found.durability)
}

fn commit(store: &mut Store, commit: Commit) -> (Option<StoreError>, JournalState) {
    let Done::Committed { left, state, .. } = store.run(Work::Commit(commit)) else { panic!("another result") };
    (left.map(|(_, error)| error), state)
}

fn read(store: &mut Store, from: u64) -> (Vec<u64>, u64) {
    let Done::Read { events, next, lost: 0 } = store.run(Work::Read { from, events: 1000, bytes: 1 << 20 }) else {
        panic!("another result");
    };
    (events.iter().filter_map(Event::sequence).collect(), next)
}

/// Opens a store with 80 pending events on a disk without free space.
fn full(seed: u64) -> (SimDisk, Store, Durability) {
    let sim = SimDisk::new(seed);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    informer_hub_disk::make_dir(&*disk, Path::new("/s/sinks"), 2).expect("the disk works");
    let (mut store, _) = open(&disk);
    for at in 0..80 {
        let events = vec![event(&format!("web-{at}"), 1, 600)];
        assert!(commit(&mut store, Commit { events, sync: true, ..Commit::default() }).0.is_none());
    }
    sim.kill();
    sim.set_capacity(Some(sim.bytes()));
    let (store, durability) = open(&disk);
    (sim, store, durability)
}

#[test]
fn acknowledging_events_settles_a_store_on_a_full_disk() {
    let (_sim, mut store, found) = full(1);
    assert!(!found.is_settled && (1..80).contains(&found.state.end), "{found:?}");
    let (mut from, mut end, mut delivered) = (found.first, found.state.end, Vec::new());
    while from < end {
        let (acked, next) = read(&mut store, from);
        delivered.extend(acked.iter().copied());
        let (error, state) = commit(&mut store, Commit { acked, sync: true, ..Commit::default() });
        assert!(error.is_none(), "{error:?}");
        (from, end) = (next, state.end);
    }
    assert_eq!(delivered, (0..80).collect::<Vec<_>>());
    assert_eq!(store.state().pending, 0);
}

#[test]
fn events_that_a_failed_sync_may_have_lost_are_not_read() {
    let (sim, mut store, found) = full(1);
    assert_eq!(read(&mut store, 0), ((0..found.state.end).collect(), found.state.end));
    assert_eq!(read(&mut store, found.state.end), (Vec::new(), found.state.end));
    assert!(commit(&mut store, Commit { sync: true, ..Commit::default() }).0.is_some(), "nothing is acknowledged");
    sim.set_capacity(None);
    assert_eq!(commit(&mut store, Commit { sync: true, ..Commit::default() }).1.end, 80);
    assert_eq!(read(&mut store, found.state.end), ((found.state.end..80).collect(), 80));
}

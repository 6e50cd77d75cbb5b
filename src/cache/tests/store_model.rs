//! Model test of indices: over partitions that open, change and close, they equal a scan of all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::world::NAMES;
use crate::testing::{delta, list_keeping, object_with, origin, pods, properties};
use crate::{DeltaFifo, PartitionId, Snapshot, Store};
use informer_hub_types::{Change, DeltaKind, InformerHealth, ObjectKey};

#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    Close(usize),
    Put(usize, usize, DeltaKind, Vec<(usize, usize)>),
    Delete(usize, usize),
    List(usize, Vec<usize>),
}

const CLUSTERS: [&str; 3] = ["c", "d", "e"];
const INDICES: [&str; 2] = ["by-node", "by-image"];
const VALUES: [&str; 4] = ["", "x", "y", "z"];

fn arb_step() -> impl Strategy<Value = Step> {
    let (cluster, name) = (|| 0..CLUSTERS.len(), || 0..NAMES.len());
    let kind = prop_oneof![Just(DeltaKind::Added), Just(DeltaKind::Updated), Just(DeltaKind::Replaced)];
    let entries = prop::collection::vec((0..INDICES.len(), 0..VALUES.len()), 0..5);
    prop_oneof![
        2 => cluster().prop_map(Step::Open),
        1 => cluster().prop_map(Step::Close),
        12 => (cluster(), name(), kind, entries).prop_map(|(c, n, k, e)| Step::Put(c, n, k, e)),
        4 => (cluster(), name()).prop_map(|(c, n)| Step::Delete(c, n)),
        1 => (cluster(), prop::collection::vec(name(), 0..4)).prop_map(|(c, keep)| Step::List(c, keep)),
    ]
}

type Postings = BTreeMap<(String, String), BTreeSet<(PartitionId, ObjectKey)>>;

fn walked(snapshot: &Snapshot) -> Postings {
    let mut postings = Postings::new();
    for (id, partition) in snapshot.partitions() {
        for object in partition.iter() {
            for entry in object.index_values() {
                let key = (entry.index.to_string(), entry.value.to_string());
                postings.entry(key).or_default().insert((id, object.key().clone()));
            }
        }
    }
    postings
}

fn indexed(snapshot: &Snapshot) -> Postings {
    let mut postings = Postings::new();
    for index in INDICES {
        for (value, count) in snapshot.index_values(index) {
            let locations: Vec<_> = snapshot.by_index(index, value).map(|at| (at.partition, at.key.clone())).collect();
            assert!(locations.is_sorted() && locations.len() == count);
            assert!(snapshot.by_index(index, value).all(|at| snapshot.object(&at).is_some()));
            postings.insert((index.to_owned(), value.to_string()), locations.into_iter().collect());
        }
    }
    postings
}

/// A store with the open partition of each cluster.
struct Fixture {
    store: Store,
    open: BTreeMap<usize, PartitionId>,
    version: u64,
}

impl Fixture {
    fn step(&mut self, step: Step) {
        self.version += 1;
        match step {
            Step::Open(cluster) => {
                let id = self.store.open(origin(CLUSTERS[cluster]), InformerHealth::new(), Vec::new());
                assert_eq!(*self.open.entry(cluster).or_insert(id), id);
            }
            Step::Close(cluster) => {
                if let Some(id) = self.open.remove(&cluster) {
                    self.store.close(id);
                }
            }
            Step::Put(cluster, name, kind, entries) => {
                let entries: Vec<_> = entries.into_iter().map(|(i, v)| (INDICES[i], VALUES[v])).collect();
                // Some replace an object of another UID, some repeat a version with other index values.
                let uid = if self.version.is_multiple_of(7) { "v" } else { "u" };
                let object = object_with("ns", NAMES[name], uid, self.version / 2, &[], &entries);
                self.apply(cluster, vec![Change::Delta(delta(kind, object))]);
            }
            Step::Delete(cluster, name) => {
                let object = object_with("ns", NAMES[name], "u", self.version, &[], &[("by-node", "never")]);
                self.apply(cluster, vec![Change::Delta(delta(DeltaKind::Deleted, object))]);
            }
            Step::List(cluster, keep) => {
                self.apply(cluster, list_keeping(keep.into_iter().map(|name| NAMES[name])));
            }
        }
    }

    fn apply(&mut self, cluster: usize, changes: Vec<Change>) {
        let Some(id) = self.open.get(&cluster) else { return };
        let mut fifo = DeltaFifo::new(usize::MAX);
        for change in changes {
            fifo.push(change);
        }
        assert!(self.store.apply(*id, fifo.pop(usize::MAX)).is_some());
    }
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn indices_equal_a_scan_of_all_objects(steps in prop::collection::vec(arb_step(), 1..80)) {
        let mut fixture = Fixture { store: Store::new(pods()), open: BTreeMap::new(), version: 0 };
        for cluster in 0..CLUSTERS.len() {
            fixture.step(Step::Open(cluster));
        }
        let mut older: Option<(Arc<Snapshot>, Postings)> = None;
        for step in steps {
            fixture.step(step);
            let snapshot = fixture.store.published().load_full();
            let postings = indexed(&snapshot);
            prop_assert_eq!(&postings, &walked(&snapshot));
            if let Some((older, then)) = older.replace((snapshot, postings)) {
                prop_assert_eq!(indexed(&older), then, "an old snapshot does not change");
            }
        }
    }
}

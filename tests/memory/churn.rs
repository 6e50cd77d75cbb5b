//! Memory of created and deleted objects in decoder, store, indices and packing, without a hub.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use informer_hub::cache::{DeltaFifo, Packing, PartitionId, Store, Uncompressed};
use informer_hub_codec::{Decoder, Projection, WatchItem};
use informer_hub_types::{
    ApiResource, Change, ClusterName, Delta, DeltaKind, Gvr, InformerHealth, Origin, Scope, SharedStr,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::heap;

/// Live objects.
const LIVE: u64 = 10_000;

/// Objects created, and deleted, between two packing rounds.
const BATCH: u64 = 500;

struct Churn {
    decoder: Decoder,
    store: Store,
    id: PartitionId,
    uncompressed: Uncompressed,
    packing: Packing,
    rng: StdRng,
    live: VecDeque<u64>,
    version: u64,
}

/// Returns the allocated bytes after `churned` creates and deletes, and after deleting all objects, relative to before.
pub(crate) fn figures(churned: u64) -> Vec<f64> {
    // Loads the schema of built-in types first, since its size does not depend on the objects.
    informer_hub_protobuf::Schema::builtin();
    let nothing = heap::of_thread();
    let mut churn = Churn::new();
    // Creates and deletes objects before the first measurement, so that all tables have their final capacity.
    churn.run(3 * LIVE);
    let before = heap::of_thread() - nothing;
    churn.run(churned);
    let after = heap::of_thread() - nothing;
    churn.empty();
    let removed = heap::of_thread() - nothing;
    vec![after as f64 / before as f64, removed as f64 / before as f64]
}

impl Churn {
    fn new() -> Self {
        let resource = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
        let indexes: Vec<(SharedStr, _)> = [("by-node", "spec.nodeName"), ("by-own", "spec.own")]
            .map(|(name, path)| (name.into(), path.parse().unwrap()))
            .into();
        let names: Vec<_> = indexes.iter().map(|(name, _)| name.clone().into()).collect();
        let mut store = Store::new(resource.clone());
        let origin = Origin {
            cluster: ClusterName::new("a").unwrap(),
            cluster_labels: BTreeMap::new(),
            resource: resource.clone(),
            scope: Scope::all(),
        };
        let id = store.open(Arc::new(origin), InformerHealth::new(), names);
        Self {
            decoder: Decoder::new(resource, &Projection::default(), indexes),
            store,
            id,
            uncompressed: Uncompressed::new(512 * 1024),
            packing: Packing::new(),
            rng: StdRng::seed_from_u64(7),
            live: VecDeque::new(),
            version: 0,
        }
    }

    /// Creates `count` objects, and deletes random live objects above the limit.
    fn run(&mut self, count: u64) {
        for _ in 0..count / BATCH {
            let mut changes = Vec::new();
            for _ in 0..BATCH {
                let number = self.version;
                changes.push(self.event("ADDED", number));
                self.live.push_back(number);
                if self.live.len() as u64 > LIVE {
                    let victim = self.rng.random_range(0..self.live.len());
                    let removed = self.live.swap_remove_back(victim).unwrap();
                    changes.push(self.event("DELETED", removed));
                }
            }
            self.apply(changes);
            self.pack();
        }
        self.settle();
    }

    fn empty(&mut self) {
        while !self.live.is_empty() {
            let count = self.live.len().min(usize::try_from(BATCH).unwrap());
            let removed: Vec<_> = self.live.drain(..count).collect();
            let changes = removed.into_iter().map(|number| self.event("DELETED", number)).collect();
            self.apply(changes);
        }
        self.settle();
    }

    /// Creates an event of an object with a unique name, label and value.
    fn event(&mut self, kind: &str, number: u64) -> Change {
        let (node, text) = (number % 50, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.version += 1;
        let metadata = format!(
            r#"{{"name":"web-{number}","namespace":"shop","uid":"{number}","resourceVersion":"{}","labels":{{"app":"web","own":"{text:x}"}}}}"#,
            self.version
        );
        let line = format!(
            r#"{{"type":"{kind}","object":{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{{"nodeName":"node-{node}","own":"{text:x}","image":"registry.example.com/shop/web:1.2.3","policy":"Always"}},"status":{{"phase":"Running","hostIP":"10.0.0.{node}"}}}}}}"#
        );
        let (kind, object) = match self.decoder.decode_event(line.as_bytes()).unwrap() {
            WatchItem::Added(object) => (DeltaKind::Added, object),
            WatchItem::Deleted(object) => (DeltaKind::Deleted, object),
            other => panic!("not an event: {other:?}"),
        };
        Change::Delta(Delta { kind, object })
    }

    fn apply(&mut self, changes: Vec<Change>) {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for change in changes {
            fifo.push(change);
        }
        let outbox = self.store.apply(self.id, fifo.pop(usize::MAX)).unwrap();
        for applied in &*outbox.applied {
            if let informer_hub::cache::Applied::Added(object) = applied {
                self.uncompressed.add(Arc::clone(object));
            }
        }
    }

    fn pack(&mut self) {
        if self.uncompressed.is_over() {
            let aged = self.uncompressed.take_aged();
            self.round(aged);
        }
    }

    fn round(&mut self, aged: Vec<Arc<informer_hub_types::StoredObject>>) {
        let published = self.store.published().load_full();
        let round = self.packing.round(aged, &self.uncompressed, &published);
        self.packing.finished(Some(round.run()));
        self.uncompressed.aged();
        while let Some(slice) = self.packing.slice(&published) {
            let _ = slice.run();
        }
    }

    /// Does the work of a minute without events: packs all recent objects.
    fn settle(&mut self) {
        // The store keeps the changes of the last batch until the next one.
        self.store.apply(self.id, Vec::new()).unwrap();
        let aged = self.uncompressed.take_all();
        self.round(aged);
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#;
        self.decoder.decode_event(bookmark).unwrap();
    }
}

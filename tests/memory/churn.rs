//! Objects that come and go, through decoder, store, indices and packing, without a hub around them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use informer_hub::cache::{DeltaFifo, Packing, PartitionId, Store, Young};
use informer_hub_codec::{Decoder, Projection, WatchItem};
use informer_hub_types::{
    ApiResource, Change, ClusterName, Delta, DeltaKind, Gvr, InformerHealth, Origin, Scope, SharedStr,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::heap;

/// So many live.
const LIVE: u64 = 10_000;

/// Objects that come, and go, between two looks at what is to be packed.
const BATCH: u64 = 500;

struct Churn {
    decoder: Decoder,
    store: Store,
    id: PartitionId,
    young: Young,
    packing: Packing,
    rng: StdRng,
    live: VecDeque<u64>,
    version: u64,
}

/// Bytes allocated after so many creates and deletes, as a multiple of before; and when all are gone, as a part of it.
pub(crate) fn figures(churned: u64) -> Vec<f64> {
    let nothing = heap::now().allocated;
    let mut churn = Churn::new();
    // As many as live have gone before the first look: what grows once has grown.
    churn.go_on(3 * LIVE);
    let before = heap::now().allocated - nothing;
    churn.go_on(churned);
    let after = heap::now().allocated - nothing;
    churn.empty();
    let gone = heap::now().allocated - nothing;
    vec![after as f64 / before as f64, gone as f64 / before as f64]
}

impl Churn {
    fn new() -> Self {
        let resource = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
        let indexes: Vec<(SharedStr, _)> = [("by-node", "spec.nodeName"), ("by-own", "spec.own")]
            .map(|(name, path)| (name.into(), path.parse().unwrap()))
            .into();
        let names = indexes.iter().map(|(name, _)| name.clone().into()).collect();
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
            young: Young::new(512 * 1024),
            packing: Packing::new(),
            rng: StdRng::seed_from_u64(7),
            live: VecDeque::new(),
            version: 0,
        }
    }

    /// Creates so many, and deletes any of those that live as soon as they are too many.
    fn go_on(&mut self, count: u64) {
        for _ in 0..count / BATCH {
            let mut changes = Vec::new();
            for _ in 0..BATCH {
                let number = self.version;
                changes.push(self.event("ADDED", number));
                self.live.push_back(number);
                if self.live.len() as u64 > LIVE {
                    let victim = self.rng.random_range(0..self.live.len());
                    let gone = self.live.swap_remove_back(victim).unwrap();
                    changes.push(self.event("DELETED", gone));
                }
            }
            self.apply(changes);
            self.pack();
        }
        self.rest();
    }

    fn empty(&mut self) {
        while !self.live.is_empty() {
            let count = self.live.len().min(usize::try_from(BATCH).unwrap());
            let gone: Vec<_> = self.live.drain(..count).collect();
            let changes = gone.into_iter().map(|number| self.event("DELETED", number)).collect();
            self.apply(changes);
        }
        self.rest();
    }

    /// An object with a name, a label and a value that no other has.
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
                self.young.add(Arc::clone(object));
            }
        }
    }

    fn pack(&mut self) {
        if self.young.is_over() {
            let aged = self.young.take_aged();
            self.round(aged);
        }
    }

    fn round(&mut self, aged: Vec<Arc<informer_hub_types::StoredObject>>) {
        let published = self.store.published().load_full();
        let round = self.packing.round(aged, &self.young, &published);
        self.packing.finished(Some(round.run()));
        self.young.aged();
        while let Some(slice) = self.packing.slice(&published) {
            let _ = slice.run();
        }
    }

    /// What a minute without events does.
    fn rest(&mut self) {
        // The store remembers what the last batch did, until the next.
        self.store.apply(self.id, Vec::new()).unwrap();
        let aged = self.young.take_all();
        self.round(aged);
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#;
        self.decoder.decode_event(bookmark).unwrap();
    }
}

//! Tests that created and deleted objects leave nothing in indices and string tables.

use crate::testing::{delta, object_with, origin, pods};
use crate::{DeltaFifo, IndexFn, Indexers, PartitionId, Popped, Store};
use informer_hub_types::{
    Change, DeltaKind, IndexEntry, InformerHealth, Interner, ObjectKey, ResourceVersion, SharedStr, StoredObject,
    StoredObjectParts, Uid,
};

/// Number of live objects at any time.
const LIVE: u64 = 1_000;

fn pod(interner: &mut Interner, number: u64) -> StoredObject {
    let label = ("app".to_owned(), format!("app-{number}"));
    let entry = |interner: &mut Interner, index: &str, value: &str| IndexEntry {
        index: index.into(),
        value: interner.string(value),
    };
    let own = format!("only-{number}");
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("ns", &number.to_string()),
        uid: Uid::new(""),
        resource_version: ResourceVersion::new("1"),
        labels: interner.labels([label]),
        index_values: vec![entry(interner, "by-own", &own), entry(interner, "by-all", "all")],
        json: b"{}".to_vec(),
    })
}

fn batch(changes: impl IntoIterator<Item = Change>) -> Vec<Popped> {
    let mut fifo = DeltaFifo::new(usize::MAX);
    changes.into_iter().for_each(|change| fifo.push(change));
    fifo.pop(usize::MAX)
}

fn delete(store: &mut Store, id: PartitionId, numbers: impl Iterator<Item = u64>) {
    let gone = numbers.map(|number| object_with("ns", &number.to_string(), "", 2, &[], &[]));
    store.apply(id, batch(gone.map(|pod| Change::Delta(delta(DeltaKind::Deleted, pod))))).unwrap();
}

#[test]
fn indices_and_interner_stay_bounded_under_churn() {
    let mut store = Store::new(pods());
    let id = store.open(origin("c"), InformerHealth::new(), vec!["by-own".into(), "by-all".into()]);
    let by_app = IndexFn::path("metadata.labels['app']".parse().unwrap());
    store.add_indexers(Indexers::new().with("by-app", by_app)).unwrap();
    let mut interner = Interner::default();
    let all: SharedStr = interner.string("all");
    let count = |store: &Store, index: &str| store.published().load().index_values(index).count() as u64;
    for round in 0..80 {
        let first = round * LIVE / 2;
        let numbers = first..first + LIVE / 2;
        let added = numbers.map(|number| delta(DeltaKind::Added, pod(&mut interner, number)));
        store.apply(id, batch(added.map(Change::Delta))).unwrap();
        delete(&mut store, id, first.saturating_sub(LIVE / 2)..first);
        let live = LIVE / 2;
        assert_eq!((count(&store, "by-own"), count(&store, "by-app"), count(&store, "by-all")), (live, live, 1));
        // An object has two strings and a label set. At most 1,500 objects are live, including those in the outbox. The
        // table holds twice the live entries. Without cleanup it would reach 120,000.
        assert!(interner.len() as u64 <= 2 * 3 * (LIVE + LIVE / 2) + 2048, "{} texts", interner.len());
    }
    delete(&mut store, id, 0..40 * LIVE);
    let snapshot = store.published().load_full();
    assert!(snapshot.is_empty());
    for index in ["by-own", "by-app", "by-all"] {
        assert_eq!(snapshot.index_values(index).count(), 0, "{index}");
    }
    drop(snapshot);
    // The outbox of the store references the last batch until the next one.
    store.apply(id, Vec::new()).unwrap();
    assert_eq!(SharedStr::strong_count(&all), Some(2), "referenced by the interner and this test");
}

#[test]
fn object_with_ten_thousand_values_is_indexed_updated_and_removed() {
    let mut store = Store::new(pods());
    let id = store.open(origin("c"), InformerHealth::new(), vec!["by-image".into()]);
    let images = |from: u32| (from..from + 10_000).map(|image| format!("image-{image}")).collect::<Vec<_>>();
    let put = |store: &mut Store, version: u64, from: u32| {
        let images = images(from);
        let entries: Vec<_> = images.iter().map(|image| ("by-image", image.as_str())).collect();
        let pod = object_with("ns", "a", "u", version, &[], &entries);
        store.apply(id, batch([Change::Delta(delta(DeltaKind::Updated, pod))])).unwrap();
    };
    put(&mut store, 1, 0);
    put(&mut store, 2, 9_000);
    let snapshot = store.published().load_full();
    assert_eq!(snapshot.index_values("by-image").count(), 10_000);
    assert_eq!(
        (snapshot.by_index("by-image", "image-8999").count(), snapshot.by_index("by-image", "image-18999").count()),
        (0, 1)
    );
    store.close(id);
    assert_eq!(store.published().load().index_values("by-image").count(), 0);
}

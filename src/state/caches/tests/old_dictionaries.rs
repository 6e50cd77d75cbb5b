//! A directory of an earlier version, whose dictionaries zstd's own trainer made.

use super::*;
use crate::cache::Uncompressed;
use informer_hub_types::StoredBody;

/// Saved objects of each cluster.
const PODS: u64 = 400;

fn pod(cluster: &str, i: u64) -> Arc<StoredObject> {
    let (name, uid) = (format!("{cluster}-web-{i}"), format!("f81d4fae-7dec-11d0-a765-{i:012x}"));
    let labels = [("app", ["web", "db", "queue"][usize::try_from(i % 3).unwrap()]), ("tier", "gold")];
    Arc::new(object_with("ns", &name, &uid, i + 1, &labels, &[("by-node", "n1")]))
}

/// Trains a dictionary as earlier versions did.
fn old_dictionary(samples: impl Iterator<Item = Arc<StoredObject>>) -> Arc<Dictionary> {
    let samples: Vec<_> = samples.map(|object| object.sample()).collect();
    let bytes = zstd::dict::from_samples(&samples, 4 * 1024).unwrap();
    Arc::new(Dictionary::restore(bytes).unwrap())
}

/// Stores the pods of a cluster as a first list, packed with a dictionary.
fn store(model: &mut CrashModel, cluster: &'static str, dictionary: &Arc<Dictionary>) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::ReplaceBegin);
    for i in 0..PODS {
        fifo.push(Change::Delta(Delta { kind: DeltaKind::Replaced, object: pod(cluster, i) }));
    }
    let version = ResourceVersion::new("1000");
    fifo.push(Change::ReplaceEnd(version.clone()));
    model.store.apply_up_to(model.ids[cluster], fifo.pop(usize::MAX), Some(version));
    let snapshot = model.store.published().load_full();
    let outcome = pack_all(snapshot.partition(model.ids[cluster]).unwrap().iter(), dictionary, &model.totals);
    assert_eq!(outcome.packed as u64, PODS, "the dictionary shrinks every pod");
}

/// Returns the dictionaries of all packed bodies, each once.
fn dictionaries_of(snapshot: &Snapshot) -> BTreeSet<Vec<u8>> {
    let objects = snapshot.partitions().flat_map(|(_, partition)| partition.iter());
    let dictionary = |object: &Arc<StoredObject>| match object.stored_body() {
        StoredBody::Packed(body) => body.dictionary().bytes().to_vec(),
        StoredBody::Plain(_) | StoredBody::Unkept => panic!("{} is not packed", object.key()),
    };
    objects.map(dictionary).collect()
}

#[test]
fn directory_with_dictionaries_of_zstds_trainer_is_read_and_continued() {
    let mut model = CrashModel::new(1);
    let old = ["a", "b"].map(|cluster| old_dictionary((0..PODS).map(|i| pod(cluster, i))));
    for (cluster, dictionary) in CLUSTERS.into_iter().zip(old.iter().cycle()) {
        store(&mut model, cluster, dictionary);
    }
    let saved = model.store.published().load_full();
    let commits: Vec<_> = model.ids.values().map(|id| Commit { id: *id, readers: BTreeSet::new() }).collect();
    model.files.checkpoint(&saved, &commits, 1_000, true).unwrap();
    model.disk.kill();

    let disk: Arc<dyn Disk> = Arc::new(model.disk.clone());
    let mut loaded = load(&disk, Path::new(ROOT), &|_, _| Some(claim())).unwrap();
    assert!(loaded.lost.is_empty(), "{:?}", loaded.lost);
    let mut cache = loaded.caches.pop().unwrap();
    assert!(cache.damage.is_empty() && cache.plain.is_empty(), "{:?}", cache.damage);
    let restored = cache.store.published().load_full();
    let names = visible(&restored);
    assert_eq!(names.values().map(|pods| pods.len() as u64).collect::<Vec<_>>(), [PODS; 3]);
    assert!(names == visible(&saved), "a restored object differs");
    assert_eq!(dictionaries_of(&restored), old.iter().map(|old| old.bytes().to_vec()).collect());

    // New objects are packed with the newest of the old dictionaries, and none is trained.
    let new: Vec<_> = (PODS..PODS + 100).map(|i| pod("b", i)).collect();
    let texts: Vec<_> = new.iter().map(|object| object.json_text().unwrap()).collect();
    let round = cache.packing.round(new.clone(), &Uncompressed::new(usize::MAX), &restored);
    cache.packing.finished(Some(round.run()));
    assert_eq!(cache.packing.trainings(), 0);
    for (object, text) in new.iter().zip(texts) {
        let StoredBody::Packed(body) = object.stored_body() else { panic!("{} is not packed", object.key()) };
        assert_eq!((body.dictionary().bytes(), object.json_text().unwrap()), (old[1].bytes(), text));
    }
}

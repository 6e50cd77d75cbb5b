//! Tests of dictionary training and of repacking sweeps.

use std::sync::Arc;

use crate::testing::{origin, pods};
use crate::{Packing, Popped, Store, Uncompressed, pack_all};
use informer_hub_types::{
    Delta, DeltaKind, Dictionary, Gvr, InformerHealth, Labels, ObjectKey, ResourceVersion, StoredBody, StoredObject,
    StoredObjectParts, Uid,
};

/// Returns an object of a shape, identified by a letter. Objects of one shape are similar to each other only.
fn object(shape: char, i: usize) -> Arc<StoredObject> {
    let words = (0..60_u32)
        .map(|word| format!("{shape}{}", (word * word * 31 + shape as u32 * 977) % 8191))
        .collect::<Vec<_>>();
    let words = words.join("-");
    let json = format!(r#"{{"metadata":{{"name":"{shape}-{i}"}},"words":"{words}","own":"{}"}}"#, i * 7919 % 100_003);
    with_text(&format!("{shape}-{i}"), json)
}

fn with_text(name: &str, json: String) -> Arc<StoredObject> {
    Arc::new(StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("ns", name),
        uid: Uid::new(name),
        resource_version: ResourceVersion::new("1"),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: json.into_bytes(),
    }))
}

struct Rig {
    store: Store,
    packing: Packing,
    texts: Vec<(Arc<StoredObject>, String)>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Packing::new())
    }

    fn with(packing: Packing) -> Self {
        let mut store = Store::new(pods());
        store.open(origin("a"), InformerHealth::new(), Vec::new());
        Self { store, packing, texts: Vec::new() }
    }

    /// Stores `count` objects of a shape and packs them in rounds of 100.
    fn add(&mut self, shape: char, count: usize) {
        self.add_objects((0..count).map(|i| object(shape, i)).collect());
    }

    /// Runs an idle round without objects, as after a time without changes.
    fn idle(&mut self) {
        let round = self.packing.idle_round(Vec::new(), &Uncompressed::new(usize::MAX), &self.store.published().load());
        self.packing.finished(Some(round.run()));
    }

    fn add_objects(&mut self, objects: Vec<Arc<StoredObject>>) {
        let id = self.store.published().load().partitions().next().unwrap().0;
        for chunk in objects.chunks(100) {
            let mut uncompressed = Uncompressed::new(usize::MAX);
            let batch = chunk.iter().map(|object| {
                uncompressed.add(Arc::clone(object));
                let delta = Delta { kind: DeltaKind::Added, object: Arc::clone(object) };
                Popped::Deltas(object.key().clone(), [delta].into_iter().collect())
            });
            self.store.apply(id, batch.collect());
            let aged = uncompressed.take_all();
            let round = self.packing.round(aged, &uncompressed, &self.store.published().load());
            self.packing.finished(Some(round.run()));
        }
        self.texts.extend(objects.into_iter().map(|object| (Arc::clone(&object), object.json_text().unwrap())));
    }

    /// Runs a sweep to its end and returns the number of slices.
    fn sweep(&mut self) -> usize {
        let mut slices = 0;
        while let Some(slice) = self.packing.slice(&self.store.published().load()) {
            drop(slice.run());
            slices += 1;
            assert!(slices < 10_000, "a sweep that does not end");
        }
        slices
    }

    fn bytes_each(&self) -> usize {
        self.texts.iter().map(|(object, _)| object.body_size()).sum::<usize>() / self.texts.len()
    }
}

impl Drop for Rig {
    /// Asserts that the bodies are unchanged.
    fn drop(&mut self) {
        for (object, text) in &self.texts {
            assert_eq!(object.json_text().unwrap(), *text);
        }
    }
}

#[test]
fn dictionary_is_trained_once_for_similar_objects() {
    let mut rig = Rig::new();
    rig.add('a', 6_000);
    assert_eq!((rig.packing.trainings(), rig.sweep()), (1, 0));
    assert!(rig.bytes_each() < 60, "{}", rig.bytes_each());
}

#[test]
fn training_is_retried_when_there_are_enough_objects() {
    let mut rig = Rig::new();
    rig.add('a', 20);
    assert_eq!(rig.packing.trainings(), 0);
    assert!(rig.bytes_each() > 60);
    // In rounds of 100; some pass before training is retried.
    rig.add('b', 1_000);
    assert_eq!(rig.packing.trainings(), 1);
}

/// Returns the dictionaries of all packed bodies.
fn dictionaries(rig: &Rig) -> Vec<Arc<Dictionary>> {
    let mut all: Vec<Arc<Dictionary>> = Vec::new();
    for (object, _) in &rig.texts {
        if let StoredBody::Packed(body) = object.stored_body()
            && !all.iter().any(|known| Arc::ptr_eq(known, body.dictionary()))
        {
            all.push(Arc::clone(body.dictionary()));
        }
    }
    all
}

#[test]
fn objects_packed_before_any_training_are_repacked_after_it() {
    let mut rig = Rig::new();
    rig.add('a', 20);
    let empty = dictionaries(&rig);
    assert_eq!((empty.len(), empty[0].size()), (1, 0));
    rig.add_objects((20..1_020).map(|i| object('a', i)).collect());
    assert_eq!(rig.packing.trainings(), 1);
    assert!(rig.sweep() > 0, "no body of before is repacked");
    let now = dictionaries(&rig);
    assert_eq!(now.len(), 1, "{now:?}");
    let unused = Arc::downgrade(&empty[0]);
    drop(empty);
    assert!(unused.upgrade().is_none(), "the empty dictionary stays in memory");
}

#[test]
fn failed_trainings_keep_one_empty_dictionary() {
    let mut rig = Rig::new();
    // Each round has too few objects.
    for round in 0..40 {
        rig.add_objects((0..10).map(|i| object('a', round * 10 + i)).collect());
    }
    assert_eq!(rig.packing.trainings(), 0);
    assert_eq!(dictionaries(&rig).len(), 1);
}

#[test]
fn changed_objects_train_a_new_dictionary_and_old_ones_are_repacked() {
    let mut rig = Rig::new();
    rig.add('a', 3_000);
    let before = rig.packing.totals().bytes();
    assert_eq!(rig.packing.trainings(), 1);
    rig.add('b', 6_000);
    assert!(rig.packing.trainings() > 1, "objects of another shape went unnoticed");
    assert!(rig.packing.trainings() < 6, "{} trainings for one change", rig.packing.trainings());
    let unswept = rig.packing.totals().bytes();
    assert!(rig.sweep() > 0);
    let swept = rig.packing.totals();
    assert!(swept.bytes() < unswept, "{} of {unswept}", swept.bytes());
    assert!(rig.bytes_each() < 70, "{} each, {before} for the first 3,000", rig.bytes_each());
    assert_eq!(rig.sweep(), 0);
}

/// Returns a dictionary trained on objects of shape `a`.
fn dictionary() -> Arc<Dictionary> {
    Arc::new(Dictionary::train((0..800).map(|i| object('a', i).sample())).unwrap())
}

#[test]
fn suitable_builtin_dictionary_needs_no_training() {
    let mut rig = Rig::with(Packing::with_builtin(dictionary()));
    rig.add('a', 6_000);
    rig.idle();
    assert_eq!((rig.packing.trainings(), rig.sweep()), (0, 0));
    assert!(rig.bytes_each() < 70, "{}", rig.bytes_each());
}

#[test]
fn unsuitable_builtin_dictionary_is_replaced_at_the_first_objects() {
    let mut rig = Rig::with(Packing::with_builtin(dictionary()));
    rig.add('b', 100);
    assert_eq!(rig.packing.trainings(), 1);
    rig.add('b', 6_000);
    assert_eq!(rig.packing.trainings(), 1);
    assert!(rig.bytes_each() < 70, "{}", rig.bytes_each());
}

#[test]
fn builtin_dictionary_gives_way_to_a_better_one_when_idle() {
    let mut rig = Rig::with(Packing::with_builtin(dictionary()));
    let own = (0..15_u32).map(|word| format!("own{}", (word * word * 577) % 8191)).collect::<Vec<_>>().join("-");
    let with_own_words = |i| {
        let text = object('a', i).json_text().unwrap();
        with_text(&format!("a-{i}"), text.replacen('{', &format!(r#"{{"more":"{own}","#), 1))
    };
    rig.add_objects((0..6_000).map(with_own_words).collect());
    assert_eq!((rig.packing.trainings(), rig.sweep()), (0, 0), "a list trains nothing");
    let before = rig.bytes_each();
    rig.idle();
    assert_eq!(rig.packing.trainings(), 1);
    assert!(rig.sweep() > 0 && rig.bytes_each() * 6 < before * 5, "{} of {before}", rig.bytes_each());
    rig.idle();
    assert_eq!((rig.packing.trainings(), rig.sweep()), (1, 0));
}

/// Returns objects that share nothing.
fn noise(count: usize) -> Vec<Arc<StoredObject>> {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    let noise = |i: usize| {
        let text: String = (0..2_000).map(|_| letter()).collect();
        with_text(&format!("noise-{i}"), format!(r#"{{"metadata":{{"name":"noise-{i}"}},"text":"{text}"}}"#))
    };
    (0..count).map(noise).collect()
}

#[test]
fn builtin_dictionary_stays_if_another_is_not_better() {
    let mut rig = Rig::with(Packing::of(&pods().gvr));
    rig.add_objects(noise(500));
    rig.idle();
    assert_eq!((rig.packing.trainings(), rig.sweep()), (0, 0));
}

#[test]
fn list_limit_has_room_for_samples_and_grows_with_the_store() {
    let mut rig = Rig::new();
    assert_eq!(rig.packing.list_limit(), Uncompressed::SAMPLES_LIMIT);
    rig.add('a', 100);
    assert_eq!(rig.packing.list_limit(), Uncompressed::LIST_LIMIT);
    let mut rig = Rig::with(Packing::with_builtin(dictionary()));
    assert_eq!(rig.packing.list_limit(), Uncompressed::SAMPLES_LIMIT, "it may not suit");
    rig.add('a', 100);
    assert_eq!(rig.packing.list_limit(), Uncompressed::LIST_LIMIT);
    let mut rig = Rig::with(Packing::of(&Gvr::new("", "v1", "secrets")));
    assert_eq!(rig.packing.list_limit(), Uncompressed::LIST_LIMIT, "no dictionary is trained");
    rig.add_objects(noise(2_000));
    let live = rig.packing.totals().live();
    assert!(live / 8 > Uncompressed::LIST_LIMIT, "{live}");
    assert_eq!(rig.packing.list_limit(), live / 8);
}

#[test]
fn first_list_trains_once_in_small_rounds() {
    let mut rig = Rig::new();
    let id = rig.store.published().load().partitions().next().unwrap().0;
    let mut uncompressed = Uncompressed::new(usize::MAX);
    for i in 0..12_000 {
        let object = object('a', i);
        uncompressed.add(Arc::clone(&object));
        rig.texts.push((Arc::clone(&object), object.json_text().unwrap()));
        let delta = Delta { kind: DeltaKind::Added, object: Arc::clone(&object) };
        rig.store.apply(id, vec![Popped::Deltas(object.key().clone(), [delta].into_iter().collect())]);
        uncompressed.set_limits(usize::MAX, Some(rig.packing.list_limit()));
        if uncompressed.is_over() {
            let aged = uncompressed.take_aged();
            let round = rig.packing.round(aged, &uncompressed, &rig.store.published().load());
            rig.packing.finished(Some(round.run()));
            uncompressed.aged();
        }
    }
    assert!(uncompressed.bytes() <= Uncompressed::LIST_LIMIT);
    assert_eq!(rig.packing.trainings(), 1, "a dictionary was measured by its own samples");
}

#[test]
fn confidential_objects_are_in_no_dictionary() {
    for resource in ["secrets", "configmaps"] {
        let gvr = Gvr::new("", "v1", resource);
        let mut rig = Rig::with(Packing::of(&gvr));
        rig.add('a', 3_000);
        rig.idle();
        assert_eq!(rig.packing.trainings(), 0, "{resource}");
        // A state directory of an earlier version has such a dictionary. It is not kept.
        let old = Arc::new(Dictionary::train(rig.texts.iter().take(800).map(|(_, text)| text)).unwrap());
        let _ = pack_all(rig.texts.iter().map(|(object, _)| object), &old, rig.packing.totals());
        let totals = Arc::clone(rig.packing.totals());
        let gone = Arc::downgrade(&old);
        rig.packing = Packing::restored(&gvr, Some(old), totals);
        assert!(rig.sweep() > 0);
        assert!(gone.upgrade().is_none(), "a body of {resource} still needs the old dictionary");
    }
}

#[test]
fn sweep_frees_dead_bytes_and_memory_stays_bounded() {
    let mut rig = Rig::new();
    rig.add('a', 12_000);
    let full = rig.packing.totals().bytes();
    // Each round replaces two thirds, so that live bodies are scattered over many chunks.
    for version in 2..40_u64 {
        let id = rig.store.published().load().partitions().next().unwrap().0;
        let mut uncompressed = Uncompressed::new(usize::MAX);
        let mut batch = Vec::new();
        for (at, (object, text)) in rig.texts.iter_mut().enumerate() {
            if !(at as u64 + version).is_multiple_of(3) {
                let next = StoredObject::new(StoredObjectParts {
                    key: object.key().clone(),
                    uid: object.uid().clone(),
                    resource_version: ResourceVersion::new(&version.to_string()),
                    labels: Labels::default(),
                    index_values: Vec::new(),
                    json: text.clone().into_bytes(),
                });
                *object = Arc::new(next);
                uncompressed.add(Arc::clone(object));
                let delta = Delta { kind: DeltaKind::Updated, object: Arc::clone(object) };
                batch.push(Popped::Deltas(object.key().clone(), [delta].into_iter().collect()));
            }
        }
        rig.store.apply(id, batch);
        // The outbox references the replaced objects until the next batch.
        rig.store.apply(id, Vec::new());
        let aged = uncompressed.take_all();
        let round = rig.packing.round(aged, &uncompressed, &rig.store.published().load());
        rig.packing.finished(Some(round.run()));
        rig.sweep();
        let bytes = rig.packing.totals().bytes();
        assert!(bytes * 5 <= full * 9 + 5 * 256 * 1024, "{bytes} after {version} rounds of {full}");
    }
}

#[test]
fn sweep_is_not_repeated_for_referenced_objects() {
    let mut rig = Rig::new();
    rig.add('a', 12_000);
    // One object in a hundred is referenced, which keeps nearly all chunks alive.
    let references: Vec<_> = rig.texts.drain(..).step_by(100).collect();
    rig.store.close(rig.store.published().load().partitions().next().unwrap().0);
    let bytes = rig.packing.totals().bytes();
    assert!(rig.packing.totals().live() * 10 < bytes, "{:?}", rig.packing.totals());
    assert!(rig.sweep() < 4, "the sweep ends");
    assert_eq!(rig.sweep(), 0, "no new sweep while the objects are referenced");
    drop(references);
    assert_eq!(rig.packing.totals().bytes(), 0);
}

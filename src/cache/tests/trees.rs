//! Model tests of the object tree and the value tree, against standard maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use smol_str::SmolStr;

use crate::objects::{Change, Objects};
use crate::posting::{Location, PartitionId};
use crate::testing::{object_with, properties};
use crate::values::Values;
use informer_hub_types::{LabelNeeds, ObjectKey, SharedStr, StoredObject};

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    /// Inserts many in order, as a list does.
    List(usize, usize),
    /// Removes many in order.
    Sweep(usize, usize),
    /// Keeps a clone, whose contents must not change.
    Clone,
    /// Asks for the namespaces.
    Namespaces,
}

/// Returns keys with common prefixes, some longer than eight bytes, some in other namespaces.
fn key(number: usize) -> ObjectKey {
    match number % 5 {
        0 => ObjectKey::new("", &format!("{number}")),
        1 => ObjectKey::new("a", &format!("web-{:03}", number / 7)),
        2 => ObjectKey::new("a-very-long-namespace", &format!("a-name-that-is-long-too-{number}")),
        3 => ObjectKey::new("é", &"é".repeat(number % 40)),
        _ => ObjectKey::new(&format!("ns-{}", number / 90), &format!("web-{}", "0".repeat(number % 30))),
    }
}

fn object(number: usize, version: u64) -> Arc<StoredObject> {
    let key = key(number);
    let app = format!("app-{}", (number as u64 + version) % 7);
    let labels = [("app", app.as_str()), ("tier", "gold")];
    Arc::new(object_with(key.namespace().unwrap_or_default(), key.name(), "u", version, &labels, &[]))
}

fn arb_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_000_usize).prop_map(Step::Put),
        4 => (0..2_000_usize).prop_map(Step::Remove),
        2 => (0..2_000_usize, 0..300_usize).prop_map(|(from, len)| Step::List(from, len)),
        2 => (0..2_000_usize, 0..300_usize).prop_map(|(from, len)| Step::Sweep(from, len)),
        1 => Just(Step::Clone),
        2 => Just(Step::Namespaces),
    ]
}

fn pointer(object: Option<&Arc<StoredObject>>) -> Option<*const StoredObject> {
    object.map(Arc::as_ptr)
}

type Model = BTreeMap<ObjectKey, Arc<StoredObject>>;

fn same<'a>(found: impl Iterator<Item = &'a Arc<StoredObject>>, model: impl Iterator<Item = &'a Arc<StoredObject>>) {
    assert!(found.map(Arc::as_ptr).eq(model.map(Arc::as_ptr)));
}

fn check_namespaces(objects: &Objects, model: &Model) {
    let expected: BTreeSet<_> = model.keys().filter_map(ObjectKey::namespace).collect();
    assert!(objects.namespaces().iter().map(SmolStr::as_str).eq(expected));
}

fn check(objects: &Objects, model: &Model) {
    check_namespaces(objects, model);
    assert_eq!((objects.len(), objects.is_empty()), (model.len(), model.is_empty()));
    same(objects.iter(), model.values());
    for number in (0..2_000).step_by(41) {
        let (from, to) = (key(number), key(number * 31 % 2_000));
        assert_eq!(objects.get(&from).map(Arc::as_ptr), model.get(&from).map(Arc::as_ptr), "{from}");
        let (from, to) = (from.clone().min(to.clone()), from.max(to));
        let bounds = [Bound::Unbounded, Bound::Included(&from), Bound::Excluded(&from)];
        for lower in bounds {
            for upper in [Bound::Unbounded, Bound::Included(&to), Bound::Excluded(&to)] {
                if from == to && (lower, upper) == (Bound::Excluded(&from), Bound::Excluded(&to)) {
                    assert_eq!((objects.range(lower, upper).count(), objects.len_between(lower, upper)), (0, 0));
                    continue;
                }
                assert_eq!(objects.len_between(lower, upper), model.range((lower, upper)).count());
                same(objects.range(lower, upper), model.range((lower, upper)).map(|(_, object)| object));
            }
        }
        if from < to {
            let inverted = (Bound::Included(&to), Bound::Included(&from));
            assert_eq!(objects.range(inverted.0, inverted.1).count(), 0, "inverted bounds");
            assert_eq!(objects.len_between(inverted.0, inverted.1), 0, "inverted bounds");
        }
    }
    let needs = LabelNeeds::of(&"app=app-3".parse().unwrap());
    let may: BTreeSet<_> = objects
        .runs(Bound::Unbounded, Bound::Unbounded)
        .flat_map(|run| run.that_may_match(&needs, || ()))
        .map(Arc::as_ptr)
        .collect();
    let matching = model.values().filter(|object| object.labels().get("app") == Some("app-3"));
    assert!(matching.map(Arc::as_ptr).all(|object| may.contains(&object)), "a match is never skipped");
    assert!(may.len() <= model.len() / 2 + 20, "{} of {}", may.len(), model.len());
}

/// Asserts that exactly the differing keys are reported, once and in order.
fn check_changes(before: &Objects, then: &Model, after: &Objects, now: &Model) {
    let mut reported = Vec::new();
    before.changes(after, |change| {
        reported.push(match change {
            Change::Added(new) => (new.key().clone(), None, Some(Arc::as_ptr(new))),
            Change::Removed(old) => (old.key().clone(), Some(Arc::as_ptr(old)), None),
            Change::Exchanged(old, new) => (old.key().clone(), Some(Arc::as_ptr(old)), Some(Arc::as_ptr(new))),
        });
    });
    let keys: BTreeSet<_> = then.keys().chain(now.keys()).collect();
    let both = keys.into_iter().map(|key| (key.clone(), then.get(key).map(Arc::as_ptr), now.get(key).map(Arc::as_ptr)));
    let differing: Vec<_> = both.filter(|(_, old, new)| old != new).collect();
    assert_eq!(reported, differing);
}

#[test]
fn changes_skip_shared_nodes() {
    let mut objects = Objects::default();
    (0..2_000).for_each(|number| _ = objects.insert(object(number, 1)));
    let before = objects.clone();
    assert!(before.is_same(&objects));
    for number in [7, 1_007, 1_999] {
        objects.insert(object(number, 2));
        objects.remove(&key(number + 3));
    }
    let looked = before.compared_entries(&objects);
    assert!(!before.is_same(&objects) && looked < 300, "{looked} entries for six changes");
}

proptest! {
    #![proptest_config(properties(16))]

    #[test]
    fn objects_equal_a_sorted_map_and_clones_are_independent(
        steps in prop::collection::vec(arb_step(), 0..120),
    ) {
        let (mut objects, mut model) = (Objects::default(), Model::new());
        let mut kept = Vec::new();
        for (version, step) in steps.into_iter().enumerate() {
            let mut put = |number| {
                let object = object(number, version as u64);
                let old = objects.insert(Arc::clone(&object));
                assert_eq!(pointer(old.as_ref()), pointer(model.insert(object.key().clone(), object).as_ref()));
            };
            match step {
                Step::Put(number) => put(number),
                Step::List(from, len) => (from..from + len).for_each(put),
                Step::Remove(number) => {
                    assert_eq!(pointer(objects.remove(&key(number)).as_ref()), pointer(model.remove(&key(number)).as_ref()));
                }
                Step::Sweep(from, len) => (from..from + len).for_each(|number| {
                    assert_eq!(pointer(objects.remove(&key(number)).as_ref()), pointer(model.remove(&key(number)).as_ref()));
                }),
                Step::Clone => kept.push((objects.clone(), model.clone())),
                Step::Namespaces => match kept.last() {
                    // An older clone has its own namespaces.
                    Some((clone, then)) if version % 2 == 0 => check_namespaces(clone, then),
                    _ => check_namespaces(&objects, &model),
                },
            }
        }
        check(&objects, &model);
        for (before, then) in &kept {
            check(before, then);
            check_changes(before, then, &objects, &model);
            check_changes(&objects, &model, before, then);
        }
    }

    #[test]
    fn values_equal_a_map_of_postings(steps in prop::collection::vec((any::<bool>(), 0..400_usize, 0..3_usize), 0..1500)) {
        let (mut values, mut model) = (Values::default(), BTreeMap::<SharedStr, BTreeSet<Location>>::new());
        let mut kept = Vec::new();
        for (step, (is_put, value, name)) in steps.into_iter().enumerate() {
            let text: SharedStr = format!("value-{value}").into();
            let at = Location { partition: PartitionId(0), key: ObjectKey::new("ns", &name.to_string()) };
            if is_put {
                values.insert(&text, at.clone());
                model.entry(text).or_default().insert(at);
            } else {
                values.remove(&text, &at);
                if model.get_mut(&text).is_some_and(|posting| posting.remove(&at) && posting.is_empty()) {
                    model.remove(&text);
                }
            }
            if step % 500 == 7 {
                kept.push((values.clone(), model.clone()));
            }
        }
        kept.push((values, model));
        for (values, model) in kept {
            prop_assert_eq!(values.len(), model.len());
            let found: BTreeMap<_, _> = values.iter().map(|(text, posting)| (text.clone(), posting.len())).collect();
            prop_assert_eq!(found, model.iter().map(|(text, at)| (text.clone(), at.len())).collect::<BTreeMap<_, _>>());
            for value in 0..400 {
                let text = format!("value-{value}");
                let found = values.get(&text).map(crate::posting::Posting::len);
                prop_assert_eq!(found, model.get(text.as_str()).map(BTreeSet::len));
                prop_assert_eq!(values.known(&text).map(SharedStr::as_str), found.map(|_| text.as_str()));
            }
        }
    }
}

#[test]
fn leaves_are_full_after_ordered_insertion() {
    let mut objects = Objects::default();
    for number in 0..10_000 {
        objects.insert(Arc::new(object_with("ns", &format!("web-{number:05}"), "u", 1, &[], &[])));
    }
    let runs = objects.runs(Bound::Unbounded, Bound::Unbounded).count();
    assert_eq!(runs, 10_000_usize.div_ceil(16));
    // Removals leave no sparse leaves.
    for number in (0..10_000).filter(|number| number % 10 != 0) {
        objects.remove(&ObjectKey::new("ns", &format!("web-{number:05}")));
    }
    let runs = objects.runs(Bound::Unbounded, Bound::Unbounded).count();
    assert!(runs * 4 <= objects.len(), "{runs} leaves for {}", objects.len());
}

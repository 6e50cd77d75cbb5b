//! One listener against a naive one that merges nothing: less is told, and the same comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::world::{Consumer, NAMES};
use crate::cache::testing::{Informer, object_with, properties};
use crate::cache::{Applied, ListenerOptions, ListenerQueue, ObjectFilter};
use crate::types::{LabelSelector, Notification, StoredObject};

/// What a store with these objects would say of one operation. `None` of a deletion of nothing.
fn apply(store: &mut BTreeMap<&'static str, Arc<StoredObject>>, at: usize, op: u8, version: u64) -> Vec<Applied> {
    let name = NAMES[at];
    let app = if version.is_multiple_of(3) { "db" } else { "web" };
    let make = |uid: &str| Arc::new(object_with("ns", name, uid, version, &[("app", app)], &[]));
    let fresh = format!("{name}-{version}");
    match (op, store.get(name).cloned()) {
        (0..=4, Some(old)) => {
            let new = make(&old.uid().to_string());
            store.insert(name, Arc::clone(&new));
            vec![Applied::Updated { old, new }]
        }
        (5, Some(stored)) => {
            let new = make(&fresh);
            store.insert(name, Arc::clone(&new));
            vec![Applied::Deleted { last: Arc::clone(&stored), stored, tombstone: true }, Applied::Added(new)]
        }
        (6, Some(stored)) => vec![Applied::Repeated(stored)],
        (_, Some(stored)) => {
            store.remove(name);
            let last = make(&stored.uid().to_string());
            vec![Applied::Deleted { stored, last, tombstone: false }]
        }
        (0..=5, None) => {
            let new = make(&fresh);
            store.insert(name, Arc::clone(&new));
            vec![Applied::Added(new)]
        }
        (_, None) => Vec::new(),
    }
}

/// The unmerged truth for a subscriber: the objects that it wants, in order of change.
fn wanted(
    store: &BTreeMap<&'static str, Arc<StoredObject>>,
    labels: &LabelSelector,
) -> BTreeMap<String, (String, u64)> {
    let objects = store.values().filter(|object| labels.matches(|key| object.labels().get(key)));
    objects
        .map(|object| {
            let version = object.resource_version().as_number().unwrap();
            (object.key().name().to_owned(), (object.uid().to_string(), version))
        })
        .collect()
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn a_listener_that_merges_comes_to_the_same_end_as_one_that_does_not(
        merge_above in 0..12_usize,
        filter in prop_oneof![Just(""), Just("app=web"), Just("app!=web")],
        synced_at in 0..40_usize,
        steps in prop::collection::vec((0..NAMES.len(), 0..9_u8, 0..12_usize), 1..200),
    ) {
        let labels: LabelSelector = filter.parse().unwrap();
        let empty = Informer::new().partition();
        let options = ListenerOptions {
            filter: ObjectFilter { namespace: None, labels: Some(labels.clone()) },
            ..ListenerOptions::default()
        };
        let mut merging = ListenerQueue::new(options.clone(), &empty, merge_above);
        let mut naive = ListenerQueue::new(options, &empty, usize::MAX);
        let (mut consumer, mut patient) = (Consumer::default(), Consumer::default());
        let (mut offered, mut told) = (0, 0);
        let hear = |consumer: &mut Consumer, notifications: Vec<Notification>| {
            consumer.hear_all(&notifications);
            notifications.len() as u64
        };
        let mut store = BTreeMap::new();
        for (number, (at, op, take)) in (1..).zip(steps) {
            let mut applied = apply(&mut store, at, op, number);
            if number == synced_at as u64 {
                applied.push(Applied::Synced);
            }
            merging.offer(number, &applied, true);
            naive.offer(number, &applied, true);
            offered += hear(&mut patient, naive.take(usize::MAX));
            prop_assert!(merging.len() <= merge_above + 2 * NAMES.len() + 1);
            // Mostly stalled, now and then a few.
            if take < 4 {
                told += hear(&mut consumer, merging.take(take));
            }
        }
        told += hear(&mut consumer, merging.take(usize::MAX));
        prop_assert!(merging.is_empty());
        let truth = wanted(&store, &labels);
        prop_assert_eq!(&patient.known, &truth);
        prop_assert_eq!(&consumer.known, &truth);
        prop_assert_eq!(consumer.synced, patient.synced);
        prop_assert_eq!(told + merging.merged(), offered, "each is told or merged away");
    }
}

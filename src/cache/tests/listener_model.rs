//! Model test of listener queues: compares one that merges with one that does not, and the latter with the expected
//! notifications. Merging drops notifications but leads to the same state.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::world::{Consumer, NAMES};
use crate::testing::{Informer, notification_lines, object_with, properties};
use crate::{Applied, InitialObjects, ListenerOptions, ListenerQueue, ObjectFilter};
use informer_hub_types::{Change, Delta, DeltaKind, LabelSelector, Notification, ResourceVersion, StoredObject};

/// Returns the effects of one operation on a store with these objects.
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

type Objects = BTreeMap<&'static str, Arc<StoredObject>>;

/// Returns the expected state of a subscriber: the matching objects.
fn matching(store: &Objects, labels: &LabelSelector) -> BTreeMap<String, (String, u64)> {
    store.values().filter(|object| passes(labels, object)).map(|object| identity(object)).collect()
}

fn passes(labels: &LabelSelector, object: &StoredObject) -> bool {
    labels.matches(|key| object.labels().get(key))
}

fn identity(object: &StoredObject) -> (String, (String, u64)) {
    let version = object.resource_version().as_number().unwrap();
    (object.key().name().to_owned(), (object.uid().to_string(), version))
}

/// Returns the expected notification for an effect, in the notation of [`notified`].
fn rule(applied: &Applied, labels: &LabelSelector, resync: bool, initial: bool, skips: bool) -> Option<String> {
    let text = |object: &StoredObject| format!("{}@{}", object.key().name(), object.resource_version());
    let added = |new: &StoredObject| format!("{}{}", if initial { '!' } else { '+' }, text(new));
    match applied {
        Applied::Synced => initial.then(|| "synced".to_owned()),
        Applied::Added(new) => (passes(labels, new) && !(initial && skips)).then(|| added(new)),
        Applied::Updated { old, new } => match (passes(labels, old), passes(labels, new)) {
            (true, true) => Some(format!("{}>{}", text(old), new.resource_version())),
            (true, false) => Some(format!("-{}", text(old))),
            (false, true) => Some(format!("+{}", text(new))),
            (false, false) => None,
        },
        Applied::Deleted { stored, last, tombstone } => {
            passes(labels, stored).then(|| format!("{}{}", if *tombstone { '†' } else { '-' }, text(last)))
        }
        Applied::Restored { .. } => None,
        Applied::Repeated(object) => (resync && passes(labels, object)).then(|| format!("={}", text(object))),
    }
}

/// Returns the notified states per object, in order. A merging queue leaves some of them out.
fn states(notifications: &[Notification]) -> BTreeMap<String, Vec<String>> {
    let mut states: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for notification in notifications {
        let Some(object) = notification.object() else { continue };
        let gone = match notification {
            Notification::Deleted { tombstone, .. } => format!(" gone, unseen: {tombstone}"),
            _ => String::new(),
        };
        let state = format!("{}@{}{gone}", object.uid(), object.resource_version());
        states.entry(object.name().to_owned()).or_default().push(state);
    }
    states
}

fn is_subsequence(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|one| rest.any(|other| other == one))
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: usize,
    op: u8,
    /// Whether the batch continues with the next step.
    more: bool,
    /// Whether the listener is due for a resync.
    resync: bool,
    /// Whether the batch is offered twice.
    again: bool,
    /// Number of notifications to take afterwards; mostly zero.
    take: usize,
}

fn arb_step() -> impl Strategy<Value = Step> {
    let take = prop_oneof![4 => Just(0), 1 => 1..3_usize, 1 => 1..20_usize];
    let flags = (prop::bool::weighted(0.4), prop::bool::weighted(0.7), prop::bool::weighted(0.1));
    (0..NAMES.len(), 0..9_u8, flags, take).prop_map(|(at, op, (more, resync, again), take)| Step {
        at,
        op,
        more,
        resync,
        again,
        take,
    })
}

/// Returns an informer with some objects, for a listener that joins late.
fn informer_with(store: &mut Objects, names: &[usize], synced: bool) -> Informer {
    let mut informer = Informer::new();
    for (number, at) in (1..).zip(names) {
        apply(store, *at, 0, number);
    }
    let added = store.values().map(|object| Delta { kind: DeltaKind::Added, object: Arc::clone(object) });
    let mut changes: Vec<_> = added.map(Change::Delta).collect();
    if synced {
        let keys = store.values().map(|object| Change::ReplaceKeep(object.key().clone()));
        changes.extend([Change::ReplaceBegin].into_iter().chain(keys));
        changes.push(Change::ReplaceEnd(ResourceVersion::new("1")));
    }
    informer.apply_changes(changes);
    informer
}

/// A queue that merges and one that does not, with their notifications.
struct Listeners {
    merging: ListenerQueue,
    patient: ListenerQueue,
    notified: Vec<Notification>,
    notified_patiently: Vec<Notification>,
}

impl Listeners {
    fn take(&mut self, max: usize) {
        let taken = self.merging.take(max);
        assert!(taken.len() <= max);
        self.notified.extend(taken);
    }
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn merging_listener_reaches_the_same_state_as_a_patient_one(
        merge_above in 0..12_usize,
        filter in prop_oneof![Just(""), Just("app=web"), Just("app!=web")],
        skips in any::<bool>(),
        before in prop::collection::vec(0..NAMES.len(), 0..5),
        synced_before in any::<bool>(),
        synced_at in 0..40_usize,
        steps in prop::collection::vec(arb_step(), 1..200),
    ) {
        let labels: LabelSelector = filter.parse().unwrap();
        let mut store = Objects::new();
        let partition = informer_with(&mut store, &before, synced_before).partition();
        let initial = if skips { InitialObjects::Skip } else { InitialObjects::Replay };
        let options = ListenerOptions { filter: ObjectFilter { namespace: None, labels: Some(labels.clone()) }, initial };
        let mut listeners = Listeners {
            merging: ListenerQueue::new(options.clone(), &partition, merge_above),
            patient: ListenerQueue::new(options, &partition, usize::MAX),
            notified: Vec::new(),
            notified_patiently: Vec::new(),
        };
        let mut rules: Vec<String> = Vec::new();
        if !skips {
            let there = store.values().filter(|object| passes(&labels, object));
            rules.extend(there.map(|object| format!("!{}@{}", object.key().name(), object.resource_version())));
        }
        let mut synced = synced_before;
        rules.extend(synced.then(|| "synced".to_owned()));
        let (mut number, mut batch) = (partition.number(), Vec::new());
        for (moment, step) in steps.iter().enumerate() {
            batch.extend(apply(&mut store, step.at, step.op, 1000 + moment as u64));
            if moment == synced_at {
                batch.push(Applied::Synced);
            }
            if step.more {
                continue;
            }
            number += 1;
            for applied in &batch {
                rules.extend(rule(applied, &labels, step.resync, !synced, skips));
                synced |= matches!(applied, Applied::Synced);
            }
            for _ in 0..=usize::from(step.again) {
                listeners.merging.offer(number, &batch, step.resync);
                listeners.patient.offer(number, &batch, step.resync);
            }
            batch.clear();
            prop_assert!(listeners.merging.len() <= merge_above + 3 * NAMES.len() + 1);
            listeners.take(step.take);
            listeners.notified_patiently.extend(listeners.patient.take(usize::MAX));
        }
        listeners.notified_patiently.extend(listeners.patient.take(usize::MAX));
        listeners.take(usize::MAX);
        prop_assert!(listeners.merging.is_empty() && listeners.patient.is_empty());
        let Listeners { merging, patient, notified: less, notified_patiently: all } = listeners;
        prop_assert_eq!(notification_lines(&all), rules, "without merging, notifications follow the rules");
        prop_assert_eq!((less.len() as u64 + merging.merged(), patient.merged()), (all.len() as u64, 0));
        let whole = states(&all);
        for (name, part) in states(&less) {
            prop_assert!(is_subsequence(&part, &whole[&name]), "{name}: {part:?} of {:?}", whole[&name]);
        }
        let (mut consumer, mut attentive) = (Consumer { skips, ..Consumer::default() }, Consumer { skips, ..Consumer::default() });
        consumer.consume_all(&less);
        attentive.consume_all(&all);
        prop_assert_eq!((consumer.synced, attentive.synced), (usize::from(synced), usize::from(synced)));
        if !skips {
            // If the last step has `more` set, its batch has not been offered.
            if steps.last().is_some_and(|step| !step.more) {
                prop_assert_eq!(&attentive.known, &matching(&store, &labels));
            }
            prop_assert_eq!(&consumer.known, &attentive.known);
        }
    }
}

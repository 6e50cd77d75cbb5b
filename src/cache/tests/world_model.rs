//! Model test of the whole path: world → lists and watches with gaps → fifo → store → listeners → consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::world::{Consumer, NAMES, Reader, World};
use crate::testing::{Informer, properties};
use crate::{
    InitialObjects, ListenerOptions, ListenerQueue, ObjectFilter, Outbox, ProcessError, Progress, Snapshot, Store,
};
use informer_hub_types::{Change, Delta, DeltaKind, InformerHealth};

/// Delivery of a batch.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    Once,
    /// Delivered, but the processor dies before it records that; the batch is delivered again.
    Twice,
    /// Not delivered yet.
    Deferred,
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, bool, Vec<usize>),
    Delete(usize),
    Replace(usize),
    Follow(usize),
    Repeat(usize),
    List,
    ListWithout(usize),
    BreakOff(usize),
    Stream,
    EndStream,
    Lose,
    Push(usize),
    Resync,
    Process(usize, Delivery),
    Take(usize, usize),
    Join(bool, bool),
    Recover,
    Reopen,
}

fn arb_step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        8 => (name.clone(), any::<bool>(), prop::collection::vec(0..3_usize, 0..3)).prop_map(|(n, l, i)| Step::Put(n, l, i)),
        3 => name.clone().prop_map(Step::Delete),
        2 => name.clone().prop_map(Step::Replace),
        6 => (1..6_usize).prop_map(Step::Follow),
        1 => (1..8_usize).prop_map(Step::Repeat),
        2 => Just(Step::List),
        1 => name.prop_map(Step::ListWithout),
        1 => (0..5_usize).prop_map(Step::BreakOff),
        1 => Just(Step::Stream),
        1 => Just(Step::EndStream),
        1 => Just(Step::Lose),
        8 => (1..8_usize).prop_map(Step::Push),
        2 => Just(Step::Resync),
        6 => (1..5_usize, prop_oneof![4 => Just(Delivery::Once), 1 => Just(Delivery::Twice), 1 => Just(Delivery::Deferred)])
            .prop_map(|(max, delivery)| Step::Process(max, delivery)),
        6 => (0..4_usize, 0..6_usize).prop_map(|(l, n)| Step::Take(l, n)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(f, s)| Step::Join(f, s)),
        1 => Just(Step::Recover),
        1 => Just(Step::Reopen),
    ]
}

struct Listener {
    queue: ListenerQueue,
    consumer: Consumer,
    filtered: bool,
    resync: bool,
}

struct Hub {
    world: World,
    reader: Reader,
    informer: Informer,
    listeners: Vec<Listener>,
    last: Option<Outbox>,
    merge_above: usize,
}

impl Hub {
    fn new(limit: usize, merge_above: usize) -> Self {
        let (world, reader, informer) = (World::default(), Reader::new(), Informer::with_limit(limit));
        let mut hub = Self { world, reader, informer, listeners: Vec::new(), last: None, merge_above };
        hub.join(false, false);
        hub
    }

    fn join(&mut self, filtered: bool, skips: bool) {
        let labels = filtered.then(|| "app=web".parse().unwrap());
        let initial = if skips { InitialObjects::Skip } else { InitialObjects::Replay };
        let options = ListenerOptions { filter: ObjectFilter { namespace: None, labels }, initial };
        let queue = ListenerQueue::new(options, &self.informer.partition(), self.merge_above);
        let consumer = Consumer { skips, ..Consumer::default() };
        self.listeners.push(Listener { queue, consumer, filtered, resync: self.listeners.len().is_multiple_of(2) });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(name, web, nodes) => {
                let nodes = nodes.into_iter().map(|node| ["x", "y", "z"][node]).collect();
                self.world.put(NAMES[name], if web { "web" } else { "db" }, nodes);
            }
            Step::Delete(name) => self.world.delete(NAMES[name]),
            Step::Replace(name) => {
                self.world.delete(NAMES[name]);
                self.world.put(NAMES[name], "web", vec!["x"]);
            }
            Step::Follow(count) => self.reader.follow(&self.world, count),
            Step::Repeat(count) => self.reader.repeat(&self.world, count),
            Step::List => self.reader.list(&self.world, None),
            Step::ListWithout(name) => self.reader.list(&self.world, Some(NAMES[name])),
            Step::BreakOff(after) => self.reader.break_off(&self.world, after),
            Step::Stream => self.reader.begin_stream(&self.world),
            Step::EndStream => self.reader.end_stream(&self.world),
            Step::Lose => self.reader.lose(),
            Step::Push(count) => self.push(count),
            Step::Resync => self.resync(),
            Step::Process(max, delivery) => self.process(max, delivery),
            Step::Take(listener, max) => self.take(listener, max),
            Step::Join(filtered, skips) if self.listeners.len() < 4 => self.join(filtered, skips),
            Step::Join(..) => {}
            Step::Recover => {
                let store = self.informer.controller.store_mut();
                *store = Store::recover(Arc::clone(store.published()));
                let outbox = store.outbox(self.informer.id);
                offer(&mut self.listeners, outbox.as_ref());
            }
            Step::Reopen => {
                let origin = Arc::clone(self.informer.partition().origin());
                let id = self.informer.controller.store_mut().open(origin, InformerHealth::new(), Vec::new());
                assert_eq!(id, self.informer.id);
            }
        }
    }

    fn push(&mut self, count: usize) {
        let count = count.min(self.reader.output.len());
        for change in self.reader.output.drain(..count) {
            self.informer.controller.push(change);
        }
    }

    fn resync(&mut self) {
        for object in self.informer.partition().iter() {
            let repeated = Delta { kind: DeltaKind::Sync, object: Arc::clone(object) };
            self.informer.controller.push(Change::Delta(repeated));
        }
    }

    fn process(&mut self, max: usize, delivery: Delivery) {
        // Repeats the previous batch, as after a processor died between delivering and recording.
        let last = self.last.take();
        offer(&mut self.listeners, last.as_ref());
        let Self { informer, listeners, last, .. } = self;
        let progress = informer.controller.process_next(max, &mut |outbox| {
            if !matches!(delivery, Delivery::Deferred) {
                offer(listeners, Some(outbox));
            }
            *last = Some(outbox.clone());
            if matches!(delivery, Delivery::Once) { Ok(()) } else { Err(ProcessError::Requeue) }
        });
        assert!(
            matches!(progress, Progress::Processed | Progress::Requeued | Progress::Idle | Progress::Closed),
            "{progress:?}"
        );
        self.informer.controller.fifo().check();
        check_index(&self.informer.controller.store().published().load());
    }

    fn take(&mut self, listener: usize, max: usize) {
        let at = listener % self.listeners.len();
        let listener = &mut self.listeners[at];
        let taken = listener.queue.take(max);
        assert!(taken.len() <= max);
        listener.consumer.consume_all(&taken);
        let bound = self.merge_above + 2 * NAMES.len() + 1;
        assert!(listener.queue.len() <= bound, "{} wait", listener.queue.len());
    }

    fn finish(mut self) {
        self.reader.catch_up(&self.world);
        self.push(usize::MAX);
        self.informer.controller.close();
        while !self.informer.controller.fifo().is_drained() {
            self.process(3, Delivery::Once);
        }
        self.process(3, Delivery::Once);
        let fifo = self.informer.controller.fifo();
        assert_eq!((fifo.bytes(), fifo.len(), fifo.is_full(), fifo.refused()), (0, 0, false, 0));
        assert!(self.informer.controller.has_synced());
        let ended = self.informer.controller.process_all(&mut |_| Ok(()));
        assert!(matches!(ended, Progress::Closed), "{ended:?}");
        let expected = |filtered: bool| -> BTreeMap<String, (String, u64)> {
            let objects = self.world.objects.iter().filter(|(_, state)| !filtered || state.app == "web");
            objects.map(|(name, state)| ((*name).to_owned(), (state.uid.clone(), state.version))).collect()
        };
        let partition = self.informer.partition();
        let stored: BTreeMap<_, _> = partition
            .iter()
            .map(|object| {
                let version = object.resource_version().as_number().unwrap();
                (object.key().name().to_owned(), (object.uid().to_string(), version))
            })
            .collect();
        assert_eq!(stored, expected(false), "the store equals the world");
        for listener in &mut self.listeners {
            while !listener.queue.is_empty() {
                listener.consumer.consume_all(&listener.queue.take(2));
            }
            assert_eq!(listener.consumer.synced, 1);
            let expected = expected(listener.filtered);
            if listener.consumer.skips {
                assert!(listener.consumer.known.iter().all(|(name, state)| expected.get(name) == Some(state)));
            } else {
                assert_eq!(listener.consumer.known, expected, "a consumer knows the contents of the store");
            }
        }
    }
}

fn offer(listeners: &mut [Listener], outbox: Option<&Outbox>) {
    let Some(outbox) = outbox else { return };
    for listener in listeners {
        listener.queue.offer(outbox.number, &outbox.applied, listener.resync);
    }
}

/// Asserts that the index equals a scan over all objects.
fn check_index(snapshot: &Snapshot) {
    let mut naive: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for (id, partition) in snapshot.partitions() {
        for object in partition.iter() {
            for entry in object.index_values() {
                naive.entry(entry.value.to_string()).or_default().insert((id, object.key().clone()));
            }
        }
    }
    let found: BTreeMap<String, BTreeSet<_>> = snapshot
        .index_values("by-node")
        .map(|(value, count)| {
            let at: BTreeSet<_> =
                snapshot.by_index("by-node", value).map(|at| (at.partition, at.key.clone())).collect();
            assert_eq!(at.len(), count);
            (value.to_string(), at)
        })
        .collect();
    assert_eq!(found, naive);
}

proptest! {
    #![proptest_config(properties(1024))]

    #[test]
    fn every_consumer_reaches_the_state_of_the_world(
        limit in prop_oneof![Just(0_usize), 200..4000_usize, Just(usize::MAX)],
        merge_above in prop_oneof![Just(0_usize), 1..6_usize, Just(1000)],
        steps in prop::collection::vec(arb_step(), 1..120),
    ) {
        let mut hub = Hub::new(limit, merge_above);
        for step in steps {
            hub.step(step);
        }
        hub.finish();
    }
}

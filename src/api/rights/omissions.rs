//! Record of the places that answers to readers omitted, because a cluster had denied them or had not answered. A place
//! is a namespace of a cluster.
//!
//! A client that lists and then watches lacks the objects of an omitted place, even if its reader gets the right later:
//! the watch sends only later changes. If this record says so, the watch is refused, and the client lists again.
//!
//! A client must not be refused twice in a row because of the same place. If its new list shows the place, the list's
//! version is recorded, and a watch from that version is not refused. If its new list omits the place again, for
//! example because reviews fail under load, no watch is refused because of the place for a while.
//!
//! The record is bounded. No watch is refused because of a place whose record was dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;

use informer_hub_access::{Reader, ReaderOrigin};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterName, Gvr};

/// Maximum number of recorded places of all readers. Beyond it, the records that were unused for longest are dropped.
const MAX_PLACES: usize = 100_000;

/// Time during which no watch is refused because of a place after a futile refusal: the client's new list omitted the
/// place again.
const PAUSE: Duration = Duration::from_secs(60);

/// Namespaces by cluster. The empty namespace stands for objects without a namespace.
pub(in crate::api) type Namespaces = BTreeMap<ClusterName, BTreeSet<SmolStr>>;

/// Key of a [`Record`]: the reader, the resource, and the cluster in the request's URL. Groups and other attributes of
/// a user are left out: they may change when the reader gets a right.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::api) struct OmissionKey {
    reader: SmolStr,
    origin: Discriminant<ReaderOrigin>,
    /// Cluster of the reader if it is a service account; otherwise `None`.
    home: Option<ClusterName>,
    resource: Gvr,
    /// Cluster in the URL, as in `/clusters/<name>`; `None` if the URL addresses several clusters.
    root: Option<ClusterName>,
}

impl OmissionKey {
    pub(in crate::api) fn new(reader: &Reader, resource: &Gvr, root: Option<&ClusterName>) -> Self {
        let home = match reader.origin() {
            ReaderOrigin::ServiceAccount { cluster } => Some(cluster.clone()),
            _ => None,
        };
        let origin = discriminant(reader.origin());
        Self { reader: reader.name().clone(), origin, home, resource: resource.clone(), root: root.cloned() }
    }
}

/// Progress of a client: it has received all changes up to this point. In one [`Record`], later points are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::api) struct Point {
    /// Position in the window of recent changes.
    pub(in crate::api) position: u64,
    /// Resource version that the client has.
    pub(in crate::api) version: u64,
}

/// Answer that gives a client the present objects: a page of a list, or the initial events of a watch.
#[derive(Clone, Debug)]
pub(in crate::api) struct StateAnswer {
    pub(in crate::api) at: Point,
    /// Whether the answer is the first page of a list, or the initial events of a watch. A later page does not prove
    /// that a place is shown, because an earlier page may have omitted its objects.
    pub(in crate::api) is_first: bool,
    /// Places (namespaces by cluster) with objects that the answer omits.
    pub(in crate::api) omitted: Namespaces,
    /// Oldest position in the window of recent changes from which a watch can resume. An omission is dropped if it
    /// affects only clients at older positions.
    pub(in crate::api) oldest: u64,
}

/// Record of the places (cluster and namespace) that answers to readers omitted.
#[derive(Debug, Default)]
pub(in crate::api) struct Omissions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    records: HashMap<OmissionKey, Record>,
    /// Keys of `records` by last use.
    used: BTreeMap<u64, OmissionKey>,
    /// Number of places in all records.
    places: usize,
    /// Number of accesses to all records so far, which orders them in `used`.
    uses: u64,
}

#[derive(Debug, Default)]
struct Record {
    /// Value of `uses` when the record was created. Distinguishes it from an earlier, dropped record with the same key.
    id: u64,
    used: u64,
    places: BTreeMap<ClusterName, BTreeMap<SmolStr, Omission>>,
}

/// Omission of one place (cluster and namespace) in the answers to one reader.
#[derive(Clone, Copy, Debug, Default)]
struct Omission {
    /// Point up to which clients may lack objects of the place. It is the greatest point of an answer that omitted the
    /// place, or of a client whose watch ended while it lacked objects of the place. Clients of running watches are
    /// counted in `watches` instead.
    until: Point,
    /// Version of the last list (or initial events of a watch) that contained the place. A client at this version lacks
    /// no objects of the place.
    shown: Option<u64>,
    /// Number of running watches whose clients may lack objects of the place.
    watches: u32,
    /// Time at which a watch was last refused because of the place; `None` if a list has contained the place since
    /// then.
    refused: Option<Instant>,
    /// Whether a list after the last refusal has omitted the place again, so that the refusal achieved nothing.
    is_futile: bool,
}

impl Omission {
    /// Returns whether a client at the point `from` may lack objects of the place.
    fn covers(&self, from: Point) -> bool {
        self.shown != Some(from.version) && (self.watches > 0 || from <= self.until)
    }

    fn show(&mut self, at: Point) {
        (self.shown, self.refused, self.is_futile) = (Some(at.version), None, false);
    }

    fn omit(&mut self, at: Point) {
        self.until = self.until.max(at);
        self.shown = self.shown.filter(|shown| *shown != at.version);
        self.is_futile = self.refused.is_some();
    }

    /// Decides whether a watch is refused because of the place, and records the time of the refusal. Returns false
    /// during [`PAUSE`] after a futile refusal.
    fn refuse(&mut self, now: Instant) -> bool {
        if self.is_futile && self.refused.is_some_and(|refused| now < refused + PAUSE) {
            return false;
        }
        (self.refused, self.is_futile) = (Some(now), false);
        true
    }
}

impl Omissions {
    /// Records the places (namespaces of clusters) that an answer with the present objects omitted, and those that it
    /// showed.
    ///
    /// An answer showed a place if the place is not in `answer.omitted`, and if the request selected all objects of the
    /// place. `is_covered` returns the latter.
    pub(in crate::api) fn answered(
        &self,
        key: &OmissionKey,
        answer: &StateAnswer,
        is_covered: impl Fn(&ClusterName, &str) -> bool,
    ) {
        let mut state = self.0.lock();
        if answer.omitted.is_empty() && !state.records.contains_key(key) {
            return;
        }
        let is_omitted = |cluster: &ClusterName, namespace: &SmolStr| {
            answer.omitted.get(cluster).is_some_and(|omitted| omitted.contains(namespace))
        };
        state.update(key, |record| {
            for (cluster, places) in &mut record.places {
                for (namespace, omission) in places.iter_mut() {
                    if answer.is_first && !is_omitted(cluster, namespace) && is_covered(cluster, namespace) {
                        omission.show(answer.at);
                    }
                }
            }
            for (cluster, namespaces) in &answer.omitted {
                let places = record.places.entry(cluster.clone()).or_default();
                for namespace in namespaces {
                    places.entry(namespace.clone()).or_default().omit(answer.at);
                }
            }
            record.places.retain(|_, places| {
                places.retain(|_, it| it.watches > 0 || it.until.position >= answer.oldest);
                !places.is_empty()
            });
        });
    }

    /// Returns the places whose objects a client at the point `from` may lack. Only places that `is_wanted` accepts are
    /// returned.
    pub(in crate::api) fn covering(
        &self,
        key: &OmissionKey,
        from: Point,
        is_wanted: impl Fn(&ClusterName, &str) -> bool,
    ) -> Namespaces {
        let mut state = self.0.lock();
        let Some(record) = state.records.get(key) else { return Namespaces::new() };
        let mut found = Namespaces::new();
        for (cluster, places) in &record.places {
            let covering = places.iter().filter(|(namespace, it)| it.covers(from) && is_wanted(cluster, namespace));
            let namespaces: BTreeSet<_> = covering.map(|(namespace, _)| namespace.clone()).collect();
            if !namespaces.is_empty() {
                found.insert(cluster.clone(), namespaces);
            }
        }
        state.update(key, |_| ());
        found
    }

    /// Returns whether to refuse a watch whose client lacks objects of `places`, which a new list would contain.
    /// Records the time of the refusal.
    pub(in crate::api) fn refuses(&self, key: &OmissionKey, places: &Namespaces) -> bool {
        let (mut state, now) = (self.0.lock(), clock::now());
        let Some(record) = state.records.get_mut(key) else { return false };
        let mut is_refused = false;
        for (cluster, namespaces) in places {
            let Some(known) = record.places.get_mut(cluster) else { continue };
            for namespace in namespaces {
                is_refused |= known.get_mut(namespace).is_some_and(|omission| omission.refuse(now));
            }
        }
        is_refused
    }

    /// Counts a watch that begins at the point `from` and whose client may lack objects of `places`. It counts until
    /// the returned value is dropped.
    pub(in crate::api) fn follow(
        self: &Arc<Self>,
        key: OmissionKey,
        from: Point,
        places: Namespaces,
    ) -> WatchOmissions {
        let mut watch =
            WatchOmissions { omissions: Arc::clone(self), key, record: None, places: Namespaces::new(), reached: from };
        watch.add(places);
        watch
    }
}

impl State {
    /// Changes a record, or creates it, and marks it as used. Beyond [`MAX_PLACES`] places, drops the records that were
    /// unused for longest.
    fn update<T>(&mut self, key: &OmissionKey, change: impl FnOnce(&mut Record) -> T) -> T {
        self.uses += 1;
        let uses = self.uses;
        let record = self.records.entry(key.clone()).or_insert_with(|| Record { id: uses, ..Record::default() });
        self.used.remove(&record.used);
        record.used = uses;
        let before = record.len();
        let result = change(record);
        let after = record.len();
        self.places = self.places + after - before;
        if after == 0 {
            self.records.remove(key);
        } else {
            self.used.insert(uses, key.clone());
        }
        while self.places > MAX_PLACES
            && let Some((_, oldest)) = self.used.pop_first()
        {
            let dropped = self.records.remove(&oldest);
            self.places -= dropped.map_or(0, |record| record.len());
        }
        result
    }
}

impl Record {
    fn len(&self) -> usize {
        self.places.values().map(BTreeMap::len).sum()
    }
}

/// Places of which the client of a running watch may lack objects.
#[derive(Debug)]
pub(in crate::api) struct WatchOmissions {
    omissions: Arc<Omissions>,
    key: OmissionKey,
    /// Identifier ([`Record::id`]) of the record in which this watch is counted; `None` before it has a place.
    record: Option<u64>,
    places: Namespaces,
    reached: Point,
}

impl WatchOmissions {
    /// Returns whether the client may lack objects of a place.
    pub(in crate::api) fn contains(&self, cluster: &ClusterName, namespace: &str) -> bool {
        self.places.get(cluster).is_some_and(|namespaces| namespaces.contains(namespace))
    }

    /// Returns whether to end the running watch, because its client lacks objects of `places`, which a new list would
    /// contain. Records the time of this refusal.
    pub(in crate::api) fn refuses(&self, places: &Namespaces) -> bool {
        !places.is_empty() && self.omissions.refuses(&self.key, places)
    }

    /// Adds a place of which the watch leaves out a change.
    pub(in crate::api) fn omit(&mut self, cluster: &ClusterName, namespace: &str) {
        if !self.contains(cluster, namespace) {
            self.add([(cluster.clone(), BTreeSet::from([namespace.into()]))].into());
        }
    }

    /// Sets the point that the client has reached.
    pub(in crate::api) fn reach(&mut self, point: Point) {
        self.reached = self.reached.max(point);
    }

    fn add(&mut self, places: Namespaces) {
        if places.is_empty() {
            return;
        }
        let mut state = self.omissions.0.lock();
        let is_dropped = |id| state.records.get(&self.key).is_none_or(|record| record.id != id);
        if !self.record.is_some_and(is_dropped) {
            let id = state.update(&self.key, |record| {
                for (cluster, namespaces) in &places {
                    let known = record.places.entry(cluster.clone()).or_default();
                    for namespace in namespaces {
                        known.entry(namespace.clone()).or_default().watches += 1;
                    }
                }
                record.id
            });
            self.record = Some(id);
        }
        for (cluster, namespaces) in places {
            self.places.entry(cluster).or_default().extend(namespaces);
        }
    }
}

impl Drop for WatchOmissions {
    fn drop(&mut self) {
        let mut state = self.omissions.0.lock();
        let Some(record) = state.records.get_mut(&self.key).filter(|record| Some(record.id) == self.record) else {
            return;
        };
        for (cluster, namespaces) in &self.places {
            let Some(known) = record.places.get_mut(cluster) else { continue };
            for namespace in namespaces {
                if let Some(omission) = known.get_mut(namespace) {
                    omission.watches = omission.watches.saturating_sub(1);
                    omission.until = omission.until.max(self.reached);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_access::Grants;

    fn key(reader: &str) -> OmissionKey {
        let reader = Reader::named(reader, ReaderOrigin::Oidc, Grants::default());
        OmissionKey::new(&reader, &Gvr::new("", "v1", "pods"), None)
    }

    fn at(position: u64) -> Point {
        Point { position, version: position }
    }

    fn places(count: usize) -> Namespaces {
        let namespaces = (0..count).map(|number| format!("n{number}").into()).collect();
        [(ClusterName::new("a").unwrap(), namespaces)].into()
    }

    fn answer(position: u64, omitted: Namespaces) -> StateAnswer {
        StateAnswer { at: at(position), is_first: true, omitted, oldest: 0 }
    }

    fn covering(omissions: &Omissions, reader: &str, position: u64) -> usize {
        let found = omissions.covering(&key(reader), at(position), |_, _| true);
        found.values().map(BTreeSet::len).sum()
    }

    #[test]
    fn state_that_shows_a_place_admits_its_own_version_and_later_ones() {
        let omissions = Omissions::default();
        omissions.answered(&key("ann"), &answer(5, places(2)), |_, _| true);
        assert_eq!([4, 5, 6].map(|from| covering(&omissions, "ann", from)), [2, 2, 0]);
        assert_eq!(covering(&omissions, "bob", 5), 0);
        omissions.answered(&key("ann"), &answer(5, places(1)), |_, _| true);
        assert_eq!([4, 5, 6].map(|from| covering(&omissions, "ann", from)), [2, 1, 0]);
        let later_page = StateAnswer { is_first: false, ..answer(5, places(0)) };
        omissions.answered(&key("ann"), &later_page, |_, _| true);
        assert_eq!(covering(&omissions, "ann", 5), 1);
        omissions.answered(&key("ann"), &answer(5, places(0)), |_, _| false);
        assert_eq!(covering(&omissions, "ann", 5), 1, "an answer about other places");
        omissions.answered(&key("ann"), &answer(7, places(2)), |_, _| true);
        assert_eq!([5, 7, 8].map(|from| covering(&omissions, "ann", from)), [1, 2, 0]);
    }

    #[test]
    fn watch_extends_the_omission_to_the_point_that_it_reaches() {
        let omissions = Arc::new(Omissions::default());
        let mut watch = omissions.follow(key("ann"), at(5), places(1));
        watch.omit(&ClusterName::new("a").unwrap(), "n1");
        assert_eq!(covering(&omissions, "ann", 100), 2, "while the watch runs");
        omissions.answered(&key("ann"), &answer(7, places(0)), |_, _| true);
        assert_eq!([7, 8].map(|from| covering(&omissions, "ann", from)), [0, 2]);
        watch.reach(at(9));
        drop(watch);
        assert_eq!([7, 9, 10].map(|from| covering(&omissions, "ann", from)), [0, 2, 0]);
    }

    #[test]
    fn omissions_before_the_window_are_dropped() {
        let omissions = Arc::new(Omissions::default());
        let watch = omissions.follow(key("ann"), at(5), places(1));
        omissions.answered(&key("ann"), &StateAnswer { oldest: 8, ..answer(9, Namespaces::new()) }, |_, _| true);
        assert_eq!(covering(&omissions, "ann", 8), 1, "the watch runs");
        drop(watch);
        omissions.answered(&key("ann"), &StateAnswer { oldest: 8, ..answer(9, Namespaces::new()) }, |_, _| true);
        let state = omissions.0.lock();
        assert_eq!((state.records.len(), state.used.len(), state.places), (0, 0, 0));
    }

    #[test]
    fn records_that_are_unused_for_longest_are_dropped_beyond_the_bound() {
        let omissions = Arc::new(Omissions::default());
        let watch = omissions.follow(key("first"), at(5), places(MAX_PLACES / 2));
        omissions.answered(&key("second"), &answer(5, places(MAX_PLACES / 2)), |_, _| true);
        assert_eq!(covering(&omissions, "first", 5), MAX_PLACES / 2);
        omissions.answered(&key("third"), &answer(5, places(1)), |_, _| true);
        let found = ["first", "second", "third"].map(|reader| covering(&omissions, reader, 5));
        assert_eq!(found, [MAX_PLACES / 2, 0, 1]);
        omissions.answered(&key("third"), &answer(5, places(MAX_PLACES)), |_, _| true);
        assert_eq!(["first", "third"].map(|reader| covering(&omissions, reader, 5)), [0, MAX_PLACES]);
        // The watch belongs to the dropped record, not to a new one of the same reader.
        omissions.answered(&key("first"), &answer(6, places(1)), |_, _| true);
        drop(watch);
        assert_eq!([6, 7].map(|from| covering(&omissions, "first", from)), [1, 0]);
        assert_eq!(omissions.0.lock().places, 1);
        omissions.answered(&key("large"), &answer(5, places(MAX_PLACES + 1)), |_, _| true);
        let state = omissions.0.lock();
        assert_eq!((state.records.len(), state.used.len(), state.places), (0, 0, 0));
    }
}

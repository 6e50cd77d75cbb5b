//! Roster as a collector sees it: which collectors are alive, by its own clock. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use informer_hub_fleet::roster::{Member, MoveInProgress, RosterEntry, RosterItem};
use informer_hub_types::Shard;
use informer_hub_types::clock::Instant;

use crate::collect::answer_clock::AnswerClock;

/// A collector's entry is removed from the roster after this many times `RosterView::patience` without a renewal.
const FORGOTTEN: u32 = 10;

/// Roster as a collector sees it; see the [module documentation](self).
#[derive(Debug)]
pub(super) struct RosterView {
    clock: AnswerClock,
    /// Time without a renewal after which a collector counts as dead.
    patience: Duration,
    /// Revision of each entry, and the time on `clock` when this process first saw that revision.
    seen: BTreeMap<String, (u64, Instant)>,
    pub(super) live: BTreeMap<String, Member>,
    pub(super) drains: BTreeSet<String>,
    pub(super) pins: BTreeMap<Shard, String>,
    /// Token of moves: another move may begin only if no collector holds it.
    pub(super) token: Token,
    /// When the set of live collectors, or of collectors that an operator drains, last changed.
    pub(super) changed: Option<Instant>,
}

/// Token of moves: only the collector that holds it may move a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) revision: Option<u64>,
    /// Move in progress; `None` also if its collector has not renewed the token in time.
    pub(super) held: Option<MoveInProgress>,
}

impl RosterView {
    /// Creates the view of an empty roster. `patience` is the time without a renewal after which a collector counts as
    /// dead.
    pub(super) fn new(patience: Duration) -> Self {
        let (seen, live, drains, pins, token, changed) = Default::default();
        Self { clock: AnswerClock::new(patience / 2), patience, seen, live, drains, pins, token, changed }
    }

    /// Updates the view from all entries of the roster. Returns obsolete items, which the caller removes.
    pub(super) fn observe(&mut self, entries: Vec<RosterEntry>, now: Instant) -> Vec<RosterItem> {
        let (answered, patience) = (self.clock.answered(now), self.patience);
        let keys: BTreeSet<_> = entries.iter().map(|entry| entry.item.key()).collect();
        self.seen.retain(|key, _| keys.contains(key));
        let (mut live, mut present) = (BTreeMap::new(), BTreeSet::new());
        let (mut obsolete, mut drains, mut pins, mut token) =
            (Vec::new(), BTreeSet::new(), BTreeMap::new(), Token::default());
        for RosterEntry { item, revision, .. } in entries {
            let seen = self.seen.entry(item.key()).or_insert((revision, answered));
            if seen.0 != revision {
                *seen = (revision, answered);
            }
            let age = answered.duration_since(seen.1);
            match item {
                RosterItem::Member(member) if age >= patience * FORGOTTEN => obsolete.push(RosterItem::Member(member)),
                RosterItem::Member(member) => {
                    present.insert(member.name.clone());
                    if age < patience {
                        live.insert(member.name.clone(), member);
                    }
                }
                RosterItem::Drain(collector) => _ = drains.insert(collector),
                RosterItem::Pin { shard, collector } => _ = pins.insert(shard, collector),
                RosterItem::Move(held) => {
                    token = Token { revision: Some(revision), held: held.filter(|_| age < patience) }
                }
                // Deliverers (processes that deliver to sinks) remove the obsolete ones among themselves.
                RosterItem::Deliverer(_) => {}
            }
        }
        // Drains and pins of a collector are obsolete once it is gone.
        obsolete.extend(drains.iter().filter(|name| !present.contains(*name)).cloned().map(RosterItem::Drain));
        let gone = pins.iter().filter(|(_, name)| !present.contains(*name));
        obsolete.extend(gone.map(|(shard, name)| RosterItem::Pin { shard: shard.clone(), collector: name.clone() }));
        let is_same = self.live == live && self.drains == drains;
        if !is_same || self.changed.is_none() {
            self.changed = Some(now);
        }
        (self.live, self.drains, self.pins, self.token) = (live, drains, pins, token);
        obsolete
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::clock;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(6);

    fn entry(item: RosterItem, revision: u64) -> RosterEntry {
        RosterEntry { item, revision, written_millis: 0 }
    }

    fn member(name: &str, revision: u64) -> RosterEntry {
        entry(RosterItem::Member(Member { name: name.to_owned(), ..Member::default() }), revision)
    }

    #[test]
    fn collector_that_renews_nothing_is_dead_and_then_forgotten_with_its_settings() {
        let (mut view, began) = (RosterView::new(PATIENCE), clock::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let pin = RosterItem::Pin { shard: "c".parse().unwrap(), collector: "b".to_owned() };
        let settings = || [entry(RosterItem::Drain("b".to_owned()), 3), entry(pin.clone(), 4)];
        let entries =
            |of_a, of_b| [member("a", of_a), member("b", of_b)].into_iter().chain(settings()).collect::<Vec<_>>();
        for second in 0..6 {
            assert_eq!(view.observe(entries(10 + second, 2), at(second)), []);
            assert_eq!((view.live.len(), view.changed), (2, Some(at(0))));
        }
        for second in 6..60 {
            assert_eq!(view.observe(entries(10 + second, 2), at(second)), []);
            assert_eq!(view.live.keys().collect::<Vec<_>>(), ["a"]);
            assert_eq!(view.changed, Some(at(6)));
        }
        let obsolete = view.observe(entries(80, 2), at(60));
        assert!(matches!(&obsolete[..], [RosterItem::Member(_), RosterItem::Drain(_), RosterItem::Pin { .. }]));
        view.observe(vec![member("a", 81), member("b", 90)], at(61));
        assert_eq!(view.live.len(), 2, "it is back");
    }

    #[test]
    fn collectors_do_not_die_while_the_services_do_not_answer() {
        let (mut view, began) = (RosterView::new(PATIENCE), clock::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let drain = || entry(RosterItem::Drain("b".to_owned()), 3);
        for second in [0, 100, 101] {
            assert_eq!(view.observe(vec![member("a", 1), member("b", 2), drain()], at(second)), []);
            assert_eq!((view.live.len(), view.drains.len()), (2, 1), "{second}");
        }
        for second in 102..110 {
            view.observe(vec![member("a", second), member("b", 2), drain()], at(second));
        }
        assert_eq!(view.live.len(), 1, "it has renewed nothing since");
    }

    #[test]
    fn token_of_a_dead_collector_is_free() {
        let (mut view, began) = (RosterView::new(PATIENCE), clock::now());
        let moving = MoveInProgress { shard: "c".parse().unwrap(), from: "a".to_owned(), to: "b".to_owned() };
        assert_eq!(view.token, Token::default());
        let held = || vec![entry(RosterItem::Move(Some(moving.clone())), 4)];
        view.observe(held(), began);
        assert_eq!(view.token, Token { revision: Some(4), held: Some(moving.clone()) });
        view.observe(held(), began + PATIENCE / 2);
        view.observe(held(), began + PATIENCE);
        assert_eq!(view.token, Token { revision: Some(4), held: None });
    }
}

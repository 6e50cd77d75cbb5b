//! Choice of the next shard to move between collectors, from the roster and the owners. Pure: no I/O, no clock.

use std::collections::{BTreeMap, HashMap};

use informer_hub_fleet::assign::{Balance, Collector, Move, MoveReason, ShardLoad, plan};
use informer_hub_types::{ClusterLabels, ClusterName, Shard};

use super::view::RosterView;
use crate::collect::ShardOwner;

/// Moves of shards between collectors that lead to the planned assignment.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Shards without an owner, and the collector that should claim each.
    pub(super) orphans: BTreeMap<Shard, String>,
    /// Moves between live collectors, the most urgent first.
    pub(super) moves: Vec<Move>,
}

impl Moves {
    /// Returns the moves away from a collector, the most urgent first.
    pub(super) fn from<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Move> {
        self.moves.iter().filter(move |found| found.from.as_deref() == Some(name))
    }
}

/// Computes which shards of `owners` must move between collectors. `own` is the fingerprint of the shards for which
/// this collector contends; collectors with another fingerprint are left out. `labels` has the labels of each cluster.
pub(super) fn moves(
    view: &RosterView,
    own: u64,
    owners: &BTreeMap<Shard, ShardOwner>,
    labels: &BTreeMap<ClusterName, ClusterLabels>,
) -> Moves {
    let collectors: Vec<_> = view
        .live
        .values()
        .filter(|member| member.contends_for == own)
        .map(|member| Collector {
            name: member.name.clone(),
            capacity: 1,
            zone: Some(member.zone.clone()).filter(|zone| !zone.is_empty()),
            draining: view.drains.contains(&member.name),
        })
        .collect();
    let shards: Vec<_> = owners
        .iter()
        .map(|(shard, owner)| ShardLoad {
            shard: shard.clone(),
            weight: owner.weight,
            zone: labels.get(&shard.cluster).and_then(|labels| preferred_zone(view, labels)),
            pinned: view.pins.get(shard).cloned(),
        })
        .collect();
    let current: HashMap<_, _> = owners.iter().map(|(shard, owner)| (shard.clone(), owner.collector.clone())).collect();
    let (orphans, moves): (Vec<_>, Vec<_>) = plan(&shards, &collectors, &current, Balance::default())
        .into_iter()
        .partition(|found| found.reason == MoveReason::Orphaned);
    Moves { orphans: orphans.into_iter().map(|found| (found.shard, found.to)).collect(), moves }
}

/// Returns the zone whose collectors prefer clusters with these labels; if there are several, the first by name.
/// `None` if there is none.
fn preferred_zone(view: &RosterView, labels: &ClusterLabels) -> Option<String> {
    let prefers = |prefer: &BTreeMap<String, String>| {
        !prefer.is_empty() && prefer.iter().all(|(label, value)| labels.get(label) == Some(value))
    };
    let zones = view.live.values().filter(|member| !member.zone.is_empty() && prefers(&member.prefer));
    zones.map(|member| member.zone.clone()).min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use informer_hub_fleet::roster::{Member, RosterEntry, RosterItem};
    use informer_hub_types::clock;

    use super::*;

    fn view(members: &[(&str, &str, &str)], settings: Vec<RosterItem>) -> RosterView {
        let member = |(name, zone, region): &(&str, &str, &str)| {
            let prefer =
                [("region".to_owned(), (*region).to_owned())].into_iter().filter(|(_, region)| !region.is_empty());
            RosterItem::Member(Member {
                name: (*name).to_owned(),
                zone: (*zone).to_owned(),
                prefer: prefer.collect(),
                contends_for: u64::from(*name != "agent"),
            })
        };
        let items = members.iter().map(member).chain(settings);
        let entries = items.map(|item| RosterEntry { item, revision: 1, written_millis: 0 });
        let mut view = RosterView::new(Duration::from_secs(6));
        view.observe(entries.collect(), clock::now());
        view
    }

    fn shard(name: &str) -> Shard {
        name.parse().unwrap()
    }

    fn owners(owned: &[(&str, &str, u64)]) -> BTreeMap<Shard, ShardOwner> {
        let entry = |(name, collector, weight): &(&str, &str, u64)| {
            let collector = (*collector).to_owned();
            (shard(name), ShardOwner { collector, epoch: 1, is_own: false, weight: *weight })
        };
        owned.iter().map(entry).collect()
    }

    fn summary(found: &Moves) -> Vec<(&str, &str, MoveReason)> {
        found.moves.iter().map(|found| (found.shard.cluster.as_str(), found.to.as_str(), found.reason)).collect()
    }

    #[test]
    fn weight_decides_what_a_new_collector_gets() {
        let owned = owners(&[("heavy", "a", 1000), ("l1", "a", 100), ("l2", "a", 100), ("l3", "b", 0)]);
        let found =
            moves(&view(&[("a", "", ""), ("agent", "", ""), ("b", "", "")], Vec::new()), 1, &owned, &BTreeMap::new());
        let expected = [("l1", "b", MoveReason::Balance), ("l2", "b", MoveReason::Balance)];
        assert_eq!(summary(&found), expected, "the heavy cluster stays");
        assert_eq!((found.from("a").count(), found.from("b").count()), (2, 0));
    }

    #[test]
    fn clusters_prefer_the_zone_for_their_labels() {
        let region = |region: &str| ClusterLabels::from([("region".to_owned(), region.to_owned())]);
        let labels = BTreeMap::from([(shard("x").cluster, region("eu")), (shard("y").cluster, region("us"))]);
        let view = view(&[("a", "west", "eu"), ("b", "east", "us")], Vec::new());
        let free = owners(&[("x", "", 10), ("y", "gone", 10)]);
        let found = moves(&view, 1, &free, &labels);
        let expected = [(shard("x"), "a".to_owned()), (shard("y"), "b".to_owned())];
        assert_eq!((found.orphans, found.moves), (BTreeMap::from(expected), Vec::new()));
    }

    #[test]
    fn settings_of_the_operator_are_moves() {
        let pin = RosterItem::Pin { shard: shard("x"), collector: "b".to_owned() };
        let owned = owners(&[("x", "a", 10), ("y", "b", 10), ("z", "c", 10)]);
        let members = [("a", "", ""), ("b", "", ""), ("c", "", "")];
        let found = moves(&view(&members, vec![pin.clone()]), 1, &owned, &BTreeMap::new());
        assert_eq!(summary(&found)[0], ("x", "b", MoveReason::Pin));
        let found = moves(&view(&members, vec![RosterItem::Drain("c".to_owned())]), 1, &owned, &BTreeMap::new());
        assert_eq!(found.moves[0].shard, shard("z"));
        assert_eq!(found.moves[0].reason, MoveReason::Drain);
    }
}

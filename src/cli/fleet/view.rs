//! Collectors and clusters of a fleet, computed from its roster and its cluster owners. Performs no I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cli::fit::Fitted;
use crate::cli::print::{grouped, span};
use informer_hub_roles::{Member, MoveInProgress, Ownership, RosterEntry, RosterItem};
use informer_hub_types::{Shard, clock, first_names, nearest_name};

/// Maximum number of differing letters of a suggested name.
const NEAR: usize = 3;

/// Collectors and clusters of a fleet at one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FleetOverview {
    pub(super) collectors: Vec<CollectorView>,
    pub(super) clusters: Vec<ClusterView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CollectorView {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
    /// Number of clusters of which the collector owns all or some shards.
    pub(super) clusters: usize,
    /// Sum of the weights (from objects and events) of the clusters and shards that the collector owns.
    pub(super) weight: u64,
    /// Whether the collector renews its entry in the roster, the fleet's list of processes in NATS.
    pub(super) live: bool,
    pub(super) draining: bool,
    /// Hash of the names of the clusters that the collector would take over if they were free.
    #[serde(skip)]
    contends_for: u64,
    /// Seconds since the collector last renewed its roster entry. The difference of two clocks: that of this machine,
    /// and that of the NATS server, which sets the time of an entry.
    pub(super) last_seen_seconds: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterView {
    /// The cluster, or `cluster/shard` if it is divided.
    pub(super) name: String,
    #[serde(skip)]
    pub(super) shard: Shard,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    pub(super) epoch: u64,
    pub(super) weight: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moving_to: Option<String>,
}

/// Drains and pins that the operator has set, and the move that a collector is making now.
#[derive(Default)]
struct Settings<'r> {
    drains: BTreeSet<&'r str>,
    pins: BTreeMap<&'r Shard, &'r str>,
    moving: Option<&'r MoveInProgress>,
}

impl<'r> Settings<'r> {
    fn of(roster: &'r [RosterEntry]) -> Self {
        let mut settings = Self::default();
        for entry in roster {
            match &entry.item {
                RosterItem::Drain(collector) => _ = settings.drains.insert(collector),
                RosterItem::Pin { shard, collector } => _ = settings.pins.insert(shard, collector),
                RosterItem::Move(held) => settings.moving = held.as_ref(),
                RosterItem::Member(_) | RosterItem::Deliverer(_) => {}
            }
        }
        settings
    }

    fn cluster(&self, own: &Ownership) -> ClusterView {
        let held = self.moving.filter(|held| held.shard == own.shard && held.to != own.collector);
        let released = Some(&own.next).filter(|next| own.collector.is_empty() && !next.is_empty());
        ClusterView {
            name: own.shard.to_string(),
            shard: own.shard.clone(),
            owner: Some(own.collector.clone()).filter(|owner| !owner.is_empty()),
            epoch: own.epoch,
            weight: own.weight,
            pinned_to: self.pins.get(&own.shard).map(|collector| (*collector).to_owned()),
            moving_to: released.or(held.map(|held| &held.to)).cloned(),
        }
    }
}

impl FleetOverview {
    /// Combines the roster (the fleet's list of processes) and the owners of clusters. `live` has the keys of the
    /// roster entries that are renewed.
    pub(super) fn new(roster: &[RosterEntry], owners: &[Ownership], live: &BTreeSet<String>) -> Self {
        let settings = Settings::of(roster);
        let members = roster.iter().filter_map(|entry| match &entry.item {
            RosterItem::Member(member) => Some((member, entry)),
            _ => None,
        });
        let collector = |(member, entry): (&Member, &RosterEntry)| {
            let owned = || owners.iter().filter(|own| own.collector == member.name);
            CollectorView {
                name: member.name.clone(),
                zone: Some(member.zone.clone()).filter(|zone| !zone.is_empty()),
                clusters: owned().map(|own| &own.shard.cluster).collect::<BTreeSet<_>>().len(),
                weight: owned().map(|own| own.weight).sum(),
                live: live.contains(&entry.item.key()),
                draining: settings.drains.contains(member.name.as_str()),
                contends_for: member.contends_for,
                last_seen_seconds: clock::since_wall_millis(entry.written_millis).as_secs(),
            }
        };
        let clusters = owners.iter().map(|own| settings.cluster(own)).collect();
        Self { collectors: members.map(collector).collect(), clusters }
    }

    /// Returns the cluster with this name; the error suggests a similar name.
    pub(super) fn cluster(&self, name: &str) -> anyhow::Result<&ClusterView> {
        let known: Vec<_> = self.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let found = self.clusters.iter().find(|cluster| cluster.name.as_str() == name);
        found.ok_or_else(|| unknown("cluster", name, &known))
    }

    /// Returns the collector with this name, or the only one whose name begins with it. If several names begin with it,
    /// returns the only live collector: the other entries may be left from before a crash.
    pub(super) fn collector(&self, name: &str) -> anyhow::Result<&CollectorView> {
        if let Some(found) = self.collectors.iter().find(|collector| collector.name == name) {
            return Ok(found);
        }
        let starts = |collector: &&CollectorView| !name.is_empty() && collector.name.starts_with(name);
        let mut found: Vec<_> = self.collectors.iter().filter(starts).collect();
        if found.iter().filter(|collector| collector.live).count() == 1 {
            found.retain(|collector| collector.live);
        }
        let names = |of: &[&CollectorView]| of.iter().map(|collector| collector.name.clone()).collect::<Vec<_>>();
        match &found[..] {
            [one] => Ok(one),
            [] => {
                let known: Vec<_> = self.collectors.iter().map(|collector| collector.name.as_str()).collect();
                Err(unknown("collector", name, &known))
            }
            several => {
                let names = first_names(&names(several));
                anyhow::bail!("{name:?} matches the names of several collectors: {names}; give more of the name")
            }
        }
    }

    /// Verifies that a collector can take over a cluster: it is live, not draining, and contends for the same clusters
    /// as the owner, if there is one.
    pub(super) fn ensure_receives(&self, cluster: &ClusterView, to: &CollectorView) -> anyhow::Result<()> {
        anyhow::ensure!(to.live, "collector {} is not live: it does not renew its entry; choose another one", to.name);
        let undo = format!("informer-hub fleet drain {} --undo", to.name);
        anyhow::ensure!(
            !to.draining,
            "collector {} is draining; end the drain with `{undo}`, or choose another one",
            to.name
        );
        let owner = self.collectors.iter().find(|collector| Some(&collector.name) == cluster.owner.as_ref());
        let Some(owner) = owner.filter(|owner| owner.contends_for != to.contends_for) else { return Ok(()) };
        let others = self.collectors.iter().filter(|other| other.receives_from(owner));
        let others: Vec<_> = others.map(|other| other.name.as_str()).collect();
        let others = match &others[..] {
            [] => "no other live collector has the same clusters".to_owned(),
            some => format!("these can: {}", first_names(some)),
        };
        anyhow::bail!(
            "collector {} cannot take over {}: its file has other clusters than the file of the owner {}; {others}",
            to.name,
            cluster.name,
            owner.name
        )
    }

    /// Returns the tables of collectors and clusters.
    pub(super) fn tables(&self) -> [Fitted<'static>; 2] {
        [
            Fitted {
                header: &["COLLECTOR", "ZONE", "CLUSTERS", "WEIGHT", "STATE"],
                numbers: &[2, 3],
                spare: &[1, 3],
                rows: self.collectors.iter().map(|found| (found.cells(), None)).collect(),
            },
            Fitted {
                header: &["CLUSTER", "OWNER", "EPOCH", "WEIGHT", "NOTES"],
                numbers: &[2, 3],
                spare: &[2, 3],
                rows: self.clusters.iter().map(|found| (found.cells(), None)).collect(),
            },
        ]
    }
}

impl CollectorView {
    /// Returns whether this collector can take over clusters of the collector `other`: it is live, not draining, and
    /// contends for the same clusters.
    pub(super) fn receives_from(&self, other: &Self) -> bool {
        self.live && !self.draining && self.contends_for == other.contends_for && self.name != other.name
    }

    fn cells(&self) -> Vec<String> {
        let state = match (self.live, self.draining, self.clusters) {
            (false, ..) => not_seen(self.last_seen_seconds),
            (true, true, 0) => "drained".to_owned(),
            (true, true, _) => "draining".to_owned(),
            (true, false, _) => "live".to_owned(),
        };
        let zone = self.zone.clone().unwrap_or_default();
        vec![self.name.clone(), zone, self.clusters.to_string(), grouped(self.weight), state]
    }
}

impl ClusterView {
    fn cells(&self) -> Vec<String> {
        let free = self.owner.is_none().then(|| "no owner".to_owned());
        let moving = self.moving_to.as_ref().map(|to| format!("moving to {to}"));
        let is_there = self.pinned_to == self.owner;
        let pinned =
            self.pinned_to.as_ref().map(|to| if is_there { "pinned".to_owned() } else { format!("pinned to {to}") });
        let notes: Vec<_> = [free, moving, pinned].into_iter().flatten().collect();
        let owner = self.owner.clone().unwrap_or_default();
        vec![self.name.clone(), owner, self.epoch.to_string(), grouped(self.weight), notes.join(", ")]
    }
}

/// Returns the state to show for a process that does not renew its roster entry.
pub(super) fn not_seen(last_seen_seconds: u64) -> String {
    format!("not seen for {}", span(last_seen_seconds))
}

fn unknown(what: &str, name: &str, known: &[&str]) -> anyhow::Error {
    let suggestion = nearest_name(name, known.iter().copied(), NEAR);
    let suggestion = suggestion.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    if known.is_empty() {
        return anyhow::anyhow!("there is no {what} {name:?}; the fleet has none");
    }
    anyhow::anyhow!("there is no {what} {name:?}{suggestion}; known: {}", first_names(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(cluster: &str, collector: &str, next: &str, weight: u64) -> Ownership {
        let shard = cluster.parse().unwrap();
        let (collector, next) = (collector.to_owned(), next.to_owned());
        Ownership { shard, collector, next, epoch: 3, revision: 9, weight }
    }

    fn view() -> FleetOverview {
        view_of(|_| 0)
    }

    /// Returns a fleet. `contends_for` maps the name of a collector to the hash of the clusters that it contends for.
    fn view_of(contends_for: impl Fn(&str) -> u64) -> FleetOverview {
        let member = |name: &str, zone: &str| {
            let (prefer, contends_for) = (BTreeMap::new(), contends_for(name));
            RosterItem::Member(Member { name: name.to_owned(), zone: zone.to_owned(), prefer, contends_for })
        };
        let shard = |name: &str| name.parse().unwrap();
        let items = [
            member("hub-0-17-aa", "eu-west"),
            member("hub-0-18-bb", ""),
            member("hub-1-17-cc", ""),
            RosterItem::Drain("hub-1-17-cc".to_owned()),
            RosterItem::Pin { shard: shard("prod-eu"), collector: "hub-0-17-aa".to_owned() },
            RosterItem::Move(Some(MoveInProgress {
                shard: shard("prod-us/pods"),
                from: "hub-1-17-cc".to_owned(),
                to: "hub-0-17-aa".to_owned(),
            })),
        ];
        let now = clock::wall_millis();
        let entries: Vec<_> =
            items.into_iter().map(|item| RosterEntry { item, revision: 1, written_millis: now - 12_300 }).collect();
        let owners = [
            own("prod-eu", "hub-0-17-aa", "", 12_000),
            own("prod-us/pods", "hub-1-17-cc", "", 200),
            own("prod-us/events", "hub-1-17-cc", "", 100),
            own("test", "", "hub-0-17-aa", 0),
        ];
        FleetOverview::new(&entries, &owners, &["member.hub-0-17-aa", "member.hub-1-17-cc"].map(str::to_owned).into())
    }

    #[test]
    fn tables_show_collectors_and_clusters() {
        let text = view().tables().map(|table| table.render(None, false).0).join("\n");
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let twelve = grouped(12_000);
        for line in [
            format!("hub-0-17-aa eu-west 1 {twelve} live"),
            "hub-0-18-bb 0 0 not seen for 12s".to_owned(),
            "hub-1-17-cc 1 300 draining".to_owned(),
            format!("prod-eu hub-0-17-aa 3 {twelve} pinned"),
            "prod-us/pods hub-1-17-cc 3 200 moving to hub-0-17-aa".to_owned(),
            "prod-us/events hub-1-17-cc 3 100".to_owned(),
            "test 3 0 no owner, moving to hub-0-17-aa".to_owned(),
        ] {
            assert!(lines.contains(&line), "{line}\n{text}");
        }
    }

    #[test]
    fn names_are_resolved_or_the_known_ones_are_named() {
        let view = view();
        assert_eq!(view.collector("hub-1").unwrap().name, "hub-1-17-cc");
        assert_eq!(view.collector("hub-0-18-bb").unwrap().name, "hub-0-18-bb");
        assert_eq!(view.collector("hub-0").unwrap().name, "hub-0-17-aa", "the other one is not live");
        let several = view.collector("hub").unwrap_err().to_string();
        assert!(several.contains("the names of several collectors: hub-0-17-aa, hub-"), "{several}");
        let unknown = view.collector("nub").unwrap_err().to_string();
        assert!(unknown.contains("there is no collector \"nub\"") && unknown.contains("hub-1-17-cc"), "{unknown}");
        let unknown = view.cluster("prod-ue").unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"prod-eu\"?"), "{unknown}");
    }

    #[test]
    fn collector_of_other_clusters_cannot_take_one_over_and_those_that_can_are_named() {
        let refused = |view: &FleetOverview, cluster: &str, to: &str| {
            let checked = view.ensure_receives(view.cluster(cluster).unwrap(), view.collector(to).unwrap());
            checked.err().map(|error| error.to_string())
        };
        let mut view = view_of(|name| u64::from(name == "hub-0-18-bb"));
        view.collectors.iter_mut().for_each(|collector| (collector.live, collector.draining) = (true, false));
        let text = "collector hub-0-18-bb cannot take over prod-eu: its file has other clusters than the file of the owner \
                    hub-0-17-aa; these can: hub-1-17-cc";
        assert_eq!(refused(&view, "prod-eu", "hub-0-18-bb").as_deref(), Some(text));
        assert_eq!(refused(&view, "prod-eu", "hub-1-17-cc"), None);
        assert_eq!(refused(&view, "prod-eu", "hub-0-17-aa"), None, "it stays");
        assert_eq!(refused(&view, "test", "hub-0-18-bb"), None, "without an owner, nothing is known");
        view.collectors[2].draining = true;
        let refusal = refused(&view, "prod-eu", "hub-0-18-bb").unwrap();
        assert!(refusal.ends_with("; no other live collector has the same clusters"), "{refusal}");
        let refusal = refused(&view, "prod-eu", "hub-1-17-cc").unwrap();
        assert!(refusal.starts_with("collector hub-1-17-cc is draining; end the drain with"), "{refusal}");
        view.collectors[2].live = false;
        let refusal = refused(&view, "prod-eu", "hub-1-17-cc").unwrap();
        assert!(refusal.ends_with("does not renew its entry; choose another one"), "{refusal}");
    }
}

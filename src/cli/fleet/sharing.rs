//! Deliverers of a fleet, and which of them holds the lease of each sink. Computed without I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::view::not_seen;
use crate::cli::fit::Fitted;
use informer_hub_roles::{Deliverer, LeaseHolder, RosterEntry, RosterItem};
use informer_hub_types::clock;

/// Deliverers and their sinks at one moment. Both lists are empty in a fleet without deliverers.
#[derive(Debug, Serialize)]
pub(super) struct Sharing {
    deliverers: Vec<DelivererView>,
    sinks: Vec<SinkView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DelivererView {
    name: String,
    /// Number of sinks whose lease (the right to deliver their events) the deliverer holds.
    sinks: usize,
    /// Number of sinks whose lease (the right to deliver their events) the deliverer would take if it were free.
    contends_for: usize,
    /// Whether the deliverer renews its entry in the roster, the fleet's list of processes in NATS.
    live: bool,
    /// Seconds since the deliverer last renewed its roster entry. The difference of two clocks: that of this machine,
    /// and that of the NATS server, which sets the time of an entry.
    last_seen_seconds: u64,
}

#[derive(Debug, Serialize)]
struct SinkView {
    name: String,
    /// Process that holds the lease of the sink, even if the lease has expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliverer: Option<String>,
    /// Whether the holder of the lease renews its entry in the roster, the fleet's list of processes in NATS.
    live: bool,
    /// Why the holder of the lease is unknown; `None` if the lease could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Returns the sinks that the deliverers contend for.
pub(super) fn contended(roster: &[RosterEntry]) -> BTreeSet<String> {
    deliverers(roster).flat_map(|(deliverer, _)| deliverer.sinks.iter().cloned()).collect()
}

fn deliverers(roster: &[RosterEntry]) -> impl Iterator<Item = (&Deliverer, &RosterEntry)> {
    roster.iter().filter_map(|entry| match &entry.item {
        RosterItem::Deliverer(deliverer) => Some((deliverer, entry)),
        _ => None,
    })
}

impl Sharing {
    /// Combines the roster (the fleet's list of processes) and the holders of the sinks' leases. `live` has the keys of
    /// the roster entries that are renewed.
    pub(super) fn new(
        roster: &[RosterEntry],
        live: &BTreeSet<String>,
        holders: &BTreeMap<String, LeaseHolder>,
    ) -> Self {
        let deliverer = |(deliverer, entry): (&Deliverer, &RosterEntry)| DelivererView {
            name: deliverer.name.clone(),
            sinks: holders.values().filter(|holder| is_process(holder, &deliverer.name)).count(),
            contends_for: deliverer.sinks.len(),
            live: live.contains(&entry.item.key()),
            last_seen_seconds: clock::since_wall_millis(entry.written_millis).as_secs(),
        };
        let deliverers: Vec<_> = deliverers(roster).map(deliverer).collect();
        let sink = |(name, holder): (&String, &LeaseHolder)| {
            let live = deliverers.iter().any(|deliverer| deliverer.live && is_process(holder, &deliverer.name));
            let (deliverer, problem) = match holder {
                LeaseHolder::None => (None, None),
                LeaseHolder::Process(process) => (Some(process.clone()), None),
                LeaseHolder::Unknown(problem) => (None, Some(problem.clone())),
            };
            SinkView { name: name.clone(), deliverer, live, problem }
        };
        let sinks = holders.iter().map(sink).collect();
        Self { deliverers, sinks }
    }

    /// Returns the tables of deliverers and sinks; none without deliverers.
    pub(super) fn tables(&self) -> Vec<Fitted<'static>> {
        if self.deliverers.is_empty() {
            return Vec::new();
        }
        vec![
            Fitted {
                header: &["DELIVERER", "SINKS", "STATE"],
                rows: self.deliverers.iter().map(|found| (found.cells(), None)).collect(),
                ..Fitted::default()
            },
            Fitted {
                header: &["SINK", "DELIVERER", "NOTES"],
                rows: self.sinks.iter().map(|found| (found.cells(), None)).collect(),
                ..Fitted::default()
            },
        ]
    }
}

impl DelivererView {
    fn cells(&self) -> Vec<String> {
        let state = if self.live { "live".to_owned() } else { not_seen(self.last_seen_seconds) };
        vec![self.name.clone(), format!("{} of {}", self.sinks, self.contends_for), state]
    }
}

impl SinkView {
    fn cells(&self) -> Vec<String> {
        let notes = match (&self.problem, &self.deliverer) {
            (Some(problem), _) => format!("unknown deliverer: {problem}"),
            (None, None) => "no deliverer".to_owned(),
            (None, Some(_)) if self.live => String::new(),
            (None, Some(_)) => "no deliverer: the last one is not live".to_owned(),
        };
        vec![self.name.clone(), self.deliverer.clone().unwrap_or_default(), notes]
    }
}

fn is_process(holder: &LeaseHolder, name: &str) -> bool {
    matches!(holder, LeaseHolder::Process(process) if process == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(name: &str) -> LeaseHolder {
        LeaseHolder::Process(name.to_owned())
    }

    fn sharing(deliverers: &[(&str, &[&str])], live: &[&str], holders: &[(&str, LeaseHolder)]) -> Sharing {
        let written_millis = clock::wall_millis() - 12_300;
        let entry = |(name, sinks): &(&str, &[&str])| {
            let sinks = sinks.iter().map(|sink| (*sink).to_owned()).collect();
            let item = RosterItem::Deliverer(Deliverer { name: (*name).to_owned(), sinks });
            RosterEntry { item, revision: 1, written_millis }
        };
        let entries: Vec<_> = deliverers.iter().map(entry).collect();
        let holders = holders.iter().map(|(sink, holder)| ((*sink).to_owned(), holder.clone())).collect();
        Sharing::new(&entries, &live.iter().map(|name| format!("deliverer.{name}")).collect(), &holders)
    }

    fn some() -> Sharing {
        let newer = LeaseHolder::Unknown("format version 2 is newer than 1".to_owned());
        sharing(
            &[("hub-0-1-aa", &["audit", "mail", "search"]), ("hub-1-1-bb", &["audit", "search"])],
            &["hub-0-1-aa"],
            &[
                ("archive", process("hub-2-1-cc")),
                ("audit", process("hub-0-1-aa")),
                ("index", newer),
                ("mail", LeaseHolder::None),
                ("search", process("hub-1-1-bb")),
            ],
        )
    }

    #[test]
    fn tables_show_deliverers_and_the_deliverer_of_each_sink() {
        let tables = some().tables();
        let text: Vec<_> = tables.iter().map(|table| table.render(None, false).0).collect();
        let text = text.join("\n");
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "DELIVERER SINKS STATE",
            "hub-0-1-aa 1 of 3 live",
            "hub-1-1-bb 1 of 2 not seen for 12s",
            "SINK DELIVERER NOTES",
            "archive hub-2-1-cc no deliverer: the last one is not live",
            "audit hub-0-1-aa",
            "index unknown deliverer: format version 2 is newer than 1",
            "mail no deliverer",
            "search hub-1-1-bb no deliverer: the last one is not live",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn json_has_deliverers_and_sinks() {
        let value = serde_json::to_value(some()).unwrap();
        let first = json!({"name": "hub-0-1-aa", "sinks": 1, "contendsFor": 3, "live": true, "lastSeenSeconds": 12});
        assert_eq!(value["deliverers"][0], first);
        let problem = "format version 2 is newer than 1";
        let sinks = json!([
            {"name": "archive", "deliverer": "hub-2-1-cc", "live": false},
            {"name": "audit", "deliverer": "hub-0-1-aa", "live": true},
            {"name": "index", "live": false, "problem": problem},
            {"name": "mail", "live": false},
            {"name": "search", "deliverer": "hub-1-1-bb", "live": false},
        ]);
        assert_eq!(value["sinks"], sinks);
    }

    #[test]
    fn fleet_without_deliverers_has_empty_arrays_and_no_tables() {
        let none = sharing(&[], &[], &[]);
        assert!(none.tables().is_empty());
        assert_eq!(serde_json::to_value(none).unwrap(), json!({"deliverers": [], "sinks": []}));
    }
}

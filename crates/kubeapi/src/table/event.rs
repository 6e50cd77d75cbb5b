//! Table columns of Events, of the core group and of `events.k8s.io`, which names some fields differently.

use serde::Deserialize;

use super::Row;
use super::age::Time;
use super::fields::{Meta, Text};
use super::kind::{Kind, NAME, cells, decode, text, wide};

pub(super) const EVENTS: Kind = Kind {
    columns: &[
        text("Last Seen", "Time since the event last occurred"),
        text("Type", "Type of the event: Normal or Warning"),
        text("Reason", "Reason for the event, for programs"),
        text("Object", "Object that the event is about"),
        wide("Subobject", "Part of the object that the event is about"),
        wide("Source", "Component that reported the event, and its host"),
        text("Message", "Description of the event"),
        wide("First Seen", "Time since the event first occurred"),
        wide("Count", "Number of times that the event occurred"),
        NAME.only_wide(),
    ],
    print: event,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Report<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(alias = "deprecatedFirstTimestamp")]
    first_timestamp: Time,
    #[serde(alias = "deprecatedLastTimestamp")]
    last_timestamp: Time,
    event_time: Time,
    #[serde(alias = "deprecatedCount")]
    count: i64,
    series: Option<Series>,
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow)]
    reason: Text<'j>,
    #[serde(borrow, alias = "regarding")]
    involved_object: Reference<'j>,
    #[serde(borrow, alias = "deprecatedSource")]
    source: Source<'j>,
    #[serde(borrow, alias = "reportingController")]
    reporting_component: Text<'j>,
    #[serde(borrow)]
    reporting_instance: Text<'j>,
    #[serde(borrow, alias = "note")]
    message: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Series {
    count: i64,
    last_observed_time: Time,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Reference<'j> {
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(borrow)]
    field_path: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Source<'j> {
    #[serde(borrow)]
    component: Text<'j>,
    #[serde(borrow)]
    host: Text<'j>,
}

impl Report<'_> {
    /// Returns the ages of the first and the last occurrence, and the number of occurrences. `now` is in seconds since
    /// 1970.
    fn occurrences(&self, now: i64) -> (String, String, i64) {
        let set = |time: Time, other: Time| if time.0.is_some() { time } else { other };
        let first = set(self.first_timestamp, self.event_time);
        let last = set(self.last_timestamp, first);
        let (last, count) = match &self.series {
            Some(series) => (series.last_observed_time, series.count),
            None if self.count == 0 => (last, 1),
            None => (last, self.count),
        };
        (first.age(now), last.age(now), count)
    }

    fn object(&self) -> String {
        let kind = self.involved_object.kind.to_lowercase();
        if self.involved_object.name.is_empty() { kind } else { format!("{kind}/{}", self.involved_object.name) }
    }

    fn source(&self) -> String {
        let component = self.source.component.or(&self.reporting_component);
        match self.source.host.or(&self.reporting_instance) {
            "" => component.to_owned(),
            host => format!("{component}, {host}"),
        }
    }
}

fn event(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let event: Report<'_> = decode(json)?;
    let (first, last, count) = event.occurrences(now);
    cells![
        last,
        &event.kind,
        &event.reason,
        event.object(),
        &event.involved_object.field_path,
        event.source(),
        event.message.trim(),
        first,
        count,
        &event.metadata.name,
    ]
}

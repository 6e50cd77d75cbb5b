//! Parameters of `/v1/events`.

use std::time::Duration;

use axum::http::Uri;

use super::EVENTS;
use crate::api::v1::{ClusterChoice, Failure, Kind, Parameter, Parameters};
use informer_hub_types::{EventType, LabelSelector};

/// Maximum of the parameter `timeout`, after which the stream ends.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of values of a repeated parameter.
const MAX_VALUES: usize = 100;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::new("resource", Kind::Text, "Resources, also separated by commas; `*` is every cached resource")
        .required()
        .repeated(),
    Parameter::new("clusters", Kind::Text, "Name of a cluster, `*`, or a selector of cluster labels"),
    Parameter::new("namespace", Kind::Text, "Namespaces, also separated by commas; all if absent").repeated(),
    Parameter::new("labels", Kind::Text, "Label selector: the state before or after the change matches it"),
    Parameter::new(
        "filter",
        Kind::Text,
        "CEL expression as in `filter` of a sink; changes for which it fails are left out",
    ),
    Parameter::new("events", EVENTS, "Kinds of changes; all if absent").repeated(),
    Parameter::new(
        "initial",
        Kind::OneOf(&["skip", "replay"]),
        "`replay` sends the present objects first, as `added` with `initial`; `skip` if absent",
    ),
    Parameter::new("changed", Kind::Flag, "Add the paths that changed, with old and new values, to updates"),
    Parameter::new("timeout", Kind::Duration, "End the stream after this time, up to 24h"),
];

#[derive(Debug)]
pub(super) struct EventsRequest {
    pub(super) resources: Vec<String>,
    pub(super) clusters: ClusterChoice,
    /// Namespaces; all if empty.
    pub(super) namespaces: Vec<String>,
    pub(super) labels: LabelSelector,
    pub(super) filter: Option<String>,
    pub(super) events: Vec<EventType>,
    /// Whether existing objects are sent before changes.
    pub(super) replay: bool,
    /// Whether updates include the paths of the fields that changed.
    pub(super) changed: bool,
    pub(super) timeout: Option<Duration>,
}

impl EventsRequest {
    pub(super) fn of(uri: &Uri) -> Result<Self, Failure> {
        let parameters = Parameters::of(uri, &[PARAMETERS])?;
        let all = |name| {
            let values: Vec<_> = parameters.all(name).map(str::to_owned).collect();
            if values.len() > MAX_VALUES {
                return Err(Failure::invalid(format!("{name} has more than {MAX_VALUES} values")));
            }
            Ok(values)
        };
        let resources = all("resource")?;
        if resources.is_empty() {
            return Err(Failure::invalid("resource is missing; write e.g. resource=pods"));
        }
        let labels = parameters.one("labels").unwrap_or_default();
        let labels = labels.parse().map_err(|error| Failure::invalid(format!("labels: {error}")))?;
        let replay = match parameters.one("initial") {
            None | Some("skip") => false,
            Some("replay") => true,
            Some(_) => return Err(Failure::invalid("initial must be skip or replay")),
        };
        Ok(Self {
            resources,
            clusters: ClusterChoice::parse(parameters.one("clusters").unwrap_or_default())?,
            namespaces: all("namespace")?,
            labels,
            filter: parameters.one("filter").filter(|text| !text.is_empty()).map(str::to_owned),
            events: events_of(&all("events")?)?,
            replay,
            changed: parameters.flag("changed")?.unwrap_or_default(),
            timeout: parameters.duration("timeout", MAX_TIMEOUT)?,
        })
    }
}

fn events_of(words: &[String]) -> Result<Vec<EventType>, Failure> {
    const ALL: [EventType; 3] = [EventType::Added, EventType::Updated, EventType::Deleted];
    if words.is_empty() {
        return Ok(ALL.to_vec());
    }
    let event = |word: &String| {
        let found = ALL.into_iter().find(|event| event.as_str() == word);
        found.ok_or_else(|| Failure::invalid("events must be added, updated or deleted; separate several by commas"))
    };
    words.iter().map(event).collect()
}

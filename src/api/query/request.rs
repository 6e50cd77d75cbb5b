//! Parameters of `/v1/query`.

use std::num::NonZeroUsize;
use std::time::Duration;

use axum::http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::kubernetes::Fleet;
use crate::api::v1::{ClusterChoice, Failure, Kind, Parameter, Parameters, Sight, check_names, duration_of};
use crate::cache::{Bounds, Query};
use informer_hub_query::Question;
use informer_hub_types::ClusterSelector;

/// Maximum of the parameter `timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(25);

/// Parameters of a `GET`, and members of the body of a `POST`.
pub(in crate::api) const PARAMETERS: &[Parameter] = &[
    Parameter::new(
        "resource",
        Kind::Text,
        "Resource: its plural, singular or kind, alone, with the group, or with version and group",
    )
    .required(),
    Parameter::new("q", Kind::Text, "Query in the language of docs/queries.md; empty selects every object"),
    Parameter::new("clusters", Kind::Text, "Name of a cluster, `*`, or a selector of cluster labels"),
    Parameter::new("limit", Kind::Count, "Largest number of objects, rows, groups or values"),
    Parameter::new("continue", Kind::Text, "Token of the previous answer, to continue on the same state"),
    Parameter::new("timeout", Kind::Duration, "Time for the search, up to 25s; 10s if absent"),
    Parameter::new("explain", Kind::Flag, "Return how the query would be answered, without answering it"),
];

/// Parameters of a request as the client wrote them, before they are checked.
#[derive(Debug, Default, Deserialize)]
struct RawRequest {
    #[serde(default)]
    q: String,
    #[serde(default)]
    resource: String,
    clusters: Option<String>,
    limit: Option<NonZeroUsize>,
    #[serde(rename = "continue")]
    continuation: Option<String>,
    timeout: Option<String>,
    #[serde(default)]
    explain: bool,
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct ParsedQuery {
    /// Resource as written, such as `pods` or `deployments.apps`.
    pub(super) resource: String,
    pub(super) question: Question,
    clusters: ClusterChoice,
    timeout: Option<Duration>,
    explain: bool,
}

impl ParsedQuery {
    /// Parses the parameters of a `GET`.
    pub(super) fn of_parameters(uri: &Uri) -> Result<Self, Failure> {
        let parameters = Parameters::of(uri, &[PARAMETERS])?;
        let text = |name| parameters.one(name).map(str::to_owned);
        let count = |value: &str| value.parse().map_err(|_| Failure::invalid("limit is not a positive integer"));
        Self::new(RawRequest {
            q: text("q").unwrap_or_default(),
            resource: text("resource").unwrap_or_default(),
            clusters: text("clusters"),
            limit: parameters.one("limit").map(count).transpose()?,
            continuation: text("continue"),
            timeout: text("timeout"),
            explain: parameters.flag("explain")?.unwrap_or_default(),
        })
    }

    /// Parses the body of a `POST`.
    pub(super) fn of_body(body: &[u8]) -> Result<Self, Failure> {
        let invalid = |error| Failure::invalid(format!("the body is not the JSON object of a query: {error}"));
        let members: Map<String, Value> = serde_json::from_slice(body).map_err(invalid)?;
        check_names("member", members.keys().map(String::as_str), &[PARAMETERS])?;
        Self::new(serde_json::from_value(Value::Object(members)).map_err(invalid)?)
    }

    fn new(written: RawRequest) -> Result<Self, Failure> {
        let RawRequest { q, resource, clusters, limit, continuation, timeout, explain } = written;
        if resource.is_empty() {
            return Err(Failure::invalid("resource is missing; write e.g. resource=pods"));
        }
        let mut question: Question = q.parse().map_err(|error| Failure::question(&error))?;
        if let Some(limit) = limit {
            once("limit", question.limit.is_some())?;
            question.limit = Some(limit);
        }
        if let Some(token) = continuation.filter(|token| !token.is_empty()) {
            once("continue", question.continue_token.is_some())?;
            question.continue_token = Some(token.into());
        }
        let timeout = timeout.as_deref().map(|text| duration_of("timeout", text, MAX_TIMEOUT)).transpose()?;
        let clusters = ClusterChoice::parse(clusters.as_deref().unwrap_or_default())?;
        Ok(Self { resource, question, clusters, timeout, explain })
    }

    /// Returns the query to send to the cache.
    pub(super) fn query(&self, fleet: &dyn Fleet, sight: &Sight) -> Result<Query, Failure> {
        self.clusters.check(fleet, sight)?;
        let query = Query::from(self.question.clone());
        let query =
            self.timeout.into_iter().fold(query, |query, within| query.within(Bounds { within, ..Bounds::default() }));
        let query = if self.explain { query.explain() } else { query };
        Ok(match self.clusters.names(fleet, sight) {
            None => query,
            Some(names) => query.in_clusters(ClusterSelector::Names(names)),
        })
    }
}

fn once(member: &str, is_in_text: bool) -> Result<(), Failure> {
    if is_in_text {
        return Err(Failure::invalid(format!("{member} is given twice: in q and outside q; keep one of them")));
    }
    Ok(())
}

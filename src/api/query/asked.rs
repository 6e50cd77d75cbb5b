//! Members of a request.

use std::num::NonZeroUsize;
use std::time::Duration;

use axum::extract::Query as Parameters;
use axum::http::Uri;
use serde::Deserialize;

use super::failure::Failure;
use crate::cache::{Bounds, Query};
use informer_hub_config::HumanDuration;
use informer_hub_query::Question;
use informer_hub_types::{ClusterName, ClusterSelector, LabelSelector};

use crate::api::kubernetes::Fleet;

/// Longest time that a request may ask for.
const MAX_TIMEOUT: Duration = Duration::from_secs(25);

/// Members as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
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
pub(super) struct Asked {
    /// Resource as written, such as `pods` or `deployments.apps`.
    pub(super) resource: String,
    pub(super) question: Question,
    clusters: Option<Clusters>,
    timeout: Option<Duration>,
    explain: bool,
}

/// Selected clusters.
#[derive(Debug)]
enum Clusters {
    One(ClusterName),
    Matching(LabelSelector),
}

impl Asked {
    /// Parses the parameters of a `GET`.
    pub(super) fn of_parameters(uri: &Uri) -> Result<Self, Failure> {
        let written: Parameters<Written> = Parameters::try_from_uri(uri)
            .map_err(|error| Failure::invalid(format!("the parameters are invalid: {}", root_cause(&error))))?;
        Self::new(written.0)
    }

    /// Parses the body of a `POST`.
    pub(super) fn of_body(body: &[u8]) -> Result<Self, Failure> {
        let written: Written = serde_json::from_slice(body)
            .map_err(|error| Failure::invalid(format!("the body is not the JSON object of a query: {error}")))?;
        Self::new(written)
    }

    fn new(written: Written) -> Result<Self, Failure> {
        let Written { q, resource, clusters, limit, continuation, timeout, explain } = written;
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
        let timeout = timeout.as_deref().map(timeout_of).transpose()?;
        let clusters = clusters.as_deref().map(clusters_of).transpose()?.flatten();
        Ok(Self { resource, question, clusters, timeout, explain })
    }

    /// Returns the query for the cache.
    pub(super) fn query(&self, fleet: &dyn Fleet) -> Result<Query, Failure> {
        let query = Query::from(self.question.clone());
        let query =
            self.timeout.into_iter().fold(query, |query, within| query.within(Bounds { within, ..Bounds::default() }));
        let query = if self.explain { query.explain() } else { query };
        Ok(match &self.clusters {
            None => query,
            Some(clusters) => query.in_clusters(ClusterSelector::Names(clusters.names(fleet)?)),
        })
    }
}

impl Clusters {
    /// Returns the names of the hub's clusters that are selected.
    fn names(&self, fleet: &dyn Fleet) -> Result<Vec<ClusterName>, Failure> {
        let known = fleet.clusters();
        match self {
            Self::One(name) if known.iter().any(|cluster| cluster.name == *name) => Ok(vec![name.clone()]),
            Self::One(name) => {
                let nearest =
                    informer_hub_types::nearest_name(name.as_str(), known.iter().map(|it| it.name.as_str()), 2);
                Err(Failure::unknown_cluster(name.as_str(), nearest))
            }
            Self::Matching(selector) => {
                let matches = known
                    .iter()
                    .filter(|cluster| selector.matches(|label| cluster.labels.get(label).map(String::as_str)));
                Ok(matches.map(|cluster| cluster.name.clone()).collect())
            }
        }
    }
}

/// Returns the text of an error's first cause, without the layers around it.
fn root_cause(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

fn once(member: &str, is_in_text: bool) -> Result<(), Failure> {
    if is_in_text {
        return Err(Failure::invalid(format!("{member} is given twice: in q and beside it; keep one of them")));
    }
    Ok(())
}

fn timeout_of(text: &str) -> Result<Duration, Failure> {
    let parsed: HumanDuration = text.parse().map_err(|error| Failure::invalid(format!("timeout: {error}")))?;
    if parsed.0.is_zero() || parsed.0 > MAX_TIMEOUT {
        return Err(Failure::invalid(format!("timeout is {text}, expected 1ms to {MAX_TIMEOUT:?}")));
    }
    Ok(parsed.0)
}

/// Parses a cluster's name, a label selector, or `*`, which is `None`.
fn clusters_of(text: &str) -> Result<Option<Clusters>, Failure> {
    if text.is_empty() || text == "*" {
        return Ok(None);
    }
    if let Ok(name) = ClusterName::new(text) {
        return Ok(Some(Clusters::One(name)));
    }
    let selector = text.parse().map_err(|error| {
        Failure::invalid(format!("clusters: {text:?} is neither a cluster's name nor a label selector: {error}"))
    })?;
    Ok(Some(Clusters::Matching(selector)))
}

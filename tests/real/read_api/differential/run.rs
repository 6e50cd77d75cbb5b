//! Sends requests to two endpoints and compares the answers.

use std::collections::BTreeMap;
use std::fmt;

use futures::stream::{self, StreamExt};

use super::accepted::{Case, explanation};
use super::answer::Answer;
use super::compare::{Difference, differences};
use super::request::{Request, Verb};
use crate::read_api::endpoint::Endpoint;

/// Requests that are under way at once. Most of the time is that of watches, which last a second.
const IN_FLIGHT: usize = 48;

/// How often a request is sent before a difference counts.
const TRIES: usize = 3;

/// Pages of a list that are compared.
const PAGES: usize = 5;

/// Failures that are shown.
const SHOWN: usize = 25;

/// Outcome of a comparison.
#[derive(Default)]
pub(super) struct Report {
    /// Number of requests by verb and status of the apiserver.
    counts: BTreeMap<(Verb, u16), usize>,
    /// Number of requests with an accepted difference, by its id.
    pub(super) explained: BTreeMap<&'static str, usize>,
    failures: Vec<(Request, Vec<Difference>)>,
}

/// Differences of one request.
struct Outcome {
    status: u16,
    explained: Vec<&'static str>,
    unexplained: Vec<Difference>,
}

/// Sends each request to both and compares the answers.
///
/// The first has to answer as the second does, which does not know protobuf.
pub(super) async fn compare(kube: &Endpoint, hub: &Endpoint, requests: &[Request]) -> Report {
    let outcomes = stream::iter(requests).map(async |request| (request, persistent(kube, hub, request).await));
    let mut outcomes = outcomes.buffer_unordered(IN_FLIGHT);
    let mut report = Report::default();
    while let Some((request, outcome)) = outcomes.next().await {
        *report.counts.entry((request.verb, outcome.status)).or_default() += 1;
        for id in outcome.explained {
            *report.explained.entry(id).or_default() += 1;
        }
        if !outcome.unexplained.is_empty() {
            report.failures.push((request.clone(), outcome.unexplained));
        }
    }
    report
}

/// Compares the answers to a request, several times if they differ without an explanation.
async fn persistent(kube: &Endpoint, hub: &Endpoint, request: &Request) -> Outcome {
    let mut outcome = compare_once(kube, hub, request).await;
    for _ in 1..TRIES {
        if outcome.unexplained.is_empty() {
            break;
        }
        outcome = compare_once(kube, hub, request).await;
    }
    outcome
}

async fn compare_once(kube: &Endpoint, hub: &Endpoint, request: &Request) -> Outcome {
    let mut outcome = Outcome { status: 0, explained: Vec::new(), unexplained: Vec::new() };
    let mut requests = [request.without_protobuf(), request.clone()];
    for page in 0..PAGES {
        let [of_kube, of_hub] = &requests;
        let (kube, hub) = tokio::join!(answer(kube, of_kube), answer(hub, of_hub));
        let case = Case { request, kube: &kube, hub: &hub };
        let mut found = differences(&kube, &hub);
        let mut explained: Vec<_> = found.iter().filter_map(|difference| explanation(&case, difference)).collect();
        found.retain(|difference| explanation(&case, difference).is_none());
        if page == 0 {
            outcome.status = kube.status;
        } else {
            found.iter_mut().for_each(|difference| difference.at = format!("page {page}: {}", difference.at));
        }
        outcome.unexplained.append(&mut found);
        outcome.explained.append(&mut explained);
        let is_over = kube.continuation.is_empty() || hub.continuation.is_empty();
        if request.verb != Verb::Pages || is_over || !outcome.unexplained.is_empty() {
            break;
        }
        requests = [next_page(of_kube, &kube.continuation), next_page(of_hub, &hub.continuation)];
    }
    outcome.explained.sort_unstable();
    outcome.explained.dedup();
    outcome
}

async fn answer(endpoint: &Endpoint, request: &Request) -> Answer {
    Answer::new(request, &endpoint.get(&request.target(), request.accept.as_deref()).await)
}

fn next_page(request: &Request, token: &str) -> Request {
    let mut next = request.clone();
    next.query.retain(|(key, _)| !matches!(*key, "resourceVersion" | "resourceVersionMatch" | "continue"));
    next.query.push(("continue", token.to_owned()));
    next
}

impl Report {
    /// Verifies that every difference is explained.
    ///
    /// # Panics
    /// If there is another difference.
    pub(super) fn verify(&self) {
        assert!(self.failures.is_empty(), "{} requests with unexplained differences: {self}", self.failures.len());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.counts.values().sum();
        writeln!(f, "{total} requests {:?}, accepted differences {:?}", self.counts, self.explained)?;
        let mut by_place = BTreeMap::<_, usize>::new();
        for (request, differences) in &self.failures {
            let kind = request.resource.map_or("", |resource| resource.plural);
            *by_place.entry((request.verb, kind, differences[0].at.clone())).or_default() += 1;
        }
        by_place.iter().try_for_each(|(place, count)| writeln!(f, "{count:5} {place:?}"))?;
        for (request, differences) in self.failures.iter().take(SHOWN) {
            writeln!(f, "{request}")?;
            for Difference { at, kube, hub } in differences {
                writeln!(f, "    {at}\n        kube {kube}\n        hub  {hub}")?;
            }
        }
        Ok(())
    }
}

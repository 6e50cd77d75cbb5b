//! Sends requests to two endpoints and compares the answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{fmt, fs};

use futures::stream::{self, StreamExt};

use super::accepted::{Case, explanation};
use super::answer::Answer;
use super::compare::{Difference, differences};
use super::request::{Request, Verb};
use crate::read_api::endpoint::Endpoint;
use informer_hub_types::clock;

/// Maximum number of concurrent requests. Most of the time is spent on watches, which last a second.
const IN_FLIGHT: usize = 48;

/// How often a request is sent before a difference counts.
const TRIES: usize = 3;

/// Maximum number of pages of a list that are compared.
const PAGES: usize = 5;

/// Maximum number of kinds of differences that are shown.
const SHOWN: usize = 30;

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
    let mut requests = [request.clone(), request.clone()];
    for page in 0..PAGES {
        let [of_kube, of_hub] = &requests;
        let asked = clock::now();
        let (kube, hub) = tokio::join!(answer(kube, of_kube), answer(hub, of_hub));
        let case = Case { request, kube: &kube, hub: &hub };
        let mut found = differences(&kube, &hub, clock::now() - asked);
        let mut explained: Vec<_> = found.iter().filter_map(|difference| explanation(&case, difference)).collect();
        found.retain(|difference| explanation(&case, difference).is_none());
        if page == 0 {
            outcome.status = kube.status;
        } else {
            for difference in &mut found {
                difference.at = format!("page {page}: {}", difference.at);
            }
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
        let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/read-api-differences.txt");
        fs::write(file, self.shown(usize::MAX)).unwrap();
        let failures = self.failures.len();
        assert!(failures == 0, "{failures} requests with unexplained differences; all are in {file}\n{self}");
    }

    /// Describes up to `most` kinds of differences, the frequent ones first, each with an example.
    fn shown(&self, most: usize) -> String {
        let total: usize = self.counts.values().sum();
        let mut text = format!("{total} requests {:?}, accepted differences {:?}\n", self.counts, self.explained);
        let mut places = BTreeMap::<_, Vec<_>>::new();
        for (request, differences) in &self.failures {
            for difference in differences {
                places.entry(place(request, difference)).or_default().push((request, difference));
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
        for (place, cases) in places.iter().take(most) {
            let (request, Difference { at, kube, hub }) = cases[0];
            let count = cases.len();
            let _ =
                writeln!(text, "{count} x {place}\n    {request}\n    {at}\n        kube {kube}\n        hub  {hub}");
        }
        text
    }
}

/// Returns where a difference is, without positions, so that the same difference of other objects is counted with it.
fn place(request: &Request, difference: &Difference) -> String {
    let at: String = difference.at.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect();
    let short = |text: &str| text.chars().take(40).collect::<String>();
    let values = if at.contains('/') {
        String::new()
    } else {
        format!(": {} / {}", short(&difference.kube), short(&difference.hub))
    };
    format!("{:?} {at}{values}", request.verb)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(SHOWN))
    }
}

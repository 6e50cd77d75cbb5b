//! Paths for operators: status and dead letters.

use super::super::super::*;
use super::ask::{JSON, ask};
use super::{CLUSTERS, Hubs, Place, object, resources, universe};
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest};
use crate::api::{AskLetters, AskReload, ReportedState, Services, StateSource, router};
use informer_hub_sink::{DeadLetter, Event, EventOptions};
use informer_hub_telemetry::metrics::{Scraper, Snapshot};
use informer_hub_types::{Notification, Object};

/// Dead letters by number.
type Letters = BTreeMap<u64, DeadLetter>;

fn letter(cluster: &str, resource: &ApiResource, place: Place) -> DeadLetter {
    let origin = Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: ClusterLabels::default(),
        resource: resource.clone(),
        scope: Scope::all(),
    };
    let object = Object::<Value>::new(Arc::new(origin), Arc::new(object(place, 3)));
    let notification = Notification::Added { object, initial: false };
    let event = Event::new(&notification, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap();
    DeadLetter { event, attempts: 1, error: "refused".to_owned(), at: jiff::Timestamp::UNIX_EPOCH }
}

/// Returns a letter about each place; with `hidden`, also about a resource that the hub does not have.
fn letters(hidden: bool, is_there: impl Fn(Place) -> bool) -> Letters {
    let numbered = universe().enumerate().filter(|(_, place)| is_there(*place));
    let of = |(number, place): (usize, Place)| {
        (2 * number as u64, letter(CLUSTERS[place.0].0, &resources()[place.1], place))
    };
    let mut letters: Letters = numbered.map(of).collect();
    if hidden {
        let gone = ApiResource { gvr: Gvr::new("example.com", "v1", "gone"), kind: "Gone".into(), namespaced: true };
        letters.insert(1, letter("a", &gone, (0, 0, 0, 0)));
    }
    letters
}

fn ask_letters(letters: Letters) -> AskLetters {
    Arc::new(move |_, request| {
        let answer = match request {
            LetterRequest::List { filter, from, most } => {
                let fitting = letters.range(from..).filter(|(_, letter)| filter.fits(letter));
                LetterAnswer::List(fitting.map(|(number, letter)| letter.summary(*number)).take(most).collect())
            }
            LetterRequest::Show { number } => LetterAnswer::One(letters.get(&number).cloned().map(Box::new)),
            other => panic!("{other:?} reached the sink"),
        };
        Box::pin(async move { Some(Ok(answer)) })
    })
}

/// Returns the status of a hub with these objects.
fn status(hubs: &Hubs, is_there: impl Fn(Place) -> bool) -> Value {
    let informers = |cluster: usize, tier: &str| {
        let of_resource = |(number, resource): (usize, &ApiResource)| {
            let objects = universe().filter(|it| (it.0, it.1) == (cluster, number) && is_there(*it)).count();
            let is_known = hubs.sees_any(cluster, number) || objects > 0;
            is_known.then(|| {
                json!({
                    "resource": resource.gvr.to_string(), "scope": "*", "view": "shared", "state": "watching",
                    "synced": true, "objects": objects, "lastError": format!("{tier} {objects}"),
                })
            })
        };
        resources().iter().enumerate().filter_map(of_resource).collect::<Vec<_>>()
    };
    let shown = |(at, (name, tier)): (usize, &(&str, &str))| {
        let informers = informers(at, tier);
        let is_known = !informers.is_empty() || hubs.refusal(&format!("/clusters/{name}"), 0, None) != Some(404);
        is_known.then(|| {
            json!({
                "name": name, "labels": { "tier": tier }, "state": "connected", "version": "v1", "informers": informers,
                "error": format!("{name} failed"),
            })
        })
    };
    let clusters: Vec<_> = CLUSTERS.iter().enumerate().filter_map(shown).collect();
    json!({ "ready": true, "clusters": clusters, "sinks": [{ "name": "audit", "lastError": clusters.len() }] })
}

fn services(bench: &Bench, letters: Letters, status: Value) -> Router {
    let show: StateSource = Arc::new(move || {
        let (status, waiting) = (status.clone(), vec![status.to_string()]);
        Box::pin(std::future::ready(Some(ReportedState { ready: true, waiting, status })))
    });
    let reload: AskReload = Arc::new(|| Box::pin(std::future::ready(None)));
    let scraper = Scraper::new(|| Snapshot::new(jiff::Timestamp::UNIX_EPOCH));
    router(Services { show, letters: ask_letters(letters), reload, scraper, read: Some(bench.api()) })
}

/// Returns the letters of all pages.
async fn all_letters(routes: &Router, reader: &Reader, query: &str) -> Vec<Value> {
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/sinks/hook/dead-letters?from={from}{query}");
        let (code, _, answer) = ask(routes, reader, &path, JSON).await;
        assert_eq!(code, 200, "{path}: {answer}");
        found.extend(answer["letters"].as_array().unwrap().iter().cloned());
        match answer["next"].as_u64() {
            Some(next) if next > from => from = next,
            None => return found,
            next => panic!("{path}: {next:?}"),
        }
    }
}

pub(super) async fn agree(hubs: &Hubs) {
    let (ann, all) = (&hubs.whole.reader, |_: Place| true);
    let seen = |place: Place| hubs.sees(place);
    let whole = services(&hubs.whole, letters(true, all), status(hubs, all));
    let visible = services(&hubs.visible, letters(false, seen), status(hubs, seen));
    for query in ["", "&limit=1", "&limit=7", "&cluster=b", "&subject=secrets", "&error=refused&limit=2"] {
        let found = all_letters(&whole, ann, query).await;
        assert_eq!(found, all_letters(&visible, ann, query).await, "{query}");
        if query.is_empty() {
            assert_eq!(found.len(), universe().filter(|place| hubs.sees(*place)).count());
        }
    }
    for number in 0..2 * universe().count() {
        let path = format!("/v1/sinks/hook/dead-letters/{number}");
        let found = ask(&whole, ann, &path, JSON).await;
        assert_eq!(found, ask(&visible, ann, &path, JSON).await, "{path}");
    }
    for path in ["/v1/status", "/readyz", "/livez", "/metrics", "/v1/openapi.json"] {
        assert_eq!(ask(&whole, ann, path, JSON).await, ask(&visible, ann, path, JSON).await, "{path}");
    }
}

//! Watches and streams of changes, from their first event on.

use axum::body::BodyDataStream;
use axum::http::header::WARNING;
use futures::FutureExt;

use super::super::super::*;
use super::ask::without;
use super::{Hubs, Place, ROOTS, is_fleet, resources};

/// `Accept` headers of watches, each with query parameters.
const WATCHES: [(&str, &str); 5] = [
    ("*/*", ""),
    ("*/*", "&labelSelector=app%3Dweb"),
    ("*/*", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
    ("application/json;as=Table;v=v1;g=meta.k8s.io", "&includeObject=Object"),
    ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", ""),
];

const STREAMS: [&str; 6] = [
    "",
    "&initial=replay",
    "&initial=replay&changed=true&clusters=tier%3Dprod",
    "&initial=replay&namespace=s,t&labels=app%3Dweb",
    "&initial=replay&filter=cluster%20%3D%3D%20%22b%22",
    "&initial=replay&filter=object.spec.nodeName.none%20%3D%3D%20%22b%22",
];

/// A stream of lines of JSON, or of Server-Sent Events.
#[derive(Debug)]
struct Lines {
    body: BodyDataStream,
    buffer: String,
    /// `Warning` headers of the response.
    warnings: Vec<String>,
}

impl Lines {
    /// Opens a stream; `Err` is the body of a refusal.
    async fn open(bench: &Bench, reader: &Reader, path: &str, accept: &str) -> Result<Self, Value> {
        let request = Request::get(path).header(ACCEPT, accept).extension(reader.clone()).body(Body::empty()).unwrap();
        let response = bench.send(request).await;
        if response.status() != StatusCode::OK {
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            return Err(serde_json::from_slice(&body).unwrap());
        }
        let warnings = response.headers().get_all(WARNING).iter().map(|value| value.to_str().unwrap().to_owned());
        let warnings = warnings.collect();
        Ok(Self { body: response.into_body().into_data_stream(), buffer: String::new(), warnings })
    }

    /// Returns the events that are available without waiting.
    fn now(&mut self) -> Vec<Value> {
        let mut idle = 0;
        while idle < 8 {
            match self.body.next().now_or_never() {
                Some(Some(chunk)) => {
                    self.buffer.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
                    idle = 0;
                }
                Some(None) => break,
                None => idle += 1,
            }
        }
        let end = self.buffer.rfind('\n').map_or(0, |end| end + 1);
        let whole: String = self.buffer.drain(..end).collect();
        let json =
            whole.lines().filter_map(|line| line.strip_prefix("data: ").or(line.starts_with('{').then_some(line)));
        json.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }
}

/// A watch of the reader at the tested hub, and an unrestricted watch at the hub with only the visible objects.
struct Pair {
    path: String,
    whole: Lines,
    visible: Lines,
}

/// Streams of the reader at both hubs, and an unrestricted stream at the hub with only the visible objects.
struct Three {
    query: String,
    whole: Lines,
    same: Lines,
    all: Lines,
}

fn is_notice(event: &Value) -> bool {
    event["type"].as_str().is_some_and(|text| text.starts_with("io.informer-hub.stream."))
}

/// Returns the events without heartbeats, positions and times.
fn stable(mut events: Vec<Value>) -> Vec<Value> {
    events.retain(|event| event["type"] != "io.informer-hub.stream.heartbeat.v1");
    for event in &mut events {
        if is_notice(event) {
            without(event, &["id"]);
        }
        without(event, &["position", "time"]);
    }
    events
}

impl Three {
    fn agree(&mut self, after: &str) {
        let Self { query, whole, same, all } = self;
        let (whole, same, mut all) = (stable(whole.now()), stable(same.now()), stable(all.now()));
        let whole = sorted(whole);
        assert_eq!(whole, sorted(same), "{query} {after}");
        // Notices of the unrestricted reader name other resources.
        all.retain(|event| !is_notice(event));
        let changes: Vec<_> = whole.into_iter().filter(|event| !is_notice(event)).collect();
        assert_eq!(changes, sorted(all), "{query} {after}");
    }
}

/// Sorts events: between objects of different resources there is no order.
fn sorted(mut events: Vec<Value>) -> Vec<Value> {
    events.sort_by_key(Value::to_string);
    events
}

async fn open_watches(hubs: &Hubs) -> Vec<Pair> {
    let mut watches = Vec::new();
    for root in ROOTS {
        for (number, resource) in resources().iter().enumerate() {
            let refusal = hubs.refusal(root, number, None);
            for (accept, options) in WATCHES {
                let path = format!("{root}/api/v1/{}?watch=1{options}", resource.gvr.resource);
                let whole = Lines::open(&hubs.whole, &hubs.whole.reader, &path, accept).await;
                if let Err(refused) = &whole {
                    assert_eq!(Some(&refused["code"]), refusal.map(|code| json!(code)).as_ref(), "{path}");
                    let same = Lines::open(&hubs.visible, &hubs.whole.reader, &path, accept).await;
                    let same = same.expect_err("a refusal");
                    let is_missing = refused["code"] == 403 && same["code"] == 404 && !is_fleet(&path);
                    assert!(is_missing || *refused == same, "{path}: {refused} and {same}");
                    continue;
                }
                assert_eq!(refusal, None, "{path}");
                let visible = Lines::open(&hubs.visible, &hubs.visible.reader, &path, accept).await.expect("a watch");
                let whole = whole.unwrap_or_else(|_| unreachable!());
                assert_eq!(whole.warnings, visible.warnings, "{path}");
                watches.push(Pair { path, whole, visible });
            }
        }
    }
    watches
}

async fn open_streams(hubs: &Hubs) -> Vec<Three> {
    let mut streams = Vec::new();
    for query in STREAMS {
        for accept in ["application/x-ndjson", "text/event-stream"] {
            let (path, ann) = (format!("/v1/events?resource=*{query}"), &hubs.whole.reader);
            let whole = Lines::open(&hubs.whole, ann, &path, accept).await;
            let same = Lines::open(&hubs.visible, ann, &path, accept).await;
            let all = Lines::open(&hubs.visible, &hubs.visible.reader, &path, accept).await;
            match (whole, same) {
                (Ok(whole), Ok(same)) => {
                    let all = all.expect("a stream");
                    assert_eq!((&whole.warnings, &whole.warnings), (&same.warnings, &all.warnings), "{query}");
                    streams.push(Three { query: format!("{query} {accept}"), whole, same, all });
                }
                (whole, same) => {
                    assert_eq!(whole.err(), same.err(), "{query}");
                    assert!(resources().iter().all(|it| !hubs.rules.iter().any(|rule| rule.covers(it))), "{query}");
                }
            }
        }
    }
    streams
}

pub(super) async fn agree(hubs: &mut Hubs, changes: &[(Place, bool)]) {
    let (mut watches, mut streams) = (open_watches(hubs).await, open_streams(hubs).await);
    for change in [None].into_iter().chain(changes.iter().map(Some)) {
        if let Some((place, is_deleted)) = change {
            hubs.change(*place, *is_deleted);
        }
        for Pair { path, whole, visible } in &mut watches {
            let now = |lines: &mut Lines| {
                let mut events = lines.now();
                if is_fleet(path) {
                    for event in &mut events {
                        without(event, &["resourceVersion"]);
                    }
                }
                events
            };
            assert_eq!(now(whole), now(visible), "{path} {change:?}");
        }
        for stream in &mut streams {
            stream.agree(&format!("{change:?}"));
        }
    }
}

//! What the objects of a replay server look like: pods, and what is hard on a cache.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::super::pods;

/// The content of objects. All are served as pods; only their bodies differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// Pods of about 9.3 KB, as apiservers send them.
    #[default]
    Pods,
    /// Pods of about 600 B.
    SmallPods,
    /// Small pods with 6 KB of random text each, which no dictionary helps.
    Noise,
    /// One MiB of text each, random words.
    Large,
    /// About 400 B, like an Event.
    Events,
    /// About 1 KB, like a ConfigMap of settings.
    Settings,
    /// Small pods, each with a label value of its own.
    DistinctLabels,
    /// Small pods, all on one node and of one image.
    OneValue,
    /// The first half settings, then pods of 9.3 KB: what is learned from the first ones does not fit the rest.
    Changing,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Pods,
        Self::SmallPods,
        Self::Noise,
        Self::Large,
        Self::Events,
        Self::Settings,
        Self::DistinctLabels,
        Self::OneValue,
        Self::Changing,
    ];

    /// The shape that [`Shape`]'s `Debug` calls so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| format!("{shape:?}") == name)
    }

    /// A name and a body for object `at` of `count`.
    pub(super) fn body(self, rng: &mut StdRng, nodes: usize, time: &str, at: usize, count: usize) -> (String, Value) {
        match self {
            Self::Pods => pods::pod(rng, nodes, time, false),
            Self::SmallPods => pods::pod(rng, nodes, time, true),
            Self::Noise => {
                let (name, mut body) = pods::pod(rng, nodes, time, true);
                body["spec"]["noise"] = json!(noise(rng, 6_000));
                (name, body)
            }
            Self::Large => {
                let text: String = (0..170_000).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect();
                ("large".to_owned(), json!({ "metadata": {}, "spec": { "data": { "text": text } } }))
            }
            Self::Events => ("web.17c9".to_owned(), event(rng)),
            Self::Settings => ("settings".to_owned(), settings(rng)),
            Self::DistinctLabels => {
                let (name, mut body) = pods::pod(rng, nodes, time, true);
                body["metadata"]["labels"]["session"] = json!(format!("session-{at:012}"));
                (name, body)
            }
            Self::OneValue => {
                let (name, mut body) = pods::pod(rng, 1, time, true);
                body["spec"]["containers"][0]["image"] = json!("registry.example.com/web/server:1.0.0");
                (name, body)
            }
            Self::Changing if at < count / 2 => Self::Settings.body(rng, nodes, time, at, count),
            Self::Changing => Self::Pods.body(rng, nodes, time, at, count),
        }
    }
}

const WORDS: [&str; 16] = [
    "alpha ", "bravo ", "charly ", "delta ", "echo ", "foxtrot ", "golf ", "hotel ", "india ", "juliet ", "kilo ",
    "lima ", "mike ", "oscar ", "papa ", "quebec ",
];

/// Random text of 64 different characters: three quarters of its size is the least that it takes.
fn noise(rng: &mut StdRng, count: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..count).map(|_| char::from(ALPHABET[rng.random_range(0..64)])).collect()
}

fn event(rng: &mut StdRng) -> Value {
    let reasons = ["Pulled", "Created", "Started", "Scheduled", "Killing"];
    json!({
        "metadata": {},
        "regarding": { "kind": "Pod", "name": format!("web-{}", pods::suffix(rng, 5)) },
        "reason": reasons[rng.random_range(0..reasons.len())],
        "type": "Normal",
        "note": format!("Container image pulled in {} ms", rng.random_range(10..5_000)),
    })
}

fn settings(rng: &mut StdRng) -> Value {
    let mut line = |number| format!("option.{number}.of.the.server = {}\n", rng.random_range(0..100_000));
    let lines = (0..14).map(&mut line).collect::<Vec<_>>().concat();
    json!({
        "metadata": { "labels": { "app": "settings" } },
        "spec": { "data": { "server.properties": lines, "checksum": pods::hex(rng, 64), "LOG_LEVEL": "info" } },
    })
}

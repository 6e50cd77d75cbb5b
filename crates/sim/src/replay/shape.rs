//! Content of a replay server's objects: pods, and objects that are expensive for a cache.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::super::pods::{self, ReplicaSet};

/// Content of objects. All are served as the resource pods, whatever their content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// Pods of about 9.3 KB, as apiservers send them, in ReplicaSets of three to ten.
    #[default]
    Pods,
    /// Pods of about 9.3 KB, each with its own ReplicaSet: no two share labels, owner or template.
    LonePods,
    /// Pods of about 600 B.
    SmallPods,
    /// Small pods with 6 KB of random text each, which a compression dictionary does not reduce.
    Noise,
    /// Objects with 1 MiB of random words each.
    Large,
    /// Objects of about 400 B, like an Event.
    Events,
    /// Objects of about 1 KB, like a ConfigMap of settings.
    Settings,
    /// Small pods, each with a unique label value.
    DistinctLabels,
    /// Small pods, all on one node and with one image.
    OneValue,
    /// A first half of settings, and a second half of pods of 9.3 KB. A dictionary trained on the first objects does
    /// not fit the second half.
    Changing,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 10] = [
        Self::Pods,
        Self::LonePods,
        Self::SmallPods,
        Self::Noise,
        Self::Large,
        Self::Events,
        Self::Settings,
        Self::DistinctLabels,
        Self::OneValue,
        Self::Changing,
    ];

    /// Returns the shape with this `Debug` name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| format!("{shape:?}") == name)
    }

    /// Creates the object at index `at`.
    pub(super) fn object(self, rng: &mut StdRng, workloads: &mut Workloads, common: &Common<'_>, at: usize) -> Sketch {
        let other = |name: String, body: Value| {
            // In the order of keys, as apiservers list.
            let mut namespaces = pods::NAMESPACES;
            namespaces.sort_unstable();
            Sketch { namespace: namespaces[at * namespaces.len() / common.count], name, body }
        };
        let mut pod =
            |rng: &mut StdRng, nodes, small| workloads.pod(rng, |rng, set| set.pod(rng, nodes, common.time, small));
        match self {
            Self::Pods | Self::LonePods => pod(rng, common.nodes, false),
            Self::SmallPods => pod(rng, common.nodes, true),
            Self::Noise => {
                let mut sketch = pod(rng, common.nodes, true);
                sketch.body["spec"]["noise"] = json!(noise(rng, 6_000));
                sketch
            }
            Self::Large => {
                let text: String = (0..170_000).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect();
                other(format!("large-{at:07}"), json!({ "metadata": {}, "spec": { "data": { "text": text } } }))
            }
            Self::Events => other(format!("web.17c9{at:08x}"), event(rng)),
            Self::Settings => other(format!("settings-{at:07}"), settings(rng)),
            Self::DistinctLabels => {
                let mut sketch = pod(rng, common.nodes, true);
                sketch.body["metadata"]["labels"]["session"] = json!(format!("session-{at:012}"));
                sketch
            }
            Self::OneValue => {
                let mut sketch = pod(rng, 1, true);
                sketch.body["spec"]["containers"][0]["image"] = json!("registry.example.com/web/server:1.0.0");
                sketch
            }
            Self::Changing if at < common.count / 2 => Self::Settings.object(rng, workloads, common, at),
            Self::Changing => Self::Pods.object(rng, workloads, common, at),
        }
    }
}

/// Values shared by all objects of a server.
pub(super) struct Common<'t> {
    pub(super) count: usize,
    pub(super) nodes: usize,
    pub(super) time: &'t str,
}

/// Object without the metadata that an apiserver adds.
pub(super) struct Sketch {
    pub(super) namespace: &'static str,
    pub(super) name: String,
    pub(super) body: Value,
}

/// ReplicaSets in the order of their keys, which is also the order of their pods in a list.
pub(super) struct Workloads {
    planned: std::vec::IntoIter<Planned>,
    /// Namespace of the current ReplicaSet, the ReplicaSet, and the name suffixes of its pods that are not created yet,
    /// in descending order.
    current: Option<(&'static str, ReplicaSet, Vec<String>)>,
}

/// ReplicaSet that is not created yet. Holding all ReplicaSets of a million pods would take too much memory.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    namespace: &'static str,
    app: &'static str,
    hash: String,
    replicas: usize,
}

impl Workloads {
    /// Plans the ReplicaSets for `pods` pods of a shape.
    pub(super) fn new(rng: &mut StdRng, shape: Shape, pods: usize) -> Self {
        let (mut planned, mut left) = (Vec::new(), pods);
        while left > 0 {
            let replicas = if shape == Shape::LonePods { 1 } else { rng.random_range(3..=10).min(left) };
            left -= replicas;
            let namespace = pods::NAMESPACES[rng.random_range(0..pods::NAMESPACES.len())];
            let (app, hash) = (ReplicaSet::app(rng), pods::suffix(rng, 9));
            planned.push(Planned { namespace, app, hash, replicas });
        }
        planned.sort_unstable();
        Self { planned: planned.into_iter(), current: None }
    }

    fn pod(&mut self, rng: &mut StdRng, body: impl FnOnce(&mut StdRng, &ReplicaSet) -> Value) -> Sketch {
        let mut current = self.current.take().filter(|(_, _, ends)| !ends.is_empty()).unwrap_or_else(|| {
            let set = self.planned.next().expect("the plan covers all pods");
            let mut ends: Vec<_> = (0..set.replicas).map(|_| pods::suffix(rng, 5)).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            (set.namespace, ReplicaSet::named(rng, set.app, &set.hash), ends)
        });
        let (namespace, set, ends) = &mut current;
        let name = format!("{}-{}", set.name(), ends.pop().unwrap_or_default());
        let sketch = Sketch { namespace, name, body: body(rng, set) };
        self.current = Some(current);
        sketch
    }
}

const WORDS: [&str; 16] = [
    "alpha ", "bravo ", "charly ", "delta ", "echo ", "foxtrot ", "golf ", "hotel ", "india ", "juliet ", "kilo ",
    "lima ", "mike ", "oscar ", "papa ", "quebec ",
];

/// Returns random text of 64 different characters. It cannot be compressed below three quarters of its size.
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

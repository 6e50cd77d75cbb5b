//! What goes wrong, and when: a script written by hand or drawn from a seed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::answer::RawAnswer;

/// One thing that a simulated apiserver does wrong with one request.
///
/// After any of them, and the end of the script, a correct client converges on the truth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The TCP connection is reset (RST) in mid-answer.
    Reset,
    /// Nothing more is sent for this long (or until the script heals); then the answer goes on.
    Stall(Duration),
    /// Half a line (half an item of a list), then the answer ends as if complete.
    HalfLine,
    /// An ERROR event with code 410 in the stream, which then ends.
    ExpireWatch,
    /// HTTP 410 instead of an answer.
    HttpGone,
    /// HTTP 429 with this `Retry-After`, in seconds.
    Throttle(u32),
    /// HTTP 500 instead of an answer.
    InternalError,
    /// HTTP 503 without `Retry-After` instead of an answer.
    Unavailable,
    /// An ERROR event with code 500 in the stream, which then ends.
    ErrorEvent,
    /// HTTP 200 with an HTML page, as a captive proxy answers.
    WrongContentType,
    /// Bytes that are not JSON in the middle, then the end.
    Garbage,
    /// The next event (item) arrives a few bytes at a time.
    SlowDrip,
    /// The next event is never sent, the watch closes, and history is compacted: only a relist tells.
    DropEvents,
    /// The answer ends, in good order for a watch.
    EarlyClose,
    /// This watch sends no bookmarks but the one that ends a streaming list.
    NoBookmarks,
    /// A streaming list never gets the bookmark that ends it. Not drawn by seeded scripts: a client without a
    /// deadline of its own waits until the watch times out.
    WithholdMarker,
    /// HTTP 422 to `sendInitialEvents`, as a server without the feature answers.
    RefuseStreaming,
    /// `sendInitialEvents` is ignored, as a proxy that strips parameters makes it.
    IgnoreStreaming,
    /// The whole cluster refuses connections for this long (or until the script heals); open ones are cut.
    Down(Duration),
    /// An object without a name comes before the next event (item).
    NamelessObject,
    /// An event of a type that nobody knows comes before the next event.
    UnknownEventType,
    /// The next event has `object` before `type`.
    ReorderedKeys,
    /// The next event is padded to this many bytes; then the watch expires with an in-stream 410.
    HugeObject(usize),
    /// This instead of the answer. Not drawn by seeded scripts.
    Answer(RawAnswer),
    /// These bytes, as they are, as a line of a watch or an item of a list. A watch does not wait for an event to put
    /// them in. Not drawn by seeded scripts.
    Insert(Bytes),
}

/// What kind of request a fault is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Any request.
    Any,
    /// A list, whichever page.
    List,
    /// A later page of a list.
    Continue,
    /// A watch, streaming or not.
    Watch,
    /// A watch with `sendInitialEvents`.
    Streaming,
    /// Discovery and health.
    Discovery,
}

/// What a request turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    List,
    Continue,
    Watch,
    Streaming,
    Discovery,
}

impl When {
    fn covers(self, kind: RequestKind) -> bool {
        match self {
            Self::Any => true,
            Self::List => matches!(kind, RequestKind::List | RequestKind::Continue),
            Self::Continue => kind == RequestKind::Continue,
            Self::Watch => matches!(kind, RequestKind::Watch | RequestKind::Streaming),
            Self::Streaming => kind == RequestKind::Streaming,
            Self::Discovery => kind == RequestKind::Discovery,
        }
    }
}

/// One line of a script: the fault, for which requests, how far into the answer, how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    when: When,
    resource: Option<String>,
    fault: Fault,
    after: usize,
    skip: usize,
    times: usize,
}

impl Rule {
    /// `fault`, once, for the next request that `when` covers, before its first event or item.
    #[must_use]
    pub fn new(when: When, fault: Fault) -> Self {
        Self { when, resource: None, fault, after: 0, skip: 0, times: 1 }
    }

    /// Strikes after this many events (items) of the answer.
    #[must_use]
    pub fn after(mut self, events: usize) -> Self {
        self.after = events;
        self
    }

    /// Lets this many requests pass unharmed first.
    #[must_use]
    pub fn skip(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Strikes this many requests instead of one.
    #[must_use]
    pub fn times(mut self, requests: usize) -> Self {
        self.times = requests;
        self
    }

    /// Strikes requests for this resource (plural name) only.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }
}

/// A fault that one request has been given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Armed {
    pub(super) fault: Fault,
    pub(super) after: usize,
}

/// Decides for each request what goes wrong. Rules first, in their order; then chance, where the script has a seed.
///
/// Every script ends: a rule strikes a bounded number of requests, and a seed has a budget of faults.
#[derive(Clone, Debug, Default)]
pub struct FaultScript {
    rules: Vec<Rule>,
    chance: Option<Chance>,
}

#[derive(Clone, Debug)]
struct Chance {
    rng: StdRng,
    probability: f64,
    left: usize,
}

impl FaultScript {
    /// A script without faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A script of one rule.
    #[must_use]
    pub fn one(rule: Rule) -> Self {
        Self::none().with(rule)
    }

    /// Adds a rule at the end.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Faults at random. `intensity` (0 to 1) is the share of requests that are struck, until 40 × `intensity`
    /// (at least one) have been.
    #[must_use]
    pub fn seeded(seed: u64, intensity: f64) -> Self {
        let probability = intensity.clamp(0.0, 1.0);
        let left = (1..40_u32).take_while(|count| f64::from(*count) < probability * 40.0).count() + 1;
        Self { rules: Vec::new(), chance: Some(Chance { rng: StdRng::seed_from_u64(seed), probability, left }) }
    }

    /// Whether nothing can go wrong any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.rules.iter().all(|rule| rule.times == 0) && self.chance.as_ref().is_none_or(|chance| chance.left == 0)
    }

    pub(super) fn decide(&mut self, kind: RequestKind, resource: &str, by_name: bool) -> Option<Armed> {
        for rule in &mut self.rules {
            let about = rule.resource.as_deref().map_or(!by_name, |wanted| wanted == resource);
            if rule.times == 0 || !about || !rule.when.covers(kind) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return Some(Armed { fault: rule.fault.clone(), after: rule.after });
        }
        self.chance.as_mut().filter(|_| !by_name)?.draw(kind)
    }
}

impl Chance {
    fn draw(&mut self, kind: RequestKind) -> Option<Armed> {
        if self.left == 0 || !self.rng.random_bool(self.probability) {
            return None;
        }
        self.left -= 1;
        let mut faults = vec![
            Fault::Throttle(self.rng.random_range(0..2)),
            Fault::InternalError,
            Fault::Unavailable,
            Fault::WrongContentType,
            Fault::Reset,
        ];
        let brief = Duration::from_millis(self.rng.random_range(20..300));
        if kind != RequestKind::Discovery {
            faults.extend([
                Fault::Stall(brief),
                Fault::Down(brief),
                Fault::HalfLine,
                Fault::HttpGone,
                Fault::Garbage,
                Fault::SlowDrip,
                Fault::EarlyClose,
                Fault::NamelessObject,
            ]);
        }
        if matches!(kind, RequestKind::Watch | RequestKind::Streaming) {
            faults.extend([
                Fault::ExpireWatch,
                Fault::ErrorEvent,
                Fault::DropEvents,
                Fault::NoBookmarks,
                Fault::UnknownEventType,
                Fault::ReorderedKeys,
                Fault::HugeObject(self.rng.random_range(1..6) << 20),
            ]);
        }
        if kind == RequestKind::Streaming {
            faults.extend([Fault::RefuseStreaming, Fault::IgnoreStreaming]);
        }
        let fault = faults.swap_remove(self.rng.random_range(0..faults.len()));
        Some(Armed { fault, after: self.rng.random_range(0..12) })
    }
}

/// A fault that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    /// The request that it happened to.
    pub request: String,
    /// Events (items) of the answer that had been sent.
    pub sent: usize,
    /// What happened.
    pub fault: Fault,
}

impl fmt::Display for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} of {}", self.fault, self.sent, self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_strikes_what_it_names_and_as_often_as_it_says() {
        let rule = Rule::new(When::Watch, Fault::Reset).resource("pods").skip(1).times(2).after(3);
        let mut script = FaultScript::one(rule);
        assert_eq!(script.decide(RequestKind::List, "pods", false), None);
        assert_eq!(script.decide(RequestKind::Watch, "nodes", false), None);
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), None, "skipped");
        let armed = Some(Armed { fault: Fault::Reset, after: 3 });
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), armed);
        assert_eq!(script.decide(RequestKind::Streaming, "pods", false), armed);
        assert!(script.is_over());
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), None);
    }

    #[test]
    fn equal_seeds_make_equal_scripts_that_end() {
        let run = |seed| {
            let mut script = FaultScript::seeded(seed, 0.5);
            let drawn: Vec<_> = (0..500).map(|_| script.decide(RequestKind::Streaming, "pods", false)).collect();
            assert!(script.is_over());
            drawn
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_eq!(run(1).iter().flatten().count(), 20);
    }
}

//! Fault scripts: the faults of a simulated apiserver and when they strike, by rules or drawn from a seed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::answer::RawAnswer;
use super::bad_protobuf::BadProtobuf;

/// How a simulated apiserver misbehaves in one request. "Event (item)" means an event of a watch or an item of a list.
///
/// Once the script has no faults left, a correct client converges on the server's state.
/// [`SimServer::heal`](crate::SimServer::heal) ends all faults at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Resets the TCP connection (RST) in the middle of the answer.
    Reset,
    /// Sends nothing for this long, or until the test ends all faults, then continues the answer.
    Stall(Duration),
    /// Resets the HTTP/2 stream in the middle of the answer. Over HTTP/1.1 the connection closes.
    ResetStream,
    /// Sends a GOAWAY and continues the answer. The connection accepts no further requests, and closes when its running
    /// answers are complete.
    GoAway,
    /// Neither reads nor sends anything on the connection for this long, or until the test ends all faults.
    Freeze(Duration),
    /// Sends this many thousandths of the bytes of the next event (item), then ends the answer as if complete.
    Cut(u16),
    /// Sends an ERROR event with code 410, then ends the stream.
    ExpireWatch,
    /// Answers HTTP 410.
    HttpGone,
    /// Answers HTTP 429 with this `Retry-After`, in seconds.
    Throttle(u32),
    /// Answers HTTP 500.
    InternalError,
    /// Answers HTTP 503 without `Retry-After`.
    Unavailable,
    /// Sends an ERROR event with code 500, then ends the stream.
    ErrorEvent,
    /// Answers HTTP 200 with an HTML page, like a captive proxy.
    WrongContentType,
    /// Sends bytes that are neither JSON nor protobuf, then ends the answer.
    Garbage,
    /// Sends the next event (item) a few bytes at a time.
    SlowDrip,
    /// Drops the next event, closes the watch and compacts the history, so that only a relist shows the change.
    DropEvents,
    /// Ends the answer; for a watch this is a regular end.
    EarlyClose,
    /// Sends no bookmarks on this watch except the one that ends a streaming list.
    NoBookmarks,
    /// Never sends the bookmark that ends the initial events of a streaming list. Not drawn by seeded scripts: a client
    /// without a deadline waits until the watch times out.
    WithholdMarker,
    /// Answers HTTP 422 to `sendInitialEvents`, like a server without the feature.
    RefuseStreaming,
    /// Ignores `sendInitialEvents`, as if a proxy had stripped the parameter.
    IgnoreStreaming,
    /// Cuts all connections of the cluster and refuses new ones for this long, or until the test ends all faults.
    Down(Duration),
    /// Sends an object without a name before the next event (item).
    NamelessObject,
    /// Sends an event of an unknown type before the next event.
    UnknownEventType,
    /// Sends the next event with `object` before `type`, in protobuf too.
    ReorderedKeys,
    /// Pads the next event to this many bytes, then expires the watch with an in-stream 410.
    HugeObject(usize),
    /// Sends this answer instead of the regular one. Not drawn by seeded scripts.
    Answer(RawAnswer),
    /// Inserts these bytes into a watch unchanged, without waiting for an event. In a list, inserts them as an item; in
    /// protobuf, the tag and length of an item precede them. Not drawn by seeded scripts.
    Insert(Bytes),
    /// Corrupts an answer in protobuf.
    BadProtobuf(BadProtobuf),
}

/// Kind of request that a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Any request.
    Any,
    /// Any page of a list.
    List,
    /// A page of a list after the first, requested with a `continue` token.
    Continue,
    /// A watch, streaming or not.
    Watch,
    /// A watch with `sendInitialEvents`.
    Streaming,
    /// A list of one object, by which a client reads the current version. `List` does not cover such requests.
    Check,
    /// A request for a discovery document, the version or a health endpoint.
    Discovery,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// A list of one object, by which a client reads the current version.
    Check,
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
            Self::Check => kind == RequestKind::Check,
            Self::Discovery => kind == RequestKind::Discovery,
        }
    }
}

/// Rule of a fault script: which requests get a fault, how many of them, and at which event (item) of the answer.
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
    /// Creates a rule that strikes one request: the next one that `when` covers. The fault strikes before the first
    /// event or item of the answer.
    #[must_use]
    pub fn new(when: When, fault: Fault) -> Self {
        Self { when, resource: None, fault, after: 0, skip: 0, times: 1 }
    }

    /// Makes the rule strike after this many events (of a watch) or items (of a list) of the answer.
    #[must_use]
    pub fn after(mut self, events: usize) -> Self {
        self.after = events;
        self
    }

    /// Makes the rule skip this many matching requests first.
    #[must_use]
    pub fn skip(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Makes the rule strike this many requests instead of one.
    #[must_use]
    pub fn times(mut self, requests: usize) -> Self {
        self.times = requests;
        self
    }

    /// Makes the rule strike only requests for this resource (plural name).
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }
}

/// Fault for one request, and the number of events (of a watch) or items (of a list) after which it strikes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AssignedFault {
    pub(super) fault: Fault,
    pub(super) after: usize,
}

/// Assigns faults to requests: first the rules in their order, then random faults if the script has a seed.
///
/// Every script ends: a rule strikes a bounded number of requests, and a seeded script has a bounded number of faults.
#[derive(Clone, Debug, Default)]
pub struct FaultScript {
    rules: Vec<Rule>,
    random: Option<RandomFaults>,
}

#[derive(Clone, Debug)]
struct RandomFaults {
    rng: StdRng,
    /// Whether random faults include faults of HTTP/2 connections.
    http2: bool,
    /// Whether random faults include the faults in [`BadProtobuf`].
    protobuf: bool,
    probability: f64,
    left: usize,
}

impl FaultScript {
    /// Creates a script without faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a script of one rule.
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

    /// Creates a script of random faults from a seed. `intensity` (0 to 1) is the probability that a request is struck.
    /// The script ends after 40 × `intensity` faults, at least one.
    #[must_use]
    pub fn seeded(seed: u64, intensity: f64) -> Self {
        let probability = intensity.clamp(0.0, 1.0);
        let left = (1..40_u32).take_while(|count| f64::from(*count) < probability * 40.0).count() + 1;
        let rng = StdRng::seed_from_u64(seed);
        Self { rules: Vec::new(), random: Some(RandomFaults { rng, http2: false, protobuf: false, probability, left }) }
    }

    /// Lets a seeded script also draw faults of HTTP/2 connections.
    #[must_use]
    pub fn with_http2(mut self) -> Self {
        if let Some(random) = &mut self.random {
            random.http2 = true;
        }
        self
    }

    /// Lets a seeded script also draw the faults in [`BadProtobuf`].
    #[must_use]
    pub fn with_protobuf(mut self) -> Self {
        if let Some(random) = &mut self.random {
            random.protobuf = true;
        }
        self
    }

    /// Returns whether no fault is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.rules.iter().all(|rule| rule.times == 0) && self.random.as_ref().is_none_or(|random| random.left == 0)
    }

    /// Returns the fault for a request; `None` if it is answered correctly. If `by_name`, only rules that name the
    /// requested resource apply, and no random faults.
    pub(super) fn decide(&mut self, kind: RequestKind, resource: &str, by_name: bool) -> Option<AssignedFault> {
        for rule in &mut self.rules {
            let matches = rule.resource.as_deref().map_or(!by_name, |required| required == resource);
            if rule.times == 0 || !matches || !rule.when.covers(kind) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return Some(AssignedFault { fault: rule.fault.clone(), after: rule.after });
        }
        self.random.as_mut().filter(|_| !by_name)?.draw(kind)
    }
}

impl RandomFaults {
    fn draw(&mut self, kind: RequestKind) -> Option<AssignedFault> {
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
                Fault::Cut(self.rng.random_range(0..=1000)),
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
        if self.http2 {
            faults.extend([Fault::GoAway, Fault::ResetStream, Fault::Freeze(brief)]);
        }
        if self.protobuf && kind != RequestKind::Discovery {
            // Protobuf faults are drawn four times as often as any other fault.
            faults.extend(
                (0..4)
                    .map(|_| BadProtobuf::ALL[self.rng.random_range(0..BadProtobuf::ALL.len())])
                    .map(Fault::BadProtobuf),
            );
        }
        let fault = faults.swap_remove(self.rng.random_range(0..faults.len()));
        Some(AssignedFault { fault, after: self.rng.random_range(0..12) })
    }
}

/// Record of a fault that struck.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    /// Method and URI of the request.
    pub request: String,
    /// Number of events (of a watch) or items (of a list) sent before the fault.
    pub sent: usize,
    /// The fault.
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
    fn rule_strikes_its_requests_the_given_number_of_times() {
        let rule = Rule::new(When::Watch, Fault::Reset).resource("pods").skip(1).times(2).after(3);
        let mut script = FaultScript::one(rule);
        assert_eq!(script.decide(RequestKind::List, "pods", false), None);
        assert_eq!(script.decide(RequestKind::Watch, "nodes", false), None);
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), None, "skipped");
        let armed = Some(AssignedFault { fault: Fault::Reset, after: 3 });
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), armed);
        assert_eq!(script.decide(RequestKind::Streaming, "pods", false), armed);
        assert!(script.is_over());
        assert_eq!(script.decide(RequestKind::Watch, "pods", false), None);
    }

    #[test]
    fn equal_seeds_draw_equal_scripts_that_end() {
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

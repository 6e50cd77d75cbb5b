//! Webhook receivers: HTTP servers over in-memory pipes with changing behaviour.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use informer_hub_sim::oracle::{EventContent, ReceivedEvent, Replica};
use informer_hub_types::clock;
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use tokio::io::{DuplexStream, duplex};

use crate::testbed::Testbed;

/// Buffer of one connection in each direction, in bytes.
const IN_FLIGHT: usize = 16 * 1024;

/// Behaviour of a receiver until the next change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum ReceiverBehaviour {
    Good,
    /// Answers after this long.
    Slow(Duration),
    /// Accepts connections and bodies, and never answers.
    Silent,
    /// Answers this share of requests with 500.
    Failing(f64),
    /// Answers this share of requests with `Retry-After`.
    Busy(f64),
    /// Cuts the connection of this share of requests, half of them after accepting the batch.
    Cutting(f64),
    /// Refuses connections.
    Down,
    /// Refuses connections for a whole run of the hub.
    DownForRun,
}

/// Permanent limits of a receiver on content.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limits {
    /// Refuses one in this many events.
    pub(crate) refuse_one_in: Option<u64>,
    /// Refuses batches with more events.
    pub(crate) max_events: Option<usize>,
}

/// Webhook receiver, which outlives hubs.
pub(crate) struct Receiver {
    pub(crate) name: &'static str,
    pub(crate) behaviour: Mutex<ReceiverBehaviour>,
    pub(crate) limits: Mutex<Limits>,
    ledger: Mutex<Ledger>,
}

/// Everything that a receiver has accepted.
#[derive(Default)]
struct Ledger {
    /// Each event as it first arrived, by its id.
    events: HashMap<String, Value>,
    /// The events in the order of arrival.
    received: Vec<ReceivedEvent>,
    /// The newest state of each object.
    newest: HashMap<String, Rank>,
    /// Ids of replayed dead letters with the number of their replay. They may arrive after newer states of their
    /// objects. `None`: several replays, between which there is no order.
    replayed: BTreeMap<String, Option<u64>>,
    replays: u64,
    /// The newest state of each replay and object.
    newest_replayed: HashMap<(u64, String), Rank>,
    violations: Vec<String>,
    late: Vec<Late>,
    /// Ids of events refused for their content.
    refused: BTreeSet<String>,
    /// Whether the hub gives up on batches. A kill can undo the giving up. The event then arrives after newer ones.
    gives_up: bool,
}

/// Event that arrived after a newer state of its object.
struct Late {
    id: String,
    object: String,
    description: String,
}

/// Rank of a state among those of its object: version, then whether it is deleted.
type Rank = (u64, bool);

// === impl Receiver ===

impl Receiver {
    pub(crate) fn new(name: &'static str, limits: Limits, gives_up: bool) -> Self {
        Self {
            name,
            behaviour: Mutex::new(ReceiverBehaviour::Good),
            limits: Mutex::new(limits),
            ledger: Mutex::new(Ledger { gives_up, ..Ledger::default() }),
        }
    }

    /// Opens a connection, served on the current runtime.
    pub(crate) fn connect(self: &Arc<Self>, bed: &Arc<Testbed>) -> io::Result<DuplexStream> {
        if matches!(*self.behaviour.lock(), ReceiverBehaviour::Down | ReceiverBehaviour::DownForRun) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(IN_FLIGHT);
        let (receiver, bed) = (Arc::clone(self), Arc::clone(bed));
        tokio::spawn(async move {
            let answer = service_fn(|request| receiver.answer(&bed, request));
            let connection =
                http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(ours), answer);
            // A cut connection ends with an error.
            let _ = connection.await;
        });
        Ok(theirs)
    }

    /// Answers a request. An error cuts the connection.
    async fn answer(
        &self,
        bed: &Testbed,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
        let body = request.into_body().collect().await?.to_bytes();
        let events: Vec<Value> = serde_json::from_slice(&body)?;
        let with = |status: StatusCode| Response::builder().status(status);
        let plain = |status| Ok(with(status).body(Full::default())?);
        let behaviour = *self.behaviour.lock();
        let (share, first, second) =
            bed.random(|rng| (rng.random::<f64>(), rng.random_bool(0.5), rng.random_range(0..5)));
        match behaviour {
            ReceiverBehaviour::Slow(pause) => tokio::time::sleep(pause).await,
            ReceiverBehaviour::Silent => std::future::pending().await,
            ReceiverBehaviour::Failing(failing) if share < failing => return plain(StatusCode::INTERNAL_SERVER_ERROR),
            ReceiverBehaviour::Busy(busy) if share < busy => {
                let (status, after) = if first {
                    (StatusCode::TOO_MANY_REQUESTS, second.to_string())
                } else {
                    let date = clock::wall() + Duration::from_secs(second);
                    (StatusCode::SERVICE_UNAVAILABLE, httpdate::fmt_http_date(date.into()))
                };
                return Ok(with(status).header(RETRY_AFTER, after).body(Full::default())?);
            }
            ReceiverBehaviour::Cutting(cutting) if share < cutting && first => return Err("cut".into()),
            _ => {}
        }
        if let Some(refusal) = self.refuses(&events) {
            bed.note(|| format!("{}: refuses {} events with {refusal}", self.name, events.len()));
            return plain(refusal);
        }
        for event in events {
            self.record(bed, event)?;
        }
        match behaviour {
            ReceiverBehaviour::Cutting(cutting) if share < cutting => Err("cut after accepting".into()),
            _ => plain(StatusCode::NO_CONTENT),
        }
    }

    fn refuses(&self, events: &[Value]) -> Option<StatusCode> {
        let limits = *self.limits.lock();
        if limits.max_events.is_some_and(|max| events.len() > max) {
            return Some(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let one_in = limits.refuse_one_in?;
        let id = events.iter().map(|event| &event["id"]).find(|id| digest(self.name, id).is_multiple_of(one_in))?;
        self.ledger.lock().refused.extend(id.as_str().map(str::to_owned));
        let digest = digest(self.name, id);
        Some(if (digest / one_in).is_multiple_of(2) {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        })
    }

    fn record(&self, bed: &Testbed, event: Value) -> Result<(), Box<dyn Error + Send + Sync>> {
        let received = ReceivedEvent::from_event(&event)?;
        bed.note(|| format!("{}: {} {:?}", self.name, received.origin, received.content));
        self.ledger.lock().record(event, received);
        Ok(())
    }

    /// Registers a replay of these dead letters in this order.
    pub(crate) fn expect_replay(&self, ids: &[String]) {
        let mut ledger = self.ledger.lock();
        ledger.replays += 1;
        let replay = ledger.replays;
        for id in ids {
            ledger.replayed.entry(id.clone()).and_modify(|replay| *replay = None).or_insert(Some(replay));
        }
    }

    /// Returns the objects according to the received events, with late dead letters put in order.
    pub(crate) fn replica(&self) -> Replica {
        self.ledger.lock().replica()
    }

    /// Returns the impossible events and the violations of order.
    pub(crate) fn violations(&self) -> Vec<String> {
        let ledger = self.ledger.lock();
        // An event that became a dead letter while the disk failed is also delivered again from the journal.
        let may_be_late = |id| ledger.gives_up || ledger.may_be_letter(id);
        let late = ledger.late.iter().filter(|late| !may_be_late(&late.id)).map(|late| &late.description);
        ledger.violations.iter().chain(late).chain(ledger.replica().violations()).cloned().collect()
    }
}

fn digest(name: &str, id: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, id.as_str()).hash(&mut hasher);
    hasher.finish()
}

// === impl Ledger ===

impl Ledger {
    fn record(&mut self, mut event: Value, received: ReceivedEvent) {
        let id = received.id.clone().unwrap_or_default();
        if let Some(event) = event.as_object_mut() {
            // A repeated event has a new sequence number. An event that the hub observed again has a new time.
            event.remove("sequence");
            event.remove("time");
        }
        if let Some(first) = self.events.get(&id) {
            if *first != event {
                self.violations.push(format!("{id} arrived as {first}, and later as {event}"));
            }
        } else {
            if let Some((object, rank)) = rank(&received) {
                self.record_rank(&id, &object, rank);
            }
            self.events.insert(id, event);
            self.received.push(received);
        }
    }

    fn record_rank(&mut self, id: &str, object: &str, rank: Rank) {
        let before = match self.replayed.get(id) {
            None => self.newest.insert(object.to_owned(), rank),
            Some(Some(replay)) => self.newest_replayed.insert((*replay, object.to_owned()), rank),
            Some(None) => return,
        };
        if let Some(newest) = before.filter(|newest| *newest >= rank) {
            let description = format!("{object} arrived at {rank:?} after {newest:?}: {id}");
            self.late.push(Late { id: id.to_owned(), object: object.to_owned(), description });
        }
    }

    /// Returns whether an event may be a dead letter.
    fn may_be_letter(&self, id: &String) -> bool {
        self.replayed.contains_key(id) || self.refused.contains(id)
    }

    fn replica(&self) -> Replica {
        let mut replica = Replica::at_least_once();
        let mut late: BTreeMap<String, Vec<(Rank, &ReceivedEvent)>> = BTreeMap::new();
        let letters = self.received.iter().filter(|it| it.id.as_ref().is_some_and(|id| self.may_be_letter(id)));
        let mut late_objects: BTreeSet<_> = letters.filter_map(|received| Some(rank(received)?.0)).collect();
        if self.gives_up {
            late_objects.extend(self.late.iter().map(|late| late.object.clone()));
        }
        for received in &self.received {
            match rank(received) {
                Some((object, rank)) if late_objects.contains(&object) => {
                    late.entry(object).or_default().push((rank, received));
                }
                _ => replica.record(received),
            }
        }
        for mut states in late.into_values() {
            states.sort_by_key(|(rank, _)| *rank);
            for (_, received) in states {
                replica.record(received);
            }
        }
        replica
    }
}

/// Returns the object of an event and the rank of its state.
fn rank(received: &ReceivedEvent) -> Option<(String, Rank)> {
    let (object, is_deleted) = match &received.content {
        EventContent::Synced => return None,
        EventContent::Added { object, .. } | EventContent::Updated { object, .. } => (object, false),
        EventContent::Deleted { object, .. } => (object, true),
    };
    let version = object.version.as_number()?;
    Some((format!("{} {}", received.origin, object.key), (version, is_deleted)))
}

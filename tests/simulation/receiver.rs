//! Receivers of webhooks: HTTP servers over pipes, one of which may refuse, cut, keep silent or be away.

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
use informer_hub_sim::oracle::{Replica, Told, What};
use informer_hub_types::clock;
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use tokio::io::{DuplexStream, duplex};

use crate::house::House;

/// What is on its way on one connection, each way.
const IN_FLIGHT: usize = 16 * 1024;

/// How a receiver is, until that changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Manners {
    Good,
    /// Answers after this long.
    Late(Duration),
    /// Takes connections and bodies, and never answers.
    Mute,
    /// Answers this share of requests with 500.
    Failing(f64),
    /// Asks this share of requests to come back later.
    Busy(f64),
    /// Cuts the connection of this share of requests, half of them after taking the batch.
    Cutting(f64),
    /// Takes no connections.
    Away,
    /// The same for a whole life of the hub.
    Gone,
}

/// What it does not like about content, ever.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Taste {
    /// It refuses one in so many events.
    pub(crate) poison: Option<u64>,
    /// More events at once are too many for it.
    pub(crate) most: Option<usize>,
}

/// A receiver, which outlives hubs.
pub(crate) struct Receiver {
    pub(crate) name: &'static str,
    pub(crate) manners: Mutex<Manners>,
    pub(crate) taste: Mutex<Taste>,
    book: Mutex<Book>,
}

/// What a receiver was told.
#[derive(Default)]
struct Book {
    /// Each event as it came first, by its id.
    events: HashMap<String, Value>,
    /// The same in the order of their coming.
    told: Vec<Told>,
    /// The newest state of each object.
    newest: HashMap<String, Rank>,
    /// Ids of dead letters that are delivered again, which may come after newer states of their objects, and with which
    /// of the replays. `None`: with several of them, between which there is no order.
    replayed: BTreeMap<String, Option<u64>>,
    replays: u64,
    /// The newest of each replay, by their objects.
    newest_replayed: HashMap<(u64, String), Rank>,
    violations: Vec<String>,
    /// What came after newer states of its object, by its id, and what is said of it.
    late: Vec<(String, String)>,
    /// Ids of what was refused for its content.
    refused: BTreeSet<String>,
}

/// Where a state is among those of its object: by its version, the deletion last.
type Rank = (u64, bool);

// === impl Receiver ===

impl Receiver {
    pub(crate) fn new(name: &'static str, taste: Taste) -> Self {
        Self { name, manners: Mutex::new(Manners::Good), taste: Mutex::new(taste), book: Mutex::default() }
    }

    /// Opens a connection, which is served on the runtime that this is called on.
    pub(crate) fn connect(self: &Arc<Self>, house: &Arc<House>) -> io::Result<DuplexStream> {
        if matches!(*self.manners.lock(), Manners::Away | Manners::Gone) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(IN_FLIGHT);
        let (receiver, house) = (Arc::clone(self), Arc::clone(house));
        tokio::spawn(async move {
            let answer = service_fn(|request| receiver.answer(&house, request));
            let connection =
                http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(ours), answer);
            // One that is cut ends so.
            let _ = connection.await;
        });
        Ok(theirs)
    }

    /// An error cuts the connection.
    async fn answer(
        &self,
        house: &House,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
        let body = request.into_body().collect().await?.to_bytes();
        let events: Vec<Value> = serde_json::from_slice(&body)?;
        let with = |status: StatusCode| Response::builder().status(status);
        let plain = |status| Ok(with(status).body(Full::default())?);
        let manners = *self.manners.lock();
        let (share, first, second) =
            house.chance(|rng| (rng.random::<f64>(), rng.random_bool(0.5), rng.random_range(0..5)));
        match manners {
            Manners::Late(pause) => tokio::time::sleep(pause).await,
            Manners::Mute => std::future::pending().await,
            Manners::Failing(failing) if share < failing => return plain(StatusCode::INTERNAL_SERVER_ERROR),
            Manners::Busy(busy) if share < busy => {
                let (status, after) = if first {
                    (StatusCode::TOO_MANY_REQUESTS, second.to_string())
                } else {
                    let date = clock::wall() + Duration::from_secs(second);
                    (StatusCode::SERVICE_UNAVAILABLE, httpdate::fmt_http_date(date.into()))
                };
                return Ok(with(status).header(RETRY_AFTER, after).body(Full::default())?);
            }
            Manners::Cutting(cutting) if share < cutting && first => return Err("cut".into()),
            _ => {}
        }
        if let Some(refusal) = self.refuses(&events) {
            house.note(|| format!("{}: refuses {} events: {refusal}", self.name, events.len()));
            return plain(refusal);
        }
        for event in events {
            self.take(house, event)?;
        }
        match manners {
            Manners::Cutting(cutting) if share < cutting => Err("took it, and cut".into()),
            _ => plain(StatusCode::NO_CONTENT),
        }
    }

    fn refuses(&self, events: &[Value]) -> Option<StatusCode> {
        let taste = *self.taste.lock();
        if taste.most.is_some_and(|most| events.len() > most) {
            return Some(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let one_in = taste.poison?;
        let id = events.iter().map(|event| &event["id"]).find(|id| digest(self.name, id).is_multiple_of(one_in))?;
        self.book.lock().refused.extend(id.as_str().map(str::to_owned));
        let poison = digest(self.name, id);
        Some(if (poison / one_in).is_multiple_of(2) {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        })
    }

    fn take(&self, house: &House, event: Value) -> Result<(), Box<dyn Error + Send + Sync>> {
        let told = Told::from_event(&event)?;
        house.note(|| format!("{}: {} {:?}", self.name, told.origin, told.what));
        self.book.lock().take(event, told);
        Ok(())
    }

    /// These dead letters come again from now on, in their order.
    pub(crate) fn expect_again(&self, ids: &[String]) {
        let mut book = self.book.lock();
        book.replays += 1;
        let replay = book.replays;
        for id in ids {
            book.replayed.entry(id.clone()).and_modify(|replay| *replay = None).or_insert(Some(replay));
        }
    }

    /// What it has been told, put in order where dead letters came late.
    pub(crate) fn replica(&self) -> Replica {
        self.book.lock().replica()
    }

    /// What it was told that cannot be, or in an order that cannot be.
    pub(crate) fn violations(&self) -> Vec<String> {
        let book = self.book.lock();
        // What was given up, and of which the disk did not take that, comes again from the journal, besides as a dead letter.
        let may_be_late = |id: &String| book.replayed.contains_key(id) || book.refused.contains(id);
        let late = book.late.iter().filter(|(id, _)| !may_be_late(id)).map(|(_, what)| what);
        book.violations.iter().chain(late).chain(book.replica().violations()).cloned().collect()
    }
}

fn digest(name: &str, id: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, id.as_str()).hash(&mut hasher);
    hasher.finish()
}

// === impl Book ===

impl Book {
    fn take(&mut self, mut event: Value, told: Told) {
        let id = told.id.clone().unwrap_or_default();
        if let Some(event) = event.as_object_mut() {
            // What is delivered again has a number of its own, and what the hub had to see again a time.
            event.remove("sequence");
            event.remove("time");
        }
        if let Some(first) = self.events.get(&id) {
            if *first != event {
                self.violations.push(format!("{id} came as {first}, and then as {event}"));
            }
        } else {
            if let Some((object, rank)) = place(&told) {
                self.put_in_line(&id, &object, rank);
            }
            self.events.insert(id, event);
            self.told.push(told);
        }
    }

    fn put_in_line(&mut self, id: &str, object: &str, rank: Rank) {
        let before = match self.replayed.get(id) {
            None => self.newest.insert(object.to_owned(), rank),
            Some(Some(replay)) => self.newest_replayed.insert((*replay, object.to_owned()), rank),
            Some(None) => return,
        };
        if let Some(newest) = before.filter(|newest| *newest >= rank) {
            self.late.push((id.to_owned(), format!("{object} was told of at {rank:?} after {newest:?}: {id}")));
        }
    }

    fn replica(&self) -> Replica {
        let mut replica = Replica::at_least_once();
        let mut late: BTreeMap<String, Vec<(Rank, &Told)>> = BTreeMap::new();
        let late_objects: BTreeSet<_> = self
            .told
            .iter()
            .filter(|told| {
                told.id.as_ref().is_some_and(|id| self.replayed.contains_key(id) || self.refused.contains(id))
            })
            .filter_map(|told| Some(place(told)?.0))
            .collect();
        for told in &self.told {
            match place(told) {
                Some((object, rank)) if late_objects.contains(&object) => {
                    late.entry(object).or_default().push((rank, told));
                }
                _ => replica.tell(told),
            }
        }
        for mut states in late.into_values() {
            states.sort_by_key(|(rank, _)| *rank);
            for (_, told) in states {
                replica.tell(told);
            }
        }
        replica
    }
}

/// The object that something is told of, and which state of it.
fn place(told: &Told) -> Option<(String, Rank)> {
    let (object, is_deleted) = match &told.what {
        What::Synced => return None,
        What::Added { object, .. } | What::Updated { object, .. } => (object, false),
        What::Deleted { object, .. } => (object, true),
    };
    let version = object.version.as_number()?;
    Some((format!("{} {}", told.origin, object.key), (version, is_deleted)))
}

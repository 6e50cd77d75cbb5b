//! Delivery contract tests on a paused clock, against scripted transports.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use actix::Addr;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::actors::sinks::sink::recoverable::RecoverySlot;
use crate::actors::subscribe::subscriber::{Deliver, Delivered};
use crate::actors::{ActorCount, Env, ThreadPools, Tuning};
use informer_hub_sink::test_objects::{added, pod};
use informer_hub_sink::{
    BatchParams, Bounds, EventOptions, EventType, Filter, LetterFilter, LetterSummary, Outcome, RetryParams, Selection,
    SinkHealth,
};
use informer_hub_types::{Notification, Rewinds, Threads};

mod overlap;
mod shutdown;

type Script = dyn Fn(usize, &[Event]) -> Outcome + Send + Sync;

/// Test transport that records accepted events. `script` decides the outcome of each attempt by its number, counted
/// from 0; the attempt takes the time `takes`.
struct ScriptedTransport {
    script: Box<Script>,
    takes: Duration,
    attempts: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    accepted: Mutex<Vec<Event>>,
}

impl fmt::Debug for ScriptedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedTransport")
    }
}

impl ScriptedTransport {
    fn new(script: impl Fn(usize, &[Event]) -> Outcome + Send + Sync + 'static) -> Arc<Self> {
        Self::slow(Duration::from_millis(5), script)
    }

    fn slow(takes: Duration, script: impl Fn(usize, &[Event]) -> Outcome + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            takes,
            attempts: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
            accepted: Mutex::default(),
        })
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Relaxed)
    }

    /// Returns the accepted versions by object.
    fn accepted(&self) -> HashMap<String, Vec<u64>> {
        let mut out = HashMap::<_, Vec<_>>::new();
        for event in self.accepted.lock().iter() {
            let value: Value = serde_json::from_str(event.json()).unwrap();
            let version = value["data"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            out.entry(event.subject().to_owned()).or_default().push(version);
        }
        out
    }
}

/// Shared handle of a scripted transport.
#[derive(Debug)]
struct Shared(Arc<ScriptedTransport>);

impl Transport for Shared {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let it = Arc::clone(&self.0);
        let attempt = it.attempts.fetch_add(1, Relaxed);
        async move {
            let now = it.in_flight.fetch_add(1, Relaxed) + 1;
            it.most_in_flight.fetch_max(now, Relaxed);
            tokio::time::sleep(it.takes).await;
            it.in_flight.fetch_sub(1, Relaxed);
            let outcome = (it.script)(attempt, &batch);
            if outcome == Outcome::Accepted {
                it.accepted.lock().extend(batch.iter().cloned());
            }
            outcome
        }
        .boxed()
    }
}

fn failed(error: &str) -> Outcome {
    Outcome::Retry { after: None, content: false, error: error.to_owned() }
}

struct TestSink {
    transport: Arc<ScriptedTransport>,
    health: Arc<SinkHealth>,
    store: Arc<parking_lot::Mutex<Store>>,
    sink: Addr<SinkActor>,
}

fn params(transport: &Arc<ScriptedTransport>) -> SinkParams {
    let machine = MachineParams {
        name: "test".into(),
        selection: Arc::default(),
        options: EventOptions::default(),
        batch: BatchParams { max_events: 10, ..BatchParams::default() },
        retry: RetryParams::default(),
        bounds: Bounds::default(),
        concurrency: NonZeroUsize::new(4).unwrap(),
        rate_limit: None,
        health: SinkHealth::new(),
    };
    SinkParams {
        machine,
        transport: Arc::new(Shared(Arc::clone(transport))),
        io: Threads::current(),
        place: None,
        fence: None,
    }
}

fn take(notifications: impl IntoIterator<Item = Notification>) -> AcceptNotifications {
    AcceptNotifications { notifications: notifications.into_iter().collect(), traced: None }
}

impl TestSink {
    fn start(transport: Arc<ScriptedTransport>) -> Self {
        Self::with(transport, |_| {})
    }

    fn with(transport: Arc<ScriptedTransport>, change: impl FnOnce(&mut SinkParams)) -> Self {
        let mut params = params(&transport);
        change(&mut params);
        let health = Arc::clone(&params.machine.health);
        let state = RecoverySlot::new(State::new(&params, None, &Rewinds::default())).claim().unwrap();
        let guard = ExitGuard::new(0, 0, None, &ActorCount::default());
        let store = Arc::new(parking_lot::Mutex::new(Store::in_memory()));
        let sink = SinkActor::new(params, state, Arc::clone(&store), guard).start();
        Self { transport, health, store, sink }
    }

    async fn send(&self, notifications: Vec<Notification>) {
        self.sink.send(take(notifications)).await.unwrap();
    }

    /// Sends notifications to the sink, and returns whether it answered within ten seconds of the paused clock.
    async fn takes(&self, notifications: Vec<Notification>) -> bool {
        let sent = tokio::time::timeout(Duration::from_secs(10), self.send(notifications));
        sent.await.is_ok()
    }

    fn letters(&self) -> Vec<LetterSummary> {
        self.store.lock().list_letters(&LetterFilter::default(), 0, usize::MAX).unwrap()
    }

    async fn drain(&self, within: Duration) -> DrainReport {
        self.sink.send(Drain { deadline: clock::now() + within }).await.unwrap()
    }
}

const LONG: Duration = Duration::from_secs(48 * 3600);

/// Runs a test on a paused clock in an actix system.
fn paused(test: impl Future<Output = ()>) {
    let system = actix_rt::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    });
    system.block_on(test);
}

fn add(name: &str, version: u64) -> Notification {
    added(pod(name, &version.to_string(), "Running"), false)
}

/// Returns `objects` × `versions` additions, with the versions of each object in order and the objects interleaved.
fn adds(objects: usize, versions: u64) -> Vec<Notification> {
    (1..=versions).flat_map(|version| (0..objects).map(move |i| add(&format!("web-{i}"), version))).collect()
}

fn assert_complete(transport: &ScriptedTransport, objects: usize, versions: u64) {
    let accepted = transport.accepted();
    assert_eq!(accepted.len(), objects);
    for (subject, seen) in accepted {
        assert_eq!(seen, (1..=versions).collect::<Vec<_>>(), "{subject}");
    }
}

#[test]
fn sink_delivers_each_event_once_and_in_order_per_object() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::new(|_, _| Outcome::Accepted));
        for chunk in adds(30, 20).chunks(70) {
            test.send(chunk.to_vec()).await;
        }
        assert_eq!(test.drain(LONG).await, DrainReport { delivered: 600, left: 0, kept: 0 });
        assert_complete(&test.transport, 30, 20);
        assert_eq!(test.transport.most_in_flight.load(Relaxed), 4);
        let status = test.health.status();
        assert_eq!((status.received, status.delivered, status.pending_events), (600, 600, 0));
    });
}

#[test]
fn sink_keeps_order_and_loses_nothing_when_two_of_three_attempts_fail() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| match n % 3 {
            0 => failed("connection refused"),
            1 => Outcome::Retry { after: Some(Duration::from_secs(2)), content: false, error: "429".to_owned() },
            _ => Outcome::Accepted,
        });
        let test = TestSink::start(transport);
        test.send(adds(30, 20)).await;
        assert_eq!(test.drain(LONG).await.left, 0);
        assert_complete(&test.transport, 30, 20);
        let status = test.health.status();
        assert!(status.retries > 0 && status.failed_attempts >= status.retries);
        assert_eq!(status.dead_lettered, 0);
    });
}

#[test]
fn sink_sends_a_single_event_after_max_wait() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::new(|_, _| Outcome::Accepted));
        test.send(vec![add("web", 1)]).await;
        tokio::time::sleep(Duration::from_millis(240)).await;
        assert_eq!(test.transport.attempts(), 0);
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(test.health.status().delivered, 1);
    });
}

#[test]
fn full_sink_delays_its_sender_and_stays_within_its_limit() {
    paused(async {
        let up = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let answer = Arc::clone(&up);
        let transport =
            ScriptedTransport::new(
                move |_, _| {
                    if answer.load(Relaxed) { Outcome::Accepted } else { failed("connection refused") }
                },
            );
        let test = TestSink::with(transport, |params| params.machine.bounds.events = 50);
        assert!(test.takes(adds(5, 10)).await, "fills the queue exactly");
        let waiting = test.sink.send(take((11..=20).flat_map(|v| (0..5).map(move |i| add(&format!("web-{i}"), v)))));
        let mut waiting = tokio::spawn(waiting);
        let waited = tokio::time::timeout(Duration::from_secs(3600), &mut waiting).await;
        assert!(waited.is_err(), "unanswered while the queue is full");
        let status = test.health.status();
        assert_eq!((status.pending_events, status.held), (50, 50));
        up.store(true, Relaxed);
        waiting.await.unwrap().unwrap();
        assert_eq!(test.drain(LONG).await.left, 0);
        assert_complete(&test.transport, 5, 20);
    });
}

#[test]
fn sink_keeps_the_order_of_waiting_messages() {
    paused(async {
        let test =
            TestSink::with(ScriptedTransport::new(|_, _| Outcome::Accepted), |params| params.machine.bounds.events = 2);
        let sends = (1..=50).map(|version| test.sink.send(take(vec![add("web", version)])));
        for sent in futures::future::join_all(sends).await {
            sent.unwrap();
        }
        test.drain(LONG).await;
        assert_complete(&test.transport, 1, 50);
    });
}

#[test]
fn sink_enforces_its_limit_in_bytes() {
    paused(async {
        let size = Event::new(&add("web", 1), clock::wall(), &EventOptions::default()).unwrap().size();
        let transport = ScriptedTransport::new(|_, _| failed("down"));
        let test = TestSink::with(transport, |params| params.machine.bounds.bytes = 10 * size);
        assert!(!test.takes(adds(100, 1)).await);
        let pending = test.health.status().pending_bytes;
        assert!(pending < 12 * size as u64, "{pending}");
    });
}

#[test]
fn undeliverable_event_becomes_a_dead_letter_after_give_up_after() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::new(|_, _| failed("receiver answered 500")));
        let begun = clock::now();
        test.send(vec![add("web", 1)]).await;
        assert_eq!(test.drain(LONG).await, DrainReport { delivered: 0, left: 0, kept: 0 });
        assert_eq!(clock::now().duration_since(begun).as_secs() / 3600, 24);
        let letters = test.letters();
        assert_eq!((letters.len(), test.health.status().dead_lettered), (1, 1));
        assert_eq!(
            (letters[0].subject.as_str(), letters[0].error.as_str()),
            ("/v1/pods/shop/web", "receiver answered 500")
        );
        assert!(letters[0].attempts > 250, "about one attempt in 2.5 minutes, not {}", letters[0].attempts);
        assert!(letters[0].attempts < 1500, "not {}", letters[0].attempts);
    });
}

#[test]
fn rejected_event_is_isolated_from_its_batch() {
    paused(async {
        let transport = ScriptedTransport::new(|_, batch| {
            if batch.iter().any(|event| event.subject().ends_with("/web-7")) {
                Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() }
            } else {
                Outcome::Accepted
            }
        });
        let test = TestSink::with(transport, |params| params.machine.concurrency = NonZeroUsize::MIN);
        test.send(adds(40, 1)).await;
        // A drain without a journal gives up a refused event after five attempts.
        assert_eq!(test.drain(Duration::from_secs(120)).await, DrainReport { delivered: 39, left: 0, kept: 0 });
        assert_eq!(test.health.status().dead_lettered, 1);
        assert!(!test.health.status().circuit_open);
        assert!(test.transport.attempts() < 40, "{}", test.transport.attempts());
    });
}

#[test]
fn failing_receiver_is_probed_by_one_lane_and_recovers() {
    paused(async {
        let answer = |n, _: &[Event]| if n < 40 { failed("down") } else { Outcome::Accepted };
        // Slow, so that attempts of two lanes would overlap.
        let transport = ScriptedTransport::slow(Duration::from_secs(600), answer);
        let test = TestSink::start(transport);
        test.send(adds(40, 1)).await;
        while test.transport.attempts() < 10 {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert!(test.health.status().circuit_open);
        test.transport.most_in_flight.store(0, Relaxed);
        while test.transport.attempts() < 40 {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(test.transport.most_in_flight.load(Relaxed), 1);
        assert_eq!(test.drain(LONG).await.left, 0);
        assert!(!test.health.status().circuit_open && test.health.error().is_none());
        assert_complete(&test.transport, 40, 1);
    });
}

#[test]
fn retry_after_delays_every_lane() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| match n {
            0 => Outcome::Retry { after: Some(Duration::from_secs(100)), content: false, error: "429".to_owned() },
            _ => Outcome::Accepted,
        });
        let test = TestSink::start(transport);
        test.send(vec![add("first", 1)]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Most of these objects are in other lanes than the first object, whose delivery got the 429.
        test.send(adds(100, 1)).await;
        tokio::time::sleep(Duration::from_secs(98)).await;
        assert_eq!(test.transport.attempts(), 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(test.drain(LONG).await.left, 0);
        assert_complete(&test.transport, 101, 1);
    });
}

#[test]
fn status_410_disables_the_sink_and_every_event_is_counted() {
    paused(async {
        let disable = |_: usize, _: &[Event]| Outcome::Disable { error: "receiver answered 410 Gone".to_owned() };
        let test = TestSink::with(ScriptedTransport::new(disable), |params| params.machine.bounds.events = 20);
        assert!(test.takes(adds(30, 1)).await, "a disabled sink delays no sender");
        assert!(test.takes(adds(5, 2)).await);
        assert!(test.health.is_disabled());
        let status = test.health.status();
        assert_eq!(status.received, 40);
        assert_eq!(status.dead_lettered + status.discarded, 40);
        assert_eq!(status.pending_events + status.held, 0);
        assert_eq!(test.drain(LONG).await.left, 0);
    });
}

#[test]
fn disabled_sink_does_not_repeat_attempts_in_flight() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| match n {
            0 => Outcome::Disable { error: "receiver answered 410 Gone".to_owned() },
            _ => failed("down"),
        });
        let test = TestSink::start(transport);
        test.send(adds(100, 1)).await;
        assert_eq!(test.drain(LONG).await, DrainReport { delivered: 0, left: 0, kept: 0 });
        assert_eq!((test.transport.attempts(), test.health.status().dead_lettered), (4, 100));
    });
}

#[test]
fn panicking_transport_loses_only_its_batch() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| if n == 0 { panic!("boom") } else { Outcome::Accepted });
        let test = TestSink::with(transport, |params| params.machine.concurrency = NonZeroUsize::MIN);
        test.send(adds(20, 1)).await;
        assert_eq!(test.drain(LONG).await, DrainReport { delivered: 10, left: 0, kept: 0 });
        let letters = test.letters();
        assert_eq!(letters.len(), 10);
        assert!(letters[0].error.contains("boom"), "{}", letters[0].error);
    });
}

#[test]
fn drain_ends_at_its_deadline_and_reports_the_remaining_events() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::slow(LONG, |_, _| Outcome::Accepted));
        test.send(adds(7, 1)).await;
        let begun = clock::now();
        assert_eq!(test.drain(Duration::from_secs(20)).await, DrainReport { delivered: 0, left: 7, kept: 0 });
        let took = clock::now().duration_since(begun);
        assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(21), "{took:?}");
    });
}

#[test]
fn drain_retries_without_waiting_for_the_backoff() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| if n == 0 { failed("down") } else { Outcome::Accepted });
        let far = Duration::from_secs(3600);
        let test =
            TestSink::with(transport, |params| (params.machine.retry.first, params.machine.retry.max) = (far, far));
        test.send(vec![add("web", 1)]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(test.drain(Duration::from_secs(20)).await, DrainReport { delivered: 1, left: 0, kept: 0 });
    });
}

#[test]
fn selection_filters_events_and_counts_them() {
    paused(async {
        let selection = Selection {
            events: vec![EventType::Added],
            filter: Some(Filter::compile("object.metadata.name == 'web-1' || object.nothing").unwrap()),
            ..Selection::default()
        };
        let transport = ScriptedTransport::new(|_, _| Outcome::Accepted);
        let test = TestSink::with(transport, |params| params.machine.selection = Arc::new(selection));
        let gone = Notification::Deleted { object: pod("web-1", "2", "Running"), tombstone: false };
        test.send(vec![add("web-1", 1), add("web-2", 1), gone]).await;
        assert_eq!(test.drain(LONG).await.delivered, 2);
        let status = test.health.status();
        assert_eq!((status.received, status.filtered, status.filter_errors), (3, 1, 1));
    });
}

#[test]
fn stopped_sink_fails_its_waiting_senders() {
    paused(async {
        let test =
            TestSink::with(ScriptedTransport::new(|_, _| failed("down")), |params| params.machine.bounds.events = 1);
        let waiting = tokio::spawn(test.sink.send(take(adds(5, 1))));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        test.sink.send(Stop).await.unwrap();
        assert!(waiting.await.unwrap().is_err(), "the mailbox closes");
        assert!(!test.sink.connected());
    });
}

/// Subjects and versions of acknowledged events.
type Received = Arc<Mutex<Vec<(String, u64)>>>;

/// Starts a webhook receiver that acknowledges two requests of five, and answers the others with 500, 429 or a closed
/// connection. Adds the acknowledged events to `received`, and returns the receiver's address.
async fn flaky_receiver(received: Received) -> std::net::SocketAddr {
    let count = Arc::new(AtomicUsize::new(0));
    let handler = move |body: String| async move {
        match count.fetch_add(1, Relaxed) % 5 {
            0 => return Err((axum::http::StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "1")])),
            1 => return Err((axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")])),
            2 => panic!("closes the connection without an answer"),
            _ => {}
        }
        let events: Vec<Value> = serde_json::from_str(&body).unwrap();
        received.lock().extend(events.iter().map(|event| {
            let version = event["data"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            (event["subject"].as_str().unwrap().to_owned(), version)
        }));
        Ok(())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(handler)).await });
    addr
}

#[test]
fn webhook_over_real_sockets_keeps_order_and_loses_nothing() {
    use informer_hub_sink::webhook::{WebhookParams, WebhookTransport, WebhookUrl};
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let received = Received::default();
    let addr = io.block_on(flaky_receiver(Arc::clone(&received)));
    let webhook = WebhookParams {
        timeout: Duration::from_secs(5),
        batched: true,
        ..WebhookParams::new(WebhookUrl::parse(&format!("http://{addr}/")).unwrap())
    };
    let transport = Arc::new(WebhookTransport::new(webhook).unwrap());
    let io_handle = io.handle().clone();
    actix_rt::System::new().block_on(async move {
        let test = TestSink::with(ScriptedTransport::new(|_, _| Outcome::Accepted), |params| {
            params.transport = transport;
            params.io = Threads::of(io_handle);
            params.machine.bounds.events = 200;
            params.machine.retry.first = Duration::from_millis(2);
            params.machine.retry.max = Duration::from_millis(10);
        });
        for chunk in adds(20, 50).chunks(90) {
            test.send(chunk.to_vec()).await;
        }
        let report = test.drain(Duration::from_secs(60)).await;
        assert_eq!(report.left, 0);
        assert!(test.health.status().retries > 0);
        assert_eq!(test.health.status().delivered, 1000);
    });
    let mut seen = HashMap::<_, Vec<_>>::new();
    for (subject, version) in received.lock().drain(..) {
        seen.entry(subject).or_default().push(version);
    }
    assert_eq!(seen.len(), 20);
    assert!(seen.values().all(|versions| versions.iter().copied().eq(1..=50)), "{seen:?}");
}

/// Kills the actor between messages, with batches in flight, queued and held back.
#[test]
fn sink_actor_restart_loses_nothing() {
    paused(async {
        let transport = ScriptedTransport::new(|_, _| Outcome::Accepted);
        let pools = ThreadPools::of(&Threads::current());
        let env = Env::new(pools, vec![actix_rt::Arbiter::current()], Tuning::default());
        let mut bounded = params(&transport);
        bounded.machine.bounds.events = 100;
        let sink = Sink::start(bounded, OpenStore::in_memory(), &env);
        for chunk in adds(20, 50).chunks(90) {
            let delivered = Deliver::deliver(&sink, chunk.to_vec(), None, &env.io);
            let running = sink.clone().running().await.unwrap();
            let kill = async {
                tokio::time::sleep(Duration::from_millis(7)).await;
                running.try_send(Crash).unwrap();
            };
            let delivered = tokio::time::timeout(LONG, delivered);
            let (delivered, ()) = futures::join!(delivered, kill);
            assert_eq!(delivered, Ok(Delivered::All));
            // The kills are spaced so that the restart intensity is not exceeded.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let left = sink.drain(Drain { deadline: clock::now() + LONG }).await.unwrap().left;
        assert_eq!(left, 0);
        let accepted = transport.accepted();
        assert_eq!(accepted.len(), 20);
        for (subject, mut seen) in accepted {
            assert_eq!(seen.last(), Some(&50), "{subject}");
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.iter().copied().eq(1..=50), "{subject}: {seen:?}");
        }
        drop(sink);
        while env.actor_count.running() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[derive(Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Crash> for SinkActor {
    type Result = ();
    fn handle(&mut self, _: Crash, _: &mut Context<Self>) {
        panic!("on purpose");
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

impl Handler<Stop> for SinkActor {
    type Result = ();
    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        actix::ActorContext::stop(ctx);
    }
}

//! Tests of shutdowns during a pause or after a replay, with a journal on a simulated disk and without one.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::*;
use informer_hub_sim::SimDisk;

const HOUR: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(20);

fn paused_for(after: Duration) -> Outcome {
    Outcome::Retry { after: Some(after), content: false, error: "receiver answered 503".to_owned() }
}

fn refused() -> Outcome {
    Outcome::Retry { after: None, content: true, error: "receiver answered 422".to_owned() }
}

impl TestSink {
    /// Starts a sink that has a journal and gives up refused events immediately.
    pub(super) fn with_journal(transport: Arc<ScriptedTransport>) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7));
        disk.create_dir_all(Path::new("state")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let (directory, limits, fsync) = ("state/sinks/test".into(), StoreLimits::default(), Fsync::default());
        let place = StorePlace { disk, directory, limits, fsync };
        let (store, opened) = Store::open(&place.disk, &place.directory, limits, fsync, &|_| true).unwrap();
        let mut params = params(&transport);
        params.place = Some(place);
        params.machine.retry.refused_for = Duration::ZERO;
        let health = Arc::clone(&params.machine.health);
        let state =
            RecoverySlot::new(State::new(&params, Some(opened.durability), &Rewinds::default())).claim().unwrap();
        let guard = ExitGuard::new(0, 0, None, &ActorCount::default());
        let store = Arc::new(parking_lot::Mutex::new(store));
        let sink = SinkActor::new(params, state, Arc::clone(&store), guard).start();
        Self { transport, health, store, sink }
    }
}

#[test]
fn replayed_dead_letters_are_pending_at_once() {
    paused(async {
        let is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&is_down);
        let answer = move |_, _: &[Event]| if down.load(Relaxed) { failed("down") } else { refused() };
        let test = TestSink::with_journal(ScriptedTransport::new(answer));
        test.send(adds(3, 1)).await;
        while test.health.status().dead_letters < 3 || test.health.status().pending_events > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        is_down.store(true, Relaxed);
        let replay = LetterRequest::Replay { filter: LetterFilter::default() };
        let replayed = test.sink.send(replay).await.unwrap().unwrap();
        assert!(matches!(replayed, LetterAnswer::Count(3)), "{replayed:?}");
        assert_eq!(test.health.status().pending_events, 3);
        assert_eq!(test.drain(GRACE).await, DrainReport { delivered: 0, left: 0, kept: 3 });
        assert_eq!(test.health.status().pending_events, 3);
    });
}

#[test]
fn drain_does_not_wait_for_a_paused_receiver_if_a_journal_keeps_the_events() {
    paused(async {
        let test = TestSink::with_journal(ScriptedTransport::new(|_, _| paused_for(HOUR)));
        test.send(adds(5, 1)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = clock::now();
        assert_eq!(test.drain(GRACE).await, DrainReport { delivered: 0, left: 0, kept: 5 });
        assert!(clock::now().duration_since(began) < Duration::from_secs(1));
    });
}

#[test]
fn drain_without_a_journal_tries_once_despite_a_pause() {
    paused(async {
        let transport = ScriptedTransport::new(|n, _| if n == 0 { paused_for(HOUR) } else { Outcome::Accepted });
        let test = TestSink::start(transport);
        test.send(vec![add("web-0", 1)]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        test.send(adds(30, 2).split_off(30)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(test.transport.attempts(), 1);
        assert_eq!(test.drain(GRACE).await, DrainReport { delivered: 31, left: 0, kept: 0 });
    });
}

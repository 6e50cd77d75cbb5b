//! Tests of attempts and work that are still in progress when the sink gets new parameters or its actor dies.

use super::*;

const SLOW: Duration = Duration::from_secs(5);

/// Waits until an attempt to deliver has begun.
async fn begun(transport: &ScriptedTransport) {
    while transport.in_flight.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn assert_one_attempt_at_a_time(transport: &ScriptedTransport) {
    assert_eq!(transport.most_in_flight.load(Relaxed), 1);
    assert_eq!(transport.accepted()["/v1/pods/shop/web"], [1, 1, 2], "the first state is repeated, then the second");
}

#[test]
fn new_parameters_wait_for_attempts_in_flight() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::slow(SLOW, |_, _| Outcome::Accepted));
        test.send(vec![add("web", 1)]).await;
        begun(&test.transport).await;
        // The second message comes while the sink waits already.
        for _ in 0..2 {
            test.sink.send(Reconfigure(params(&test.transport))).await.unwrap();
        }
        test.send(vec![add("web", 2)]).await;
        assert_eq!(test.drain(LONG).await.left, 0);
        assert_one_attempt_at_a_time(&test.transport);
    });
}

#[test]
fn restarted_actor_waits_for_attempts_of_its_predecessor() {
    paused(async {
        let transport = ScriptedTransport::slow(SLOW, |_, _| Outcome::Accepted);
        let pools = ThreadPools::of(&Threads::current());
        let env = Env::new(pools, vec![actix_rt::Arbiter::current()], Tuning::default());
        let sink = Sink::start(params(&transport), OpenStore::in_memory(), &env);
        assert_eq!(Deliver::deliver(&sink, vec![add("web", 1)], None, &env.io).await, Delivered::All);
        begun(&transport).await;
        sink.clone().running().await.unwrap().try_send(Crash).unwrap();
        assert_eq!(Deliver::deliver(&sink, vec![add("web", 2)], None, &env.io).await, Delivered::All);
        assert_eq!(sink.drain(Drain { deadline: clock::now() + LONG }).await.unwrap().left, 0);
        assert_one_attempt_at_a_time(&transport);
        drop(sink);
        while env.actor_count.running() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn attempt_in_flight_that_does_not_end_is_aborted() {
    paused(async {
        let test = TestSink::start(ScriptedTransport::slow(LONG, |_, _| Outcome::Accepted));
        test.send(vec![add("web", 1)]).await;
        begun(&test.transport).await;
        let other = ScriptedTransport::new(|_, _| Outcome::Accepted);
        let began = clock::now();
        test.sink.send(Reconfigure(params(&other))).await.unwrap();
        assert_eq!(test.drain(LONG).await, DrainReport { delivered: 1, left: 0, kept: 0 });
        let took = clock::now().duration_since(began);
        assert!((Duration::from_secs(29)..Duration::from_secs(32)).contains(&took), "{took:?}");
        assert!(test.transport.accepted().is_empty());
    });
}

#[test]
#[expect(clippy::await_holding_lock, reason = "only a blocking thread waits for it")]
fn work_of_a_dead_actor_does_not_begin() {
    paused(async {
        let test = TestSink::with_journal(ScriptedTransport::new(|_, _| Outcome::Accepted));
        let store = Arc::clone(&test.store);
        let busy = store.lock();
        test.sink.try_send(take(adds(3, 1))).unwrap();
        test.sink.send(Stop).await.unwrap();
        // The test and the work have the store, but not the actor.
        while Arc::strong_count(&store) > 3 {
            tokio::task::yield_now().await;
        }
        drop(busy);
        while Arc::strong_count(&store) > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.lock().state().pending, 0);
    });
}

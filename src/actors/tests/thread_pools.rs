//! Priorities of the hub's threads, as the threads themselves read them.

use std::sync::mpsc::channel;

use rustix::process::getpriority_process;

use crate::actors::runtime::thread_pools::READER_NICE;
use crate::actors::tests::fleet::PATIENCE;
use crate::actors::{HubSystem, Tuning};

/// Returns the nice value of the calling thread.
fn nice() -> i32 {
    getpriority_process(None).unwrap()
}

#[test]
fn only_threads_of_queries_have_a_lower_priority() {
    let own = nice();
    let hub = HubSystem::start(Tuning::default()).unwrap();
    let env = hub.env();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (readers, io, blocking, handlers) = runtime.block_on(async {
        let all = async {
            tokio::join!(
                env.readers.spawn_blocking(nice),
                env.io.spawn(async { nice() }),
                env.io.spawn_blocking(nice),
                env.handlers.spawn_blocking(nice)
            )
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap()
    });
    assert_eq!(readers.unwrap(), (own + READER_NICE).min(19));
    assert_eq!([io, blocking, handlers].map(Result::unwrap), [own; 3]);
    let (sender, nices) = channel();
    for _ in 0..8 {
        let sender = sender.clone();
        assert!(env.arbiter().spawn_fn(move || sender.send(nice()).unwrap()));
    }
    for _ in 0..8 {
        assert_eq!(nices.recv_timeout(PATIENCE).unwrap(), own);
    }
}

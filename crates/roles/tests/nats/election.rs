//! Leader election over a bucket of NATS.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_lease::{Answer, ElectionParams, Elector};
use informer_hub_roles::Backend;
use informer_hub_types::clock;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinHandle;

use crate::backend;
use crate::server::{Servers, within};

const PARAMS: ElectionParams = ElectionParams {
    lease_duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    retry_period: Duration::from_millis(300),
};

struct Contender {
    elector: Arc<Mutex<Elector>>,
    task: JoinHandle<()>,
}

impl Contender {
    fn start(name: &str, seed: u64, servers: &Servers) -> Self {
        let mut elector = Elector::new(name, PARAMS, StdRng::seed_from_u64(seed));
        elector.set_note(format!("note of {name}").into());
        let elector = Arc::new(Mutex::new(elector));
        let (running, backend) = (Arc::clone(&elector), backend(name, servers));
        let task = tokio::spawn(async move {
            loop {
                let next = running.lock().next(clock::since_boot());
                let Some(request) = next else {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                };
                let asking = tokio::time::timeout(PARAMS.renew_deadline / 2, backend.lease("sinks", request));
                let answer = asking.await.map_or(Answer::Failed, |asked| asked.unwrap_or(Answer::Failed));
                running.lock().answered(answer, clock::since_boot());
            }
        });
        Self { elector, task }
    }

    fn leads(&self) -> bool {
        self.elector.lock().leads(clock::since_boot())
    }

    fn note_seen(&self) -> Option<Arc<str>> {
        self.elector.lock().record_seen().map(|record| Arc::clone(&record.note))
    }
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_of_a_dead_leader_is_taken_over_while_a_server_is_down() {
    let seed = 7;
    println!("seed {seed}");
    let mut servers = Servers::start(3).await;
    let first = Contender::start("a", seed, &servers);
    until("the first one leads", async || first.leads()).await;
    let second = Contender::start("b", seed + 1, &servers);
    until("the second one reads the note", async || second.note_seen().as_deref() == Some("note of a")).await;
    assert!(first.leads() && !second.leads());
    // The leader creates a deleted bucket again before its leadership ends.
    let context = async_nats::jetstream::new(servers.client().await);
    context.delete_key_value("test-leases").await.unwrap();
    until("the bucket has the lease again", async || {
        let renewed = context.get_key_value("test-leases").await;
        assert!(first.leads() && !second.leads());
        match renewed {
            Ok(leases) => leases.entry("sinks").await.is_ok_and(|entry| entry.is_some()),
            Err(_) => false,
        }
    })
    .await;
    servers.kill(0);
    first.task.abort();
    until("the second one leads", async || second.leads()).await;
    assert!(!first.leads(), "the former leader stopped before");
    assert_eq!(second.elector.lock().record_seen().unwrap().transitions, 1);
    // The former leader wakes up, and does not lead again.
    let third = Contender::start("a", seed + 2, &servers);
    until("it reads the note", async || third.note_seen().as_deref() == Some("note of b")).await;
    assert!(second.leads() && !third.leads());
}

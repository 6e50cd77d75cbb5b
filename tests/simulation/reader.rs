//! Durable readers: one that always acknowledges, and some with changing behaviour.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use informer_hub::actors::durable::{Deliveries, Refusal};
use informer_hub_sim::oracle::{ReceivedEvent, Replica};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;

use crate::testbed::Testbed;

/// Behaviour of a reader until the next change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum ReaderBehaviour {
    Good,
    /// Refuses this share of deliveries, half of them after recording the events.
    Flaky(f64),
    /// Answers after this long.
    Slow(Duration),
    /// Never answers.
    Silent,
    /// Refuses everything.
    Refusing,
}

/// Reader with its replica, which outlives hubs.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) behaviour: Mutex<ReaderBehaviour>,
    pub(crate) replica: Mutex<Replica>,
}

impl Reader {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, behaviour: Mutex::new(ReaderBehaviour::Good), replica: Mutex::new(Replica::at_least_once()) }
    }
}

/// Actor of a reader in one run of the hub.
pub(crate) struct ReaderActor {
    pub(crate) reader: Arc<Reader>,
    pub(crate) bed: Arc<Testbed>,
}

impl Actor for ReaderActor {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for ReaderActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Context<Self>) -> Self::Result {
        let (reader, bed) = (Arc::clone(&self.reader), Arc::clone(&self.bed));
        Box::pin(async move {
            let behaviour = *reader.behaviour.lock();
            let refuses = match behaviour {
                ReaderBehaviour::Good => 0.0,
                ReaderBehaviour::Flaky(share) => share,
                ReaderBehaviour::Slow(pause) => {
                    tokio::time::sleep(pause).await;
                    0.0
                }
                ReaderBehaviour::Silent => std::future::pending().await,
                ReaderBehaviour::Refusing => return Err(Refusal::Later("refusing".to_owned())),
            };
            let (refuses, before) = bed.random(|rng| (rng.random_bool(refuses), rng.random_bool(0.5)));
            if refuses && before {
                return Err(Refusal::Later("refused".to_owned()));
            }
            for event in events.iter() {
                let json: Value = serde_json::from_str(event.json()).unwrap();
                let received = ReceivedEvent::from_event(&json).unwrap();
                bed.note(|| format!("{}: {} {:?}", reader.name, received.origin, received.content));
                reader.replica.lock().record(&received);
            }
            if refuses { Err(Refusal::Later("refused after recording".to_owned())) } else { Ok(()) }
        })
    }
}

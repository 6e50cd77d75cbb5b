//! Durable readers: one that always answers, and some whose mood changes.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use informer_hub::actors::durable::{Deliveries, Refusal};
use informer_hub_sim::oracle::{Replica, Told};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;

use crate::house::House;

/// How a reader is, until that changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Mood {
    Good,
    /// Refuses this share of what comes, half of it after taking it in.
    Moody(f64),
    /// Answers after this long.
    Slow(Duration),
    /// Never answers.
    Mute,
    /// Refuses everything.
    Dead,
}

/// What a reader knows; it outlives hubs.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) mood: Mutex<Mood>,
    pub(crate) replica: Mutex<Replica>,
}

impl Reader {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, mood: Mutex::new(Mood::Good), replica: Mutex::new(Replica::at_least_once()) }
    }
}

/// A reader in one life of the hub.
pub(crate) struct ReaderActor {
    pub(crate) reader: Arc<Reader>,
    pub(crate) house: Arc<House>,
}

impl Actor for ReaderActor {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for ReaderActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Context<Self>) -> Self::Result {
        let (reader, house) = (Arc::clone(&self.reader), Arc::clone(&self.house));
        Box::pin(async move {
            let mood = *reader.mood.lock();
            let refuses = match mood {
                Mood::Good => 0.0,
                Mood::Moody(share) => share,
                Mood::Slow(pause) => {
                    tokio::time::sleep(pause).await;
                    0.0
                }
                Mood::Mute => std::future::pending().await,
                Mood::Dead => return Err(Refusal::Later("dead".to_owned())),
            };
            let (refuses, before) = house.chance(|rng| (rng.random_bool(refuses), rng.random_bool(0.5)));
            if refuses && before {
                return Err(Refusal::Later("not in the mood".to_owned()));
            }
            for event in events.iter() {
                let json: Value = serde_json::from_str(event.json()).unwrap();
                let told = Told::from_event(&json).unwrap();
                house.note(|| format!("{}: {} {:?}", reader.name, told.origin, told.what));
                reader.replica.lock().tell(&told);
            }
            if refuses { Err(Refusal::Later("took it, and says that it did not".to_owned())) } else { Ok(()) }
        })
    }
}

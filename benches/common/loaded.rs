//! Hubs started from a configuration text, with sinks and a state directory.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use actix::prelude::*;
use informer_hub::actors::durable::{Deliveries, Refusal};
use informer_hub::actors::{Subscribe, Tuning};
use informer_hub::app::{DurableSubscription, Hub};
use informer_hub::{Clusters, Notifications};
use informer_hub_config::Config;
use informer_hub_types::ClusterName;
use k8s_openapi::api::core::v1::Pod;

use super::hub::{Listener, Notified};

/// Builder of a configuration text.
#[derive(Clone, Debug, Default)]
pub struct Text {
    hub: String,
    rest: String,
}

impl Text {
    /// Creates a configuration for pods with two indexes, without clusters.
    pub fn pods() -> Self {
        let rest = "[resources.pods.indexes]\nby-node = \"spec.nodeName\"\nby-image = \"spec.containers[*].image\"\n";
        Self { hub: String::new(), rest: rest.to_owned() }
    }

    /// Adds a cluster.
    pub fn cluster(mut self, name: &str, url: &str) -> Self {
        writeln!(self.rest, "[clusters.{name}]\nserver = \"{url}\"\ncompression = false").unwrap();
        self
    }

    /// Sets the state directory and `fsync`.
    pub fn state(mut self, directory: &Path, fsync: &str) -> Self {
        writeln!(self.hub, "state_dir = \"{}\"\nfsync = \"{fsync}\"", directory.display()).unwrap();
        self
    }

    /// Adds a webhook without old objects, with the further keys `more`.
    pub fn webhook(mut self, name: &str, url: &str, more: &str) -> Self {
        let sink = format!("[sinks.{name}]\ntype = \"webhook\"\nurl = \"{url}\"\ninclude_old = false\n{more}\n");
        self.rest.push_str(&sink);
        self
    }

    /// Starts the hub, with a durable subscription for `subscriber` if it is given.
    pub async fn start(&self, subscriber: Option<&Counted>) -> Hub {
        let text = format!("[hub]\nlisten = \"127.0.0.1:0\"\n{}{}", self.hub, self.rest);
        let config = Config::from_toml(&text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        let mut tuning = Tuning::default();
        // The replay server does not support streaming lists.
        tuning.reflector.streaming_list = false;
        let mut builder = Hub::builder(config).tuning(tuning);
        if let Some(counted) = subscriber {
            let counted = counted.clone();
            let address = Subscriber::start_in_arbiter(&own_arbiter(), move |_| Subscriber(counted));
            let subscription = DurableSubscription::new("acknowledging", address.recipient()).without_old();
            builder = builder.subscribe_durably(subscription.skip_initial());
        }
        builder.start().await.unwrap()
    }
}

/// Shuts down a hub with sinks.
pub async fn finish(hub: Hub) {
    hub.shutdown(Duration::from_secs(5)).await;
}

/// Starts an actix thread for actors that exist before the hub.
fn own_arbiter() -> ArbiterHandle {
    let (started, starting) = mpsc::channel();
    std::thread::spawn(move || {
        let system = System::new();
        started.send(Arbiter::new().handle()).unwrap();
        system.run().unwrap();
    });
    starting.recv().unwrap()
}

/// Counters of acknowledged events.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Number of events.
    pub events: Arc<AtomicU64>,
    /// Bytes of their JSON.
    pub bytes: Arc<AtomicU64>,
}

/// Durable subscriber that acknowledges at once.
struct Subscriber(Counted);

impl Actor for Subscriber {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for Subscriber {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Self::Context) -> Self::Result {
        let bytes: usize = events.iter().map(|event| event.json().len()).sum();
        self.0.bytes.fetch_add(bytes as u64, Relaxed);
        self.0.events.fetch_add(events.len() as u64, Relaxed);
        Ok(())
    }
}

/// Subscribes a listener to some clusters, on the next thread of the hub.
pub async fn listen(hub: &Hub, clusters: &[&str]) -> (Addr<Listener>, Notified) {
    let names = clusters.iter().map(|name| ClusterName::new(*name).unwrap()).collect();
    let notified = Notified::default();
    let listener = Listener(notified.clone());
    let address = Listener::start_in_arbiter(hub.system().env().arbiter(), |_| listener);
    let recipient = address.clone().recipient::<Notifications<Pod>>();
    hub.registry().send(Subscribe::to::<Pod>(Clusters::Names(names), recipient)).await.unwrap();
    (address, notified)
}

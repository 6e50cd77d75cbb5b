//! Simulated serving process: a replica, and for each cluster a reflector with a cache.

use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_reflector::{Connection, Connector, InformerOptions, SourceError};
use informer_hub_types::{Scope, Shard};
use tokio::task::JoinHandle;

use super::cluster::resource;
use super::process::{Caches, Objects, reflect};
use super::threads;
use crate::{Backend, Replica, ReplicaParams};

/// Simulated serving process. Dropping it kills the process.
pub(super) struct ServingProcess {
    pub(super) replica: Replica,
    caches: Caches,
    reflectors: Vec<JoinHandle<()>>,
}

impl ServingProcess {
    pub(super) fn start<'c>(
        params: ReplicaParams,
        backend: Arc<dyn Backend>,
        shards: impl Iterator<Item = &'c Shard>,
    ) -> Self {
        let replica = Replica::start(backend, params, &threads());
        let caches = Caches::default();
        let reflectors = shards.map(|name| {
            let connector = replica.connector(&name.cluster, Arc::new(Unreachable));
            let (caches, name) = (Arc::clone(&caches), name.clone());
            tokio::spawn(async move {
                let connection = connector.connect().await.unwrap();
                let source = connection.lister_watcher(&resource(&name), &Scope::all(), &InformerOptions::default());
                reflect(&*source, &caches, &name).await;
            })
        });
        let reflectors = reflectors.collect();
        Self { replica, caches, reflectors }
    }

    pub(super) fn cached(&self, shard: &Shard) -> Option<Objects> {
        self.caches.lock().objects.get(shard).cloned()
    }

    /// Panics if a reflector has panicked.
    pub(super) fn verify(&self) {
        assert!(!self.reflectors.iter().any(JoinHandle::is_finished), "a reflector has ended");
    }
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        self.reflectors.iter().for_each(JoinHandle::abort);
    }
}

/// Connector of a cluster that a replica must not connect to.
#[derive(Debug)]
pub(crate) struct Unreachable;

impl Connector for Unreachable {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        panic!("a replica connects to a cluster");
    }
}

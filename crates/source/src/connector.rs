//! A configured cluster behind the ports that the actors know.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::catalogue::catalogue;
use super::client::Access;
use super::discovery::{DiscoveryError, resolve};
use super::kube::{KubeSource, KubeSourceOptions};
use super::live::{Live, Way};
use super::review::server_version;
use informer_hub_codec::Decoder;
use informer_hub_dial::Dial;
use informer_hub_reflector::{
    Connection, Connector, Discovered, ErrorClass, InformerOptions, ListerWatcher, ResolveError, Server, SourceError,
    StallPolicy,
};
use informer_hub_types::{ApiResource, ResourceRef, Scope, Threads, WatchCell, clock};

/// How long a way that is not known is waited for at first.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// And then.
const LONG_WAIT: Duration = Duration::from_secs(600);

/// Reaches a cluster with kube's client.
///
/// Each watch has a connection of its own (kube speaks HTTP/1.1 for the sake of websockets): more sockets than
/// client-go's one HTTP/2 connection, and none of its head-of-line blocking, which puts events a second late once a
/// hundred requests share it.
#[derive(Clone, Debug)]
pub struct KubeConnector(Arc<Reach>);

#[derive(Debug)]
struct Reach {
    /// The cluster's name, for log lines.
    cluster: Option<Arc<str>>,
    way: Mutex<Way>,
    /// Counts changes of the way, for who waits to know it at all.
    changes: WatchCell<u64>,
    /// Whether somebody has been told in vain that it is not known.
    has_waited: AtomicBool,
    stall: StallPolicy,
    dial: Option<Dial>,
    io: Threads,
    /// The connection that was made last, while there is one.
    live: Mutex<Weak<Live>>,
}

#[derive(Debug)]
struct KubeConnection {
    live: Arc<Live>,
    stall: StallPolicy,
    io: Threads,
}

impl KubeConnector {
    /// Reaches a cluster by `access`; `compression`: whether lists may come gzipped. Clients and sockets are on `io`.
    #[must_use]
    pub fn new(access: Access, compression: bool, stall: StallPolicy, io: &Threads) -> Self {
        Self::over(None, access, compression, stall, io)
    }

    /// The same, its connections opened by `dial`, if there is one, in place of TCP.
    #[must_use]
    pub fn over(dial: Option<Dial>, access: Access, compression: bool, stall: StallPolicy, io: &Threads) -> Self {
        let way = Mutex::new(Way { access, compression });
        let (changes, has_waited, io) = (WatchCell::new(0), AtomicBool::new(false), io.clone());
        Self(Arc::new(Reach { cluster: None, way, changes, has_waited, stall, dial, io, live: Mutex::default() }))
    }

    /// Gives the cluster its name in log lines about its connection. Before the connector is cloned: then it has no effect.
    #[must_use]
    pub fn named(mut self, cluster: &str) -> Self {
        if let Some(reach) = Arc::get_mut(&mut self.0) {
            reach.cluster = Some(cluster.into());
        }
        self
    }

    /// Reaches the cluster in another way from now on: requests to come, while watches that are open go on. Nothing is
    /// listed again, unless the address is another one. What cannot be used is logged, and the old way stays in use.
    pub fn change(&self, access: Access, compression: bool) {
        let way = Way { access, compression };
        self.0.way.lock().clone_from(&way);
        self.0.changes.modify(|changes| {
            *changes += 1;
            true
        });
        if let Some(live) = self.0.live.lock().upgrade() {
            live.change(way);
        }
    }
}

impl Reach {
    /// The way, for which it is waited where it is not known yet: the first time for a moment, so that it shows what is
    /// missing, then for long, so that it is used at once when it comes.
    async fn known_way(&self) -> Way {
        let patience = if self.has_waited.swap(true, SeqCst) { LONG_WAIT } else { FIRST_WAIT };
        let until = clock::now() + patience;
        let mut changes = self.changes.subscribe();
        loop {
            let way = self.way.lock().clone();
            let is_known = !matches!(way.access, Access::Awaited { .. });
            if is_known || !matches!(tokio::time::timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return way;
            }
        }
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>, SourceError> {
        let way = self.known_way().await;
        let failed = |error| SourceError { class: ErrorClass::Transient, message: with_causes(&error) };
        let live = Live::connect(self.cluster.clone(), way.clone(), self.dial.clone(), &self.io);
        let live = live.await.map_err(failed)?;
        *self.live.lock() = Arc::downgrade(&live);
        let now = self.way.lock().clone();
        if now != way {
            live.change(now);
        }
        Ok(Arc::new(KubeConnection { live, stall: self.stall, io: self.io.clone() }))
    }
}

impl Connector for KubeConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let reach = Arc::clone(&self.0);
        async move { reach.connect().await }.boxed()
    }
}

impl Connection for KubeConnection {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        let made = self.live.made();
        let address = made.server.clone();
        let task = self.io.spawn(async move { server_version(&made.client).await });
        async move {
            match task.await {
                Ok(Ok(version)) => Ok(Server { address, version: Some(version) }),
                // Only odd roles hide it.
                Ok(Err(error)) if matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound) => {
                    Ok(Server { address, version: None })
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(interrupted()),
            }
        }
        .boxed()
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let live = Arc::clone(&self.live);
        let task = self.io.spawn(async move { resolve(&live.made().client, &resource).await });
        async move {
            match task.await {
                Ok(Ok(resource)) => Ok(resource),
                Ok(Err(DiscoveryError::NotFound { resource, nearest })) => {
                    Err(ResolveError::NotFound { resource, nearest: nearest.into_iter().next() })
                }
                Ok(Err(DiscoveryError::Unavailable(error))) => Err(ResolveError::Unavailable(error)),
                Err(_) => Err(ResolveError::Unavailable(interrupted())),
            }
        }
        .boxed()
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        let live = Arc::clone(&self.live);
        let task = self.io.spawn(async move { catalogue(&live.made().client, known.as_deref()).await });
        async move { task.await.unwrap_or_else(|_| Err(interrupted())) }.boxed()
    }

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let indexes = options.indexes.iter().map(|(name, path)| (name.clone(), path.clone())).collect();
        let decoder =
            Decoder::new(resource.clone(), &options.projection, indexes).with_transform(options.transform.clone());
        let settings = KubeSourceOptions {
            metadata_only: options.metadata_only,
            traces: !options.untraced,
            stall: self.stall,
            ..KubeSourceOptions::default()
        };
        Arc::new(KubeSource::new(Arc::clone(&self.live), scope.clone(), decoder, settings, self.io.clone()))
    }
}

fn interrupted() -> SourceError {
    SourceError { class: ErrorClass::Transient, message: "discovery was interrupted".to_owned() }
}

/// An error with its causes in one line: the port's error has no place for a source.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

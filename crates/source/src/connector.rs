//! Connections to a configured cluster over HTTP: implements the reflector's traits [`Connector`] and [`Connection`].

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::catalogue::catalogue;
use super::client::{Access, AccessSettings};
use super::discovery::{DiscoveryError, resolve};
use super::exchange::exchange;
use super::kube::{KubeSource, KubeSourceOptions};
use super::preflight::{document, review, server_version};
use super::reloading_client::ReloadingClient;
use super::transport::Wiring;
use informer_hub_codec::Decoder;
use informer_hub_dial::Dial;
use informer_hub_reflector::{
    Connection, Connector, Discovered, ErrorClass, InformerOptions, ListerWatcher, ObjectAnswer, ObjectRequest,
    ResolveError, Server, SourceError, StallPolicy,
};
use informer_hub_types::{ApiResource, ClusterTraffic, ResourceRef, Scope, Threads, WatchCell, clock, with_causes};

/// How long the first connection waits for access settings that are not known yet, before it fails with an error.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long later connections wait for access settings that are not known yet.
const LONG_WAIT: Duration = Duration::from_secs(600);

/// Opens connections to a cluster, with a client of the kube crate.
#[derive(Clone, Debug)]
pub struct KubeConnector(Arc<ConnectorState>);

#[derive(Debug)]
struct ConnectorState {
    /// The cluster's name, for log lines.
    cluster: Option<Arc<str>>,
    settings: Mutex<AccessSettings>,
    /// Number of changes of the access settings. Connections that wait for settings subscribe to it.
    changes: WatchCell<u64>,
    /// Whether a connection has waited for missing access settings before. The first wait is short, so that an error
    /// soon names the missing settings. Later waits are long.
    has_waited: AtomicBool,
    stall: StallPolicy,
    wiring: Wiring,
    io: Threads,
    /// The client of the last connection, if it is still in use.
    client: Mutex<Weak<ReloadingClient>>,
}

#[derive(Debug)]
struct KubeConnection {
    client: Arc<ReloadingClient>,
    stall: StallPolicy,
    io: Threads,
}

impl KubeConnector {
    /// Creates a connector. Its clients and sockets run on the runtime `io`.
    #[must_use]
    pub fn new(settings: AccessSettings, stall: StallPolicy, io: &Threads) -> Self {
        Self::with_dial(None, settings, stall, io)
    }

    /// Like [`Self::new`]. If `dial` is given, it opens the connections instead of TCP.
    #[must_use]
    pub fn with_dial(dial: Option<Dial>, settings: AccessSettings, stall: StallPolicy, io: &Threads) -> Self {
        let settings = Mutex::new(settings);
        let (changes, has_waited, io) = (WatchCell::new(0), AtomicBool::new(false), io.clone());
        Self(Arc::new(ConnectorState {
            cluster: None,
            settings,
            changes,
            has_waited,
            stall,
            wiring: Wiring { dial, ..Wiring::default() },
            io,
            client: Mutex::default(),
        }))
    }

    /// Sets the cluster's name for log lines. Has no effect after the connector was cloned.
    #[must_use]
    pub fn named(mut self, cluster: &str) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.0) {
            state.cluster = Some(cluster.into());
        }
        self
    }

    /// Changes the access settings for later requests. Open watches continue, and objects are not listed again, unless
    /// the address has changed. Invalid settings are logged, and the previous ones stay in use.
    pub fn change(&self, settings: AccessSettings) {
        self.0.settings.lock().clone_from(&settings);
        self.0.changes.modify(|changes| {
            *changes += 1;
            true
        });
        if let Some(client) = self.0.client.lock().upgrade() {
            client.change(settings);
        }
    }
}

impl ConnectorState {
    /// Returns the access settings, after a wait if they are not known yet. The first wait is short, so that the
    /// connection soon fails with an error that names the missing settings. Later waits are long, and end when the
    /// settings arrive.
    async fn wait_for_settings(&self) -> AccessSettings {
        let patience = if self.has_waited.swap(true, SeqCst) { LONG_WAIT } else { FIRST_WAIT };
        let until = clock::now() + patience;
        let mut changes = self.changes.subscribe();
        loop {
            let settings = self.settings.lock().clone();
            let is_known = !matches!(settings.access, Access::Awaited { .. });
            if is_known || !matches!(tokio::time::timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return settings;
            }
        }
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>, SourceError> {
        let settings = self.wait_for_settings().await;
        let failed = |error| SourceError { class: ErrorClass::Transient, message: with_causes(&error) };
        let client = ReloadingClient::connect(self.cluster.clone(), settings.clone(), self.wiring.clone(), &self.io);
        let client = client.await.map_err(failed)?;
        *self.client.lock() = Arc::downgrade(&client);
        let now = self.settings.lock().clone();
        if now != settings {
            client.change(now);
        }
        Ok(Arc::new(KubeConnection { client, stall: self.stall, io: self.io.clone() }))
    }
}

impl Connector for KubeConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let state = Arc::clone(&self.0);
        async move { state.connect().await }.boxed()
    }
}

impl KubeConnection {
    /// Runs a request on the runtime `io`, which owns the sockets. If the server refuses the credentials, the client
    /// reads them again.
    fn request<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, SourceError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, SourceError>> {
        let client = Arc::clone(&self.client);
        let task = self.io.spawn(async move {
            let answer = request.await;
            if answer.as_ref().is_err_and(|error| error.class == ErrorClass::Unauthorized) {
                client.credentials_refused();
            }
            answer
        });
        async move { task.await.unwrap_or_else(|_| Err(interrupted())) }.boxed()
    }
}

impl Connection for KubeConnection {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        let current = self.client.current();
        let address = current.server.clone();
        let asking = self.request(async move { server_version(&current.client).await });
        async move {
            match asking.await {
                Ok(version) => Ok(Server { address, version: Some(version) }),
                // Some custom roles do not allow reading the version. It is then unknown, which is not an error.
                Err(error) if matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound) => {
                    Ok(Server { address, version: None })
                }
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn traffic(&self) -> Option<ClusterTraffic> {
        Some(self.client.traffic())
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let current = self.client.current();
        let asking = self.request(async move {
            match resolve(&current.client, &resource).await {
                Ok(resource) => Ok(Ok(resource)),
                Err(DiscoveryError::NotFound { resource, nearest }) => {
                    Ok(Err(ResolveError::NotFound { resource, nearest: nearest.into_iter().next() }))
                }
                Err(DiscoveryError::Unavailable(error)) => Err(error),
            }
        });
        async move { asking.await.unwrap_or_else(|error| Err(ResolveError::Unavailable(error))) }.boxed()
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        let current = self.client.current();
        self.request(async move { catalogue(&current.client, known.as_deref()).await })
    }

    fn document(&self, path: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, SourceError>> {
        let current = self.client.current();
        self.request(async move {
            match document(path, &current.client).await {
                Ok(document) => Ok(Some(document)),
                Err(error) if error.class == ErrorClass::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn review(&self, path: &'static str, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, SourceError>> {
        let current = self.client.current();
        self.request(async move { review(&current.client, path, body).await })
    }

    fn exchange(&self, request: ObjectRequest) -> BoxFuture<'static, Result<ObjectAnswer, SourceError>> {
        let client = Arc::clone(&self.client);
        self.request(async move {
            let answer = exchange(&client.current().client, request).await;
            if answer.as_ref().is_ok_and(|answer| answer.status == 401) {
                client.credentials_refused();
            }
            answer
        })
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
        let source_options = KubeSourceOptions {
            metadata_only: options.metadata_only,
            traces: !options.untraced,
            stall: self.stall,
            ..KubeSourceOptions::default()
        };
        Arc::new(KubeSource::new(Arc::clone(&self.client), scope.clone(), decoder, source_options, self.io.clone()))
    }
}

fn interrupted() -> SourceError {
    SourceError { class: ErrorClass::Transient, message: "discovery was interrupted".to_owned() }
}

//! Shared informer factory: one informer per type, all with the same scope; client-go's `SharedInformerFactory`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use kube::Resource;
use parking_lot::Mutex;

use super::error::InformerError;
use super::shared_informer::{Core, Parts, SharedInformer};
use super::typed::api_resource;
use crate::actors::messages::Start;
use crate::actors::{HubSystem, NotSynced};
use informer_hub_codec::Transform;
use informer_hub_types::{ApiResource, ClusterSelector, Gvr, LabelSelector, Scope, View};

/// Selectors of an informer's list and watch requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Selects objects by labels; `None` for all.
    pub label_selector: Option<LabelSelector>,
    /// Selects objects by fields in kubectl's syntax; `None` for all.
    pub field_selector: Option<String>,
}

type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// Factory of shared informers over the clusters of a hub. It creates at most two for each type: one for whole objects,
/// one for metadata. All have the same namespace, options and clusters.
///
/// Settings apply to informers that are created later.
///
/// An informer without a transform shares its cache with all informers in the hub that watch the same objects: those of
/// other factories, and those of the configuration if they keep whole objects. An informer with a transform belongs to
/// the factory alone.
///
/// Dropping a factory stops nothing; [`Self::shutdown`] does.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use informer_hub::informers::{ResourceEventHandlerFuncs, SharedInformerFactory};
/// use informer_hub::{Config, Hub};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # #[actix::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = Hub::start(Config::from_file("hub.toml")?).await?;
/// let factory = SharedInformerFactory::new(hub.system()).with_namespace("shop");
/// let pods = factory.informer::<Pod>()?;
/// let handler = ResourceEventHandlerFuncs::new()
///     .on_add(|pod| println!("{pod:?} is there"))
///     .on_update(|_, pod| println!("{pod:?} changed"))
///     .on_delete(|pod| println!("{pod:?} is gone"));
/// pods.add_event_handler(handler).await?;
/// factory.start().await?;
/// factory.wait_for_cache_sync(Duration::from_secs(30)).await.into_error()?;
/// println!("{} pods", pods.lister().list(&"app=web".parse()?).len());
/// tokio::signal::ctrl_c().await?;
/// factory.shutdown().await;
/// # Ok(()) }
/// ```
pub struct SharedInformerFactory {
    core: Core,
    number: u64,
    clusters: ClusterSelector,
    namespace: Option<String>,
    tweak: Option<Tweak>,
    transform: Option<Transform>,
    /// Resync period; zero disables resyncs.
    resync: Duration,
    resyncs: BTreeMap<Gvr, Duration>,
    informers: Mutex<Created>,
}

#[derive(Default)]
struct Created {
    informers: BTreeMap<(Gvr, bool), SharedInformer>,
    is_shut_down: bool,
}

/// Result of waiting for each type to sync.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SyncResult {
    /// Result by type, for the started informers; the error says which clusters have not synced.
    pub types: BTreeMap<Gvr, Result<(), NotSynced>>,
}

impl SyncResult {
    /// Combines the errors of all types; client-go's `SyncResult.AsError`.
    ///
    /// # Errors
    /// [`NotSynced`] if any type has not synced.
    pub fn into_error(self) -> Result<(), NotSynced> {
        let failed: Vec<_> = self.types.into_values().filter_map(Result::err).collect();
        let Some(waited) = failed.iter().map(|error| error.waited).max() else { return Ok(()) };
        Err(NotSynced { waited, waiting: failed.into_iter().flat_map(|error| error.waiting).collect() })
    }
}

/// Number of factories created so far. A factory uses its number in the names of its informers.
static FACTORIES: AtomicU64 = AtomicU64::new(0);

impl SharedInformerFactory {
    /// Creates a factory over all clusters of a hub, all namespaces, without resync.
    #[must_use]
    pub fn new(system: &HubSystem) -> Self {
        Self {
            core: Core::new(system),
            number: FACTORIES.fetch_add(1, Relaxed),
            clusters: ClusterSelector::All,
            namespace: None,
            tweak: None,
            transform: None,
            resync: Duration::ZERO,
            resyncs: BTreeMap::new(),
            informers: Mutex::default(),
        }
    }

    /// Selects the clusters that informers watch. The selector also applies to clusters that are added later.
    #[must_use]
    pub fn with_clusters(self, clusters: ClusterSelector) -> Self {
        Self { clusters, ..self }
    }

    /// Selects one namespace; `""` selects all, as client-go's `NamespaceAll`. Has no effect on cluster-scoped types.
    #[must_use]
    pub fn with_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()), ..self }
    }

    /// Sets a function that narrows the selection of objects. It is called once for each new informer.
    #[must_use]
    pub fn with_tweak_list_options(self, tweak: impl Fn(&mut ListOptions) + Send + Sync + 'static) -> Self {
        Self { tweak: Some(Arc::new(tweak)), ..self }
    }

    /// Sets the transform of informers that do not set their own.
    #[must_use]
    pub fn with_transform(self, transform: Transform) -> Self {
        Self { transform: Some(transform), ..self }
    }

    /// Sets the resync period of handlers that do not set their own (at least one second; zero for never).
    #[must_use]
    pub fn with_default_resync(self, period: Duration) -> Self {
        Self { resync: period, ..self }
    }

    /// Sets the resync period for one type; zero for never.
    #[must_use]
    pub fn with_custom_resync<K>(mut self, period: Duration) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.resyncs.insert(api_resource::<K>().gvr, period);
        self
    }

    /// Returns the informer of a Rust type.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] if the factory has been shut down.
    pub fn informer<K>(&self) -> Result<SharedInformer<K>, InformerError>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.make(&api_resource::<K>(), false).map(SharedInformer::cast)
    }

    /// Returns the informer of any resource, with objects as JSON. It is the same informer as a typed one of that
    /// resource.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] if the factory has been shut down.
    pub fn dynamic_informer(&self, resource: &ApiResource) -> Result<SharedInformer, InformerError> {
        self.make(resource, false)
    }

    /// Returns the informer of a type's metadata: PartialObjectMetadata is requested, sent and kept. Objects are
    /// decoded as [`kube::core::PartialObjectMeta`].
    ///
    /// # Errors
    /// [`InformerError::Stopped`] if the factory has been shut down.
    pub fn metadata_informer<K>(&self) -> Result<SharedInformer<kube::core::PartialObjectMeta<K>>, InformerError>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.make(&api_resource::<K>(), true).map(SharedInformer::cast)
    }

    /// Returns the informer of any resource's metadata: PartialObjectMetadata is requested, sent and kept, with objects
    /// as JSON.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] if the factory has been shut down.
    pub fn dynamic_metadata_informer(&self, resource: &ApiResource) -> Result<SharedInformer, InformerError> {
        self.make(resource, true)
    }

    fn make(&self, resource: &ApiResource, metadata_only: bool) -> Result<SharedInformer, InformerError> {
        let mut created = self.informers.lock();
        if created.is_shut_down {
            return Err(InformerError::Stopped);
        }
        let informer = created.informers.entry((resource.gvr.clone(), metadata_only)).or_insert_with(|| {
            let form = if metadata_only { "-metadata" } else { "" };
            let name = format!("factory-{}/{}{form}", self.number, resource.gvr.long());
            let parts = Parts {
                name,
                resource: resource.clone(),
                scope: self.scope(resource, metadata_only),
                clusters: self.clusters.clone(),
                resync: self.resyncs.get(&resource.gvr).copied().unwrap_or(self.resync),
                transform: self.transform.clone(),
            };
            SharedInformer::new(self.core.clone(), parts)
        });
        Ok(informer.clone())
    }

    fn scope(&self, resource: &ApiResource, metadata_only: bool) -> Scope {
        let mut options = ListOptions::default();
        if let Some(tweak) = &self.tweak {
            tweak(&mut options);
        }
        Scope {
            namespace: self.namespace.as_deref().filter(|_| resource.namespaced).map(Into::into),
            label_selector: options.label_selector.map(|selector| selector.to_string().into()),
            field_selector: options.field_selector.map(Into::into),
            view: if metadata_only { View::Metadata } else { self.core.env.whole_view(resource) },
        }
    }

    /// Starts the informers that have not been started, and returns their number. Informers created later need another
    /// call. Does not wait for clusters.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] if the factory has been shut down, [`InformerError::Hub`] if the hub has ended.
    pub async fn start(&self) -> Result<usize, InformerError> {
        let informers = {
            let created = self.informers.lock();
            if created.is_shut_down {
                return Err(InformerError::Stopped);
            }
            created.informers.values().cloned().collect::<Vec<_>>()
        };
        self.core.registry.send(Start).await?;
        let mut started = 0;
        for informer in informers {
            started += usize::from(informer.start().await?);
        }
        Ok(started)
    }

    /// Waits until each started informer has synced in every cluster, or until the timeout.
    pub async fn wait_for_cache_sync(&self, timeout: Duration) -> SyncResult {
        let informers: Vec<_> = self.informers.lock().informers.values().cloned().collect();
        let started = informers.into_iter().filter(SharedInformer::has_started);
        let waits = started
            .map(|informer| async move { (informer.resource().gvr.clone(), informer.wait_for_sync(timeout).await) });
        let mut types = BTreeMap::<Gvr, Result<(), NotSynced>>::new();
        for (gvr, result) in join_all(waits).await {
            // If a type is watched as whole objects and as metadata, both must have synced.
            let known = types.entry(gvr).or_insert(Ok(()));
            if known.is_ok() {
                *known = result;
            }
        }
        SyncResult { types }
    }

    /// Removes all handlers and stops all informers. A watch ends unless other informers of the hub watch the same
    /// objects. Completes when no handler is running. Idempotent. Afterwards the factory creates and starts nothing.
    pub async fn shutdown(&self) {
        let informers: Vec<_> = {
            let mut created = self.informers.lock();
            created.is_shut_down = true;
            created.informers.values().cloned().collect()
        };
        join_all(informers.iter().map(SharedInformer::stop)).await;
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory")
            .field("clusters", &self.clusters)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

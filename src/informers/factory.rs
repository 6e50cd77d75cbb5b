//! The factory: one shared informer per type, all with the same scope; client-go's `SharedInformerFactory`.

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

/// What the list and watch requests of an informer carry besides what the protocol needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Only objects whose labels match; `None` for all.
    pub label_selector: Option<LabelSelector>,
    /// Only objects whose fields match, as kubectl takes it; `None` for all.
    pub field_selector: Option<String>,
}

type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// Makes shared informers over the clusters of a hub, at most one for each type and form, all with the same namespace,
/// options and clusters.
///
/// Settings come first, informers after: a setting counts for the informers that are made later.
///
/// An informer without a transform is shared with everybody in the hub who watches the same (other factories, the
/// configuration where it does not keep only parts of the objects), and so are its objects; one with a transform is the
/// factory's own.
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
    /// Zero for never, as everywhere.
    resync: Duration,
    resyncs: BTreeMap<Gvr, Duration>,
    informers: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    informers: BTreeMap<(Gvr, bool), SharedInformer>,
    is_shut_down: bool,
}

/// Which types had synced when a wait ended.
#[derive(Debug, Clone)]
pub struct SyncResult {
    /// By type, for the informers that had been started: what had not synced, and why.
    pub types: BTreeMap<Gvr, Result<(), NotSynced>>,
}

impl SyncResult {
    /// One error that names everything that had not synced; client-go's `SyncResult.AsError`.
    ///
    /// # Errors
    /// [`NotSynced`] when any type had not.
    pub fn into_error(self) -> Result<(), NotSynced> {
        let failed: Vec<_> = self.types.into_values().filter_map(Result::err).collect();
        let Some(waited) = failed.iter().map(|error| error.waited).max() else { return Ok(()) };
        Err(NotSynced { waited, waiting: failed.into_iter().flat_map(|error| error.waiting).collect() })
    }
}

/// Numbers factories, so that their informers can be told apart.
static FACTORIES: AtomicU64 = AtomicU64::new(0);

impl SharedInformerFactory {
    /// A factory over all clusters of a hub, all namespaces, without resync.
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

    /// Only these clusters, now and later.
    #[must_use]
    pub fn with_clusters(self, clusters: ClusterSelector) -> Self {
        Self { clusters, ..self }
    }

    /// Only one namespace; cluster-scoped types are not concerned.
    #[must_use]
    pub fn with_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Called once for each informer that is made, to narrow what it asks for.
    #[must_use]
    pub fn with_tweak_list_options(self, tweak: impl Fn(&mut ListOptions) + Send + Sync + 'static) -> Self {
        Self { tweak: Some(Arc::new(tweak)), ..self }
    }

    /// The transform of every informer that has none of its own.
    #[must_use]
    pub fn with_transform(self, transform: Transform) -> Self {
        Self { transform: Some(transform), ..self }
    }

    /// How often handlers that do not say are told of every object again (at least a second apart); zero for never.
    #[must_use]
    pub fn with_default_resync(self, period: Duration) -> Self {
        Self { resync: period, ..self }
    }

    /// The same for one type; zero for never.
    #[must_use]
    pub fn with_custom_resync<K>(mut self, period: Duration) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.resyncs.insert(api_resource::<K>().gvr, period);
        self
    }

    /// The informer of a Rust type.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] when the factory has been shut down.
    pub fn informer<K>(&self) -> Result<SharedInformer<K>, InformerError>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.make(&api_resource::<K>(), false).map(SharedInformer::cast)
    }

    /// The informer of any resource, its objects read as JSON. A typed one of the same resource is the same informer.
    ///
    /// # Errors
    /// As [`Self::informer`].
    pub fn dynamic_informer(&self, resource: &ApiResource) -> Result<SharedInformer, InformerError> {
        self.make(resource, false)
    }

    /// The informer of a type's metadata alone: PartialObjectMetadata is asked for, sent and kept. Read its objects as
    /// [`kube::core::PartialObjectMeta`], or by their head.
    ///
    /// # Errors
    /// As [`Self::informer`].
    pub fn metadata_informer<K>(&self) -> Result<SharedInformer<kube::core::PartialObjectMeta<K>>, InformerError>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.make(&api_resource::<K>(), true).map(SharedInformer::cast)
    }

    /// The same of any resource.
    ///
    /// # Errors
    /// As [`Self::informer`].
    pub fn dynamic_metadata_informer(&self, resource: &ApiResource) -> Result<SharedInformer, InformerError> {
        self.make(resource, true)
    }

    fn make(&self, resource: &ApiResource, metadata_only: bool) -> Result<SharedInformer, InformerError> {
        let mut made = self.informers.lock();
        if made.is_shut_down {
            return Err(InformerError::Stopped);
        }
        let informer = made.informers.entry((resource.gvr.clone(), metadata_only)).or_insert_with(|| {
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

    /// Starts the informers that have not been started yet; those made later need another call. Returns how many that
    /// were. It waits for no cluster.
    ///
    /// # Errors
    /// [`InformerError::Stopped`] when the factory has been shut down, [`InformerError::Hub`] when the hub has ended.
    pub async fn start(&self) -> Result<usize, InformerError> {
        let informers = {
            let made = self.informers.lock();
            if made.is_shut_down {
                return Err(InformerError::Stopped);
            }
            made.informers.values().cloned().collect::<Vec<_>>()
        };
        self.core.registry.send(Start).await?;
        let mut started = 0;
        for informer in informers {
            started += usize::from(informer.start().await?);
        }
        Ok(started)
    }

    /// Waits until each informer that was started has synced in every cluster, or until the time is up.
    pub async fn wait_for_cache_sync(&self, timeout: Duration) -> SyncResult {
        let informers: Vec<_> = self.informers.lock().informers.values().cloned().collect();
        let started = informers.into_iter().filter(SharedInformer::has_started);
        let waits = started
            .map(|informer| async move { (informer.resource().gvr.clone(), informer.wait_for_sync(timeout).await) });
        let mut types = BTreeMap::<Gvr, Result<(), NotSynced>>::new();
        for (gvr, result) in join_all(waits).await {
            // Of a type in both forms, what has not synced counts.
            let known = types.entry(gvr).or_insert(Ok(()));
            if known.is_ok() {
                *known = result;
            }
        }
        SyncResult { types }
    }

    /// Stops all informers that nobody else uses and removes all handlers; ends when none is running any more.
    /// Idempotent; the factory makes and starts nothing afterwards.
    pub async fn shutdown(&self) {
        let informers: Vec<_> = {
            let mut made = self.informers.lock();
            made.is_shut_down = true;
            made.informers.values().cloned().collect()
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

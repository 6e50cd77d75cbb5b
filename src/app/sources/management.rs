//! Watcher of the objects of a management cluster, with informers in a separate registry.
//!
//! The watcher builds reports from complete cache snapshots, and only after the first list of every informer is
//! complete. So a broken list, an unreachable cluster or a lost permission removes no cluster. Only a complete list or
//! a watch event removes one.

use std::sync::Arc;
use std::time::Duration;

use actix::MailboxError;
use tokio::sync::Notify;

use super::feed::SourceFeed;
use super::status::ClusterSourceState;
use crate::actors::messages::{AddCluster, InformerFor, ResourceRequest, Shutdown, Start, User, ViewSync};
use crate::actors::{ClusterState, Env, FleetView, SeparateRegistry, Subscribe, Subscriber};
use crate::app::convert;
use crate::cache::Snapshot;
use informer_hub_codec::Projection;
use informer_hub_config::inventory::{
    PROFILE_SECRETS_SELECTOR, SourceReport, name_for, report_from_profiles, report_from_secrets,
};
use informer_hub_config::{ClusterConfig, ClusterSourceConfig, ClusterSourceKind, Management};
use informer_hub_dial::Dial;
use informer_hub_reflector::{InformerOptions, StallPolicy};
use informer_hub_types::{
    ApiResource, ClusterName, ClusterSelector, FieldPath, Gvr, LabelSelector, Notification, Phase, Scope, StoredObject,
    View, clock, rng,
};

/// Interval between two checks of the informers' states.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time over which changes are collected: several new clusters usually arrive one after the other.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Minimum delay before the failed watcher of a source is restarted. A random time of up to the same length is added.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Deadline of the shutdown of the actors that watch a source.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the ClusterProfile resource.
const PROFILES: &str = "clusterprofiles.v1alpha1.multicluster.x-k8s.io";

/// Parts of the hub that the watcher of a source uses.
#[derive(Clone)]
pub(in crate::app) struct WatchParams {
    pub(in crate::app) env: Env,
    /// Opens connections to management clusters in place of TCP.
    pub(in crate::app) dial: Option<Dial>,
    pub(in crate::app) stall: StallPolicy,
}

/// One watched resource of a source: selector and the fields to keep.
pub(crate) struct WatchedResource {
    /// Name of the resource in messages. Its informers are requested under this name.
    pub(crate) name: &'static str,
    pub(crate) resource: ResourceRequest,
    pub(crate) selector: Option<String>,
    keep: &'static [&'static str],
}

impl WatchedResource {
    /// Returns the scopes to watch: one for each namespace, or the whole cluster.
    pub(crate) fn scopes(&self, management: &Management) -> Vec<Scope> {
        let scope = |namespace: Option<&String>| Scope {
            namespace: namespace.map(Into::into),
            label_selector: self.selector.as_deref().map(Into::into),
            field_selector: None,
            view: View::Shared,
        };
        match &management.namespaces[..] {
            [] => vec![scope(None)],
            namespaces => namespaces.iter().map(|namespace| scope(Some(namespace))).collect(),
        }
    }
}

/// Returns the resources that a source watches in its management cluster; empty for a folder.
pub(crate) fn watched_resources(source: &ClusterSourceConfig) -> Vec<WatchedResource> {
    let also = |own: Option<&str>, given: Option<&LabelSelector>| {
        let parts: Vec<_> = own.map(str::to_owned).into_iter().chain(given.map(ToString::to_string)).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    };
    let secrets =
        |selector, keep| WatchedResource { name: SECRETS, resource: ResourceRequest::known(&secret()), selector, keep };
    match &source.kind {
        ClusterSourceKind::Secrets { management, format } => {
            let selector = also(Some(format.selector()), management.label_selector.as_ref());
            vec![secrets(selector, format.paths())]
        }
        ClusterSourceKind::ClusterProfiles { management, secrets: with_secrets, .. } => {
            let keep =
                &["metadata.labels", "status.properties", "status.accessProviders", "status.credentialProviders"];
            let resource = ResourceRequest::Written(PROFILES.parse().expect("PROFILES is a valid resource name"));
            let selector = also(None, management.label_selector.as_ref());
            let mut all = vec![WatchedResource { name: PROFILE, resource, selector, keep }];
            if *with_secrets {
                let keep = &["metadata.labels", "data.Config", "data.config"];
                all.push(secrets(Some(PROFILE_SECRETS_SELECTOR.to_owned()), keep));
            }
            all
        }
        _ => Vec::new(),
    }
}

const SECRETS: &str = "secrets";
const PROFILE: &str = "clusterprofiles";

fn secret() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true }
}

/// Decodes the objects of a source into its clusters. `objects` holds the JSON objects of each [`WatchedResource`], in
/// order.
pub(crate) fn read<J: AsRef<[u8]>>(source: &ClusterSourceConfig, mut objects: Vec<Vec<J>>) -> SourceReport {
    let second = if objects.len() > 1 { objects.remove(1) } else { Vec::new() };
    let first = objects.into_iter().next().unwrap_or_default();
    match &source.kind {
        ClusterSourceKind::Secrets { management, format } => report_from_secrets(source, management, *format, first),
        ClusterSourceKind::ClusterProfiles { providers, take_properties, .. } => {
            report_from_profiles(source, providers, take_properties, first, second)
        }
        _ => SourceReport::default(),
    }
}

/// Returns the management cluster of a source as a cluster configuration.
pub(crate) fn cluster(source: &ClusterSourceConfig, management: &Management) -> ClusterConfig {
    let name = name_for(&format!("cluster_sources.{}", source.name)).unwrap_or_else(placeholder);
    let mut cluster = ClusterConfig::new(name, management.access.clone());
    cluster.http = source.http;
    cluster.encoding = source.encoding;
    cluster
}

fn placeholder() -> ClusterName {
    "management".parse().expect("the name is valid")
}

/// Watches a management cluster, and publishes the clusters that its objects describe, until `feed` is stopped.
pub(super) async fn watch(source: ClusterSourceConfig, params: WatchParams, feed: SourceFeed) {
    let Some(management) = source.kind.management().cloned() else { return };
    loop {
        let session = Session::begin(&source, &management, &params);
        let done = session.run(&source, &management, &params, &feed).await;
        let deadline = clock::now();
        // An error means that the registry has ended already.
        let _ = tokio::time::timeout(STOP_TIMEOUT, session.apart.registry().send(Shutdown { deadline })).await;
        if done.is_ok() {
            return;
        }
        tracing::error!(source = source.name, "the watcher of a cluster source failed; restarting it");
        feed.set_state(ClusterSourceState::Unreachable, Some("its watcher failed; restarting it".to_owned()));
        tokio::select! {
            biased;
            () = feed.stop.cancelled() => return,
            () = tokio::time::sleep(RESTART_DELAY + RESTART_DELAY.mul_f64(rng::unit())) => {}
        }
    }
}

/// Informers of one cluster source, under a registry actor of their own.
struct Session {
    apart: SeparateRegistry,
    watched: Vec<WatchedResource>,
    scopes: usize,
    changed: Arc<Notify>,
}

impl Session {
    fn begin(source: &ClusterSourceConfig, management: &Management, params: &WatchParams) -> Self {
        let scopes = management.namespaces.len().max(1);
        Self {
            apart: SeparateRegistry::start(&params.env),
            watched: watched_resources(source),
            scopes,
            changed: Arc::default(),
        }
    }

    /// Publishes reports of the source's clusters until `feed` is stopped. Fails if the registry actor of the informers
    /// dies.
    async fn run(
        &self,
        source: &ClusterSourceConfig,
        management: &Management,
        params: &WatchParams,
        feed: &SourceFeed,
    ) -> Result<(), MailboxError> {
        self.start(source, management, params).await?;
        let view = FleetView::new(self.apart.registry().send(ViewSync).await?, self.apart.env().clone());
        let mut published: Option<Vec<Arc<Snapshot>>> = None;
        while let Some(()) = self.wait(feed).await {
            if !self.apart.registry().connected() {
                return Err(MailboxError::Closed);
            }
            if let Some(now) = self.complete() {
                let is_same = published.as_ref().is_some_and(|before| has_same_objects(before, &now));
                if !is_same {
                    if !feed.publish(read(source, now.iter().map(|snapshot| objects(snapshot)).collect())).await {
                        return Ok(());
                    }
                    published = Some(now);
                }
            }
            let (state, error) = source_state(&view, published.is_some());
            feed.set_state(state, error);
        }
        Ok(())
    }

    async fn start(
        &self,
        source: &ClusterSourceConfig,
        management: &Management,
        params: &WatchParams,
    ) -> Result<(), MailboxError> {
        let registry = self.apart.registry();
        let cluster = cluster(source, management);
        let connector = convert::connector(&cluster, params.stall, params.dial.clone(), &self.apart.env().io);
        let add = AddCluster { name: cluster.name, labels: cluster.labels, connector: Arc::new(connector) };
        // The registry is new and has no other cluster, so the name is free.
        let _ = registry.send(add).await?;
        for watching in &self.watched {
            let (WatchedResource { name, resource, keep, .. }, scopes) = (watching, watching.scopes(management));
            let keep: Vec<FieldPath> = keep.iter().filter_map(|path| path.parse().ok()).collect();
            let options =
                Arc::new(InformerOptions { projection: Projection::Keep(keep), ..InformerOptions::default() });
            let user = User::Caller((*name).to_owned());
            let (clusters, wanted) = (ClusterSelector::All, resource.clone());
            let demand = InformerFor { user: user.clone(), wanted, clusters, scopes, options, watch_errors: None };
            registry.send(demand).await?;
            let changed = Arc::clone(&self.changed);
            let subscriber = Subscriber::<()>::from_fn(move |_: &Notification<()>| changed.notify_one());
            registry.send(Subscribe::to_informers_of(user, ClusterSelector::All, subscriber).named(name)).await?;
        }
        registry.send(Start).await
    }

    /// Waits until objects or informer states may have changed; returns `None` once `feed` is stopped.
    async fn wait(&self, feed: &SourceFeed) -> Option<()> {
        let changed = async {
            // After a change, waits for further changes. A timeout also leads to a check.
            if tokio::time::timeout(POLL_INTERVAL, self.changed.notified()).await.is_ok() {
                tokio::time::sleep(DEBOUNCE).await;
            }
        };
        tokio::select! {
            biased;
            () = feed.stop.cancelled() => None,
            () = changed => Some(()),
        }
    }

    /// Returns the snapshot of each watched resource; `None` until all first lists are complete.
    fn complete(&self) -> Option<Vec<Arc<Snapshot>>> {
        let caches = &self.apart.env().caches;
        let snapshot_of = |resource: &str| {
            let (gvr, view) = caches.resources().into_iter().find(|(gvr, _)| *gvr.resource == *resource)?;
            caches.published(&gvr, &view)
        };
        let all = self.watched.iter().map(|watching| {
            let snapshot = snapshot_of(watching.name)?;
            let synced = snapshot.partitions().filter(|(_, partition)| partition.has_synced()).count();
            (synced == self.scopes && snapshot.partitions().count() == self.scopes).then_some(snapshot)
        });
        all.collect()
    }
}

/// Whether two lists of snapshots hold the same objects.
fn has_same_objects(before: &[Arc<Snapshot>], now: &[Arc<Snapshot>]) -> bool {
    before.iter().zip(now).all(|(before, now)| {
        now.partitions().all(|(id, partition)| before.partition(id).is_some_and(|then| then.has_objects_of(partition)))
    })
}

/// Returns all objects as JSON, sorted by namespace and name.
fn objects(snapshot: &Snapshot) -> Vec<Arc<[u8]>> {
    let mut all: Vec<&Arc<StoredObject>> = snapshot.partitions().flat_map(|(_, partition)| partition.iter()).collect();
    all.sort_by_key(|object| object.key().clone());
    // An object that cannot be unpacked means damaged memory; it is skipped.
    all.into_iter().filter_map(|object| object.json().ok()).collect()
}

/// Returns the state of a source, and the error that explains it. The most severe problem of the management cluster or
/// of an informer decides. Without problems, the source is current if it has published a report (`has_published`), else
/// waiting.
fn source_state(view: &FleetView, has_published: bool) -> (ClusterSourceState, Option<String>) {
    let Some(cluster) = view.clusters().next() else { return (ClusterSourceState::Waiting, None) };
    if matches!(cluster.state(), ClusterState::Unreachable | ClusterState::Degraded) {
        let error = cluster.last_error().unwrap_or_else(|| "the management cluster does not answer".to_owned());
        return (ClusterSourceState::Unreachable, Some(error));
    }
    let failures = cluster.informers().filter_map(|informer| {
        let health = informer.health();
        let (severity, state) = match health.phase() {
            Phase::Absent => (0, ClusterSourceState::Absent),
            Phase::Forbidden => (1, ClusterSourceState::Forbidden),
            Phase::Stale | Phase::Degraded | Phase::Stopped => (2, ClusterSourceState::Unreachable),
            Phase::Pending | Phase::Listing | Phase::Watching | Phase::Paused => return None,
        };
        Some((severity, state, health.error().map(|error| error.to_string())))
    });
    match failures.max_by_key(|(severity, ..)| *severity) {
        Some((_, state, error)) => (state, error),
        None if has_published => (ClusterSourceState::Current, None),
        None => (ClusterSourceState::Waiting, None),
    }
}

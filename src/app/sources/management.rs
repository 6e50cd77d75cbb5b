//! Objects of a management cluster, watched by informers of the hub's own kind in a registry apart.
//!
//! What comes of them is read as a whole from what their caches publish, once each first list is complete: so a list that
//! breaks off, a cluster that is away and rights that are gone take nothing from what was known, and what is not there
//! any more is what a whole list or a watch has said.

use std::sync::Arc;
use std::time::Duration;

use actix::MailboxError;
use tokio::sync::Notify;

use super::{ClusterSourceState, Ear};
use crate::actors::messages::{AddCluster, InformerFor, ResourceRequest, Shutdown, Start, User, ViewSync};
use crate::actors::{Apart, ClusterState, Env, FleetView, Subscribe, Subscriber};
use crate::app::convert;
use crate::app::reload::Running;
use crate::cache::Snapshot;
use informer_hub_config::fleet::{
    ARGOCD_SELECTOR, CLUSTER_API_SELECTOR, PROFILE_SECRETS_SELECTOR, SourceReport, name_for, report_from_argocd,
    report_from_cluster_api, report_from_profiles,
};
use informer_hub_config::{ClusterConfig, ClusterSourceConfig, ClusterSourceKind, Management, SecretFormat};
use informer_hub_dial::Dial;
use informer_hub_reflector::{InformerOptions, Projection, StallPolicy};
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, ClusterSelector, FieldPath, Gvr, LabelSelector, Notification, Phase,
    Scope, StoredObject, View, clock, rng,
};

/// How often it is looked how the informers are doing.
const LOOK: Duration = Duration::from_secs(1);

/// For how long changes are gathered: who makes ten clusters makes them one after the other.
const GATHER: Duration = Duration::from_millis(100);

/// How long until a registry that has died is begun anew, with up to as much again at random.
const REST: Duration = Duration::from_secs(5);

/// How long the registry has to end.
const END: Duration = Duration::from_secs(5);

/// The resource, as discovery finds it.
const PROFILES: &str = "clusterprofiles.v1alpha1.multicluster.x-k8s.io";

/// Where a watcher works.
pub(super) struct Place {
    env: Env,
    dial: Option<Dial>,
    stall: StallPolicy,
}

impl Place {
    pub(super) fn of(running: &Running) -> Self {
        Self { env: running.env.clone(), dial: running.dials.clusters.clone(), stall: running.stall }
    }
}

/// What is watched: a resource, selected in this way, of which these fields are kept.
pub(crate) struct Watching {
    /// What it is called in messages and as a user of informers.
    pub(crate) what: &'static str,
    pub(crate) wanted: ResourceRequest,
    pub(crate) selector: Option<String>,
    keep: &'static [&'static str],
}

impl Watching {
    /// Where it is watched.
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

/// What a source watches in its management cluster; nothing of a folder.
pub(crate) fn watched(source: &ClusterSourceConfig) -> Vec<Watching> {
    let also = |own: Option<&str>, given: Option<&LabelSelector>| {
        let parts: Vec<_> = own.map(str::to_owned).into_iter().chain(given.map(ToString::to_string)).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    };
    let secrets =
        |selector, keep| Watching { what: SECRETS, wanted: ResourceRequest::known(&secret()), selector, keep };
    match &source.kind {
        ClusterSourceKind::Folder { .. } => Vec::new(),
        ClusterSourceKind::Secrets { management, format } => {
            let (own, keep): (_, &[_]) = match format {
                SecretFormat::ArgoCd => {
                    (ARGOCD_SELECTOR, &["metadata.labels", "data.name", "data.server", "data.config"])
                }
                SecretFormat::ClusterApi => (CLUSTER_API_SELECTOR, &["metadata.labels", "type", "data.value"]),
            };
            vec![secrets(also(Some(own), management.label_selector.as_ref()), keep)]
        }
        ClusterSourceKind::ClusterProfiles { management, secrets: with_secrets, .. } => {
            let keep =
                &["metadata.labels", "status.properties", "status.accessProviders", "status.credentialProviders"];
            let wanted = ResourceRequest::Written(PROFILES.parse().expect("it is the name of a resource"));
            let selector = also(None, management.label_selector.as_ref());
            let mut all = vec![Watching { what: PROFILE, wanted, selector, keep }];
            if *with_secrets {
                let keep = &["metadata.labels", "data.Config", "data.config"];
                all.push(secrets(Some(PROFILE_SECRETS_SELECTOR.to_owned()), keep));
            }
            all
        }
    }
}

const SECRETS: &str = "secrets";
const PROFILE: &str = "clusterprofiles";

fn secret() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true }
}

/// What objects of a source say, those of each [`Watching`] in their order, each as JSON.
pub(crate) fn read<J: AsRef<[u8]>>(source: &ClusterSourceConfig, mut objects: Vec<Vec<J>>) -> SourceReport {
    let second = if objects.len() > 1 { objects.remove(1) } else { Vec::new() };
    let first = objects.into_iter().next().unwrap_or_default();
    match &source.kind {
        ClusterSourceKind::Folder { .. } => SourceReport::default(),
        ClusterSourceKind::Secrets { management, format: SecretFormat::ArgoCd } => {
            report_from_argocd(source, management, first)
        }
        ClusterSourceKind::Secrets { format: SecretFormat::ClusterApi, .. } => report_from_cluster_api(source, first),
        ClusterSourceKind::ClusterProfiles { providers, take_properties, .. } => {
            report_from_profiles(source, providers, take_properties, first, second)
        }
    }
}

/// The management cluster of a source, as a cluster of its own.
pub(crate) fn cluster(source: &ClusterSourceConfig, management: &Management) -> ClusterConfig {
    let name = name_for(&format!("cluster_sources.{}", source.name)).unwrap_or_else(placeholder);
    let access = management.access.clone();
    ClusterConfig { name, labels: ClusterLabels::new(), access, compression: true }
}

fn placeholder() -> ClusterName {
    "management".parse().expect("it is a valid name")
}

/// Watches a management cluster until it is stopped.
pub(super) async fn watch(source: ClusterSourceConfig, place: Place, ear: Ear) {
    let Some(management) = source.kind.management().cloned() else { return };
    loop {
        let session = Session::begin(&source, &management, &place);
        let done = session.run(&source, &management, &place, &ear).await;
        let deadline = clock::now();
        // An error means that it has ended already.
        let _ = tokio::time::timeout(END, session.apart.registry().send(Shutdown { deadline })).await;
        if done.is_ok() {
            return;
        }
        tracing::error!(source = source.name, "what watches a source of clusters has died; it is begun anew");
        ear.show(ClusterSourceState::Unreachable, Some("what watches it has died; it is begun anew".to_owned()));
        tokio::select! {
            biased;
            () = ear.stop.cancelled() => return,
            () = tokio::time::sleep(REST + REST.mul_f64(rng::unit())) => {}
        }
    }
}

/// A registry and what it watches.
struct Session {
    apart: Apart,
    watched: Vec<Watching>,
    scopes: usize,
    changed: Arc<Notify>,
}

impl Session {
    fn begin(source: &ClusterSourceConfig, management: &Management, place: &Place) -> Self {
        let scopes = management.namespaces.len().max(1);
        Self { apart: Apart::start(&place.env), watched: watched(source), scopes, changed: Arc::default() }
    }

    /// Runs until it is stopped, or dies.
    async fn run(
        &self,
        source: &ClusterSourceConfig,
        management: &Management,
        place: &Place,
        ear: &Ear,
    ) -> Result<(), MailboxError> {
        self.start(source, management, place).await?;
        let view = FleetView::new(self.apart.registry().send(ViewSync).await?, self.apart.env().clone());
        let mut said: Option<Vec<Arc<Snapshot>>> = None;
        while let Some(()) = self.wait(ear).await {
            if !self.apart.registry().connected() {
                return Err(MailboxError::Closed);
            }
            if let Some(now) = self.complete() {
                let is_same = said.as_ref().is_some_and(|before| is_same(before, &now));
                if !is_same {
                    if !ear.hear(read(source, now.iter().map(|snapshot| objects(snapshot)).collect())).await {
                        return Ok(());
                    }
                    said = Some(now);
                }
            }
            let (state, error) = judge(&view, said.is_some());
            ear.show(state, error);
        }
        Ok(())
    }

    async fn start(
        &self,
        source: &ClusterSourceConfig,
        management: &Management,
        place: &Place,
    ) -> Result<(), MailboxError> {
        let registry = self.apart.registry();
        let cluster = cluster(source, management);
        let connector = convert::connector(&cluster, place.stall, place.dial.clone(), &self.apart.env().io);
        let add = AddCluster { name: cluster.name, labels: cluster.labels, connector: Arc::new(connector) };
        // An error would be a second cluster, and there is one.
        let _ = registry.send(add).await?;
        for watching in &self.watched {
            let (Watching { what, wanted, keep, .. }, scopes) = (watching, watching.scopes(management));
            let keep: Vec<FieldPath> = keep.iter().filter_map(|path| path.parse().ok()).collect();
            let options = InformerOptions { projection: Projection::Keep(keep), ..InformerOptions::default() };
            let user = User::Caller((*what).to_owned());
            let (clusters, wanted) = (ClusterSelector::All, wanted.clone());
            let demand = InformerFor { user: user.clone(), wanted, clusters, scopes, options, watch_errors: None };
            registry.send(demand).await?;
            let changed = Arc::clone(&self.changed);
            let subscriber = Subscriber::<()>::from_fn(move |_: &Notification<()>| changed.notify_one());
            registry.send(Subscribe::to_informers_of(user, ClusterSelector::All, subscriber).named(what)).await?;
        }
        registry.send(Start).await
    }

    /// Returns when something may have changed; `None` when it is to end.
    async fn wait(&self, ear: &Ear) -> Option<()> {
        let changed = async {
            // Whether something changed or the time is up makes no difference.
            if tokio::time::timeout(LOOK, self.changed.notified()).await.is_ok() {
                tokio::time::sleep(GATHER).await;
            }
        };
        tokio::select! {
            biased;
            () = ear.stop.cancelled() => None,
            () = changed => Some(()),
        }
    }

    /// What is watched, one after the other, once all first lists are complete.
    fn complete(&self) -> Option<Vec<Arc<Snapshot>>> {
        let caches = &self.apart.env().caches;
        let published = |resource: &str| {
            let (gvr, view) = caches.resources().into_iter().find(|(gvr, _)| *gvr.resource == *resource)?;
            caches.published(&gvr, &view)
        };
        let all = self.watched.iter().map(|watching| {
            let snapshot = published(watching.what)?;
            let synced = snapshot.partitions().filter(|(_, partition)| partition.has_synced()).count();
            (synced == self.scopes && snapshot.partitions().count() == self.scopes).then_some(snapshot)
        });
        all.collect()
    }
}

/// Whether nothing has been written since.
fn is_same(before: &[Arc<Snapshot>], now: &[Arc<Snapshot>]) -> bool {
    before.iter().zip(now).all(|(before, now)| {
        now.partitions().all(|(id, partition)| before.partition(id).is_some_and(|then| then.has_objects_of(partition)))
    })
}

/// All objects, by namespace and name.
fn objects(snapshot: &Snapshot) -> Vec<Arc<[u8]>> {
    let mut all: Vec<&Arc<StoredObject>> = snapshot.partitions().flat_map(|(_, partition)| partition.iter()).collect();
    all.sort_by_key(|object| object.key().clone());
    // What cannot be unpacked is damaged memory: as good as not there.
    all.into_iter().filter_map(|object| object.json().ok()).collect()
}

/// How a source is doing, by its informers.
fn judge(view: &FleetView, has_said: bool) -> (ClusterSourceState, Option<String>) {
    let Some(cluster) = view.clusters().next() else { return (ClusterSourceState::Waiting, None) };
    if matches!(cluster.state(), ClusterState::Unreachable | ClusterState::Degraded) {
        let error = cluster.last_error().unwrap_or_else(|| "the management cluster does not answer".to_owned());
        return (ClusterSourceState::Unreachable, Some(error));
    }
    let mut worst = if has_said { ClusterSourceState::Current } else { ClusterSourceState::Waiting };
    let mut why = None;
    for informer in cluster.informers() {
        let health = informer.health();
        let state = match health.phase() {
            Phase::Forbidden => ClusterSourceState::Forbidden,
            Phase::Absent => ClusterSourceState::Absent,
            Phase::Stale | Phase::Degraded | Phase::Stopped => ClusterSourceState::Unreachable,
            Phase::Pending | Phase::Listing | Phase::Watching | Phase::Paused => continue,
        };
        worst = state;
        why = health.error().map(|error| error.to_string());
    }
    (worst, why)
}

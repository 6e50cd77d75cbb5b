//! Monitor of the expiry of credentials: those of clusters, management clusters, sinks and the HTTP port.
//!
//! Credential files are polled every [`POLL_INTERVAL`]. A file is read again only if it changed or its credential
//! expires soon. A credential is logged when its notice period before the expiry begins, and when three quarters of
//! this period have passed. It is logged again when it has expired. See [`Credential::expiry`]. The checks send no
//! request to a cluster and run no plugin. Secrets are neither kept nor logged.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use kube::config::Kubeconfig;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::convert;
use super::sources::management_cluster;
use informer_hub_config::{Config, SinkConfig};
use informer_hub_disk::FileStates;
use informer_hub_source::{self as source, Access, context_credentials, read_any_kubeconfig};
use informer_hub_types::{Credential, CredentialKind, CredentialStatus, Expiry, Threads, clock};

/// Interval between two checks of the credential files.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Port,
    Cluster(String),
    Source(String),
    Sink(String),
}

/// Where credentials are read from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum CredentialSource {
    Cluster(Access),
    Certificate(CredentialKind, PathBuf),
}

/// Parts of the hub that a [`CredentialWatch`] needs: threads and the configuration.
pub(super) trait CredentialOwners: Send + Sync + 'static {
    /// Threads that check the credentials and read their files.
    fn threads(&self) -> &Threads;

    /// Calls `read` with the configuration in force, including the clusters of cluster sources. Waits while another
    /// configuration is applied.
    fn with_config<R: Send>(&self, read: fn(&Config) -> R) -> impl Future<Output = R> + Send;
}

/// Watch over the expiry of the credentials of a hub.
pub(super) struct CredentialWatch {
    /// Credentials by owner, as of the last check. Replaced as a whole, so that the status never waits for a file.
    known: ArcSwap<BTreeMap<Owner, OwnerCredentials>>,
    /// Notified to start the next check of the credentials immediately.
    wake: Notify,
    end: CancellationToken,
}

/// Credentials of one owner, as of the last check.
#[derive(Clone)]
struct OwnerCredentials {
    source: CredentialSource,
    files: FileStates,
    found: Vec<Credential>,
    /// Worst expiry state logged so far, for each credential that expires soon or has expired. The key is the kind and
    /// the location (such as a file) of the credential.
    logged: BTreeMap<(CredentialKind, String), Expiry>,
}

/// Earliest expiry of the credentials of one owner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Summary {
    /// Time when the first of these credentials expires.
    pub(super) expires: Timestamp,
    /// Worst expiry state among these credentials, such as expired.
    pub(super) state: Expiry,
}

impl Default for CredentialWatch {
    fn default() -> Self {
        Self { known: ArcSwap::default(), wake: Notify::new(), end: CancellationToken::new() }
    }
}

impl CredentialWatch {
    /// Starts the repeated checks of the credentials, which end when the watch is closed or the hub is dropped.
    pub(super) fn begin<O: CredentialOwners>(self: &Arc<Self>, owners: &Arc<O>) {
        owners.threads().spawn(watch(Arc::clone(self), Arc::downgrade(owners)));
    }

    /// Starts a check of the credentials immediately, after a change of the configuration or of a cluster source.
    pub(super) fn check_now(&self) {
        self.wake.notify_one();
    }

    pub(super) fn close(&self) {
        self.end.cancel();
    }

    /// Returns the credentials of an owner that have an expiry, the earliest first.
    pub(super) fn of(&self, owner: &Owner) -> Vec<CredentialStatus> {
        let (now, known) = (clock::wall(), self.known.load());
        let found = known.get(owner).map(|known| &known.found[..]).unwrap_or_default();
        let mut all: Vec<_> = found.iter().filter_map(|one| CredentialStatus::of(one, now)).collect();
        all.sort_by_key(|one| one.expires);
        all
    }

    /// Returns the earliest expiry of an owner's credentials; `None` if no expiry is known.
    pub(super) fn summary(&self, owner: &Owner) -> Option<Summary> {
        let (now, known) = (clock::wall(), self.known.load());
        let found = &known.get(owner)?.found;
        let expires = found.iter().filter_map(|one| one.expires).min()?;
        let state = found.iter().map(|one| one.expiry(now)).max().unwrap_or_default();
        Some(Summary { expires, state })
    }

    /// Updates the known credentials from `sources`. Reads only files that changed, and files of credentials that
    /// expire soon. Logs credentials that expire soon or have expired. Blocks.
    fn check(&self, sources: Vec<(Owner, CredentialSource)>, now: Timestamp) {
        let mut kubeconfigs = HashMap::new();
        let (before, mut known) = (self.known.load_full(), BTreeMap::new());
        for (owner, source) in sources {
            let before = before.get(&owner);
            let is_same = |before: &&OwnerCredentials| before.source == source && before.is_current(now);
            let mut found = match before.filter(is_same) {
                Some(before) => before.clone(),
                None => OwnerCredentials::read(source, &mut kubeconfigs),
            };
            found.logged = before.map(|before| before.logged.clone()).unwrap_or_default();
            found.log(&owner, now);
            known.insert(owner, found);
        }
        self.known.store(Arc::new(known));
    }

    /// Records the credentials of an owner, for tests that read no file.
    #[cfg(test)]
    pub(super) fn note(&self, owner: Owner, found: Vec<Credential>) {
        let source = CredentialSource::Cluster(Access::InCluster);
        let known = OwnerCredentials { source, files: FileStates::default(), found, logged: BTreeMap::new() };
        let mut all = BTreeMap::clone(&self.known.load());
        all.insert(owner, known);
        self.known.store(Arc::new(all));
    }
}

impl OwnerCredentials {
    fn read(source: CredentialSource, kubeconfigs: &mut HashMap<PathBuf, Option<Arc<Kubeconfig>>>) -> Self {
        let (mut files, mut found) = (Vec::new(), Vec::new());
        match &source {
            CredentialSource::Certificate(kind, path) => found.push(informer_hub_source::certificate_file(*kind, path)),
            CredentialSource::Cluster(Access::Kubeconfig { path, context }) => {
                files.push(path.clone());
                // Many clusters may be contexts of one kubeconfig, which is read once.
                let read = || read_any_kubeconfig(path).ok().map(Arc::new);
                let kubeconfig = kubeconfigs.entry(path.clone()).or_insert_with(read).clone();
                found.extend(kubeconfig.iter().flat_map(|it| context_credentials(it, context.as_deref())));
            }
            // Faults are reported by the client of the cluster.
            CredentialSource::Cluster(access) => found.extend(source::credentials(access).unwrap_or_default()),
        }
        files.extend(found.iter().filter_map(|one| one.file.clone()));
        Self { source, files: FileStates::of(files), found, logged: BTreeMap::new() }
    }

    /// Returns whether the credentials need not be read again. That is so if no file changed its size or modification
    /// time, and no credential expires soon or has expired. A change that keeps size and time is therefore noticed only
    /// when the credential expires soon.
    fn is_current(&self, now: Timestamp) -> bool {
        self.files.again() == self.files && !self.found.iter().any(|one| one.expiry(now).is_due())
    }

    fn log(&mut self, owner: &Owner, now: Timestamp) {
        let before = std::mem::take(&mut self.logged);
        for one in self.found.iter().filter(|one| one.expires.is_some()) {
            let (key, state) = ((one.kind, one.place.clone()), one.expiry(now));
            let was = before.get(&key).copied().unwrap_or_default();
            owner.log(one, was, state);
            if state.is_due() {
                // Keeps the worst state, so that nothing is logged twice if the clock is set back.
                self.logged.insert(key, state.max(was));
            }
        }
    }
}

impl Owner {
    fn names(&self) -> [Option<&str>; 3] {
        match self {
            Self::Port => [None, None, None],
            Self::Cluster(name) => [Some(name), None, None],
            Self::Source(name) => [None, Some(name), None],
            Self::Sink(name) => [None, None, Some(name)],
        }
    }

    fn log(&self, one: &Credential, was: Expiry, now: Expiry) {
        let [cluster, source, sink] = self.names();
        let (credential, place) = (one.kind.as_str(), &one.place);
        let expires = one.expires.map(tracing::field::display);
        match now {
            Expiry::Valid if was.is_due() => {
                tracing::info!(cluster, source, sink, credential, place, expires, "the credential was replaced");
            }
            Expiry::Soon | Expiry::Imminent if now > was => {
                tracing::warn!(
                    cluster,
                    source,
                    sink,
                    credential,
                    place,
                    expires,
                    "the credential expires soon and has not been replaced"
                );
            }
            Expiry::Expired if now > was => {
                tracing::error!(cluster, source, sink, credential, place, expires, "the credential has expired");
            }
            _ => {}
        }
    }
}

async fn watch<O: CredentialOwners>(watch: Arc<CredentialWatch>, owners: Weak<O>) {
    let mut ticks = clock::ticks(POLL_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = watch.end.cancelled() => return,
            () = watch.wake.notified() => {}
            _ = ticks.tick() => {}
        }
        let Some(hub) = owners.upgrade() else { return };
        let sources = tokio::select! {
            biased;
            // `hub` keeps the state directory locked. When the hub is closed, it must be dropped here at once, even
            // while `with_config` waits for a long reload.
            () = watch.end.cancelled() => return,
            sources = hub.with_config(credential_sources) => sources,
        };
        if sources.is_empty() && watch.known.load().is_empty() {
            continue;
        }
        let (looking, threads) = (Arc::clone(&watch), hub.threads().clone());
        drop(hub);
        // An error means that the check panicked; the next one tries again.
        let _ = threads.spawn_blocking(move || looking.check(sources, clock::wall())).await;
    }
}

/// Returns where the credentials of a configuration are read from, each with the owner of the credentials. Leaves out
/// credentials that cannot expire.
fn credential_sources(config: &Config) -> Vec<(Owner, CredentialSource)> {
    let mut all = Vec::new();
    if let Some(tls) = &config.hub.service.tls {
        all.push((
            Owner::Port,
            CredentialSource::Certificate(CredentialKind::ServerCertificate, tls.cert_file.clone()),
        ));
    }
    for cluster in &config.clusters {
        all.push((Owner::Cluster(cluster.name.to_string()), CredentialSource::Cluster(convert::access(cluster))));
    }
    for source in &config.sources {
        if let Some(management) = source.kind.management() {
            let access = convert::access(&management_cluster(source, management));
            all.push((Owner::Source(source.name.clone()), CredentialSource::Cluster(access)));
        }
    }
    for sink in &config.sinks {
        if let Some(file) = client_certificate(sink) {
            let source = CredentialSource::Certificate(CredentialKind::ClientCertificate, file);
            all.push((Owner::Sink(sink.name.clone()), source));
        }
    }
    all.retain(|(_, source)| source.may_expire());
    all
}

fn client_certificate(sink: &SinkConfig) -> Option<PathBuf> {
    sink.transport.client_cert().map(|certificate| certificate.cert_file.clone())
}

impl CredentialSource {
    /// Whether credentials of this source can expire.
    fn may_expire(&self) -> bool {
        let without = |access: &Access| {
            matches!(access, Access::Awaited { .. } | Access::Agent | Access::Server { ca_file: None, token: None, .. })
        };
        !matches!(self, Self::Cluster(access) if without(access))
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;

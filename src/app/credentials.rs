//! Watches how long the credentials in use last: of clusters, of the management clusters of sources, of sinks, of the hub's
//! own port.
//!
//! Files are looked at every [`LOOK`], and read again only when they have changed or when what they held is due. A warning is
//! logged when a credential becomes due, again when three quarters of the notice have passed, and once when it has ended: see
//! [`Credential::expiry`] for when that is. Nothing is asked of a cluster and no plugin is run. Nothing that is kept or logged
//! is secret.

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
use super::reload::Running;
use super::sources::management_cluster;
use informer_hub_config::{Config, SinkConfig, TransportConfig};
use informer_hub_disk::FileStates;
use informer_hub_source::{self as source, Access, context_credentials, read_any_kubeconfig};
use informer_hub_types::clock;
use informer_hub_types::{Credential, CredentialKind, CredentialStatus, Expiry};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(60);

/// Whose credentials they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Port,
    Cluster(String),
    Source(String),
    Sink(String),
}

/// Where credentials are to be had.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Cluster(Access),
    Certificate(CredentialKind, PathBuf),
}

/// See the module.
pub(super) struct CredentialWatch {
    /// Replaced as a whole: what reads it waits for no file.
    known: ArcSwap<BTreeMap<Owner, Known>>,
    /// Asks for a look at once.
    hurry: Notify,
    end: CancellationToken,
}

/// What was found at the last look.
#[derive(Clone)]
struct Known {
    origin: Origin,
    files: FileStates,
    found: Vec<Credential>,
    /// The state that was logged last, of those that are due.
    logged: BTreeMap<(CredentialKind, String), Expiry>,
}

/// The credentials of one owner, in short.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Summary {
    /// When the first of them ends.
    pub(super) expires: Timestamp,
    /// How near the end of that one is which is nearest to it.
    pub(super) state: Expiry,
}

impl Default for CredentialWatch {
    fn default() -> Self {
        Self { known: ArcSwap::default(), hurry: Notify::new(), end: CancellationToken::new() }
    }
}

impl CredentialWatch {
    /// Looks until it is closed or the hub is gone.
    pub(super) fn begin(self: &Arc<Self>, running: &Arc<Running>) {
        running.env.io.spawn(keep(Arc::clone(self), Arc::downgrade(running)));
    }

    /// Looks at once: the configuration, or what sources say, has changed.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Ends it.
    pub(super) fn close(&self) {
        self.end.cancel();
    }

    /// What is known of an owner's credentials that have an end, the first to end first.
    pub(super) fn of(&self, owner: &Owner) -> Vec<CredentialStatus> {
        let (now, known) = (clock::wall(), self.known.load());
        let found = known.get(owner).map(|known| &known.found[..]).unwrap_or_default();
        let mut all: Vec<_> = found.iter().filter_map(|one| CredentialStatus::of(one, now)).collect();
        all.sort_by_key(|one| one.expires);
        all
    }

    /// The same in short; `None` where no end is known.
    pub(super) fn summary(&self, owner: &Owner) -> Option<Summary> {
        let (now, known) = (clock::wall(), self.known.load());
        let found = &known.get(owner)?.found;
        let expires = found.iter().filter_map(|one| one.expires).min()?;
        let state = found.iter().map(|one| one.expiry(now)).max().unwrap_or_default();
        Some(Summary { expires, state })
    }

    /// Reads what has changed, and logs what has become due. Blocks.
    fn look(&self, wanted: Vec<(Owner, Origin)>, now: Timestamp) {
        let mut kubeconfigs = HashMap::new();
        let (before, mut known) = (self.known.load_full(), BTreeMap::new());
        for (owner, origin) in wanted {
            let before = before.get(&owner);
            let is_same = |before: &&Known| before.origin == origin && before.is_current(now);
            let mut found = match before.filter(is_same) {
                Some(before) => before.clone(),
                None => Known::read(origin, &mut kubeconfigs),
            };
            found.logged = before.map(|before| before.logged.clone()).unwrap_or_default();
            found.log(&owner, now);
            known.insert(owner, found);
        }
        self.known.store(Arc::new(known));
    }

    /// Has found this, for tests.
    #[cfg(test)]
    pub(super) fn note(&self, owner: Owner, found: Vec<Credential>) {
        let origin = Origin::Cluster(Access::InCluster);
        let known = Known { origin, files: FileStates::default(), found, logged: BTreeMap::new() };
        let mut all = BTreeMap::clone(&self.known.load());
        all.insert(owner, known);
        self.known.store(Arc::new(all));
    }
}

impl Known {
    fn read(origin: Origin, kubeconfigs: &mut HashMap<PathBuf, Option<Arc<Kubeconfig>>>) -> Self {
        let (mut files, mut found) = (Vec::new(), Vec::new());
        match &origin {
            Origin::Certificate(kind, path) => found.push(informer_hub_source::certificate_file(*kind, path)),
            Origin::Cluster(Access::Kubeconfig { path, context }) => {
                files.push(path.clone());
                // Many clusters have one kubeconfig, of which each is a context.
                let read = || read_any_kubeconfig(path).ok().map(Arc::new);
                let kubeconfig = kubeconfigs.entry(path.clone()).or_insert_with(read).clone();
                found.extend(kubeconfig.iter().flat_map(|it| context_credentials(it, context.as_deref())));
            }
            // What is wrong with it, the client says.
            Origin::Cluster(access) => found.extend(source::credentials(access).unwrap_or_default()),
        }
        files.extend(found.iter().filter_map(|one| one.file.clone()));
        Self { origin, files: FileStates::of(files), found, logged: BTreeMap::new() }
    }

    /// Whether it need not be read again. A file that was written between being read and being looked at is read again when
    /// what it held is due.
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
                // A clock that is set back repeats nothing.
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
                    "the credential ends soon, and nothing has replaced it"
                );
            }
            Expiry::Expired if now > was => {
                tracing::error!(cluster, source, sink, credential, place, expires, "the credential has ended");
            }
            _ => {}
        }
    }
}

async fn keep(watch: Arc<CredentialWatch>, running: Weak<Running>) {
    let mut ticks = clock::ticks(LOOK);
    loop {
        tokio::select! {
            biased;
            () = watch.end.cancelled() => return,
            () = watch.hurry.notified() => {}
            _ = ticks.tick() => {}
        }
        let Some(running) = running.upgrade() else { return };
        let wanted = tokio::select! {
            biased;
            // The state directory is locked as long as this has the hub: a change that takes long is not waited for then.
            () = watch.end.cancelled() => return,
            wanted = running.with_config(wanted) => wanted,
        };
        if wanted.is_empty() && watch.known.load().is_empty() {
            continue;
        }
        let (looking, threads) = (Arc::clone(&watch), running.env.io.clone());
        drop(running);
        // A thread that panics is tried again at the next look.
        let _ = threads.spawn_blocking(move || looking.look(wanted, clock::wall())).await;
    }
}

/// Everything in a configuration that may have credentials with an end.
fn wanted(config: &Config) -> Vec<(Owner, Origin)> {
    let mut all = Vec::new();
    if let Some(tls) = &config.hub.service.tls {
        all.push((Owner::Port, Origin::Certificate(CredentialKind::ServerCertificate, tls.cert_file.clone())));
    }
    for cluster in &config.clusters {
        all.push((Owner::Cluster(cluster.name.to_string()), Origin::Cluster(convert::access(cluster))));
    }
    for source in &config.sources {
        if let Some(management) = source.kind.management() {
            let access = convert::access(&management_cluster(source, management));
            all.push((Owner::Source(source.name.clone()), Origin::Cluster(access)));
        }
    }
    for sink in &config.sinks {
        if let Some(file) = client_certificate(sink) {
            let origin = Origin::Certificate(CredentialKind::ClientCertificate, file);
            all.push((Owner::Sink(sink.name.clone()), origin));
        }
    }
    all.retain(|(_, origin)| origin.is_dated());
    all
}

fn client_certificate(sink: &SinkConfig) -> Option<PathBuf> {
    let certificate = match &sink.transport {
        TransportConfig::Webhook(hook) => hook.client_cert.as_ref(),
        TransportConfig::Nats(nats) => nats.client_cert.as_ref(),
        TransportConfig::File(_) | TransportConfig::Stdout(_) => None,
    };
    certificate.map(|certificate| certificate.cert_file.clone())
}

impl Origin {
    /// Whether anything of it could have an end.
    fn is_dated(&self) -> bool {
        !matches!(self, Self::Cluster(Access::Awaited { .. } | Access::Server { ca_file: None, token: None, .. }))
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;

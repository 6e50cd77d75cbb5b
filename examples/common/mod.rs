//! What the examples share: the command line, a client per cluster, when to wait and when to end, and who owns what.

#![allow(dead_code, reason = "each example takes what it needs")]

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use informer_hub::app;
use informer_hub::config::{ClusterAccess, ClusterConfig, Config};
use informer_hub::types::clock::{self, Instant};
use informer_hub::types::{ClusterLabels, ClusterName};
use informer_hub_telemetry::{self as telemetry, LogFormat};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How long a request may take. The clients have no deadline of their own.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many workers a controller has. Each waits for one request at a time.
pub(crate) const WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");

/// How long a key waits at least, and at most, whose cluster has not been read yet.
const UNSYNCED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// A client for each cluster.
pub(crate) type Clients = Arc<BTreeMap<ClusterName, Client>>;

/// Which clusters: a hub's configuration, or kubeconfigs.
#[derive(Parser)]
struct Args {
    /// The configuration file of a hub
    #[arg(short, long, value_name = "FILE", required_unless_present = "kubeconfigs")]
    config: Option<PathBuf>,
    /// Kubeconfigs, each for the cluster of its current context; a cluster is called what its file is called
    kubeconfigs: Vec<PathBuf>,
}

/// The configuration that the command line asks for. Has warnings logged; `RUST_LOG` asks for more.
pub(crate) fn config() -> anyhow::Result<Config> {
    telemetry::init(LogFormat::Text, "warn");
    let args = Args::parse();
    let mut config = args.config.map(app::load).transpose()?.unwrap_or_default();
    for path in args.kubeconfigs {
        let name = path.file_stem().context("a kubeconfig is a file")?.to_string_lossy().parse()?;
        config.clusters.push(cluster(name, path));
    }
    Ok(config)
}

/// A cluster by its kubeconfig.
pub(crate) fn cluster(name: ClusterName, path: PathBuf) -> ClusterConfig {
    let access = ClusterAccess::Kubeconfig { path, context: None };
    ClusterConfig { name, labels: ClusterLabels::new(), access, compression: true }
}

/// A client for each cluster of a hub, to write with. The hub itself only reads.
pub(crate) async fn clients(config: &Config) -> anyhow::Result<Clients> {
    let mut clients = BTreeMap::new();
    for cluster in &config.clusters {
        clients.insert(cluster.name.clone(), app::client(cluster, &Handle::current()).await?);
    }
    Ok(Arc::new(clients))
}

/// A request with a deadline. What has run out of time is told as a failure of the connection is.
pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let answer = tokio::time::timeout(DEADLINE, request).await;
    answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}

/// Whether the server has refused for good. After any other error nobody knows whether it did what it was asked for.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

/// Is cancelled at the first Ctrl-C. The second one ends the process at once, whatever is being done.
pub(crate) fn stop_at_ctrl_c() -> CancellationToken {
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        // An error means that there are no signals here; then it runs until it is killed.
        if tokio::signal::ctrl_c().await.is_ok() {
            signal.cancel();
            if tokio::signal::ctrl_c().await.is_ok() {
                // What a shell says of a process that was interrupted.
                std::process::exit(130);
            }
        }
    });
    stop
}

/// How many keys of one cluster may be worked on at a time: a worker is left to the others while one cluster hangs.
pub(crate) fn share(workers: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(workers.get() - 1).unwrap_or(NonZeroUsize::MIN)
}

/// Since when keys of which clusters have waited for the first reading.
#[derive(Default)]
pub(crate) struct Unsynced(Mutex<HashMap<ClusterName, Instant>>);

impl Unsynced {
    /// How long a key is to wait: as long as its cluster has made keys wait so far, within bounds, so that a cluster that
    /// is down for long costs little. Not the queue's limiter, whose bucket would set ten thousand keys apart by a
    /// quarter of an hour.
    pub(crate) fn delay(&self, cluster: &ClusterName) -> Duration {
        let now = clock::now();
        let since = *self.0.lock().entry(cluster.clone()).or_insert(now);
        now.saturating_duration_since(since).clamp(UNSYNCED.0, UNSYNCED.1)
    }

    /// The cluster has been read, or is none of ours.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.0.lock().remove(cluster);
    }
}

/// The owner who is in charge of an object, if there is one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` is in charge of an object. By UID: another one may have had its name before.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|controller| Some(&controller.uid) == owner.uid.as_ref())
}

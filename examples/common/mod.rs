//! Shared code of the examples: command line, Kubernetes clients, deadlines, Ctrl-C, and owner references.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use informer_hub::app;
use informer_hub::config::{ClusterAccess, ClusterConfig, Config};
use informer_hub::types::ClusterName;
use informer_hub::types::clock::{self, Instant};
use informer_hub_telemetry::{self as telemetry, LogFormat};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Timeout of a request. The clients themselves have none.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of workers of a controller. Each waits for one request at a time.
pub(crate) const WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");

/// Minimum and maximum delay of a key whose cluster has not synced yet.
const UNSYNCED_DELAY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// A client for each cluster.
pub(crate) type Clients = Arc<BTreeMap<ClusterName, Client>>;

/// Arguments: the configuration of a hub, or kubeconfigs.
#[derive(Parser)]
struct Args {
    /// The configuration file of a hub
    #[arg(short, long, value_name = "FILE", required_unless_present = "kubeconfigs")]
    config: Option<PathBuf>,
    /// Kubeconfigs, each for the cluster of its current context; the file name is the name of the cluster
    kubeconfigs: Vec<PathBuf>,
}

/// Reads the configuration that the command line names. Logs warnings; `RUST_LOG` sets another level.
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

/// Returns the configuration of a cluster for a kubeconfig.
pub(crate) fn cluster(name: ClusterName, path: PathBuf) -> ClusterConfig {
    ClusterConfig::new(name, ClusterAccess::kubeconfig(path, None))
}

/// Creates a client for each cluster, to write with. The hub itself only reads.
pub(crate) async fn clients(config: &Config) -> anyhow::Result<Clients> {
    let mut clients = BTreeMap::new();
    for cluster in &config.clusters {
        clients.insert(cluster.name.clone(), app::client(cluster, &Handle::current()).await?);
    }
    Ok(Arc::new(clients))
}

/// Sends a request with a timeout, which is returned as a connection error.
pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let answer = tokio::time::timeout(TIMEOUT, request).await;
    answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}

/// Whether the server refused a request. After any other error it is unknown whether the request was carried out.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

/// Returns a token that is cancelled at the first Ctrl-C. The second Ctrl-C ends the process at once.
pub(crate) fn stop_at_ctrl_c() -> CancellationToken {
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        // An error means that signals are not available: the process runs until it is killed.
        if tokio::signal::ctrl_c().await.is_ok() {
            signal.cancel();
            if tokio::signal::ctrl_c().await.is_ok() {
                // Exit code of an interrupted process, as in shells.
                std::process::exit(130);
            }
        }
    });
    stop
}

/// Returns how many keys of one cluster may be processed at a time. One worker stays free for other clusters while one
/// cluster hangs.
pub(crate) fn share(workers: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(workers.get() - 1).unwrap_or(NonZeroUsize::MIN)
}

/// Clusters that have not synced, with the time since which their keys wait.
#[derive(Default)]
pub(crate) struct Unsynced(Mutex<HashMap<ClusterName, Instant>>);

impl Unsynced {
    /// Returns the delay of a key: the time that its cluster has been waited for, within bounds. So a long outage costs
    /// little. The limiter of the queue is not suitable: its bucket would spread 10,000 keys over 15 minutes.
    pub(crate) fn delay(&self, cluster: &ClusterName) -> Duration {
        let now = clock::now();
        let since = *self.0.lock().entry(cluster.clone()).or_insert(now);
        now.saturating_duration_since(since).clamp(UNSYNCED_DELAY.0, UNSYNCED_DELAY.1)
    }

    /// Forgets a cluster that has synced or was removed.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.0.lock().remove(cluster);
    }
}

/// Returns the controlling owner of an object, if there is one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` controls an object. Compares UIDs, because an earlier object may have had the same name.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|controller| Some(&controller.uid) == owner.uid.as_ref())
}

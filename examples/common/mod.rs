//! What the examples share: the command line, a client per cluster, and who owns what.

#![allow(dead_code, reason = "each example takes what it needs")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use informer_hub::app;
use informer_hub::config::{ClusterAccess, ClusterConfig, Config};
use informer_hub::telemetry::{self, LogFormat};
use informer_hub::types::{ClusterLabels, ClusterName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use tokio::runtime::Handle;

/// How long a request may take. The clients have no deadline of their own.
const DEADLINE: Duration = Duration::from_secs(10);

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

/// The owner who is in charge of an object, if there is one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` is in charge of an object. By UID: another one may have had its name before.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|controller| Some(&controller.uid) == owner.uid.as_ref())
}

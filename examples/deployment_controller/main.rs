//! Deployments, ReplicaSets and their pods over many clusters, simplified. `docs/controllers.md` walks through it.
//!
//! A real cluster has a controller for Deployments already, and two of them fight. So this one acts only on Deployments
//! with the annotation `informer-hub.io/example: "true"`, on their ReplicaSets, which it gives the same annotation, and
//! on the pods of those. The cluster's own controllers know nothing of the annotation: let this one loose only where
//! they do not run, as on an apiserver without a controller manager. There is no leader election: run one.
//!
//! ```sh
//! cargo run --example deployment_controller -- east.kubeconfig west.kubeconfig
//! ```
//!
//! Ctrl-C ends it, after what was begun is done; a second one ends it at once.

#[path = "../common/mod.rs"]
pub(crate) mod common;
pub(crate) mod controller;
mod deployments;
pub(crate) mod expectations;
pub(crate) mod replica_sets;

use std::time::Duration;

use informer_hub::Hub;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = common::config()?;
    let clients = common::clients(&config).await?;
    let hub = Hub::start(config).await?;
    controller::run(&hub, clients, common::WORKERS, common::stop_at_ctrl_c()).await?;
    hub.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

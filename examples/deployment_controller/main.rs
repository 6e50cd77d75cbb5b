//! Simplified controller of Deployments, ReplicaSets and pods in many clusters. `docs/controllers.md` explains it.
//!
//! It acts only on Deployments with the annotation `informer-hub.io/example: "true"`, on their ReplicaSets, which get
//! the same annotation, and on their pods. The controllers of a real cluster ignore the annotation and would fight with
//! this one. So run it only where they do not run, e.g. on an apiserver without a controller manager. There is no
//! leader election: run only one.
//!
//! ```sh
//! cargo run --example deployment_controller -- east.kubeconfig west.kubeconfig
//! ```
//!
//! Ctrl-C ends it after the keys in progress; a second Ctrl-C ends it at once.

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

//! Deployments, ReplicaSets and their pods over many clusters, simplified. `docs/controllers.md` walks through it.
//!
//! ```sh
//! cargo run --example deployment_controller -- east.kubeconfig west.kubeconfig
//! ```
//!
//! Ctrl-C ends it, after what was begun is done.

#[path = "../common/mod.rs"]
pub(crate) mod common;
pub(crate) mod controller;
mod deployments;
mod expectations;
mod replica_sets;

use std::time::Duration;

use informer_hub::Hub;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = common::config()?;
    let clients = common::clients(&config).await?;
    let hub = Hub::start(config).await?;
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        // An error means that there are no signals here; then it runs until it is killed.
        if tokio::signal::ctrl_c().await.is_ok() {
            signal.cancel();
        }
    });
    controller::run(&hub, clients, 4, stop).await?;
    hub.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

//! The sample-controller of Kubernetes, for many clusters. `docs/controllers.md` explains it.
//!
//! ```sh
//! kubectl apply -f examples/sample_controller/crd.json   # in each cluster
//! cargo run --example sample_controller -- east.kubeconfig west.kubeconfig
//! ```
//!
//! There is no leader election: run only one.
//!
//! Ctrl-C ends it after the keys in progress; a second Ctrl-C ends it at once.

#[path = "../common/mod.rs"]
pub(crate) mod common;
pub(crate) mod controller;
pub(crate) mod foo;

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

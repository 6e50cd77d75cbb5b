//! Kubernetes' sample-controller over many clusters. `docs/controllers.md` walks through it.
//!
//! ```sh
//! kubectl apply -f examples/sample_controller/crd.json   # in each cluster
//! cargo run --example sample_controller -- east.kubeconfig west.kubeconfig
//! ```
//!
//! Ctrl-C ends it, after what was begun is done.

#[path = "../common/mod.rs"]
pub(crate) mod common;
pub(crate) mod controller;
pub(crate) mod foo;

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

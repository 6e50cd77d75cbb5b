//! Prints all changes of the pods of all clusters.
//!
//! `cargo run --example watch -- ~/.kube/config` (or several, or `-c hub.toml`); Ctrl-C ends it.

mod common;

use std::time::Duration;

use informer_hub::informers::ResourceEventHandlerFuncs;
use informer_hub::{Hub, SharedInformerFactory};
use k8s_openapi::api::core::v1::Pod;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let hub = Hub::start(common::config()?).await?;
    let factory = SharedInformerFactory::new(hub.system());
    let handler = ResourceEventHandlerFuncs::new()
        .on_add(|pod| println!("+ {pod:?}"))
        .on_update(|_, pod| println!("~ {pod:?}"))
        .on_delete(|pod| println!("- {pod:?}"));
    factory.informer::<Pod>()?.add_event_handler(handler).await?;
    factory.start().await?;
    tokio::signal::ctrl_c().await?;
    hub.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

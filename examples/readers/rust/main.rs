//! Prints the pods of all clusters of a hub, and their changes, with kube-rs.
//!
//! ```sh
//! informer-hub kubeconfig > fleet.kubeconfig
//! KUBECONFIG=fleet.kubeconfig cargo run --example fleet_reader
//! ```

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config, ResourceExt};
use kube_runtime::watcher::Event;
use kube_runtime::{WatchStreamExt, watcher};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Every object has a name of its own there, so stores and caches keep all of them.
    let options = KubeConfigOptions { context: Some("fleet-unique".to_owned()), ..KubeConfigOptions::default() };
    read(Config::from_kubeconfig(&options).await?, |line| println!("{line}")).await
}

/// Passes a line for each pod and each change to `print`, until the watch fails for good.
pub(crate) async fn read(config: Config, mut print: impl FnMut(String)) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::all(Client::try_from(config)?);
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    while let Some(event) = events.try_next().await? {
        match event {
            Event::InitApply(pod) => print(line("=", &pod)),
            Event::Apply(pod) => print(line("~", &pod)),
            Event::Delete(pod) => print(line("-", &pod)),
            Event::Init | Event::InitDone => {}
        }
    }
    Ok(())
}

fn line(change: &str, pod: &Pod) -> String {
    let cluster = pod.annotations().get("informer-hub.io/cluster").map(String::as_str).unwrap_or_default();
    let name = pod.name_any();
    let name = name.strip_prefix(cluster).and_then(|name| name.strip_prefix(':')).unwrap_or(&name);
    format!("{change} {cluster} {}/{name}", pod.namespace().unwrap_or_default())
}

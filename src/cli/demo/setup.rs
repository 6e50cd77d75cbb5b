//! Configuration of the hub in the demo.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::fleet::{Fleet, resources};
use informer_hub_config::{
    BatchConfig, ClusterAccess, ClusterConfig, Config, EventType, HubConfig, Initial, ResourceConfig, RetryConfig,
    Secret, SinkConfig, SinkMatch, TransportConfig, WebhookConfig,
};
use informer_hub_types::{ClusterLabels, ClusterSelector};

/// Returns a configuration that sends all resources of all clusters to one signed webhook at `url`.
pub(super) fn config(fleet: &Fleet, url: String, secret: &Path) -> anyhow::Result<Config> {
    let cluster = |(at, (name, url)): (usize, (&informer_hub_types::ClusterName, String))| ClusterConfig {
        name: name.clone(),
        labels: labels(at),
        access: ClusterAccess::Server { server: url, ca_file: None, token: None },
        compression: false,
    };
    let resources = resources().map(|resource| {
        let name = resource.gvr.to_string();
        name.parse().map(|resource| ResourceConfig::new(name, resource))
    });
    Ok(Config {
        hub: HubConfig::default(),
        clusters: fleet.addresses().enumerate().map(cluster).collect(),
        sources: Vec::new(),
        resources: resources.into_iter().collect::<Result<_, _>>()?,
        sinks: vec![sink(url, secret)],
    })
}

/// Returns the labels of a cluster: one of three is for development.
fn labels(at: usize) -> ClusterLabels {
    let tier = if at % 3 == 2 { "dev" } else { "prod" };
    BTreeMap::from([("tier".to_owned(), tier.to_owned())])
}

fn sink(url: String, secret: &Path) -> SinkConfig {
    let webhook = WebhookConfig {
        url,
        signing_secret: Some(Secret::File(secret.to_owned())),
        timeout: Duration::from_secs(5),
        ..WebhookConfig::default()
    };
    SinkConfig {
        select: SinkMatch {
            namespaces: Vec::new(),
            resources: Vec::new(),
            clusters: ClusterSelector::All,
            events: vec![EventType::Added, EventType::Updated, EventType::Deleted, EventType::Synced],
        },
        initial: Initial::Replay,
        batch: BatchConfig { max_events: 100, max_bytes: 1 << 20, max_wait: Duration::from_millis(50) },
        retry: RetryConfig {
            first: Duration::from_millis(50),
            max: Duration::from_secs(1),
            give_up_after: Duration::from_secs(600),
            refused_for: Duration::from_secs(600),
        },
        ..SinkConfig::new("receiver", TransportConfig::Webhook(webhook))
    }
}

//! Configuration of the hub in the demo.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::fleet::{Fleet, resources};
use informer_hub_config::{
    BatchConfig, ClusterAccess, ClusterConfig, Config, EventType, Initial, ResourceConfig, RetryConfig, Secret,
    SinkConfig, TransportConfig, WebhookConfig,
};
use informer_hub_types::{ClusterLabels, ClusterName};

/// Returns a configuration that sends all resources of all clusters to one signed webhook at `url`.
pub(super) fn config(fleet: &Fleet, url: String, secret: &Path) -> anyhow::Result<Config> {
    let cluster = |(at, (name, url)): (usize, (&ClusterName, String))| {
        let mut cluster = ClusterConfig::new(name.clone(), ClusterAccess::server(url, None, None));
        cluster.compression = false;
        cluster.labels = labels(at);
        cluster
    };
    let resources = resources().map(|resource| {
        let name = resource.gvr.to_string();
        name.parse().map(|resource| ResourceConfig::new(name, resource))
    });
    let mut config = Config::default();
    config.clusters = fleet.addresses().enumerate().map(cluster).collect();
    config.resources = resources.into_iter().collect::<Result<_, _>>()?;
    config.sinks = vec![sink(url, secret)];
    Ok(config)
}

/// Returns the labels of a cluster: every third cluster is for development.
fn labels(at: usize) -> ClusterLabels {
    let tier = if at % 3 == 2 { "dev" } else { "prod" };
    BTreeMap::from([("tier".to_owned(), tier.to_owned())])
}

fn sink(url: String, secret: &Path) -> SinkConfig {
    let mut webhook = WebhookConfig::new(url);
    webhook.signing_secret = Some(Secret::File(secret.to_owned()));
    webhook.timeout = Duration::from_secs(5);
    let mut sink = SinkConfig::new("receiver", TransportConfig::Webhook(webhook));
    sink.select.events.push(EventType::Synced);
    sink.initial = Initial::Replay;
    sink.batch = BatchConfig { max_events: 100, max_bytes: 1 << 20, max_wait: Duration::from_millis(50) };
    sink.retry = RetryConfig {
        first: Duration::from_millis(50),
        max: Duration::from_secs(1),
        give_up_after: Duration::from_secs(600),
        refused_for: Duration::from_secs(600),
    };
    sink
}

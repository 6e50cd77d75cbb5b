//! Tests of configurations that are built as values.

use super::*;
use crate::{
    FileConfig, HubConfig, Management, NatsConfig, Probes, ProviderConfig, Secret, SecretFormat, TlsConfig,
    WebhookConfig,
};

fn parsed(text: &str) -> Config {
    Config::from_toml(text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn constructors_have_the_defaults_of_the_file() {
    let text = "[clusters.a]\nserver = \"https://a\"\n[clusters.b]\nin_cluster = true\n[resources.pods]\n\
                [sinks.hook]\ntype = \"webhook\"\nurl = \"https://x/\"\n[sinks.nats]\ntype = \"nats\"\nurl = \"nats://n\"\n\
                [sinks.file]\ntype = \"file\"\npath = \"events.jsonl\"\n\
                [cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n";
    let management = Management::new(ClusterAccess::InCluster);
    let kind = ClusterSourceKind::Secrets { management, format: SecretFormat::ArgoCd };
    let built = Config {
        clusters: vec![
            ClusterConfig::new("a".parse().unwrap(), ClusterAccess::server("https://a", None, None)),
            ClusterConfig::new("b".parse().unwrap(), ClusterAccess::InCluster),
        ],
        resources: vec![ResourceConfig::new("pods", "pods".parse().unwrap())],
        sinks: vec![
            SinkConfig::new("file", TransportConfig::File(FileConfig::new("events.jsonl"))),
            SinkConfig::new("hook", TransportConfig::Webhook(WebhookConfig::new("https://x/"))),
            SinkConfig::new("nats", TransportConfig::Nats(NatsConfig::new(["nats://n"]))),
        ],
        sources: vec![ClusterSourceConfig::new("argo", kind)],
        ..Config::default()
    };
    let read = parsed(text);
    assert_eq!(built.clusters, read.clusters);
    assert_eq!(built.resources, read.resources);
    assert_eq!(built.sinks, read.sinks);
    assert_eq!(built.sources, read.sources);
    assert_eq!(built.hub, read.hub);
}

#[test]
fn provider_has_the_defaults_of_the_file() {
    let text = "[cluster_sources.x]\ntype = \"cluster-profiles\"\nin_cluster = true\n\
                [cluster_sources.x.providers.gke]\ncommand = \"plugin\"\n[resources.pods]\n";
    let ClusterSourceKind::ClusterProfiles { providers, .. } = &parsed(text).sources[0].kind else { panic!() };
    assert_eq!(providers["gke"], ProviderConfig::new("plugin"));
}

#[test]
fn keys_that_need_a_restart_are_named() {
    let (old, mut new) = (HubConfig::default(), HubConfig::default());
    new.memory_limit = Some(1 << 30);
    new.shutdown_deadline = Duration::from_secs(1);
    assert!(old.keys_to_restart(&new).is_empty(), "these change at once");
    new.service.tls = Some(TlsConfig::new("cert.pem", "key.pem"));
    new.state_dir = Some("state".into());
    assert_eq!(old.keys_to_restart(&new), ["hub.tls", "hub.state_dir"]);
}

#[test]
fn secret_is_in_a_variable_or_a_file() {
    let (variable, file) = (Secret::Env("TOKEN".to_owned()), Secret::File("token".into()));
    assert_eq!((variable.variable(), variable.file()), (Some("TOKEN"), None));
    assert_eq!((file.variable(), file.file()), (None, Some(Path::new("token"))));
}

#[test]
fn default_probes_accept_every_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    let text = "[clusters.a]\nin_cluster = true\n[resources.pods]\n[sinks.hook]\ntype = \"webhook\"\nurl = \"https://x/\"\n\
                filter = \"none such\"\n";
    std::fs::write(&file, text).unwrap();
    Config::from_file_with_probes(&file, Probes::default()).unwrap();
    let strict = Probes { filter: |_| Err("is wrong".to_owned()), ..Probes::default() };
    assert!(Config::from_file_with_probes(&file, strict).unwrap_err().to_string().contains("is wrong"));
}

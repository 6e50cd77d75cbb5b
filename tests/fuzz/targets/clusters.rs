//! Fuzz target: Secrets, ClusterProfiles and kubeconfig files of cluster sources.
//!
//! Each input yields a cluster or a problem. A cluster made from foreign data must not run commands or read local
//! files.

use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_config::inventory::{
    SourceReport, report_from_argocd, report_from_cluster_api, report_from_file, report_from_profiles,
};
use informer_hub_config::{ClusterAccess, ClusterSourceConfig, ClusterSourceKind, Config, Contexts};
use serde_json::{Value, json};

const SOURCES: &str = "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nserver = \"https://m\"\n\
    [cluster_sources.capi]\ntype = \"secrets\"\nformat = \"cluster-api\"\nserver = \"https://m\"\n\
    [cluster_sources.files]\ntype = \"folder\"\npath = \"x\"\n\
    [cluster_sources.profiles]\ntype = \"cluster-profiles\"\nserver = \"https://m\"\nsecrets = true\n\
    [cluster_sources.profiles.providers.gke]\ncommand = \"gke\"\ntake_args = true\ntake_env = true\n[resources.pods]\n";

static CONFIG: LazyLock<Config> = LazyLock::new(|| Config::from_toml(SOURCES).expect("a valid configuration"));

/// Runs one input. The first byte selects the kind of source.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let [argo, capi, files, profiles] = &CONFIG.sources[..] else { panic!("four sources are configured") };
    match kind % 6 {
        0 => argocd(argo, rest),
        1 => argocd(argo, secret(&json!({ "server": "https://x", "config": text })).to_string().as_bytes()),
        2 => {
            let mut object = secret(&json!({ "value": text }));
            object["type"] = json!("cluster.x-k8s.io/secret");
            let said = report_from_cluster_api(capi, [object.to_string()]);
            assert_eq!(said.clusters.len() + said.problems.len(), 1);
            verify(&said, None);
        }
        3 => verify(&report_from_cluster_api(capi, [rest]), None),
        4 => drop(report_from_file(files, Contexts::All, Path::new("/x/y.yaml"), &text)),
        _ => {
            let ClusterSourceKind::ClusterProfiles { providers, take_properties, .. } = &profiles.kind else { return };
            let said = report_from_profiles(profiles, providers, take_properties, [rest], [rest]);
            verify(&said, Some("gke"));
        }
    }
}

fn argocd(source: &ClusterSourceConfig, object: &[u8]) {
    let management = source.kind.management().expect("a Secret source has a management cluster");
    let said = report_from_argocd(source, management, [object]);
    assert_eq!(said.clusters.len() + said.problems.len(), 1);
    verify(&said, None);
}

fn secret(data: &Value) -> Value {
    let mut data = data.clone();
    for value in data.as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
        *value = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "a" });
    json!({ "metadata": { "name": "a-kubeconfig", "namespace": "n", "labels": labels }, "data": data })
}

/// Verifies that each cluster has an address, and nothing that only the operator may set.
fn verify(report: &SourceReport, command: Option<&str>) {
    assert!(report.problems.iter().all(|problem| !problem.problem.trim().is_empty()));
    for found in &report.clusters {
        let ClusterAccess::Inline(inline) = &found.cluster.access else { continue };
        assert!(!format!("{inline:?}").contains("current-context"));
        let read: Value = serde_json::from_str(inline.expose()).expect("a kubeconfig is JSON here");
        let (user, cluster) = (&read["users"][0]["user"], &read["clusters"][0]["cluster"]);
        let exec = user["exec"]["command"].as_str();
        assert!(exec.is_none() || exec == command, "{exec:?}");
        for key in ["tokenFile", "client-certificate", "client-key", "auth-provider", "as"] {
            assert!(user[key].is_null(), "{key}");
        }
        assert!(cluster["certificate-authority"].is_null());
        let server = cluster["server"].as_str().unwrap_or_default();
        assert!(server.to_ascii_lowercase().starts_with("http"), "{server:?}");
    }
}

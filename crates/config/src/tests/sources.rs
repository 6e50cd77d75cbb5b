//! Tests of cluster sources.

use super::*;

const SOURCE: &str = "[resources.pods]\n[cluster_sources.fleet]\n";

/// Like [`only`], for lines of a cluster source, counted from 1; its header is 0.
#[track_caller]
fn only_in_source(lines: &str, line: usize, words: &str) {
    only(&format!("{SOURCE}{lines}"), line + 2, words);
}

#[test]
fn cluster_sources_suffice_and_have_defaults() {
    let text = "type = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\nnamespaces = [\"argocd\"]\n";
    let config = Config::from_toml(&format!("{SOURCE}{text}")).unwrap();
    assert!(config.clusters.is_empty());
    let [source] = &config.sources[..] else { panic!("{:?}", config.sources) };
    assert_eq!((source.name.as_str(), source.names.as_str(), source.max_clusters), ("fleet", "{name}", 1000));
    assert!(source.compression && source.take_labels == [LabelPattern::any()]);
    let ClusterSourceKind::Secrets { management, format } = &source.kind else { panic!("{source:?}") };
    assert_eq!((management.namespaces.len(), *format), (1, SecretFormat::ArgoCd));
    let text =
        "type = \"cluster-profiles\"\nserver = \"https://m\"\n[cluster_sources.fleet.providers.gke]\ncommand = \"g\"\n";
    let config = Config::from_toml(&format!("{SOURCE}{text}")).unwrap();
    let ClusterSourceKind::ClusterProfiles { providers, secrets, .. } = &config.sources[0].kind else {
        panic!("another")
    };
    assert_eq!((providers["gke"].api_version.as_str(), *secrets), ("client.authentication.k8s.io/v1", false));
}

#[test]
fn cluster_sources_are_checked() {
    const SECRETS: &str = "type = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n";
    const FOLDER: &str = "type = \"folder\"\npath = \"x\"\n";
    const PROFILES: &str = "type = \"cluster-profiles\"\nin_cluster = true\n";
    only_in_source("", 0, "has no type; write type = \"folder\"");
    only_in_source(
        "type = \"secret\"\n",
        1,
        "there is no type of cluster source \"secret\"; did you mean \"secrets\"?",
    );
    only_in_source("type = \"folder\"\n", 0, "has no path");
    only_in_source("type = \"secrets\"\nformat = \"argocd\"\n", 0, "has no connection to the cluster");
    only_in_source("type = \"secrets\"\nin_cluster = true\n", 0, "has no format");
    only_in_source("type = \"secrets\"\nin_cluster = true\nformat = \"argo\"\n", 3, "there is no format \"argo\"");
    only_in_source(&format!("{SECRETS}path = \"x\"\n"), 4, "unknown key");
    only_in_source(&format!("{SECRETS}names = \"x\"\n"), 4, "has no {name}");
    only_in_source(&format!("{SECRETS}names = \"{{name}}/\"\n"), 4, "is not a name pattern");
    only_in_source(&format!("{FOLDER}names = \"{{namespace}}{{name}}\"\n"), 3, "files have no namespace");
    only_in_source(&format!("{FOLDER}contexts = \"every\"\n"), 3, "there is no choice \"every\"; known: current, all");
    only_in_source(&format!("{FOLDER}take_labels = [\"a*b\"]\n"), 3, "is not a label key");
    only_in_source(&format!("{FOLDER}label_prefix = \"a b\"\n"), 3, "is not the start of a label's key");
    only_in_source(&format!("{FOLDER}max_clusters = 0\n"), 3, "from 1 to 10000");
    only_in_source(PROFILES, 0, "has no credentials");
    only_in_source(&format!("{PROFILES}providers = {{ gke = {{ args = [] }} }}\n"), 3, "has no command");
    only_in_source(
        &format!("{PROFILES}providers = {{ gke = {{ command = \"g\", api_version = \"v1\" }} }}\n"),
        3,
        "there is no version \"v1\"",
    );
    only(&format!("{BASE}[cluster_sources.\"a b\"]\n{FOLDER}"), 5, "is not a valid name of a cluster source");
    only(&format!("[resources.pods]\n[cluster_source.a]\n{FOLDER}"), 2, "did you mean \"cluster_sources\"?");
}

#[test]
fn unknown_cluster_names_are_allowed_with_sources() {
    let source = "[cluster_sources.f]\ntype = \"folder\"\npath = \"x\"\n";
    let sink = format!("{SINK}match = {{ clusters = {{ tier = \"other\" }} }}\n");
    let text = format!("{BASE}clusters = [\"later\"]\n{source}{sink}");
    let config = Config::from_toml(&text).unwrap();
    assert_eq!(config.resources[0].clusters, ClusterSelector::Names(vec!["later".parse().unwrap()]));
    only(&format!("{BASE}clusters = [\"a b\"]\n{source}"), 5, "cluster name \"a b\" is not valid");
    only(&format!("{BASE}clusters = [\"later\"]\n"), 5, "there is no cluster \"later\"");
}

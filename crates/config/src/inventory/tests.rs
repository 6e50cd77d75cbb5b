//! Tests of the source formats and their problems, and of the merge against a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    ClusterAccess, ClusterConfig, ClusterSourceConfig, ClusterSourceKind, Config, Contexts, InlineKubeconfig,
    Management,
};
use informer_hub_testing::properties;
use informer_hub_types::{ClusterName, Encodings, HttpVersions};

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
const SECRET: &str = "hunter2";

fn b64(text: &str) -> String {
    STANDARD.encode(text)
}

fn source(lines: &str) -> ClusterSourceConfig {
    let text = format!("[cluster_sources.s]\n{lines}\n[resources.pods]\n");
    Config::from_toml(&text).unwrap_or_else(|mistakes| panic!("{mistakes}")).sources.remove(0)
}

fn argocd(lines: &str) -> ClusterSourceConfig {
    source(&format!("type = \"secrets\"\nformat = \"argocd\"\nserver = \"https://mgmt\"\n{lines}"))
}

fn management(source: &ClusterSourceConfig) -> &Management {
    source.kind.management().unwrap()
}

fn secret(name: &str, labels: Value, data: &[(&str, &str)]) -> Value {
    let data: BTreeMap<_, _> = data.iter().map(|(key, text)| (*key, b64(text))).collect();
    let mut secret = json!({ "metadata": { "name": name, "namespace": "argocd" }, "data": data });
    secret["metadata"]["labels"] = labels;
    secret
}

fn argo(source: &ClusterSourceConfig, secrets: &[Value]) -> SourceReport {
    report_from_argocd(source, management(source), secrets.iter().map(|secret| secret.to_string().into_bytes()))
}

/// Returns a cluster Secret of Argo CD with this `config`.
fn cluster_secret(config: &Value) -> Value {
    secret("c", json!({}), &[("name", "prod"), ("server", "https://prod:6443"), ("config", &config.to_string())])
}

fn inline(cluster: &ClusterConfig) -> &InlineKubeconfig {
    let ClusterAccess::Inline(inline) = &cluster.access else { panic!("{:?}", cluster.access) };
    inline
}

/// Returns the cluster and the user in the inline kubeconfig of `cluster`.
fn entries(cluster: &ClusterConfig) -> (Value, Value) {
    let all: Value = serde_json::from_str(inline(cluster).expose()).unwrap();
    (all["clusters"][0]["cluster"].clone(), all["users"][0]["user"].clone())
}

/// Returns the single problem of a report, and asserts that it contains no secret.
#[track_caller]
fn problem(report: &SourceReport) -> String {
    assert!(report.clusters.is_empty(), "{report:?}");
    let [Problem { object, problem }] = &report.problems[..] else { panic!("{report:?}") };
    let text = format!("{object}: {problem}");
    assert!(!format!("{report:?}").contains(SECRET), "{text}");
    text
}

#[track_caller]
fn wrong_config(config: &Value, words: &str) {
    let text = problem(&argo(&argocd(""), &[cluster_secret(config)]));
    assert!(text.starts_with("Secret argocd/c: data.config") && text.contains(words), "{text}");
}

#[test]
fn argocd_secret_becomes_a_cluster_with_its_labels() {
    let labels = json!({ "argocd.argoproj.io/secret-type": "cluster", "env": "prod", "team/owner": "shop" });
    let config = json!({ "bearerToken": SECRET, "tlsClientConfig": {
        "insecure": false, "caData": b64(PEM), "serverName": "prod.internal" } });
    let data = [("name", "Prod EU"), ("server", "https://prod:6443"), ("config", &*config.to_string())];
    let report = argo(&argocd("labels = { from = \"argo\", env = \"all\" }"), &[secret("c", labels, &data)]);
    let [FoundCluster { cluster, object }] = &report.clusters[..] else { panic!("{report:?}") };
    assert_eq!((cluster.name.as_str(), object.as_str()), ("Prod-EU", "Secret argocd/c"));
    let wanted = [("env", "all"), ("from", "argo"), ("team/owner", "shop")];
    assert!(
        cluster.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(wanted),
        "{:?}",
        cluster.labels
    );
    let (server, user) = entries(cluster);
    assert_eq!(server["server"], "https://prod:6443");
    assert_eq!(server["tls-server-name"], "prod.internal");
    assert_eq!(server["certificate-authority-data"], b64(PEM));
    assert_eq!(user, json!({ "token": SECRET }));
    assert!(!format!("{report:?}").contains(SECRET));
    let kubeconfig = kube::config::Kubeconfig::from_yaml(inline(cluster).expose()).unwrap();
    assert_eq!(kubeconfig.current_context.as_deref(), Some("found"), "kube parses the kubeconfig");
}

#[test]
fn argocd_certificates_passwords_and_proxies_are_used() {
    let tls = json!({ "certData": b64(PEM), "keyData": b64(PEM) });
    let report =
        argo(&argocd(""), &[cluster_secret(&json!({ "tlsClientConfig": tls, "proxyUrl": "http://proxy:3128" }))]);
    let (server, user) = entries(&report.clusters[0].cluster);
    assert_eq!(server["proxy-url"], "http://proxy:3128");
    assert_eq!(user, json!({ "client-certificate-data": b64(PEM), "client-key-data": b64(PEM) }));
    let config = json!({ "username": "u", "password": SECRET, "tlsClientConfig": { "insecure": true } });
    let report = argo(&argocd(""), &[cluster_secret(&config)]);
    let (server, user) = entries(&report.clusters[0].cluster);
    assert_eq!(server["insecure-skip-tls-verify"], true);
    assert_eq!(user, json!({ "username": "u", "password": SECRET }));
}

#[test]
fn argocd_problem_names_its_key_and_affects_no_other_secret() {
    wrong_config(&json!({ "awsAuthConfig": { "clusterName": SECRET } }), "awsAuthConfig, which is not supported");
    wrong_config(&json!({ "execProviderConfig": { "command": SECRET } }), "execProviderConfig, which is not supported");
    wrong_config(&json!({ "bearerToken": SECRET, "username": "u" }), "bearerToken and username");
    wrong_config(&json!({ "tlsClientConfig": { "certData": b64(PEM) } }), "certData without keyData");
    wrong_config(&json!({ "tlsClientConfig": { "keyData": b64(PEM) } }), "keyData without certData");
    wrong_config(&json!({ "tlsClientConfig": { "caData": "@@" } }), "tlsClientConfig.caData is not base64");
    wrong_config(
        &json!({ "tlsClientConfig": { "caData": b64(SECRET) } }),
        "tlsClientConfig.caData is not base64 of PEM",
    );
    wrong_config(&json!({ "bearerToken": [SECRET] }), "is not the JSON of an Argo CD cluster");
    wrong_config(&json!({ "proxyUrl": format!("not {SECRET}") }), "proxyUrl is not an address");
    let of = |data: &[(&str, &str)]| problem(&argo(&argocd(""), &[secret("c", json!({}), data)]));
    assert!(of(&[("name", "x")]).contains("data.server is missing"));
    assert!(
        of(&[("server", "https://x"), ("config", "{\"bearerToken\": \"hunter2")]).contains("error at line 1, column")
    );
    assert!(of(&[("server", "ftp://x")]).contains("data.server: the address does not begin with http:// or https://"));
    assert!(of(&[("server", "https://u:hunter2@x")]).contains("data.server: a user or password does not belong"));
    let plain = [("server", "http://10.0.0.1"), ("config", "{\"bearerToken\":\"hunter2\"}")];
    assert!(of(&plain).contains("data.server would send credentials unencrypted"));
    assert!(of(&[("server", "https://x"), ("name", "///")]).contains("cannot derive a cluster name"));
    let both = json!({ "tlsClientConfig": { "insecure": true, "caData": b64(PEM) } });
    assert!(problem(&argo(&argocd(""), &[cluster_secret(&both)])).contains("keep one of them"));
    let not_base64 = json!({ "metadata": { "name": "c", "namespace": "argocd" }, "data": { "server": "hunter2!" } });
    assert!(problem(&argo(&argocd(""), &[not_base64])).contains("data.server is not base64"));
    let report = argo(&argocd(""), &[json!([]), cluster_secret(&json!({})), json!({ "metadata": 7 })]);
    assert_eq!((report.clusters.len(), report.problems.len()), (1, 2));
}

#[test]
fn management_cluster_uses_the_connection_of_its_source() {
    let itself = |server: &str, config: &str| {
        let source = argocd("");
        let data = [("name", "in-cluster"), ("server", server), ("config", config)];
        let report = argo(&source, &[secret("c", json!({}), &data)]);
        report.clusters[0].cluster.access == management(&source).access
    };
    assert!(itself("https://kubernetes.default.svc", "{}"));
    assert!(itself("https://kubernetes.default.svc.cluster.local:443", "{\"tlsClientConfig\":{\"insecure\":false}}"));
    assert!(!itself("https://kubernetes.default.svc", "{\"bearerToken\":\"x\"}"), "it has credentials of its own");
    assert!(!itself("https://kubernetes.default.svc-other.example.com", "{}"));
}

#[test]
fn labels_are_selected_by_pattern_and_prefixed() {
    let labels = json!({ "argocd.argoproj.io/secret-type": "cluster", "env": "prod", "team-a": "1", "other": "x" });
    let take = |lines: &str| {
        let secret = secret("c", labels.clone(), &[("server", "https://x")]);
        argo(&argocd(lines), &[secret]).clusters.remove(0).cluster.labels.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(take(""), ["env", "other", "team-a"]);
    assert_eq!(take("take_labels = [\"env\", \"team-*\"]\nlabel_prefix = \"argo/\""), ["argo/env", "argo/team-a"]);
    assert_eq!(take("take_labels = []"), Vec::<String>::new());
    assert_eq!(take("take_labels = [\"argocd.argoproj.io/secret-type\"]"), ["argocd.argoproj.io/secret-type"]);
}

#[test]
fn cluster_names_follow_the_pattern() {
    let named = |lines: &str| {
        let secret = secret("c", json!({}), &[("server", "https://x"), ("name", "prod")]);
        argo(&argocd(lines), &[secret]).clusters.remove(0).cluster.name.to_string()
    };
    assert_eq!(named(""), "prod");
    assert_eq!(named("names = \"{namespace}.{name}\""), "argocd.prod");
    assert_eq!(named("names = \"m-{name}-{name}\""), "m-prod-prod");
}

// === Cluster API ===

fn kubeconfig(user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin@c",
        "clusters": [{ "name": "c", "cluster": { "server": "https://c:6443", "certificate-authority-data": b64(PEM) } }],
        "users": [{ "name": "admin", "user": user }],
        "contexts": [{ "name": "admin@c", "context": { "cluster": "c", "user": "admin" } }],
    })
}

fn capi_secret(name: &str, value: &str) -> Value {
    let labels =
        json!({ "cluster.x-k8s.io/cluster-name": "blue", "topology.cluster.x-k8s.io/owned": "", "env": "dev" });
    let mut secret = secret(name, labels, &[("value", value)]);
    secret["type"] = json!("cluster.x-k8s.io/secret");
    secret
}

fn capi(secrets: &[Value]) -> SourceReport {
    let source = source("type = \"secrets\"\nformat = \"cluster-api\"\nin_cluster = true");
    report_from_cluster_api(&source, secrets.iter().map(|secret| secret.to_string().into_bytes()))
}

#[test]
fn cluster_api_kubeconfig_becomes_a_cluster() {
    let config = kubeconfig(&json!({ "client-certificate-data": b64(PEM), "client-key-data": b64(PEM) })).to_string();
    let secrets = ["blue-ca", "blue-kubeconfig", "blue-user-kubeconfig"].map(|name| capi_secret(name, &config));
    let report = capi(&secrets);
    let [FoundCluster { cluster, object }] = &report.clusters[..] else { panic!("{report:?}") };
    assert_eq!((cluster.name.as_str(), object.as_str()), ("blue", "Secret argocd/blue-kubeconfig"));
    assert!(cluster.labels.keys().eq(["env"]), "{:?}", cluster.labels);
    let (server, user) = entries(cluster);
    assert_eq!(server["server"], "https://c:6443");
    assert_eq!(user["client-key-data"], b64(PEM));
    assert!(report.problems.is_empty());
}

#[test]
fn kubeconfig_from_a_secret_runs_no_command_and_reads_no_file() {
    let of = |user: Value| problem(&capi(&[capi_secret("blue-kubeconfig", &kubeconfig(&user).to_string())]));
    for (user, key) in [
        (json!({ "exec": { "apiVersion": "v1", "command": SECRET } }), "exec"),
        (json!({ "auth-provider": { "name": SECRET } }), "auth-provider"),
        (json!({ "tokenFile": "/var/run/hunter2" }), "tokenFile"),
        (json!({ "client-certificate": "/hunter2", "client-key-data": b64(PEM) }), "client-certificate"),
        (json!({ "client-key": "/hunter2" }), "client-key"),
        (json!({ "as": SECRET }), "as"),
    ] {
        let text = of(user);
        let wanted = format!("Secret argocd/blue-kubeconfig: data.value: its user has {key}, which is not supported");
        assert!(text.starts_with(&wanted), "{text}");
    }
    let mut config = kubeconfig(&json!({ "token": SECRET }));
    config["clusters"][0]["cluster"]["certificate-authority"] = json!("/etc/hunter2");
    let text = problem(&capi(&[capi_secret("blue-kubeconfig", &config.to_string())]));
    assert!(text.contains("certificate-authority, which is not supported"), "{text}");
}

#[test]
fn kubeconfig_problem_does_not_quote_the_kubeconfig() {
    let of = |text: &str| problem(&capi(&[capi_secret("blue-kubeconfig", text)]));
    assert!(
        of("users: [hunter2").contains("data.value: is not a valid kubeconfig: error at line"),
        "{}",
        of("users: [hunter2")
    );
    assert!(of("apiVersion: v1").contains("without contexts"));
    let mut config = kubeconfig(&json!({ "token": SECRET }));
    config["current-context"] = json!("other");
    assert!(of(&config.to_string()).contains("has no context \"other\""));
    config["current-context"] = json!("");
    assert!(of(&config.to_string()).contains("names no current context"));
    let mut config = kubeconfig(&json!({ "token": SECRET }));
    config["users"] = json!([]);
    assert!(of(&config.to_string()).contains("has no user \"admin\""));
    let mut secret = capi_secret("blue-kubeconfig", "x");
    secret["type"] = json!("Opaque");
    assert!(problem(&capi(&[secret])).contains("its type is \"Opaque\""));
    let mut secret = capi_secret("blue-kubeconfig", "x");
    secret["data"] = json!(null);
    assert!(problem(&capi(&[secret])).contains("data.value is missing"));
}

// === ClusterProfiles ===

const PROVIDERS: &str = "type = \"cluster-profiles\"\nin_cluster = true\ntake_properties = [\"region\"]\n\
    [cluster_sources.s.providers.gke]\ncommand = \"gke-plugin\"\nargs = [\"--a\"]\nenv = { E = \"own\" }\ntake_args = true\n\
    take_env = true\n";

fn profile(status: Value) -> Value {
    let labels = json!({ "x-k8s.io/cluster-manager": "m", "env": "dev" });
    let mut profile = json!({ "metadata": { "name": "blue", "namespace": "fleet", "labels": labels } });
    profile["status"] = status;
    profile
}

fn profiles(lines: &str, profile: &Value, secrets: &[Value]) -> SourceReport {
    let source = source(lines);
    let ClusterSourceKind::ClusterProfiles { providers, take_properties, .. } = &source.kind else {
        panic!("{source:?}")
    };
    let secrets: Vec<_> = secrets.iter().map(|secret| secret.to_string().into_bytes()).collect();
    report_from_profiles(&source, providers, take_properties, [profile.to_string().into_bytes()], secrets)
}

#[test]
fn profile_uses_the_command_of_its_provider() {
    let extensions = json!([
        { "name": "client.authentication.k8s.io/exec", "extension": { "clusterId": "7" } },
        { "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": ["--b"] },
        { "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": { "E": "theirs", "F": "1" } },
    ]);
    let offer = json!({ "name": "gke", "cluster": {
        "server": "https://blue", "certificate-authority-data": b64(PEM), "extensions": extensions } });
    let properties = json!([{ "name": "region", "value": "eu" }, { "name": "cpus", "value": "12" }]);
    let other = json!({ "name": "other", "cluster": { "server": "https://elsewhere" } });
    for field in ["accessProviders", "credentialProviders"] {
        let report = profiles(PROVIDERS, &profile(json!({ field: [other, offer], "properties": properties })), &[]);
        let [FoundCluster { cluster, object }] = &report.clusters[..] else { panic!("{report:?}") };
        assert_eq!((cluster.name.as_str(), object.as_str()), ("blue", "ClusterProfile fleet/blue"));
        assert_eq!(
            cluster.labels,
            BTreeMap::from([("env", "dev"), ("region", "eu")].map(|(k, v)| (k.into(), v.into())))
        );
        let (server, user) = entries(cluster);
        assert_eq!(server["server"], "https://blue");
        assert_eq!(server["extensions"][0]["extension"]["clusterId"], "7");
        let exec = &user["exec"];
        assert_eq!((&exec["command"], &exec["args"]), (&json!("gke-plugin"), &json!(["--a", "--b"])));
        assert_eq!(exec["env"], json!([{ "name": "E", "value": "own" }, { "name": "F", "value": "1" }]));
        assert_eq!((&exec["interactiveMode"], &exec["provideClusterInfo"]), (&json!("Never"), &json!(true)));
        kube::config::Kubeconfig::from_yaml(inline(cluster).expose()).unwrap();
    }
}

#[test]
fn profile_extends_a_command_only_if_allowed() {
    let lines = PROVIDERS.replace("take_args = true", "").replace("take_env = true", "");
    let extensions = json!([
        { "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": ["--b"] },
        { "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": "odd" },
    ]);
    let offer = json!({ "name": "gke", "cluster": { "server": "https://blue", "extensions": extensions } });
    let report = profiles(&lines, &profile(json!({ "accessProviders": [offer] })), &[]);
    let (_, user) = entries(&report.clusters[0].cluster);
    assert_eq!(user["exec"]["args"], json!(["--a"]));
    assert_eq!(user["exec"]["env"], json!([{ "name": "E", "value": "own" }]));
}

#[test]
fn profile_reads_credentials_from_its_secret() {
    let lines = "type = \"cluster-profiles\"\nin_cluster = true\nsecrets = true\n";
    let config = kubeconfig(&json!({ "token": SECRET })).to_string();
    let of = |labels: Value, key: &str| {
        profiles(lines, &profile(json!({})), &[secret("s", labels, &[(key, &config)])]).clusters.len()
    };
    let labels = json!({ "x-k8s.io/cluster-profile": "blue", "x-k8s.io/cluster-profile-namespace": "fleet" });
    assert_eq!((of(labels.clone(), "Config"), of(labels, "config")), (1, 1));
    assert_eq!(of(json!({ "x-k8s.io/cluster-profile": "blue" }), "Config"), 0, "it is of another namespace");
    assert_eq!(
        of(json!({ "x-k8s.io/cluster-profile": "green", "x-k8s.io/cluster-profile-namespace": "fleet" }), "Config"),
        0
    );
}

#[test]
fn profile_problem_is_described() {
    let of = |status: Value| problem(&profiles(PROVIDERS, &profile(status), &[]));
    assert!(of(json!(null)).contains("status.accessProviders is empty"));
    assert!(
        of(json!({ "accessProviders": [{ "name": "eks" }] })).contains("has eks, but the configured providers are gke")
    );
    assert!(of(json!({ "accessProviders": [{ "name": "gke" }] })).contains("has no cluster"));
    let file = json!({ "server": "https://x", "certificate-authority": "/etc/x" });
    assert!(of(json!({ "accessProviders": [{ "name": "gke", "cluster": file }] })).contains("certificate-authority"));
    let plain = json!({ "server": "http://10.0.0.1" });
    assert!(of(json!({ "accessProviders": [{ "name": "gke", "cluster": plain }] })).contains("unencrypted"));
    let secrets = "type = \"cluster-profiles\"\nin_cluster = true\nsecrets = true\n";
    let labels = json!({ "x-k8s.io/cluster-profile": "blue", "x-k8s.io/cluster-profile-namespace": "fleet" });
    let text = problem(&profiles(secrets, &profile(json!({})), &[secret("s", labels, &[("Config", "rubbish: [")])]));
    assert!(text.contains("its Secret argocd/s: data.Config: is not a valid kubeconfig"), "{text}");
}

// === folder ===

#[test]
fn operator_file_is_trusted_and_referenced() {
    let source = source("type = \"folder\"\npath = \"/x\"");
    let text = kubeconfig(&json!({ "exec": { "command": "x" }, "tokenFile": "/t" })).to_string();
    let report = report_from_file(&source, Contexts::Current, Path::new("/x/prod-eu.kubeconfig"), &text);
    let [FoundCluster { cluster, .. }] = &report.clusters[..] else { panic!("{report:?}") };
    let wanted = ClusterAccess::Kubeconfig { path: "/x/prod-eu.kubeconfig".into(), context: None };
    assert_eq!((cluster.name.as_str(), &cluster.access), ("prod-eu", &wanted));
    assert_eq!([".x", "x~", "..data", ".yaml"].map(stem), [None; 4]);
    assert_eq!(["a.yaml", "b.conf", "c"].map(stem), [Some("a"), Some("b"), Some("c")]);
}

// === merging ===

fn cluster(name: &str) -> ClusterConfig {
    let access = ClusterAccess::Inline(InlineKubeconfig::new(name, "test"));
    ClusterConfig {
        name: name.parse().unwrap(),
        labels: BTreeMap::new(),
        access,
        compression: true,
        http: HttpVersions::default(),
        encoding: Encodings::default(),
    }
}

fn found(name: &str, object: &str) -> FoundCluster {
    FoundCluster { cluster: cluster(name), object: object.to_owned() }
}

#[test]
fn name_belongs_to_the_table_then_to_the_first_source() {
    let tables = [cluster("a")];
    let mut sources = BTreeMap::from([
        ("y".to_owned(), vec![found("a", "1"), found("b", "2")]),
        ("x".to_owned(), vec![found("b", "3"), found("b", "4")]),
    ]);
    let roster = merge(&tables, &sources);
    let names = |roster: &Roster| roster.clusters.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    let losers =
        |roster: &Roster| roster.conflicts.iter().map(|it| format!("{}{}", it.source, it.object)).collect::<Vec<_>>();
    assert_eq!(
        (names(&roster), losers(&roster)),
        (vec!["a".into(), "b".into()], vec!["x4".into(), "y1".into(), "y2".into()])
    );
    assert_eq!((roster.count("x"), roster.count("y")), (1, 0));
    let roster = merge(&[], &sources);
    assert_eq!(roster.count("y"), 1, "it has a now");
    sources.remove("x");
    assert_eq!(merge(&tables, &sources).count("y"), 1, "it has b now");
}

#[test]
fn limit_keeps_known_clusters_first() {
    let report = |names: &[&str]| SourceReport {
        clusters: names.iter().map(|name| found(name, name)).collect(),
        ..SourceReport::default()
    };
    let limited = |names: &[&str], most, before: &[&str]| {
        let before = before.iter().map(|name| name.parse().unwrap()).collect();
        let report = report(names).limited(most, &before);
        (report.clusters.iter().map(|it| it.cluster.name.to_string()).collect::<Vec<_>>(), report.over)
    };
    assert_eq!(limited(&["c", "b", "a"], 3, &[]), (vec!["c".into(), "b".into(), "a".into()], 0));
    assert_eq!(limited(&["c", "b", "a"], 2, &[]), (vec!["b".into(), "a".into()], 1));
    assert_eq!(limited(&["c", "b", "a"], 2, &["c"]), (vec!["c".into(), "a".into()], 1));
}

#[test]
fn invalid_object_keeps_its_clusters_and_a_removed_one_does_not() {
    let source = argocd("");
    let (right, wrong) = (cluster_secret(&json!({})), cluster_secret(&json!({ "execProviderConfig": {} })));
    let before = argo(&source, &[right]);
    let now = argo(&source, &[wrong]).keeping(&before);
    assert_eq!((now.clusters.clone(), now.problems.len()), (before.clusters.clone(), 1));
    assert!(argo(&source, &[]).keeping(&now).clusters.is_empty());
}

proptest! {
    #![proptest_config(properties(128))]

    /// Each name has exactly one holder, the cluster with the highest precedence; all others are reported as conflicts.
    #[test]
    fn every_name_has_one_holder_and_all_others_conflict(
        tables in prop::collection::btree_set("[a-d]", 0..4),
        sources in prop::collection::btree_map("[x-z]", prop::collection::vec("[a-e]", 0..6), 0..4),
    ) {
        let configs: Vec<_> = tables.iter().map(|name| cluster(name)).collect();
        let report: BTreeMap<_, Vec<_>> = sources.iter()
            .map(|(source, names)| (source.clone(), names.iter().enumerate().map(|(at, name)| found(name, &at.to_string())).collect()))
            .collect();
        let roster = merge(&configs, &report);
        let wanted: BTreeSet<ClusterName> =
            tables.iter().chain(sources.values().flatten()).map(|name| name.parse().unwrap()).collect();
        prop_assert!(roster.clusters.iter().map(|it| &it.name).eq(wanted.iter()));
        prop_assert_eq!(roster.conflicts.len() + roster.clusters.len(), tables.len() + sources.values().map(Vec::len).sum::<usize>());
        for name in &wanted {
            let first = sources.iter().find_map(|(source, names)| {
                Some((source.clone(), names.iter().position(|it| it == name.as_str())?.to_string()))
            });
            let holder = (!tables.contains(name.as_str())).then(|| first.unwrap());
            let is = roster.sourced.get(name).map(|holder| match holder {
                Holder::Source { name, object } => (name.clone(), object.clone()),
                Holder::Table => panic!("a table is no source"),
            });
            prop_assert_eq!(is, holder);
        }
    }

    /// Any object results in a cluster or a problem, and no secret is shown.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") {
        let source = argocd("");
        let data = json!({ "metadata": { "name": "c" }, "data": { "server": b64("https://x"), "config": b64(&text) } });
        for json in [bytes, data.to_string().into_bytes()] {
            let report = report_from_argocd(&source, management(&source), [json.clone()]);
            prop_assert_eq!(report.clusters.len() + report.problems.len(), 1);
            report_from_cluster_api(&source, [json]);
        }
        let _ = report_from_file(&source, Contexts::All, Path::new("/x"), &text);
    }
}

//! Tests that the examples in `config/` and `docs/clusters.md` load.

use std::fs;
use std::path::{Path, PathBuf};

use informer_hub_config::{Config, TransportConfig};

/// Creates a folder with a copy of each example and the files that they reference.
fn prepared() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(folder.path().join(".kube")).expect("a folder can be made");
    for name in [
        ".kube/config",
        "prod-us-ca.pem",
        "prod-us-token",
        "signing-key",
        "hub-cert.pem",
        "hub-key.pem",
        "operators-ca.pem",
        "hub-read-token",
        "hub.creds",
        "login-ca.pem",
        "dashboard-token",
    ] {
        fs::write(folder.path().join(name), "content").expect("a file can be written");
    }
    let mut copies = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("config")).expect("config/ is there") {
        let file = entry.expect("config/ can be listed").path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            let copy = folder.path().join(file.file_name().expect("has a name"));
            fs::copy(&file, &copy).expect("an example can be copied");
            copies.push(copy);
        }
    }
    copies.sort();
    (folder, copies)
}

fn load(folder: &Path, file: &Path) -> Config {
    let mut environment = vec![
        ("HOME".to_owned(), folder.to_str().expect("a UTF-8 path").to_owned()),
        ("AUDIT_SECRET".to_owned(), "whsec_c2VjcmV0".to_owned()),
        ("AUDIT_API_KEY".to_owned(), "key".to_owned()),
        ("API_TOKEN".to_owned(), "0123456789abcdef".to_owned()),
    ];
    if file.ends_with("in-cluster.toml") {
        // The mounted secret of the example does not exist on this machine.
        environment.push(("INFORMER_HUB_SINKS__CHAT_OPS__SIGNING_SECRET__FILE".to_owned(), "signing-key".to_owned()));
    }
    Config::from_file_with_env(file, environment).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn every_example_loads() {
    let (folder, files) = prepared();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let config = load(folder.path(), &file);
        assert!(!config.clusters.is_empty() && !config.resources.is_empty(), "{}", file.display());
    }
}

#[test]
fn documented_defaults_are_the_defaults() {
    let (folder, _) = prepared();
    let file = folder.path().join("hub.toml");
    let shown = load(folder.path(), &file);
    let shows_default = |line: &str| {
        let assignment = line.strip_prefix("# ").filter(|rest| !rest.starts_with("ca_file"))?;
        let (key, _) = assignment.split_once(" = ")?;
        key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then(|| assignment.to_owned())
    };
    let text = fs::read_to_string(&file).unwrap();
    let mut uncommented = 0;
    let spelt_out = text.lines().map(|line| {
        let default = shows_default(line);
        uncommented += usize::from(default.is_some());
        default.unwrap_or_else(|| line.to_owned()) + "\n"
    });
    fs::write(&file, spelt_out.collect::<String>()).unwrap();
    let spelt_out = load(folder.path(), &file);
    assert!(uncommented >= 9, "only {uncommented} defaults found in the reference");
    assert_eq!(spelt_out.hub, shown.hub);
    assert_eq!(spelt_out.clusters, shown.clusters);
    assert_eq!(spelt_out.sources, shown.sources);
    assert_eq!(spelt_out.resources, shown.resources);
    assert_eq!(spelt_out.sinks, shown.sinks);
    assert_eq!(spelt_out.ha, shown.ha);
}

#[test]
fn reference_file_loads_as_documented() {
    let (folder, _) = prepared();
    let config = load(folder.path(), &folder.path().join("hub.toml"));
    let names: Vec<_> = config.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["here", "prod-eu", "prod-us"]);
    let sources: Vec<_> = config.sources.iter().map(|source| (source.name.as_str(), source.kind.as_str())).collect();
    assert_eq!(sources, [("argocd", "secrets"), ("edge", "folder"), ("inventory", "cluster-profiles")]);
    let resources: Vec<_> = config.resources.iter().map(|resource| resource.resource.to_string()).collect();
    assert_eq!(resources, ["nodes", "deployments.apps", "*.example.com", "pods"]);
    let TransportConfig::Webhook(webhook) = &config.sinks[0].transport else { panic!("another type") };
    assert!(webhook.signing_secret.is_some() && webhook.ca_file.is_none());
}

#[test]
fn examples_of_the_clusters_page_load() {
    let (folder, _) = prepared();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clusters.md")).expect("it is there");
    let blocks: Vec<_> = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 4, "a block for each kind of source");
    for block in blocks {
        let file = folder.path().join("block.toml");
        fs::write(&file, format!("{block}\n[resources.pods]\n")).expect("it can be written");
        assert_eq!(load(folder.path(), &file).sources.len(), 1, "{block}");
    }
}

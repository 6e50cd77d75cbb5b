//! Tests of `deploy/` with real helm, kustomize, BuildKit's linter and an apiserver.

mod chart;
mod cluster;
mod image;
mod pod;
mod rights;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use informer_hub_config::{Config, ConfigErrors};
use serde_json::Value;

use crate::bed::built;

/// Namespace of rendered releases.
const NAMESPACE: &str = "tools";

fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs helm, isolated from the machine's helm and kubectl configuration.
fn helm(arguments: &[&str]) -> Output {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY.get_or_init(|| built("tests/testbed/helm/build.sh")));
    command.env("HOME", home.path()).env_remove("KUBECONFIG");
    command.args(arguments).current_dir(path("deploy/helm")).output().unwrap()
}

/// Renders the chart with `helm template`.
fn template(release: &str, namespace: &str, arguments: &[&str]) -> Result<String, String> {
    let output = helm(&[&["template", release, "informer-hub", "--namespace", namespace], arguments].concat());
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Parses the objects of a multi-document YAML text.
fn objects(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---\n").filter(|text| text.lines().any(|line| !line.starts_with(['#', '-'])));
    documents
        .map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}")))
        .filter(|object: &Value| !object.is_null())
        .collect()
}

/// Returns the chart's values files in `ci/`, and `None` for its defaults.
fn values_files() -> Vec<Option<String>> {
    let folder = path("deploy/helm/informer-hub/ci");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = entries.map(|name| Some(format!("informer-hub/ci/{name}"))).collect();
    files.push(None);
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    files
}

fn template_of(file: Option<&str>) -> Vec<Value> {
    let arguments = file.map_or(Vec::new(), |file| vec!["--values", file]);
    objects(&template("hub", NAMESPACE, &arguments).unwrap_or_else(|error| panic!("{file:?}: {error}")))
}

const OVERLAYS: [&str; 3] = ["agent", "in-cluster", "production"];

/// Renders a kustomize overlay.
fn overlay(name: &str) -> Vec<Value> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BINARY.get_or_init(|| built("tests/testbed/kustomize/build.sh")));
    let output = command.arg("build").arg(path("deploy/kustomize/overlays").join(name)).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
    objects(&text(&output.stdout))
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "{kind}: {found:?}");
    found[0]
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Configuration file and environment of the hub in some objects, in a folder with every file that they name.
struct Mounted {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Mounted {
    fn of(objects: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = |text: &str| {
            let at = |below: &str| folder.path().join(below).display().to_string();
            text.replace("/etc/informer-hub", &at("etc")).replace("/var/lib/informer-hub", &at("lib"))
        };
        fs::create_dir(folder.path().join("lib")).unwrap();
        let maps = of_kind(objects, "ConfigMap");
        let toml =
            here(maps.iter().find_map(|map| map["data"]["hub.toml"].as_str()).expect("the ConfigMap has hub.toml"));
        let container = &one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0];
        let variable = |it: &Value| {
            let value = here(it["value"].as_str().unwrap_or("from-a-secret"));
            (it["name"].as_str().unwrap().to_owned(), value)
        };
        let environment: Vec<_> = list(&container["env"]).iter().map(variable).collect();
        let texts = toml.split('"').chain(environment.iter().map(|(_, value)| value.as_str()));
        for file in texts.filter(|text| Path::new(text).starts_with(folder.path().join("etc"))) {
            fs::create_dir_all(Path::new(file).parent().unwrap()).unwrap();
            fs::write(file, "content").unwrap();
        }
        fs::write(folder.path().join("hub.toml"), toml).unwrap();
        Self { folder, environment }
    }

    fn config(&self) -> Result<Config, ConfigErrors> {
        Config::from_file_with_env(self.folder.path().join("hub.toml"), self.environment.clone())
    }

    /// Returns the objects that `informer-hub rbac` prints for a cluster.
    fn rbac(&self, cluster: &str) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        command.args(["rbac", "-c", "hub.toml", "--cluster", cluster]).current_dir(self.folder.path());
        let done = command.envs(self.environment.clone()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        objects(&text(&done.stdout))
    }
}

/// One right: namespace (`*` for all), group, resource, verb.
type Right = [String; 4];

/// Returns the rights that roles grant, without those of a namespace that are also granted everywhere.
fn rights(objects: &[Value]) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    for role in objects.iter().filter(|it| it["kind"] == "Role" || it["kind"] == "ClusterRole") {
        let place = role["metadata"]["namespace"].as_str().unwrap_or("*");
        for rule in list(&role["rules"]) {
            for (group, resource, verb) in list(&rule["apiGroups"]).iter().flat_map(|group| {
                let (resources, verbs) = (list(&rule["resources"]), list(&rule["verbs"]));
                let pairs = resources
                    .into_iter()
                    .flat_map(move |it| verbs.clone().into_iter().map(move |verb| (it.clone(), verb)));
                pairs.map(move |(resource, verb)| (group.clone(), resource, verb)).collect::<Vec<_>>()
            }) {
                all.insert(
                    [place, group.as_str().unwrap(), resource.as_str().unwrap(), verb.as_str().unwrap()]
                        .map(str::to_owned),
                );
            }
        }
    }
    let everywhere = all.clone();
    all.retain(|[place, rest @ ..]| {
        let [group, resource, verb] = rest.clone();
        place == "*" || !everywhere.contains(&["*".to_owned(), group, resource, verb])
    });
    all
}

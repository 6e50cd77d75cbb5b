//! kubectl against the hub's root of a cluster, and against its apiserver: the output must be the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use futures::stream::{self, StreamExt};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::endpoint::Endpoint;
use super::hub::HubProcess;
use super::objects;
use super::resources::{GADGETS, RESOURCES, Resource};
use crate::bed::{RealCluster, create_pod, delete_now, kubectl, merge, pods};
use crate::fixture::WAIT_DEADLINE;

/// Commands that must print the same, except for ages.
const COMMANDS: &[&str] = &[
    "get pods",
    "get pods -A",
    "get pods -A -o wide",
    "get po -n shop --show-labels -L app,tier",
    "get pods -A -o name -l app=web",
    "get pods -A -l 'app in (web,cart),!tier'",
    "get pods -A --field-selector status.phase=Running",
    "get pods -A -o wide --field-selector spec.nodeName=node-1,status.phase!=Failed",
    "get pods -A --sort-by=.metadata.uid",
    "get pods -A --sort-by=.metadata.creationTimestamp -o name",
    "get pods -A --chunk-size=7",
    "get pods -A --no-headers --show-kind",
    "get pods -n shop -o yaml",
    "get pods -n shop -o json",
    "get pods -A -o jsonpath='{range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}'",
    "get pods -A -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,IPS:.status.podIPs[*].ip",
    "get pods -A -o go-template='{{range .items}}{{.metadata.name}} {{end}}'",
    "get pods -n no-such-namespace",
    "get deploy,rs,sts,ds,rc,svc,ing,cm,secret,sa -A",
    "get deploy,rs,sts,ds,rc,job,cj,svc,hpa,pdb,netpol,lease -A -o wide",
    "get all -n shop",
    "get nodes",
    "get nodes -o wide --show-labels",
    "get node node-1 -o yaml",
    "get ns",
    "get pv,pvc,sc,csidriver,csinode,volumeattachment -A",
    "get events -A",
    "events -A",
    "get gadgets -A",
    "get gd -A -o wide",
    "get toys -A --show-labels",
    "get gadgets.v1.read.example.com -n shop -o yaml",
    "get gadgets -A --field-selector spec.color=red",
    "get crd gadgets.read.example.com -o yaml",
    "get crd,apiservice",
    "get roles,rolebindings,clusterroles,clusterrolebindings -A -o wide",
    "get pod no-such-pod -n shop",
    "get nothings",
    "get pods --field-selector spec.unknown=1",
    "get --raw /readyz",
    "get --raw /api/v2",
    "describe pods -n shop",
    "describe deployments -A",
    "describe node node-1",
    "describe configmaps -A",
    "describe gadgets -n shop",
    "describe svc -A",
    "describe ns shop",
    "explain pods.spec.containers.resources",
    "explain gadgets.spec",
    "explain deployments --recursive",
    "version",
];

/// Commands that write. Each must fail.
const WRITES: &[&str] = &[
    "delete node node-1",
    "create namespace other",
    "label node node-1 a=b",
    "scale -n shop rc/none --replicas=3",
    "apply -f -",
    "patch node node-1 -p '{\"spec\":{\"unschedulable\":true}}'",
];

/// kubectl with one server, and a home of its own for its discovery cache.
struct Kubectl {
    endpoint: Endpoint,
    home: TempDir,
}

impl Kubectl {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(kubectl());
        command.arg("--server").arg(self.endpoint.url());
        if let Some(token) = self.endpoint.token() {
            command.arg("--token").arg(token);
        }
        if let Some(ca) = self.endpoint.ca() {
            command.arg("--certificate-authority").arg(ca);
        }
        command.args(arguments).env_clear().env("HOME", self.home.path());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command line to its end.
    async fn run(&self, line: &str) -> Output {
        let running = self.command(&shlex::split(line).unwrap()).output();
        let output = tokio::time::timeout(WAIT_DEADLINE, running).await;
        output.unwrap_or_else(|_| panic!("kubectl {line} does not end")).unwrap()
    }

    async fn run_with_file(&self, line: &str, file: &Path) -> Output {
        let mut arguments = shlex::split(line).unwrap();
        for argument in arguments.iter_mut().filter(|argument| *argument == "-") {
            *argument = file.display().to_string();
        }
        self.command(&arguments).output().await.unwrap()
    }
}

/// Exit code, standard output and standard error.
fn shown(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns the difference between the outputs of a command. Tries several times, since the printed ages change.
async fn difference(kube: &Kubectl, hub: &Kubectl, line: &str) -> Option<String> {
    let mut found = None;
    // On a busy machine, the two answers are often made in different seconds.
    for _ in 0..12 {
        let (kube, hub) = tokio::join!(kube.run(line), hub.run(line));
        let (kube, hub) = (shown(&kube), shown(&hub));
        if kube == hub {
            return None;
        }
        found = Some(format!("kubectl {line}\n{}", first_difference(&kube, &hub)));
    }
    found
}

fn first_difference(kube: &(Option<i32>, String, String), hub: &(Option<i32>, String, String)) -> String {
    let mut text = format!("  exit {:?} and {:?}\n", kube.0, hub.0);
    for (kube, hub) in [(&kube.1, &hub.1), (&kube.2, &hub.2)] {
        let (mut kube_lines, mut hub_lines) = (kube.lines(), hub.lines());
        loop {
            match (kube_lines.next(), hub_lines.next()) {
                (None, None) => break,
                (kube, hub) if kube == hub => {}
                (kube, hub) => {
                    let _ = writeln!(text, "  kube {kube:?}\n  hub  {hub:?}");
                    break;
                }
            }
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_same_from_hub_and_apiserver() {
    let mut random = StdRng::seed_from_u64(crate::read_api::seed());
    let cluster = RealCluster::start("kubectl").await;
    let apiserver = Endpoint::apiserver(&cluster).await;
    objects::create_all(apiserver.client(), &mut random).await;
    let resources: Vec<_> = RESOURCES.iter().map(Resource::config_name).collect();
    let hub = HubProcess::start(&[(cluster.name(), cluster.kubeconfig())], &resources).await;
    let client = apiserver.client().clone();
    let (kube, of_hub) = (Kubectl::new(apiserver), Kubectl::new(hub.cluster(&cluster)));
    // Fills the discovery caches.
    tokio::join!(kube.run("get ns"), of_hub.run("get ns"));

    let differences = stream::iter(COMMANDS).map(async |line| difference(&kube, &of_hub, line).await);
    let differences: Vec<_> = differences.buffer_unordered(3).filter_map(std::future::ready).collect().await;
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), COMMANDS.len(), differences.join("\n"));
    discovery_is_a_part(&kube, &of_hub).await;
    writes_are_refused(&of_hub).await;
    watches_print_the_same(&client, &kube, &of_hub).await;
    waits_end(&client, &kube, &of_hub).await;
    fleet_has_a_cluster_column(&kube, &Kubectl::new(hub.root("/clusters/*")), cluster.name()).await;
    printed_kubeconfig_is_read(&kube, &hub, cluster.name()).await;
}

/// Verifies that the hub lists the resources that it caches, as the apiserver describes them.
async fn discovery_is_a_part(kube: &Kubectl, hub: &Kubectl) {
    let lines = async |kubectl: &Kubectl, line: &str| -> BTreeSet<String> {
        let (code, stdout, stderr) = shown(&kubectl.run(line).await);
        assert_eq!(code, Some(0), "{line}: {stderr}");
        stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    for line in ["api-resources", "api-versions"] {
        let (kube, hub) = (lines(kube, line).await, lines(hub, line).await);
        let unknown: Vec<_> = hub.difference(&kube).collect();
        assert!(unknown.is_empty(), "{line} of the hub has {unknown:?}");
    }
    let names = lines(hub, "api-resources -o name").await;
    let cached: BTreeSet<_> = RESOURCES.iter().map(Resource::config_name).collect();
    assert_eq!(names, cached);
}

/// Verifies that writes fail with a text that says why.
async fn writes_are_refused(hub: &Kubectl) {
    let file = hub.home.path().join("object.json");
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    std::fs::write(&file, object.to_string()).unwrap();
    for line in WRITES {
        let (code, stdout, stderr) = shown(&hub.run_with_file(line, &file).await);
        assert_eq!(code, Some(1), "{line}: {stdout}");
        let is_clear = stderr.contains("only reads") || line.starts_with("scale");
        assert!(is_clear, "{line}: {stderr}");
    }
}

/// Lines of a command that runs until it is dropped.
struct Following {
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    _child: Child,
}

impl Following {
    fn start(kubectl: &Kubectl, line: &str) -> Self {
        let mut child = kubectl.command(&shlex::split(line).unwrap()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { lines, _child: child }
    }

    /// Reads lines up to the one that `is_last` accepts. Drops ages, the last column.
    async fn until(&mut self, is_last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut read = Vec::new();
        let reading = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                let is_over = is_last(&line);
                let columns: Vec<_> = line.split_whitespace().collect();
                read.push(columns[..columns.len() - 1].join(" "));
                if is_over {
                    return;
                }
            }
        };
        let ended = tokio::time::timeout(WAIT_DEADLINE, reading).await;
        assert!(ended.is_ok(), "kubectl printed only {read:#?}");
        read
    }
}

/// Verifies that `get -w` prints the same events.
async fn watches_print_the_same(client: &Client, kube: &Kubectl, hub: &Kubectl) {
    let api = pods(client, "default");
    create_pod(client, "default", "watched-0").await;
    let line = "get pods -n default -l 'app in (app-0,moved)' --watch --output-watch-events";
    let mut following = [Following::start(kube, line), Following::start(hub, line)];
    for following in &mut following {
        following.until(|line| line.contains("watched-0")).await;
    }
    merge(&api, "watched-0", json!({ "metadata": { "labels": { "app": "moved" } } })).await;
    merge(&api, "watched-0", json!({ "metadata": { "labels": { "app": "gone" } } })).await;
    merge(&api, "watched-0", json!({ "metadata": { "labels": { "app": "moved" } } })).await;
    delete_now(&api, "watched-0").await;
    create_pod(client, "default", "watched-10").await;
    let [kube, hub] = &mut following;
    let is_last = |line: &str| line.contains("watched-10");
    let (kube, hub) = tokio::join!(kube.until(is_last), hub.until(is_last));
    assert_eq!(hub, kube);
    let kinds: Vec<_> = kube.iter().map(|line| line.split(' ').next().unwrap()).collect();
    // The labels move the pod out of the selection and back.
    assert!(kinds.starts_with(&["MODIFIED", "DELETED", "ADDED"]) && kinds.ends_with(&["DELETED", "ADDED"]), "{kube:?}");
}

/// Verifies that `wait` ends when a condition comes true, and when the object is deleted.
async fn waits_end(client: &Client, kube: &Kubectl, hub: &Kubectl) {
    let resource = kube::api::ApiResource {
        group: GADGETS.group.to_owned(),
        version: GADGETS.version.to_owned(),
        api_version: GADGETS.api_version(),
        kind: GADGETS.kind.to_owned(),
        plural: GADGETS.plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let gadget = json!({
        "apiVersion": GADGETS.api_version(), "kind": "Gadget", "metadata": { "name": "awaited" }, "spec": {},
    });
    api.patch("awaited", &PatchParams::apply("test"), &Patch::Apply(&gadget)).await.unwrap();
    let change = async {
        let busy = json!({ "status": { "phase": "Busy", "conditions": [{ "type": "Ready", "status": "True" }] } });
        api.patch_status("awaited", &PatchParams::default(), &Patch::Merge(busy)).await.unwrap();
    };
    let line = "wait gadget/awaited --for=jsonpath='{.status.phase}'=Busy --timeout=60s";
    let (kube_output, hub_output, ()) = tokio::join!(kube.run(line), hub.run(line), change);
    assert_eq!((hub_output.status.code(), shown(&hub_output)), (Some(0), shown(&kube_output)));
    let line = "wait gadget/awaited --for=condition=Ready --timeout=60s";
    let (kube_output, hub_output) = tokio::join!(kube.run(line), hub.run(line));
    assert_eq!((hub_output.status.code(), shown(&hub_output)), (Some(0), shown(&kube_output)));
    let line = "wait gadget/awaited --for=delete --timeout=60s";
    let (hub_output, ()) = tokio::join!(hub.run(line), delete_now(&api, "awaited"));
    assert_eq!(hub_output.status.code(), Some(0), "{hub_output:?}");
}

/// Verifies that kubectl reads with the contexts of `informer-hub kubeconfig`.
async fn printed_kubeconfig_is_read(kube: &Kubectl, hub: &HubProcess, cluster: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, hub.kubeconfig()).unwrap();
    let names = async |context: &str| {
        let mut command = Command::new(kubectl());
        command.arg("--kubeconfig").arg(&file).args(["--context", context, "get", "nodes", "-o", "name"]);
        shown(&command.env_clear().env("HOME", folder.path()).output().await.unwrap())
    };
    let expected = shown(&kube.run("get nodes -o name").await);
    for context in [cluster, "fleet"] {
        assert_eq!(names(context).await, expected, "{context}");
    }
    let unique = expected.1.replace("node/", &format!("node/{cluster}:"));
    assert_eq!(names("fleet-unique").await.1, unique);
}

/// Verifies that a table of the fleet is the cluster's, after a column with the cluster's name.
async fn fleet_has_a_cluster_column(kube: &Kubectl, fleet: &Kubectl, cluster: &str) {
    // Drops the last column, which is the age.
    let lines = async |kubectl: &Kubectl, line: &str| -> Vec<Vec<String>> {
        let (code, stdout, stderr) = shown(&kubectl.run(line).await);
        assert_eq!(code, Some(0), "{line}: {stderr}");
        let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        stdout.lines().map(columns).map(|columns| columns[..columns.len() - 1].to_vec()).collect()
    };
    for line in ["get ingressclass", "get configmaps -A", "get ns"] {
        let (kube, fleet) = (lines(kube, line).await, lines(fleet, line).await);
        let with_cluster = kube.into_iter().enumerate().map(|(at, columns)| {
            let first = if at == 0 { "CLUSTER" } else { cluster };
            [vec![first.to_owned()], columns].concat()
        });
        let expected: Vec<_> = with_cluster.collect();
        // kubectl prints the namespace before the columns of the server.
        let has_namespace = line.contains("-A");
        let expected = expected.into_iter().map(|mut columns| {
            if has_namespace {
                columns.swap(0, 1);
            }
            columns
        });
        assert_eq!(fleet, expected.collect::<Vec<_>>(), "{line}");
    }
}

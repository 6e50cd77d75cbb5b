//! A hub over three simulated clusters, and client commands that ask it.

use std::io::Read;
use std::process::{Command, Stdio};

use informer_hub_sim::{SimCluster, World};
use informer_hub_types::{Gvr, ObjectKey};
use serde_json::{Value, json};

use crate::process::{Launch, Process, cluster, sim};
use crate::terminal::run_on_terminal;

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A hub, its clusters `prod-eu`, `prod-us` (tier prod) and `dev` (tier dev), and its address.
pub(crate) struct Fleet {
    pub(crate) hub: Process,
    pub(crate) clusters: Vec<SimCluster>,
    pub(crate) url: String,
}

/// Token of a hub with `auth = { read_token = { env = "READ_TOKEN_OF_HUB" } }`.
pub(crate) const TOKEN: &str = "hunter2-hunter2-hunter2";

/// Names of the clusters, with their tiers.
const CLUSTERS: [(&str, &str); 3] = [("prod-eu", "prod"), ("prod-us", "prod"), ("dev", "dev")];

impl Fleet {
    /// Starts a hub over clusters with few objects of known names and ages. `toml` starts inside `[hub]`.
    pub(crate) async fn start(toml: &str) -> Self {
        let clusters: Vec<SimCluster> = (0..3).map(|seed| sim(100 + seed, 0)).collect();
        for (at, cluster) in clusters.iter().enumerate() {
            cluster.with_world(|world| fill(world, at));
        }
        let tables: String = CLUSTERS
            .iter()
            .zip(&clusters)
            .map(|((name, tier), sim)| {
                [cluster(name, &sim.url()), format!("labels = {{ tier = \"{tier}\" }}\n")].concat()
            })
            .collect();
        let resources = "[resources.pods]\n[resources.nodes]\n[resources.\"widgets.example.com\"]\n";
        let hub = Launch::new(&format!("{toml}{tables}{resources}")).env("READ_TOKEN_OF_HUB", TOKEN).start();
        hub.ready().await;
        let url = hub.url().await;
        Self { hub, clusters, url }
    }

    /// Returns a command without this machine's settings.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("INFORMER_HUB_URL", &self.url).current_dir(self.hub.path());
        command
    }

    /// Runs a command with its output in pipes.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments))
    }

    /// Runs a command in a terminal without colours.
    pub(crate) fn screen(&self, arguments: &[&str], columns: u16) -> String {
        let (_, screen) = run_on_terminal(self.command(arguments), columns);
        screen
    }

    /// Runs a command whose reader takes the first line and closes the pipe.
    pub(crate) fn run_for_head(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 1];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = child.wait().unwrap().code().expect("it ends by itself");
        Outcome { code, out: String::from_utf8_lossy(&first).into_owned(), err }
    }
}

/// Returns a client command without this machine's settings.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("INFORMER_HUB_")) {
            command.env_remove(name);
        }
    }
    command.args(arguments).env_remove("NO_COLOR");
    command
}

/// Runs a command with its output in pipes.
pub(crate) fn outcome(mut command: Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().expect("it ends by itself");
    Outcome { code, out: text(output.stdout), err: text(output.stderr) }
}

/// Returns a time so long ago that ages do not change during a test.
fn long_ago() -> String {
    let age = jiff::SignedDuration::from_hours(3 * 24 + 12) + jiff::SignedDuration::from_mins(2);
    (jiff::Timestamp::now() - age).to_string()
}

/// Adds a pod. Its only container runs if `status` is `Running`, and otherwise waits with `status` as the reason.
pub(crate) fn pod(world: &mut World, namespace: &str, name: &str, status: &str, restarts: u32) {
    let is_running = status == "Running";
    let state = if is_running {
        json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
    } else {
        json!({ "waiting": { "reason": status } })
    };
    let body = json!({
        "metadata": { "labels": { "app": name.split('-').next() } },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "main", "image": "registry.example.com/web:1.27" }] },
        "status": {
            "phase": "Running", "podIP": "10.64.17.3",
            "containerStatuses": [{ "name": "main", "ready": is_running, "restartCount": restarts, "state": state }],
        },
    });
    world.create(&World::pods(), namespace, name, body).unwrap();
    age(world, &World::pods(), &ObjectKey::new(namespace, name));
}

/// Sets the age of an object.
fn age(world: &mut World, gvr: &Gvr, key: &ObjectKey) {
    let set = |body: &mut Value| body["metadata"]["creationTimestamp"] = json!(long_ago());
    world.update(gvr, key, set).unwrap();
}

fn fill(world: &mut World, at: usize) {
    let nodes: Vec<ObjectKey> = world.objects(&World::nodes()).map(|node| node.key().clone()).collect();
    for key in &nodes {
        age(world, &World::nodes(), key);
    }
    match at {
        0 => {
            pod(world, "checkout", "payments-api-7d9c5b8f64-zl2mw", "CrashLoopBackOff", 41);
            pod(world, "checkout", "payments-api-7d9c5b8f64-x7q2k", "Running", 0);
            pod(world, "kube-system", "coredns-6f6b679f8f-7xkqp", "Running", 3);
        }
        1 => pod(world, "web", "web-0", "Running", 1),
        _ => {
            pod(world, "web", "web-0", "ImagePullBackOff", 0);
            pod(world, "web", "web-10", "Running", 0);
            pod(world, "web", "web-9", "Running", 7);
        }
    }
}

/// Adds the widgets `root` and `middle`, which owns the pods `leaf-1` and `leaf-2`.
pub(crate) fn add_owners(world: &mut World) {
    let widgets = World::widgets();
    world.create(&widgets, "shop", "root", json!({})).unwrap();
    let owned = |world: &World, owner: &str| {
        let uid = world.get(&World::widgets(), &ObjectKey::new("shop", owner)).unwrap().uid().to_string();
        let reference =
            json!({ "apiVersion": "example.com/v1", "kind": "Widget", "name": owner, "uid": uid, "controller": true });
        json!({ "metadata": { "ownerReferences": [reference] }, "status": { "phase": "Running" } })
    };
    let body = owned(world, "root");
    world.create(&widgets, "shop", "middle", body).unwrap();
    for name in ["leaf-1", "leaf-2"] {
        let body = owned(world, "middle");
        world.create(&World::pods(), "shop", name, body).unwrap();
    }
}

/// A command that runs until it is dropped, and its lines.
pub(crate) struct Running {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a command.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(stdout).map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// Returns the next line of standard output, with single blanks.
    pub(crate) fn line(&self) -> String {
        single_blanks(&self.lines.recv_timeout(crate::wait::PATIENCE).expect("no line in time"))
    }

    /// Returns the next line if there is one now.
    pub(crate) fn try_line(&self) -> Option<String> {
        self.lines.try_recv().ok().map(|line| single_blanks(&line))
    }
}

fn single_blanks(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

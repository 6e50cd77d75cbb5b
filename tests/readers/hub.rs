//! A hub process with two simulated clusters that have objects of the same names.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use informer_hub_sim::{SimCluster, SimConfig, World, WorldConfig};
use informer_hub_types::ObjectKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::wait::until;

const SEED: u64 = 23;

/// A running hub. Dropping it kills it.
pub(crate) struct Hub {
    child: Child,
    clusters: [(&'static str, SimCluster); 2],
    folder: TempDir,
}

impl Hub {
    /// Starts a hub and waits until it has all objects.
    pub(crate) async fn start() -> Self {
        let cluster = |name| {
            let world = WorldConfig { seed: SEED, pods: 20, small: true, ..WorldConfig::default() };
            (name, SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap())
        };
        let clusters = ["east", "west"].map(cluster);
        let folder = tempfile::tempdir().unwrap();
        let table = |(name, it): &(&str, SimCluster)| format!("[clusters.{name}]\nserver = \"{}\"\n", it.url());
        let tables: Vec<_> = clusters.iter().map(table).collect();
        let toml = format!("[hub]\nlisten = \"127.0.0.1:0\"\n{}[resources.pods]\n", tables.concat());
        std::fs::write(folder.path().join("hub.toml"), toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        command.args(["run", "--log-format", "json", "-c"]).arg(folder.path().join("hub.toml")).stdin(Stdio::null());
        command.stderr(std::fs::File::create(folder.path().join("log")).unwrap());
        let hub = Self { child: command.spawn().unwrap(), clusters, folder };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = until("the hub has a port", async || hub.url()).await;
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        until("the hub is ready", async || {
            let answer = client.get(format!("{url}/readyz")).send().await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
        hub.write_kubeconfig(&url);
        hub
    }

    /// Returns the URL of the hub's port, once the log has its address.
    pub(crate) fn url(&self) -> Option<String> {
        let log = std::fs::read_to_string(self.path().join("log")).unwrap();
        let line = log.lines().find(|line| line.contains("serving /livez"))?;
        // The last line may be incomplete.
        let line: Value = serde_json::from_str(line).ok()?;
        Some(format!("http://{}", line["address"].as_str()?))
    }

    fn write_kubeconfig(&self, url: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        let output = command.args(["kubeconfig", "--url", url]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::write(self.kubeconfig(), output.stdout).unwrap();
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the pods of all clusters as the readers print them.
    pub(crate) fn pods(&self) -> Vec<String> {
        let of = |(name, cluster): &(&'static str, SimCluster)| {
            let name = *name;
            cluster.truth(&World::pods()).into_keys().map(move |key| shown(name, &key)).collect::<Vec<_>>()
        };
        self.clusters.iter().flat_map(of).collect()
    }

    /// Changes a pod of the second cluster, and returns the pod as the readers print it.
    pub(crate) fn change(&self) -> String {
        self.second(|world, key| {
            world.patch(&World::pods(), key, &json!({ "metadata": { "labels": { "changed": "yes" } } })).unwrap();
        })
    }

    /// Deletes a pod of the second cluster, and returns the pod as the readers print it.
    pub(crate) fn delete(&self) -> String {
        self.second(|world, key| {
            world.delete(&World::pods(), key).unwrap();
        })
    }

    fn second(&self, change: impl FnOnce(&mut World, &ObjectKey)) -> String {
        let (name, cluster) = &self.clusters[1];
        let key = cluster.truth(&World::pods()).into_keys().next().unwrap();
        cluster.with_world(|world| change(world, &key));
        shown(name, &key)
    }
}

fn shown(cluster: &str, key: &ObjectKey) -> String {
    format!("{cluster} {}", key.as_str())
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

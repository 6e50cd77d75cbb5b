//! A hub as an operator runs it, with one simulated cluster, which tells a receiver of what there is.

use std::process::{Child, Command, Stdio};

use informer_hub_sim::{SimCluster, SimConfig, World, WorldConfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::requests::client;
use crate::wait::until;

const SEED: u64 = 11;

/// A running hub. Dropping it kills it.
pub(crate) struct Hub {
    child: Child,
    url: String,
    cluster: SimCluster,
    _folder: TempDir,
}

impl Hub {
    /// With a sink that signs.
    pub(crate) fn start(receiver: &str, secret: &str) -> Self {
        let world = WorldConfig { seed: SEED, pods: 60, small: true, ..WorldConfig::default() };
        let cluster = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hub.toml");
        let toml = format!(
            "[hub]\nlisten = \"{port}\"\n[clusters.c0]\nserver = \"{}\"\n[resources.pods]\n[sinks.shown]\n\
             type = \"webhook\"\nurl = \"{receiver}/events\"\nsigning_secret = {{ env = \"SHOWN_SECRET\" }}\n\
             initial = \"replay\"\nmatch = {{ events = [\"added\"] }}\nbatch = {{ max_events = 7, max_wait = \"20ms\" }}\n",
            cluster.url()
        );
        std::fs::write(&file, toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        command.arg("run").arg("-c").arg(&file).env("SHOWN_SECRET", secret).stdin(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), url: format!("http://{port}"), cluster, _folder: folder }
    }

    /// The subjects of what there is.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let truth = self.cluster.truth(&World::pods());
        assert!(!truth.is_empty());
        truth.keys().map(|key| format!("/v1/pods/{}", key.as_str())).collect()
    }

    /// Waits until the sink has had so many events acknowledged, without a failure.
    pub(crate) async fn has_delivered(&self, count: usize) {
        let client = client();
        until("the hub's own count", async || {
            let status = client.get(format!("{}/v1/status", self.url)).send().await.ok()?.text().await.ok()?;
            let status: Value = serde_json::from_str(&status).ok()?;
            let sink = &status["sinks"][0];
            assert_eq!(sink["retries"], 0, "{sink}");
            (sink["delivered"].as_u64()? >= count as u64).then_some(())
        })
        .await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

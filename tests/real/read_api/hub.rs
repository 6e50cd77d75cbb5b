//! The hub as a process, with its read API.

use std::fmt::Write as _;
use std::path::Path;

use super::endpoint::Endpoint;
use crate::bed::RealCluster;
use crate::workdir::{Running, Workdir};

/// A hub that serves some clusters at one address, over restarts. Dropping it kills the process.
pub(super) struct HubProcess {
    workdir: Workdir,
    running: Option<Running>,
}

impl HubProcess {
    /// Starts the hub and waits until it is ready. Resources are names as in the configuration.
    pub(super) async fn start(clusters: &[(&str, &Path)], resources: &[String]) -> Self {
        Self::start_with(clusters, resources, "").await
    }

    /// Starts the hub with further lines for `[hub]`.
    pub(super) async fn start_with(clusters: &[(&str, &Path)], resources: &[String], more: &str) -> Self {
        let workdir = Workdir::new();
        let listen = workdir.listen();
        let mut toml = format!("[hub]\nlisten = \"{listen}\"\nread_api = {{ serve_secrets = true }}\n{more}");
        for (name, kubeconfig) in clusters {
            let _ = writeln!(toml, "[clusters.{name}]\nkubeconfig = {:?}", kubeconfig.display().to_string());
        }
        for resource in resources {
            let _ = writeln!(toml, "[resources.\"{resource}\"]");
        }
        workdir.write("hub.toml", &toml);
        let mut hub = Self { workdir, running: None };
        hub.restart();
        hub.ready().await;
        hub
    }

    /// Kills the process with SIGKILL, if it runs, and starts it again. Returns before it is ready.
    pub(super) fn restart(&mut self) {
        self.running = None;
        self.running = Some(self.workdir.hub());
    }

    /// Waits until the hub is ready.
    pub(super) async fn ready(&self) {
        self.workdir.ready(self.running.as_ref().expect("it was started")).await;
    }

    /// Returns the kubeconfig that the program prints for this hub.
    pub(super) fn kubeconfig(&self) -> String {
        self.workdir.printed(&["kubeconfig"])
    }

    /// Returns the root of one cluster.
    pub(super) fn cluster(&self, cluster: &RealCluster) -> Endpoint {
        self.root(&format!("/clusters/{}", cluster.name()))
    }

    /// Returns a root by its path.
    pub(super) fn root(&self, path: &str) -> Endpoint {
        Endpoint::root(&format!("http://{}", self.workdir.listen()), path)
    }
}

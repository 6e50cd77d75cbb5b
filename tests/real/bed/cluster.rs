//! Real cluster: etcd and a kube-apiserver on loopback, in a temporary directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::process::{Process, Ready};
use crate::proxy::FaultProxy;

/// Maximum number of clusters that run at once in the suite. Each takes 300 MB, and one core while it starts.
const AT_ONCE: usize = 6;

static SLOTS: Semaphore = Semaphore::const_new(AT_ONCE);

/// How long a test waits for cluster slots that other tests occupy.
const SLOT_DEADLINE: Duration = Duration::from_secs(900);

/// A real cluster. Dropping it kills its process and removes its directory.
///
/// URL, CA, tokens and objects persist over [`Self::kill`] and [`Self::restart`].
#[derive(Debug)]
pub(crate) struct RealCluster {
    name: String,
    flags: Vec<String>,
    ready: Ready,
    // Drop order: the process ends before its directory is removed and its slot is released.
    process: Option<Process>,
    dir: TempDir,
    _slot: SemaphorePermit<'static>,
}

impl RealCluster {
    /// Starts one cluster.
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, &[]).await
    }

    /// Starts one cluster with additional kube-apiserver flags.
    pub(crate) async fn start_with(name: &str, flags: &[&str]) -> Self {
        let slot = slots(1).await;
        Self::start_in(name, flags.iter().map(|&flag| flag.to_owned()).collect(), slot).await
    }

    /// Starts several clusters at once. A test must start all its clusters in one call: two tests that each hold one
    /// slot and wait for another would deadlock.
    pub(crate) async fn start_all<const N: usize>(names: [&str; N]) -> [Self; N] {
        Self::start_all_with(names.map(|name| (name, Vec::new()))).await
    }

    /// Starts several clusters at once, each with additional kube-apiserver flags.
    pub(crate) async fn start_all_with<const N: usize>(clusters: [(&str, Vec<String>); N]) -> [Self; N] {
        const { assert!(N <= AT_ONCE, "more clusters than may run at once") };
        let mut slots = slots(N).await;
        let started = clusters.map(|(name, flags)| {
            let slot = slots.split(1).expect("as many slots as names");
            Self::start_in(name, flags, slot)
        });
        let started = futures::future::join_all(started).await;
        started.try_into().expect("as many clusters as names")
    }

    async fn start_in(name: &str, flags: Vec<String>, slot: SemaphorePermit<'static>) -> Self {
        let dir = TempDir::with_prefix_in("testbed-", env!("CARGO_TARGET_TMPDIR"))
            .expect("cargo's directory for tests is writable");
        let (process, ready) = Process::start(name, dir.path(), &flags).await;
        Self { name: name.to_owned(), flags, ready, process: Some(process), dir, _slot: slot }
    }

    /// Returns the cluster's name, which is also the context of its kubeconfig.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the apiserver's URL, e.g. `https://127.0.0.1:23456`.
    pub(crate) fn url(&self) -> &str {
        &self.ready.url
    }

    /// Returns the path of the serving certificate's CA, a PEM file.
    pub(crate) fn ca(&self) -> &Path {
        &self.ready.ca
    }

    /// Returns the path of a kubeconfig with one context: this cluster, as admin.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.ready.kubeconfig
    }

    /// Returns the path of a kubeconfig for the user `limited`, whose only rights are those that RBAC objects grant.
    pub(crate) fn limited_kubeconfig(&self) -> &Path {
        &self.ready.limited_kubeconfig
    }

    /// Writes an admin kubeconfig that connects through `proxy`, and returns its path.
    pub(crate) fn kubeconfig_via(&self, proxy: &FaultProxy) -> PathBuf {
        self.via(proxy, self.kubeconfig())
    }

    /// Writes a kubeconfig for `limited` that connects through `proxy`, and returns its path.
    pub(crate) fn limited_kubeconfig_via(&self, proxy: &FaultProxy) -> PathBuf {
        self.via(proxy, self.limited_kubeconfig())
    }

    fn via(&self, proxy: &FaultProxy, kubeconfig: &Path) -> PathBuf {
        let text = std::fs::read_to_string(kubeconfig).expect("the test bed wrote its kubeconfig");
        let path = kubeconfig.with_extension(format!("via-{}", proxy.address().port()));
        let text = text.replace(self.url(), &format!("https://{}", proxy.address()));
        std::fs::write(&path, text).expect("the cluster's directory is writable");
        path
    }

    /// Returns the bearer token of `admin` or `limited`.
    pub(crate) fn token(&self, user: &str) -> &str {
        self.ready.tokens.get(user).unwrap_or_else(|| panic!("no user {user:?}; there are \"admin\" and \"limited\""))
    }

    /// Returns a new admin client with its own connections.
    pub(crate) async fn client(&self) -> Client {
        client(self.kubeconfig()).await
    }

    /// Returns a new client for the user `limited`.
    pub(crate) async fn limited_client(&self) -> Client {
        client(self.limited_kubeconfig()).await
    }

    /// Returns a new admin client that connects through `proxy`.
    pub(crate) async fn client_via(&self, proxy: &FaultProxy) -> Client {
        client(&self.kubeconfig_via(proxy)).await
    }

    /// Kills the process with SIGKILL. Connections break, and new ones are refused until [`Self::restart`].
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Suspends the process (SIGSTOP) or resumes it, as if its machine slept. Clients that connect meanwhile wait.
    pub(crate) fn freeze(&self, frozen: bool) {
        let process = self.process.as_ref().expect("only a running cluster can be frozen");
        if frozen { process.freeze() } else { process.thaw() }
    }

    /// Restarts the process, killing it first if it still runs. Address, CA, tokens and objects stay the same. The
    /// apiserver's watch cache is empty, so a watch from an older version is answered with 410.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let (process, ready) = Process::start(&self.name, self.dir.path(), &self.flags).await;
        assert_eq!(ready.url, self.ready.url, "a restarted cluster moved");
        self.process = Some(process);
    }

    /// Compacts etcd to its current revision, which stays readable, and returns it.
    ///
    /// Watches served from the watch cache are not affected before a [`Self::restart`]. With
    /// `--watch-cache-sizes=pods#0`, pods are served from etcd.
    pub(crate) async fn compact(&mut self) -> u64 {
        #[derive(Deserialize)]
        struct Answer {
            compacted: u64,
        }
        let process = self.process.as_mut().expect("a killed cluster is restarted before it is compacted");
        process.command::<Answer>("compact").await.compacted
    }
}

async fn slots(count: usize) -> SemaphorePermit<'static> {
    let count = u32::try_from(count).expect("a handful");
    tokio::time::timeout(SLOT_DEADLINE, SLOTS.acquire_many(count))
        .await
        .expect("other tests hold their clusters for too long")
        .expect("the semaphore is never closed")
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the test bed wrote a valid kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("its CA and token are readable");
    // A client that retries would hide the responses under test, and wait a second for each.
    config.default_retry = false;
    Client::try_from(config).expect("a client of plain parts")
}

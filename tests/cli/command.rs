//! Runner of the binary in a temporary folder, which is also its home directory.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use informer_hub_sim::{SimCluster, SimConfig, WorldConfig};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// Timeout of a command. Generous, because other tests may share the CPUs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Temporary folder in which commands run.
pub(crate) struct Workdir {
    folder: TempDir,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn sim(pods: usize) -> SimCluster {
    let world = WorldConfig { seed: 7, pods, small: true, ..WorldConfig::default() };
    SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap()
}

impl Workdir {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a folder with this `hub.toml`.
    pub(crate) fn with(toml: &str) -> Self {
        Self::new().file("hub.toml", toml)
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path().join(name), text).unwrap();
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| ["OTEL_", "INFORMER_HUB_"].iter().any(|own| name.starts_with(own))) {
                command.env_remove(name);
            }
        }
        command.args(arguments).env_remove("RUST_LOG").env_remove("KUBECONFIG").env("HOME", self.path());
        command.current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, &[]).await
    }

    pub(crate) async fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = tokio::time::timeout(PATIENCE, running).await.expect("it does not end").unwrap();
        let Output { status, stdout, stderr } = output;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Outcome { code: status.code().expect("it ends by itself"), out: text(stdout), err: text(stderr) }
    }

    /// Runs a command whose reader closes the pipe, like `head`.
    pub(crate) async fn run_for_head(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.command(arguments);
        let running = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            // Closes the pipe before the first byte is written.
            drop(child.stdout.take());
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            (child.wait().unwrap(), err)
        });
        let (status, err) = tokio::time::timeout(PATIENCE, running).await.expect("it does not end").unwrap();
        Outcome { code: status.code().expect("it ends by itself"), out: String::new(), err }
    }
}

//! A running reader and the lines that it has printed.

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::rust;
use crate::wait::until;

/// A running reader. Dropping it stops it.
pub(crate) struct Lines {
    printed: Arc<Mutex<Vec<String>>>,
    child: Option<Child>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Lines {
    /// Starts the reader in Rust in this process.
    pub(crate) async fn rust(kubeconfig: PathBuf) -> Self {
        let read = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions { context: Some("fleet-unique".to_owned()), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(read, &options).await.unwrap();
        let printed = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&printed);
        let task = tokio::spawn(async move { rust::read(config, |line| lines.lock().push(line)).await.unwrap() });
        Self { printed, child: None, task: Some(task) }
    }

    /// Returns the lines printed so far.
    pub(crate) fn get(&self) -> Vec<String> {
        self.printed.lock().clone()
    }

    /// Waits for a line with a text, and returns it.
    pub(crate) async fn line_with(&self, text: &str) -> String {
        until(text, async || self.printed.lock().iter().find(|line| line.contains(text)).cloned()).await
    }

    /// Waits until `count` lines have been printed.
    pub(crate) async fn has_printed(&self, count: usize, what: &str) {
        until(what, async || (self.printed.lock().len() >= count).then_some(())).await;
    }
}

mod programs {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    fn folder(language: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/readers").join(language)
    }

    impl Lines {
        /// Builds and starts the reader in Go.
        pub(crate) fn go(kubeconfig: PathBuf) -> Self {
            let built = tempfile::tempdir().unwrap();
            let binary = built.path().join("reader");
            let mut go = Command::new("go");
            go.current_dir(folder("go")).env("CGO_ENABLED", "0").env("GOWORK", "off");
            let status = go.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&binary).arg(".").status();
            assert!(status.expect("Go is installed (https://go.dev/dl)").success(), "the reader in Go does not build");
            // A running program no longer needs its file.
            Self::program(Command::new(&binary), kubeconfig)
        }

        /// Starts the reader in Python; `None`, with a message, if the client is not installed.
        pub(crate) fn python(kubeconfig: PathBuf) -> Option<Self> {
            let python = std::env::var_os("READER_PYTHON").unwrap_or_else(|| "python3".into());
            let has_client = Command::new(&python).args(["-c", "import kubernetes"]).stderr(Stdio::null()).status();
            if !has_client.expect("Python is installed (https://www.python.org)").success() {
                eprintln!("skipped: pip install kubernetes, or READER_PYTHON=<the python of a venv that has it>");
                return None;
            }
            let mut command = Command::new(python);
            command.arg(folder("python").join("reader.py"));
            Some(Self::program(command, kubeconfig))
        }

        fn program(mut command: Command, kubeconfig: PathBuf) -> Self {
            command.env("KUBECONFIG", kubeconfig);
            Self::of(command)
        }

        /// Starts a program. Its lines that begin with `#` are remarks and are left out.
        pub(crate) fn of(mut command: Command) -> Self {
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let printed = Arc::<Mutex<Vec<String>>>::default();
            let (lines, stdout) = (Arc::clone(&printed), child.stdout.take().unwrap());
            // The thread ends with the program.
            std::thread::spawn(move || {
                let all = BufReader::new(stdout).lines().map_while(Result::ok);
                all.filter(|line| !line.starts_with('#')).for_each(|line| lines.lock().push(line));
            });
            Self { printed, child: Some(child), task: None }
        }
    }
}

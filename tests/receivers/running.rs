//! A running example receiver and the lines that it has printed.

use std::process::Child;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::rust;
use crate::wait::until;

/// A running receiver. Dropping it stops it.
pub(crate) struct Running {
    pub(crate) url: String,
    lines: Arc<Mutex<Vec<String>>>,
    child: Option<Child>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    /// Starts the Rust receiver in this process.
    pub(crate) async fn rust(secret: &str) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let printed = Arc::clone(&lines);
        let handle = move |event: &Value| {
            let text = |key: &str| event[key].as_str().unwrap_or_default();
            printed.lock().push(format!("{} {} {}", text("type"), text("source"), text("subject")));
            Ok(())
        };
        let receiver = rust::Receiver::new(secret, Box::new(handle)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { rust::serve(listener, receiver).await.unwrap() });
        Self { url, lines, child: None, task }
    }

    /// Returns the lines printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Waits until `count` lines have been printed.
    pub(crate) async fn has_printed(&self, count: usize, what: &str) {
        until(what, async || (self.lines.lock().len() >= count).then_some(())).await;
    }
}

mod programs {
    use std::future::pending;
    use std::io::{BufRead, BufReader};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::*;

    fn folder(language: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/receivers").join(language)
    }

    /// Returns a command for an installed tool.
    ///
    /// # Panics
    /// If the tool is missing: a silently skipped test would hide regressions.
    fn tool(name: &str, requirement: &str) -> Command {
        let version = if name == "go" { "version" } else { "--version" };
        let status = Command::new(name).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "{name} is not installed; this test needs {requirement}");
        Command::new(name)
    }

    impl Running {
        pub(crate) async fn python(secret: &str) -> Self {
            let mut python = tool("python3", "Python 3.9 or newer (https://www.python.org)");
            python.arg(folder("python").join("receiver.py"));
            Self::program(python, secret).await
        }

        pub(crate) async fn go(secret: &str) -> Self {
            let built = tempfile::tempdir().unwrap();
            let binary = built.path().join("receiver");
            let mut go = tool("go", "Go 1.22 or newer (https://go.dev/dl)");
            go.current_dir(folder("go")).env("CGO_ENABLED", "0").env("GOWORK", "off");
            let status =
                go.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&binary).arg(".").status().unwrap();
            assert!(status.success(), "the receiver in Go does not build");
            let running = Self::program(Command::new(&binary), secret).await;
            // A running program no longer needs its file.
            drop(built);
            running
        }

        /// Starts a program whose first line is its listen address.
        async fn program(mut command: Command, secret: &str) -> Self {
            command.arg("127.0.0.1:0").env("WEBHOOK_SECRET", secret).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let lines = Arc::<Mutex<Vec<String>>>::default();
            let (printed, stdout) = (Arc::clone(&lines), child.stdout.take().unwrap());
            // The thread ends with the program.
            std::thread::spawn(move || {
                BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| printed.lock().push(line));
            });
            let task = tokio::spawn(pending());
            let mut running = Self { url: String::new(), lines, child: Some(child), task };
            running.has_printed(1, "the listen address").await;
            let first = running.lines.lock().remove(0);
            let url = first.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first}"));
            url.clone_into(&mut running.url);
            running
        }
    }
}

//! A real `nats-server`, which `tests/testbed/nats/build.sh` builds.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use tokio::net::TcpStream;

use crate::bed::built;

/// Deadline of the start, with room for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// NATS server with its own store. Dropping it kills it.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    addr: SocketAddr,
    flags: Vec<String>,
    token: Option<&'static str>,
    child: Child,
}

impl Server {
    /// Starts a server with flags of `nats-server`.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::start_at(flags, None).await
    }

    /// Starts a server with JetStream that requires a token.
    pub(crate) async fn start_with_token(token: &'static str) -> Self {
        Self::start_at(&["--jetstream", "--auth", token], Some(token)).await
    }

    async fn start_at(flags: &[&str], token: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A port that was free a moment ago. Restarts use it again.
        let addr = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let flags: Vec<_> = flags.iter().map(ToString::to_string).collect();
        let child = run(folder.path(), addr, &flags);
        let server = Self { folder, addr, flags, token, child };
        server.wait_until_listening().await;
        server
    }

    /// Kills the server with SIGKILL and restarts it on its store.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.stop();
        self.child = run(self.folder.path(), self.addr, &self.flags);
        self.wait_until_listening().await;
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.addr)
    }

    pub(crate) async fn connect(&self) -> Client {
        let options = ConnectOptions::new();
        let options = self.token.map_or(options.clone(), |token| options.token(token.to_owned()));
        options.connect(self.url()).await.unwrap()
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn wait_until_listening(&self) {
        let until = async {
            while TcpStream::connect(self.addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, until).await.expect("the server accepts connections");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(folder: &Path, addr: SocketAddr, flags: &[String]) -> Child {
    let mut command = Command::new(binary());
    command.args(["--addr", &addr.ip().to_string(), "--port", &addr.port().to_string()]);
    command.arg("--store_dir").arg(folder).args(flags);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the server's binary, built if out of date.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/nats/build.sh"))
}

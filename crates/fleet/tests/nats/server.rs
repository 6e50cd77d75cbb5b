//! Servers built from `tests/testbed/nats`: one, or a cluster. Other suites compile this module too.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::net::TcpStream;

/// Deadline of any wait, with room for a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Servers with their own stores. Dropping them kills them.
pub(crate) struct Servers {
    folder: tempfile::TempDir,
    nodes: Vec<Node>,
    /// Configuration file of all servers.
    config: Option<PathBuf>,
}

struct Node {
    clients: SocketAddr,
    routes: SocketAddr,
    child: Option<Child>,
}

impl Servers {
    pub(crate) async fn start(count: usize) -> Self {
        Self::configured(count, None).await
    }

    /// Starts servers with a configuration besides addresses and stores.
    pub(crate) async fn configured(count: usize, config: Option<&str>) -> Self {
        // Ports that were free a moment ago. Restarts use them again.
        let listeners: Vec<_> = (0..2 * count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let mut addresses = listeners.iter().map(|listener| listener.local_addr().unwrap());
        let mut node = || addresses.next().expect("two addresses per node");
        let nodes = (0..count).map(|_| Node { clients: node(), routes: node(), child: None }).collect();
        drop(listeners);
        let folder = tempfile::tempdir().unwrap();
        let config = config.map(|text| {
            let file = folder.path().join("nats.conf");
            std::fs::write(&file, text).unwrap();
            file
        });
        let mut servers = Self { folder, nodes, config };
        for at in 0..count {
            servers.spawn(at);
        }
        for at in 0..count {
            servers.until_listening(at).await;
        }
        servers
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.nodes[at].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a killed node on its store.
    pub(crate) async fn restart(&mut self, at: usize) {
        self.spawn(at);
        self.until_listening(at).await;
    }

    /// Waits until a stream has a leader and all replicas are up to date.
    pub(crate) async fn until_replicated(&self, client: &async_nats::Client, stream: &str, replicas: usize) {
        let context = async_nats::jetstream::new(client.clone());
        within("all replicas up to date", async {
            let mut pace = tokio::time::interval(Duration::from_millis(50));
            loop {
                pace.tick().await;
                let Ok(stream) = context.get_stream(stream).await else { continue };
                let Some(cluster) = &stream.cached_info().cluster else { continue };
                let current = cluster.replicas.iter().filter(|replica| replica.current && !replica.offline).count();
                if cluster.leader.is_some() && current + 1 == replicas {
                    return;
                }
            }
        })
        .await;
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("nats://{}", node.clients)).collect()
    }

    pub(crate) async fn client(&self) -> async_nats::Client {
        let options = async_nats::ConnectOptions::new()
            .request_timeout(Some(Duration::from_secs(2)))
            .reconnect_delay_callback(|_| Duration::from_millis(50));
        options.connect(self.urls()).await.unwrap()
    }

    fn spawn(&mut self, at: usize) {
        let (clustered, node) = (self.nodes.len() > 1, &self.nodes[at]);
        let mut command = Command::new(binary());
        command.args(["--addr", "127.0.0.1", "--port", &node.clients.port().to_string(), "--jetstream"]);
        command.arg("--store_dir").arg(self.folder.path().join(at.to_string()));
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if clustered {
            let routes: Vec<_> = self.nodes.iter().map(|node| format!("nats://{}", node.routes)).collect();
            command.args(["--name", &format!("n{at}"), "--cluster_name", "test"]);
            command.args(["--cluster", &format!("nats://{}", node.routes), "--routes", &routes.join(",")]);
            // Clients use only the addresses that they were given, which may be those of proxies.
            command.arg("--no_advertise");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.nodes[at].child = Some(command.spawn().unwrap());
    }

    async fn until_listening(&self, at: usize) {
        within("the server accepts connections", async {
            while TcpStream::connect(self.nodes[at].clients).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for at in 0..self.nodes.len() {
            self.kill(at);
        }
    }
}

/// Waits for a future.
///
/// # Panics
/// If the deadline passes first; the message contains `what`.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}

/// Returns the server's binary, built if out of date.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // The package of the suite is the root of the repository, or below it.
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut scripts = folders.map(|folder| folder.join("tests/testbed/nats/build.sh"));
        let script = scripts.find(|script| script.exists()).expect("the repository has tests/testbed/nats/build.sh");
        // Cargo gives integration tests `<target>/tmp`; binaries go to `<target>/testbed`.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's has a parent");
        let output = Command::new(&script).env("CARGO_TARGET_DIR", target).stderr(Stdio::inherit()).output();
        let output = output.unwrap_or_else(|error| panic!("{} does not run: {error}", script.display()));
        assert!(output.status.success(), "{} failed with {}", script.display(), output.status);
        PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
    })
}

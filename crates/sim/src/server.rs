//! A simulated cluster behind a real port: starts, stops, comes back, and shows its truth.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::connection::{Connection, Link, Transit};
use super::fault::{FaultRecord, FaultScript};
use super::request;
use super::shared::{Gate, Shared, SimConfig, Stats};
use super::world::{Truth, World};
use informer_hub_types::{Gvr, Watcher};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A simulated apiserver, however it is reached: its world, its faults, its counters.
#[derive(Debug)]
pub struct SimServer {
    shared: Arc<Shared>,
}

impl SimServer {
    pub(super) fn new(config: SimConfig) -> Self {
        Self { shared: Arc::new(Shared::new(config)) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Looks at the world or changes it, then wakes the watches. Requests wait meanwhile: keep it short.
    pub fn with_world<R>(&self, work: impl FnOnce(&mut World) -> R) -> R {
        self.shared.with_world(work)
    }

    /// What an observer of the whole resource should have now.
    #[must_use]
    pub fn truth(&self, gvr: &Gvr) -> Truth {
        self.with_world(|world| world.truth(gvr))
    }

    /// Removes a resource, as deleting its CRD does: its watches close, requests for it get 404.
    pub fn unregister(&self, gvr: &Gvr) {
        self.with_world(|world| world.unregister(gvr));
        self.shared.wake();
    }

    /// Requests for a resource get 403, or no longer do. Watches that are open stay so.
    pub fn forbid(&self, gvr: &Gvr, forbidden: bool) {
        self.shared.forbid(gvr, forbidden);
    }

    /// Replaces the fault script; answers under way keep the fault that they have been given.
    pub fn set_faults(&self, script: FaultScript) {
        self.shared.set_faults(script);
    }

    /// Ends all faults: nothing new goes wrong, stalled answers go on, a cluster that a fault took down comes back.
    pub fn heal(&self) {
        self.shared.heal();
    }

    /// Whether the script has nothing left to do.
    #[must_use]
    pub fn faults_over(&self) -> bool {
        self.shared.faults_over()
    }

    /// The faults that have happened, oldest first.
    #[must_use]
    pub fn fault_log(&self) -> Vec<FaultRecord> {
        self.shared.log()
    }

    /// What has been asked so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}

/// A simulated cluster that speaks Kubernetes' list and watch protocol on a loopback port.
///
/// Dropping it closes the port and every connection, and ends all of its tasks.
#[derive(Debug)]
pub struct SimCluster {
    server: SimServer,
    address: SocketAddr,
    serving: watch::Receiver<bool>,
    task: JoinHandle<()>,
    /// Bound but never listening: keeps the port ours while the cluster is down.
    _reservation: TcpSocket,
}

impl SimCluster {
    /// Starts a cluster on a free port, its tasks on `handle`'s runtime. It takes connections when this returns.
    ///
    /// # Errors
    /// When no loopback port can be bound.
    pub fn start(config: SimConfig, handle: &Handle) -> io::Result<Self> {
        let _guard = handle.enter();
        let reservation = socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = reservation.local_addr()?;
        let listener = socket(address)?.listen(BACKLOG)?;
        let server = SimServer::new(config);
        let (serving_tx, serving) = watch::channel(true);
        let task = handle.spawn(serve(Arc::clone(server.shared()), listener, address, serving_tx));
        Ok(Self { server, address, serving, task, _reservation: reservation })
    }

    /// `http://127.0.0.1:<port>`; the same for the cluster's whole life.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection and refuses new ones until [`Self::restart`]. Returns when the port is closed.
    pub async fn stop(&self) {
        self.turn(Gate::Down).await;
    }

    /// Takes connections again, on the same port; the world has gone on. Returns when the port is open.
    pub async fn restart(&self) {
        self.turn(Gate::Up).await;
    }

    async fn turn(&self, gate: Gate) {
        let mut serving = self.serving.clone();
        self.server.shared.gate.set(gate);
        // An error means that the server's runtime is gone, and the port with it.
        let _ = serving.wait_for(|&up| up == (gate == Gate::Up)).await;
    }
}

impl Deref for SimCluster {
    type Target = SimServer;

    fn deref(&self) -> &SimServer {
        &self.server
    }
}

impl Drop for SimCluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A socket that can share its address with the one that reserves it.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Serves while the gate is up. Connections live in this task's set, so that aborting it ends them too.
async fn serve(shared: Arc<Shared>, listener: TcpListener, address: SocketAddr, serving: watch::Sender<bool>) {
    let mut gate = shared.gate.subscribe();
    let mut listener = Some(listener);
    loop {
        let Some(open) = listener.take() else {
            listener = reopen(&shared, &mut gate, address).await;
            serving.send_replace(listener.is_some());
            continue;
        };
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                _ = gate.wait_for(|gate| *gate != Gate::Up) => break,
                Some(_) = connections.join_next() => {}
                accepted = open.accept() => {
                    if let Ok((stream, _)) = accepted {
                        let link = Arc::new(Link::default());
                        let connection = Connection::new(stream, Arc::clone(&link), Arc::clone(&shared));
                        connections.spawn(converse(connection, link, Arc::clone(&shared)));
                    }
                }
            }
        }
        drop(open);
        connections.shutdown().await;
        serving.send_replace(false);
    }
}

/// Waits until the gate goes up and listens again; `None` when the port could not be had, to be tried again.
async fn reopen(shared: &Shared, gate: &mut Watcher<Gate>, address: SocketAddr) -> Option<TcpListener> {
    let now = *gate.see();
    match now {
        Gate::Up => {}
        Gate::Down => {
            let _ = gate.changed().await;
            return None;
        }
        Gate::DownFor(pause) => {
            tokio::select! {
                biased;
                () = shared.come_back(pause) => {}
                _ = gate.changed() => {}
            }
            return None;
        }
    }
    let listener = socket(address).and_then(|socket| socket.listen(BACKLOG));
    if listener.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    listener.ok()
}

pub(super) async fn converse<S>(connection: Connection<S>, link: Arc<Link>, shared: Arc<Shared>)
where
    S: Transit,
{
    let service = service_fn(|request| request::handle(Arc::clone(&shared), Arc::clone(&link), request));
    // A connection's end is the client's business, or the fault script's, whatever it is.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
}

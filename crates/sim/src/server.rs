//! Simulated cluster on a TCP port: start, stop, restart, and access to its state and counters.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

use super::connection::{Connection, Link, Order};
use super::fault::{FaultRecord, FaultScript};
use super::handler;
use super::shared::{Gate, Shared, SimConfig, Stats};
use super::world::{GroundTruth, World};
use informer_hub_types::{Gvr, Watcher};

/// Number of connections that can wait to be accepted.
const BACKLOG: u32 = 1024;

/// Simulated apiserver, independent of its transport: its world, faults and counters.
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

    /// Reads or changes the cluster's state, then wakes the watches. Requests wait meanwhile, so `work` must be short.
    pub fn with_world<R>(&self, work: impl FnOnce(&mut World) -> R) -> R {
        self.shared.with_world(work)
    }

    /// Returns UID and version of each object that a consumer of the whole resource should have now.
    #[must_use]
    pub fn truth(&self, gvr: &Gvr) -> GroundTruth {
        self.with_world(|world| world.truth(gvr))
    }

    /// Removes a resource like a deletion of its CRD: its watches close, and requests for it get 404.
    pub fn unregister(&self, gvr: &Gvr) {
        self.with_world(|world| world.unregister(gvr));
        self.shared.wake();
    }

    /// Makes requests for a resource get 403 if `forbidden`; otherwise allows them again. Open watches stay open.
    pub fn forbid(&self, gvr: &Gvr, forbidden: bool) {
        self.shared.forbid(gvr, forbidden);
    }

    /// Makes `SubjectAccessReview` allow a user to read a resource in a namespace, or in all namespaces if `namespace`
    /// is empty. If `allowed` is false, removes that permission.
    pub fn allow(&self, user: &str, resource: &str, namespace: &str, allowed: bool) {
        let access = [user, resource, namespace].map(str::to_owned);
        let mut users = self.shared.users();
        if allowed {
            users.allowed.insert(access);
        } else {
            users.allowed.remove(&access);
        }
    }

    /// Makes `TokenReview` accept the token of a user, for any audience.
    pub fn accept_token(&self, token: &str, user: &str) {
        self.shared.users().tokens.insert(token.to_owned(), user.to_owned());
    }

    /// Leaves reviews of users and tokens unanswered if `is_silent`; otherwise answers them again.
    pub fn silence_reviews(&self, is_silent: bool) {
        self.shared.users().is_silent = is_silent;
    }

    /// Returns a lease; `None` if it does not exist.
    #[must_use]
    pub fn lease(&self, namespace: &str, name: &str) -> Option<Value> {
        self.shared.leases().get(namespace, name).cloned()
    }

    /// Deletes a lease.
    pub fn delete_lease(&self, namespace: &str, name: &str) {
        self.shared.leases().remove(namespace, name);
    }

    /// Delays answers to requests for leases. Writes are applied before the delay. [`Self::heal`] ends delays that have
    /// begun.
    pub fn delay_leases(&self, delay: Duration) {
        self.shared.leases().delay = delay;
    }

    /// Replaces the fault script. Started answers keep their fault.
    pub fn set_faults(&self, script: FaultScript) {
        self.shared.set_faults(script);
    }

    /// Ends all faults: no new ones strike, stalled answers continue, and a cluster that a fault took down comes back.
    pub fn heal(&self) {
        self.shared.heal();
    }

    /// Returns whether the fault script has no faults left.
    #[must_use]
    pub fn faults_over(&self) -> bool {
        self.shared.faults_over()
    }

    /// Returns the faults that have struck, oldest first.
    #[must_use]
    pub fn fault_log(&self) -> Vec<FaultRecord> {
        self.shared.log()
    }

    /// Returns the request counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}

/// Simulated cluster that serves Kubernetes' list and watch protocol on a loopback port.
///
/// Dropping it closes the port and every connection, and ends all of its tasks.
#[derive(Debug)]
pub struct SimCluster {
    server: SimServer,
    address: SocketAddr,
    serving: watch::Receiver<bool>,
    task: JoinHandle<()>,
    /// Socket that is bound but never listens. It reserves the port while the cluster is down.
    _reservation: TcpSocket,
}

impl SimCluster {
    /// Starts a cluster on a free port, with its tasks on `handle`'s runtime. It accepts connections on return.
    ///
    /// # Errors
    /// I/O errors of binding a loopback port.
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

    /// `http://127.0.0.1:<port>`, or `https` with TLS; it never changes.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.server.shared.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The port's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection and refuses new ones until [`Self::restart`]. Returns when the port is closed.
    pub async fn stop(&self) {
        self.set_gate(Gate::Down).await;
    }

    /// Accepts connections again on the same port. Returns when the port is open.
    pub async fn restart(&self) {
        self.set_gate(Gate::Up).await;
    }

    async fn set_gate(&self, gate: Gate) {
        let mut serving = self.serving.clone();
        self.server.shared.gate.set(gate);
        // An error means that the server's runtime has ended, and the port is closed.
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

/// Binds a socket to `address`. Several such sockets can share an address: one reserves it, another listens.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Serves connections whenever the cluster is up. Its `JoinSet` owns the connections, so aborting this task ends them
/// too.
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
                        let tls = shared.config.tls.clone().map(TlsAcceptor::from);
                        let shared = Arc::clone(&shared);
                        let serving = async move {
                            let stream = match tls {
                                None => Either::Left(connection),
                                Some(tls) => match tls.accept(connection).await {
                                    Ok(stream) => Either::Right(stream),
                                    // Errors of the handshake are ignored: the client sees and reports them.
                                    Err(_) => return,
                                },
                            };
                            serve_connection(stream, link, shared).await;
                        };
                        connections.spawn(serving.boxed());
                    }
                }
            }
        }
        drop(open);
        connections.shutdown().await;
        serving.send_replace(false);
    }
}

/// Opens the port again if the cluster is up. Otherwise waits until the cluster's state changes. Returns `None` if the
/// port is not open; the caller must then call again.
async fn reopen(shared: &Shared, gate: &mut Watcher<Gate>, address: SocketAddr) -> Option<TcpListener> {
    let now = *gate.read_latest();
    match now {
        Gate::Up => {}
        Gate::Down => {
            let _ = gate.changed().await;
            return None;
        }
        Gate::DownFor(pause) => {
            tokio::select! {
                biased;
                () = shared.accept_after(pause) => {}
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

/// Serves one connection until either side closes it.
pub(super) async fn serve_connection<S>(stream: S, link: Arc<Link>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn({
        let (shared, link) = (Arc::clone(&shared), Arc::clone(&link));
        move |request| handler::handle(Arc::clone(&shared), Arc::clone(&link), request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    match shared.config.http2 {
        Some(max_streams) => _ = builder.http2().max_concurrent_streams(max_streams),
        None => builder = builder.http1_only(),
    }
    let serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    obey(serving, auto::Connection::graceful_shutdown, &link, &shared).await;
}

/// Serves a connection until it ends. Meanwhile carries out the faults that answers order for the connection: drop,
/// GOAWAY, freeze.
async fn obey<F: Future>(mut serving: Pin<&mut F>, go_away: impl Fn(Pin<&mut F>), link: &Link, shared: &Shared) {
    loop {
        tokio::select! {
            biased;
            order = link.next_order() => match order {
                Order::Drop => return,
                Order::GoAway => go_away(serving.as_mut()),
                Order::Freeze(pause) => shared.stall(pause).await,
            },
            // Connection errors are ignored: the client or the fault script caused them.
            _ = serving.as_mut() => return,
        }
    }
}

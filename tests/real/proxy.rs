//! Fault-injecting TCP proxy in front of one server: it passes, slows down, stalls, resets or refuses connections.
//!
//! It works below TLS: a client sees the server's own certificate, which is valid for 127.0.0.1 on any port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Deadline for the proxy to apply an order.
const DEADLINE: Duration = Duration::from_secs(10);

/// Chunk size and interval of a slow proxy, per direction of a connection: 50 kB a second.
const CHUNK: usize = 512;
const CHUNK_INTERVAL: Duration = Duration::from_millis(10);

/// Behaviour of the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Accept and forward.
    Pass,
    /// Accept and forward slowly in small pieces, like a slow link or a slow reader.
    Slow,
    /// Accept and keep connections open, but forward nothing, like a network that drops packets.
    Stall,
    /// Reset open connections and refuse new ones, like a server that is down.
    Refuse,
}

/// The proxy. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    address: SocketAddr,
    orders: mpsc::Sender<Order>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    Set(Fault, oneshot::Sender<()>),
    Reset(oneshot::Sender<usize>),
    Count(oneshot::Sender<usize>),
}

/// State shared with every connection.
#[derive(Clone, Copy, Debug)]
struct Control {
    stalled: bool,
    slow: bool,
    /// Connections end when this changes.
    epoch: u64,
}

impl FaultProxy {
    /// Starts a proxy to `url`, e.g. `https://127.0.0.1:23456`, with [`Fault::Pass`].
    pub(crate) async fn start(url: &str) -> Self {
        let upstream = url.rsplit('/').next().and_then(|host| host.parse().ok());
        let upstream = upstream.unwrap_or_else(|| panic!("{url:?} does not end in an address and a port"));
        let listener = listen_on_free_port().await;
        let address = listener.local_addr().expect("a bound socket has an address");
        let (orders, received) = mpsc::channel(8);
        let server = tokio::spawn(Server::new(address, upstream).run(listener, received));
        Self { address, orders, server }
    }

    /// Returns the address that clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the behaviour, and returns once it is in effect.
    pub(crate) async fn set(&self, fault: Fault) {
        let (done, doing) = oneshot::channel();
        self.order(Order::Set(fault, done), doing).await;
    }

    /// Resets (RST, not FIN) every open connection and returns their number. New connections are handled as before.
    pub(crate) async fn reset_all(&self) -> usize {
        let (done, doing) = oneshot::channel();
        self.order(Order::Reset(done), doing).await
    }

    /// Returns the number of open connections.
    pub(crate) async fn connections(&self) -> usize {
        let (done, doing) = oneshot::channel();
        self.order(Order::Count(done), doing).await
    }

    async fn order<T>(&self, order: Order, doing: oneshot::Receiver<T>) -> T {
        self.orders.send(order).await.expect("the proxy runs until it is dropped");
        let done = tokio::time::timeout(DEADLINE, doing).await.expect("the proxy applies an order in time");
        done.expect("the proxy runs until it is dropped")
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The proxy's own task.
struct Server {
    address: SocketAddr,
    upstream: SocketAddr,
    control: watch::Sender<Control>,
    connections: JoinSet<()>,
}

impl Server {
    fn new(address: SocketAddr, upstream: SocketAddr) -> Self {
        let control = watch::Sender::new(Control { stalled: false, slow: false, epoch: 0 });
        Self { address, upstream, control, connections: JoinSet::new() }
    }

    async fn run(mut self, listener: TcpListener, mut orders: mpsc::Receiver<Order>) {
        let mut listener = Some(listener);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Reset(done)) => drop(done.send(self.reset().await)),
                    Some(Order::Count(done)) => drop(done.send(self.connections.len())),
                    Some(Order::Set(fault, done)) => {
                        self.set(fault, &mut listener).await;
                        let _ = done.send(());
                    }
                },
                accepted = accept(listener.as_ref()) => {
                    if let Ok((client, _)) = accepted {
                        self.forward(client);
                    }
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    /// Starts to forward a connection. A reset that arrives before its task first runs applies to it too.
    fn forward(&mut self, client: TcpStream) {
        let (upstream, mut control) = (self.upstream, self.control.subscribe());
        let epoch = control.borrow().epoch;
        // Any abnormal end resets both sides; an orderly end clears this.
        let _ = client.set_zero_linger();
        self.connections.spawn(async move {
            let carried = carry(client, upstream, control.clone());
            tokio::select! {
                () = carried => {}
                _ = control.wait_for(|now| now.epoch != epoch) => {}
            }
        });
    }

    async fn set(&mut self, fault: Fault, listener: &mut Option<TcpListener>) {
        if fault == Fault::Refuse {
            *listener = None;
            self.reset().await;
            return;
        }
        if listener.is_none() {
            *listener = Some(TcpListener::bind(self.address).await.expect("the port stays free while refused"));
        }
        self.control.send_modify(|control| {
            control.stalled = fault == Fault::Stall;
            control.slow = fault == Fault::Slow;
        });
    }

    async fn reset(&mut self) -> usize {
        // Finished connections do not count.
        while self.connections.try_join_next().is_some() {}
        let count = self.connections.len();
        self.control.send_modify(|control| control.epoch += 1);
        while self.connections.join_next().await.is_some() {}
        count
    }
}

/// Accepts the next connection. Pending forever while there is no listener.
async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Forwards one connection until either side closes it. Dropped before that, it resets both sides.
async fn carry(mut client: TcpStream, upstream: SocketAddr, control: watch::Receiver<Control>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let _ = server.set_zero_linger();
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let both =
        tokio::try_join!(pump(client_read, server_write, control.clone()), pump(server_read, client_write, control));
    if both.is_ok() {
        #[expect(deprecated, reason = "without linger it never blocks")]
        let _ = (client.set_linger(None), server.set_linger(None));
    }
}

/// Copies one direction to its end. Pauses while stalled, and between chunks while slow.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut control: watch::Receiver<Control>) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let slow = control.wait_for(|now| !now.stalled).await.map_err(io::Error::other)?.slow;
        let room = if slow { CHUNK } else { buffer.len() };
        tokio::select! {
            biased;
            // Re-evaluates the state.
            _ = control.changed() => {}
            read = from.read(&mut buffer[..room]) => match read? {
                0 => return to.shutdown().await,
                count => {
                    to.write_all(&buffer[..count]).await?;
                    if slow {
                        tokio::time::sleep(CHUNK_INTERVAL).await;
                    }
                }
            },
        }
    }
}

/// Listens below the kernel's range of ephemeral ports.
///
/// While the proxy refuses, an outgoing connection could take a port from that range. Even a client of the proxy could,
/// and would then connect to itself.
async fn listen_on_free_port() -> TcpListener {
    for _ in 0..200 {
        let port = informer_hub_types::rng::rng().random_range(20_000..32_000);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return listener;
        }
    }
    panic!("no free port between 20000 and 32000");
}

//! A simulated cluster without a port: each connection is a pipe in memory, on the runtime that asks for it.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use tokio::io::{DuplexStream, duplex};

use super::connection::{Connection, Link};
use super::server::{SimServer, converse};
use super::shared::{Gate, SimConfig};

/// What is on its way on one connection, each way.
const IN_FLIGHT: usize = 16 * 1024;

/// A simulated cluster that outlives runtimes: it has no task but its connections.
///
/// Under a paused clock and a seed ([`chance`](informer_hub_types::rng)) all that happens on its connections happens in the
/// same order each time.
#[derive(Debug)]
pub struct PipedCluster {
    server: SimServer,
}

impl PipedCluster {
    /// A cluster that takes connections.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self { server: SimServer::new(config) }
    }

    /// Opens a connection, which is served on the runtime that this is called on.
    ///
    /// # Errors
    /// Refused while the cluster is down; from a fault that took it down it comes back a while after the first try.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let shared = Arc::clone(self.server.shared());
        let mut gate = shared.gate.subscribe();
        let now = *gate.see();
        if let Gate::DownFor(pause) = now {
            let knocked = Arc::clone(&shared);
            tokio::spawn(async move { knocked.come_back(pause).await });
        }
        if now != Gate::Up {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(IN_FLIGHT);
        tokio::spawn(async move {
            let link = Arc::new(Link::default());
            let connection = Connection::new(ours, Arc::clone(&link), Arc::clone(&shared));
            tokio::select! {
                biased;
                _ = gate.wait_for(|gate| *gate != Gate::Up) => {}
                () = converse(connection, link, Arc::clone(&shared)) => {}
            }
        });
        Ok(theirs)
    }

    /// Cuts every connection and refuses new ones until [`Self::restart`].
    pub fn stop(&self) {
        self.server.shared().gate.set(Gate::Down);
    }

    /// Takes connections again; the world has gone on.
    pub fn restart(&self) {
        self.server.shared().gate.set(Gate::Up);
    }
}

impl Deref for PipedCluster {
    type Target = SimServer;

    fn deref(&self) -> &SimServer {
        &self.server
    }
}

//! Simulated cluster without a port: each connection is an in-memory pipe on the caller's runtime.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use tokio::io::{DuplexStream, duplex};

use super::connection::{Connection, Link};
use super::server::{SimServer, serve_connection};
use super::shared::{Gate, SimConfig};

/// Size of the buffer of a connection in each direction, in bytes.
const IN_FLIGHT: usize = 16 * 1024;

/// Simulated cluster that belongs to no runtime, so it can outlive several. Each connection is served on the runtime
/// that opened it; there are no other tasks.
///
/// With a paused clock and a seeded [`rng`](informer_hub_types::rng), everything on its connections happens in the same
/// order in each run.
#[derive(Debug)]
pub struct PipedCluster {
    server: SimServer,
}

impl PipedCluster {
    /// Creates a cluster that accepts connections.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self { server: SimServer::new(config) }
    }

    /// Opens a connection, served on the current runtime.
    ///
    /// # Errors
    /// `ConnectionRefused` while the cluster is down. The time of a [`Fault::Down`](super::Fault::Down) begins with the
    /// first attempt to connect.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let shared = Arc::clone(self.server.shared());
        let mut gate = shared.gate.subscribe();
        let now = *gate.read_latest();
        if let Gate::DownFor(pause) = now {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { shared.accept_after(pause).await });
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
                () = serve_connection(connection, link, Arc::clone(&shared)) => {}
            }
        });
        Ok(theirs)
    }

    /// Cuts every connection and refuses new ones until [`Self::restart`].
    pub fn stop(&self) {
        self.server.shared().gate.set(Gate::Down);
    }

    /// Accepts connections again. The world may have changed meanwhile.
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

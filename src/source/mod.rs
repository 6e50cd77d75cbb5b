//! The [`ListerWatcher`](crate::reflector::ListerWatcher) over a real cluster, and what leads to one: access to a
//! cluster ([`connect`]), and from the name of a resource to the resource ([`resolve`]).
//!
//! Clients and sockets live on a tokio runtime of their own (`io`), never on an actor's thread: a socket must be
//! drained whatever the actors are doing, as an apiserver drops a watcher that is slow for about 100 ms.

mod client;
mod connector;
mod dial;
mod discovery;
mod kube;
mod live;
mod pump;
mod request;
mod transport;

pub use client::{Access, ClientError, Token, connect, read_kubeconfig};
pub use connector::KubeConnector;
pub use dial::{Dial, Stream};
pub use discovery::{DiscoveryError, resolve};
pub use kube::{KubeSource, KubeSourceOptions};
pub use live::Stamps;

#[cfg(test)]
mod testserver;

//! The [`ListerWatcher`](informer_hub_reflector::ListerWatcher) over a real cluster, and what leads to one: access to a
//! cluster ([`connect`]), and from the name of a resource to the resource ([`resolve`]). What a cluster and its credentials
//! allow can be asked beforehand ([`may`], [`credentials()`]).
//!
//! Clients and sockets live on a tokio runtime of their own (`io`), never on an actor's thread: a socket must be
//! drained whatever the actors are doing, as an apiserver drops a watcher that is slow for about 100 ms.

mod catalogue;
mod client;
mod connector;
mod credentials;
mod discovery;
mod exec;
mod kube;
mod live;
mod pump;
mod request;
mod review;
mod transport;

pub use catalogue::offers;
pub use client::{Access, ClientError, Token, connect, read_any_kubeconfig, read_kubeconfig};
pub use connector::KubeConnector;
pub use credentials::{certificate_file, credentials, default_kubeconfigs, of_context, skips_tls_verification};
pub use discovery::{DiscoveryError, resolve};
pub use exec::end_plugins;
pub use informer_hub_dial::{Dial, Stream};
pub use kube::{KubeSource, KubeSourceOptions};
pub use review::{Estimate, Identity, Verdict, estimate, may, objects, server_version, streams, whoami};

#[cfg(test)]
mod testserver;

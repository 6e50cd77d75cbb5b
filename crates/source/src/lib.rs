//! Adapter for real clusters: implements [`ListerWatcher`](informer_hub_reflector::ListerWatcher) over HTTP.
//!
//! [`connect`] builds a client, [`resolve`] looks up a resource, and [`KubeConnector`] connects informers. [`check_access`]
//! and [`credentials()`] check permissions and credentials beforehand.
//!
//! Clients and sockets run on their own tokio runtime (`io`), never on an actor's thread. Sockets must be read at any time,
//! since an apiserver drops a watcher that is slow for about 100 ms.

mod catalogue;
mod client;
mod connector;
mod credentials;
mod discovery;
mod exchange;
mod exec;
mod kube;
mod preflight;
mod pump;
mod reloading_client;
mod request;
mod tls;
mod token_file;
mod transport;

pub use catalogue::discover_catalogue;
pub use client::{Access, AccessSettings, ClientError, Token, connect, read_any_kubeconfig, read_kubeconfig};
pub use connector::KubeConnector;
pub use credentials::{
    certificate_file, context_credentials, credentials, default_kubeconfigs, skips_tls_verification,
};
pub use discovery::{DiscoveryError, resolve};
pub use exec::end_plugins;
pub use informer_hub_dial::{Dial, Stream};
pub use kube::{KubeSource, KubeSourceOptions};
pub use preflight::{
    AccessVerdict, Estimate, Identity, check_access, check_access_to, estimate, list_objects, server_version,
    supports_streaming_lists, whoami,
};

#[cfg(test)]
mod testserver;

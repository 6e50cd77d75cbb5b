//! A configured cluster behind the ports that the actors know.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;

use super::client::{Access, connect};
use super::dial::Dial;
use super::discovery::{DiscoveryError, resolve};
use super::kube::{KubeSource, KubeSourceOptions};
use crate::reflector::{
    Connection, Connector, Decoder, ErrorClass, InformerOptions, ListerWatcher, ResolveError, SourceError, StallPolicy,
};
use crate::types::{ApiResource, ResourceRef, Scope, Threads};

/// Reaches a cluster with kube's client.
///
/// Each watch has a connection of its own (kube speaks HTTP/1.1 for the sake of websockets): more sockets than
/// client-go's one HTTP/2 connection, and none of its head-of-line blocking, which puts events a second late once a
/// hundred requests share it.
#[derive(Clone, Debug)]
pub struct KubeConnector {
    /// How.
    pub access: Access,
    /// Whether lists may come gzipped.
    pub compression: bool,
    /// How long silence is borne.
    pub stall: StallPolicy,
    /// What opens connections; `None`: TCP.
    pub dial: Option<Dial>,
    /// The runtime for clients and sockets.
    pub io: Threads,
}

#[derive(Clone)]
struct KubeConnection {
    client: Client,
    connector: KubeConnector,
}

impl std::fmt::Debug for KubeConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeConnection").field("access", &self.connector.access).finish_non_exhaustive()
    }
}

impl Connector for KubeConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let connector = self.clone();
        async move {
            let (access, dial) = (connector.access.clone(), connector.dial.clone());
            match connect(access, connector.compression, dial, &connector.io).await {
                Ok(client) => Ok(Arc::new(KubeConnection { client, connector }) as Arc<dyn Connection>),
                Err(error) => Err(SourceError { class: ErrorClass::Transient, message: with_causes(&error) }),
            }
        }
        .boxed()
    }
}

impl Connection for KubeConnection {
    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let client = self.client.clone();
        let task = self.connector.io.spawn(async move { resolve(&client, &resource).await });
        async move {
            match task.await {
                Ok(Ok(resource)) => Ok(resource),
                Ok(Err(DiscoveryError::NotFound { resource, nearest })) => {
                    Err(ResolveError::NotFound { resource, nearest: nearest.into_iter().next() })
                }
                Ok(Err(DiscoveryError::Unavailable(error))) => Err(ResolveError::Unavailable(error)),
                Err(_) => Err(ResolveError::Unavailable(SourceError {
                    class: ErrorClass::Transient,
                    message: "discovery was interrupted".to_owned(),
                })),
            }
        }
        .boxed()
    }

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let indexes = options.indexes.iter().map(|(name, path)| (name.clone(), path.clone())).collect();
        let decoder =
            Decoder::new(resource.clone(), &options.projection, indexes).with_transform(options.transform.clone());
        let settings = KubeSourceOptions {
            metadata_only: options.metadata_only,
            compression: self.connector.compression,
            stall: self.connector.stall,
            ..KubeSourceOptions::default()
        };
        Arc::new(KubeSource::new(self.client.clone(), scope.clone(), decoder, settings, self.connector.io.clone()))
    }
}

/// An error with its causes in one line: the port's error has no place for a source.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

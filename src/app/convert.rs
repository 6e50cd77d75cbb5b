//! From the configuration's words to the parameters of each part.

use std::collections::BTreeMap;

use kube::Client;
use tokio::runtime::Handle;

use crate::actors::messages::{InformerFor, ResourceRequest, User};
use informer_hub_codec::Projection;
use informer_hub_config::{self as config, ClusterAccess, ClusterConfig, ResourceConfig, Secret};
use informer_hub_dial::Dial;
use informer_hub_reflector::{InformerOptions, StallPolicy};
use informer_hub_source::{self as source, Access, ClientError, KubeConnector, Token};
use informer_hub_types::{Scope, Selected, SharedStr, Threads, View};

/// A client of one's own for a cluster that is reached as the configuration says, e.g. to write with: a hub only reads.
///
/// `io` is the runtime it belongs to. It tries nothing again and has no deadline for answers; its requests need one.
///
/// # Errors
/// See [`ClientError`]. The cluster itself is asked nothing.
pub async fn client(cluster: &ClusterConfig, io: &Handle) -> Result<Client, ClientError> {
    source::connect(access(cluster), cluster.compression, None, &Threads::of(io.clone())).await
}

/// How a cluster is reached, to watch it.
pub(super) fn connector(
    cluster: &ClusterConfig,
    stall: StallPolicy,
    dial: Option<Dial>,
    io: &Threads,
) -> KubeConnector {
    KubeConnector::with_dial(dial, access(cluster), cluster.compression, stall, io).named(cluster.name.as_str())
}

/// The way to a cluster.
pub(crate) fn access(cluster: &ClusterConfig) -> Access {
    match &cluster.access {
        ClusterAccess::Kubeconfig { path, context } => {
            Access::Kubeconfig { path: path.clone(), context: context.clone() }
        }
        ClusterAccess::InCluster => Access::InCluster,
        ClusterAccess::Server { server, ca_file, token } => {
            let token = token.as_ref().map(|token| match token {
                Secret::Env(name) => Token::Env(name.clone()),
                Secret::File(path) => Token::File(path.clone()),
            });
            Access::Server { server: server.clone(), ca_file: ca_file.clone(), token }
        }
        ClusterAccess::Inline(kubeconfig) => {
            Access::Inline { text: kubeconfig.expose().clone(), origin: kubeconfig.origin().clone() }
        }
        ClusterAccess::Awaited { source } => Access::Awaited { source: source.clone() },
    }
}

/// The informers that a configured resource asks for.
pub(super) fn demand(resource: &ResourceConfig, all: &[ResourceConfig]) -> InformerFor {
    let scope = |namespace: Option<&String>| Scope {
        namespace: namespace.map(Into::into),
        label_selector: resource.label_selector.as_ref().map(|selector| selector.to_string().into()),
        field_selector: resource.field_selector.as_deref().map(Into::into),
        view: View::Shared,
    };
    let scopes = if resource.namespaces.is_empty() {
        vec![scope(None)]
    } else {
        resource.namespaces.iter().map(|namespace| scope(Some(namespace))).collect()
    };
    let projection = match &resource.projection {
        config::Projection::Drop(paths) => Projection::Drop(paths.clone()),
        config::Projection::Keep(paths) => Projection::Keep(paths.clone()),
    };
    // An informer may be shared by several entries, and an index is declared for the resource as a whole.
    let indexes: BTreeMap<SharedStr, _> = all
        .iter()
        .filter(|other| other.is_same_resource(resource))
        .flat_map(|other| &other.indexes)
        .map(|(name, path)| (name.as_str().into(), path.clone()))
        .collect();
    let wanted = match &resource.resource {
        Selected::One(one) => ResourceRequest::Written(one.clone()),
        Selected::Matching(pattern) => ResourceRequest::Matching(pattern.clone()),
    };
    InformerFor {
        user: User::Config(resource.name.clone()),
        wanted,
        clusters: resource.clusters.clone(),
        scopes,
        options: InformerOptions {
            projection,
            indexes,
            metadata_only: resource.metadata_only,
            ..InformerOptions::default()
        },
        watch_errors: None,
    }
}

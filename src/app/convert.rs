//! Conversion of configured clusters and resources into the parameters of the actors.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use tokio::runtime::Handle;

use crate::actors::messages::{InformerFor, ResourceRequest, User};
use informer_hub_codec::Projection;
use informer_hub_config::{ClusterAccess, ClusterConfig, ResourceConfig};
use informer_hub_dial::Dial;
use informer_hub_reflector::{InformerOptions, StallPolicy};
use informer_hub_source::{self as source, Access, AccessSettings, ClientError, KubeConnector, Token};
use informer_hub_types::{Scope, Selected, SharedStr, Threads, View};

/// Returns a Kubernetes client for a configured cluster, e.g. to write to it. The hub itself only reads.
///
/// The client runs on the runtime `io`. It does not retry and has no timeout: the caller sets a deadline for each
/// request.
///
/// # Errors
/// See [`ClientError`]. No request is sent to the cluster.
pub async fn client(cluster: &ClusterConfig, io: &Handle) -> Result<Client, ClientError> {
    source::connect(settings(cluster), None, &Threads::of(io.clone())).await
}

/// Returns the connector with which the hub watches a cluster.
pub(super) fn connector(
    cluster: &ClusterConfig,
    stall: StallPolicy,
    dial: Option<Dial>,
    io: &Threads,
) -> KubeConnector {
    KubeConnector::with_dial(dial, settings(cluster), stall, io).named(cluster.name.as_str())
}

/// Returns the address and credentials of a cluster, and the options of requests to it.
pub(super) fn settings(cluster: &ClusterConfig) -> AccessSettings {
    AccessSettings {
        access: access(cluster),
        compression: cluster.compression,
        http: cluster.http,
        encoding: cluster.encoding,
    }
}

/// Returns address and credentials of a cluster.
pub(crate) fn access(cluster: &ClusterConfig) -> Access {
    match &cluster.access {
        ClusterAccess::Kubeconfig { path, context, .. } => {
            Access::Kubeconfig { path: path.clone(), context: context.clone() }
        }
        ClusterAccess::InCluster => Access::InCluster,
        ClusterAccess::Agent => Access::Agent,
        ClusterAccess::Server { server, ca_file, token, .. } => {
            let token = token.as_ref().map(|token| match token.file() {
                Some(path) => Token::File(path.to_owned()),
                None => Token::Env(token.variable().unwrap_or_default().to_owned()),
            });
            Access::Server { server: server.clone(), ca_file: ca_file.clone(), token }
        }
        ClusterAccess::Inline(kubeconfig) => {
            Access::Inline { text: kubeconfig.expose().clone(), origin: kubeconfig.origin().clone() }
        }
        ClusterAccess::Awaited { source, .. } => Access::Awaited { source: source.clone() },
    }
}

/// Returns the request for the informers of one entry `[resources.<name>]`. `all` has these entries of the whole
/// configuration. The informers get the indexes of every entry in `all` that selects the same Kubernetes resource.
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
    let paths = resource.projection.paths().to_vec();
    let projection = if resource.projection.keeps() { Projection::Keep(paths) } else { Projection::Drop(paths) };
    // An index belongs to the resource as a whole, so the indices of all its entries count.
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
        options: Arc::new(InformerOptions {
            projection,
            indexes,
            metadata_only: resource.metadata_only,
            ..InformerOptions::default()
        }),
        watch_errors: None,
    }
}

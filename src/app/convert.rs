//! From the configuration's words to the parameters of each part.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use kube::Client;
use tokio::runtime::Handle;

use super::hub::StartError;
use crate::actors::messages::{InformerFor, User, Wanted};
use crate::actors::sink::SinkParams;
use crate::config::{
    self, ClusterAccess, ClusterConfig, ResourceConfig, Secret, SinkConfig, TransportConfig, WebhookConfig,
};
use crate::reflector::{InformerOptions, Projection, StallPolicy};
use crate::sink::webhook::{SigningKeys, WebhookParams, WebhookTransport, WebhookUrl};
use crate::sink::{BatchParams, Bounds, EventType, Filter, Initial, RetryParams, Selection, SinkHealth, Transport};
use crate::source::{self, Access, ClientError, KubeConnector, Token};
use crate::types::{Scope, SharedStr, View};

/// A client of one's own for a cluster that is reached as the configuration says, e.g. to write with: a hub only reads.
///
/// `io` is the runtime it belongs to. It tries nothing again and has no deadline for answers; its requests need one.
///
/// # Errors
/// See [`ClientError`]. The cluster itself is asked nothing.
pub async fn client(cluster: &ClusterConfig, io: &Handle) -> Result<Client, ClientError> {
    source::connect(access(cluster), cluster.compression, io).await
}

/// How a cluster is reached, to watch it.
pub(super) fn connector(cluster: &ClusterConfig, stall: StallPolicy, io: &Handle) -> KubeConnector {
    KubeConnector { access: access(cluster), compression: cluster.compression, stall, io: io.clone() }
}

fn access(cluster: &ClusterConfig) -> Access {
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
    InformerFor {
        user: User::Config(resource.name.clone()),
        wanted: Wanted::Written(resource.resource.clone()),
        clusters: resource.clusters.clone(),
        scopes,
        options: InformerOptions { projection, indexes, metadata_only: resource.metadata_only, transform: None },
        watch_errors: None,
    }
}

/// What a sink's actor is built from. Compiles the filter, reads the secrets and the CA.
pub(super) fn sink(sink: &SinkConfig, io: &Handle) -> Result<SinkParams, StartError> {
    let wrong = |key: &'static str, problem: String| StartError::Sink { sink: sink.name.clone(), key, problem };
    let filter = sink.filter.as_deref().map(Filter::compile).transpose();
    let filter = filter.map_err(|error| wrong("filter", error.to_string()))?;
    let selection = Selection {
        events: sink.select.events.iter().copied().map(event_type).collect(),
        initial: match sink.initial {
            config::Initial::Skip => Initial::Skip,
            config::Initial::Replay => Initial::Replay,
        },
        changed: sink.changed.clone(),
        filter,
        ..Selection::default()
    };
    let TransportConfig::Webhook(hook) = &sink.transport;
    let transport = webhook(hook, sink.batch.max_events > 1, wrong)?;
    Ok(SinkParams {
        name: sink.name.as_str().into(),
        transport,
        selection: Arc::new(selection),
        batch: BatchParams {
            max_events: sink.batch.max_events,
            max_bytes: sink.batch.max_bytes,
            max_wait: sink.batch.max_wait,
        },
        retry: RetryParams { first: sink.retry.first, max: sink.retry.max, give_up_after: sink.retry.give_up_after },
        bounds: Bounds::default(),
        concurrency: NonZeroUsize::new(hook.concurrency).unwrap_or(NonZeroUsize::MIN),
        health: SinkHealth::new(),
        io: io.clone(),
    })
}

fn event_type(event: config::EventType) -> EventType {
    match event {
        config::EventType::Added => EventType::Added,
        config::EventType::Updated => EventType::Updated,
        config::EventType::Deleted => EventType::Deleted,
        config::EventType::Synced => EventType::Synced,
    }
}

fn webhook(
    hook: &WebhookConfig,
    batched: bool,
    wrong: impl Fn(&'static str, String) -> StartError,
) -> Result<Arc<dyn Transport>, StartError> {
    let keys = match &hook.signing_secret {
        None => None,
        Some(secret) => {
            let text = secret.read().map_err(|error| wrong("signing_secret", error.to_string()))?;
            Some(SigningKeys::parse(&text).map_err(|error| wrong("signing_secret", error.to_string()))?)
        }
    };
    let params = WebhookParams {
        url: WebhookUrl::parse(&hook.url).map_err(|error| wrong("url", error.to_string()))?,
        signing_keys: keys,
        timeout: hook.timeout,
        ca_file: hook.ca_file.clone(),
        batched,
    };
    let transport = WebhookTransport::new(params).map_err(|error| wrong("ca_file", error.to_string()))?;
    Ok(Arc::new(transport))
}

//! Restore plan: the saved partitions that the configuration still needs, and their options.

use crate::actors::subscribe::requests::InformerFor;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::cache::DeclaredIndex;
use crate::state::caches::{Claim, PartitionHeader};
use crate::state::short_names::ShortNames;
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, Scope};

/// Clusters, resource requests and saved short names. They decide which saved partitions are restored.
#[derive(Clone, Debug, Default)]
pub struct RestorePlan {
    clusters: Vec<(ClusterName, ClusterLabels)>,
    demands: Vec<InformerFor>,
    names: ShortNames,
}

impl RestorePlan {
    /// Creates a plan for these clusters. If several requests match a resource, the first one's options apply.
    #[must_use]
    pub fn new(clusters: Vec<(ClusterName, ClusterLabels)>, demands: Vec<InformerFor>, names: ShortNames) -> Self {
        Self { clusters, demands, names }
    }

    /// Returns the saved short names of resources.
    #[must_use]
    pub fn into_names(self) -> ShortNames {
        self.names
    }

    /// Returns whether a request for informers may mean this resource. Decides by the built-in names and the saved
    /// short names, without asking the cluster. `known` is `resource` in the form of a request.
    fn is_of(&self, demand: &InformerFor, known: &ResourceRequest, resource: &ApiResource) -> bool {
        let is_named = |written| self.names.resolves_to(written, &resource.gvr);
        demand.wanted.may_be(known) || matches!(&demand.wanted, ResourceRequest::Written(written) if is_named(written))
    }

    /// Returns the first request that selects a resource of a cluster.
    #[must_use]
    pub fn demand(&self, resource: &ApiResource, cluster: &str) -> Option<&InformerFor> {
        let (name, labels) = self.clusters.iter().find(|(name, _)| name.as_str() == cluster)?;
        let known = ResourceRequest::known(resource);
        self.demands.iter().find(|demand| self.is_of(demand, &known, resource) && demand.clusters.matches(name, labels))
    }

    fn demands<'w>(
        &'w self,
        resource: &'w ApiResource,
        (name, labels): (&'w ClusterName, &'w ClusterLabels),
        scope: &'w Scope,
    ) -> impl Iterator<Item = &'w InformerFor> + Clone {
        let known = ResourceRequest::known(resource);
        self.demands.iter().filter(move |demand| {
            self.is_of(demand, &known, resource)
                && demand.clusters.matches(name, labels)
                && demand.scopes.contains(scope)
        })
    }

    /// Returns whether any request selects this resource in this cluster with this scope.
    #[must_use]
    pub fn is_wanted(&self, resource: &ApiResource, cluster: &ClusterName, scope: &Scope) -> bool {
        let known = self.clusters.iter().find(|(name, _)| name == cluster);
        known.is_some_and(|(name, labels)| self.demands(resource, (name, labels), scope).next().is_some())
    }

    /// Returns how to load a partition from disk; `None` if it is no longer requested.
    #[must_use]
    pub fn claim(&self, resource: &ApiResource, header: &PartitionHeader) -> Option<Claim> {
        let (name, labels) = self.clusters.iter().find(|(name, _)| *name == header.cluster)?;
        let mut demands = self.demands(resource, (name, labels), &header.scope);
        let any_version = demands.clone().all(|demand| demand.wanted.is_of_any_version());
        let demand = demands.next()?;
        let declared = demand.options.declared().into_iter();
        Some(Claim {
            labels: labels.clone(),
            indexes: declared.map(|(name, path)| DeclaredIndex { name, path }).collect(),
            settings: demand.options.fingerprint().unwrap_or(0),
            any_version,
        })
    }
}

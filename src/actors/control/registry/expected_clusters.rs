//! Expected clusters: clusters from which a resource is requested, but which could not be queried for it yet. Answers
//! report these clusters as missing.

use crate::actors::cache::messages::Expect;
use crate::actors::control::registry::{Cluster, RegistryActor};
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::requests::InformerFor;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Target;
use informer_hub_types::{ClusterLabels, ClusterName, View};

impl RegistryActor {
    /// Marks a cluster as expected in the cache of each resource that the request `wanted` is known to select. Leaves
    /// out caches in which the cluster has a partition. Answers report an expected cluster as missing.
    pub(super) fn expect(&self, name: &ClusterName, cluster: &Cluster, wanted: &ResourceRequest, view: &View) {
        let known = match wanted {
            ResourceRequest::Known(known) => vec![&known.0],
            ResourceRequest::Written(_) => {
                self.resolved.get(wanted).into_iter().flatten().map(|known| &known.0).collect()
            }
            // A resource that a pattern selects in one cluster may be absent in another.
            ResourceRequest::Matching(_) => Vec::new(),
        };
        for resource in known {
            let watched = self.env.caches.published(&resource.gvr, view).is_some_and(|snapshot| {
                snapshot.partitions().any(|(_, partition)| partition.origin().cluster == *name)
            });
            if !watched {
                let expect = Expect { cluster: name.clone(), labels: cluster.labels.clone(), expected: true };
                detach(self.env.caches.of(resource, view).send(expect));
            }
        }
    }

    /// Removes the mark "expected to have the resource" from clusters that were selected only by the removed requests
    /// `gone`.
    pub(super) fn unexpect_unrequested(&self, gone: &[InformerFor]) {
        for demand in gone {
            let ResourceRequest::Known(known) = &demand.wanted else { continue };
            for view in demand.views() {
                let Some(snapshot) = self.env.caches.published(&known.0.gvr, view) else { continue };
                for (cluster, labels) in snapshot.expected() {
                    let is_demanded = self.demands.iter().any(|other| {
                        other.wanted.may_be(&demand.wanted)
                            && other.clusters.matches(cluster, labels)
                            && other.views().any(|theirs| theirs == view)
                    });
                    let is_subscribed = self.subscriptions.values().any(|subscription| {
                        matches!(&subscription.target, Target::Resource(wanted, scope)
                            if wanted.may_be(&demand.wanted) && scope.view == *view)
                            && subscription.clusters.matches(cluster, labels)
                    });
                    if !is_demanded && !is_subscribed {
                        let expect = Expect { cluster: cluster.clone(), labels: labels.clone(), expected: false };
                        detach(self.env.caches.of(&known.0, view).send(expect));
                    }
                }
            }
        }
    }

    pub(super) fn unexpect(&self, name: &ClusterName) {
        for (gvr, view) in self.env.caches.resources() {
            let Some(snapshot) = self.env.caches.published(&gvr, &view) else { continue };
            if snapshot.expected().any(|(expected, _)| expected == name) {
                let expect = Expect { cluster: name.clone(), labels: ClusterLabels::new(), expected: false };
                detach(self.env.caches.of(snapshot.resource(), &view).send(expect));
            }
        }
    }
}

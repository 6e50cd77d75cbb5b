//! Progress of a subscriber: the resourceVersions up to which it has accepted every change. This progress is published
//! for standby processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::actors::env::Env;
use crate::actors::subscribe::inbox::{Inbox, Mark};
use crate::actors::subscribe::subscription::Subscription;
use crate::cache::{Partition, PartitionId};
use informer_hub_sink::{SourceVersions, resource_key};

/// Resource versions up to which one subscriber has accepted every change, by informer.
///
/// For each informer, one batch at a time is chosen: the newest batch in the cache. A resourceVersion is stored with
/// the batch: at that time, the cache has every change up to this resourceVersion. Once the subscriber has acknowledged
/// the batch, the resourceVersion counts as accepted, and the next batch is chosen.
#[derive(Debug, Default)]
pub struct AcceptedVersions {
    /// Acknowledgement progress of each informer's inbox (pending notifications), by the memory address of the inbox.
    /// The entry keeps the inbox alive, so that no other inbox gets its address.
    inboxes: HashMap<usize, Progress>,
    /// Resources with an informer whose acknowledgement progress is unknown, by cluster.
    unknown: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Progress {
    inbox: Arc<Inbox>,
    partition: PartitionId,
    mark: Option<(Mark, u64)>,
    accepted: Option<u64>,
}

impl Progress {
    fn of(inbox: Arc<Inbox>, partition: PartitionId) -> Self {
        Self { inbox, partition, mark: None, accepted: None }
    }

    fn advance(&mut self, partition: &Partition) {
        let inbox = &self.inbox;
        if let Some((_, version)) = self.mark.take_if(|(mark, _)| inbox.has_acknowledged(mark)) {
            self.accepted = Some(version);
        }
        if self.mark.is_none() {
            let version = partition.resume_version().and_then(informer_hub_types::ResourceVersion::as_number);
            self.mark = version.map(|version| (Mark::new(self.partition, partition.number()), version));
        }
    }
}

impl AcceptedVersions {
    /// Checks for new acknowledgements and returns the accepted versions by cluster and resource. For a resource with
    /// several informers, this is the lowest of their versions. A resource with an informer whose progress is unknown
    /// is left out.
    ///
    /// The progress of an informer is unknown at the first call, which only chooses the batch to wait for. A later call
    /// returns the version once that batch is acknowledged.
    pub fn update(&mut self, env: &Env, subscriptions: &[Arc<Subscription>]) -> SourceVersions {
        let snapshots: HashMap<_, _> = env.caches.snapshots_of_all().into_iter().collect();
        let mut seen = HashMap::new();
        let mut versions = BTreeMap::<_, BTreeMap<_, Option<u64>>>::new();
        for subscription in subscriptions {
            for (origin, inbox) in subscription.inboxes() {
                let accepted = inbox.partition().and_then(|id| {
                    let snapshot = snapshots.get(&(origin.resource.gvr.clone(), origin.scope.view.clone()))?;
                    let partition = snapshot.partition(id)?;
                    let address = Arc::as_ptr(&inbox) as usize;
                    let known = self.inboxes.remove(&address).filter(|known| known.partition == id);
                    let mut progress = known.unwrap_or_else(|| Progress::of(Arc::clone(&inbox), id));
                    progress.advance(partition);
                    let accepted = progress.accepted;
                    seen.insert(address, progress);
                    accepted
                });
                let gvr = &origin.resource.gvr;
                let of_cluster = versions.entry(origin.cluster.to_string()).or_default();
                let least = of_cluster.entry(resource_key(&gvr.group, &gvr.resource)).or_insert(accepted);
                *least = least.zip(accepted).map(|(one, other)| one.min(other));
            }
        }
        (self.inboxes, self.unknown) = (seen, BTreeMap::new());
        let mut all_known = SourceVersions::new();
        for (cluster, all) in versions {
            let known = all_known.entry(cluster.clone()).or_default();
            for (resource, version) in all {
                match version {
                    Some(version) => _ = known.insert(resource, version),
                    None => _ = self.unknown.entry(cluster.clone()).or_default().insert(resource),
                }
            }
        }
        all_known
    }

    /// Returns whether a resource has an informer whose progress was unknown at the last update, e.g. because it just
    /// started.
    #[must_use]
    pub fn is_unknown(&self, cluster: &str, resource: &str) -> bool {
        self.unknown.get(cluster).is_some_and(|resources| resources.contains(resource))
    }

    /// Creates the accepted versions of one informer that has just started, whose progress is unknown.
    #[cfg(test)]
    pub(crate) fn unknown_of(cluster: &str, resource: &str) -> Self {
        let resources = BTreeSet::from([resource.to_owned()]);
        Self { unknown: BTreeMap::from([(cluster.to_owned(), resources)]), ..Self::default() }
    }
}

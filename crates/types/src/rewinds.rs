//! Resources whose resourceVersions have gone back, because the etcd of their cluster was restored from a backup.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::{ClusterName, Gvr, Origin, ResourceVersion};

/// How far the resourceVersions of a resource went back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewind {
    /// Newest resourceVersion that the hub had seen before the resourceVersions went back.
    pub known: ResourceVersion,
    /// resourceVersion of the first list after the resourceVersions went back.
    pub listed: ResourceVersion,
}

/// Resources whose resourceVersions have gone back since the process started. Clones share one map.
#[derive(Clone, Debug, Default)]
pub struct Rewinds(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    any: AtomicBool,
    rewinds: RwLock<HashMap<(ClusterName, Gvr), Rewind>>,
}

impl Rewinds {
    /// Notes that the resourceVersions of a resource went back. Call it before passing on later events of the resource.
    pub fn add(&self, origin: &Origin, mut rewind: Rewind) {
        let mut rewinds = self.0.rewinds.write();
        let key = (origin.cluster.clone(), origin.resource.gvr.clone());
        if let Some(before) = rewinds.remove(&key).filter(|before| before.known.newer_than(&rewind.known)) {
            rewind.known = before.known;
        }
        rewinds.insert(key, rewind);
        self.0.any.store(true, Relaxed);
    }

    /// Returns how far the resourceVersions of an informer's resource went back; `None` if they did not.
    #[must_use]
    pub fn of(&self, origin: &Origin) -> Option<Rewind> {
        if !self.0.any.load(Relaxed) {
            return None;
        }
        let key = (origin.cluster.clone(), origin.resource.gvr.clone());
        self.0.rewinds.read().get(&key).cloned()
    }
}

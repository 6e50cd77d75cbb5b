//! Owners and documents of the clusters that a process serves. One [watch](crate::cluster_watch) of their buckets keeps
//! them current, and is opened again after clusters were added.
//!
//! This process decides by its own clock when a cluster is stale. So a cluster also becomes stale while the watch and
//! its requests fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use informer_hub_fleet::ClusterChange;
use informer_hub_types::{Shard, Threads};
use parking_lot::Mutex;

use super::ReplicaParams;
use super::feed::Feed;
use crate::backend::Backend;
use crate::cluster_watch::{ClusterObserver, ClusterWatch};

/// Keeps owner, document and staleness ([`Feed`]) of each shard that a replica serves; see the
/// [module documentation](self). Dropping it ends the watch.
pub(super) struct Directory {
    feeds: Arc<Feeds>,
    watch: ClusterWatch,
    stale: Duration,
}

#[derive(Default)]
struct Feeds {
    by_shard: Mutex<BTreeMap<Shard, Weak<Feed>>>,
    /// Served shards whose owner's entry the current watch has delivered.
    owned: Mutex<BTreeSet<Shard>>,
}

impl Directory {
    pub(super) fn start(backend: Arc<dyn Backend>, params: &ReplicaParams, io: &Threads) -> Self {
        let (feeds, stale) = (Arc::<Feeds>::default(), params.stale);
        let watch = ClusterWatch::start(backend, Arc::clone(&feeds), params.poll, stale / 2, io);
        Self { feeds, watch, stale }
    }

    /// Returns the feed of a shard: its owner, document and staleness. The feed is kept up to date until its last
    /// reference is dropped.
    pub(super) fn feed(&self, shard: &Shard) -> Arc<Feed> {
        let mut feeds = self.feeds.by_shard.lock();
        if let Some(feed) = feeds.get(shard).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(Feed::new(shard.clone(), self.stale));
        feed.note_backend(self.watch.error());
        feeds.insert(shard.clone(), Arc::downgrade(&feed));
        self.watch.reread();
        feed
    }

    /// Returns the feeds (owner, document, staleness) of all shards in use, in order of the shards.
    pub(super) fn feeds(&self) -> Vec<Arc<Feed>> {
        self.feeds.all()
    }
}

impl Feeds {
    fn all(&self) -> Vec<Arc<Feed>> {
        let mut feeds = self.by_shard.lock();
        feeds.retain(|_, feed| feed.strong_count() > 0);
        feeds.values().filter_map(Weak::upgrade).collect()
    }

    fn get(&self, shard: &Shard) -> Option<Arc<Feed>> {
        self.by_shard.lock().get(shard).and_then(Weak::upgrade)
    }
}

impl ClusterObserver for Feeds {
    fn begin(&self) {
        self.owned.lock().clear();
    }

    fn change(&self, change: ClusterChange) {
        match change {
            ClusterChange::Owner { shard, owner, .. } => {
                let Some(feed) = self.get(&shard) else { return };
                feed.note_owner(owner);
                self.owned.lock().insert(shard);
            }
            ClusterChange::Document { shard, document: Some(document), .. } => {
                if let Some(feed) = self.get(&shard) {
                    feed.note_document(&document);
                }
            }
            ClusterChange::OwnersComplete(_) => {
                let owned = self.owned.lock().clone();
                self.all().iter().for_each(|feed| feed.note_complete(owned.contains(&feed.shard)));
            }
            ClusterChange::Document { document: None, .. } | ClusterChange::DocumentsComplete(_) => {}
        }
    }

    fn note_backend(&self, error: Option<&str>) {
        self.all().iter().for_each(|feed| feed.note_backend(error.map(ToOwned::to_owned)));
    }
}

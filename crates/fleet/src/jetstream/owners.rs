//! Key-value bucket of owners: one entry per shard, with the collector that owns the shard and the epoch of its
//! ownership.
//!
//! Each write is a compare-and-set with the revision of the entry that the caller has read. The epoch is a part of the
//! entry's value and does not depend on revisions. So an owner keeps its epoch if the bucket is deleted and created
//! again.

use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation, Store};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use informer_hub_types::Shard;

use super::bucket_watch::{ClusterChanges, follow_clusters, last_revision};
use super::{NatsError, context, find_bucket, open_bucket, shard_key, subject_of, write_entry};
use crate::cluster_change::ClusterChange;
use crate::ownership::Ownership;
use crate::partition::Subjects;
use crate::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
const IN_FLIGHT: usize = 256;
/// Noun phrase for the bucket's entries, for error messages.
const CONTENTS: &str = "cluster owners";
/// Maximum number of entries that are read at the same time.
const READS: usize = 32;

/// Key-value bucket of JetStream in which collectors claim, renew and release shards.
#[derive(Clone, Debug)]
pub struct Owners {
    store: Store,
    subjects: Subjects,
}

impl Owners {
    /// Opens the bucket of owners, or creates it.
    pub async fn open(
        client: async_nats::Client,
        subjects: Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        let store = open_bucket(&context(client, timeout, IN_FLIGHT), &bucket(&subjects), replicas).await?;
        Ok(Self { store, subjects })
    }

    /// Opens the bucket of owners; `None` if it does not exist.
    pub async fn find(
        client: async_nats::Client,
        subjects: Subjects,
        timeout: Duration,
    ) -> Result<Option<Self>, NatsError> {
        let store = find_bucket(&context(client, timeout, IN_FLIGHT), &bucket(&subjects)).await?;
        Ok(store.map(|store| Self { store, subjects }))
    }

    /// Returns the entry of a shard; `None` if it never had an owner.
    pub async fn get(&self, shard: &Shard) -> Result<Option<Ownership>, NatsError> {
        let entry = self.store.entry(shard_key(&self.subjects, shard)).await;
        let entry = entry.map_err(NatsError::request(format!("read the owner of {shard}")))?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(None) };
        let decoded = decode(shard, entry.revision, entry.value);
        let decoded = decoded.map_err(|source| NatsError::Decode { what: format!("owner of {shard}"), source });
        decoded.map(Some)
    }

    /// Makes `collector` the owner of a shard, under a new epoch. Returns the new entry, or `None` if another process
    /// has changed the entry since the caller read it.
    ///
    /// `seen` is the entry that the caller has read. `newest` is the newest epoch that the caller knows from the log.
    /// The new epoch is higher than `newest` and the epoch of `seen`.
    pub async fn claim(
        &self,
        shard: &Shard,
        collector: &str,
        seen: Option<&Ownership>,
        newest: u64,
    ) -> Result<Option<Ownership>, NatsError> {
        let epoch = seen.map_or(0, |seen| seen.epoch).max(newest).saturating_add(1);
        let (weight, revision) = (seen.map_or(0, |seen| seen.weight), seen.map(|seen| seen.revision));
        let (shard, collector, next) = (shard.clone(), collector.to_owned(), String::new());
        self.write(Ownership { shard, collector, next, epoch, revision: 0, weight }, revision).await
    }

    /// Renews an ownership: the entry gets a new revision and keeps its epoch. Returns the new entry, or `None` if
    /// another process has changed the entry.
    pub async fn renew(&self, own: &Ownership) -> Result<Option<Ownership>, NatsError> {
        self.write(own.clone(), Some(own.revision)).await
    }

    /// Creates the entry of the caller's ownership again, after it was deleted. Epoch and weight stay the same. Returns
    /// the new entry, or `None` if another process has already created one.
    pub async fn restore(&self, own: &Ownership) -> Result<Option<Ownership>, NatsError> {
        self.write(own.clone(), None).await
    }

    /// Ends the caller's ownership of a shard. Afterwards only the collector `own.next` may claim the shard, or any
    /// collector if `own.next` is empty.
    ///
    /// The entry keeps its epoch. Returns `false` if another process has changed the entry.
    pub async fn release(&self, own: &Ownership) -> Result<bool, NatsError> {
        let released = Ownership { collector: String::new(), ..own.clone() };
        self.write(released, Some(own.revision)).await.map(|released| released.is_some())
    }

    /// Returns the entries of all shards that ever had an owner.
    pub async fn all(&self) -> Result<Vec<Ownership>, NatsError> {
        let action = || "read the owners of the clusters".to_owned();
        let keys = self.store.keys().await.map_err(NatsError::request(action()))?;
        let keys: Vec<String> = keys.try_collect().await.map_err(NatsError::request(action()))?;
        let mut reading = Vec::new();
        for shard in keys.iter().filter_map(|key| self.subjects.shard(&subject_of(key))) {
            reading.push(async move { self.get(&shard).await });
        }
        let read: Vec<Option<Ownership>> = stream::iter(reading).buffered(READS).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// Returns a stream of the present entries of all shards, and then of each change. If the stream ends or fails,
    /// call this method again.
    pub async fn follow(&self) -> Result<ClusterChanges, NatsError> {
        follow_clusters(&self.store, &self.subjects, CONTENTS, ClusterChange::OwnersComplete, change).await
    }

    /// Returns the revision of the bucket's last write, and the time of the bucket's creation in microseconds since
    /// 1970.
    pub async fn last_revision(&self) -> Result<(u64, u64), NatsError> {
        last_revision(&self.store, CONTENTS).await
    }

    async fn write(&self, own: Ownership, revision: Option<u64>) -> Result<Option<Ownership>, NatsError> {
        let action = format!("record which collector owns {}", own.shard);
        let key = shard_key(&self.subjects, &own.shard);
        let Some(written) = write_entry(&self.store, key, encode(&own).into(), revision, action).await? else {
            return Ok(None);
        };
        Ok(Some(Ownership { revision: written, ..own }))
    }
}

pub(super) fn bucket(subjects: &Subjects) -> String {
    format!("{}-owners", subjects.fleet())
}

fn change(shard: Shard, entry: Entry) -> ClusterChange {
    let Entry { revision, operation, value, .. } = entry;
    let owner = (operation == Operation::Put).then(|| decode(&shard, revision, value)).transpose();
    ClusterChange::Owner { shard, revision, owner }
}

fn encode(own: &Ownership) -> Vec<u8> {
    let mut value = vec![FORMAT];
    put_integer(&mut value, own.epoch);
    put_bytes(&mut value, own.collector.as_bytes());
    put_integer(&mut value, own.weight);
    put_bytes(&mut value, own.next.as_bytes());
    value
}

/// Decodes the entry of a shard. An entry of an earlier program version ends after the collector's name. Earlier
/// versions ignore the fields that newer entries have after the name.
fn decode(shard: &Shard, revision: u64, mut value: Bytes) -> Result<Ownership, DecodeError> {
    let found = take_byte(&mut value, "format")?;
    if found > FORMAT {
        return Err(DecodeError::Newer { found, known: FORMAT });
    }
    let epoch = take_integer(&mut value, "epoch")?;
    let collector = take_text(&mut value, "collector")?;
    let (mut weight, mut next) = (0, String::new());
    if !value.is_empty() {
        (weight, next) = (take_integer(&mut value, "weight")?, take_text(&mut value, "next collector")?);
    }
    Ok(Ownership { shard: shard.clone(), collector, next, epoch, revision, weight })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_an_earlier_or_later_version_is_read_or_refused() {
        let (shard, collector, next): (Shard, _, _) = ("c/pods".parse().unwrap(), "a".to_owned(), "b".to_owned());
        let own = Ownership { shard: shard.clone(), collector, next, epoch: 300, revision: 9, weight: 1000 };
        let value = encode(&own);
        let read = |value: &[u8]| decode(&shard, 9, Bytes::copy_from_slice(value));
        assert_eq!(read(&value), Ok(own.clone()));
        assert_eq!(read(&[&value[..], b"field"].concat()), Ok(own.clone()), "of a later version");
        let without_weight = Ownership { next: String::new(), weight: 0, ..own };
        assert_eq!(read(&value[..5]), Ok(without_weight), "of an earlier version");
        for end in [0, 1, 2, 3, 4, 6, 7, 8] {
            assert!(read(&value[..end]).is_err(), "{end} of {} bytes", value.len());
        }
        let refused = Err(DecodeError::Newer { found: FORMAT + 1, known: FORMAT });
        assert_eq!(read(&[&[FORMAT + 1], &value[1..]].concat()), refused);
    }
}

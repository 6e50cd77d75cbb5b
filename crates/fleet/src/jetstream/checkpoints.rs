//! Object store of checkpoints, with a bucket that names the newest one of each partition.
//!
//! An object is stored under a new name, then the bucket's entry is changed by compare-and-set: a late writer cannot replace
//! a newer checkpoint, and a reader never sees half of one.

use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use async_nats::jetstream::object_store::{self, ObjectStore};
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::{NatsError, context, key_of, open_bucket};
use crate::entry::Sequence;
use crate::partition::{Partition, Subjects};
use crate::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
const IN_FLIGHT: usize = 256;

/// Saves and loads checkpoints in an object store of JetStream.
#[derive(Clone)]
pub struct Checkpoints {
    objects: ObjectStore,
    newest: Store,
    subjects: Subjects,
}

/// Entry of the bucket.
struct Newest {
    object: String,
    sequence: Sequence,
    revision: u64,
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoints").field("subjects", &self.subjects).finish_non_exhaustive()
    }
}

impl Checkpoints {
    /// Opens the object store and the bucket, or creates them.
    pub async fn open(
        client: async_nats::Client,
        subjects: Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        let bucket = format!("{}-checkpoints", subjects.fleet());
        let context = context(client, timeout, IN_FLIGHT);
        let objects = if let Ok(objects) = context.get_object_store(&bucket).await {
            objects
        } else {
            let action = format!("open bucket {bucket}");
            let bucket = bucket.clone();
            let config = object_store::Config { bucket, num_replicas: replicas, ..object_store::Config::default() };
            context.create_object_store(config).await.map_err(NatsError::request(action))?
        };
        let newest = open_bucket(&context, &bucket, replicas).await?;
        Ok(Self { objects, newest, subjects })
    }

    /// Stores a checkpoint up to a sequence, and deletes the one before. `writer` makes the object's name unique. Returns its
    /// name; `None` if there is a checkpoint that is as new.
    pub async fn save(
        &self,
        partition: &Partition,
        sequence: Sequence,
        writer: &str,
        checkpoint: &[u8],
    ) -> Result<Option<String>, NatsError> {
        let action = || format!("store a checkpoint of {partition}");
        let before = self.newest(partition).await?;
        if before.as_ref().is_some_and(|before| before.sequence >= sequence) {
            return Ok(None);
        }
        let key = key_of(&self.subjects.of(partition));
        let writer: String = writer.chars().filter(char::is_ascii_alphanumeric).collect();
        let object = format!("{key}/{sequence}-{writer}");
        let mut bytes = checkpoint;
        self.objects.put(object.as_str(), &mut bytes).await.map_err(NatsError::request(action()))?;
        let mut value = vec![FORMAT];
        put_integer(&mut value, sequence);
        put_bytes(&mut value, object.as_bytes());
        let won = match &before {
            None => match self.newest.create(key, value.into()).await {
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => false,
                created => created.map(|_| true).map_err(NatsError::request(action()))?,
            },
            Some(before) => match self.newest.update(key, value.into(), before.revision).await {
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => false,
                updated => updated.map(|_| true).map_err(NatsError::request(action()))?,
            },
        };
        let obsolete = if won { before.map(|before| before.object) } else { Some(object.clone()) };
        if let Some(obsolete) = obsolete.filter(|obsolete| !won || *obsolete != object) {
            // A failure leaves an object that no entry names.
            let _ = self.objects.delete(obsolete).await;
        }
        Ok(won.then_some(object))
    }

    /// Returns the newest checkpoint of a partition, of at most `limit` bytes.
    pub async fn load(&self, partition: &Partition, limit: usize) -> Result<Option<Vec<u8>>, NatsError> {
        let action = || format!("read the checkpoint of {partition}");
        let Some(Newest { object, .. }) = self.newest(partition).await? else { return Ok(None) };
        let mut stored = self.objects.get(&object).await.map_err(NatsError::request(action()))?;
        let size = stored.info().size;
        if size > limit {
            return Err(NatsError::TooLarge { object, size, limit });
        }
        let mut bytes = Vec::new();
        stored.read_to_end(&mut bytes).await.map_err(NatsError::request(action()))?;
        Ok(Some(bytes))
    }

    async fn newest(&self, partition: &Partition) -> Result<Option<Newest>, NatsError> {
        let what = format!("newest checkpoint of {partition}");
        let entry = self.newest.entry(key_of(&self.subjects.of(partition))).await;
        let entry = entry.map_err(NatsError::request(format!("read the {what}")))?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(None) };
        decode(entry.revision, entry.value).map(Some).map_err(|source| NatsError::Decode { what, source })
    }
}

fn decode(revision: u64, mut value: Bytes) -> Result<Newest, DecodeError> {
    let found = take_byte(&mut value, "format")?;
    if found > FORMAT {
        return Err(DecodeError::Newer { found, known: FORMAT });
    }
    let sequence = take_integer(&mut value, "sequence")?;
    Ok(Newest { object: take_text(&mut value, "object name")?, sequence, revision })
}

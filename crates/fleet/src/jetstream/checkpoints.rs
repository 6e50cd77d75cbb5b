//! Store of checkpoints: each has the objects of a partition at a sequence of the log.
//!
//! The object store has one object per checkpoint. A key-value bucket has two entries per partition. One names the
//! newest checkpoint, the other the [older ones](crate::kept).
//!
//! A checkpoint is first stored as an object of its own. Then compare-and-set writes the object's name to the bucket.
//! So a late writer cannot replace a newer checkpoint, and a reader never sees an incomplete one.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::kv::{Entry, Operation, Store};
use async_nats::jetstream::object_store::{GetErrorKind, InfoErrorKind, ObjectStore};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::create::{object_stream, open_bucket, open_objects};
use super::{NatsError, context, key_of, write_entry};
use crate::entry::Sequence;
use crate::kept::{self, Kept, Retained};
use crate::partition::{Partition, Subjects, escaped_key};
use crate::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
const IN_FLIGHT: usize = 256;
/// Maximum size in bytes of the buffer that is allocated before an object is read. The buffer grows with the received
/// bytes, because the size that the object store reports may be wrong.
const FIRST_ALLOCATION: usize = 1 << 20;

/// Saves and loads checkpoints in an object store of JetStream.
#[derive(Clone)]
pub struct Checkpoints {
    context: Context,
    objects: ObjectStore,
    bucket: Store,
    subjects: Subjects,
    /// Deadline of a request, and maximum wait for each part of an object.
    timeout: Duration,
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
        let (context, name) = (context(client, timeout, IN_FLIGHT), bucket(&subjects));
        let objects = open_objects(&context, &name, replicas).await?;
        let bucket = open_bucket(&context, &name, replicas).await?;
        Ok(Self { context, objects, bucket, subjects, timeout })
    }

    /// Returns the time since which no checkpoint was lost by the deletion of the bucket or of the object store. It is
    /// the later of their two creation times, in microseconds since 1970.
    ///
    /// If two calls return different times, the bucket or the object store was deleted and created again in between.
    pub async fn created(&self) -> Result<u64, NatsError> {
        let action = || "read the age of the checkpoints";
        let entries = self.bucket.stream.get_info().await.map_err(NatsError::request(action()))?.created;
        let stream = self.context.get_stream(object_stream(&bucket(&self.subjects))).await;
        let objects = stream.map_err(NatsError::request(action()))?.cached_info().created;
        let created = entries.max(objects).unix_timestamp_nanos() / 1_000;
        Ok(u64::try_from(created).unwrap_or(0))
    }

    /// Stores a checkpoint that contains all entries up to `sequence`. Returns the name of the stored object; `None` if
    /// another checkpoint is as new or newer.
    ///
    /// The object's name contains `sequence` and `writer`, so that writers do not overwrite each other's objects. Older
    /// checkpoints that are not [kept](crate::kept) are deleted.
    pub async fn save(
        &self,
        partition: &Partition,
        sequence: Sequence,
        log: Retained,
        writer: &str,
        checkpoint: &[u8],
    ) -> Result<Option<String>, NatsError> {
        let (revision, before) = self.newest(partition).await?;
        if let Some(before) = before.as_ref().filter(|before| before.sequence >= sequence)
            && !self.is_lost(before).await?
        {
            return Ok(None);
        }
        let key = key_of(&self.subjects.of(partition));
        let object = format!("{key}/{sequence}-{}", escaped_key(writer));
        let mut bytes = checkpoint;
        let action = format!("store a checkpoint of {partition}");
        self.objects.put(object.as_str(), &mut bytes).await.map_err(NatsError::request(action.clone()))?;
        let mut value = vec![FORMAT];
        put_place(&mut value, sequence, &object);
        if write_entry(&self.bucket, key, value.into(), revision, action).await?.is_none() {
            self.delete(object).await;
            return Ok(None);
        }
        // If `before` was lost and is stored again under its name, it is the newest checkpoint: do not retire it.
        if let Some(before) = before.filter(|before| before.at != object) {
            self.retire(partition, before, log).await?;
        }
        Ok(Some(object))
    }

    /// Returns the bytes of a partition's newest checkpoint; `None` if there is none. If `before` is set, ignores
    /// checkpoints whose sequence is not lower than `before`.
    ///
    /// Skips checkpoints that are missing in the object store. Fails if the checkpoint found exceeds `limit` bytes.
    pub async fn load(
        &self,
        partition: &Partition,
        before: Option<Sequence>,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, NatsError> {
        let mut before = before;
        while let Some(found) = self.find(partition, before).await? {
            if let Some(bytes) = self.read_object(&found.at, limit).await? {
                return Ok(Some(bytes));
            }
            // Continue before this checkpoint, unless it was replaced meanwhile.
            if self.find(partition, before).await?.is_some_and(|again| again.at == found.at) {
                before = Some(found.sequence);
            }
        }
        Ok(None)
    }

    /// Returns the content of a stored object; `None` if the object store has lost the object or its content.
    async fn read_object(&self, object: &str, limit: usize) -> Result<Option<Vec<u8>>, NatsError> {
        let action = || format!("read the checkpoint {object}");
        let mut stored = match self.objects.get(object).await {
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            found => found.map_err(NatsError::request(action()))?,
        };
        let (size, id) = (stored.info().size, stored.info().nuid.clone());
        if size > limit {
            return Err(NatsError::TooLarge { object: object.to_owned(), size, limit });
        }
        let mut bytes = Vec::with_capacity(size.min(FIRST_ALLOCATION));
        loop {
            // The client library waits for ever for contents that are missing.
            match tokio::time::timeout(self.timeout, stored.read_buf(&mut bytes)).await {
                Ok(Ok(0)) => return Ok(Some(bytes)),
                Ok(read) => _ = read.map_err(NatsError::request(action()))?,
                Err(_) if !self.has_contents(object, &id).await? => return Ok(None),
                Err(late) => return Err(NatsError::request(action())(late)),
            }
        }
    }

    /// Returns whether the object store has the contents of an object. An operator may have deleted only the contents.
    async fn has_contents(&self, object: &str, id: &str) -> Result<bool, NatsError> {
        let (name, action) = (bucket(&self.subjects), || format!("look for the contents of {object}"));
        let stream = self.context.get_stream_no_info(object_stream(&name)).await;
        let stream = stream.map_err(NatsError::request(action()))?;
        match stream.get_last_raw_message_by_subject(&format!("$O.{name}.C.{id}")).await {
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(false),
            found => found.map(|_| true).map_err(NatsError::request(action())),
        }
    }

    /// Returns sequence and object name of a partition's newest checkpoint, as the bucket lists it; `None` if it lists
    /// none. If `before` is set, ignores checkpoints whose sequence is not lower than `before`.
    async fn find(&self, partition: &Partition, before: Option<Sequence>) -> Result<Option<Kept<String>>, NatsError> {
        let (_, newest) = self.newest(partition).await?;
        match before {
            Some(before) if newest.as_ref().is_none_or(|newest| newest.sequence >= before) => {
                Ok(kept::newest_before(&self.older(partition).await?.1, before).cloned())
            }
            _ => Ok(newest),
        }
    }

    /// Adds `replaced`, until now the newest checkpoint, to the bucket's list of older ones. Deletes the checkpoints
    /// that need not be kept.
    async fn retire(&self, partition: &Partition, replaced: Kept<String>, log: Retained) -> Result<(), NatsError> {
        let object = replaced.at.clone();
        let (revision, mut older) = self.older(partition).await?;
        let obsolete = kept::keep(&mut older, replaced, log);
        let mut value = vec![FORMAT];
        for kept in &older {
            put_place(&mut value, kept.sequence, &kept.at);
            put_integer(&mut value, kept.saved.cast_unsigned());
        }
        let (key, action) = (self.key_of_older(partition), format!("keep an older checkpoint of {partition}"));
        if write_entry(&self.bucket, key, value.into(), revision, action).await?.is_none() {
            // Another writer has changed the list of older checkpoints, which therefore does not name this object.
            self.delete(object).await;
            return Ok(());
        }
        for kept in obsolete {
            self.delete(kept.at).await;
        }
        Ok(())
    }

    /// Returns whether the object store has lost this checkpoint, which the bucket names.
    async fn is_lost(&self, checkpoint: &Kept<String>) -> Result<bool, NatsError> {
        match self.objects.info(&checkpoint.at).await {
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(true),
            found => {
                let found = found.map_err(NatsError::request(format!("look for {}", checkpoint.at)))?;
                Ok(found.deleted || !self.has_contents(&checkpoint.at, &found.nuid).await?)
            }
        }
    }

    /// Deletes an object from the object store. A failure is ignored: it only leaves an object that no bucket entry
    /// names.
    async fn delete(&self, object: String) {
        let _ = self.objects.delete(object).await;
    }

    /// Returns the revision of the bucket entry that names the newest checkpoint, and the checkpoint. Both are `None`
    /// if there is no such entry.
    async fn newest(&self, partition: &Partition) -> Result<(Option<u64>, Option<Kept<String>>), NatsError> {
        let key = key_of(&self.subjects.of(partition));
        let Some(entry) = self.read(key, partition).await? else { return Ok((None, None)) };
        let saved = entry.created.unix_timestamp();
        let places = places(entry.value, |_| Ok(saved)).map_err(undecoded(partition))?;
        Ok((Some(entry.revision), places.into_iter().next()))
    }

    /// Returns the older checkpoints of a partition, and the revision of the bucket entry that names them. Without such
    /// an entry, the list is empty and the revision is `None`.
    async fn older(&self, partition: &Partition) -> Result<(Option<u64>, Vec<Kept<String>>), NatsError> {
        let Some(entry) = self.read(self.key_of_older(partition), partition).await? else {
            return Ok((None, Vec::new()));
        };
        let saved = |value: &mut Bytes| Ok(take_integer(value, "time")?.cast_signed());
        Ok((Some(entry.revision), places(entry.value, saved).map_err(undecoded(partition))?))
    }

    fn key_of_older(&self, partition: &Partition) -> String {
        format!("{}.older", key_of(&self.subjects.of(partition)))
    }

    async fn read(&self, key: String, partition: &Partition) -> Result<Option<Entry>, NatsError> {
        let entry = self.bucket.entry(key).await;
        let entry = entry.map_err(NatsError::request(format!("read the {}", what(partition))))?;
        Ok(entry.filter(|entry| entry.operation == Operation::Put))
    }
}

pub(super) fn bucket(subjects: &Subjects) -> String {
    format!("{}-checkpoints", subjects.fleet())
}

fn what(partition: &Partition) -> String {
    format!("list of checkpoints of {partition}")
}

fn undecoded(partition: &Partition) -> impl Fn(DecodeError) -> NatsError {
    move |source| NatsError::Decode { what: what(partition), source }
}

fn put_place(value: &mut Vec<u8>, sequence: Sequence, object: &str) {
    put_integer(value, sequence);
    put_bytes(value, object.as_bytes());
}

fn places(
    mut value: Bytes,
    saved: impl Fn(&mut Bytes) -> Result<i64, DecodeError>,
) -> Result<Vec<Kept<String>>, DecodeError> {
    let found = take_byte(&mut value, "format")?;
    if found > FORMAT {
        return Err(DecodeError::Newer { found, known: FORMAT });
    }
    let mut kept = Vec::new();
    while !value.is_empty() {
        let (sequence, at) = (take_integer(&mut value, "sequence")?, take_text(&mut value, "object name")?);
        kept.push(Kept { sequence, saved: saved(&mut value)?, at });
    }
    Ok(kept)
}

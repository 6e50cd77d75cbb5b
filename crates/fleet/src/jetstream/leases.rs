//! Key-value bucket of leases, the records of leader elections: one entry per lease.
//!
//! The version of a record is the revision of its entry in the bucket. Any NATS server may answer a read, so the record
//! may be outdated. This does not harm an election. Each write names the revision that it replaces, and the server that
//! leads the bucket refuses the write if the entry has another revision.

use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use bytes::Bytes;
use informer_hub_lease::{Answer, Record, Request};

use super::{NatsError, context, find_bucket, open_bucket, write_entry};
use crate::partition::Subjects;
use crate::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
const IN_FLIGHT: usize = 16;

/// Keeps the records of leader elections in a key-value bucket of JetStream.
#[derive(Clone, Debug)]
pub struct Leases(Store);

impl Leases {
    /// Opens the bucket of leases, or creates it.
    pub async fn open(
        client: async_nats::Client,
        subjects: &Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        open_bucket(&context(client, timeout, IN_FLIGHT), &bucket(subjects), replicas).await.map(Self)
    }

    /// Opens the bucket of leases; `None` if it does not exist.
    pub async fn find(
        client: async_nats::Client,
        subjects: &Subjects,
        timeout: Duration,
    ) -> Result<Option<Self>, NatsError> {
        let store = find_bucket(&context(client, timeout, IN_FLIGHT), &bucket(subjects)).await?;
        Ok(store.map(Self))
    }

    /// Executes a leader election's request to read or write the lease with the key `lease`.
    pub async fn execute(&self, lease: &str, request: &Request) -> Result<Answer, NatsError> {
        match request {
            Request::Get => self.get(lease).await,
            Request::Create(record) => self.write(lease, record, None).await,
            Request::Update { record, version } => match version.parse() {
                Ok(revision) => self.write(lease, record, Some(revision)).await,
                // This store has never issued such a version.
                Err(_) => Ok(Answer::Conflict),
            },
        }
    }

    async fn get(&self, lease: &str) -> Result<Answer, NatsError> {
        let entry = self.0.entry(lease).await.map_err(NatsError::request(format!("read lease {lease}")))?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(Answer::Missing) };
        let record = decode(entry.value);
        let record = record.map_err(|source| NatsError::Decode { what: format!("lease {lease}"), source })?;
        Ok(Answer::Found { record, version: entry.revision.to_string().into() })
    }

    async fn write(&self, lease: &str, record: &Record, seen: Option<u64>) -> Result<Answer, NatsError> {
        let action = format!("write lease {lease}");
        let written = write_entry(&self.0, lease.to_owned(), encode(record), seen, action).await?;
        Ok(written.map_or(Answer::Conflict, |revision| Answer::Written(revision.to_string().into())))
    }
}

pub(super) fn bucket(subjects: &Subjects) -> String {
    format!("{}-leases", subjects.fleet())
}

fn encode(record: &Record) -> Bytes {
    let Record { holder, lease_duration, transitions, note } = record;
    let mut value = vec![FORMAT];
    put_bytes(&mut value, holder.as_bytes());
    put_integer(&mut value, u64::try_from(lease_duration.as_millis()).unwrap_or(u64::MAX));
    put_integer(&mut value, *transitions);
    put_bytes(&mut value, note.as_bytes());
    value.into()
}

fn decode(mut value: Bytes) -> Result<Record, DecodeError> {
    let found = take_byte(&mut value, "format")?;
    if found > FORMAT {
        return Err(DecodeError::Newer { found, known: FORMAT });
    }
    let holder = take_text(&mut value, "holder")?.into();
    let lease_duration = Duration::from_millis(take_integer(&mut value, "lease duration")?);
    let transitions = take_integer(&mut value, "transitions")?;
    Ok(Record { holder, lease_duration, transitions, note: take_text(&mut value, "note")?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_and_a_truncated_or_newer_one_is_an_error() {
        let lease_duration = Duration::from_millis(10_500);
        let record = Record { holder: "a".into(), lease_duration, transitions: 300, note: "{}".into() };
        let value = encode(&record);
        assert_eq!(decode(value.clone()), Ok(record));
        for end in 0..value.len() {
            assert!(decode(value.slice(..end)).is_err(), "{end} bytes");
        }
        let newer = [&[FORMAT + 1], &value[1..]].concat();
        assert_eq!(decode(newer.into()), Err(DecodeError::Newer { found: FORMAT + 1, known: FORMAT }));
    }
}

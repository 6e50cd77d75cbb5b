//! Creation of buckets and object stores.

use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::{Context, kv, stream};
use informer_hub_types::clock;

use super::NatsError;
use super::log::find_or_create;

/// Opens a key-value bucket that keeps only the last revision of each entry. Creates the bucket if it is missing.
///
/// Revisions of a new bucket begin at the current time in microseconds. So they exceed all revisions of a deleted
/// bucket with the same name. A compare-and-set with a revision of the deleted bucket fails. A watch of the deleted
/// bucket continues with the entries of the new one.
pub(super) async fn open_bucket(context: &Context, bucket: &str, replicas: usize) -> Result<kv::Store, NatsError> {
    if let Ok(store) = context.get_key_value(bucket).await {
        return Ok(store);
    }
    // Equal to the stream that NATS clients create for a key-value bucket, except for its first sequence.
    let wanted = stream::Config {
        name: bucket_stream(bucket),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        discard: stream::DiscardPolicy::New,
        num_replicas: replicas,
        first_sequence: Some(u64::try_from(clock::wall().as_microsecond()).unwrap_or(0)),
        ..stream::Config::default()
    };
    find_or_create(context, &wanted).await?;
    context.get_key_value(bucket).await.map_err(NatsError::request(format!("open bucket {bucket}")))
}

pub(super) async fn open_objects(context: &Context, bucket: &str, replicas: usize) -> Result<ObjectStore, NatsError> {
    if let Ok(objects) = context.get_object_store(bucket).await {
        return Ok(objects);
    }
    let config =
        object_store::Config { bucket: bucket.to_owned(), num_replicas: replicas, ..object_store::Config::default() };
    let created = context.create_object_store(config).await;
    created.map_err(NatsError::request(format!("open object store {bucket}")))
}

pub(super) fn bucket_stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

pub(super) fn object_stream(bucket: &str) -> String {
    format!("OBJ_{bucket}")
}

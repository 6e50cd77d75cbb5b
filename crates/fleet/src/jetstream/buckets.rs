//! Creation of the NATS buckets that all processes of a fleet need, also after an operator has deleted one.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Config;

use super::create::{bucket_stream, object_stream, open_bucket, open_objects};
use super::log::is_missing;
use super::{NatsError, checkpoints, context, documents, find_bucket, leases, owners, roster};
use crate::partition::Subjects;

const IN_FLIGHT: usize = 1;

/// Key-value buckets of owners, cluster documents and checkpoints, and the object store of checkpoints. All processes
/// of a fleet need them.
///
/// [`RosterBucket`](super::RosterBucket) and [`Leases`](super::Leases) create their own buckets.
#[derive(Debug)]
pub struct Buckets {
    context: Context,
    names: [String; 3],
    objects: String,
    /// Names of the two buckets that this type does not create: roster and leases. [`Self::fix_replicas`] sets their
    /// number of copies too.
    others: [String; 2],
    replicas: usize,
}

impl Buckets {
    /// Creates a handle to the buckets. Sends no request.
    #[must_use]
    pub fn new(client: async_nats::Client, subjects: &Subjects, replicas: usize, timeout: Duration) -> Self {
        let objects = checkpoints::bucket(subjects);
        let names = [owners::bucket(subjects), documents::bucket(subjects), objects.clone()];
        let others = [roster::bucket(subjects), leases::bucket(subjects)];
        Self { context: context(client, timeout, IN_FLIGHT), names, objects, others, replicas }
    }

    /// Sets the number of copies of all existing buckets, and of the object store, to the configured number.
    pub async fn fix_replicas(&self) -> Result<(), NatsError> {
        let buckets = self.names.iter().chain(&self.others).map(|name| bucket_stream(name));
        for name in buckets.chain([object_stream(&self.objects)]) {
            let action = || format!("change the number of copies of stream {name}");
            let found = match self.context.get_stream(&name).await {
                Ok(found) => found.cached_info().config.clone(),
                Err(error) if is_missing(&error) => continue,
                Err(error) => return Err(NatsError::request(action())(error)),
            };
            if found.num_replicas != self.replicas {
                let changed = Config { num_replicas: self.replicas, ..found };
                self.context.update_stream(changed).await.map_err(NatsError::request(action()))?;
            }
        }
        Ok(())
    }

    /// Creates each bucket, and the object store, if it is missing. Returns the names of everything that it created.
    pub async fn restore(&self) -> Result<Vec<String>, NatsError> {
        let mut created = Vec::new();
        for name in &self.names {
            if find_bucket(&self.context, name).await?.is_none() {
                open_bucket(&self.context, name, self.replicas).await?;
                created.push(name.clone());
            }
        }
        match self.context.get_stream(object_stream(&self.objects)).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) => {
                open_objects(&self.context, &self.objects, self.replicas).await?;
                created.push(format!("object store {}", self.objects));
            }
            Err(error) => return Err(NatsError::request(format!("open object store {}", self.objects))(error)),
        }
        Ok(created)
    }
}

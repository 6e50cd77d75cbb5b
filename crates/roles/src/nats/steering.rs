//! Roster, owners and leases of a fleet on JetStream, for commands of the operator. Creates no stream and no bucket.

use std::fmt;
use std::time::Duration;

use async_nats::Client;
use futures::stream::{self, StreamExt, TryStreamExt};
use informer_hub_fleet::jetstream::{Leases, NatsError, Owners, RosterBucket};
use informer_hub_fleet::roster::{RosterEntry, RosterItem};
use informer_hub_fleet::{Ownership, Subjects};
use informer_hub_lease::{Answer, Request};
use informer_hub_types::with_causes;

use super::{NatsParams, NatsProblem};

/// Maximum number of leases that are read at the same time.
const READS: usize = 32;

/// Roster, owners and leases of a fleet.
pub struct FleetRoster {
    roster: RosterBucket,
    owners: Owners,
    client: Client,
    subjects: Subjects,
    timeout: Duration,
}

/// Holder of a lease, according to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// The lease is released, or was never held.
    None,
    /// Name of the process that renewed the lease last. The lease may have expired since.
    Process(String),
    /// The record cannot be decoded, for this reason. A later version of the program may have written it.
    Unknown(String),
}

impl NatsParams {
    /// Connects to the roster of the fleet. Returns `None` if no collector has created the roster or the bucket of
    /// owners yet.
    pub async fn open_roster(&self) -> Result<Option<FleetRoster>, NatsProblem> {
        let subjects = self.subjects()?;
        let client = self.connect(&self.servers).await?;
        let roster =
            RosterBucket::find(client.clone(), &subjects, self.timeout).await.map_err(|error| problem(&error))?;
        let owners =
            Owners::find(client.clone(), subjects.clone(), self.timeout).await.map_err(|error| problem(&error))?;
        let timeout = self.timeout;
        Ok(roster.zip(owners).map(|(roster, owners)| FleetRoster { roster, owners, client, subjects, timeout }))
    }
}

impl FleetRoster {
    /// Returns all entries of the roster.
    pub async fn entries(&self) -> Result<Vec<RosterEntry>, NatsProblem> {
        self.roster.entries().await.map_err(|error| problem(&error))
    }

    /// Returns the ownerships of all shards that ever had an owner, sorted by name.
    pub async fn owners(&self) -> Result<Vec<Ownership>, NatsProblem> {
        let mut owners = self.owners.all().await.map_err(|error| problem(&error))?;
        owners.sort_by(|a, b| a.shard.cmp(&b.shard));
        Ok(owners)
    }

    /// Returns the holder of each of `leases`, in their order. Creates and writes nothing.
    pub async fn lease_holders(&self, leases: &[String]) -> Result<Vec<LeaseHolder>, NatsProblem> {
        let found = Leases::find(self.client.clone(), &self.subjects, self.timeout).await;
        let Some(bucket) = found.map_err(|error| problem(&error))? else {
            return Ok(vec![LeaseHolder::None; leases.len()]);
        };
        let reading: Vec<_> = leases.iter().map(|lease| holder(&bucket, lease)).collect();
        stream::iter(reading).buffered(READS).try_collect().await
    }

    /// Writes an item of the roster.
    pub async fn put(&self, item: &RosterItem) -> Result<(), NatsProblem> {
        self.roster.put(item).await.map(drop).map_err(|error| problem(&error))
    }

    /// Removes an item of the roster.
    pub async fn remove(&self, item: &RosterItem) -> Result<(), NatsProblem> {
        self.roster.remove(item).await.map_err(|error| problem(&error))
    }
}

async fn holder(bucket: &Leases, lease: &str) -> Result<LeaseHolder, NatsProblem> {
    match bucket.execute(lease, &Request::Get).await {
        Ok(Answer::Found { record, .. }) if !record.holder.is_empty() => {
            Ok(LeaseHolder::Process(record.holder.to_string()))
        }
        Ok(_) => Ok(LeaseHolder::None),
        Err(error @ NatsError::Decode { .. }) => Ok(LeaseHolder::Unknown(with_causes(&error))),
        Err(error) => Err(problem(&error)),
    }
}

fn problem(error: &NatsError) -> NatsProblem {
    let cause = with_causes(error);
    if matches!(error, NatsError::NoJetStream { .. }) {
        NatsProblem::NoJetStream(cause)
    } else {
        NatsProblem::Other(cause)
    }
}

impl fmt::Debug for FleetRoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetRoster").finish_non_exhaustive()
    }
}

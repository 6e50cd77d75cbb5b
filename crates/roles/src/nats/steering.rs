//! Roster and owners of a fleet on JetStream, for the operator. Creates no stream and no bucket.

use std::fmt;

use informer_hub_fleet::Ownership;
use informer_hub_fleet::jetstream::{NatsError, Owners, RosterBucket};
use informer_hub_fleet::roster::{RosterEntry, RosterItem};
use informer_hub_types::with_causes;

use super::{NatsParams, NatsProblem};

/// Roster and owners of a fleet.
pub struct FleetRoster {
    roster: RosterBucket,
    owners: Owners,
}

impl NatsParams {
    /// Connects to the roster of the fleet. Returns `None` if no collector has created it yet.
    pub async fn open_roster(&self) -> Result<Option<FleetRoster>, NatsProblem> {
        let subjects = self.subjects()?;
        let client = self.connect(&self.servers).await?;
        let roster =
            RosterBucket::find(client.clone(), &subjects, self.timeout).await.map_err(|error| problem(&error))?;
        let owners = Owners::find(client, subjects, self.timeout).await.map_err(|error| problem(&error))?;
        Ok(roster.zip(owners).map(|(roster, owners)| FleetRoster { roster, owners }))
    }
}

impl FleetRoster {
    /// Returns all entries of the roster.
    pub async fn entries(&self) -> Result<Vec<RosterEntry>, NatsProblem> {
        self.roster.entries().await.map_err(|error| problem(&error))
    }

    /// Returns the ownerships of all shards that ever had an owner, by name.
    pub async fn owners(&self) -> Result<Vec<Ownership>, NatsProblem> {
        let mut owners = self.owners.all().await.map_err(|error| problem(&error))?;
        owners.sort_by(|a, b| a.shard.cmp(&b.shard));
        Ok(owners)
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

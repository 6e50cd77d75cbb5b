//! Contenders that share several leases. This module finds out which contenders run, and decides which one hands a
//! lease over to another. It has no I/O and no clock.
//!
//! Each contender writes only its own entry, at an interval, so that writes never conflict. A contender counts as
//! running while its entry changes, by the clock of the contender that reads it.
//!
//! The entries only decide which contender should hold which lease. That a lease never has two holders does not depend
//! on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Entry that a contender of a group writes about itself at an interval. It shows the other contenders that this one
/// runs, and for which leases it contends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Revision of the entry, which changes with each write.
    pub revision: u64,
    /// Names of the leases that the contender contends for.
    pub leases: BTreeSet<String>,
}

/// Entries of contenders by identity.
pub type Members = BTreeMap<String, Member>;

/// Contenders that run, by identity, and the leases that they contend for.
pub type Running = BTreeMap<String, BTreeSet<String>>;

/// Holder of each lease, by the name of the lease; `None` if the lease is free, or its holder is unknown.
pub type Holders = BTreeMap<String, Option<Arc<str>>>;

/// An entry is obsolete if it has not changed for ten times the duration `within` of [`Roster::new`].
const FORGOTTEN: u32 = 10;

/// Roster of a group: which contenders run, as seen by the contender `own`.
#[derive(Debug)]
pub struct Roster {
    own: Arc<str>,
    within: Duration,
    leases: Option<BTreeSet<String>>,
    others: BTreeMap<String, Other>,
}

#[derive(Debug)]
struct Other {
    member: Member,
    /// When the entry was first read, or last changed.
    since: Duration,
    /// Whether the entry has changed since it was first read. If it has not, its process may have ended before that
    /// read.
    has_changed: bool,
}

impl Roster {
    /// Creates the roster of the contender `own`. Another contender counts as running if its entry has changed within
    /// the time `within`.
    #[must_use]
    pub fn new(own: &str, within: Duration) -> Self {
        Self { own: own.into(), within, leases: None, others: BTreeMap::new() }
    }

    /// Sets the leases that this contender contends for; `None` if it does not take part in the group.
    pub fn set_leases(&mut self, leases: Option<BTreeSet<String>>) {
        self.leases = leases;
    }

    /// Returns the leases that this contender contends for; `None` if it does not take part in the group.
    #[must_use]
    pub fn leases(&self) -> Option<&BTreeSet<String>> {
        self.leases.as_ref()
    }

    /// Updates the roster from the entries of all contenders, read at `now`.
    pub fn read(&mut self, members: &Members, now: Duration) {
        self.others.retain(|name, _| members.contains_key(name));
        for (name, member) in members.iter().filter(|(name, _)| ***name != *self.own) {
            match self.others.get_mut(name) {
                None => {
                    self.others.insert(name.clone(), Other { member: member.clone(), since: now, has_changed: false });
                }
                Some(other) if other.member.revision != member.revision => {
                    *other = Other { member: member.clone(), since: now, has_changed: true };
                }
                Some(_) => {}
            }
        }
    }

    /// Returns the contenders whose entries can be deleted: unchanged for ten times the time `within` of
    /// [`Roster::new`].
    #[must_use]
    pub fn obsolete(&self, now: Duration) -> Vec<String> {
        let is_obsolete = |other: &Other| now.saturating_sub(other.since) >= self.within * FORGOTTEN;
        self.others.iter().filter(|(_, other)| is_obsolete(other)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the contenders that run, including this one if it takes part.
    #[must_use]
    pub fn running(&self, now: Duration) -> Running {
        let runs = |other: &Other| other.has_changed && now.saturating_sub(other.since) < self.within;
        let others = self.others.iter().filter(|(_, other)| runs(other));
        let others = others.map(|(name, other)| (name.clone(), other.member.leases.clone()));
        others.chain(self.leases.clone().map(|leases| (self.own.to_string(), leases))).collect()
    }
}

fn held(holders: &Holders, name: &str) -> usize {
    holders.values().flatten().filter(|holder| ***holder == *name).count()
}

/// Returns the number of leases that each running contender holds.
fn counts<'r>(holders: &Holders, running: &'r Running) -> BTreeMap<&'r str, usize> {
    running.keys().map(|name| (&**name, held(holders, name))).collect()
}

/// Returns how long the contender `own` waits before it takes a free lease, so that contenders with fewer leases take
/// it first.
///
/// The delay is `unit` times the number of leases that `own` holds in excess of another contender: the one that holds
/// the fewest of all that run. It is at most `longest`.
#[must_use]
pub fn claim_delay(own: &str, holders: &Holders, running: &Running, unit: Duration, longest: Duration) -> Duration {
    let least = running.keys().filter(|name| **name != own).map(|name| held(holders, name)).min();
    let more = least.map_or(0, |least| held(holders, own).saturating_sub(least));
    unit.saturating_mul(u32::try_from(more).unwrap_or(u32::MAX)).min(longest)
}

/// A lease to hand over, and the contender that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Name of the lease.
    pub lease: String,
    /// Identity of the contender that receives the lease.
    pub to: String,
}

/// Decides when a contender hands a lease over to another one, the receiver. All of these must hold:
///
/// - The contender holds the most leases, and the receiver at least two fewer.
/// - The receiver contends for the lease.
/// - Each lease has a holder that runs.
/// - Holders and running contenders have not changed for the time given to [`Balance::new`].
#[derive(Debug)]
pub struct Balance {
    settle: Duration,
    seen: Option<(Holders, Running, Duration)>,
}

impl Balance {
    /// Creates a balance that hands leases over only if holders and contenders have not changed for the time `settle`.
    #[must_use]
    pub fn new(settle: Duration) -> Self {
        Self { settle, seen: None }
    }

    /// Returns the lease that the contender `own` hands over now; `None` if it keeps all.
    pub fn next(&mut self, own: &str, holders: &Holders, running: &Running, now: Duration) -> Option<Handover> {
        match &self.seen {
            Some((seen, ran, since)) if seen == holders && ran == running => {
                if now.saturating_sub(*since) < self.settle {
                    return None;
                }
            }
            _ => {
                self.seen = Some((holders.clone(), running.clone(), now));
                return None;
            }
        }
        let found = handover(own, holders, running);
        if found.is_some() {
            self.seen = None;
        }
        found
    }
}

fn handover(own: &str, holders: &Holders, running: &Running) -> Option<Handover> {
    let is_held = |holder: &Option<Arc<str>>| holder.as_ref().is_some_and(|holder| running.contains_key(&**holder));
    if !holders.values().all(is_held) {
        return None;
    }
    let mut counts: Vec<_> = counts(holders, running).into_iter().map(|(name, count)| (count, name)).collect();
    counts.sort_unstable();
    let (most, donor) = *counts.last()?;
    if donor != own {
        return None;
    }
    let held: Vec<_> =
        holders.iter().filter(|(_, holder)| holder.as_deref() == Some(own)).map(|(name, _)| name).collect();
    let receivers = counts.iter().filter(|(count, _)| count + 2 <= most);
    receivers.into_iter().find_map(|(_, to)| {
        let lease = held.iter().rev().find(|lease| running[*to].contains(**lease))?;
        Some(Handover { lease: (*lease).clone(), to: (*to).to_owned() })
    })
}

#[cfg(test)]
mod tests;

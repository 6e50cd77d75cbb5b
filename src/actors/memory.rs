//! What the actors of a hub share about its memory: who keeps objects, how much is resident, what the governor says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use actix::Recipient;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;

use super::headroom::Headroom;
use super::inbox::Inbox;
use super::messages::TakeStep;
use super::subscription::SubscriptionId;
use crate::budget::Pace;
use informer_hub_types::{InformerHealth, MemoryStep, Origin};

/// Says how much memory the process has resident.
pub trait Gauge: Send + Sync + fmt::Debug {
    /// Bytes; `None` where that cannot be read.
    fn resident(&self) -> Option<u64>;
}

/// What the kernel says of this process. Some 30 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessGauge;

impl Gauge for ProcessGauge {
    fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

/// How a limit is kept.
#[derive(Clone, Debug)]
pub struct MemoryTuning {
    /// How often the governor looks. Default 250 ms.
    pub look: Duration,
    /// How fast it acts.
    pub pace: Pace,
    /// Where it looks.
    pub gauge: Arc<dyn Gauge>,
}

impl Default for MemoryTuning {
    fn default() -> Self {
        Self { look: Duration::from_millis(250), pace: Pace::default(), gauge: Arc::new(ProcessGauge) }
    }
}

/// The memory of a hub that has a limit, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes that the process has resident, where that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Bytes of these that are accounted to informers.
    pub accounted: u64,
    /// Informers that keep less than everything.
    pub short: usize,
}

/// What an informer may keep and keeps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerMemory {
    /// How much of its objects is kept.
    pub step: MemoryStep,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bytes that it may use while others want memory too.
    pub share: u64,
    /// Bytes that it uses.
    pub used: u64,
}

impl InformerMemory {
    pub(super) fn of(health: &InformerHealth) -> Self {
        let memory = &health.memory;
        Self {
            step: memory.step(),
            since: memory.since(),
            reason: memory.reason().map(|reason| reason.to_string()),
            share: memory.share.load(Relaxed),
            used: memory.used.load(Relaxed),
        }
    }
}

/// The inboxes of an informer's subscriptions.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Mutex<BTreeMap<SubscriptionId, Arc<Inbox>>>);

impl Inboxes {
    pub(super) fn add(&self, id: SubscriptionId, inbox: &Arc<Inbox>) {
        self.0.lock().insert(id, Arc::clone(inbox));
    }

    pub(super) fn remove(&self, id: SubscriptionId) {
        self.0.lock().remove(&id);
    }

    /// Notifications that wait in all of them.
    pub(super) fn pending(&self) -> u64 {
        self.0.lock().values().map(|inbox| inbox.health.pending.load(Relaxed)).sum()
    }
}

/// An informer, as the governor knows it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) origin: Arc<Origin>,
    pub(super) health: Arc<InformerHealth>,
    pub(super) address: Recipient<TakeStep>,
    pub(super) inboxes: Arc<Inboxes>,
}

/// Shared by all actors of one hub; cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    headroom: Headroom,
    members: Mutex<(u64, BTreeMap<u64, Member>)>,
    status: ArcSwapOption<MemoryStatus>,
    accounted: AtomicU64,
}

/// Keeps a member known to the governor.
#[derive(Debug)]
pub(super) struct Membership {
    budget: Budget,
    number: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        let (headroom, members) = (Headroom::unlimited(), Mutex::default());
        Self(Arc::new(Shared { headroom, members, status: ArcSwapOption::empty(), accounted: AtomicU64::new(0) }))
    }

    pub(super) fn headroom(&self) -> &Headroom {
        &self.0.headroom
    }

    /// Makes an informer known for as long as it holds what this gives.
    pub(super) fn join(&self, member: Member) -> Membership {
        let mut members = self.0.members.lock();
        members.0 += 1;
        let number = members.0;
        members.1.insert(number, member);
        Membership { budget: self.clone(), number }
    }

    /// All informers, by a number that is never another's.
    pub(super) fn members(&self) -> BTreeMap<u64, Member> {
        self.0.members.lock().1.clone()
    }

    pub(super) fn show(&self, status: Option<MemoryStatus>, accounted: u64) {
        self.0.accounted.store(accounted, Relaxed);
        self.0.status.store(status.map(Arc::new));
    }

    /// The memory as the governor saw it last; `None` without a limit.
    #[must_use]
    pub fn status(&self) -> Option<MemoryStatus> {
        self.0.status.load().as_deref().copied()
    }

    /// Bytes that were accounted to informers when the governor looked last.
    #[must_use]
    pub fn accounted(&self) -> u64 {
        self.0.accounted.load(Relaxed)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.budget.0.members.lock().1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_memory_resident() {
        let resident = ProcessGauge.resident().unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
    }
}

//! Memory state shared by the actors of a hub: registered informers, headroom (bytes that may still be read), and the
//! governor's last measurement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix::{Message, Recipient};
use arc_swap::ArcSwapOption;
use litemap::LiteMap;
use parking_lot::Mutex;
use serde::Serialize;

use crate::actors::memory::headroom::Headroom;
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use informer_hub_types::{InformerHealth, MemoryStep, Origin};

/// Memory use of a hub that has a memory limit, as last measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MemoryStatus {
    /// Limit in bytes.
    pub limit: u64,
    /// Resident bytes of the process, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Bytes that all informers use, partly estimated.
    pub accounted: u64,
    /// Number of informers whose memory use is reduced, i.e. whose memory step is not [`MemoryStep::Full`].
    pub short: usize,
}

/// Memory step (how much of the objects is kept), memory share and memory use of an informer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InformerMemory {
    /// Current memory step: how much of the objects is kept.
    pub step: MemoryStep,
    /// Time of the last change of the memory step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
    /// Reason for the last change of the memory step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bytes the informer may use while other informers need memory too; zero without a limit.
    pub share: u64,
    /// Bytes that count against the share: the informer's objects and queued changes.
    pub used: u64,
}

impl InformerMemory {
    pub(in crate::actors) fn of(health: &InformerHealth) -> Self {
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

/// Notifies an informer that the memory governor has changed the informer's memory step (how much of the objects is
/// kept). The new step is in the informer's `InformerHealth`.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct MemoryStepChanged;

/// Inboxes of an informer's subscriptions.
#[derive(Debug, Default)]
pub(in crate::actors) struct Inboxes(Mutex<LiteMap<SubscriptionId, Arc<Inbox>>>);

impl Inboxes {
    pub(in crate::actors) fn add(&self, id: SubscriptionId, inbox: &Arc<Inbox>) {
        self.0.lock().insert(id, Arc::clone(inbox));
    }

    pub(in crate::actors) fn remove(&self, id: SubscriptionId) {
        self.0.lock().remove(&id);
    }

    /// Returns the number of pending notifications in all of the inboxes.
    pub(in crate::actors) fn pending(&self) -> u64 {
        self.0.lock().values().map(|inbox| inbox.health.pending.load(Relaxed)).sum()
    }
}

/// Informer registered with the memory governor.
#[derive(Clone, Debug)]
pub(in crate::actors) struct Member {
    pub(in crate::actors) origin: Arc<Origin>,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) address: Recipient<MemoryStepChanged>,
    pub(in crate::actors) inboxes: Arc<Inboxes>,
}

/// Memory accounting of one hub, shared by its actors: registered informers, headroom (bytes that may still be read),
/// and the last measurement. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    headroom: Headroom,
    members: Mutex<(u64, BTreeMap<u64, Member>)>,
    status: ArcSwapOption<MemoryStatus>,
    accounted: AtomicU64,
}

/// Registration of an informer with the memory governor; ends when dropped.
#[derive(Debug)]
pub(in crate::actors) struct Membership {
    budget: Budget,
    number: u64,
}

impl Budget {
    pub(in crate::actors) fn new() -> Self {
        let (headroom, members) = (Headroom::unlimited(), Mutex::default());
        Self(Arc::new(Shared { headroom, members, status: ArcSwapOption::empty(), accounted: AtomicU64::new(0) }))
    }

    pub(in crate::actors) fn headroom(&self) -> &Headroom {
        &self.0.headroom
    }

    /// Registers an informer with the memory governor until the returned value is dropped.
    pub(in crate::actors) fn join(&self, member: Member) -> Membership {
        let mut members = self.0.members.lock();
        members.0 += 1;
        let number = members.0;
        members.1.insert(number, member);
        Membership { budget: self.clone(), number }
    }

    /// Returns all registered informers by number. Numbers are never reused.
    pub(in crate::actors) fn members(&self) -> BTreeMap<u64, Member> {
        self.0.members.lock().1.clone()
    }

    pub(in crate::actors) fn publish(&self, status: Option<MemoryStatus>, accounted: u64) {
        self.0.accounted.store(accounted, Relaxed);
        self.0.status.store(status.map(Arc::new));
    }

    /// Returns the memory as last measured by the governor; `None` without a limit.
    #[must_use]
    pub fn status(&self) -> Option<MemoryStatus> {
        self.0.status.load().as_deref().copied()
    }

    /// Returns the bytes attributed to informers at the governor's last check.
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

//! What the actors of a hub share about its memory: who keeps objects, how much is resident, what the governor says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix::{Message, Recipient};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;

use crate::actors::memory::headroom::Headroom;
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use informer_hub_types::{InformerHealth, MemoryStep, Origin};

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

/// The informer's health says that it is to keep another part of its objects.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct TakeStep;

/// The inboxes of an informer's subscriptions.
#[derive(Debug, Default)]
pub(in crate::actors) struct Inboxes(Mutex<BTreeMap<SubscriptionId, Arc<Inbox>>>);

impl Inboxes {
    pub(in crate::actors) fn add(&self, id: SubscriptionId, inbox: &Arc<Inbox>) {
        self.0.lock().insert(id, Arc::clone(inbox));
    }

    pub(in crate::actors) fn remove(&self, id: SubscriptionId) {
        self.0.lock().remove(&id);
    }

    /// Notifications that wait in all of them.
    pub(in crate::actors) fn pending(&self) -> u64 {
        self.0.lock().values().map(|inbox| inbox.health.pending.load(Relaxed)).sum()
    }
}

/// An informer, as the governor knows it.
#[derive(Clone, Debug)]
pub(in crate::actors) struct Member {
    pub(in crate::actors) origin: Arc<Origin>,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) address: Recipient<TakeStep>,
    pub(in crate::actors) inboxes: Arc<Inboxes>,
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

    /// Makes an informer known for as long as it holds what this gives.
    pub(in crate::actors) fn join(&self, member: Member) -> Membership {
        let mut members = self.0.members.lock();
        members.0 += 1;
        let number = members.0;
        members.1.insert(number, member);
        Membership { budget: self.clone(), number }
    }

    /// All informers, by a number that is never another's.
    pub(in crate::actors) fn members(&self) -> BTreeMap<u64, Member> {
        self.0.members.lock().1.clone()
    }

    pub(in crate::actors) fn show(&self, status: Option<MemoryStatus>, accounted: u64) {
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

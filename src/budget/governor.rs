//! The governor: decides which informers must keep less of their objects, and which may keep more.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "byte estimates: the lost precision is far below their error"
)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::{Pace, level};
use informer_hub_types::clock::Instant;
use informer_hub_types::{MemoryStep, object_memory};

/// Memory use of one informer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// How much of its objects the informer keeps now.
    pub step: MemoryStep,
    /// Number of objects in the informer's store.
    pub objects: u64,
    /// Number of objects that the running list will return; zero if unknown.
    pub expected: u64,
    /// Bytes of the stored JSON (bodies) of objects, as kept in memory: compressed or not.
    pub bodies: u64,
    /// Bytes of those bodies that are not compressed yet.
    pub uncompressed: u64,
    /// Bytes in the informer's queues.
    pub queued: u64,
}

/// Memory use at one moment: the input of a decision.
#[derive(Debug)]
pub struct Reading<'r, Id> {
    /// Time of the reading.
    pub now: Instant,
    /// Memory limit in bytes; `None` means unlimited.
    pub limit: Option<u64>,
    /// Resident bytes of the process, if they can be read.
    pub resident: Option<u64>,
    /// Usage of every informer.
    pub usages: &'r BTreeMap<Id, Usage>,
    /// Random number from 0 to 1, for jitter.
    pub jitter: f64,
}

/// Decision that an informer keeps less or more of its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change<Id> {
    /// ID of the informer.
    pub id: Id,
    /// How much the informer keeps now.
    pub from: MemoryStep,
    /// How much the informer keeps from now on.
    pub to: MemoryStep,
    /// Reason, for the status page and the log.
    pub reason: String,
}

/// Memory of the hub as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Resident bytes of the process, if they can be read.
    pub resident: Option<u64>,
    /// Sum of the bytes that informers use, partly estimated.
    pub accounted: u64,
    /// Resident bytes that are not accounted to informers, smoothed. Negative if the informers use less than is
    /// accounted to them.
    pub slack: i64,
    /// Bytes that the hub may accept before the next reading; negative if the process uses more than 92 % of the limit.
    /// `UNLIMITED` if there is no limit.
    pub headroom: i64,
}

/// Usage and share of one informer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryShare {
    /// Bytes that the informer may use while other informers need memory too; zero if there is no limit.
    pub share: u64,
    /// Bytes that the informer uses.
    pub used: u64,
}

/// Result of [`Governor::evaluate`]: which informers change their step, and the memory of each informer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision<Id> {
    /// Step changes of informers that must keep less or may keep more, in the order in which to apply them.
    pub changes: Vec<Change<Id>>,
    /// Memory of the hub as a whole.
    pub report: Report,
    /// Memory of each informer.
    pub memory_shares: BTreeMap<Id, MemoryShare>,
}

/// Past observations of one informer, which later decisions use.
#[derive(Clone, Copy, Debug)]
struct History {
    /// Number of objects, stored or still to be listed, when the informer last kept objects.
    objects: u64,
    /// Mean compressed bytes of a body (the stored JSON of one object) when the informer last kept bodies.
    body: u64,
    /// Estimated bytes after a degradation (a change to a step that keeps less), and the time until which the estimate
    /// is valid. Until then, it replaces the measured bytes if it is lower.
    expected: Option<(u64, Instant)>,
    /// Estimated bytes after an upgrade (a change to a step that keeps more), and the time until which the estimate is
    /// valid. Until then, it replaces the measured bytes if it is higher.
    promised: Option<(u64, Instant)>,
    /// Time of the last change of the informer's memory step.
    since: Instant,
    /// Last upgrade, unless a degradation followed it: its time, its new step, and the estimated total memory in bytes
    /// before the upgrade.
    improved: Option<(Instant, MemoryStep, u64)>,
    /// Measured memory cost of the last upgrade (a change to a step that keeps more) that had to be reverted.
    observed: Option<ObservedCost>,
    /// Wait after a change of the memory step before the next upgrade; `until` is when it ends.
    wait: Duration,
    until: Instant,
}

/// Measured memory cost of an upgrade (a change to a step that keeps more) that had to be reverted. This cost replaces
/// a lower estimate. Estimates assume the same bytes per object for all resources, which is too low for some.
#[derive(Clone, Copy, Debug)]
struct ObservedCost {
    step: MemoryStep,
    /// Growth of the total memory in bytes, from the upgrade until it was reverted. If an earlier reverted upgrade took
    /// more (scaled to the present number of objects), that number is kept.
    grown: u64,
    /// Number of the informer's objects when its upgrade (to a step that keeps more) was reverted.
    objects: u64,
}

/// Decides how much memory each informer may use; the contract is in the [module](super).
#[derive(Debug)]
pub struct Governor<Id> {
    pace: Pace,
    members: BTreeMap<Id, History>,
    slack: Option<f64>,
    /// Samples of the bytes accounted to all informers, from the last 12 s, oldest first.
    recent: VecDeque<(Instant, u64)>,
    limit: Option<u64>,
}

/// State of one informer while the governor decides which informers keep less or more.
struct Candidate<Id> {
    id: Id,
    step: MemoryStep,
    used: u64,
    /// Estimated bytes of the informer at its current memory step, once a recent degradation has taken full effect.
    predicted: u64,
    /// Estimated bytes of the informer once a recent upgrade (to a step that keeps more) has taken full effect.
    promised: u64,
    /// Estimated bytes if the informer kept all objects in full.
    demand: u64,
    usage: Usage,
}

/// Assumed compressed bytes of a body (the stored JSON of one object), if none was measured.
const ASSUMED_BODY: u64 = 600;

/// Bytes of object JSON that a resource may keep uncompressed at the memory step `Full`.
const UNCOMPRESSED: u64 = 4 << 20;

/// Time after which an allocator begins to return freed memory to the operating system. jemalloc returns most of it
/// after about 5 s.
const RETURNING: Duration = Duration::from_secs(3);
/// Time after which an allocator has returned all freed memory. jemalloc takes 10 s.
const RETURNED: Duration = Duration::from_secs(12);

/// Assumed slack (resident bytes not accounted to informers) if resident memory cannot be read.
const ASSUMED_SLACK: i64 = 48 << 20;

/// Thresholds in per cent of the memory limit. Above `HIGH`, informers must keep less until `TARGET` is reached. Up to
/// `LOW`, they may keep more. Above `GATE`, no new data is accepted.
const LOW: u64 = 80;
const TARGET: u64 = 85;
const HIGH: u64 = 90;
const GATE: u64 = 92;

/// Headroom (bytes that may be accepted) if there is no memory limit. Half of the greatest number: it stays far above
/// every limit, even after accepted bytes were subtracted.
pub const UNLIMITED: i64 = i64::MAX / 2;

fn percent(part: u64, of: u64) -> u64 {
    (u128::from(of) * u128::from(part) / 100).try_into().unwrap_or(u64::MAX)
}

impl Usage {
    fn used(&self) -> u64 {
        object_memory(self.objects, self.bodies) + self.queued
    }
}

impl<Id: Ord + Clone> Governor<Id> {
    /// Creates a governor without observations.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, members: BTreeMap::new(), slack: None, recent: VecDeque::new(), limit: None }
    }

    /// Decides which informers change their memory step, after a reading of the memory in use. Sorts the informers
    /// once, and scans them for each change.
    pub fn evaluate(&mut self, reading: &Reading<'_, Id>) -> Decision<Id> {
        self.observe(reading);
        let accounted = reading.usages.values().map(Usage::used).sum();
        let slack = self.measure(reading, accounted);
        let mut candidates: Vec<_> = reading.usages.iter().map(|(id, usage)| self.candidate(id, usage)).collect();
        let mut report = Report { resident: reading.resident, accounted, slack, headroom: UNLIMITED };
        let Some(limit) = reading.limit else {
            let memory_shares =
                candidates.iter().map(|one| (one.id.clone(), MemoryShare { share: 0, used: one.used })).collect();
            return Decision { changes: self.free(&candidates, reading.now), report, memory_shares };
        };
        let resident = reading.resident.unwrap_or_else(|| plus_slack(accounted, slack));
        report.headroom = percent(GATE, limit).try_into().unwrap_or(i64::MAX) - resident.try_into().unwrap_or(i64::MAX);
        let capacity = plus_slack(percent(TARGET, limit), slack.saturating_neg());
        let share = level(candidates.iter().map(|one| one.demand), capacity);
        let memory_shares =
            candidates.iter().map(|one| (one.id.clone(), MemoryShare { share, used: one.used })).collect();
        let mut changes = self.degrade(&mut candidates, share, slack, limit, reading);
        if changes.is_empty() {
            changes.extend(self.improve(&candidates, share, slack, limit, reading));
        }
        Decision { changes, report, memory_shares }
    }

    /// Updates the history of each informer (object count, mean body size, estimates) from a reading.
    fn observe(&mut self, reading: &Reading<'_, Id>) {
        let now = reading.now;
        self.members.retain(|id, _| reading.usages.contains_key(id));
        let raised = match (self.limit, reading.limit) {
            (Some(before), Some(limit)) => limit > before,
            (before, _) => before.is_some(),
        };
        self.limit = reading.limit;
        let wait = self.pace.wait;
        for (id, usage) in reading.usages {
            let memory = self.members.entry(id.clone()).or_insert_with(|| History::new(now, wait));
            memory.expected = memory.expected.filter(|(_, until)| *until > now);
            memory.promised = memory.promised.filter(|(bytes, until)| *until > now && *bytes > usage.used());
            // Until the promised bytes are reached, a relist may still be restoring objects, so the store may be
            // incomplete.
            let lists = memory.promised.is_some();
            if usage.step != MemoryStep::Released {
                let known = if usage.step.watches() && !lists { usage.expected } else { memory.objects };
                memory.objects = usage.objects.max(known);
            }
            // Only compressed bodies are measured: the others will be compressed too.
            let packed = usage.bodies.saturating_sub(usage.uncompressed);
            if usage.step.keeps_bodies() && usage.uncompressed < packed && usage.objects > 0 && !lists {
                memory.body = (packed / usage.objects).max(1);
            }
            if raised {
                (memory.until, memory.wait, memory.improved) = (now, wait, None);
            }
        }
    }

    /// Returns the smoothed slack: resident bytes that are not accounted to informers.
    fn measure(&mut self, reading: &Reading<'_, Id>, accounted: u64) -> i64 {
        let now = reading.now;
        let seconds = self.recent.back().map_or(0.0, |(last, _)| now.duration_since(*last).as_secs_f64());
        while self.recent.front().is_some_and(|(then, _)| now.duration_since(*then) > RETURNED) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, accounted));
        let Some(resident) = reading.resident else { return ASSUMED_SLACK };
        let sample =
            (resident as f64 - accounted as f64 - self.returning(now, accounted)).max(-(accounted as f64) / 4.0);
        let slack = match self.slack {
            None => sample,
            // Slack follows an increase slowly, because it may be temporary, and a decrease fast.
            Some(slack) => {
                let time = if sample > slack { 2.0 } else { 1.0 };
                slack + (sample - slack) * (1.0 - (-seconds / time).exp())
            }
        };
        self.slack = Some(slack);
        slack as i64
    }

    /// Estimates how many of the bytes that informers released recently are still resident. The estimate is the largest
    /// decrease since a sample of the last 12 s, less the part already returned. Decreases are not added up, so
    /// repeated growth and release counts once.
    fn returning(&self, now: Instant, accounted: u64) -> f64 {
        let (held, returned) = (RETURNING.as_secs_f64(), RETURNED.as_secs_f64());
        let part = |(then, before): &(Instant, u64)| {
            let age = now.duration_since(*then).as_secs_f64();
            let left = ((returned - age) / (returned - held)).clamp(0.0, 1.0);
            before.saturating_sub(accounted) as f64 * left
        };
        self.recent.iter().map(part).fold(0.0, f64::max)
    }

    fn candidate(&self, id: &Id, usage: &Usage) -> Candidate<Id> {
        let used = usage.used();
        let memory = &self.members[id];
        let predicted = memory.expected.map_or(used, |(bytes, _)| bytes.min(used));
        let promised = memory.promised.map_or(predicted, |(bytes, _)| bytes.max(predicted));
        let demand = memory.estimate(MemoryStep::Full).max(used);
        Candidate { id: id.clone(), step: usage.step, used, predicted, promised, demand, usage: *usage }
    }

    /// Makes the informers furthest above their memory share keep less, until the total falls below `TARGET` per cent
    /// of the limit.
    fn degrade(
        &mut self,
        candidates: &mut [Candidate<Id>],
        share: u64,
        slack: i64,
        limit: u64,
        reading: &Reading<'_, Id>,
    ) -> Vec<Change<Id>> {
        let mut changes = Vec::new();
        let now = reading.now;
        let mut total = plus_slack(candidates.iter().map(|one| one.predicted).sum(), slack);
        if total <= percent(HIGH, limit) {
            return changes;
        }
        while total > percent(TARGET, limit) {
            let above = candidates.iter_mut().filter(|one| one.predicted > share && one.step.worse().is_some());
            let Some(furthest) = above.max_by_key(|one| one.predicted) else { break };
            let Some(memory) = self.members.get_mut(&furthest.id) else { break };
            let Some(to) = furthest.step.worse() else { break };
            // A watch is stopped only while the total is above `HIGH`, as a last resort.
            let may_wait = !to.watches() && total <= percent(HIGH, limit);
            // A paused informer accepts no data, which may suffice. Wait before it releases its objects.
            let is_paused = furthest.step == MemoryStep::Paused;
            if may_wait || is_paused && total <= limit && now < memory.since + self.pace.pause {
                break;
            }
            let before = furthest.predicted;
            furthest.predicted = match to {
                MemoryStep::Packed => {
                    before - furthest.usage.uncompressed.min(before) + packed(furthest.usage.uncompressed)
                }
                _ => memory.estimate(to).min(before),
            };
            let reason = DegradationReason { used: before, share, total, limit };
            memory.record_cost(total, &self.pace, now);
            total = total.saturating_sub(before - furthest.predicted);
            changes.push(Change { id: furthest.id.clone(), from: furthest.step, to, reason: reason.to_string() });
            furthest.step = to;
            memory.note_degraded(furthest.predicted, &self.pace, now, reading.jitter);
        }
        changes
    }

    /// Lets at most one informer keep more, if its estimated bytes fit its share and the total stays below `LOW` per
    /// cent of the limit.
    fn improve(
        &mut self,
        candidates: &[Candidate<Id>],
        share: u64,
        slack: i64,
        limit: u64,
        reading: &Reading<'_, Id>,
    ) -> Option<Change<Id>> {
        let now = reading.now;
        // Wait until the effect of the last degradation is measured.
        if self.members.values().any(|memory| memory.expected.is_some()) {
            return None;
        }
        let total = plus_slack(candidates.iter().map(|one| one.promised).sum(), slack);
        let room = percent(LOW, limit).saturating_sub(total);
        let fits = |one: &Candidate<Id>, to: MemoryStep| {
            let estimate = self.members[&one.id].estimate(to).max(self.members[&one.id].observed_cost(to));
            let fits = estimate.saturating_mul(6) / 5 <= share && estimate.saturating_sub(one.promised) <= room;
            fits.then_some((estimate, to))
        };
        let better = |one: &Candidate<Id>| -> Option<(u64, MemoryStep)> {
            let least = one.step.better()?;
            let all = MemoryStep::ALL.into_iter().take_while(|to| *to <= least);
            (self.members[&one.id].until <= now).then(|| all.into_iter().find_map(|to| fits(one, to)))?
        };
        let found = candidates.iter().filter_map(|one| better(one).map(|found| (one, found)));
        // Prefers the most degraded informer, then the one with the smallest estimate.
        let (one, (estimate, to)) = found.max_by_key(|(one, (estimate, _))| (one.step, u64::MAX - estimate))?;
        let memory = self.members.get_mut(&one.id)?;
        memory.since = now;
        memory.improved = Some((now, to, total));
        memory.promised = Some((estimate, now + self.pace.wait));
        memory.until = now + memory.wait;
        let reason = format!("an estimated {} fits into its share of the limit, {}", Size(estimate), Size(share));
        Some(Change { id: one.id.clone(), from: one.step, to, reason })
    }

    /// Upgrades every informer to the memory step `Full`, after the memory limit was removed.
    fn free(&mut self, candidates: &[Candidate<Id>], now: Instant) -> Vec<Change<Id>> {
        let short = candidates.iter().filter(|one| one.step != MemoryStep::Full);
        short
            .map(|one| {
                if let Some(memory) = self.members.get_mut(&one.id) {
                    (memory.since, memory.expected) = (now, None);
                }
                let reason = "the memory limit was removed".to_owned();
                Change { id: one.id.clone(), from: one.step, to: MemoryStep::Full, reason }
            })
            .collect()
    }
}

/// Adds the slack (resident bytes not accounted to informers), which may be negative, to a number of bytes.
fn plus_slack(bytes: u64, slack: i64) -> u64 {
    bytes.saturating_add_signed(slack)
}

/// Estimates the compressed bytes of `plain` uncompressed bytes of object JSON.
fn packed(plain: u64) -> u64 {
    plain / 8
}

impl History {
    fn new(now: Instant, wait: Duration) -> Self {
        let (expected, promised, improved, observed) = (None, None, None, None);
        Self {
            objects: 0,
            body: ASSUMED_BODY,
            expected,
            promised,
            since: now,
            improved,
            observed,
            wait,
            until: now + wait,
        }
    }

    /// Records how much memory the last upgrade took. Called when that upgrade is reverted; does nothing if it is older
    /// than `pace.relapse`.
    fn record_cost(&mut self, total: u64, pace: &Pace, now: Instant) {
        let Some((_, step, before)) = self.improved.filter(|(at, ..)| now < *at + pace.relapse) else { return };
        let grown = total.saturating_sub(before).max(self.observed_cost(step));
        self.observed = Some(ObservedCost { step, grown, objects: self.objects });
    }

    /// Returns the bytes that the last reverted upgrade took, scaled to the current number of objects. Returns zero if
    /// there is no such upgrade, or if its step keeps more than `step`.
    fn observed_cost(&self, step: MemoryStep) -> u64 {
        let observed = self.observed.filter(|observed| step <= observed.step && observed.objects > 0);
        observed.map_or(0, |observed| (observed.grown / observed.objects).saturating_mul(self.objects))
    }

    /// Estimates the bytes that the informer uses at a step.
    fn estimate(&self, step: MemoryStep) -> u64 {
        let heads = object_memory(self.objects, 0);
        let bodies = object_memory(0, self.objects * self.body);
        match step {
            MemoryStep::Full => heads + bodies + UNCOMPRESSED.min(bodies),
            MemoryStep::Packed => heads + bodies,
            MemoryStep::Heads | MemoryStep::Paused => heads,
            MemoryStep::Released => 0,
        }
    }

    fn note_degraded(&mut self, expected: u64, pace: &Pace, now: Instant, jitter: f64) {
        if self.improved.take().is_some_and(|(improved, ..)| now < improved + pace.relapse) {
            self.wait = (self.wait * 2).min(pace.longest_wait);
        }
        self.since = now;
        self.promised = None;
        self.expected = Some((expected, now + pace.settle));
        self.until = now + self.wait + self.wait.mul_f64(jitter.clamp(0.0, 1.0) / 2.0);
    }
}

/// Numbers that explain why an informer must keep less, for the status page and the log.
struct DegradationReason {
    used: u64,
    share: u64,
    total: u64,
    limit: u64,
}

impl fmt::Display for DegradationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, share, total, limit } = self;
        let (used, share, total, limit) = (Size(*used), Size(*share), Size(*total), Size(*limit));
        write!(f, "it uses {used}; its share of the memory limit is {share}, and the process uses {total} of {limit}")
    }
}

/// A number of bytes, displayed in MiB.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = u128::from(self.0) * 10 / (1 << 20);
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

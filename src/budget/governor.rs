//! The governor: which informer keeps less, and which may keep more.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "estimates of bytes: what is lost is far below what they are sure of"
)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::{Pace, level};
use informer_hub_types::clock::Instant;
use informer_hub_types::{MemoryStep, object_memory};

/// What one informer keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// The step it is at.
    pub step: MemoryStep,
    /// How many objects it has.
    pub objects: u64,
    /// How many the list under way is expected to bring; zero where that is not known.
    pub expected: u64,
    /// Bytes that bodies take, as they lie.
    pub bodies: u64,
    /// Of these, what is not compressed yet.
    pub young: u64,
    /// Bytes that wait in its queues.
    pub queued: u64,
}

/// What is seen at one moment.
#[derive(Debug)]
pub struct Reading<'r, Id> {
    /// The moment.
    pub now: Instant,
    /// The limit; `None`: there is none.
    pub limit: Option<u64>,
    /// Bytes resident, where that can be read.
    pub resident: Option<u64>,
    /// Every informer.
    pub usages: &'r BTreeMap<Id, Usage>,
    /// From 0 to 1, at random.
    pub dice: f64,
}

/// One informer is to keep less or more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change<Id> {
    /// Which one.
    pub id: Id,
    /// What it keeps now.
    pub from: MemoryStep,
    /// What it is to keep.
    pub to: MemoryStep,
    /// Why, for people.
    pub reason: String,
}

/// The memory of the hub as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Bytes resident, where that can be read.
    pub resident: Option<u64>,
    /// Bytes that are accounted to informers.
    pub accounted: u64,
    /// Bytes that are nobody's; negative where informers use less than is accounted to them.
    pub slack: i64,
    /// Bytes that may be taken in before it is looked again; negative past the limit.
    pub headroom: i64,
}

/// What one informer uses and may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// What it may use while others want memory too.
    pub share: u64,
    /// What it uses.
    pub used: u64,
}

/// What comes of a reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict<Id> {
    /// What is to change, in order.
    pub changes: Vec<Change<Id>>,
    /// The hub as a whole.
    pub report: Report,
    /// Each informer.
    pub shown: BTreeMap<Id, Shown>,
}

/// What is remembered of an informer.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Objects, when it last kept any.
    objects: u64,
    /// Bytes of a body, when it last kept bodies.
    body: u64,
    /// What it is taken to use after it was told to keep less, until then.
    expected: Option<(u64, Instant)>,
    /// What it is taken to come to after it was allowed more, until then.
    promised: Option<(u64, Instant)>,
    /// When it was put where it is.
    since: Instant,
    /// When it was last given more, what, and what all together took then.
    improved: Option<(Instant, MemoryStep, u64)>,
    /// What giving it more has cost the last time that it was too much.
    lesson: Option<Lesson>,
    /// How long it has to wait, and until when, before it is given more.
    wait: Duration,
    until: Instant,
}

/// What was learnt from giving an informer more than there was room for: estimates of what an object takes beside its body
/// are the same for all, and wrong for some.
#[derive(Clone, Copy, Debug)]
struct Lesson {
    step: MemoryStep,
    /// What all together took more, when it was taken back.
    grown: u64,
    /// With so many objects.
    objects: u64,
}

/// See the module above.
#[derive(Debug)]
pub struct Governor<Id> {
    pace: Pace,
    members: BTreeMap<Id, Memory>,
    slack: Option<f64>,
    /// What was accounted lately, the last one last.
    lately: VecDeque<(Instant, u64)>,
    limit: Option<u64>,
}

/// One informer within a decision.
struct Candidate<Id> {
    id: Id,
    step: MemoryStep,
    used: u64,
    /// Taken for used once it is where it was put.
    predicted: u64,
    /// What it may come to, by what it was allowed lately.
    promised: u64,
    /// What it would use if it kept everything.
    demand: u64,
    usage: Usage,
}

/// What is taken for a body that was never seen.
const BODY: u64 = 600;

/// Bytes that a resource keeps uncompressed where it may.
const YOUNG: u64 = 4 << 20;

/// From when on an allocator is expected to give back what was freed, and by when to have given it back. jemalloc takes
/// ten seconds, most of it in the middle of them.
const RETURNING: Duration = Duration::from_secs(3);
const RETURNED: Duration = Duration::from_secs(12);

/// What is nobody's, where that cannot be measured.
const SLACK: i64 = 48 << 20;

/// Parts of the limit, in per cent: informers keep less above `HIGH`, until `TARGET` is reached; they may keep more up to
/// `LOW`; nothing is taken in above `GATE`.
const LOW: u64 = 80;
const TARGET: u64 = 85;
const HIGH: u64 = 90;
const GATE: u64 = 92;

/// What may be taken in before the next reading where there is no limit. What is taken of it while there is none does not
/// bring it down to half.
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
    /// One that has seen nothing.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, members: BTreeMap::new(), slack: None, lately: VecDeque::new(), limit: None }
    }

    /// Looks at everything and decides. Costs a sort of the informers.
    pub fn look(&mut self, reading: &Reading<'_, Id>) -> Verdict<Id> {
        self.remember(reading);
        let accounted = reading.usages.values().map(Usage::used).sum();
        let slack = self.measure(reading, accounted);
        let mut candidates: Vec<_> = reading.usages.iter().map(|(id, usage)| self.candidate(id, usage)).collect();
        let mut report = Report { resident: reading.resident, accounted, slack, headroom: UNLIMITED };
        let Some(limit) = reading.limit else {
            let shown = candidates.iter().map(|one| (one.id.clone(), Shown { share: 0, used: one.used })).collect();
            return Verdict { changes: self.free(&candidates, reading.now), report, shown };
        };
        let resident = reading.resident.unwrap_or_else(|| with(accounted, slack));
        report.headroom = percent(GATE, limit).try_into().unwrap_or(i64::MAX) - resident.try_into().unwrap_or(i64::MAX);
        let capacity = with(percent(TARGET, limit), slack.saturating_neg());
        let share = level(candidates.iter().map(|one| one.demand), capacity);
        let shown = candidates.iter().map(|one| (one.id.clone(), Shown { share, used: one.used })).collect();
        let mut changes = self.degrade(&mut candidates, share, slack, limit, reading);
        if changes.is_empty() {
            changes.extend(self.improve(&candidates, share, slack, limit, reading));
        }
        Verdict { changes, report, shown }
    }

    /// Learns what informers would need from what they have.
    fn remember(&mut self, reading: &Reading<'_, Id>) {
        let now = reading.now;
        self.members.retain(|id, _| reading.usages.contains_key(id));
        let raised = match (self.limit, reading.limit) {
            (Some(before), Some(limit)) => limit > before,
            (before, _) => before.is_some(),
        };
        self.limit = reading.limit;
        let wait = self.pace.wait;
        for (id, usage) in reading.usages {
            let memory = self.members.entry(id.clone()).or_insert_with(|| Memory::new(now, wait));
            memory.expected = memory.expected.filter(|(_, until)| *until > now);
            memory.promised = memory.promised.filter(|(bytes, until)| *until > now && *bytes > usage.used());
            // While it lists again, what it has says little.
            let lists = memory.promised.is_some();
            if usage.step != MemoryStep::Released {
                let known = if usage.step.watches() && !lists { usage.expected } else { memory.objects };
                memory.objects = usage.objects.max(known);
            }
            // Young ones lie as they came; they will take what the others take.
            let packed = usage.bodies.saturating_sub(usage.young);
            if usage.step.keeps_bodies() && usage.young < packed && usage.objects > 0 && !lists {
                memory.body = (packed / usage.objects).max(1);
            }
            if raised {
                (memory.until, memory.wait, memory.improved) = (now, wait, None);
            }
        }
    }

    /// What is nobody's.
    fn measure(&mut self, reading: &Reading<'_, Id>, accounted: u64) -> i64 {
        let now = reading.now;
        let seconds = self.lately.back().map_or(0.0, |(last, _)| now.duration_since(*last).as_secs_f64());
        while self.lately.front().is_some_and(|(then, _)| now.duration_since(*then) > RETURNED) {
            self.lately.pop_front();
        }
        self.lately.push_back((now, accounted));
        let Some(resident) = reading.resident else { return SLACK };
        let sample =
            (resident as f64 - accounted as f64 - self.returning(now, accounted)).max(-(accounted as f64) / 4.0);
        let slack = match self.slack {
            None => sample,
            // What has come up may pass; what is gone is gone.
            Some(slack) => {
                let time = if sample > slack { 2.0 } else { 1.0 };
                slack + (sample - slack) * (1.0 - (-seconds / time).exp())
            }
        };
        self.slack = Some(slack);
        slack as i64
    }

    /// Bytes that were let go lately, as far as they may still be resident: of what was freed no more than what there was
    /// more of can be, however often it came and went.
    fn returning(&self, now: Instant, accounted: u64) -> f64 {
        let (held, returned) = (RETURNING.as_secs_f64(), RETURNED.as_secs_f64());
        let part = |(then, before): &(Instant, u64)| {
            let age = now.duration_since(*then).as_secs_f64();
            let left = ((returned - age) / (returned - held)).clamp(0.0, 1.0);
            before.saturating_sub(accounted) as f64 * left
        };
        self.lately.iter().map(part).fold(0.0, f64::max)
    }

    fn candidate(&self, id: &Id, usage: &Usage) -> Candidate<Id> {
        let used = usage.used();
        let memory = &self.members[id];
        let predicted = memory.expected.map_or(used, |(bytes, _)| bytes.min(used));
        let promised = memory.promised.map_or(predicted, |(bytes, _)| bytes.max(predicted));
        let demand = memory.estimate(MemoryStep::Full).max(used);
        Candidate { id: id.clone(), step: usage.step, used, predicted, promised, demand, usage: *usage }
    }

    /// Has informers keep less, until the limit is kept with something to spare.
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
        let mut total = with(candidates.iter().map(|one| one.predicted).sum(), slack);
        if total <= percent(HIGH, limit) {
            return changes;
        }
        while total > percent(TARGET, limit) {
            let above = candidates.iter_mut().filter(|one| one.predicted > share && one.step.worse().is_some());
            let Some(furthest) = above.max_by_key(|one| one.predicted) else { break };
            let Some(memory) = self.members.get_mut(&furthest.id) else { break };
            let Some(to) = furthest.step.worse() else { break };
            // Not to watch any more is for where nothing else helps.
            let may_wait = !to.watches() && total <= percent(HIGH, limit);
            // One that was paused takes nothing in; whether that is enough shows.
            let is_paused = furthest.step == MemoryStep::Paused;
            if may_wait || is_paused && total <= limit && now < memory.since + self.pace.pause {
                break;
            }
            let before = furthest.predicted;
            furthest.predicted = match to {
                MemoryStep::Packed => before - furthest.usage.young.min(before) + packed(furthest.usage.young),
                _ => memory.estimate(to).min(before),
            };
            let reason = Excess { used: before, share, total, limit };
            memory.learn(total, &self.pace, now);
            total = total.saturating_sub(before - furthest.predicted);
            changes.push(Change { id: furthest.id.clone(), from: furthest.step, to, reason: reason.to_string() });
            furthest.step = to;
            memory.note_degraded(furthest.predicted, &self.pace, now, reading.dice);
        }
        changes
    }

    /// Lets one informer keep more, if that is safe.
    fn improve(
        &mut self,
        candidates: &[Candidate<Id>],
        share: u64,
        slack: i64,
        limit: u64,
        reading: &Reading<'_, Id>,
    ) -> Option<Change<Id>> {
        let now = reading.now;
        // One thing after the other: what the last change brings is not seen yet.
        if self.members.values().any(|memory| memory.expected.is_some()) {
            return None;
        }
        let total = with(candidates.iter().map(|one| one.promised).sum(), slack);
        let room = percent(LOW, limit).saturating_sub(total);
        let fits = |one: &Candidate<Id>, to: MemoryStep| {
            let estimate = self.members[&one.id].estimate(to).max(self.members[&one.id].learnt(to));
            let fits = estimate.saturating_mul(6) / 5 <= share && estimate.saturating_sub(one.promised) <= room;
            fits.then_some((estimate, to))
        };
        let better = |one: &Candidate<Id>| -> Option<(u64, MemoryStep)> {
            let least = one.step.better()?;
            let all = MemoryStep::ALL.into_iter().take_while(|to| *to <= least);
            (self.members[&one.id].until <= now).then(|| all.into_iter().find_map(|to| fits(one, to)))?
        };
        let found = candidates.iter().filter_map(|one| better(one).map(|found| (one, found)));
        // Who has least first.
        let (one, (estimate, to)) = found.max_by_key(|(one, (estimate, _))| (one.step, u64::MAX - estimate))?;
        let memory = self.members.get_mut(&one.id)?;
        memory.since = now;
        memory.improved = Some((now, to, total));
        memory.promised = Some((estimate, now + self.pace.wait));
        memory.until = now + memory.wait;
        let reason = format!("{} fit into its share of {}", Size(estimate), Size(share));
        Some(Change { id: one.id.clone(), from: one.step, to, reason })
    }

    /// Without a limit everybody keeps everything.
    fn free(&mut self, candidates: &[Candidate<Id>], now: Instant) -> Vec<Change<Id>> {
        let short = candidates.iter().filter(|one| one.step != MemoryStep::Full);
        short
            .map(|one| {
                if let Some(memory) = self.members.get_mut(&one.id) {
                    (memory.since, memory.expected) = (now, None);
                }
                let reason = "there is no limit any more".to_owned();
                Change { id: one.id.clone(), from: one.step, to: MemoryStep::Full, reason }
            })
            .collect()
    }
}

/// Bytes with slack, which may be negative.
fn with(bytes: u64, slack: i64) -> u64 {
    bytes.saturating_add_signed(slack)
}

/// About what plain bodies come to when they are compressed.
fn packed(plain: u64) -> u64 {
    plain / 8
}

impl Memory {
    fn new(now: Instant, wait: Duration) -> Self {
        let (expected, promised, improved, lesson) = (None, None, None, None);
        Self { objects: 0, body: BODY, expected, promised, since: now, improved, lesson, wait, until: now + wait }
    }

    /// Takes note of what it has cost to give it more, if that was lately and is taken back now.
    fn learn(&mut self, total: u64, pace: &Pace, now: Instant) {
        let Some((_, step, before)) = self.improved.filter(|(at, ..)| now < *at + pace.relapse) else { return };
        let grown = total.saturating_sub(before).max(self.learnt(step));
        self.lesson = Some(Lesson { step, grown, objects: self.objects });
    }

    /// What experience says that a step costs with the objects of now; zero where there is none.
    fn learnt(&self, step: MemoryStep) -> u64 {
        let lesson = self.lesson.filter(|lesson| step <= lesson.step && lesson.objects > 0);
        lesson.map_or(0, |lesson| (lesson.grown / lesson.objects).saturating_mul(self.objects))
    }

    /// What it would use at a step.
    fn estimate(&self, step: MemoryStep) -> u64 {
        let heads = object_memory(self.objects, 0);
        let bodies = object_memory(0, self.objects * self.body);
        match step {
            MemoryStep::Full => heads + bodies + YOUNG.min(bodies),
            MemoryStep::Packed => heads + bodies,
            MemoryStep::Heads | MemoryStep::Paused => heads,
            MemoryStep::Released => 0,
        }
    }

    fn note_degraded(&mut self, expected: u64, pace: &Pace, now: Instant, dice: f64) {
        if self.improved.take().is_some_and(|(improved, ..)| now < improved + pace.relapse) {
            self.wait = (self.wait * 2).min(pace.longest_wait);
        }
        self.since = now;
        self.promised = None;
        self.expected = Some((expected, now + pace.settle));
        self.until = now + self.wait + self.wait.mul_f64(dice.clamp(0.0, 1.0) / 2.0);
    }
}

/// Why an informer is to keep less.
struct Excess {
    used: u64,
    share: u64,
    total: u64,
    limit: u64,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, share, total, limit } = self;
        let (used, share, total, limit) = (Size(*used), Size(*share), Size(*total), Size(*limit));
        write!(f, "it uses {used} with a share of {share}, and all together take {total} of {limit}")
    }
}

/// Bytes for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = u128::from(self.0) * 10 / (1 << 20);
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

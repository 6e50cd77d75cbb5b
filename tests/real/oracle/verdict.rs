//! The judgement of a pair of handlers, object by object, and how it is told to people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use super::account::{Fact, Kind, Log, Subject};
use super::judge::{Excuse, Side, Tally, judge, judge_order};
use super::witness::Reading;

/// A handler of the hub and one of client-go that began at the same moment, as far as they could.
pub(super) struct Pair<'a> {
    pub(super) hub: &'a Log,
    pub(super) go: &'a Log,
    /// Whether they joined later.
    pub(super) late: bool,
    /// What the hub's informer was brought.
    pub(super) reading: &'a Reading,
    /// What the lists of client-go may have in them.
    pub(super) go_lists: &'a [usize],
    pub(super) started_at: usize,
    /// How often a resync may have repeated each object.
    pub(super) resyncs: usize,
}

impl Pair<'_> {
    /// Judges every object of a kind; gives what is wrong.
    pub(super) fn judge(
        &self,
        kind: Kind,
        history: &BTreeMap<Subject, Vec<Fact>>,
        differences: &mut Tally,
    ) -> Vec<String> {
        let (hub, go) = (self.hub.told(), self.go.told());
        let synced = |log: &Log| log.synced_at(kind).expect("who has what is true has synced");
        let (hub_synced, go_synced) = (synced(self.hub), synced(self.go));
        let all = history.keys().chain(hub.keys()).chain(go.keys()).filter(|(of, _)| *of == kind);
        let mut problems = Vec::new();
        for subject in all.collect::<BTreeSet<_>>() {
            let facts = history.get(subject).map_or(&[][..], |facts| facts);
            let by_hub = hub.get(subject).map_or(&[][..], |told| told);
            let by_go = go.get(subject).map_or(&[][..], |told| told);
            let gaps = self.reading.gaps(&subject.1);
            let excuse = Excuse::Gaps { gaps: &gaps, lists: self.reading.lists(), late: self.late };
            let hub = Side { told: by_hub, synced_at: hub_synced, excuse, resyncs: self.resyncs };
            let excuse = Excuse::Lists(self.go_lists);
            let go = Side { told: by_go, synced_at: go_synced, excuse, resyncs: self.resyncs };
            match judge(facts, self.started_at, hub, go) {
                Ok(tally) => tally.into_iter().for_each(|(which, n)| *differences.entry(which).or_default() += n),
                Err(problem) => problems.push(told_in_full(subject, &problem, facts, by_hub, by_go)),
            }
        }
        match judge_order(self.hub.reordered(kind), self.go.reordered(kind), self.go_lists.len()) {
            Ok(tally) => tally.into_iter().for_each(|(which, n)| *differences.entry(which).or_default() += n),
            Err(problem) => problems.push(format!("{kind:?}: {problem}")),
        }
        problems
    }
}

fn told_in_full(subject: &Subject, problem: &str, facts: &[Fact], hub: &[impl Debug], go: &[impl Debug]) -> String {
    let (facts, hub, go) = (lines(facts), lines(hub), lines(go));
    format!("{subject:?}: {problem}\n  what happened:\n{facts}\n  the hub:\n{hub}\n  client-go:\n{go}\n")
}

fn lines(all: &[impl Debug]) -> String {
    all.iter().map(|one| format!("    {one:?}")).collect::<Vec<_>>().join("\n")
}

//! Judges a pair of handlers, object by object, and formats the problems.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use super::history::{Change, Kind, Log, Subject};
use super::judge::{Allowance, Side, Tally, judge, judge_order};
use super::read_recorder::ReadLog;

/// Reads of the first handler's informer.
#[derive(Clone, Copy)]
pub(super) enum Reads<'a> {
    /// Recorded reads of the hub.
    Hub(&'a ReadLog),
    /// Lists of a client-go that reads from the hub: the number of changes at the response to each.
    ThroughHub(&'a [usize]),
}

/// A handler of the hub, or of a client-go that reads from the hub, and one of client-go, registered at about the same
/// time.
pub(super) struct HandlerPair<'a> {
    pub(super) hub: &'a Log,
    pub(super) go: &'a Log,
    /// Whether the handlers joined later.
    pub(super) late: bool,
    pub(super) reads: Reads<'a>,
    /// Number of changes at the response to each list of client-go.
    pub(super) go_lists: &'a [usize],
    pub(super) started_at: usize,
    /// Maximum number of repetitions of an object caused by resyncs.
    pub(super) resyncs: usize,
}

impl HandlerPair<'_> {
    /// Judges every object of a kind and returns the problems.
    pub(super) fn judge(
        &self,
        kind: Kind,
        history: &BTreeMap<Subject, Vec<Change>>,
        differences: &mut Tally,
    ) -> Vec<String> {
        let (hub, go) = (self.hub.notified(), self.go.notified());
        let synced = |log: &Log| log.synced_at(kind).expect("a converged side has synced");
        let (hub_synced, go_synced) = (synced(self.hub), synced(self.go));
        let all = history.keys().chain(hub.keys()).chain(go.keys()).filter(|(of, _)| *of == kind);
        let mut problems = Vec::new();
        for subject in all.collect::<BTreeSet<_>>() {
            let changes = history.get(subject).map_or(&[][..], |changes| changes);
            let by_hub = hub.get(subject).map_or(&[][..], |notified| notified);
            let by_go = go.get(subject).map_or(&[][..], |notified| notified);
            let gaps = if let Reads::Hub(reads) = self.reads { reads.gaps(&subject.1) } else { Vec::new() };
            let allowance = match self.reads {
                Reads::Hub(reads) => Allowance::Gaps { gaps: &gaps, lists: reads.lists(), late: self.late },
                Reads::ThroughHub(lists) => Allowance::Lists(lists),
            };
            let hub = Side { notified: by_hub, synced_at: hub_synced, allowance, resyncs: self.resyncs };
            let allowance = Allowance::Lists(self.go_lists);
            let go = Side { notified: by_go, synced_at: go_synced, allowance, resyncs: self.resyncs };
            match judge(changes, self.started_at, hub, go) {
                Ok(tally) => tally.into_iter().for_each(|(which, n)| *differences.entry(which).or_default() += n),
                Err(problem) => problems.push(format_problem(subject, &problem, changes, by_hub, by_go)),
            }
        }
        match judge_order(self.hub.reordered(kind), self.go.reordered(kind), self.go_lists.len()) {
            Ok(tally) => tally.into_iter().for_each(|(which, n)| *differences.entry(which).or_default() += n),
            Err(problem) => problems.push(format!("{kind:?}: {problem}")),
        }
        problems
    }
}

fn format_problem(
    subject: &Subject,
    problem: &str,
    changes: &[Change],
    hub: &[impl Debug],
    go: &[impl Debug],
) -> String {
    let (changes, hub, go) = (lines(changes), lines(hub), lines(go));
    format!("{subject:?}: {problem}\n  history:\n{changes}\n  the hub:\n{hub}\n  client-go:\n{go}\n")
}

fn lines(all: &[impl Debug]) -> String {
    all.iter().map(|one| format!("    {one:?}")).collect::<Vec<_>>().join("\n")
}

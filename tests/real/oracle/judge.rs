//! What an informer told of one object, held against what really happened to it, and against what the other one told.

use std::collections::BTreeMap;

use super::account::{Fact, State, Told, What};
use super::witness::{Gap, number};

/// A way in which what the hub tells of an object may be another than what client-go tells of it. There is no other:
/// whatever is not in this list fails the test. The list for people is `docs/client-go-differences.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Difference {
    /// Both repeated unchanged objects because they were asked to, each by a clock of its own.
    Resynced,
    /// client-go told an unchanged object as updated when it listed again; the hub tells of changes only.
    Repeated,
    /// An object was replaced by another of its name while client-go was not watching, which told it as updated; the
    /// hub tells the deletion of one object and the addition of another.
    Replaced,
    /// The hub listed again and was not told a state that client-go was told: it was not watching just then.
    MissedByHub,
    /// The same of client-go.
    MissedByClientGo,
    /// The hub found a deletion out by a list (a tombstone) that client-go saw.
    DeletionUnseenByHub,
    /// The same of client-go.
    DeletionUnseenByClientGo,
    /// One of them missed the first states of an object, so that what it adds is to the other an update.
    SeenLater,
    /// The hub notified of a change of one object after a later change of another. Order is judged per object; between
    /// objects it is counted, and excluded from the judgement.
    ReorderedByHub,
    /// The same of client-go, which does so after a list only.
    ReorderedByClientGo,
    /// Their first lists (or the moments at which a later handler joined) were not at the same moment: what one was
    /// told as it happened was before the other's, or in it as initial.
    BegunElsewhere,
}

/// Differences, and how often.
pub(super) type Tally = BTreeMap<Difference, usize>;

/// One informer's part in the judgement of one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) told: &'a [Told],
    /// How many facts there were when its first list had been told.
    pub(super) synced_at: usize,
    /// What it need not have been told.
    pub(super) excuse: Excuse<'a>,
    /// How often it may have been told each object for being asked to.
    pub(super) resyncs: usize,
}

/// Lists, which are the only excuse for most things.
#[derive(Clone, Copy, Debug)]
pub(super) enum Excuse<'a> {
    /// Of client-go: how many facts there were, or a few more, when each list was answered. It may have missed any fact
    /// before one of them, or before its first list had been told.
    Lists(&'a [usize]),
    /// Of the hub: what of this object its lists jumped over, by version, and how many they were. It may have missed
    /// that, and a handler that joined `late` what was before.
    Gaps { gaps: &'a [Gap], lists: usize, late: bool },
}

impl Excuse<'_> {
    fn lists(&self) -> usize {
        match self {
            Self::Lists(lists) => lists.len(),
            Self::Gaps { lists, .. } => *lists,
        }
    }
}

impl Side<'_> {
    /// Whether it may not have seen as it happened what is at this place of the history.
    fn may_miss(&self, history: &[Fact], at: usize) -> bool {
        let number = history[at].number;
        match self.excuse {
            Excuse::Lists(lists) => number < self.synced_at || lists.iter().any(|answered| *answered > number),
            Excuse::Gaps { gaps, late, .. } => {
                let (first, last) = versions(history, at);
                late && number < self.synced_at || gaps.iter().any(|gap| gap.after < last && first <= gap.upto)
            }
        }
    }
}

/// The first and the last version that a fact can have. Where the apiserver did not tell, it is between those before
/// and after it that are known.
fn versions(history: &[Fact], at: usize) -> (u64, u64) {
    let known = |fact: &Fact| match &fact.what {
        What::Is(State { version, .. }) | What::Gone { version: Some(version), .. } => {
            Some((number(version), number(version)))
        }
        What::Dying { after, before, .. } => Some((number(after) + 1, number(before) - 1)),
        What::Gone { version: None, .. } => None,
    };
    known(&history[at]).unwrap_or_else(|| {
        let before = history[..at].iter().rev().find_map(known).map_or(0, |(_, last)| last);
        let after = history[at..].iter().find_map(known).map_or(u64::MAX, |(first, _)| first);
        (before + 1, after - 1)
    })
}

/// Judges the order between objects of one kind, of which each side notified so many changes after a later change of
/// another object. The hub promises none. client-go notifies in the order of the watch, and of a list in another one.
///
/// # Errors
/// client-go notified in another order than that of its watch: what is said of it is wrong.
pub(super) fn judge_order(hub: usize, go: usize, go_lists: usize) -> Result<Tally, String> {
    if go > 0 && go_lists <= 1 {
        return Err(format!("client-go notified {go} changes after later ones, without having listed again"));
    }
    let counts = [(Difference::ReorderedByHub, hub), (Difference::ReorderedByClientGo, go)];
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// How one fact was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Added {
        initial: bool,
    },
    Updated,
    /// As an update of another object.
    Replaced,
    Deleted,
    Tombstone,
}

/// What one side told, placed in what happened.
#[derive(Debug, Default)]
struct Placed<'a> {
    /// By the fact's place in the object's history.
    facts: BTreeMap<usize, (How, &'a Told)>,
    /// How often a state was told again.
    repeated: usize,
}

/// Judges what both told of one object, of which everything that ever happened is `history`; `started_at` facts had
/// happened when they were started.
///
/// # Errors
/// What no informer may do, or what one did and the other did not that is not a [`Difference`].
pub(super) fn judge(history: &[Fact], started_at: usize, hub: Side<'_>, go: Side<'_>) -> Result<Tally, String> {
    let by_hub = place(history, hub.told).map_err(|problem| format!("the hub: {problem}"))?;
    let by_go = place(history, go.told).map_err(|problem| format!("client-go: {problem}"))?;
    if by_hub.repeated > hub.resyncs || by_hub.facts.values().any(|(how, _)| *how == How::Replaced) {
        return Err("the hub told what it never tells: a repetition, or one object as another".into());
    }
    excused(history, started_at, &by_hub, hub).map_err(|problem| format!("the hub: {problem}"))?;
    excused(history, started_at, &by_go, go).map_err(|problem| format!("client-go: {problem}"))?;
    let mut tally = Tally::new();
    let differently = by_go.repeated.abs_diff(by_hub.repeated);
    if differently > 0 {
        let why = if go.resyncs > 0 { Difference::Resynced } else { Difference::Repeated };
        tally.insert(why, differently);
    }
    for (place, fact) in history.iter().enumerate() {
        let (by_hub, by_go) = (by_hub.facts.get(&place), by_go.facts.get(&place));
        let difference = match compare(&fact.what, by_hub, by_go)? {
            Some(Difference::MissedByHub) if fact.number < hub.synced_at => Some(Difference::BegunElsewhere),
            Some(Difference::MissedByClientGo) if fact.number < go.synced_at => Some(Difference::BegunElsewhere),
            difference => difference,
        };
        if let Some(difference) = difference {
            *tally.entry(difference).or_default() += 1;
        }
    }
    Ok(tally)
}

/// Places what was told in what happened. What was told must be a subsequence of it, begin with an addition, hang
/// together, and end with what is.
fn place<'a>(history: &[Fact], told: &'a [Told]) -> Result<Placed<'a>, String> {
    let mut placed = Placed::default();
    let mut known: Option<State> = None;
    let mut after = 0;
    for told in told {
        let how = match (told, &known) {
            (Told::Added { initial, .. }, None) => How::Added { initial: *initial },
            (Told::Updated { old, new }, Some(last)) if old == last => {
                if new == old {
                    placed.repeated += 1;
                    continue;
                }
                if new.uid == old.uid { How::Updated } else { How::Replaced }
            }
            (Told::Deleted { last: gone, tombstone: false }, Some(last)) if gone.uid == last.uid => How::Deleted,
            (Told::Deleted { last: gone, tombstone: true }, Some(last)) if gone == last => How::Tombstone,
            _ => return Err(format!("{told:?} cannot follow {known:?}")),
        };
        let is_it = |fact: &Fact| is_told(&fact.what, told, known.as_ref());
        let Some(found) = history.iter().skip(after).position(is_it) else {
            return Err(format!("{told:?} did not happen after {known:?}"));
        };
        placed.facts.insert(after + found, (how, told));
        after += found + 1;
        known = match told {
            Told::Added { new, .. } | Told::Updated { new, .. } => Some(new.clone()),
            Told::Deleted { .. } => None,
        };
    }
    let truth = match history.last().map(|fact| &fact.what) {
        Some(What::Is(state)) => Some(state),
        Some(What::Dying { .. } | What::Gone { .. }) | None => None,
    };
    if known.as_ref() == truth { Ok(placed) } else { Err(format!("ends with {known:?} where {truth:?} is true")) }
}

/// Whether it is this fact that was told.
fn is_told(what: &What, told: &Told, known: Option<&State>) -> bool {
    match (what, told) {
        (What::Is(state), Told::Added { new, .. } | Told::Updated { new, .. }) => state == new,
        (What::Dying { uid, after, before }, Told::Added { new, .. } | Told::Updated { new, .. }) => {
            *uid == new.uid && new.version.newer_than(after) && before.newer_than(&new.version)
        }
        (What::Gone { uid, .. }, Told::Deleted { last, tombstone: true }) => *uid == last.uid,
        (What::Gone { uid, version }, Told::Deleted { last, tombstone: false }) => {
            let right = match version {
                Some(version) => *version == last.version,
                None => known.is_none_or(|known| last.version.newer_than(&known.version)),
            };
            *uid == last.uid && right
        }
        _ => false,
    }
}

/// Whether a side may have told what it told and kept quiet about what it did not tell, by what it went through.
fn excused(history: &[Fact], started_at: usize, placed: &Placed<'_>, side: Side<'_>) -> Result<(), String> {
    let lists = side.excuse.lists();
    if placed.repeated >= lists.max(1) + side.resyncs {
        return Err(format!("repeats {} times after {lists} lists", placed.repeated));
    }
    for (at, fact) in history.iter().enumerate().filter(|(at, _)| !side.may_miss(history, *at)) {
        match placed.facts.get(&at) {
            Some((How::Tombstone | How::Replaced, told)) => {
                return Err(format!("{told:?}, without having listed past it"));
            }
            None if !matches!(fact.what, What::Gone { .. }) => {
                return Err(format!("did not tell {:?}, without having listed past it", fact.what));
            }
            _ => {}
        }
    }
    initial_is_right(history, started_at, placed, side)
}

/// What was there at the start can only be known from the first list, and what happens later cannot be in it.
fn initial_is_right(history: &[Fact], started_at: usize, placed: &Placed<'_>, side: Side<'_>) -> Result<(), String> {
    let wrong = |(at, (how, told)): (&usize, &(How, &Told))| {
        let number = history[*at].number;
        let wrong = match how {
            How::Added { initial: true } => number >= side.synced_at,
            How::Added { initial: false } => number < started_at,
            _ => false,
        };
        wrong.then(|| format!("{told:?} is initial or not, and should be the other"))
    };
    placed.facts.iter().find_map(wrong).map_or(Ok(()), Err)
}

/// What is different in how one fact was told.
fn compare(what: &What, hub: Option<&(How, &Told)>, go: Option<&(How, &Told)>) -> Result<Option<Difference>, String> {
    let is = !matches!(what, What::Gone { .. });
    let (by_hub, by_go) = (hub.map(|(how, _)| *how), go.map(|(how, _)| *how));
    if let (Some((_, mine)), Some((how, its))) = (hub, go)
        && (*how == How::Deleted || is)
        && !matches!(hub, Some((How::Tombstone, _)))
        && state_told(mine) != state_told(its)
    {
        return Err(format!("{hub:?} and {go:?} are one and the same"));
    }
    Ok(match (by_hub, by_go) {
        (_, Some(How::Replaced)) => Some(Difference::Replaced),
        (None, Some(_)) if is => Some(Difference::MissedByHub),
        (Some(_), None) if is => Some(Difference::MissedByClientGo),
        // The end of what one of them never knew, or of what client-go told as replaced.
        (None, _) | (_, None) => None,
        (Some(How::Tombstone), Some(How::Deleted)) => Some(Difference::DeletionUnseenByHub),
        (Some(How::Deleted), Some(How::Tombstone)) => Some(Difference::DeletionUnseenByClientGo),
        (Some(How::Added { initial: mine }), Some(How::Added { initial })) if mine != initial => {
            Some(Difference::BegunElsewhere)
        }
        (Some(How::Added { .. }), Some(How::Updated)) | (Some(How::Updated), Some(How::Added { .. })) => {
            Some(Difference::SeenLater)
        }
        (Some(mine), Some(its)) if std::mem::discriminant(&mine) == std::mem::discriminant(&its) => None,
        (Some(mine), Some(its)) => return Err(format!("{what:?} is {mine:?} to the hub and {its:?} to client-go")),
    })
}

/// The state that a fact was told as.
fn state_told(told: &Told) -> &State {
    match told {
        Told::Added { new: state, .. } | Told::Updated { new: state, .. } | Told::Deleted { last: state, .. } => state,
    }
}

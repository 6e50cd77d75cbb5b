//! Verifies the notifications of each informer about one object against its history, and compares the two informers.

use std::collections::BTreeMap;

use super::history::{Change, ChangeKind, Notified, State};
use super::read_recorder::{Gap, number};

/// Permitted difference between the hub's and client-go's notifications of an object. Any other difference fails the
/// test. `docs/client-go-differences.md` describes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Difference {
    /// Both repeated unchanged objects for a resync, each at its own times.
    Resynced,
    /// client-go notified an unchanged object as updated after a new list; the hub notifies changes only.
    Repeated,
    /// An object was re-created under its name while client-go was not watching, so client-go notified an update. The
    /// hub notifies a deletion and an addition.
    Replaced,
    /// The hub missed a state that client-go saw, since it was not watching then and listed again later.
    MissedByHub,
    /// client-go missed a state that the hub saw, since it was not watching then and listed again later.
    MissedByClientGo,
    /// The hub learnt of a deletion from a list (a tombstone); client-go saw it.
    DeletionUnseenByHub,
    /// client-go learnt of a deletion from a list (a tombstone); the hub saw it.
    DeletionUnseenByClientGo,
    /// One informer missed the first states of an object, so its addition is an update for the other informer.
    SeenLater,
    /// The hub notified of a change of one object after a later change of another. Order between objects is counted,
    /// but only order per object is verified.
    ReorderedByHub,
    /// client-go notified of a change of one object after a later change of another. It does so only after a list.
    ReorderedByClientGo,
    /// The first lists (or the joins of later handlers) were at different times: a change that one informer saw live
    /// was part of the other's first list, or happened before the other started.
    BegunElsewhere,
}

/// Differences with their counts.
pub(super) type Tally = BTreeMap<Difference, usize>;

/// Notifications and conditions of one informer, for one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) notified: &'a [Notified],
    /// Number of changes at the end of the first list's notifications.
    pub(super) synced_at: usize,
    /// Changes that the informer may have missed.
    pub(super) allowance: Allowance<'a>,
    /// Maximum number of repetitions caused by resyncs.
    pub(super) resyncs: usize,
}

/// Lists of an informer, which permit missing notifications.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allowance<'a> {
    /// For client-go: an upper bound of the number of changes at the response to each list. It may have missed any
    /// change before one of these, or before the end of its first list.
    Lists(&'a [usize]),
    /// For the hub: the versions of this object that lists skipped, and the number of lists. It may have missed those
    /// versions. A handler that joined `late` may have missed everything before.
    Gaps { gaps: &'a [Gap], lists: usize, late: bool },
}

impl Allowance<'_> {
    /// Returns whether the notifications are the hub's own, and not those of a client-go that reads from the hub.
    fn is_of_hub(&self) -> bool {
        matches!(self, Self::Gaps { .. })
    }

    fn lists(&self) -> usize {
        match self {
            Self::Lists(lists) => lists.len(),
            Self::Gaps { lists, .. } => *lists,
        }
    }
}

impl Side<'_> {
    /// Returns whether the informer may have missed the change at an index of the history.
    fn may_miss(&self, history: &[Change], at: usize) -> bool {
        let number = history[at].number;
        match self.allowance {
            Allowance::Lists(lists) => number < self.synced_at || lists.iter().any(|answered| *answered > number),
            Allowance::Gaps { gaps, late, .. } => {
                let (first, last) = versions(history, at);
                late && number < self.synced_at || gaps.iter().any(|gap| gap.after < last && first <= gap.upto)
            }
        }
    }
}

/// Returns the first and last possible version of a change. An unknown version is between the known ones around it.
fn versions(history: &[Change], at: usize) -> (u64, u64) {
    let known = |change: &Change| match &change.kind {
        ChangeKind::Present(State { version, .. }) | ChangeKind::Deleted { version: Some(version), .. } => {
            Some((number(version), number(version)))
        }
        ChangeKind::MarkedForDeletion { after, before, .. } => Some((number(after) + 1, number(before) - 1)),
        ChangeKind::Deleted { version: None, .. } => None,
    };
    known(&history[at]).unwrap_or_else(|| {
        let before = history[..at].iter().rev().find_map(known).map_or(0, |(_, last)| last);
        let after = history[at..].iter().find_map(known).map_or(u64::MAX, |(first, _)| first);
        (before + 1, after - 1)
    })
}

/// Counts order differences between objects of one kind: notifications that follow a later change of another object.
///
/// The hub guarantees no order between objects. client-go notifies in the order of the watch, except for a list.
///
/// # Errors
/// If client-go reordered without a second list, which contradicts the documentation.
pub(super) fn judge_order(hub: usize, go: usize, go_lists: usize) -> Result<Tally, String> {
    if go > 0 && go_lists <= 1 {
        return Err(format!("client-go notified {go} changes after later ones, without a second list"));
    }
    let counts = [(Difference::ReorderedByHub, hub), (Difference::ReorderedByClientGo, go)];
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// Kind of the notification of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotificationKind {
    Added {
        initial: bool,
    },
    Updated,
    /// Notified as an update of another object.
    Replaced,
    Deleted,
    Tombstone,
}

/// Notifications of one side, matched with the history.
#[derive(Debug, Default)]
struct Placed<'a> {
    /// Notified changes, by index in the object's history.
    changes: BTreeMap<usize, (NotificationKind, &'a Notified)>,
    /// Number of repeated states.
    repeated: usize,
}

/// Verifies and compares the notifications of both sides for one object. `hub` is the hub, or a client-go that reads
/// from it.
///
/// `history` has all changes of the object. The informers started after `started_at` changes.
///
/// # Errors
/// If an informer violated its contract, or the two differ in a way that is not a [`Difference`].
pub(super) fn judge(history: &[Change], started_at: usize, hub: Side<'_>, go: Side<'_>) -> Result<Tally, String> {
    let by_hub = place(history, hub.notified).map_err(|problem| format!("the hub: {problem}"))?;
    let by_go = place(history, go.notified).map_err(|problem| format!("client-go: {problem}"))?;
    let is_replaced = by_hub.changes.values().any(|(kind, _)| *kind == NotificationKind::Replaced);
    if hub.allowance.is_of_hub() && (by_hub.repeated > hub.resyncs || is_replaced) {
        return Err("the hub repeated an object, or notified one object as another".into());
    }
    verify_allowed(history, started_at, &by_hub, hub).map_err(|problem| format!("the hub: {problem}"))?;
    verify_allowed(history, started_at, &by_go, go).map_err(|problem| format!("client-go: {problem}"))?;
    let mut tally = Tally::new();
    let repetition_difference = by_go.repeated.abs_diff(by_hub.repeated);
    if repetition_difference > 0 {
        let difference = if go.resyncs > 0 { Difference::Resynced } else { Difference::Repeated };
        tally.insert(difference, repetition_difference);
    }
    for (place, change) in history.iter().enumerate() {
        let (by_hub, by_go) = (by_hub.changes.get(&place), by_go.changes.get(&place));
        let difference = match compare(&change.kind, by_hub, by_go)? {
            Some(Difference::MissedByHub) if change.number < hub.synced_at => Some(Difference::BegunElsewhere),
            Some(Difference::MissedByClientGo) if change.number < go.synced_at => Some(Difference::BegunElsewhere),
            difference => difference,
        };
        if let Some(difference) = difference {
            *tally.entry(difference).or_default() += 1;
        }
    }
    Ok(tally)
}

/// Matches notifications with the history. They must be a subsequence of it, begin with an addition, be consistent with
/// each other, and end with the final state.
fn place<'a>(history: &[Change], notified: &'a [Notified]) -> Result<Placed<'a>, String> {
    let mut placed = Placed::default();
    let mut known: Option<State> = None;
    let mut after = 0;
    for notified in notified {
        let kind = match (notified, &known) {
            (Notified::Added { initial, .. }, None) => NotificationKind::Added { initial: *initial },
            (Notified::Updated { old, new }, Some(last)) if old == last => {
                if new == old {
                    placed.repeated += 1;
                    continue;
                }
                if new.uid == old.uid { NotificationKind::Updated } else { NotificationKind::Replaced }
            }
            (Notified::Deleted { last: gone, tombstone: false }, Some(last)) if gone.uid == last.uid => {
                NotificationKind::Deleted
            }
            (Notified::Deleted { last: gone, tombstone: true }, Some(last)) if gone == last => {
                NotificationKind::Tombstone
            }
            _ => return Err(format!("{notified:?} cannot follow {known:?}")),
        };
        let matches = |change: &Change| is_notified(&change.kind, notified, known.as_ref());
        let Some(found) = history.iter().skip(after).position(matches) else {
            return Err(format!("{notified:?} is not in the history after {known:?}"));
        };
        placed.changes.insert(after + found, (kind, notified));
        after += found + 1;
        known = match notified {
            Notified::Added { new, .. } | Notified::Updated { new, .. } => Some(new.clone()),
            Notified::Deleted { .. } => None,
        };
    }
    let truth = match history.last().map(|change| &change.kind) {
        Some(ChangeKind::Present(state)) => Some(state),
        Some(ChangeKind::MarkedForDeletion { .. } | ChangeKind::Deleted { .. }) | None => None,
    };
    if known.as_ref() == truth { Ok(placed) } else { Err(format!("ends with {known:?} instead of {truth:?}")) }
}

/// Returns whether a notification can be of this change.
fn is_notified(change: &ChangeKind, notified: &Notified, known: Option<&State>) -> bool {
    match (change, notified) {
        (ChangeKind::Present(state), Notified::Added { new, .. } | Notified::Updated { new, .. }) => state == new,
        (
            ChangeKind::MarkedForDeletion { uid, after, before },
            Notified::Added { new, .. } | Notified::Updated { new, .. },
        ) => *uid == new.uid && new.version.newer_than(after) && before.newer_than(&new.version),
        (ChangeKind::Deleted { uid, .. }, Notified::Deleted { last, tombstone: true }) => *uid == last.uid,
        (ChangeKind::Deleted { uid, version }, Notified::Deleted { last, tombstone: false }) => {
            let right = match version {
                Some(version) => *version == last.version,
                None => known.is_none_or(|known| last.version.newer_than(&known.version)),
            };
            *uid == last.uid && right
        }
        _ => false,
    }
}

/// Verifies that each tombstone and each missing notification is permitted by a list.
fn verify_allowed(history: &[Change], started_at: usize, placed: &Placed<'_>, side: Side<'_>) -> Result<(), String> {
    let lists = side.allowance.lists();
    if placed.repeated >= lists.max(1) + side.resyncs {
        return Err(format!("{} repetitions after {lists} lists", placed.repeated));
    }
    for (at, change) in history.iter().enumerate().filter(|(at, _)| !side.may_miss(history, *at)) {
        match placed.changes.get(&at) {
            Some((NotificationKind::Tombstone | NotificationKind::Replaced, notified)) => {
                return Err(format!("{notified:?}, without a list that skipped the change"));
            }
            None if !matches!(change.kind, ChangeKind::Deleted { .. }) => {
                return Err(format!("did not notify {:?}, without a list that skipped the change", change.kind));
            }
            _ => {}
        }
    }
    initial_is_right(history, started_at, placed, side)
}

/// Verifies the `initial` flags: objects from before the start are initial, changes after the first list are not.
fn initial_is_right(history: &[Change], started_at: usize, placed: &Placed<'_>, side: Side<'_>) -> Result<(), String> {
    let wrong = |(at, (kind, notified)): (&usize, &(NotificationKind, &Notified))| {
        let number = history[*at].number;
        let wrong = match kind {
            NotificationKind::Added { initial: true } => number >= side.synced_at,
            NotificationKind::Added { initial: false } => number < started_at,
            _ => false,
        };
        wrong.then(|| format!("{notified:?} has the wrong initial flag"))
    };
    placed.changes.iter().find_map(wrong).map_or(Ok(()), Err)
}

/// Compares the notifications of one change.
fn compare(
    change: &ChangeKind,
    hub: Option<&(NotificationKind, &Notified)>,
    go: Option<&(NotificationKind, &Notified)>,
) -> Result<Option<Difference>, String> {
    let is = !matches!(change, ChangeKind::Deleted { .. });
    let (by_hub, by_go) = (hub.map(|(kind, _)| *kind), go.map(|(kind, _)| *kind));
    if let (Some((_, hub_notified)), Some((kind, go_notified))) = (hub, go)
        && (*kind == NotificationKind::Deleted || is)
        && !matches!(hub, Some((NotificationKind::Tombstone, _)))
        && notified_state(hub_notified) != notified_state(go_notified)
    {
        return Err(format!("{hub:?} and {go:?} differ in the state of one change"));
    }
    Ok(match (by_hub, by_go) {
        (Some(NotificationKind::Replaced), _) | (_, Some(NotificationKind::Replaced)) => Some(Difference::Replaced),
        (None, Some(_)) if is => Some(Difference::MissedByHub),
        (Some(_), None) if is => Some(Difference::MissedByClientGo),
        // One side did not notify the deletion: it never saw the object, or client-go notified it as replaced.
        (None, _) | (_, None) => None,
        (Some(NotificationKind::Tombstone), Some(NotificationKind::Deleted)) => Some(Difference::DeletionUnseenByHub),
        (Some(NotificationKind::Deleted), Some(NotificationKind::Tombstone)) => {
            Some(Difference::DeletionUnseenByClientGo)
        }
        (Some(NotificationKind::Added { initial: hub_initial }), Some(NotificationKind::Added { initial }))
            if hub_initial != initial =>
        {
            Some(Difference::BegunElsewhere)
        }
        (Some(NotificationKind::Added { .. }), Some(NotificationKind::Updated))
        | (Some(NotificationKind::Updated), Some(NotificationKind::Added { .. })) => Some(Difference::SeenLater),
        (Some(hub_kind), Some(go_kind)) if std::mem::discriminant(&hub_kind) == std::mem::discriminant(&go_kind) => {
            None
        }
        (Some(hub_kind), Some(go_kind)) => {
            return Err(format!("{change:?} is {hub_kind:?} to the hub and {go_kind:?} to client-go"));
        }
    })
}

/// Returns the state in a notification.
fn notified_state(notified: &Notified) -> &State {
    match notified {
        Notified::Added { new: state, .. }
        | Notified::Updated { new: state, .. }
        | Notified::Deleted { last: state, .. } => state,
    }
}

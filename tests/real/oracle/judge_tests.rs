//! Tests of the judge: permitted differences are classified, violations are refused.

use informer_hub_types::{ResourceVersion, Uid};

use super::history::{Change, ChangeCounter, ChangeKind, Kind, Log, Notified, State};
use super::judge::{Allowance, Difference, Side, judge, judge_order};
use super::read_recorder::Gap;

/// Parses a state: `a1` is object a at version 1.
fn state(text: &str) -> State {
    let (uid, version) = text.split_at(1);
    State { uid: Uid::new(uid), version: ResourceVersion::new(version) }
}

/// Parses a history: `a1` is a state, `-a2` a deletion, `-a` one of unknown version, `?a14` a deletion mark between 1
/// and 4.
fn history(text: &str) -> Vec<Change> {
    let kind = |word: &str| match word.strip_prefix('-') {
        Some(gone) => {
            let (uid, version) = gone.split_at(1);
            ChangeKind::Deleted {
                uid: Uid::new(uid),
                version: Some(version).filter(|v| !v.is_empty()).map(ResourceVersion::new),
            }
        }
        None => match word.strip_prefix('?').map(|word| word.split_at(1)) {
            Some((uid, between)) => {
                let (after, before) = between.split_at(1);
                ChangeKind::MarkedForDeletion {
                    uid: Uid::new(uid),
                    after: ResourceVersion::new(after),
                    before: ResourceVersion::new(before),
                }
            }
            None => ChangeKind::Present(state(word)),
        },
    };
    text.split_whitespace().enumerate().map(|(number, word)| Change { number, kind: kind(word) }).collect()
}

/// Parses notifications: `*a1` initial, `+a1` added, `a1>a2` updated, `-a3` deleted, `!a2` a tombstone.
fn notified(text: &str) -> Vec<Notified> {
    let one = |word: &str| match word.split_at(1) {
        ("*", new) => Notified::Added { new: state(new), initial: true },
        ("+", new) => Notified::Added { new: state(new), initial: false },
        ("-", last) => Notified::Deleted { last: state(last), tombstone: false },
        ("!", last) => Notified::Deleted { last: state(last), tombstone: true },
        _ => {
            let (old, new) = word.split_once('>').expect("an update");
            Notified::Updated { old: state(old), new: state(new) }
        }
    };
    text.split_whitespace().map(one).collect()
}

/// Judges two notification texts. Both sides started after the first change and synced at once. The prefix `%` means
/// that the side listed again after all changes, `~` that it synced only then.
fn verdict(changes: &str, hub: &str, go: &str) -> Result<Vec<(Difference, usize)>, String> {
    let history = history(changes);
    let (lists, gaps) = ([1, history.len()], [Gap { after: 0, upto: 1 }, Gap { after: 1, upto: 9 }]);
    let [hub_side, go_side] = [hub, go].map(|text| notified(text.trim_start_matches(['%', '~'])));
    let count = |text: &str| 1 + usize::from(text.starts_with('%'));
    let synced_at = |text: &str| if text.starts_with('~') { history.len() } else { 1 };
    let allowance = Allowance::Gaps { gaps: &gaps[..count(hub)], lists: count(hub), late: hub.starts_with('~') };
    let hub_side = Side { notified: &hub_side, synced_at: synced_at(hub), allowance, resyncs: 0 };
    let allowance = Allowance::Lists(&lists[..count(go)]);
    let go_side = Side { notified: &go_side, synced_at: synced_at(go), allowance, resyncs: 0 };
    judge(&history, 1, hub_side, go_side).map(|tally| tally.into_iter().collect())
}

#[test]
fn oracle_equal_notifications_have_no_difference() {
    let same = "*a1 a1>a2 -a3 +b4";
    assert_eq!(verdict("a1 a2 -a3 b4", same, same), Ok(vec![]));
    assert_eq!(verdict("a1 a2 -a b4", same, same), Ok(vec![]), "a deletion of unknown version");
    assert_eq!(
        verdict("a1 ?a14 -a4", "*a1 a1>a3 -a4", "*a1 a1>a3 -a4"),
        Ok(vec![]),
        "a deletion mark of unknown version"
    );
    assert_eq!(verdict("", "", ""), Ok(vec![]));
}

#[test]
fn oracle_each_difference_is_classified() {
    use Difference::*;
    let one = |changes, hub, go| verdict(changes, hub, go).unwrap();
    assert_eq!(one("a1 a2", "*a1 a1>a2", "%*a1 a1>a2 a2>a2"), [(Repeated, 1)]);
    assert_eq!(one("a1 -a2 b3", "%*a1 !a1 +b3", "%*a1 a1>b3"), [(Replaced, 1)]);
    assert_eq!(one("a1 -a2 b3", "*a1 -a2 +b3", "%*a1 a1>b3"), [(Replaced, 1)]);
    assert_eq!(one("a1 a2 a3", "%*a1 a1>a3", "*a1 a1>a2 a2>a3"), [(MissedByHub, 1)]);
    assert_eq!(one("a1 a2 a3", "*a1 a1>a2 a2>a3", "%*a1 a1>a3"), [(MissedByClientGo, 1)]);
    assert_eq!(one("a1 -a2", "%*a1 !a1", "*a1 -a2"), [(DeletionUnseenByHub, 1)]);
    assert_eq!(one("a1 -a2", "*a1 -a2", "%*a1 !a1"), [(DeletionUnseenByClientGo, 1)]);
    assert_eq!(
        one("x1 -x2 a3 a4", "%*x1 !x1 +a4", "*x1 -x2 +a3 a3>a4"),
        [(MissedByHub, 1), (DeletionUnseenByHub, 1), (SeenLater, 1)]
    );
    assert_eq!(one("x1 -x2 a3", "*x1 -x2 +a3", "~*a3"), [(BegunElsewhere, 2)]);
}

#[test]
fn oracle_contract_violations_are_refused_for_both_sides() {
    let right = "*a1 a1>a2 -a3";
    for (wrong, why) in [
        ("*a1 a1>a2", "ends with"),
        ("*a1 -a3 +a2", "is not in the history"),
        ("*a2 a2>a1 -a3", "is not in the history"),
        ("*a1 a1>a9 -a3", "is not in the history"),
        ("*a1 a2>a2 -a3", "cannot follow"),
        ("*a1 *a2 -a3", "cannot follow"),
        ("a1>a2 -a3", "cannot follow"),
        ("*a1 a1>a2 -a4", "is not in the history"),
        ("*a1 a1>a2 !a1", "cannot follow"),
        ("*a1 a1>a2 -a3 -a3", "cannot follow"),
        ("+a1 a1>a2 -a3", "wrong initial flag"),
        ("*a2 -a3", "wrong initial flag"),
        ("*a1 a1>a2 !a2", "without a list"),
        ("*a1 -a3", "without a list"),
    ] {
        let hub = verdict("a1 a2 -a3", wrong, right).unwrap_err();
        assert!(hub.starts_with("the hub") && hub.contains(why), "{wrong}: {hub}");
        let go = verdict("a1 a2 -a3", right, wrong).unwrap_err();
        assert!(go.starts_with("client-go") && go.contains(why), "{wrong}: {go}");
    }
}

#[test]
fn oracle_list_permits_missing_only_earlier_changes() {
    let history = history("a1 a2 a3 -a4");
    let (all, some, none) = (notified("*a1 a1>a2 a2>a3 -a4"), notified("*a1 a1>a3 -a4"), notified("*a1 !a1"));
    let judged = |notified: &[Notified], list| {
        let hub = Side {
            notified: &all,
            synced_at: 1,
            allowance: Allowance::Gaps { gaps: &[], lists: 1, late: false },
            resyncs: 0,
        };
        judge(&history, 1, hub, Side { notified, synced_at: 1, allowance: Allowance::Lists(&[1, list]), resyncs: 0 })
    };
    assert!(judged(&some, 2).is_ok());
    assert!(judged(&some, 1).unwrap_err().contains("without a list that skipped the change"));
    assert!(judged(&none, 4).is_ok());
    assert!(judged(&none, 3).unwrap_err().contains("without a list that skipped the change"));
}

#[test]
fn oracle_hub_list_permits_missing_only_skipped_versions() {
    let history = history("a1 a3 a5 -a7");
    let (all, some, none) = (notified("*a1 a1>a3 a3>a5 -a7"), notified("*a1 a1>a5 -a7"), notified("*a1 !a1"));
    let judged = |notified: &[Notified], after, upto| {
        let go = Side { notified: &all, synced_at: 1, allowance: Allowance::Lists(&[1]), resyncs: 0 };
        let allowance = Allowance::Gaps { gaps: &[Gap { after, upto }], lists: 2, late: false };
        judge(&history, 1, Side { notified, synced_at: 1, allowance, resyncs: 0 }, go)
    };
    let refused = |notified, after, upto| {
        let problem = judged(notified, after, upto).expect_err(&format!("{after} to {upto}"));
        assert!(problem.contains("without a list that skipped the change"), "{problem}");
    };
    assert!(judged(&some, 2, 3).is_ok());
    refused(&some, 3, 9);
    refused(&some, 1, 2);
    assert!(judged(&none, 1, 7).is_ok());
    refused(&none, 1, 6);
    refused(&none, 3, 7);
}

#[test]
fn oracle_deletion_of_unknown_version_lies_between_its_neighbours() {
    let history = history("a1 a3 -a b7");
    let (all, unseen) = (notified("*a1 a1>a3 -a5 +b7"), notified("*a1 a1>a3 !a3 +b7"));
    let judged = |after, upto| {
        let go = Side { notified: &all, synced_at: 1, allowance: Allowance::Lists(&[1]), resyncs: 0 };
        let allowance = Allowance::Gaps { gaps: &[Gap { after, upto }], lists: 2, late: false };
        judge(&history, 1, Side { notified: &unseen, synced_at: 1, allowance, resyncs: 0 }, go)
    };
    assert!(judged(3, 4).is_ok());
    assert!(judged(5, 9).is_ok());
    assert!(judged(1, 3).unwrap_err().contains("without a list that skipped the change"));
    assert!(judged(6, 9).unwrap_err().contains("without a list that skipped the change"));
}

#[test]
fn oracle_only_a_late_handler_may_miss_changes_before_it_joined() {
    let history = history("a1 a3 a5 -a7");
    let (all, some) = (notified("*a1 a1>a3 a3>a5 -a7"), notified("*a5 -a7"));
    let judged = |late| {
        let go = Side { notified: &all, synced_at: 1, allowance: Allowance::Lists(&[1]), resyncs: 0 };
        let allowance = Allowance::Gaps { gaps: &[Gap { after: 0, upto: 1 }], lists: 1, late };
        judge(&history, 1, Side { notified: &some, synced_at: 3, allowance, resyncs: 0 }, go)
    };
    assert!(judged(true).is_ok());
    assert!(judged(false).unwrap_err().contains("without a list that skipped the change"));
}

#[test]
fn oracle_resyncs_permit_a_bounded_number_of_repetitions() {
    let history = history("a1 a2");
    let (once, twice) = (notified("*a1 a1>a1 a1>a2"), notified("*a1 a1>a1 a1>a2 a2>a2"));
    let judged = |hub, go, resyncs| {
        let of_hub = Allowance::Gaps { gaps: &[Gap { after: 0, upto: 1 }], lists: 1, late: false };
        let side = |notified, allowance| Side { notified, synced_at: 1, allowance, resyncs };
        judge(&history, 1, side(hub, of_hub), side(go, Allowance::Lists(&[1])))
            .map(|tally| tally.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(judged(&once, &once, 1), Ok(vec![]));
    assert_eq!(judged(&twice, &once, 2), Ok(vec![(Difference::Resynced, 1)]));
    assert!(judged(&twice, &once, 1).unwrap_err().contains("repeated an object"));
    assert!(judged(&once, &twice, 1).unwrap_err().contains("2 repetitions"));
}

#[test]
fn oracle_repetitions_and_replacements_by_the_hub_are_refused() {
    assert!(verdict("a1 a2", "%*a1 a1>a1 a1>a2", "*a1 a1>a2").unwrap_err().contains("repeated an object"));
    assert!(verdict("a1 -a2 b3", "%*a1 a1>b3", "*a1 -a2 +b3").unwrap_err().contains("repeated an object"));
    assert!(
        verdict("a1 a2", "*a1 a1>a2", "*a1 a1>a1 a1>a2").unwrap_err().contains("after 1 lists"),
        "repetitions need a list"
    );
    let other = verdict("a1 -a", "*a1 -a5", "*a1 -a6").unwrap_err();
    assert!(other.contains("differ in the state of one change"), "{other}");
    let other = verdict("a1 ?a15 -a5", "*a1 a1>a2 -a5", "*a1 a1>a3 -a5").unwrap_err();
    assert!(other.contains("differ in the state of one change"), "{other}");
    assert!(verdict("a1 ?a14 -a4", "*a1 -a4", "*a1 a1>a3 -a4").unwrap_err().contains("did not notify"));
    assert!(verdict("a1 ?a14 -a4", "*a1 a1>a4 -a4", "*a1 a1>a3 -a4").unwrap_err().contains("is not in the history"));
}

#[test]
fn oracle_differences_are_documented() {
    use Difference::*;
    let document = include_str!("../../../docs/client-go-differences.md");
    let all = [
        Resynced,
        Repeated,
        Replaced,
        MissedByHub,
        MissedByClientGo,
        DeletionUnseenByHub,
        DeletionUnseenByClientGo,
        SeenLater,
        BegunElsewhere,
    ];
    for difference in all {
        assert!(document.contains(&format!("`{difference:?}`")), "{difference:?} is not in the document");
    }
}

#[test]
fn oracle_reordering_is_counted_and_requires_a_list_of_client_go() {
    let log = Log::new(ChangeCounter::default());
    // Initial objects, tombstones and repetitions have no place in the order of changes.
    for notified in notified("*a9 +b4 a9>a9 !c1 b4>b8 +d6 -d7 +e12 -e11") {
        log.record((Kind::Pods, "any".to_owned()), notified);
    }
    assert_eq!((log.reordered(Kind::Pods), log.reordered(Kind::Widgets)), (2, 0));
    assert_eq!(judge_order(0, 0, 1), Ok([].into()));
    assert_eq!(judge_order(2, 0, 1), Ok([(Difference::ReorderedByHub, 2)].into()));
    assert_eq!(judge_order(0, 3, 2), Ok([(Difference::ReorderedByClientGo, 3)].into()));
    assert!(judge_order(0, 1, 1).is_err());
}

//! The judge, judged: what it must not let pass.

use informer_hub_types::{ResourceVersion, Uid};

use super::account::{Count, Fact, Kind, Log, State, Told, What};
use super::judge::{Difference, Excuse, Side, judge, judge_order};
use super::witness::Gap;

/// `a1` is object a at version 1.
fn state(text: &str) -> State {
    let (uid, version) = text.split_at(1);
    State { uid: Uid::new(uid), version: ResourceVersion::new(version) }
}

/// `a1` for a state, `-a2` for a deletion, `-a` for one of unknown version, `?a14` for a mark between 1 and 4.
fn history(text: &str) -> Vec<Fact> {
    let what = |word: &str| match word.strip_prefix('-') {
        Some(gone) => {
            let (uid, version) = gone.split_at(1);
            What::Gone {
                uid: Uid::new(uid),
                version: Some(version).filter(|v| !v.is_empty()).map(ResourceVersion::new),
            }
        }
        None => match word.strip_prefix('?').map(|word| word.split_at(1)) {
            Some((uid, between)) => {
                let (after, before) = between.split_at(1);
                What::Dying {
                    uid: Uid::new(uid),
                    after: ResourceVersion::new(after),
                    before: ResourceVersion::new(before),
                }
            }
            None => What::Is(state(word)),
        },
    };
    text.split_whitespace().enumerate().map(|(number, word)| Fact { number, what: what(word) }).collect()
}

/// `*a1` initial, `+a1` added, `a1>a2` updated, `-a3` deleted, `!a2` a tombstone.
fn told(text: &str) -> Vec<Told> {
    let one = |word: &str| match word.split_at(1) {
        ("*", new) => Told::Added { new: state(new), initial: true },
        ("+", new) => Told::Added { new: state(new), initial: false },
        ("-", last) => Told::Deleted { last: state(last), tombstone: false },
        ("!", last) => Told::Deleted { last: state(last), tombstone: true },
        _ => {
            let (old, new) = word.split_once('>').expect("an update");
            Told::Updated { old: state(old), new: state(new) }
        }
    };
    text.split_whitespace().map(one).collect()
}

/// Both started when one fact had happened, and synced at once; a `%` before what a side told says that it listed again
/// when all had happened, a `~` that it synced only then.
fn verdict(facts: &str, hub: &str, go: &str) -> Result<Vec<(Difference, usize)>, String> {
    let history = history(facts);
    let (lists, gaps) = ([1, history.len()], [Gap { after: 0, upto: 1 }, Gap { after: 1, upto: 9 }]);
    let [mine, its] = [hub, go].map(|text| told(text.trim_start_matches(['%', '~'])));
    let count = |text: &str| 1 + usize::from(text.starts_with('%'));
    let synced_at = |text: &str| if text.starts_with('~') { history.len() } else { 1 };
    let excuse = Excuse::Gaps { gaps: &gaps[..count(hub)], lists: count(hub), late: hub.starts_with('~') };
    let mine = Side { told: &mine, synced_at: synced_at(hub), excuse, resyncs: 0 };
    let excuse = Excuse::Lists(&lists[..count(go)]);
    let its = Side { told: &its, synced_at: synced_at(go), excuse, resyncs: 0 };
    judge(&history, 1, mine, its).map(|tally| tally.into_iter().collect())
}

#[test]
fn oracle_the_same_is_no_difference() {
    let same = "*a1 a1>a2 -a3 +b4";
    assert_eq!(verdict("a1 a2 -a3 b4", same, same), Ok(vec![]));
    assert_eq!(verdict("a1 a2 -a b4", same, same), Ok(vec![]), "a deletion of unknown version");
    assert_eq!(verdict("a1 ?a14 -a4", "*a1 a1>a3 -a4", "*a1 a1>a3 -a4"), Ok(vec![]), "a mark of unknown version");
    assert_eq!(verdict("", "", ""), Ok(vec![]));
}

#[test]
fn oracle_each_difference_is_told_from_the_others() {
    use Difference::*;
    let one = |facts, hub, go| verdict(facts, hub, go).unwrap();
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
fn oracle_what_no_informer_may_do_is_refused_of_both() {
    let right = "*a1 a1>a2 -a3";
    for (wrong, why) in [
        ("*a1 a1>a2", "ends with"),
        ("*a1 -a3 +a2", "did not happen"),
        ("*a2 a2>a1 -a3", "did not happen"),
        ("*a1 a1>a9 -a3", "did not happen"),
        ("*a1 a2>a2 -a3", "cannot follow"),
        ("*a1 *a2 -a3", "cannot follow"),
        ("a1>a2 -a3", "cannot follow"),
        ("*a1 a1>a2 -a4", "did not happen"),
        ("*a1 a1>a2 !a1", "cannot follow"),
        ("*a1 a1>a2 -a3 -a3", "cannot follow"),
        ("+a1 a1>a2 -a3", "is initial or not"),
        ("*a2 -a3", "is initial or not"),
        ("*a1 a1>a2 !a2", "without having listed"),
        ("*a1 -a3", "without having listed"),
    ] {
        let hub = verdict("a1 a2 -a3", wrong, right).unwrap_err();
        assert!(hub.starts_with("the hub") && hub.contains(why), "{wrong}: {hub}");
        let go = verdict("a1 a2 -a3", right, wrong).unwrap_err();
        assert!(go.starts_with("client-go") && go.contains(why), "{wrong}: {go}");
    }
}

#[test]
fn oracle_a_list_excuses_only_what_happened_before_it() {
    let history = history("a1 a2 a3 -a4");
    let (all, some, none) = (told("*a1 a1>a2 a2>a3 -a4"), told("*a1 a1>a3 -a4"), told("*a1 !a1"));
    let judged = |told: &[Told], list| {
        let hub =
            Side { told: &all, synced_at: 1, excuse: Excuse::Gaps { gaps: &[], lists: 1, late: false }, resyncs: 0 };
        judge(&history, 1, hub, Side { told, synced_at: 1, excuse: Excuse::Lists(&[1, list]), resyncs: 0 })
    };
    assert!(judged(&some, 2).is_ok());
    assert!(judged(&some, 1).unwrap_err().contains("without having listed past it"));
    assert!(judged(&none, 4).is_ok());
    assert!(judged(&none, 3).unwrap_err().contains("without having listed past it"));
}

#[test]
fn oracle_a_list_of_the_hub_excuses_only_the_versions_that_it_jumped_over() {
    let history = history("a1 a3 a5 -a7");
    let (all, some, none) = (told("*a1 a1>a3 a3>a5 -a7"), told("*a1 a1>a5 -a7"), told("*a1 !a1"));
    let judged = |told: &[Told], after, upto| {
        let go = Side { told: &all, synced_at: 1, excuse: Excuse::Lists(&[1]), resyncs: 0 };
        let excuse = Excuse::Gaps { gaps: &[Gap { after, upto }], lists: 2, late: false };
        judge(&history, 1, Side { told, synced_at: 1, excuse, resyncs: 0 }, go)
    };
    let refused = |told, after, upto| {
        let problem = judged(told, after, upto).expect_err(&format!("{after} to {upto}"));
        assert!(problem.contains("without having listed past it"), "{problem}");
    };
    assert!(judged(&some, 2, 3).is_ok());
    refused(&some, 3, 9);
    refused(&some, 1, 2);
    assert!(judged(&none, 1, 7).is_ok());
    refused(&none, 1, 6);
    refused(&none, 3, 7);
}

#[test]
fn oracle_a_deletion_of_unknown_version_was_between_its_neighbours() {
    let history = history("a1 a3 -a b7");
    let (all, unseen) = (told("*a1 a1>a3 -a5 +b7"), told("*a1 a1>a3 !a3 +b7"));
    let judged = |after, upto| {
        let go = Side { told: &all, synced_at: 1, excuse: Excuse::Lists(&[1]), resyncs: 0 };
        let excuse = Excuse::Gaps { gaps: &[Gap { after, upto }], lists: 2, late: false };
        judge(&history, 1, Side { told: &unseen, synced_at: 1, excuse, resyncs: 0 }, go)
    };
    assert!(judged(3, 4).is_ok());
    assert!(judged(5, 9).is_ok());
    assert!(judged(1, 3).unwrap_err().contains("without having listed past it"));
    assert!(judged(6, 9).unwrap_err().contains("without having listed past it"));
}

#[test]
fn oracle_only_who_joined_late_is_excused_of_what_was_before() {
    let history = history("a1 a3 a5 -a7");
    let (all, some) = (told("*a1 a1>a3 a3>a5 -a7"), told("*a5 -a7"));
    let judged = |late| {
        let go = Side { told: &all, synced_at: 1, excuse: Excuse::Lists(&[1]), resyncs: 0 };
        let excuse = Excuse::Gaps { gaps: &[Gap { after: 0, upto: 1 }], lists: 1, late };
        judge(&history, 1, Side { told: &some, synced_at: 3, excuse, resyncs: 0 }, go)
    };
    assert!(judged(true).is_ok());
    assert!(judged(false).unwrap_err().contains("without having listed past it"));
}

#[test]
fn oracle_resyncs_excuse_as_many_repetitions_of_both_as_there_can_be() {
    let history = history("a1 a2");
    let (once, twice) = (told("*a1 a1>a1 a1>a2"), told("*a1 a1>a1 a1>a2 a2>a2"));
    let judged = |hub, go, resyncs| {
        let side = |told| Side { told, synced_at: 1, excuse: Excuse::Lists(&[1]), resyncs };
        judge(&history, 1, side(hub), side(go)).map(|tally| tally.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(judged(&once, &once, 1), Ok(vec![]));
    assert_eq!(judged(&twice, &once, 2), Ok(vec![(Difference::Resynced, 1)]));
    assert!(judged(&twice, &once, 1).unwrap_err().contains("never tells"));
    assert!(judged(&once, &twice, 1).unwrap_err().contains("repeats 2 times"));
}

#[test]
fn oracle_what_client_go_may_do_and_the_hub_may_not_is_refused() {
    assert!(verdict("a1 a2", "%*a1 a1>a1 a1>a2", "*a1 a1>a2").unwrap_err().contains("never tells"));
    assert!(verdict("a1 -a2 b3", "%*a1 a1>b3", "*a1 -a2 +b3").unwrap_err().contains("never tells"));
    assert!(
        verdict("a1 a2", "*a1 a1>a2", "*a1 a1>a1 a1>a2").unwrap_err().contains("after 1 lists"),
        "no list, no excuse"
    );
    let other = verdict("a1 -a", "*a1 -a5", "*a1 -a6").unwrap_err();
    assert!(other.contains("one and the same"), "{other}");
    let other = verdict("a1 ?a15 -a5", "*a1 a1>a2 -a5", "*a1 a1>a3 -a5").unwrap_err();
    assert!(other.contains("one and the same"), "{other}");
    assert!(verdict("a1 ?a14 -a4", "*a1 -a4", "*a1 a1>a3 -a4").unwrap_err().contains("did not tell"));
    assert!(verdict("a1 ?a14 -a4", "*a1 a1>a4 -a4", "*a1 a1>a3 -a4").unwrap_err().contains("did not happen"));
}

#[test]
fn oracle_every_difference_is_in_the_document() {
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
fn oracle_order_between_objects_is_counted_and_client_go_reorders_after_a_list_only() {
    let log = Log::new(Count::default());
    // Initial objects come in the order of their names, tombstones and repetitions say nothing of when they happened.
    for told in told("*a9 +b4 a9>a9 !c1 b4>b8 +d6 -d7 +e12 -e11") {
        log.tell((Kind::Pods, "any".to_owned()), told);
    }
    assert_eq!((log.reordered(Kind::Pods), log.reordered(Kind::Widgets)), (2, 0));
    assert_eq!(judge_order(0, 0, 1), Ok([].into()));
    assert_eq!(judge_order(2, 0, 1), Ok([(Difference::ReorderedByHub, 2)].into()));
    assert_eq!(judge_order(0, 3, 2), Ok([(Difference::ReorderedByClientGo, 3)].into()));
    assert!(judge_order(0, 1, 1).is_err());
}

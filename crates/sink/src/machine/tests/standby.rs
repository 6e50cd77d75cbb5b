//! Tests of machines that hold events while another process delivers them.

use super::*;

fn at(version: u64) -> SourceVersions {
    SourceVersions::from([("prod-eu".to_owned(), [("pods.".to_owned(), version)].into())])
}

/// Reports to a rig the version up to which another process has delivered, and the one up to which the rig has
/// accepted.
fn cover(rig: &mut Rig, acknowledged: u64, accepted: u64) {
    let coverage = Coverage { acknowledged: at(acknowledged), accepted: at(accepted) };
    rig.machine.drop_covered(&coverage, rig.now);
    rig.run(SECOND);
}

fn both() -> [Rig; 2] {
    let mut rigs = [Rig::new(), Rig::in_memory()];
    for rig in &mut rigs {
        rig.machine.set_sending(false);
    }
    rigs
}

fn sent(rig: &mut Rig) -> Vec<u64> {
    rig.machine.set_sending(true);
    rig.run(SECOND);
    let mut versions: Vec<_> = rig.accepted.iter().map(|event| event.version().as_number().unwrap()).collect();
    versions.sort_unstable();
    versions
}

fn deletion(name: &str, version: u64, tombstone: bool) -> Notification {
    Notification::Deleted { object: pod(name, &version.to_string(), "x"), tombstone }
}

#[test]
fn standby_holds_events_until_another_process_has_delivered_them() {
    for mut rig in both() {
        rig.send((2..=9).map(|version| update(&format!("web-{}", version % 3), version)).collect());
        rig.run(DAY);
        assert!(rig.accepted.is_empty());
        cover(&mut rig, 6, 9);
        assert_eq!(rig.health.delivered_elsewhere.load(Relaxed), 5);
        assert_eq!(rig.machine.undelivered(), 3);
        assert_eq!(sent(&mut rig), [7, 8, 9], "and nothing that the other process has delivered");
        assert_eq!(rig.machine.undelivered(), 0);
    }
}

#[test]
fn versions_of_other_clusters_and_resources_cover_nothing() {
    for mut rig in both() {
        rig.send(vec![update("web", 5)]);
        for (cluster, resource) in [("prod-eu", "pods.example.com"), ("prod-us", "pods.")] {
            let other = SourceVersions::from([(cluster.to_owned(), [(resource.to_owned(), 100)].into())]);
            let coverage = Coverage { acknowledged: other.clone(), accepted: other };
            rig.machine.drop_covered(&coverage, rig.now);
        }
        rig.run(SECOND);
        assert_eq!(sent(&mut rig), [5]);
    }
}

#[test]
fn deletion_with_an_old_version_is_kept_until_a_later_version_is_covered() {
    for mut rig in both() {
        // The object had version 3. It was deleted at version 50, which a list at version 60 found.
        rig.send(vec![deletion("web", 3, true)]);
        rig.run(SECOND);
        for acknowledged in [40, 49, 59] {
            cover(&mut rig, acknowledged, 60);
            assert_eq!(rig.machine.undelivered(), 1, "acknowledged up to {acknowledged}");
        }
        // Version 65 may have been read before the machine held the deletion.
        cover(&mut rig, 65, 65);
        cover(&mut rig, 69, 70);
        assert_eq!(rig.machine.undelivered(), 1);
        cover(&mut rig, 70, 80);
        assert_eq!(rig.machine.undelivered(), 0);
    }
}

#[test]
fn deletion_is_kept_while_the_accepted_version_may_be_older() {
    for mut rig in both() {
        cover(&mut rig, 10, 10);
        // Deleted at version 30. The versions 20 and 25, which are reported next, were read before the deletion.
        rig.send(vec![deletion("web", 30, false)]);
        rig.run(SECOND);
        for accepted in [20, 25, 25] {
            cover(&mut rig, 29, accepted);
            assert_eq!(rig.machine.undelivered(), 1, "accepted up to {accepted}");
        }
        cover(&mut rig, 29, 40);
        cover(&mut rig, 39, 40);
        assert_eq!(rig.machine.undelivered(), 1);
        cover(&mut rig, 40, 40);
        assert_eq!(rig.machine.undelivered(), 0);
    }
}

#[test]
fn deletion_ignores_a_version_that_was_read_before_it_was_held() {
    for mut rig in both() {
        cover(&mut rig, 10, 10);
        rig.send(vec![deletion("web", 3, true)]);
        rig.run(SECOND);
        cover(&mut rig, 20, 20);
        assert_eq!(rig.machine.undelivered(), 1);
        assert_eq!(sent(&mut rig), [3]);
    }
}

#[test]
fn full_standby_answers_its_senders_when_another_process_delivers() {
    let mut rig = Rig::in_memory();
    rig.machine.set_sending(false);
    let first = rig.send((2..=201).map(|version| update("web", version)).collect());
    let second = rig.send(vec![update("web", 202)]);
    rig.run(SECOND);
    assert_eq!(rig.answered, [first]);
    cover(&mut rig, 150, 201);
    assert_eq!(rig.answered, [first, second]);
    assert_eq!(sent(&mut rig), (151..=202).collect::<Vec<_>>());
}

#[test]
fn lowest_pending_version_counts_events_in_flight_and_waiting() {
    for mut rig in both() {
        assert_eq!(rig.machine.lowest_pending(), Some(SourceVersions::new()));
        rig.receiver(down);
        rig.machine.set_sending(true);
        rig.send(vec![update("web", 8), update("db", 5), deletion("old", 7, false)]);
        rig.run(SECOND);
        assert_eq!(rig.machine.lowest_pending(), Some(at(5)));
        rig.receiver(|_| Outcome::Accepted);
        rig.run(DAY);
        assert_eq!(rig.machine.lowest_pending(), Some(SourceVersions::new()));
    }
}

#[test]
fn lowest_pending_version_is_unknown_while_events_are_only_in_the_journal() {
    let mut rig = Rig::new();
    rig.receiver(down);
    for part in history(10, 60).chunks(100) {
        rig.send(part.to_vec());
        rig.run(SECOND);
    }
    assert!(rig.machine.undelivered() > 200);
    assert_eq!(rig.machine.lowest_pending(), None);
}

#[test]
fn fenced_attempt_counts_as_no_failure_and_its_batch_can_be_covered() {
    for mut rig in both() {
        rig.machine.set_sending(true);
        rig.receiver(|_| unreachable!("the fence is closed"));
        rig.send(vec![update("db", 6)]);
        let lane = loop {
            rig.now += Duration::from_millis(10);
            match rig.machine.next(rig.now) {
                Some(Action::Attempt { lane, .. }) => break lane,
                Some(Action::Work(work)) => {
                    let done = rig.store.run(work);
                    rig.machine.work_done(done, rig.now);
                }
                Some(Action::Answer(_)) | None => {}
            }
        };
        rig.machine.set_sending(false);
        rig.machine.attempted(lane, Err(BrokenAttempt::Fenced), rig.now);
        rig.run(SECOND);
        assert_eq!((rig.machine.undelivered(), rig.health.retries.load(Relaxed)), (1, 0));
        cover(&mut rig, 6, 6);
        assert_eq!(rig.machine.undelivered(), 0);
    }
}

#[test]
fn replayed_dead_letter_is_not_covered_by_newer_deliveries() {
    let mut rig = rig_with_letters();
    rig.machine.set_sending(false);
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.run(SECOND);
    cover(&mut rig, 9, 9);
    assert_eq!(rig.machine.undelivered(), 2);
    assert_eq!(sent(&mut rig), [1, 2]);
}

//! Tests of successive objects with the same name, over restarts.

use super::*;
use crate::test_objects::pod_of;
use informer_hub_types::{ResourceVersion, Rewind};

fn gone(uid: &str, version: &str) -> Notification {
    Notification::Deleted { object: pod_of("web", uid, version), tombstone: false }
}

/// Accepted events, as type and UID.
fn accepted(rig: &Rig) -> Vec<String> {
    rig.accepted.iter().map(|event| format!("{} {}", event.event_type().as_str(), event.uid())).collect()
}

#[test]
fn predecessor_that_was_never_sent_is_not_sent_behind_its_successor() {
    for power in [false, true] {
        let mut rig = Rig::new();
        let successor = added(pod_of("web", "later", "6"), false);
        // The listener was slow: the predecessor's addition and deletion have cancelled each other.
        rig.send(vec![successor.clone()]);
        rig.run(SECOND);
        rig.restart(power);
        let [before, after] = ["3", "4"].map(|version| pod_of("web", "earlier", version));
        let predecessor = vec![added(before.clone(), false), updated(before, after), gone("earlier", "5")];
        rig.send(predecessor.clone());
        // Killed again before the successor is observed.
        rig.run(SECOND);
        rig.restart(power);
        rig.send(predecessor);
        rig.send(vec![successor, gone("later", "7"), added(pod_of("web", "last", "8"), false)]);
        rig.run(SECOND);
        assert_eq!(accepted(&rig), ["added later", "deleted later", "added last"]);
        assert_eq!((rig.answered.len(), rig.machine.undelivered()), (4, 0));
    }
}

#[test]
fn deletion_of_a_journaled_object_is_delivered_behind_its_successor() {
    let mut rig = Rig::new();
    let [earlier, later] = [("earlier", "3"), ("later", "6")].map(|(uid, version)| pod_of("web", uid, version));
    rig.send(vec![added(earlier.clone(), false), added(later.clone(), false)]);
    rig.run(SECOND);
    rig.restart(false);
    rig.send(vec![added(earlier, false), gone("earlier", "5")]);
    rig.run(SECOND);
    rig.restart(false);
    rig.send(vec![gone("earlier", "5"), added(later, false)]);
    rig.run(SECOND);
    assert_eq!(accepted(&rig), ["added earlier", "added later", "deleted earlier", "updated later"]);
    let ids: std::collections::HashSet<_> = rig.accepted.iter().map(Event::id).collect();
    assert_eq!(ids.len(), 4, "a receiver that skips known ids applies all");
}

#[test]
fn states_of_a_cluster_whose_etcd_was_restored_are_sent_with_other_ids() {
    let mut rig = Rig::new();
    let [web, changed] = ["3", "4"].map(|version| pod_of("web", "one", version));
    rig.send(vec![added(web.clone(), false), updated(web.clone(), changed), gone("one", "5")]);
    rig.run(SECOND);
    rig.restart(false);
    let rewinds = Rewinds::default();
    rig.machine.share_rewinds(rewinds.clone());
    rig.send(vec![added(web.clone(), false)]);
    rig.run(SECOND);
    assert_eq!(rig.accepted.len(), 3, "observed again");
    let rewind = Rewind { known: ResourceVersion::new("5"), listed: ResourceVersion::new("3") };
    rewinds.add(web.origin(), rewind);
    let [later, last] = ["4", "6"].map(|version| pod_of("web", "one", version));
    rig.send(vec![added(web.clone(), false), updated(web, later.clone()), updated(later, last.clone())]);
    rig.run(SECOND);
    assert_eq!(rig.versions().into_values().next().unwrap(), [3, 4, 5, 3, 4, 6]);
    let ids: std::collections::HashSet<_> = rig.accepted.iter().map(Event::id).collect();
    assert_eq!(ids.len(), 6, "a receiver that skips known ids applies all");
    let plain =
        Event::new(&updated(pod_of("web", "one", "5"), last), jiff::Timestamp::UNIX_EPOCH, &EventOptions::default());
    assert_eq!(plain.unwrap().id(), rig.accepted[5].id(), "new versions have the usual ids");
}

//! Objects with owners, children, Events and last change; documents of discovery; errors.

use super::super::super::*;
use super::ask::{Answered, JSON, without};
use super::{CLUSTERS, Hubs, NAMESPACES, NODES, Place, resources, universe};

/// Requests whose answers or errors name clusters, resources or namespaces. Objects that the reader does not see must
/// not influence these answers.
const NAMING: [&str; 24] = [
    "/clusters/a/version",
    "/clusters/b/version",
    "/clusters/bb/version",
    "/clusters/none/api/v1/pods",
    "/clusters/a/api/v1",
    "/clusters/b/api/v1",
    "/clusters/*/api/v1",
    "/clusters/*/apis",
    "/clusters/*/api",
    "/unique/*/api/v1",
    "/clusters/a/api/v1/podz",
    "/clusters/*/api/v1/namespaces/s/secretz",
    "/clusters/*/api/v1/pods?fieldSelector=spec.none%3D1",
    "/v1/query?resource=podz",
    "/v1/query?resource=secretz",
    "/v1/query?resource=nodez",
    "/v1/query?resource=pods&clusters=bb",
    "/v1/query?resource=pods&clusters=b",
    "/v1/query?resource=pods&q=index%20none%3D1",
    "/v1/events?resource=secretz",
    "/v1/events?resource=secrets&timeout=1ms&clusters=bb",
    "/v1/objects/bb/pods/s/o1",
    "/v1/objects/a/secretz/s/o1",
    "/v1/objects/b/nodez/o1",
];

fn path_of((cluster, resource, namespace, name): Place) -> String {
    let namespace = if resource == NODES { String::new() } else { format!("{}/", NAMESPACES[namespace]) };
    let plural = resources()[resource].gvr.resource.clone();
    format!("/v1/objects/{}/{plural}/{namespace}o{name}", CLUSTERS[cluster].0)
}

/// Removes times and members that depend on which resources are visible, since the readers differ in that.
fn objects_only((code, warning, mut answer): Answered) -> Answered {
    without(&mut answer, &["time"]);
    if code == 200 {
        answer["ownersEnd"] = json!(null);
        if answer["events"].is_null() {
            answer["events"] = json!([]);
        }
    }
    (code, warning, answer)
}

pub(super) async fn agree(hubs: &Hubs) {
    let ann = &hubs.whole.reader;
    for place in universe() {
        let path = path_of(place);
        let found = hubs.whole.ask_as(ann, &path, JSON).await;
        let is_there = hubs.places.contains(&place) && hubs.sees(place);
        assert_eq!(found.0, if is_there { 200 } else { 404 }, "{path}: {}", found.2);
        if is_there {
            let all = hubs.visible.ask_as(&hubs.visible.reader, &path, JSON).await;
            assert_eq!(objects_only(found.clone()), objects_only(all), "{path}");
        }
        let without_time = |(code, warning, mut answer): Answered| {
            without(&mut answer, &["time"]);
            (code, warning, answer)
        };
        let same = hubs.visible.ask_as(ann, &path, JSON).await;
        assert_eq!(without_time(found), without_time(same), "{path}");
    }
    for (root, cluster) in [("/clusters/a", Some(0)), ("/clusters/b", Some(1)), ("/clusters/*", None)] {
        let (code, _, answer) = hubs.whole.ask_as(ann, &format!("{root}/api/v1"), JSON).await;
        let listed: Vec<_> =
            answer["resources"].as_array().into_iter().flatten().map(|it| it["name"].clone()).collect();
        let is_listed = |(number, resource): &(usize, ApiResource)| match cluster {
            Some(cluster) => hubs.sees_any(cluster, *number),
            None => hubs.rules.iter().any(|rule| rule.covers(resource)),
        };
        let seen = resources().into_iter().enumerate().filter(is_listed);
        let mut seen: Vec<_> = seen.map(|(_, resource)| json!(resource.gvr.resource.as_str())).collect();
        seen.sort_by_key(Value::to_string);
        assert!(code == 200 && listed == seen || listed.is_empty() && seen.is_empty(), "{root}: {code} {answer}");
    }
    for path in NAMING {
        let (whole, visible) = (hubs.whole.ask_as(ann, path, JSON).await, hubs.visible.ask_as(ann, path, JSON).await);
        assert_eq!(whole, visible, "{path}");
    }
}

//! Events about an object.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::kubernetes::{CacheInfo, Fleet};
use crate::api::v1::{Failure, Sight};
use crate::cache::{Bounds, Query};
use informer_hub_access::Verb;
use informer_hub_query::{Expr, Test};
use informer_hub_types::{ClusterSelector, FieldPath, Object};

/// Maximum number of Events in an answer.
const MOST: usize = 50;

/// Time limit of the query for Events.
const WITHIN: Duration = Duration::from_secs(5);

/// Events, newest first, in the form of the answer.
pub(super) type ObjectEvents = Vec<Value>;

/// Returns the Events about an object; `None` if Events are not cached.
pub(super) async fn events_about(
    fleet: &dyn Fleet,
    object: &Object,
    caches: &[CacheInfo],
    sight: &Sight,
) -> Result<Option<ObjectEvents>, Failure> {
    let of_group = |group: &str| {
        caches.iter().find(|cache| cache.resource.gvr.resource == "events" && cache.resource.gvr.group == group)
    };
    let (cache, about) = match (of_group(""), of_group("events.k8s.io")) {
        (Some(cache), _) => (cache, "involvedObject"),
        (None, Some(cache)) => (cache, "regarding"),
        (None, None) => return Ok(None),
    };
    let mut visible = fleet.query(cache, query_of(object, about)).await?.items;
    sight.retain(Verb::List, &mut visible).await;
    let read = |event: &Object| serde_json::from_slice::<Value>(&event.stored().json().ok()?).ok();
    let mut events: Vec<_> = visible
        .iter()
        .filter_map(read)
        .filter(|event| is_about(&event[about], object))
        .map(|event| shown(&event))
        .collect();
    events.sort_by(|one, other| other["last"].as_str().cmp(&one["last"].as_str()));
    events.truncate(MOST);
    Ok(Some(events))
}

/// Returns the query for the Events about an object. Events about cluster-scoped objects are in the namespace
/// `default`, so the query has no namespace for them.
fn query_of(object: &Object, about: &str) -> Query {
    let field = |name: &str, value: &str| {
        let path: Option<FieldPath> = format!("{about}.{name}").parse().ok();
        path.map(|path| Expr::field(path, Test::is(value)))
    };
    let kind = object.origin().resource.kind.as_str();
    let fields = [field("name", object.name()), field("kind", kind)].into_iter().flatten().collect();
    let query = Query::matching(Expr::And(fields)).in_clusters(ClusterSelector::Names(vec![object.cluster().clone()]));
    let query = match object.namespace() {
        Some(namespace) => query.in_namespace(namespace),
        None => query,
    };
    query.within(Bounds { within: WITHIN, ..Bounds::default() })
}

/// Returns whether the reference in an Event is to this object, not to an earlier object of the same name.
///
/// Compares UIDs. A reference without UID counts as a match, because some components write none. A reference with the
/// object's name as UID also matches, because kubelets write it for their node.
fn is_about(reference: &Value, object: &Object) -> bool {
    let uid = reference["uid"].as_str().unwrap_or_default();
    uid.is_empty() || uid == object.name() || uid == object.uid().to_string()
}

/// Returns the members of an Event for the answer, with the same names for both API groups of Events.
fn shown(event: &Value) -> Value {
    let first = |paths: &[&str]| paths.iter().filter_map(|path| event.pointer(path)).find(|value| !value.is_null());
    let time = first(&[
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]);
    json!({
        "type": event["type"],
        "reason": event["reason"],
        "message": first(&["/message", "/note"]),
        "count": first(&["/series/count", "/count", "/deprecatedCount"]).cloned().unwrap_or_else(|| json!(1)),
        "source": first(&["/source/component", "/reportingController", "/reportingComponent"]),
        "last": time,
    })
}

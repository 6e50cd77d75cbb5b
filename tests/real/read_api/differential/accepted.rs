//! Documented differences between the hub and kube-apiserver.
//!
//! Each has an id, which `docs/kubernetes-api.md` must explain.

use serde_json::Value;

use super::answer::{Answer, Body};
use super::compare::Difference;
use super::request::{Request, Verb};

/// The document that explains the differences.
const DOCUMENT: &str = include_str!("../../../../docs/kubernetes-api.md");

/// A documented difference.
pub(super) struct Accepted {
    /// Name in the document.
    pub(super) id: &'static str,
    /// Whether a difference of an answer is this one.
    explains: fn(&Case<'_>, &Difference) -> bool,
}

/// A request and its answers.
pub(super) struct Case<'a> {
    pub(super) request: &'a Request,
    pub(super) kube: &'a Answer,
    pub(super) hub: &'a Answer,
}

impl Case<'_> {
    fn codes(&self) -> (u16, u16) {
        (self.kube.status, self.hub.status)
    }

    fn has_version(&self) -> bool {
        self.request.parameter("resourceVersion").is_some_and(|version| !version.is_empty())
    }

    fn accepts(&self, text: &str) -> bool {
        self.request.accept.as_ref().is_some_and(|accept| accept.contains(text))
    }
}

/// All documented differences.
pub(super) const ALL: &[Accepted] = &[
    Accepted { id: "media-types", explains: |case, _| case.codes() == (406, 406) },
    Accepted {
        id: "watch-of-lists",
        explains: |case, _| {
            let is_list = case.accepts("protobuf;as=PartialObjectMetadataList");
            is_list && case.request.verb == Verb::Watch && case.codes() == (200, 200)
        },
    },
    Accepted { id: "table-v1", explains: |case, _| case.accepts("v1beta1") && case.hub.status == 406 },
    Accepted { id: "accept-wildcards", explains: |case, _| case.accepts("application/*") && case.kube.status == 406 },
    Accepted {
        id: "media-types",
        explains: |case, _| case.accepts("PartialObjectMetadataList") && case.codes() == (500, 406),
    },
    Accepted { id: "column-descriptions", explains: |_, difference| difference.at.ends_with("/description") },
    Accepted {
        id: "exact-version",
        explains: |case, _| {
            let is_exact = case.request.parameter("resourceVersionMatch") == Some("Exact");
            let is_exact = is_exact || case.request.parameter("limit").is_some_and(|limit| limit != "0");
            is_exact && case.has_version() && (case.hub.status == 410 || case.codes() == (504, 504))
        },
    },
    Accepted {
        id: "window",
        explains: |case, _| match &case.hub.body {
            Body::Events(events) => {
                case.has_version() && case.kube.status == 200 && events.first().is_some_and(is_expired)
            }
            _ => false,
        },
    },
    Accepted {
        id: "error-texts",
        explains: |case, difference| {
            let names = ["labelSelector", "fieldSelector", "continue"];
            let is_parsed = names.iter().any(|name| case.request.parameter(name).is_some());
            is_parsed && case.codes() == (400, 400) && difference.at == "/message"
        },
    },
    Accepted {
        id: "invalid-version",
        explains: |case, _| case.has_version() && case.kube.status == 500 && matches!(case.hub.status, 400 | 406),
    },
    Accepted {
        id: "error-texts",
        explains: |case, _| {
            let is_unknown = case.request.parameter("includeObject") == Some("object");
            is_unknown && case.hub.status == 400 && case.kube.status >= 400
        },
    },
    Accepted { id: "unknown-paths", explains: |case, _| case.request.verb == Verb::Lost && case.codes() == (404, 404) },
    Accepted {
        id: "remaining-count",
        explains: |_, difference| difference.at.ends_with("/remainingItemCount") && difference.hub == "(absent)",
    },
    Accepted {
        id: "pages-of-any-version",
        explains: |case, _| {
            let is_any =
                case.request.parameter("resourceVersion").is_some_and(|version| version.trim_matches('0').is_empty());
            is_any && case.has_version() && !case.hub.continuation.is_empty() && case.kube.continuation.is_empty()
        },
    },
    Accepted {
        id: "last-pages",
        explains: |case, difference| {
            let names = ["labelSelector", "fieldSelector"];
            let is_selected = names.iter().any(|name| case.request.parameter(name).is_some());
            is_selected && difference.at == "/metadata/continue" && case.hub.continuation.is_empty()
        },
    },
    Accepted {
        id: "row-order",
        explains: |case, difference| {
            let is_flow = case.request.resource.is_some_and(|resource| resource.plural == "flowschemas");
            is_flow && difference.at.starts_with("/rows/")
        },
    },
    Accepted {
        id: "table-headers",
        explains: |case, difference| {
            let is_service = case.request.resource.is_some_and(|resource| resource.plural == "apiservices");
            is_service && difference.at.ends_with("/object/columnDefinitions")
        },
    },
    Accepted {
        id: "cached-events",
        explains: |case, difference| {
            let is_event = case.request.resource.is_some_and(|resource| resource.plural == "events");
            let is_retry = matches!(&*difference.at, "retry-after" | "/details/retryAfterSeconds");
            is_event && is_retry && case.codes() == (504, 504)
        },
    },
    Accepted { id: "empty-lists", explains: |_, difference| (&*difference.kube, &*difference.hub) == ("null", "[]") },
    Accepted {
        id: "no-deprecations",
        explains: |_, difference| difference.at == "warning" && difference.hub.is_empty(),
    },
];

/// Returns whether an event says that a version has expired.
fn is_expired(event: &Value) -> bool {
    event["type"] == "ERROR" && event["object"]["code"] == 410
}

/// Returns the id of the documented difference that explains one, if there is one.
pub(super) fn explanation(case: &Case<'_>, difference: &Difference) -> Option<&'static str> {
    ALL.iter().find(|accepted| (accepted.explains)(case, difference)).map(|accepted| accepted.id)
}

#[test]
fn every_accepted_difference_is_documented() {
    let missing: Vec<_> =
        ALL.iter().map(|accepted| accepted.id).filter(|id| !DOCUMENT.contains(&format!("`{id}`"))).collect();
    assert!(missing.is_empty(), "docs/kubernetes-api.md does not explain {missing:?}");
}

//! Documented differences between the hub and kube-apiserver.
//!
//! Each has an id, which `docs/kubernetes-api.md` must explain.

use super::answer::Answer;
use super::compare::Difference;
use super::request::Request;

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
    Accepted { id: "no-protobuf", explains: |case, _| case.accepts("protobuf") && case.hub.status == 406 },
    Accepted { id: "media-types", explains: |case, _| case.codes() == (406, 406) },
    Accepted { id: "table-v1", explains: |case, _| case.accepts("v1beta1") && case.hub.status == 406 },
    Accepted {
        id: "accept-wildcards",
        explains: |case, _| case.accepts("application/*") && case.codes() == (406, 200),
    },
    Accepted { id: "column-descriptions", explains: |_, difference| difference.at.ends_with("/description") },
    Accepted {
        id: "exact-version",
        explains: |case, _| {
            let is_exact = case.request.parameter("resourceVersionMatch") == Some("Exact");
            let is_exact = is_exact || case.request.parameter("limit").is_some_and(|limit| limit != "0");
            is_exact && case.has_version() && case.hub.status == 410
        },
    },
    Accepted {
        id: "error-texts",
        explains: |case, difference| {
            let is_parsed = ["labelSelector", "continue"].iter().any(|name| case.request.parameter(name).is_some());
            is_parsed && case.codes() == (400, 400) && difference.at == "/message"
        },
    },
    Accepted { id: "invalid-version", explains: |case, _| case.has_version() && case.codes() == (500, 400) },
    Accepted {
        id: "unknown-paths",
        explains: |case, _| case.codes() == (404, 404) && case.kube.content_type.starts_with("text/plain"),
    },
];

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

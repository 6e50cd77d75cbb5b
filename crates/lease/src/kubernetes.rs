//! The record of a leader election as a `Lease` of `coordination.k8s.io/v1`: requests to an apiserver and its answers,
//! without I/O.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Answer, Record, Request};

/// Annotation of the Lease that stores [`Record::note`], the text that the holder publishes.
pub const NOTE: &str = "informer-hub.io/delivered";

/// Namespace and name of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
}

/// HTTP request to an apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// HTTP method.
    pub method: &'static str,
    /// Path below the address of the apiserver.
    pub path: String,
    /// Body; empty for `GET`.
    pub body: Vec<u8>,
}

impl LeaseName {
    /// Returns the HTTP request for a request of an elector. `wall` becomes `renewTime`, which is for operators; no
    /// contender reads it.
    #[must_use]
    pub fn http(&self, request: &Request, wall: Timestamp) -> HttpRequest {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let object = format!("{collection}/{}", self.name);
        match request {
            Request::Get => HttpRequest { method: "GET", path: object, body: Vec::new() },
            Request::Create(record) => {
                let body = self.lease(record, None, wall).to_string().into_bytes();
                HttpRequest { method: "POST", path: collection, body }
            }
            Request::Update { record, version } => {
                let body = self.lease(record, Some(version), wall).to_string().into_bytes();
                HttpRequest { method: "PUT", path: object, body }
            }
        }
    }

    fn lease(&self, record: &Record, version: Option<&str>, wall: Timestamp) -> Value {
        let mut metadata = json!({ "namespace": self.namespace, "name": self.name });
        if let Some(version) = version {
            metadata["resourceVersion"] = json!(version);
        }
        if !record.note.is_empty() {
            metadata["annotations"] = json!({ NOTE: &*record.note });
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": &*record.holder,
                "leaseDurationSeconds": record.lease_duration.as_secs().max(1),
                "leaseTransitions": record.transitions,
                "renewTime": format!("{wall:.6}"),
            },
        })
    }
}

/// Converts an apiserver's HTTP status and body to the [`Answer`] for the elector. A body that is not a Lease counts as
/// failed.
#[must_use]
pub fn answer(request: &Request, status: u16, body: &[u8]) -> Answer {
    match (request, status) {
        (Request::Get, 404) => Answer::Missing,
        (Request::Get, 200..=299) => found(body).unwrap_or(Answer::Failed),
        // An update of a lease that was deleted answers 404.
        (_, 409) | (Request::Update { .. }, 404) => Answer::Conflict,
        (_, 200..=299) => match found(body) {
            Some(Answer::Found { version, .. }) => Answer::Written(version),
            _ => Answer::Failed,
        },
        _ => Answer::Failed,
    }
}

fn found(body: &[u8]) -> Option<Answer> {
    let lease: Value = serde_json::from_slice(body).ok()?;
    let version = lease["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())?.into();
    let spec = &lease["spec"];
    let record = Record {
        holder: spec["holderIdentity"].as_str().unwrap_or_default().into(),
        lease_duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0)),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
        note: lease["metadata"]["annotations"][NOTE].as_str().unwrap_or_default().into(),
    };
    Some(Answer::Found { record, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> LeaseName {
        LeaseName { namespace: "hub".to_owned(), name: "informer-hub".to_owned() }
    }

    fn record() -> Record {
        Record { holder: "me".into(), lease_duration: Duration::from_secs(10), transitions: 3, note: "{}".into() }
    }

    #[test]
    fn record_is_the_same_after_a_write_and_a_read() {
        let update = Request::Update { record: record(), version: "7".into() };
        let http = name().http(&update, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (http.method, &*http.path),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/hub/leases/informer-hub")
        );
        let body: Value = serde_json::from_slice(&http.body).unwrap();
        assert_eq!(body["spec"]["renewTime"], "1970-01-01T00:00:00.000000Z");
        let expected = Answer::Found { record: record(), version: "7".into() };
        assert_eq!(answer(&Request::Get, 200, &http.body), expected);
        assert_eq!(answer(&update, 200, &http.body), Answer::Written("7".into()));
        let create = name().http(&Request::Create(record()), Timestamp::UNIX_EPOCH);
        assert_eq!((create.method, &*create.path), ("POST", "/apis/coordination.k8s.io/v1/namespaces/hub/leases"));
    }

    #[test]
    fn refused_and_unreadable_answers_are_told_apart() {
        let update = Request::Update { record: record(), version: "7".into() };
        assert_eq!(answer(&Request::Get, 404, b""), Answer::Missing);
        for (request, status) in [(&update, 409), (&update, 404), (&Request::Create(record()), 409)] {
            assert_eq!(answer(request, status, b""), Answer::Conflict);
        }
        for body in [&b"<html>"[..], b"{}", b"[]", br#"{"metadata":{"resourceVersion":""}}"#] {
            assert_eq!(answer(&Request::Get, 200, body), Answer::Failed);
            assert_eq!(answer(&update, 200, body), Answer::Failed);
        }
        for status in [403, 404, 500] {
            assert_eq!(answer(&Request::Create(record()), status, b"{}"), Answer::Failed);
        }
    }
}

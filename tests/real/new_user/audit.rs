//! Audit log of an apiserver: one line per request, written before the response.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

/// Audit policy: every list and watch, when it is received.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [ResponseStarted, ResponseComplete, Panic]\n\
                      rules:\n- level: Metadata\n  verbs: [list, watch]\n- level: None\n";

/// Audit log of one cluster.
pub(crate) struct Audit(TempDir);

/// A list or watch request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) user: String,
    pub(super) resource: String,
    pub(crate) uri: String,
    /// Id of the credential, if the user authenticated by a token.
    pub(super) credential: String,
    /// Whether the response has all objects: a list, or a watch with initial events.
    pub(super) is_list: bool,
}

impl Audit {
    /// Creates an empty audit log for a new cluster.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
        Self(folder)
    }

    /// Returns the kube-apiserver flags for this log.
    pub(crate) fn flags(&self) -> Vec<String> {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        vec![format!("--audit-policy-file={}", at("policy.yaml")), format!("--audit-log-path={}", at("log"))]
    }

    /// Returns all requests so far, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        // The last line may be incomplete.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).map(|line: Value| request(&line)).collect()
    }

    /// Counts full lists by resource, of users whose name contains `user`.
    pub(super) fn lists(&self, user: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.requests().into_iter().filter(|it| it.is_list && it.user.contains(user)) {
            *counts.entry(request.resource).or_default() += 1;
        }
        counts
    }
}

/// Returns whether a request only asks for the current version, with a list of one object.
pub(super) fn is_check(uri: &str) -> bool {
    uri.split(['?', '&']).any(|part| part == "limit=1")
}

fn request(line: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uri, user) = (text(&line["requestURI"]), &line["user"]);
    Request {
        user: text(&user["username"]),
        resource: text(&line["objectRef"]["resource"]),
        is_list: line["verb"] == "list" && !is_check(&uri) || uri.contains("sendInitialEvents=true"),
        uri,
        credential: text(&user["extra"]["authentication.kubernetes.io/credential-id"][0]),
    }
}
